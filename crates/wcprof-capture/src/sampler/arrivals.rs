//! Processes that another thread found while a recording runs, on their way to the sampler, and how others came.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use wcprof_host::Target;

/// How a process came to be sampled.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub(super) enum Entry {
    /// It was started since sampling began.
    Born,
    /// It was observed before, with another program: its first thread is older than its part.
    Exec,
    /// It was there when its part began, `CLOCK_MONOTONIC` ns: its threads from before are older than that.
    Found(u64),
}

impl Entry {
    /// Whether a thread that is seen for the first time is older than its process's part.
    pub(super) fn is_older(self, is_first_thread: bool, started: u64) -> bool {
        match self {
            Self::Born => false,
            Self::Exec => is_first_thread,
            Self::Found(begin) => started < begin,
        }
    }
}

/// Where they wait. Clones share it.
#[derive(Clone, Debug, Default)]
pub struct Arrivals {
    waiting: Arc<Mutex<Vec<Arc<Target>>>>,
    /// Sampling goes on without a process: one is still to come.
    is_expecting: Arc<AtomicBool>,
}

impl Arrivals {
    /// Of a process that is still to come, for which sampling waits.
    pub fn expecting() -> Self {
        let arrivals = Self::default();
        arrivals.is_expecting.store(true, Ordering::Relaxed);
        arrivals
    }

    /// No other process will come for which sampling had to wait.
    pub fn no_more(&self) {
        self.is_expecting.store(false, Ordering::Relaxed);
    }

    pub(super) fn is_expecting(&self) -> bool {
        self.is_expecting.load(Ordering::Relaxed)
    }

    /// Hands over a process that is to be recorded, too.
    pub fn push(&self, target: Arc<Target>) {
        let mut waiting = self.waiting.lock().unwrap_or_else(PoisonError::into_inner);
        waiting.push(target);
    }

    /// Those that wait. Sampling does not wait for the lock: what is not there now is there at the next call.
    pub(super) fn take(&self) -> Vec<Arc<Target>> {
        let waiting = self.waiting.try_lock();
        waiting.map_or_else(|_| Vec::new(), |mut waiting| std::mem::take(&mut *waiting))
    }
}
