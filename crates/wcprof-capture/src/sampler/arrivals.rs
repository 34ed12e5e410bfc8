//! Processes that another thread found while a recording runs, on their way to the sampler.

use std::sync::{Arc, Mutex, PoisonError};

use wcprof_host::Target;

/// Where they wait. Clones share it.
#[derive(Clone, Debug, Default)]
pub struct Arrivals(Arc<Mutex<Vec<Arc<Target>>>>);

impl Arrivals {
    /// Hands over a process that is to be recorded, too.
    pub fn push(&self, target: Arc<Target>) {
        let mut waiting = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        waiting.push(target);
    }

    /// Those that wait. Sampling does not wait for the lock: what is not there now is there at the next call.
    pub(super) fn take(&self) -> Vec<Arc<Target>> {
        let waiting = self.0.try_lock();
        waiting.map_or_else(|_| Vec::new(), |mut waiting| std::mem::take(&mut *waiting))
    }
}
