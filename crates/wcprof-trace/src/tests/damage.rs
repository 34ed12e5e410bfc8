//! Cut and damaged files, and disks that get full.

use std::io::{self, Write};

use super::{Recording, final_stats, header, some_steps, some_trace};
use wcprof_types::StackEnd;

use crate::TraceSink;
use crate::format::FILE_HEADER_BYTES;
use crate::model::{Frame, LOST_FRAME, Stats, Tables, Trace};
use crate::{Ending, TraceError, TraceReader, TraceWriter};

fn read(bytes: &[u8]) -> Result<(Trace, Ending), TraceError> {
    TraceReader::from_reader(bytes)?.read_all()
}

/// Fails unless `part` holds nothing that `whole` does not hold.
fn assert_part(part: &Trace, whole: &Trace) {
    let (p, w) = (&part.tables, &whole.tables);
    assert_eq!(p.header, w.header);
    assert!(w.processes.starts_with(&p.processes));
    assert!(w.modules.starts_with(&p.modules));
    assert!(w.frames.starts_with(&p.frames));
    assert!(w.nodes.starts_with(&p.nodes));
    assert!(w.stacks.starts_with(&p.stacks));
    assert!(w.waits.starts_with(&p.waits));
    for (p, w) in p.threads.iter().zip(&w.threads) {
        assert!(w.names.starts_with(&p.names));
    }
    assert!(part.spans.len() <= whole.spans.len());
    assert!(part.spans.iter().all(|span| whole.spans.contains(span)));
}

/// Check that a file cut anywhere holds its whole blocks, and says how much was ignored.
#[test]
fn cut_anywhere() {
    let (bytes, whole) = some_trace();
    let mut n_spans = 0;
    let mut n_cut = 0;
    for len in 0..bytes.len() {
        match read(&bytes[..len]) {
            Err(TraceError::Empty) => assert_eq!(n_spans, 0),
            Err(TraceError::Foreign { .. }) => assert_eq!(len, 0),
            Err(e) => panic!("{len}: {e}"),
            Ok((part, ending)) => {
                assert_part(&part, &whole);
                assert!(part.spans.len() >= n_spans, "{len}");
                n_spans = part.spans.len();
                match ending {
                    Ending::Cut { ignored } => {
                        let kept = len - ignored as usize;
                        assert_eq!(read(&bytes[..kept]).unwrap().0, part);
                        n_cut += 1;
                    }
                    Ending::Unfinished => assert!(!part.tables.stats.complete),
                    Ending::Clean => assert!(part.tables.stats.complete),
                }
            }
        }
    }
    assert_eq!(n_spans, whole.spans.len());
    assert!(n_cut > 100);
}

/// Fails unless `part` is `whole` but for what is lost, and said to be.
fn assert_holes(part: &Trace, whole: &Trace) {
    let (p, w) = (&part.tables, &whole.tables);
    let unread = p.origins.unread;
    let lost = |n: &mut u64| *n += 1;
    let mut n_lost = 0;
    for (p, w) in p.processes.iter().zip(&w.processes) {
        if (p.pid, &p.comm) != (w.pid, &w.comm) {
            assert_eq!(p.comm, "[lost]");
            lost(&mut n_lost);
        }
    }
    for (p, w) in p.modules.iter().zip(&w.modules) {
        if p != w {
            assert_eq!(p.path, "[lost]");
            lost(&mut n_lost);
        }
    }
    for (p, w) in p.threads.iter().zip(&w.threads) {
        let is_lost = p.names[0].1 == "[lost]";
        assert!(is_lost || p.names.iter().all(|name| w.names.contains(name)));
        n_lost += u64::from(is_lost);
    }
    for (p, w) in p.frames.iter().zip(&w.frames) {
        if p != w {
            assert_eq!(*p, Frame::Unknown(LOST_FRAME));
            lost(&mut n_lost);
        }
    }
    for (id, stack) in p.stacks.iter().enumerate() {
        let frames = |t: &Tables| {
            let mut next = t.stacks[id].leaf;
            let mut frames = Vec::new();
            while let Some(node) = next {
                frames.push(t.nodes[node.0 as usize].frame);
                next = t.nodes[node.0 as usize].caller;
            }
            frames
        };
        // What is there of a stack is right.
        match stack.end {
            StackEnd::Lost => assert!(frames(w).starts_with(&frames(p))),
            _ => assert_eq!(frames(w), frames(p)),
        }
    }
    assert!(n_lost <= unread.n_lost_entries);
    assert!(part.spans.iter().all(|span| whole.spans.contains(span)));
}

