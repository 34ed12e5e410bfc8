//! Parts of a recording, with and without an index.

use std::fs;
use std::path::Path;

use wcprof_types::{Pid, ThreadState, Tid, TimeNs};

use super::{final_stats, header};
use crate::format::block::{BLOCK_HEADER_BYTES, BlockHeader, MARK, kind};
use crate::model::{Process, Span, Trace};
use crate::{Ending, TraceReader, TraceSink, TraceWriter};

const SECOND: u64 = 1_000_000_000;

/// Ten seconds, each a block, in which a thread that is new then runs.
fn ten_seconds() -> Vec<u8> {
    let mut writer = TraceWriter::new(Vec::new(), &header()).unwrap();
    let process = Process {
        pid: Pid(1),
        ..Process::default()
    };
    let process = writer.add_process(process).unwrap();
    for second in 0..10 {
        let start = TimeNs(second * SECOND);
        let tid = Tid(second as i32 + 1);
        let thread = writer.add_thread(process, tid, start, "x").unwrap();
        let span = Span {
            thread,
            start,
            end: TimeNs(start.0 + SECOND),
            weight: SECOND,
            n_samples: 99,
            state: ThreadState::OnCpu,
            wait: None,
            stack: None,
        };
        writer.span(&span).unwrap();
        writer.flush().unwrap();
    }
    writer.finish(&final_stats()).unwrap();
    writer.into_inner()
}

/// The headers of blocks and their places.
fn blocks(bytes: &[u8]) -> Vec<(usize, BlockHeader)> {
    let marks = bytes.windows(MARK.len()).enumerate();
    let marks = marks.filter(|(_, at)| *at == MARK);
    marks
        .filter_map(|(at, _)| Some((at, BlockHeader::parse(&bytes[at..])?)))
        .collect()
}

fn read(path: &Path, from: u64, to: u64) -> (Trace, Ending) {
    let part = (TimeNs(from * SECOND), TimeNs(to * SECOND));
    let reader = TraceReader::open_part(path, part).unwrap();
    reader.read_all().unwrap()
}

/// Check that of a part its spans are read and all tables, and nothing else, which is why damage to the rest is
/// not seen; that this needs no index; and that a whole trace is the same with or without one.
#[test]
fn part_of_a_recording() {
    let whole = ten_seconds();
    let found = blocks(&whole);
    let is_spans = |(_, header): &&(usize, BlockHeader)| header.kind == kind::SPANS;
    assert_eq!(found.iter().filter(is_spans).count(), 10);
    let (index, last) = *found.last().unwrap();
    assert_eq!(last.kind, kind::INDEX);
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("x.wct");
    for bytes in [&whole[..], &whole[..index]] {
        let mut bytes = bytes.to_vec();
        fs::write(&path, &bytes).unwrap();
        let (all, _) = TraceReader::open(&path).unwrap().read_all().unwrap();
        assert_eq!(all.spans.len(), 10);
        // Of the spans outside, not even the headers are needed where there is an index.
        let outside = found.iter().filter(is_spans);
        for (at, header) in outside.filter(|(_, h)| !h.overlaps((3 * SECOND, 5 * SECOND))) {
            bytes[at + BLOCK_HEADER_BYTES + header.payload_len as usize - 1] ^= 1;
            if bytes.len() > index {
                bytes[*at] = 0;
            }
        }
        fs::write(&path, &bytes).unwrap();
        let (part, ending) = read(&path, 3, 5);
        assert_eq!(ending, Ending::Clean);
        assert_eq!(part.tables, all.tables);
        assert_eq!(part.spans, all.spans[3..5]);
    }
}

/// Check that an index that is wrong in any byte does not change what is read.
#[test]
fn wrong_index() {
    let whole = ten_seconds();
    let (index, _) = *blocks(&whole).last().unwrap();
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("x.wct");
    fs::write(&path, &whole).unwrap();
    let (expected, _) = read(&path, 2, 9);
    assert_eq!(expected.spans.len(), 7);
    for at in index..whole.len() {
        let mut bad = whole.clone();
        bad[at] ^= 0x10;
        fs::write(&path, &bad).unwrap();
        assert_eq!(read(&path, 2, 9).0.spans, expected.spans, "byte {at}");
    }
}
