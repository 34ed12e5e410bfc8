//! Counters of a finding's process, beside the time that the finding counts: how long a piece of work takes, and how
//! much of that is this time.

use wcprof_profile::model::Profile;
use wcprof_text::duration;

use crate::finding::{Evidence, EvidenceLine};
use crate::matching::glob;
use crate::rule::TimedWork;

/// A line for each counter that is about all these pools and of which their process has some; `matched_ns` is what
/// the finding counts.
pub(crate) fn counters(
    profile: &Profile,
    work: &[TimedWork],
    pools: &[usize],
    matched_ns: u64,
) -> Option<Evidence> {
    let pools = pools.iter().map(|&pool| &profile.pools[pool]);
    let process = profile.processes.get(pools.clone().next()?.process)?;
    let counters = &process.counters;
    let lines = work.iter().filter_map(|work| {
        let value = counters.grown.get(&work.counter)?;
        let is_of_pool = pools.clone().all(|pool| glob(&work.pool, &pool.name));
        if value.count == 0 || !is_of_pool {
            return None;
        }
        // Counters may cover less than the recording.
        let covered = counters.covered_ns as f64 / process.recorded_ns.max(1) as f64;
        let of_each = (matched_ns as f64 * covered / value.count as f64) as u64;
        let each = value.time_ns / value.count;
        let text = format!(
            "{}: {} each, {:.0} a second; {} of each are this time",
            work.counter,
            duration(each),
            value.count as f64 * 1e9 / counters.covered_ns.max(1) as f64,
            duration(of_each),
        );
        Some(EvidenceLine::new(text, of_each, each))
    });
    let lines: Vec<EvidenceLine> = lines.collect();
    (!lines.is_empty()).then(|| Evidence {
        heading: "the process's own counters, % of their time".to_owned(),
        lines,
        n_cut: 0,
    })
}
