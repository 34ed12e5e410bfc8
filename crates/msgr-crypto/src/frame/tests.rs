//! Frames against vectors that were computed by other means, round trips, and frames that are refused.

use proptest::prelude::*;
use serde::Deserialize;

use super::*;
use crate::shapes::{Side, builtin};

const KEY: [u8; 16] = [0x42; 16];
const NONCE: [u8; 12] = [0x24; 12];
const REVISIONS: [Revision; 2] = [Revision::V20, Revision::V21];

fn sealer(revision: Revision) -> Sealer {
    Sealer::new(revision, &KEY, NonceSequence::new(revision, NONCE)).unwrap()
}

fn opener(revision: Revision) -> Opener {
    Opener::new(revision, &KEY, NonceSequence::new(revision, NONCE)).unwrap()
}

fn message(lens: [usize; 4]) -> Frame {
    Frame::message(lens.map(|len| (0..len).map(|i| (i * 7 + len) as u8).collect()))
}

fn from_hex(hex: &str) -> Vec<u8> {
    (0..hex.len() / 2)
        .map(|i| u8::from_str_radix(&hex[2 * i..2 * i + 2], 16).unwrap())
        .collect()
}

#[derive(Deserialize)]
struct Vectors {
    key: String,
    vectors: Vec<Vector>,
}

#[derive(Deserialize)]
struct Vector {
    name: String,
    revision: String,
    nonce: String,
    tag: u8,
    lens: Vec<usize>,
    wire: String,
}

/// Check whole frames of both revisions, byte by byte, against `data/make_frame_vectors.py`, and that
/// the layout gives their length.
#[test]
fn vectors() {
    let vectors: Vectors =
        serde_json::from_str(include_str!("../../data/frame_vectors.json")).unwrap();
    let key = from_hex(&vectors.key).try_into().unwrap();
    assert_eq!(vectors.vectors.len(), 18);
    for vector in vectors.vectors {
        let revision = match vector.revision.as_str() {
            "2.0" => Revision::V20,
            _ => Revision::V21,
        };
        let segments = vector.lens.iter().zip(MESSAGE_ALIGNMENTS).enumerate();
        let frame = Frame {
            tag: vector.tag,
            flags: 0,
            segments: segments
                .map(|(seed, (len, align))| Segment {
                    data: (0..*len)
                        .map(|i| (i * 31 + seed * 17 + (i >> 8)) as u8)
                        .collect(),
                    align,
                })
                .collect(),
        };
        let nonce = from_hex(&vector.nonce).try_into().unwrap();
        let nonces = NonceSequence::new(revision, nonce);
        let sealed = Sealer::new(revision, &key, nonces.clone())
            .and_then(|mut sealer| sealer.seal(&frame))
            .unwrap();
        let wire = from_hex(&vector.wire);
        assert_eq!(sealed.bytes, wire, "{} {}", vector.name, vector.revision);
        let layout = Layout::new(revision, &vector.lens);
        assert_eq!(layout.wire_len(), wire.len(), "{}", vector.name);
        let mut opener = Opener::new(revision, &key, nonces).unwrap();
        assert_eq!(opener.open(&wire).unwrap(), (frame, wire.len()));
    }
}

/// Check that the calls of real encryption are those that were traced on a live cluster: what a sender
/// passes for a read request, a 16 KiB reply and a 16 KiB write.
#[test]
fn calls_are_those_of_traced_frames() {
    let traced = |name: &str, side| {
        let shape = builtin()
            .into_iter()
            .find(|s| s.name == name && s.side == side);
        shape.unwrap().units
    };
    for (name, lens) in [
        ("read request", [41, 247, 0, 0]),
        ("16K read reply", [41, 182, 0, 16384]),
        ("16K write, one buffer", [41, 285, 0, 16384]),
    ] {
        let sealed = sealer(Revision::V21).seal(&message(lens)).unwrap();
        assert_eq!(sealed.calls, traced(name, Side::Tx), "{name}");
        let layout = Layout::new(Revision::V21, &lens);
        assert_eq!(layout.tx_calls(&[]), sealed.calls, "{name}");
    }
    let qemu = Layout::new(Revision::V21, &[41, 285, 0, 16384]);
    let buffers = [vec![41], vec![285], vec![], vec![4096; 4]];
    assert_eq!(
        qemu.tx_calls(&buffers),
        traced("16K write, QEMU 4x4K", Side::Tx)
    );
    for (name, lens) in [
        ("read request", [41, 247, 0, 0]),
        ("16K read reply", [41, 182, 0, 16384]),
        ("4K read reply", [41, 182, 0, 4096]),
        ("16K write", [41, 285, 0, 16384]),
        ("write reply", [41, 217, 0, 0]),
    ] {
        let layout = Layout::new(Revision::V21, &lens);
        assert_eq!(layout.rx_calls(), traced(name, Side::Rx), "{name}");
    }
}