/// Check that one wrong bit anywhere costs a block at most: it is said, and what is read is right.
#[test]
fn flip_anywhere() {
    let (bytes, whole) = some_trace();
    let (mut n_less, mut n_lost) = (0, 0);
    for i in 0..bytes.len() {
        for bit in [0, 3, 7] {
            let mut bad = bytes.clone();
            bad[i] ^= 1 << bit;
            let Ok((part, ending)) = read(&bad) else {
                assert!(i < FILE_HEADER_BYTES, "byte {i}");
                continue;
            };
            let unread = part.tables.origins.unread;
            if unread.n_damaged == 0 {
                // The payload of an index is not needed.
                assert_eq!((&part, ending), (&whole, Ending::Clean), "byte {i}");
                continue;
            }
            assert_eq!(unread.n_damaged, 1, "byte {i}");
            assert!(unread.first_damage <= i as u64);
            assert!((i as u64) < unread.first_damage + unread.n_bytes);
            assert!(unread.n_bytes < bytes.len() as u64 / 3, "byte {i}");
            assert_holes(&part, &whole);
            n_less += u64::from(part.spans.len() < whole.spans.len());
            n_lost += u64::from(unread.n_lost_entries > 0);
        }
    }
    assert!(n_less > 100 && n_lost > 100, "{n_less} {n_lost}");
}

/// Check that bytes that are missing or in excess cost the blocks that they are in, and what is behind is found.
#[test]
fn shifted() {
    let (bytes, whole) = some_trace();
    for at in (FILE_HEADER_BYTES..bytes.len() - 100).step_by(7) {
        let without = [&bytes[..at], &bytes[at + 5..]].concat();
        let with = [&bytes[..at], &[0x89; 9], &bytes[at..]].concat();
        for bad in [without, with] {
            let (part, ending) = read(&bad).unwrap();
            // What is cut at the end is the index.
            let is_whole = matches!(ending, Ending::Clean | Ending::Cut { .. });
            assert!(part.tables.origins.unread.n_damaged > 0 || is_whole, "{at}");
            assert_holes(&part, &whole);
        }
    }
}

/// Check that the counts survive without an end, and what is made up for without counts.
#[test]
fn without_end() {
    let mut recording = Recording::new(TraceWriter::new(Vec::new(), &header()).unwrap());
    recording.step(&(0, 1, 1, "osd".into()));
    recording.step(&(2, 1, 16 * 1000, "worker".into()));
    recording.step(&(4, 16 * 1000, 16 * 5000, String::new()));
    recording.writer.flush().unwrap();
    recording.step(&(8, 0, 256 * 7000 + 2, String::new()));
    recording.writer.flush().unwrap();
    let last_end = recording.expected.spans[0].end;
    let without_stats = recording.writer.into_inner();
    let (found, ending) = read(&without_stats).unwrap();
    assert_eq!(ending, Ending::Unfinished);
    let n_ticks = found.tables.threads[0].n_ticks;
    assert_eq!(found.tables.threads[0].end, last_end);
    let made_up = Stats {
        duration: last_end,
        n_ticks,
        n_observations: n_ticks,
        ..Stats::default()
    };
    assert_eq!(found.tables.stats, made_up);

    let mut writer = TraceWriter::new(Vec::new(), &header()).unwrap();
    writer.set_stats(&final_stats()).unwrap();
    writer.flush().unwrap();
    let (found, ending) = read(&writer.into_inner()).unwrap();
    let interim = Stats {
        complete: false,
        ..final_stats()
    };
    assert_eq!((found.tables.stats, ending), (interim, Ending::Unfinished));
}

