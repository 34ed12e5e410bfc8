//! How often each process was seen in an interval, and the warning where that is less than half of what was asked for.

use std::collections::{BTreeMap, HashMap};

use wcprof_profile::model::{Profile, ProfileThread};
use wcprof_text::terminal_name;
use wcprof_trace::model::{ProcessId, ThreadId};

use super::log::{self, Level, Sparing};
use crate::args::SamplingArgs;

/// Threads that were observed for a shorter time tell nothing, ns: what waits is handed on about once a second.
const MIN_OBSERVED_NS: u64 = 10_000_000_000;

/// What of a recording's threads was counted before.
#[derive(Debug, Default)]
pub(super) struct Rates {
    counted: HashMap<ThreadId, u64>,
    warned: Sparing,
}

impl Rates {
    /// Observations since the last call, by the index of their process, given all so far of each thread.
    pub(super) fn seen(
        &mut self,
        threads: impl Iterator<Item = (ThreadId, ProcessId, u64)>,
    ) -> BTreeMap<usize, u64> {
        let mut seen = BTreeMap::new();
        let before = std::mem::take(&mut self.counted);
        for (thread, process, n) in threads {
            let known = before.get(&thread).copied();
            // A thread that has ended gives its number to another one.
            let known = known.filter(|known| *known <= n).unwrap_or(0);
            *seen.entry(process.0 as usize).or_default() += n - known;
            self.counted.insert(thread, n);
        }
        seen
    }

    /// Says, once a minute, that processes were seen at less than half of the rate that was asked for.
    pub(super) fn note(
        &mut self,
        profile: &Profile,
        seen: &BTreeMap<usize, u64>,
        sampling: &SamplingArgs,
    ) {
        if let Some(text) = too_slow(profile, seen, sampling.rate) {
            let text = format!("{text}; --max-cpu {} permits no more", sampling.max_cpu);
            log::sparingly(&mut self.warned, Level::Warning, &text);
        }
    }
}

/// Which processes were seen at less than half of `rate_hz`: the one that was seen least by name.
fn too_slow(profile: &Profile, seen: &BTreeMap<usize, u64>, rate_hz: u32) -> Option<String> {
    let mut due = vec![0.0; profile.processes.len()];
    let is_long = |thread: &&ProfileThread| thread.observed_ns >= MIN_OBSERVED_NS;
    for thread in profile.threads.iter().filter(is_long) {
        if let Some(due) = due.get_mut(thread.process) {
            *due += thread.observed_ns as f64 / 1e9 * f64::from(rate_hz);
        }
    }
    let part = |at: usize, due: f64| seen.get(&at).copied().unwrap_or(0) as f64 / due;
    let due = due.into_iter().enumerate();
    let parts = due.filter(|(_, due)| *due > 0.0);
    let parts = parts.map(|(at, due)| (at, part(at, due)));
    let slow: Vec<(usize, f64)> = parts.filter(|(_, part)| *part < 0.5).collect();
    let (at, least) = slow.iter().min_by(|(_, a), (_, b)| a.total_cmp(b))?;
    let title = terminal_name(&profile.processes.get(*at)?.title);
    let got = least * f64::from(rate_hz);
    Some(format!(
        "{} of {} processes were seen at less than half of {rate_hz} Hz, {title} at {got:.2} Hz",
        slow.len(),
        profile.processes.len()
    ))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Check that each observation is counted once, also of a thread that has the number of another one.
    #[test]
    fn counted_once() {
        let mut rates = Rates::default();
        let mut seen = |all: &[(u32, u32, u64)]| {
            let all = all.iter();
            rates.seen(all.map(|&(thread, process, n)| (ThreadId(thread), ProcessId(process), n)))
        };
        assert_eq!(
            seen(&[(0, 0, 5), (1, 1, 3), (2, 1, 4)]),
            BTreeMap::from([(0, 5), (1, 7)])
        );
        assert_eq!(
            seen(&[(0, 0, 6), (1, 1, 2)]),
            BTreeMap::from([(0, 1), (1, 2)])
        );
        assert_eq!(
            seen(&[(0, 0, 6), (2, 1, 4)]),
            BTreeMap::from([(0, 0), (1, 4)])
        );
    }
}
