//! Looks at locks, with the stacks that the owners had at the same tick, to entries of a trace.
//! Looks that find the same at tick after tick become one entry.

use std::collections::HashMap;

use wcprof_capture::{LockGlance, TargetId};
use wcprof_trace::model::{LockLook, LockOwner, OwnerState, ProcessId};
use wcprof_types::{Avma, Sched, Tid, TimeNs};

use crate::threads::ThreadState;

/// Addresses of locks that are told apart; waits for others have none.
const MAX_ADDRESSES: usize = 1 << 16;
/// A timer sample is that of an owner's tick when it is no further from it than this, in ticks.
const NEAR_TICKS: u64 = 1;
/// A thread queued for less than this part of a tick ran until the tick began.
const DISPLACED: u64 = 20;

/// What the last looks found.
#[derive(Debug, Default)]
pub(crate) struct Locks {
    runs: HashMap<Avma, LockLook>,
    /// Those that are over, in order.
    ready: Vec<LockLook>,
    /// And whether they were met since others were forgotten.
    addresses: HashMap<Avma, bool>,
}

impl Locks {
    /// The address, if it is one of those that are told apart.
    pub(crate) fn address(&mut self, address: Avma) -> Option<Avma> {
        if self.addresses.len() >= MAX_ADDRESSES && !self.addresses.contains_key(&address) {
            return None;
        }
        self.addresses.insert(address, true);
        Some(address)
    }

    /// Forgets those that were not met since the last call.
    pub(crate) fn forget(&mut self) {
        self.addresses
            .retain(|_, is_met| std::mem::replace(is_met, false));
    }

    /// Takes one look. `time` turns the sampler's clock into the trace's.
    pub(crate) fn glance(
        &mut self,
        process: ProcessId,
        glance: &LockGlance,
        threads: &HashMap<(TargetId, Tid), ThreadState>,
        time: impl Fn(u64) -> TimeNs,
    ) {
        let Some(is_met) = self.addresses.get_mut(&glance.address) else {
            return;
        };
        *is_met = true;
        let tick_ns = glance.time.saturating_sub(glance.since);
        let owners = glance.owners.iter().filter_map(|owner| {
            let thread = threads.get(&(glance.target, owner.tid))?;
            let place = thread.place_at(glance.time, NEAR_TICKS * tick_ns);
            Some(LockOwner {
                word: owner.word,
                thread: thread.id,
                state: match thread.sched {
                    Sched::Blocked => OwnerState::Blocked,
                    // wcprof itself took its CPU, to look.
                    Sched::Queued {
                        waited_ns: Some(ns),
                    } if ns < tick_ns / DISPLACED => OwnerState::Running,
                    Sched::Queued { .. } => OwnerState::Queued,
                    Sched::OnCpu | Sched::Running => OwnerState::Running,
                },
                moved: owner.moved,
                stack: place.and_then(|(stack, _)| stack),
                wait: place
                    .and_then(|(_, wait)| wait)
                    .filter(|_| thread.sched == Sched::Blocked),
            })
        });
        let look = LockLook {
            process,
            address: glance.address,
            since: time(glance.since).min(time(glance.time)),
            until: time(glance.time),
            n_looks: 1,
            words: glance.words,
            owners: owners.collect(),
        };
        match self.runs.get_mut(&glance.address) {
            Some(run) if run.until == look.since && is_same(run, &look) => {
                run.until = look.until;
                run.n_looks = run.n_looks.saturating_add(1);
                run.words = look.words;
            }
            Some(run) => self.ready.push(std::mem::replace(run, look)),
            None => {
                self.runs.insert(glance.address, look);
            }
        }
    }

    /// Looks that are over.
    pub(crate) fn take_ready(&mut self) -> Vec<LockLook> {
        std::mem::take(&mut self.ready)
    }

    /// Everything so far: what goes on becomes a new entry.
    pub(crate) fn take_all(&mut self) -> Vec<LockLook> {
        let mut open: Vec<LockLook> = self.runs.drain().map(|(_, look)| look).collect();
        // The order of a hash map is no property of a recording.
        open.sort_by_key(|look| (look.until, look.address));
        let mut all = self.take_ready();
        all.append(&mut open);
        all
    }
}

fn is_same(a: &LockLook, b: &LockLook) -> bool {
    a.words.lasting() == b.words.lasting() && a.owners == b.owners
}

#[cfg(test)]
mod tests {
    use wcprof_capture::OwnerGlance;
    use wcprof_types::lock::{FutexWords, N_WORDS};

    use super::*;

    fn glance(tick: u64, owner: u32) -> LockGlance {
        let mut words = [0; N_WORDS];
        (words[0], words[1], words[2]) = (2, tick as u32, owner);
        LockGlance {
            after: 0,
            target: TargetId(0),
            time: tick * 10,
            since: tick.saturating_sub(1) * 10,
            address: Avma(0x1000),
            words: FutexWords(words),
            owners: vec![OwnerGlance {
                word: 2,
                tid: Tid(owner as i32),
                moved: false,
            }],
        }
    }

    /// Check that addresses which nobody meets any more make room for others, and that one which is looked at stays.
    #[test]
    fn forgotten() {
        let mut locks = Locks::default();
        let all = || (0..MAX_ADDRESSES as u64).map(Avma);
        assert!(all().all(|address| locks.address(address).is_some()));
        let new = Avma(u64::MAX);
        assert_eq!(locks.address(new), None);
        locks.forget();
        assert_eq!(locks.address(new), None, "they were met until now");
        let looked_at = LockGlance {
            address: Avma(7),
            ..glance(1, 1)
        };
        locks.glance(ProcessId(0), &looked_at, &HashMap::new(), TimeNs);
        locks.forget();
        assert_eq!(locks.addresses.len(), 1);
        assert!(locks.address(new).is_some());
    }

    /// Check that the same found tick after tick is one entry, that another owner and a tick
    /// left out begin a new one, and that addresses that are not told apart are left out.
    #[test]
    fn runs() {
        let mut locks = Locks::default();
        let threads = HashMap::new();
        let take = |locks: &mut Locks, tick, owner| {
            locks.glance(ProcessId(0), &glance(tick, owner), &threads, TimeNs);
        };
        take(&mut locks, 1, 5);
        assert!(locks.take_all().is_empty());
        assert_eq!(locks.address(Avma(0x1000)), Some(Avma(0x1000)));
        for (tick, owner) in [(1, 5), (2, 5), (3, 6), (4, 6), (6, 6)] {
            take(&mut locks, tick, owner);
        }
        let runs: Vec<_> = locks
            .take_all()
            .into_iter()
            .map(|l| (l.since.0, l.until.0, l.n_looks, l.words.tid(2)))
            .collect();
        assert_eq!(runs, [(0, 20, 2, 5), (20, 40, 2, 6), (50, 60, 1, 6)]);
        assert!(locks.take_all().is_empty());
    }
}
