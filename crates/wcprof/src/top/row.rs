//! A row of the live view: a pool or a thread, with its time by state.

use wcprof_profile::model::State;

/// A pool, or a thread of one that is unfolded.
#[derive(Clone, PartialEq, Debug)]
pub(crate) struct Row {
    pub(crate) name: String,
    pub(crate) key: RowKey,
    /// Threads of a pool.
    pub(crate) n_threads: usize,
    /// Threads at a time, in the order of [`State::ALL`].
    pub(crate) states: [f64; State::ALL.len()],
}

/// What a row is, from one second to the next.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub(crate) enum RowKey {
    /// The program of its processes, and its name.
    Pool(String, String),
    /// Pid and tid.
    Thread(i32, i32),
}

impl Row {
    /// Threads at a time that are neither idle nor stopped.
    pub(crate) fn busy(&self) -> f64 {
        let active = State::ALL.into_iter().filter(|state| state.is_active());
        active.map(|state| self.states[state as usize]).sum()
    }
}
