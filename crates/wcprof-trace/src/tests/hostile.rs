//! Blocks with right checksums and wrong contents.

use zstd::bulk::Compressor;

use super::header;
use crate::format::block::{self, kind};
use crate::format::wire::{put, put_str};
use crate::format::{FILE_HEADER_BYTES, FileHeader, entries, put_section, section};
use crate::{Malformed, TraceError, TraceReader, limits};

/// The header and the given sections.
pub(super) fn sections(sections: &[(u8, Vec<u8>)]) -> Vec<u8> {
    let mut content = Vec::new();
    entries::put_header(&mut content, &header()).unwrap();
    let mut raw = Vec::new();
    put_section(&mut raw, section::HEADER, &content);
    for (tag, content) in sections {
        put_section(&mut raw, *tag, content);
    }
    raw
}

/// A file of one block with the header and the given sections.
fn file(parts: &[(u8, Vec<u8>)]) -> Vec<u8> {
    let mut out = FileHeader::CURRENT.to_bytes();
    let zstd = &mut Compressor::new(1).unwrap();
    block::pack(zstd, (kind::TABLES, (0, 0)), &sections(parts), &mut out).unwrap();
    out
}

pub(super) fn numbers(numbers: &[u64]) -> Vec<u8> {
    let mut out = Vec::new();
    numbers.iter().for_each(|&n| put(&mut out, n));
    out
}

/// A table from id 0 on.
pub(super) fn table(entries: &[&[u8]]) -> Vec<u8> {
    let mut out = numbers(&[0, entries.len() as u64]);
    out.extend(list(entries));
    out
}

