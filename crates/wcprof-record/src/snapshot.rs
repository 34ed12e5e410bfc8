//! A recording into a ring to what a trace of its last time is made of: while it runs, or at its end.

use wcprof_trace::TraceError;
use wcprof_trace::ring::{Cut, Ring, Snapshot};
use wcprof_types::TimeNs;

use crate::files::TargetFiles;
use crate::recorder::Recorder;
use crate::unmapped::UnmappedFrames;

/// What a ring held at a moment, and what its names are found by.
#[derive(Debug)]
pub struct NamedSnapshot {
    /// What it held.
    pub snapshot: Snapshot,
    /// The recording's time 0, `CLOCK_MONOTONIC` ns.
    begin: u64,
    files: Vec<TargetFiles>,
    unmapped: UnmappedFrames,
    /// Processes that could not be recorded by then.
    pub n_left_out: u64,
}

impl NamedSnapshot {
    /// Files of the processes of a cut.
    pub fn files(&self, cut: &Cut<'_>) -> Vec<TargetFiles> {
        let of_cut = |files: &TargetFiles| {
            let mut files = files.clone();
            files.process = cut.process(files.process)?;
            Some(files)
        };
        self.files.iter().filter_map(of_cut).collect()
    }

    /// Whose the cut's frames outside of every module are.
    pub fn unmapped(&self, cut: &Cut<'_>) -> UnmappedFrames {
        self.unmapped
            .renumbered(|frame| cut.frame(frame), |process| cut.process(process))
    }

    /// A moment of `CLOCK_MONOTONIC`, ns, as a time of the recording.
    pub fn time_of(&self, monotonic: u64) -> TimeNs {
        TimeNs(monotonic.saturating_sub(self.begin))
    }

    /// When it was taken, `CLOCK_MONOTONIC` ns.
    pub fn end(&self) -> u64 {
        self.begin.saturating_add(self.snapshot.end().0)
    }

    /// The cut's time 0, `CLOCK_MONOTONIC` ns.
    pub fn begin(&self, cut: &Cut<'_>) -> u64 {
        self.begin.saturating_add(cut.from().0)
    }
}

impl Recorder<Ring> {
    /// What the ring holds now. Time that no thread has accounted yet is given out in it as it would
    /// be at the end of the recording, which goes on unchanged.
    pub fn take_snapshot(&mut self) -> Result<NamedSnapshot, TraceError> {
        self.flush()?;
        let mut rest = Vec::new();
        for thread in self.threads.values() {
            let pieces = thread.rest();
            rest.extend(pieces.iter().map(|piece| self.span(thread.id, piece)));
        }
        // The order of a hash map is no property of a recording.
        rest.sort_by_key(|span| (span.end, span.thread, span.start));
        Ok(self.take(rest))
    }

    /// Ends the recording, and gives what the ring holds; `reason` says why it ended.
    pub fn finish_with_snapshot(mut self, reason: &str) -> (NamedSnapshot, Option<TraceError>) {
        let (_, failed) = self.end_all(reason);
        (self.take(Vec::new()), failed)
    }

    fn take(&self, rest: Vec<wcprof_trace::model::Span>) -> NamedSnapshot {
        NamedSnapshot {
            snapshot: self.writer.snapshot(rest),
            begin: self.clock.begin.unwrap_or(0),
            n_left_out: self.n_left_out(),
            files: self.files(),
            unmapped: self.stacks.unmapped.clone(),
        }
    }
}
