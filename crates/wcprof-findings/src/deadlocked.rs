//! Circles of threads that wait for each other's locks, as findings.

use wcprof_profile::OwnFunctions;
use wcprof_profile::model::{DeadlockedThread, Profile};

use crate::finding::{Basis, Finding, Setting, SettingsFound};
use crate::lock_text::lock_kind;
use crate::locks::{deadlock_report, frames};
use crate::matching::any_glob;
use crate::rule::Rule;
use crate::totals::Index;

/// Threads of a circle that are named.
const MAX_NAMED: usize = 16;

/// A finding for each circle of threads.
pub(crate) fn deadlocked(index: &Index<'_>, rule: &Rule) -> Vec<Finding> {
    let profile = index.profile;
    if profile.locks.deadlocks.is_empty() {
        return Vec::new();
    }
    let own = OwnFunctions::new(profile);
    let found = profile.locks.deadlocks.iter().filter_map(|deadlock| {
        let first = profile.threads.get(deadlock.threads.first()?.thread)?;
        let process = profile.processes.get(first.process)?;
        if !any_glob(&rule.matches.processes, &process.comm) {
            return None;
        }
        let report = deadlock_report(profile, deadlock)?;
        let links = report.links().zip(&deadlock.threads);
        let settings = links
            .take(MAX_NAMED)
            .map(|((one, holder), thread)| Setting {
                name: format!("{} (tid {})", one.name, one.tid),
                value: format!(
                    "waits for the {} at {:#x} in {}",
                    lock_kind(one.kind),
                    one.lock,
                    place(profile, &own, thread),
                ),
                origin: format!("held by {} (tid {})", holder.name, holder.tid),
            });
        let settings = SettingsFound {
            settings: settings.collect(),
            n_threads: Some(deadlock.threads.len()),
        };
        let mut finding = Finding::of_rule(rule, profile, first.process, Basis::Limit(settings));
        finding.title = format!("Deadlock: {}", report.title());
        for one in &deadlock.threads {
            let pool = profile.pools.get(profile.threads.get(one.thread)?.pool)?;
            if !finding.pools.contains(&pool.name) {
                finding.pools.push(pool.name.clone());
            }
        }
        Some(finding)
    });
    found.collect()
}

/// The function of the program where a thread waits.
fn place<'p>(profile: &'p Profile, own: &OwnFunctions, one: &DeadlockedThread) -> &'p str {
    let leaf_first: Vec<_> = frames(profile, one.stack).iter().rev().copied().collect();
    let function = own.from_own(&leaf_first).first();
    let function = function.and_then(|id| profile.functions.get(id.0 as usize));
    function.map_or("an unknown function", |function| &function.name)
}
