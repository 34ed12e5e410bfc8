//! Turns of a recording's processes to take in modules.

use wcprof_capture::TargetId;
use wcprof_host::clock::monotonic_ns;
use wcprof_trace::{TraceError, TraceSink};

use crate::recorder::Recorder;

impl<S: TraceSink> Recorder<S> {
    /// Gives one process a turn, if there is CPU time left for one.
    pub(crate) fn take_in_next(&mut self) -> Result<(), TraceError> {
        match self.stacks.taking_in.next(monotonic_ns()) {
            Some(target) => self.take_in(target),
            None => Ok(()),
        }
    }

    /// Gives a process a turn to take in modules.
    pub(crate) fn take_in(&mut self, target: TargetId) -> Result<(), TraceError> {
        match self.processes.get_mut(target) {
            Some(process) => {
                let now = monotonic_ns();
                self.stacks.take_in(target, process, now, &mut self.writer)
            }
            None => Ok(()),
        }
    }

    /// Reads again modules whose files did not answer, of the process that has waited longest.
    pub(crate) fn retry_modules(&mut self) -> Result<(), TraceError> {
        let now = monotonic_ns();
        if !self.stacks.shared.patience.is_left(now) {
            return Ok(());
        }
        let waiting = self.processes.iter_mut();
        let waiting = waiting.filter_map(|(id, process)| {
            let modules = process.modules();
            Some((modules.retry_at()?, id, modules))
        });
        let first = waiting.min_by_key(|(at, ..)| *at);
        if let Some((_, target, modules)) = first.filter(|(at, ..)| *at <= now) {
            modules.retry();
            self.stacks.taking_in.wants(target);
        }
        Ok(())
    }
}
