//! What tracks and markers have in common: which samples are shown, states as categories, times.

use wcprof_profile::model::{Profile, State};

use crate::stacks::Stacks;
use crate::timeline::Sample;

/// Samples with at most this time between them follow each other, ns.
pub(super) const MAX_GAP_NS: u64 = 10_000;
/// The category that viewers fall back to.
pub(super) const OTHER: usize = 0;
/// The samples that a view shows.
pub(super) struct Shown<'p> {
    pub(super) profile: &'p Profile,
    pub(super) stacks: Stacks<'p>,
}

impl Shown<'_> {
    pub(super) fn state(&self, sample: &Sample) -> State {
        self.profile.rows[sample.row as usize].state
    }

    pub(super) fn shows(&self, sample: &Sample) -> bool {
        self.stacks.shows(sample.row as usize)
    }

    /// The time of a thread that is shown, ns.
    pub(super) fn shown_ns(&self, samples: &[Sample]) -> u64 {
        let shown = samples.iter().filter(|s| self.shows(s));
        shown.fold(0, |sum, s| sum.saturating_add(s.weight))
    }
}

/// The number of a state's category.
pub(super) fn category(state: State) -> usize {
    OTHER + 1 + state as usize
}

pub(super) fn color(state: State) -> &'static str {
    match state {
        State::OnCpu => "green",
        State::Guest | State::VmExit => "magenta",
        State::Runnable => "yellow",
        State::Lock => "red",
        State::Disk => "purple",
        State::Net => "blue",
        State::Sleep => "lightblue",
        State::Idle | State::PlaceUnknown => "transparent",
        State::Blocked | State::Throttle => "orange",
        State::StealIrq => "brown",
        State::Unknown | State::Stopped => "darkgrey",
    }
}

pub(super) fn ms(ns: u64) -> f64 {
    ns as f64 / 1e6
}
