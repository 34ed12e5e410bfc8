//! Tables written by hand; those of real programs are in the integration tests.

use super::*;

fn sizes(bytes: &[u8]) -> Vec<(u32, u32)> {
    let sizes = FrameSizes {
        bytes,
        until: 0,
        size: -1,
        is_first: true,
    };
    sizes.map(|size| (size.until, size.bytes)).collect()
}

/// Check the list that the assembler writes for `push; sub $16; ...; add $16; pop; ret`, and lists that end early.
#[test]
fn frame_sizes() {
    // +1 (-1 to 0) for 1 byte, +8 for 4, +16 for 300 (two bytes), -24 for 1.
    let list = [2, 1, 16, 4, 32, 0xac, 2, 47, 1, 0];
    assert_eq!(sizes(&list), [(1, 0), (5, 8), (305, 24), (306, 0)]);
    assert_eq!(sizes(&list[..4]), [(1, 0), (5, 8)]);
    assert_eq!(sizes(&list[..3]), [(1, 0)]);
    assert_eq!(sizes(&[]), []);
    // Below zero, and numbers without an end or that are too large.
    assert_eq!(sizes(&[1, 1]), []);
    assert_eq!(sizes(&[0xff; 16]), []);
    assert_eq!(sizes(&[2, 0xff, 0xff, 0xff, 0xff, 0xf]), [(u32::MAX, 0)]);
    assert_eq!(sizes(&[2, 0xff, 0xff, 0xff, 0xff, 0xf, 2, 1]).len(), 1);
}

/// Check that headers whose parts lie outside of the table or in another order are refused.
#[test]
fn headers() {
    let header = |words: [u64; 8]| {
        let mut bytes = vec![0xf1, 0xff, 0xff, 0xff, 0, 0, 1, 8];
        bytes.extend(words.iter().flat_map(|word| word.to_le_bytes()));
        bytes
    };
    let right = [2, 0, 0, 72, 0, 0, 100, 200];
    assert!(Header::parse(&header(right), 220).is_some());
    assert!(Header::parse(&header(right), 219).is_none());
    assert!(Header::parse(&header(right)[..64], 220).is_none());
    for (word, value) in [
        (0, 0),
        (0, 3),
        (0, u64::MAX / 8),
        (3, 8),
        (3, 101),
        (6, 201),
        (7, u64::MAX),
    ] {
        let mut words = right;
        words[word] = value;
        assert!(Header::parse(&header(words), 220).is_none(), "{word}");
    }
}
