//! What is read beside the sampler's batches to readings of the trace: what processes say that they counted, and what the
//! kernel accounted.

use wcprof_capture::TargetId;
use wcprof_trace::model::AccountsReading;
use wcprof_trace::{TraceError, TraceSink};
use wcprof_types::{CounterName, CounterValue, Pid};

use crate::recorder::Recorder;

impl<S: TraceSink> Recorder<S> {
    /// Takes what a process counted until `time` (`CLOCK_MONOTONIC`, ns). What is from before the recording, or of
    /// a process that has ended or is one with others in the trace, is left out.
    pub fn counters(
        &mut self,
        target: TargetId,
        time: u64,
        counted: &[(CounterName, CounterValue)],
    ) -> Result<(), TraceError> {
        let began = self.clock.begin.is_some_and(|begin| begin <= time);
        let process = self.processes.get_mut(target);
        let Some(process) = process.filter(|process| began && process.owns_id) else {
            return Ok(());
        };
        let at = (process.id, self.clock.time(time));
        self.counters.add(at, counted, &mut self.writer)
    }

    /// Takes what the kernel had accounted at `time` (`CLOCK_MONOTONIC`, ns), as JSON. What is from before the recording
    /// is left out.
    pub fn accounts(&mut self, time: u64, json: String) -> Result<(), TraceError> {
        if self.clock.begin.is_none_or(|begin| begin > time) {
            return Ok(());
        }
        self.writer.accounts(AccountsReading {
            source: 0,
            time: self.clock.time(time),
            json,
        })
    }

    /// The processes that are recorded now.
    pub fn pids(&self) -> Vec<Pid> {
        self.processes.pids()
    }
}
