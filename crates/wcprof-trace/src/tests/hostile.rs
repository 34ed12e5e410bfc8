//! Blocks with right checksums and wrong contents.

use zstd::bulk::Compressor;

use super::header;
use crate::v1::wire::{put, put_str};
use crate::v1::{FORMAT_VERSION, MAGIC, block, entries, put_section, section};
use crate::{Malformed, TraceError, TraceReader, limits};

/// A file of one block with the header and the given sections.
fn file(sections: &[(u8, Vec<u8>)]) -> Vec<u8> {
    let mut content = Vec::new();
    entries::put_header(&mut content, &header()).unwrap();
    let mut raw = Vec::new();
    put_section(&mut raw, section::HEADER, &content);
    for (tag, content) in sections {
        put_section(&mut raw, *tag, content);
    }
    let mut out = MAGIC.to_vec();
    out.extend_from_slice(&FORMAT_VERSION.to_le_bytes());
    block::pack(&mut Compressor::new(1).unwrap(), &raw, &mut out).unwrap();
    out
}

fn numbers(numbers: &[u64]) -> Vec<u8> {
    let mut out = Vec::new();
    numbers.iter().for_each(|&n| put(&mut out, n));
    out
}

fn error(sections: &[(u8, Vec<u8>)]) -> Malformed {
    let file = file(sections);
    let result = TraceReader::from_reader(file.as_slice()).and_then(TraceReader::read_all);
    match result {
        Err(TraceError::Malformed { source, .. }) => source,
        other => panic!("{other:?}"),
    }
}

/// Check that ids without an entry are refused in every table.
#[test]
fn unknown_ids() {
    let frame = || (section::FRAMES, numbers(&[0, 1, 2, 0x1000]));
    for sections in [
        vec![(section::FRAMES, numbers(&[0, 1, 0, 3, 0x1000]))],
        vec![(section::NODES, numbers(&[0, 1, 0, 0]))],
        vec![frame(), (section::NODES, numbers(&[0, 1, 1, 0]))],
        vec![(section::STACKS, numbers(&[0, 1, 1, 0]))],
        vec![(section::THREADS, numbers(&[0, 1, 0, 2, 0, 0]))],
        vec![(section::THREAD_NAMES, numbers(&[0, 0, 0]))],
        vec![(section::THREAD_FACTS, numbers(&[0, 0, 0, 0]))],
        vec![(section::PROCESS_ENDS, numbers(&[0, 0, 0]))],
        vec![(section::FOLDED, numbers(&[0, 2]))],
        vec![(section::COUNTERS, numbers(&[1, 0, 5, 0]))],
        vec![
            (section::PROCESSES, numbers(&[0, 1, 2, 0, 0])),
            (section::COUNTERS, numbers(&[1, 0, 5, 1, 0, 2, 2])),
        ],
        vec![(
            section::SPANS,
            numbers(&[1, 1, 0b100_0000, 1, 0, 0, 0, 0, 1, 1, 0, 0]),
        )],
        vec![(section::SYMBOLS, numbers(&[1, 0, 1, 0, 0]))],
        vec![frame(), (section::SYMBOLS, numbers(&[1, 0, 1, 0, 1, 0, 0]))],
    ] {
        let error = error(&sections);
        assert!(
            matches!(error, Malformed::UnknownId { .. }),
            "{sections:?}: {error}"
        );
    }
}

/// Check that counts and lengths beyond the data or the limits are refused by name.
#[test]
fn huge_counts() {
    for tag in [section::PROCESSES, section::FRAMES, section::NODES] {
        let e = error(&[(tag, numbers(&[0, u64::MAX]))]);
        assert_eq!(e, Malformed::UnexpectedEnd);
    }
    let e = error(&[(section::SPANS, numbers(&[u64::MAX, 1]))]);
    assert_eq!(e, Malformed::UnexpectedEnd);
    let e = error(&[(section::SYMBOLS, numbers(&[1, 1 << 40]))]);
    assert_eq!(e, Malformed::UnexpectedEnd);
    let long = limits::MAX_STRING_BYTES as u64 + 1;
    let e = error(&[(section::PROCESSES, numbers(&[0, 1, 2, long]))]);
    assert!(e.to_string().contains("the limit is 65536"), "{e}");
    let many = vec![0; 9 * (limits::MAX_SOURCES + 1)];
    let e = error(&[(section::SOURCES, many)]);
    assert!(e.to_string().contains("sources, the limit is"), "{e}");
    // More processes than allowed, each of three bytes.
    let n = limits::MAX_PROCESSES as u64 + 1;
    let mut many = numbers(&[0, n]);
    many.resize(many.len() + 3 * n as usize, 0);
    let e = error(&[(section::PROCESSES, many)]);
    assert!(e.to_string().contains("processes, the limit is"), "{e}");
}

