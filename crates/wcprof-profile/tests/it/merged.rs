//! Recordings of one process, merged, to a profile: it is the sum of theirs, and gaps count as nothing.

use crate::support;

use std::collections::BTreeMap;

use proptest::prelude::*;
use support::{MS, Maker, syscall};
use wcprof_profile::model::{Profile, State};
use wcprof_profile::{ProfileBuilder, Rules, cores};
use wcprof_trace::model::Trace;
use wcprof_trace::model::{StackId, ThreadId, WaitId};
use wcprof_trace::{Align, Joins, TraceReader, TraceSink, TraceWriter, merge, merged_header};
use wcprof_types::{StackEnd, ThreadState, TimeNs};

const EPOCH: u64 = 1_700_000_000_000_000_000;

/// One recording: ms since the one before ended, its length in ms, and for each span thread, state, begin and
/// length in ms.
#[derive(Clone, Debug)]
struct Recording {
    gap: u64,
    length: u64,
    spans: Vec<(usize, bool, u64, u64)>,
}

/// Threads of the process; a recording observes those that it has spans of.
const THREADS: [&str; 3] = ["tp_osd_tp", "msgr-worker-0", "bstore_kv_sync"];

impl Recording {
    /// The trace's bytes, for one that begins at this many ms.
    fn bytes(&self, begin: u64) -> Vec<u8> {
        let mut m = Maker::new();
        m.tables.header.started_unix_ns = EPOCH + begin * MS;
        m.tables.stats.duration = TimeNs(self.length * MS);
        m.tables.processes[0].birth = "boot 77".to_owned();
        m.tables.stats.losses.n_torn = 3;
        let work = m.stack(&["main", "work"], StackEnd::Root);
        let wait = m.wait(syscall("fdatasync"));
        let mut threads: BTreeMap<usize, ThreadId> = BTreeMap::new();
        for &(thread, is_running, start, length) in &self.spans {
            let id = *threads.entry(thread).or_insert_with(|| {
                let id = m.thread(200 + thread as i32, THREADS[thread]);
                m.tables.threads[id.0 as usize].end = TimeNs(self.length * MS);
                id
            });
            let (state, wait): (_, Option<WaitId>) = match is_running {
                true => (ThreadState::OnCpu, None),
                false => (ThreadState::Blocked, Some(wait)),
            };
            let start = start.min(self.length);
            let length = length.min(self.length - start);
            let stack: Option<StackId> = Some(work);
            m.span(id, state, wait, stack, length * MS);
            m.move_last(start * MS, (start + length) * MS);
        }
        let mut writer = TraceWriter::new(Vec::new(), &m.tables.header).unwrap();
        writer.add_tables(&m.tables).unwrap();
        for span in &m.spans {
            writer.span(span).unwrap();
        }
        writer.finish(&m.tables.stats).unwrap();
        let symbols = m.tables.names.symbols.as_ref();
        writer.write_symbols(symbols.unwrap()).unwrap();
        writer.into_inner()
    }
}

fn read(bytes: &[u8]) -> Trace {
    TraceReader::from_reader(bytes)
        .unwrap()
        .read_all()
        .unwrap()
        .0
}

/// A profile of a part of the trace, ms.
fn profile(trace: &Trace, window: Option<(u64, u64)>) -> Profile {
    let mut builder = ProfileBuilder::new();
    if let Some((from, to)) = window {
        builder = builder.with_window(TimeNs(from * MS), TimeNs(to * MS));
    }
    builder.add_spans(&trace.spans);
    builder.finish(&trace.tables, None, &Rules::builtin().unwrap())
}

/// The recordings of all, and where each begins, ms.
fn traces(recordings: &[Recording]) -> Vec<(u64, Vec<u8>)> {
    let mut end = 0;
    let of = |recording: &Recording| {
        let begin = end + recording.gap;
        end = begin + recording.length;
        (begin, recording.bytes(begin))
    };
    recordings.iter().map(of).collect()
}

fn merged(traces: &[(u64, Vec<u8>)]) -> Trace {
    let tables: Vec<_> = traces.iter().map(|(_, bytes)| read(bytes).tables).collect();
    let joins = Joins::find(&tables).unwrap();
    let header = merged_header(&tables, "9");
    let mut writer = TraceWriter::new(Vec::new(), &header).unwrap();
    let open = |i: usize| TraceReader::from_reader(traces[i].1.as_slice());
    merge(tables, Align::Clock, &joins, open, &mut writer).unwrap();
    read(&writer.into_inner())
}

/// Time by thread and state, ns.
fn by_state(profile: &Profile) -> BTreeMap<(i32, State), u64> {
    let mut sums = BTreeMap::new();
    for row in profile.rows.iter().filter(|row| row.weight > 0) {
        let key = (profile.threads[row.thread].tid.0, row.state);
        *sums.entry(key).or_default() += row.weight;
    }
    sums
}

fn added(profiles: &[Profile]) -> BTreeMap<(i32, State), u64> {
    let mut sums = BTreeMap::new();
    for (key, weight) in profiles.iter().flat_map(by_state) {
        *sums.entry(key).or_default() += weight;
    }
    sums
}

