//! Known frames, cut, shuffled and with holes, against what is found in them.

use proptest::prelude::*;

use super::*;
use crate::shapes::{Shape, Side, builtin};

fn calls(context: u64, side: Side, lens: &[usize]) -> Vec<Seen> {
    lens.iter()
        .enumerate()
        .map(|(i, len)| {
            Seen::Call(SeenCall {
                context,
                side,
                len: *len as i32,
                is_aad: false,
                tid: 1,
                time_ns: i as u64,
            })
        })
        .collect()
}

fn frames(shapes: &[&Shape], times: usize) -> Vec<usize> {
    let one: Vec<usize> = shapes.iter().flat_map(|s| s.units.concat()).collect();
    one.repeat(times)
}

fn find<'a>(shapes: &'a [Shape], side: Side, name: &str) -> &'a Shape {
    shapes
        .iter()
        .find(|shape| shape.side == side && shape.name == name)
        .unwrap_or_else(|| panic!("no {name}"))
}

/// Check the traffic of a client that reads and writes 16 KiB against the published shapes, with
/// both ends in the middle of a frame.
#[test]
fn client() {
    let builtin = builtin();
    let shape = |side, name| find(&builtin, side, name);
    let rx = frames(
        &[
            shape(Side::Rx, "16K read reply"),
            shape(Side::Rx, "write reply"),
        ],
        50,
    );
    let tx = frames(&[shape(Side::Tx, "read request")], 50);
    let mut seen = calls(1, Side::Rx, &rx[3..rx.len() - 2]);
    seen.extend(calls(2, Side::Tx, &tx[1..]));
    let observed = Observation::new(&seen, Role::Client);
    let found: Vec<_> = observed
        .shapes
        .iter()
        .map(|s| {
            (
                s.count,
                s.side.to_string(),
                s.name.as_str(),
                s.calls.as_str(),
            )
        })
        .collect();
    assert_eq!(
        found,
        [
            (
                49,
                "RX".into(),
                "16 KiB read reply",
                "80,0 | 192,16384,16,0"
            ),
            (49, "RX".into(), "reply without data", "80,0 | 224,16,0"),
            (49, "TX".into(), "request without data", "32,48 | 247,9,16"),
        ]
    );
    // Three calls of the first frame and three of the last; four of the first sent one.
    assert_eq!((observed.rx.n_edge_calls, observed.rx.n_torn_calls), (6, 0));
    assert_eq!((observed.tx.n_edge_calls, observed.tx.n_torn_calls), (4, 0));
    assert_eq!(
        (observed.rx.n_connections, observed.tx.n_connections),
        (1, 1)
    );
    assert_eq!(observed.rx.lengths[&16384], 50);
    assert_eq!(observed.rx.n_units, 2 * 98);
}

/// Check names of fragments, of an OSD, of control frames.
#[test]
fn names() {
    for (role, side, calls, name) in [
        (
            Role::Client,
            Side::Tx,
            "32,48 | 285,3,4096x4,16",
            "16 KiB write in 4 buffers",
        ),
        (
            Role::Client,
            Side::Tx,
            "32,48 | 285,3,16384,16",
            "16 KiB write",
        ),
        (
            Role::Client,
            Side::Tx,
            "32,48 | 285,3,500,12,16",
            "512 B write",
        ),
        (
            Role::Osd,
            Side::Tx,
            "32,48 | 182,10,16384,16",
            "16 KiB read reply (or write to a replica)",
        ),
        (
            Role::Osd,
            Side::Rx,
            "80,0 | 256,16,0",
            "message without data",
        ),
        (
            Role::Other,
            Side::Rx,
            "80,0 | 256,4194304,16,0",
            "4 MiB message",
        ),
        (
            Role::Other,
            Side::Rx,
            "80,0",
            "control (acknowledgement, keepalive)",
        ),
        (Role::Other, Side::Rx, "80,0 | 96,0", "control, long"),
        // A sparse read, as an OSD sends it and a client gets it.
        (
            Role::Osd,
            Side::Tx,
            "32,48 | 182,10,20,4,28672,4096,32768,8,16",
            "64 KiB + 32 B read reply (or write to a replica) in 3 buffers",
        ),
        (
            Role::Client,
            Side::Rx,
            "80,0 | 192,65568,16,0",
            "64 KiB + 32 B read reply",
        ),
    ] {
        let shape = Shape::new("", side, calls).unwrap();
        assert_eq!(frame_name(&shape, role), name, "{calls}");
    }
    assert_eq!(Role::of_process("ceph-osd"), Role::Osd);
    assert_eq!(Role::of_process("qemu-system-x86"), Role::Client);
    assert_eq!(Role::of_process("ceph-mon"), Role::Other);
}

/// Check that a gap costs the frames beside it and no other.
#[test]
fn gap() {
    let builtin = builtin();
    let reply = find(&builtin, Side::Rx, "16K read reply");
    let stream = frames(&[reply], 10);
    let mut seen = calls(1, Side::Rx, &stream[..27]);
    seen.push(Seen::Gap { tid: 1, n: 2 });
    seen.extend(calls(1, Side::Rx, &stream[29..]));
    let observed = Observation::new(&seen, Role::Client);
    assert_eq!((observed.n_lost, observed.rx.n_frames), (2, 9));
    assert_eq!((observed.rx.n_edge_calls, observed.rx.n_torn_calls), (4, 0));
    assert_eq!(observed.shapes.len(), 1);
}