/// Holds `room` bytes and then is full, writing what fits, as a disk does.
struct Disk {
    bytes: Vec<u8>,
    room: usize,
}

impl Write for Disk {
    fn write(&mut self, buf: &[u8]) -> io::Result<usize> {
        let n = buf.len().min(self.room - self.bytes.len());
        if n == 0 {
            return Err(io::ErrorKind::StorageFull.into());
        }
        self.bytes.extend_from_slice(&buf[..n]);
        Ok(n)
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

fn disk(room: usize) -> Disk {
    Disk {
        bytes: Vec::new(),
        room,
    }
}

/// Records until the end or the first failed flush; true when all was written.
fn record_until_full(recording: &mut Recording<Disk>) -> bool {
    for step in some_steps() {
        if step.0 % 11 == 9 {
            match recording.writer.flush() {
                Ok(()) => {}
                Err(TraceError::Write(e)) => {
                    assert_eq!(e.kind(), io::ErrorKind::StorageFull);
                    return false;
                }
                Err(e) => panic!("{e}"),
            }
        } else {
            recording.step(&step);
        }
    }
    recording.writer.finish(&final_stats()).is_ok()
}

/// Check that a disk that gets full at any byte leaves a readable beginning, and that a sink that
/// cannot be cut back takes nothing more.
#[test]
fn full_disk() {
    let mut room = 400;
    loop {
        let writer = TraceWriter::new(disk(room), &header()).unwrap();
        let mut recording = Recording::new(writer);
        if record_until_full(&mut recording) {
            break;
        }
        assert!(matches!(recording.writer.flush(), Err(TraceError::Broken)));
        let kept = recording.writer.len_bytes() as usize;
        let expected = recording.expected;
        let bytes = recording.writer.into_inner().bytes;
        let (found, ending) = read(&bytes).unwrap();
        assert_part(&found, &expected);
        match ending {
            // Of the blocks of a write some may be whole.
            Ending::Cut { ignored } => assert!(ignored <= (bytes.len() - kept) as u64),
            ending => assert_eq!(ending, Ending::Unfinished),
        }
        room += 13;
    }
    assert!(room > 1000);
}

/// Check that a file that can be cut back loses nothing when the disk has room again.
#[test]
fn room_again() {
    let writer = TraceWriter::with_rewind(disk(600), &header(), |disk, len| {
        disk.bytes.truncate(len as usize);
        Ok(())
    });
    let mut recording = Recording::new(writer.unwrap());
    let mut n_failed = 0;
    for step in some_steps() {
        if step.0 % 11 == 9 {
            if let Err(e) = recording.writer.flush() {
                assert!(matches!(e, TraceError::Write(_)));
                let on_disk = recording.writer.sink_mut().bytes.clone();
                assert_eq!(on_disk.len() as u64, recording.writer.len_bytes());
                assert_eq!(read(&on_disk).unwrap().1, Ending::Unfinished);
                n_failed += 1;
            }
        } else {
            recording.step(&step);
        }
    }
    assert!(recording.writer.finish(&final_stats()).is_err());
    assert!(n_failed > 0);
    recording.writer.sink_mut().room = usize::MAX;
    recording.writer.finish(&final_stats()).unwrap();
    let mut expected = recording.expected;
    expected.tables.stats = final_stats();
    expected.spans.sort_by_key(|span| span.end);
    let (found, ending) = read(&recording.writer.into_inner().bytes).unwrap();
    assert_eq!((found, ending), (expected, Ending::Clean));
}
