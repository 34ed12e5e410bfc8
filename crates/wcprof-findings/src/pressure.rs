//! How long tasks stalled for a resource during a recording, as the kernel accounted it: of the host, of the control
//! groups of a finding's threads, and by delay accounting.
//!
//! The kernel tells a mean over CPUs, weighted by how long each had something to do: of a thread that waits and changes CPUs
//! it is less than its waits, and less than delay accounting tells.

use std::collections::BTreeSet;

use wcprof_profile::model::Profile;
use wcprof_types::cgroup::Pressure;

use crate::finding::{Evidence, EvidenceLine};
use crate::rule::Resource;

/// Groups that have a line.
const MAX_GROUPS: usize = 4;

/// Stall times, percent of the recording; `None` where the kernel accounts none.
pub(crate) fn pressure(profile: &Profile, pools: &[usize], resource: Resource) -> Option<Evidence> {
    let pools = pools.iter().map(|&at| &profile.pools[at]);
    let process = profile.processes.get(pools.clone().next()?.process)?;
    let change = process.accounts.change.as_ref()?;
    let name = resource.name();
    let mut lines = Vec::new();
    let mut add = |whose: &str, pressure: &Pressure| {
        for (who, us) in [
            ("some task waited", pressure.some_us),
            ("all tasks waited", pressure.full_us),
        ] {
            // Of CPUs the kernel tells no `full` of the host.
            if us > 0 || who == "some task waited" {
                let text = format!("{whose}: {who}");
                // The kernel adds up in steps, which may begin before the first reading.
                let ns = us.saturating_mul(1000).min(change.length_ns);
                lines.push(EvidenceLine::new(text, ns, change.length_ns));
            }
        }
    };
    if let Some(pressure) = change.pressure.get(name) {
        add("the host", pressure);
    }
    let threads = pools.flat_map(|pool| &pool.threads);
    let places: BTreeSet<u32> = threads
        .filter_map(|&at| {
            let thread = &profile.threads[at];
            change.thread(thread.pid, thread.tid)
        })
        .flat_map(|set| set.groups.iter().copied())
        .collect();
    let groups = places
        .iter()
        .filter_map(|at| change.groups.get(*at as usize));
    let groups = groups.filter_map(|change| {
        let pressure = change.group.pressure.get(name)?;
        Some((change.group.path.as_str(), pressure))
    });
    for (path, pressure) in groups.take(MAX_GROUPS) {
        add(path, pressure);
    }
    if resource == Resource::Io
        && let Some(ns) = change.block_wait_ns.get(&process.pid)
    {
        let text = "delay accounting: its threads waited for block devices".to_owned();
        lines.push(EvidenceLine::new(text, *ns, change.length_ns));
    }
    (!lines.is_empty()).then(|| Evidence {
        heading: format!("{name} pressure (a mean over CPUs) and delays, % of the recording"),
        lines,
        n_cut: 0,
    })
}