/// Check the one unit of msgr v2.0: calls of both ends.
#[test]
fn calls_of_v20() {
    let layout = Layout::new(Revision::V20, &[41, 182, 0, 4096]);
    assert_eq!(layout.rx_calls(), [vec![32, 48, 192, 4096, 16, 0]]);
    assert_eq!(layout.tx_calls(&[]), [vec![32, 48, 182, 10, 4096, 16]]);
    let sealed = sealer(Revision::V20).seal(&message([41, 182, 0, 4096]));
    assert_eq!(sealed.unwrap().calls, layout.tx_calls(&[]));
    assert_eq!(layout.wire_len(), 32 + 48 + 192 + 4096 + 16 + 16);
}

/// Check that a flipped bit anywhere is refused as tampering with the unit that holds it, and that the
/// connection stays closed.
#[test]
fn tampered() {
    for revision in REVISIONS {
        let frame = message([60, 20, 0, 40]);
        let wire = sealer(revision).seal(&frame).unwrap().bytes;
        for at in 0..wire.len() {
            let mut bad = wire.clone();
            bad[at] ^= 0x10;
            let mut opener = opener(revision);
            let error = opener.open(&bad).unwrap_err();
            let unit = match (revision, at) {
                (Revision::V20, _) | (_, 0..96) => 'A',
                (_, 96..128) => 'B',
                _ => 'C',
            };
            assert!(
                matches!(error, FrameError::Tampered(u) if u == unit),
                "{at}: {error}"
            );
            let error = opener.open(&wire).unwrap_err();
            assert!(matches!(error, FrameError::Closed), "{error}");
        }
    }
}

/// Check that every beginning of a frame is reported as truncated, with the bytes that are needed, and
/// that the frame opens when they have come.
#[test]
fn truncated() {
    for revision in REVISIONS {
        let frame = message([41, 20, 0, 40]);
        let wire = sealer(revision).seal(&frame).unwrap().bytes;
        let mut opener = opener(revision);
        for n in 0..wire.len() {
            let error = opener.open(&wire[..n]).unwrap_err();
            let FrameError::Truncated { needed, got } = error else {
                panic!("{n}: {error}")
            };
            assert!(
                got == n && needed > n && needed <= wire.len(),
                "{n}: {needed}"
            );
        }
        assert_eq!(opener.open(&wire).unwrap(), (frame, wire.len()));
    }
}

/// Check that frames out of order and frames that come twice are distinguished from tampering, and from each
/// other.
#[test]
fn order() {
    for revision in REVISIONS {
        let mut sealer = sealer(revision);
        let frames: Vec<Vec<u8>> = (0..3)
            .map(|_| sealer.seal(&message([41, 9, 0, 0])).unwrap().bytes)
            .collect();
        // A unit each in v2.0; A and C in v2.1.
        let n_nonces = if revision == Revision::V20 { 1 } else { 2 };
        let mut early = opener(revision);
        let error = early.open(&frames[1]).unwrap_err();
        assert!(
            matches!(error, FrameError::Reordered(n) if n == n_nonces),
            "{error}"
        );
        let mut twice = opener(revision);
        twice.open(&frames[0]).unwrap();
        let error = twice.open(&frames[0]).unwrap_err();
        assert!(
            matches!(error, FrameError::NonceReused(n) if n == n_nonces),
            "{error}"
        );
    }
}

/// Check that no frame is encrypted with a nonce that was used: the last nonce is taken, then sealing
/// fails, also between the units of a frame.
#[test]
fn out_of_nonces() {
    let nonces = NonceSequence::after(Revision::V21, NONCE, (1 << 64) - 3);
    let mut sealer = Sealer::new(Revision::V21, &KEY, nonces).unwrap();
    sealer.seal(&message([41, 9, 0, 0])).unwrap();
    for _ in 0..2 {
        let error = sealer.seal(&message([41, 9, 0, 0])).unwrap_err();
        assert!(matches!(error, SealError::OutOfNonces(_)), "{error}");
    }
    let nonces = NonceSequence::after(Revision::V20, NONCE, 1 << 32);
    let mut opener = Opener::new(Revision::V20, &KEY, nonces).unwrap();
    let error = opener.open(&[0; 200]).unwrap_err();
    assert!(matches!(error, FrameError::OutOfNonces(_)), "{error}");
}

/// Check that segments beyond the receiver's limit, and frames that no sender makes, are refused.
#[test]
fn oversized_and_malformed() {
    for revision in REVISIONS {
        let wire = sealer(revision)
            .seal(&message([41, 9, 0, 1000]))
            .unwrap()
            .bytes;
        let mut small = opener(revision).with_limit(999);
        let error = small.open(&wire).unwrap_err();
        assert!(
            matches!(
                error,
                FrameError::Oversized {
                    index: 3,
                    bytes: 1000,
                    limit: 999
                }
            ),
            "{error}"
        );
    }
    let none = Frame {
        tag: 1,
        segments: Vec::new(),
        flags: 0,
    };
    let error = sealer(Revision::V21).seal(&none).unwrap_err();
    assert!(matches!(error, SealError::Segments(0)), "{error}");
    let five = Frame {
        segments: vec![
            Segment {
                data: vec![1],
                align: 8
            };
            5
        ],
        ..none
    };
    let error = sealer(Revision::V21).seal(&five).unwrap_err();
    assert!(matches!(error, SealError::Segments(5)), "{error}");
}

