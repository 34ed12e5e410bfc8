//! A short recording to one moment of it: where each thread stood at its end, as a core file shows that.

use std::collections::{BTreeMap, HashMap};
use std::fs::File;
use std::time::Duration;

use wcprof_profile::last_looks;
use wcprof_trace::model::{LockLook, OwnerState, SNAPSHOT_NS, Span, Tables, ThreadId};
use wcprof_trace::{TraceError, TraceReader, TraceSink, TraceWriter};
use wcprof_types::{ThreadState, TimeNs};

use crate::output::path_of;
use crate::session::Session;

/// Length of the recording: running threads have a stack by then, and a deadlock is seen often enough to be claimed.
pub(crate) const LENGTH: Duration = Duration::from_secs(2);
/// A thread is there at the end if something of it was seen within this before, ns: ticks may come late.
const LAST: u64 = 100_000_000;

/// Where a thread stood.
#[derive(Default)]
struct Stand {
    /// All that was seen of its last moments.
    last: Vec<Span>,
    /// The last time with a stack in which it ran.
    running: Option<Span>,
    /// When it ran last, ns.
    ran: u64,
}

impl Stand {
    fn add(&mut self, span: Span) {
        if !matches!(span.state, ThreadState::Blocked | ThreadState::Unknown) {
            self.ran = self.ran.max(span.end.0);
        }
        if span.state == ThreadState::OnCpu && span.stack.is_some() {
            self.running = Some(span.clone());
        }
        // The order is nearly that of ends, and a thread's spans of one tick come together.
        self.last
            .retain(|before| before.end.0.saturating_add(LAST) >= span.end.0);
        self.last.push(span);
    }

    /// What it did most in its last moments, if it was there at the end.
    fn at(&self, end: u64) -> Option<&Span> {
        let there = self
            .last
            .iter()
            .filter(|span| span.end.0.saturating_add(LAST) >= end);
        let share = |span: &Span| {
            let length = span.end.0.saturating_sub(span.start.0).max(1);
            span.weight as f64 / length as f64
        };
        let most = there.max_by(|a, b| share(a).total_cmp(&share(b)))?;
        // A stack of a running thread comes from a timer, whose last sample may be older.
        let is_bare = most.state == ThreadState::OnCpu && most.stack.is_none();
        let sampled = self.running.as_ref().filter(|_| is_bare);
        Some(sampled.unwrap_or(most))
    }
}

/// Puts the last moment of a recording into a new trace, which takes the recording's place.
///
/// # Errors
/// When the recording cannot be read, or the trace not be written.
pub(crate) fn condense(session: &mut Session, out: File) -> Result<(), TraceError> {
    let mut stands: BTreeMap<ThreadId, Stand> = BTreeMap::new();
    let mut end = 0;
    let reader = TraceReader::open(path_of(&session.file))?;
    let (mut tables, _) = reader.read(|_, span| {
        end = end.max(span.end.0);
        stands.entry(span.thread).or_default().add(span);
    })?;
    let spans: Vec<Span> = stands
        .values()
        .filter_map(|stand| stand.at(end))
        .map(|span| Span {
            start: TimeNs(0),
            end: TimeNs(SNAPSHOT_NS),
            weight: SNAPSHOT_NS,
            n_samples: 1,
            ..span.clone()
        })
        .collect();
    let ran = stands.iter().map(|(thread, stand)| (*thread, stand.ran));
    become_moment(&mut tables, &spans, &ran.collect());
    let mut writer =
        TraceWriter::for_file(out.try_clone().map_err(TraceError::Write)?, &tables.header)?;
    writer.add_tables(&tables)?;
    spans.iter().try_for_each(|span| writer.span(span))?;
    writer.finish(&tables.stats)?;
    session.file = out;
    session.recorded.stats = tables.stats;
    session.recorded.writer = writer;
    Ok(())
}

/// Makes tables of a recording those of a moment in which these spans are.
fn become_moment(tables: &mut Tables, spans: &[Span], ran: &HashMap<ThreadId, u64>) {
    tables.header.n_snapshots = 1;
    tables.header.rate_hz = 0;
    tables.header.notes.push(format!(
        "one moment of a live process, the end of {} s: threads are counted, each with 1 s, and nothing was stopped, so that threads are seen some \
         milliseconds apart",
        LENGTH.as_secs()
    ));
    for thread in &mut tables.threads {
        (thread.start, thread.end, thread.n_ticks) = (TimeNs(0), TimeNs(0), 0);
        thread
            .names
            .iter_mut()
            .for_each(|(since, _)| *since = TimeNs(0));
        // The last one is that of the moment.
        thread.names.drain(..thread.names.len().saturating_sub(1));
    }
    for span in spans {
        if let Some(thread) = tables.threads.get_mut(span.thread.0 as usize) {
            (thread.end, thread.n_ticks) = (TimeNs(SNAPSHOT_NS), 1);
        }
    }
    let looks = last_looks(tables);
    tables.locks.looks = looks.into_iter().map(|look| of_moment(look, ran)).collect();
    tables.locks.moved.clear();
    // These have times.
    tables.origins.counters = Default::default();
    tables.origins.accounts.clear();
    tables.origins.process_ends.clear();
    tables.stats.duration = TimeNs(SNAPSHOT_NS);
    tables.stats.n_observations = spans.len() as u64;
    tables.stats.end_reason = "snapshot".to_owned();
}

/// A look at a lock as one of the moment. How long it has been as it is stays, if no thread that it names has run meanwhile but in
/// the first quarter: a deadlock rests on that.
fn of_moment(mut look: LockLook, ran: &HashMap<ThreadId, u64>) -> LockLook {
    let time = look.until.0.saturating_sub(look.since.0);
    let quarter = look.since.0.saturating_add(time / 4);
    let mut waiting = look
        .owners
        .iter()
        .filter(|owner| owner.state == OwnerState::Blocked);
    let has_run = waiting.any(|owner| ran.get(&owner.thread).is_none_or(|ran| *ran > quarter));
    let lasting = if has_run { 0 } else { time };
    look.since = TimeNs(0);
    look.until = TimeNs(lasting.max(SNAPSHOT_NS));
    look
}