/// Check that gaps, repetitions, unknown codes and left-over bytes are refused.
#[test]
fn out_of_order() {
    let e = error(&[(section::WAITS, numbers(&[1, 1, 0, 0, 0, 0]))]);
    assert!(matches!(e, Malformed::Gap { found: 1, .. }), "{e}");
    let mut again = Vec::new();
    entries::put_header(&mut again, &header()).unwrap();
    assert_eq!(error(&[(section::HEADER, again)]), Malformed::Header);
    let e = error(&[(100, vec![0])]);
    assert!(matches!(e, Malformed::UnknownCode { code: 100, .. }), "{e}");
    let e = error(&[(section::STACKS, numbers(&[0, 1, 0, 77]))]);
    assert!(matches!(e, Malformed::UnknownCode { code: 77, .. }), "{e}");
    let e = error(&[(section::STACKS, numbers(&[0, 1, 0, 0, 0, 0]))]);
    assert_eq!(e, Malformed::Trailing(2));
}

/// Check that a section of a later wcprof that may be skipped is skipped.
#[test]
fn optional_section() {
    let file = file(&[(200, vec![1, 2, 3])]);
    let reader = TraceReader::from_reader(file.as_slice()).unwrap();
    assert_eq!(reader.read_all().unwrap().0.tables.header, header());
}

/// Check that weights whose sum passes 64 bits and inverted intervals are refused, since views
/// add and subtract them.
#[test]
fn weights_and_intervals() {
    let mut thread = numbers(&[0, 1, 0, 2, 0]);
    put_str(&mut thread, "x");
    let base = [
        (section::PROCESSES, numbers(&[0, 1, 2, 0, 0])),
        (section::THREADS, thread),
    ];
    // Two spans 0..0 with these weights.
    let with_weights = |first, second| {
        let weights = numbers(&[first, second]);
        let mut spans = numbers(&[2, 2, 0b100_0000, 0b100_0000, 2, 0, 0, 0, 0]);
        put(&mut spans, weights.len() as u64);
        spans.extend(weights);
        spans.extend(numbers(&[2, 0, 0, 0, 0]));
        let mut sections = base.to_vec();
        sections.push((section::SPANS, spans));
        error(&sections)
    };
    let half = u64::MAX / 2 / 1000 + 1;
    assert_eq!(
        with_weights(half << 1 | 1, half << 1 | 1),
        Malformed::WeightTooLarge
    );
    // More than a u64 of nanoseconds, and less than nothing.
    assert_eq!(with_weights(u64::MAX, 1), Malformed::NumberTooLarge);
    assert_eq!(with_weights(2, 1), Malformed::NumberTooLarge);
    // Start 5, end 1.
    let spans = numbers(&[1, 1, 0, 1, 0, 1, 10, 1, 2, 0, 0, 0, 0]);
    let mut sections = base.to_vec();
    sections.push((section::SPANS, spans));
    let e = error(&sections);
    let interval = Malformed::Interval {
        start: 5000,
        end: 1000,
    };
    assert_eq!(e, interval);
}

/// Check that a block that states too large a size, or another size than it has, is refused.
#[test]
fn block_size() {
    let good = file(&[]);
    for raw_len in [u32::MAX, 1] {
        let mut bad = good.clone();
        bad[16..20].copy_from_slice(&raw_len.to_le_bytes());
        let crc = crc32fast::hash(&bad[12..28]);
        bad[28..32].copy_from_slice(&crc.to_le_bytes());
        let e = TraceReader::from_reader(bad.as_slice()).unwrap_err();
        assert!(matches!(e, TraceError::Malformed { .. }), "{e}");
    }
}

/// Check that a setup that is too long or no text is refused, by the writer, too.
#[test]
fn bad_setup() {
    assert_eq!(error(&[(section::SETUP, vec![0xff])]), Malformed::NotUtf8);
    let long = vec![b'x'; limits::MAX_SETUP_BYTES + 1];
    let text = String::from_utf8(long.clone()).unwrap();
    let e = error(&[(section::SETUP, long)]);
    assert!(matches!(e, Malformed::TooMany { .. }), "{e}");
    let mut writer = crate::TraceWriter::new(Vec::new(), &header()).unwrap();
    assert!(writer.add_setup(&text).is_err());
    writer.add_setup(&text[1..]).unwrap();
}