/// Check preambles that are authentic and wrong all the same.
#[test]
fn malformed_preambles() {
    use super::crc32c::crc32c;
    use super::preamble::Preamble;
    let good = Preamble {
        tag: 17,
        segments: vec![(41, 8), (7, 8)],
        flags: 1,
    };
    let bytes = good.encode();
    assert_eq!(Preamble::decode(&bytes, 1000).unwrap(), good);
    let with = |at: usize, value: u8| {
        let mut bytes = bytes;
        bytes[at] = value;
        let crc = crc32c(&bytes[..28]);
        bytes[28..].copy_from_slice(&crc.to_le_bytes());
        Preamble::decode(&bytes, 1000).unwrap_err().to_string()
    };
    assert!(with(1, 0).contains("number of segments"));
    assert!(with(1, 5).contains("number of segments"));
    assert!(with(1, 3).contains("empty segment at the end"));
    assert!(with(4, 1).contains("65577 bytes"));
    let mut unchecked = bytes;
    unchecked[0] ^= 1;
    let error = Preamble::decode(&unchecked, 1000).unwrap_err();
    assert!(error.to_string().contains("checksum"));
}

/// Check that a sender's abort in the epilogue is distinguished from a frame, in both revisions.
#[test]
fn aborted() {
    use super::gcm::Gcm;
    use super::preamble::Preamble;
    for revision in REVISIONS {
        for (status, is_abort) in [(1_u8, true), (0x05, revision == Revision::V20)] {
            let preamble = Preamble {
                tag: 17,
                segments: vec![(16, 8), (16, 8)],
                flags: 0,
            };
            let mut nonces = NonceSequence::new(revision, NONCE);
            let mut gcm = Gcm::encrypting(&KEY).unwrap();
            let mut wire = Vec::new();
            let mut end = vec![0; 16];
            end[0] = status;
            let first = [&preamble.encode()[..], &[1; 16]].concat();
            let units = match revision {
                Revision::V20 => vec![[first, vec![2; 16], end].concat()],
                Revision::V21 => vec![[first, vec![0; 32]].concat(), [vec![2; 16], end].concat()],
            };
            for unit in units {
                gcm.begin(&nonces.take().unwrap()).unwrap();
                gcm.update(&unit, &mut wire).unwrap();
                wire.extend(gcm.tag().unwrap());
            }
            let error = opener(revision).open(&wire).unwrap_err();
            assert_eq!(matches!(error, FrameError::Aborted), is_abort, "{error}");
            assert_eq!(
                matches!(error, FrameError::Malformed(_)),
                !is_abort,
                "{error}"
            );
        }
    }
}

fn any_frame() -> impl Strategy<Value = Frame> {
    let bytes = |max: usize| proptest::collection::vec(any::<u8>(), 0..max);
    let data = prop_oneof![bytes(100), bytes(5000)];
    (
        any::<u8>(),
        any::<u8>(),
        [bytes(130), bytes(60), bytes(40)],
        data,
    )
        .prop_map(|(tag, flags, [header, front, middle], data)| {
            let mut frame = Frame::message([header, front, middle, data]);
            frame.tag = tag;
            frame.flags = flags;
            frame
        })
}

proptest! {
    /// Check that any frames, one after the other in one stream, come back as they were, that their
    /// length is that of the layout, and that calls and units add up to their bytes.
    #[test]
    fn round_trip(frames in proptest::collection::vec(any_frame(), 1..5), v21 in any::<bool>()) {
        let revision = REVISIONS[usize::from(v21)];
        let mut sealer = sealer(revision);
        let mut wire = Vec::new();
        for frame in &frames {
            let sealed = sealer.seal(frame).unwrap();
            let lens: Vec<usize> = frame.segments.iter().map(|s| s.data.len()).collect();
            let layout = Layout::new(revision, &lens);
            prop_assert_eq!(sealed.bytes.len(), layout.wire_len());
            for calls in [&sealed.calls, &layout.rx_calls(), &layout.tx_calls(&[])] {
                let units: Vec<usize> = calls.iter().map(|unit| unit.iter().sum()).collect();
                prop_assert_eq!(units, layout.units());
            }
            wire.extend(sealed.bytes);
        }
        let mut opener = opener(revision);
        let mut rest = &wire[..];
        for frame in &frames {
            let (opened, n) = opener.open(rest).unwrap();
            prop_assert_eq!(&opened, frame);
            rest = &rest[n..];
        }
        prop_assert!(rest.is_empty());
    }

    /// Check that bytes of anybody never open as a frame, and never end in a panic.
    #[test]
    fn garbage(wire in proptest::collection::vec(any::<u8>(), 0..300), v21 in any::<bool>()) {
        prop_assert!(opener(REVISIONS[usize::from(v21)]).open(&wire).is_err());
    }
}