fn recordings() -> impl Strategy<Value = Vec<Recording>> {
    let span = (0..THREADS.len(), any::<bool>(), 0_u64..900, 1_u64..300);
    let recording = (
        1_u64..5000,
        500_u64..1000,
        prop::collection::vec(span, 1..20),
    );
    let recording = recording.prop_map(|(gap, length, spans)| Recording { gap, length, spans });
    prop::collection::vec(recording, 2..5)
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(60))]

    /// Check that the merged trace has one process, each thread once, the time of all parts by thread and
    /// state, and that lengths and rates are those of the recorded time.
    #[test]
    fn sums_of_the_parts(recordings in recordings(), rotation in 0_usize..4) {
        let mut traces = traces(&recordings);
        let first = traces[0].0;
        let parts: Vec<Profile> = traces.iter().map(|(_, b)| profile(&read(b), None)).collect();
        // In whatever order they are given.
        let n = traces.len();
        traces.rotate_left(rotation % n);
        let trace = merged(&traces);
        let whole = profile(&trace, None);
        prop_assert_eq!(whole.processes.len(), 1);
        prop_assert_eq!(by_state(&whole), added(&parts));
        let tids: Vec<i32> = whole.threads.iter().map(|t| t.tid.0).collect();
        let mut distinct = tids.clone();
        distinct.sort_unstable();
        distinct.dedup();
        prop_assert_eq!(tids.len(), distinct.len());
        for thread in &whole.threads {
            let same = parts.iter().flat_map(|p| &p.threads).filter(|t| t.tid == thread.tid);
            prop_assert_eq!(thread.n_ticks, same.clone().map(|t| t.n_ticks).sum::<u64>());
            // A thread that a recording in between did not see counts as there.
            prop_assert!(thread.observed_ns >= same.map(|t| t.observed_ns).sum::<u64>());
            prop_assert!(thread.observed_ns <= whole.duration_ns());
        }
        let recorded: u64 = recordings.iter().map(|r| r.length * MS).sum();
        prop_assert_eq!(whole.duration_ns(), recorded);
        prop_assert_eq!(whole.processes[0].recorded_ns, recorded);
        prop_assert_eq!(whole.stats.losses.n_torn, 3 * n as u64);
        let (last, length) = (traces.iter().map(|t| t.0).max(), recordings.last());
        let extent = last.unwrap() + length.unwrap().length - first;
        prop_assert_eq!(whole.extent_ns(), extent * MS);
        let of_cpu = |p: &Profile| {
            let rows = p.rows.iter().filter(|row| row.state == State::OnCpu);
            rows.map(|row| row.weight).sum::<u64>() as f64
        };
        let rules = Rules::builtin().unwrap();
        let found = cores(&whole, &rules, &rules.categories().unwrap(), None);
        prop_assert!((found.cores - of_cpu(&whole) / recorded as f64).abs() < 1e-9);
    }

    /// Check that a window of the merged trace on one recording is that recording, and that one in a gap is
    /// nothing.
    #[test]
    fn windows(recordings in recordings()) {
        let traces = traces(&recordings);
        let first = traces[0].0;
        let trace = merged(&traces);
        let mut end = None;
        for ((begin, bytes), recording) in traces.iter().zip(&recordings) {
            let from = begin - first;
            let to = from + recording.length;
            let part = profile(&trace, Some((from, to)));
            let alone = profile(&read(bytes), None);
            prop_assert_eq!(by_state(&part), by_state(&alone));
            prop_assert_eq!(part.duration_ns(), alone.duration_ns());
            prop_assert_eq!(part.processes[0].recorded_ns, alone.duration_ns());
            if let Some(end) = end {
                let gap = profile(&trace, Some((end, from)));
                prop_assert!(gap.rows.iter().all(|row| row.weight == 0));
                prop_assert_eq!(gap.duration_ns(), 0);
                let over = profile(&trace, Some((end, to)));
                prop_assert_eq!(over.duration_ns(), recording.length * MS);
            }
            end = Some(to);
        }
    }
}

/// Check that the intervals of a merged trace are those of the recorded time alone: two recordings without a gap
/// and with a long one are as sure of a share.
#[test]
fn intervals() {
    let at = |gap| {
        let spans = (0..100).map(|i| (0, i * i % 7 < 3, 10 * i, 10)).collect();
        let first = Recording {
            gap: 0,
            length: 1000,
            spans,
        };
        let second = Recording {
            gap,
            ..first.clone()
        };
        let profile = profile(&merged(&traces(&[first, second])), None);
        let estimator = profile.estimator().unwrap();
        let courses: Vec<_> = profile
            .rows
            .iter()
            .map(|row| (row.weight, estimator.course(&row.slices)))
            .collect();
        let mut whole = courses[0].1;
        whole.add(&courses[1].1);
        let sum = courses[0].0 + courses[1].0;
        let interval = estimator.interval(courses[0].0, &courses[0].1, sum, &whole);
        (interval.high - interval.low) as f64 / sum as f64
    };
    let (without, with) = (at(0), at(6_000));
    assert!(without > 0.0 && with > 0.0);
    // Slices are longer with a gap, so that fewer of them are left.
    assert!(
        with < 4.0 * without && without < 4.0 * with,
        "{without} {with}"
    );
}
