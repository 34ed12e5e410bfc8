//! A process's CPU clock, and the run time that its threads showed, to the CPU time of threads that came
//! and went unseen, and of others after they were last seen.

use wcprof_capture::CpuClock;
use wcprof_trace::model::ThreadId;
use wcprof_types::ThreadState as State;

use crate::threads::Place;
use crate::weights::Piece;

/// Unexplained CPU time of the process that can be counters not settled yet, per CPU.
const UNSETTLED_NS: u64 = 12_000_000;

#[derive(Debug, Default)]
pub(crate) struct ExitedCpu {
    /// The process's CPU clock when its part began, and last.
    first: Option<u64>,
    last: u64,
    /// CPU time that threads showed, and that was given to the pseudo-thread, ns.
    shown: u64,
    /// The pseudo-thread, once there is one.
    pub(crate) thread: Option<ThreadId>,
    /// When something was given last, and where its interval began.
    since: u64,
    before: u64,
    /// What threads that were first seen since the last reading had run before, at most since the first one, ns.
    vague: u64,
    /// What living threads can have run on all CPUs between the last look at them and the last reading, ns.
    unseen: u64,
}

impl ExitedCpu {
    /// The process's part begins.
    pub(crate) fn begin(&mut self, time: u64) {
        self.since = time;
    }

    /// A thread that was born before the process's part was first looked at. `run_ns` is its run time since its birth: as much of
    /// what the process used since the first reading may be this thread's.
    pub(crate) fn looked_at_older(&mut self, run_ns: u64) {
        self.vague = self.vague.saturating_add(run_ns);
    }

    /// Takes a reading of the process's CPU clock at a time.
    pub(crate) fn read(&mut self, clock: &CpuClock, n_cpus: u64, now: u64) {
        let vague = std::mem::take(&mut self.vague);
        // Too much to tell: nothing counts that was used until now.
        if vague > UNSETTLED_NS * n_cpus || self.first.is_none() {
            (self.first, self.shown, self.since) = (Some(clock.cpu_ns), 0, now);
        } else {
            self.shown += vague;
        }
        self.last = clock.cpu_ns;
        self.unseen = clock.unseen_ns.saturating_mul(n_cpus);
    }

    /// Takes account of run time that a thread showed, ns.
    pub(crate) fn show(&mut self, run: u64) {
        self.shown += run;
    }

    /// What is sure to be of threads that nobody saw while others still run on `n_cpus` CPUs.
    pub(crate) fn take_settled(&mut self, n_cpus: u64, now: u64) -> Vec<Piece<Place>> {
        let unsettled = UNSETTLED_NS * n_cpus + self.unseen;
        self.take(unsettled, unsettled, now)
    }

    /// What is left when all threads have ended: what they show that were seen to the end is exact, but
    /// for what they ran since.
    pub(crate) fn take_rest(&mut self, now: u64) -> Vec<Piece<Place>> {
        let used = self.last.saturating_sub(self.first.unwrap_or(0));
        let slack = (used / 200).max(UNSETTLED_NS) + self.unseen;
        self.take(slack, self.unseen, now)
    }

    /// CPU time that the process used and none of its threads showed is of threads that came and
    /// went between two ticks. Less than `slack` ns is noise; `keep` ns may still be shown.
    fn take(&mut self, slack: u64, keep: u64, now: u64) -> Vec<Piece<Place>> {
        let used = self.last.saturating_sub(self.first.unwrap_or(0));
        let gap = used.saturating_sub(self.shown);
        // What is left at the end is of the same interval as what was just given.
        let start = match now > self.since {
            true => self.since,
            false => self.before,
        };
        let interval = now.saturating_sub(start);
        if gap <= slack || interval == 0 {
            return Vec::new();
        }
        // Several such threads may have run at a time, but no span weighs more than its interval.
        let mut rest = gap.saturating_sub(keep);
        self.shown += rest;
        let mut pieces = Vec::new();
        while rest > 0 {
            let weight = rest.min(interval);
            rest -= weight;
            pieces.push(Piece {
                start,
                end: now,
                weight,
                n_samples: 0,
                state: State::OnCpu,
                place: None,
            });
        }
        (self.before, self.since) = (start, now);
        pieces
    }
}

#[cfg(test)]
mod tests;