/// Entries, each behind its length.
fn list(entries: &[&[u8]]) -> Vec<u8> {
    let with_length = |entry: &&[u8]| [&[entry.len() as u8], *entry].concat();
    entries.iter().flat_map(with_length).collect()
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
    let frame = || (section::FRAMES, table(&[&[2, 1]]));
    for sections in [
        vec![(section::FRAMES, table(&[&[0, 3, 1]]))],
        vec![(section::NODES, table(&[&[0, 0]]))],
        vec![frame(), (section::NODES, table(&[&[1, 0]]))],
        vec![(section::STACKS, table(&[&[1, 0]]))],
        vec![(section::THREADS, table(&[&[0, 2, 0, 0]]))],
        vec![(section::THREAD_NAMES, list(&[&[0, 0, 0]]))],
        vec![(section::THREAD_FACTS, list(&[&[0, 0, 0, 0]]))],
        vec![(section::PROCESS_ENDS, list(&[&[0, 0, 0]]))],
        vec![(section::FOLDED, list(&[&[0, 2]]))],
        vec![(section::COUNTERS, list(&[&[1, 0, 5, 0]]))],
        vec![
            (section::PROCESSES, table(&[&[2, 0, 0]])),
            (section::COUNTERS, list(&[&[1, 0, 5, 1, 0, 2, 2]])),
        ],
        vec![(section::SPANS, numbers(&[1, 0, 0, 8, 0, 0]))],
        vec![(section::SYMBOLS, [vec![1, 0, 1], list(&[&[0, 0]])].concat())],
        vec![
            frame(),
            (
                section::SYMBOLS,
                [vec![1, 0, 1], list(&[&[0, 1, 0, 0]])].concat(),
            ),
        ],
    ] {
        let error = error(&sections);
        assert!(
            matches!(
                error,
                Malformed::UnknownId { .. } | Malformed::TooMany { limit: 0, .. }
            ),
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
    for spans in [&[u64::MAX, 1][..], &[0, 0, 8, u64::MAX, 1]] {
        let e = error(&[(section::SPANS, numbers(spans))]);
        assert_eq!(e, Malformed::UnexpectedEnd);
    }
    let e = error(&[(section::SYMBOLS, numbers(&[1, 1 << 40]))]);
    assert_eq!(e, Malformed::UnexpectedEnd);
    let long = limits::MAX_STRING_BYTES as u64 + 1;
    let entry = table(&[&numbers(&[2, long])]);
    let e = error(&[(section::PROCESSES, entry)]);
    assert!(e.to_string().contains("the limit is 65536"), "{e}");
    let many = [9, 0, 0, 0, 0, 0, 0, 0, 0, 0].repeat(limits::MAX_SOURCES + 1);
    let e = error(&[(section::SOURCES, many)]);
    assert!(e.to_string().contains("sources, the limit is"), "{e}");
    // More processes than allowed, each of four bytes with its length; and as many are said to be before a block.
    let n = limits::MAX_PROCESSES as u64 + 1;
    let mut many = numbers(&[0, n]);
    many.extend([3, 0, 0, 0].repeat(n as usize));
    let e = error(&[(section::PROCESSES, many)]);
    assert!(e.to_string().contains("processes, the limit is"), "{e}");
    let e = error(&[(section::SIZES, numbers(&[n, 0, 0, 0, 0, 0, 0, 0]))]);
    assert!(e.to_string().contains("processes, the limit is"), "{e}");
}

/// Check that gaps, in a file that has lost nothing, and left-over bytes are refused.
#[test]
fn out_of_order() {
    let e = error(&[(section::WAITS, numbers(&[1, 1, 4, 0, 0, 0, 0]))]);
    assert!(matches!(e, Malformed::Gap { found: 1, .. }), "{e}");
    let e = error(&[(section::SIZES, numbers(&[0, 0, 0, 5, 0, 0, 0, 0]))]);
    assert!(matches!(e, Malformed::Gap { found: 5, .. }), "{e}");
    let e = error(&[(section::STACKS, numbers(&[0, 1, 2, 0, 0, 0, 0]))]);
    assert_eq!(e, Malformed::Trailing(2));
}

/// Check that few bytes that cannot be read do not stand for many entries.
#[test]
fn more_lost_than_damaged() {
    let read = |n_bytes: usize, n_entries: usize| {
        let mut file = file(&[]);
        file.resize(file.len() + n_bytes, 0);
        let mut raw = Vec::new();
        let sizes = numbers(&[0, 0, 0, n_entries as u64, 0, 0, 0, 0]);
        put_section(&mut raw, section::SIZES, &sizes);
        let zstd = &mut Compressor::new(1).unwrap();
        block::pack(zstd, (kind::TABLES, (0, 0)), &raw, &mut file).unwrap();
        let reader = TraceReader::from_reader(file.as_slice()).unwrap();
        let unread = reader.read_all()?.0.tables.origins.unread;
        assert_eq!(unread.n_bytes, n_bytes as u64);
        Ok(unread.n_lost_entries)
    };
    for n_bytes in [1, 100] {
        let most = limits::FEW_LOST_ENTRIES + n_bytes * limits::LOST_ENTRIES_PER_BYTE;
        assert_eq!(read(n_bytes, most).unwrap(), most as u64);
        let error: TraceError = read(n_bytes, most + 1).unwrap_err();
        assert!(error.to_string().contains("lost entries"), "{error}");
    }
}

/// Check that weights whose sum passes 64 bits and inverted intervals are refused, since views
/// add and subtract them.
#[test]
fn weights_and_intervals() {
    let mut thread = numbers(&[0, 2, 0]);
    put_str(&mut thread, "x");
    let base = [
        (section::PROCESSES, table(&[&[2, 0, 0]])),
        (section::THREADS, table(&[&thread])),
    ];
    // Two spans 0..0 with these weights.
    let with_weights = |first, second| {
        let weights = numbers(&[first, second]);
        let mut spans = numbers(&[1, 0, 0, 8, 2, 2, 0b100_0000, 0b100_0000, 2, 0, 0, 0, 0]);
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
    let spans = numbers(&[1, 0, 0, 8, 1, 1, 0, 1, 0, 1, 10, 1, 2, 0, 0, 0, 0]);
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
        let header = &mut bad[FILE_HEADER_BYTES..];
        header[12..16].copy_from_slice(&raw_len.to_le_bytes());
        let crc = crc32fast::hash(&header[..40]);
        header[40..44].copy_from_slice(&crc.to_le_bytes());
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