/// Check that a Ceph without empty calls, a buffer that looks like a beginning, and a split inline
/// part are read right.
#[test]
fn other_formats() {
    let split = |side, lens: &[usize]| {
        let observed = Observation::new(&calls(1, side, lens), Role::Other);
        observed
            .shapes
            .into_iter()
            .map(|s| (s.count, s.calls))
            .collect::<Vec<_>>()
    };
    assert_eq!(
        split(Side::Rx, &[80, 192, 4096, 16, 80, 192, 4096, 16]),
        [(2, "80 | 192,4096,16".to_owned())]
    );
    assert_eq!(
        split(Side::Rx, &[80, 0, 80, 16, 0, 80, 0, 80, 16, 0]),
        [(2, "80,0 | 80,16,0".to_owned())]
    );
    // A front of 32 bytes, an epilogue, and the next preamble: no beginning inside.
    assert_eq!(
        split(Side::Tx, &[32, 48, 32, 16, 32, 48, 32, 16]),
        [(2, "32,48 | 32,16".to_owned())]
    );
    assert_eq!(
        split(Side::Tx, &[32, 41, 7, 160, 16, 32, 8, 40, 32, 48, 16, 16]),
        [
            (1, "32,41,7 | 160,16".to_owned()),
            (1, "32,48 | 16x2".to_owned()),
            (1, "32,8,40".to_owned()),
        ]
    );
}

/// Check that calls of other users of the cipher make no frames, and odd lengths are counted.
#[test]
fn others() {
    let mut seen = calls(7, Side::Tx, &[17, 300, 17, 300]);
    seen.extend(calls(8, Side::Rx, &[1, 2, 3]));
    for (len, is_aad) in [(-1, false), (i32::MAX, false), (13, true)] {
        seen.push(Seen::Call(SeenCall {
            context: 9,
            side: Side::Rx,
            len,
            is_aad,
            tid: 2,
            time_ns: 0,
        }));
    }
    let observed = Observation::new(&seen, Role::Other);
    assert_eq!(
        (observed.n_frames(), observed.n_odd, observed.n_aad),
        (0, 2, 1)
    );
    assert_eq!(
        (observed.tx.n_other_contexts, observed.tx.n_other_calls),
        (1, 4)
    );
    assert_eq!(
        (observed.rx.n_other_contexts, observed.rx.n_other_calls),
        (1, 3)
    );
    assert!(observed.model_shapes(10).is_empty());
}

/// Check the JSON of an observation letter by letter.
#[test]
fn golden() {
    let builtin = builtin();
    let reply = find(&builtin, Side::Rx, "4K read reply");
    let observed = Observation::new(&calls(1, Side::Rx, &frames(&[reply], 2)), Role::Client);
    let json = serde_json::to_string(&observed).unwrap();
    let file = concat!(env!("CARGO_MANIFEST_DIR"), "/src/observed/golden.json");
    if std::env::var_os("WCPROF_BLESS").is_some() {
        std::fs::write(file, format!("{json}\n")).unwrap();
    }
    assert_eq!(json, std::fs::read_to_string(file).unwrap().trim_end());
}

proptest! {
    /// Check that any calls are all accounted for, and every frame was really there.
    #[test]
    fn nothing_lost(
        lens in prop::collection::vec(
            (0_u64..3, any::<bool>(), prop::sample::select(vec![0_i32, 16, 32, 48, 80, 192, 4096, -1])),
            0..300,
        ),
        gaps in prop::collection::vec(0_usize..300, 0..5),
    ) {
        let mut seen = Vec::new();
        for (i, (context, is_rx, len)) in lens.iter().enumerate() {
            if gaps.contains(&i) {
                seen.push(Seen::Gap { tid: 1, n: 1 });
            }
            let side = if *is_rx { Side::Rx } else { Side::Tx };
            seen.push(Seen::Call(SeenCall {
                context: *context, side, len: *len, is_aad: false, tid: 1, time_ns: i as u64,
            }));
        }
        let observed = Observation::new(&seen, Role::Other);
        let in_frames: u64 = observed
            .shapes
            .iter()
            .map(|s| s.count * Shape::new("x", s.side, &s.calls).unwrap().n_calls() as u64)
            .sum();
        let mut accounted = in_frames + observed.n_odd;
        for side in [&observed.rx, &observed.tx] {
            accounted += side.n_edge_calls + side.n_torn_calls + side.n_other_calls;
        }
        prop_assert_eq!(accounted, lens.len() as u64);
        prop_assert_eq!(observed.n_calls, lens.len() as u64);
    }

    /// Check that frames of the published shapes, in any order and cut anywhere, are found again,
    /// but for the ones that are cut.
    #[test]
    fn found_again(order in prop::collection::vec(any::<prop::sample::Index>(), 3..30), cut in 0_usize..4) {
        let builtin = builtin();
        for side in [Side::Rx, Side::Tx] {
            let of_side: Vec<&Shape> = builtin.iter().filter(|s| s.side == side).collect();
            let sent: Vec<&Shape> = order.iter().map(|index| *index.get(&of_side)).collect();
            let stream = frames(&sent, 1);
            let cut = cut.min(sent[0].n_calls() - 1);
            let observed = Observation::new(&calls(1, side, &stream[cut..]), Role::Other);
            let n = observed.side(side).n_frames as usize;
            prop_assert_eq!(n, sent.len() - usize::from(cut > 0));
            for shape in &observed.shapes {
                prop_assert!(of_side.iter().any(|s| s.notation() == shape.calls), "{}", shape.calls);
            }
        }
    }
}
