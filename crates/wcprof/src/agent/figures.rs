//! What the agent counts of itself, for `/metrics`.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use wcprof_export::label_value;
use wcprof_net::{PushFigures, Spool};
use wcprof_trace::model::Stats;

/// Processes that ended are remembered up to so many.
const MAX_TARGETS: usize = 4096;

/// All counts. Clones of the handle share them.
#[derive(Debug, Default)]
pub(super) struct Figures(Mutex<Counted>);

/// What was counted so far.
#[derive(Debug, Default)]
pub(super) struct Counted {
    /// By the name that a user knows, cut as labels are: when its last profile ended, seconds since 1970.
    pub(super) targets: BTreeMap<String, TargetFigures>,
    pub(super) processes: ProcessNumbers,
    /// The engine of the last recording, and what it said that it cannot do.
    pub(super) engine: (String, Vec<String>),
    pub(super) samples: Stats,
    /// Of recordings that have ended.
    pub(super) samples_before: Stats,
    /// Profiles that were made, stacks in them that are `[other]`, and intervals that were joined with the next one because
    /// those before were still being made.
    pub(super) n_profiles: u64,
    pub(super) n_folded: u64,
    pub(super) n_joined: u64,
    /// Time that is in no profile, since the ring held it no longer.
    pub(super) lost: Duration,
    /// CPU time of looking up names.
    pub(super) names: Duration,
    /// Bytes of the ring.
    pub(super) ring_bytes: usize,
    pub(super) pushing: Option<(Arc<PushFigures>, Arc<Spool>)>,
    /// What processes made, with `--check` alone.
    pub(super) measured: Vec<(String, ProfileSize)>,
}

/// Processes that are meant.
#[derive(Copy, Clone, PartialEq, Eq, Debug, Default)]
pub(super) struct ProcessNumbers {
    /// Those that are recorded; some may share a name.
    pub(super) n_live: usize,
    /// Those that have no room beside these.
    pub(super) n_left_out: usize,
}

/// What a process makes of an interval.
#[derive(Copy, Clone, PartialEq, Eq, Debug, Default)]
pub(super) struct ProfileSize {
    /// Of Pyroscope, for which labels of samples are labels of series.
    pub(super) n_series: usize,
    pub(super) n_samples: usize,
    /// Of pprof, not compressed.
    pub(super) n_bytes: usize,
}

/// Of one process.
#[derive(Copy, Clone, PartialEq, Eq, Debug, Default)]
pub(super) struct TargetFigures {
    /// How often ticks saw its threads.
    pub(super) n_observations: u64,
    /// When its last profile ended, ns since 1970.
    pub(super) last_ns: u64,
    /// It is there.
    pub(super) is_live: bool,
}

impl Figures {
    pub(super) fn lock(&self) -> MutexGuard<'_, Counted> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Counted {
    /// A recording has ended.
    pub(super) fn end_recording(&mut self) {
        self.samples_before.add_counts(&self.samples);
        self.samples = Stats::default();
        self.ring_bytes = 0;
    }

    /// Those that are there now. One that has gone is remembered for its age, until there are too many.
    pub(super) fn set_targets<'t>(&mut self, titles: impl Iterator<Item = &'t str>) {
        for figures in self.targets.values_mut() {
            figures.is_live = false;
        }
        self.processes.n_live = 0;
        for title in titles {
            self.target(title).is_live = true;
            self.processes.n_live += 1;
        }
        if self.targets.len() > MAX_TARGETS {
            self.targets.retain(|_, figures| figures.is_live);
        }
    }

    /// The figures of those with this name.
    pub(super) fn target(&mut self, title: &str) -> &mut TargetFigures {
        self.targets.entry(label_value(title)).or_default()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Check that names take little memory, however many and long they are.
    #[test]
    fn long_names() {
        let titles: Vec<String> = (0..5000)
            .map(|n| format!("{n:08}\x1b{}", "x".repeat(1 << 16)))
            .collect();
        let mut counted = Counted::default();
        counted.set_targets(titles.iter().map(String::as_str));
        assert_eq!(
            (counted.processes.n_live, counted.targets.len()),
            (5000, 5000)
        );
        counted.target(&titles[7]).last_ns = 9;
        assert_eq!(counted.targets.len(), 5000);
        assert!(counted.targets.keys().map(String::len).sum::<usize>() <= 1_000_000);
        assert!(!counted.targets.keys().any(|key| key.contains('\x1b')));
    }
}
