//! Circles of threads that wait for each other's locks, as findings.

use wcprof_profile::model::{Deadlock, DeadlockedThread, Profile};
use wcprof_text::count;

use crate::finding::{Basis, Finding, Setting, SettingsFound};
use crate::lock_text::lock_kind;
use crate::matching::any_glob;
use crate::rule::Rule;
use crate::totals::Index;

/// Threads of a circle that are named.
const MAX_NAMED: usize = 16;

/// A finding for each circle of threads.
pub(crate) fn deadlocked(index: &Index<'_>, rule: &Rule) -> Vec<Finding> {
    let profile = index.profile;
    let found = profile.locks.deadlocks.iter().filter_map(|deadlock| {
        let first = profile.threads.get(deadlock.threads.first()?.thread)?;
        let process = profile.processes.get(first.process)?;
        if !any_glob(&rule.matches.processes, &process.comm) {
            return None;
        }
        let settings = links(profile, deadlock).take(MAX_NAMED);
        let settings = SettingsFound {
            settings: settings.collect(),
            n_threads: Some(deadlock.threads.len()),
        };
        let mut finding = Finding::of_rule(rule, profile, first.process, Basis::Limit(settings));
        finding.title = match deadlock.threads.len() {
            1 => "Deadlock: a thread waits for a lock that it holds itself".to_owned(),
            n => format!(
                "Deadlock: {} wait for each other\'s locks",
                count(n, "thread")
            ),
        };
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

/// Each thread, what it waits for and where, and who holds that.
pub(crate) fn links<'p>(
    profile: &'p Profile,
    deadlock: &'p Deadlock,
) -> impl Iterator<Item = Setting> + 'p {
    let next = deadlock.threads.iter().cycle().skip(1);
    let links = deadlock.threads.iter().zip(next);
    links.map(|(one, holder)| Setting {
        name: thread_text(profile, one),
        value: format!(
            "waits for the {} at {:#x} in {}",
            lock_kind(one.kind),
            one.address.0,
            place(profile, one),
        ),
        origin: format!("held by {}", thread_text(profile, holder)),
    })
}

/// `tp_osd_tp (tid 4711)`
fn thread_text(profile: &Profile, one: &DeadlockedThread) -> String {
    let thread = profile.threads.get(one.thread);
    thread.map_or_else(String::new, |thread| {
        format!("{} (tid {})", thread.comm, thread.tid)
    })
}

/// The nearest function that is the program's own.
fn place<'p>(profile: &'p Profile, one: &DeadlockedThread) -> &'p str {
    let stack = one.stack.and_then(|id| profile.stacks.get(id.0 as usize));
    let frames = stack.map_or(&[][..], |stack| &stack.frames);
    let functions = frames
        .iter()
        .rev()
        .filter_map(|id| profile.functions.get(id.0 as usize));
    let mut own = functions.filter(|function| !is_lock_function(&function.name));
    own.next()
        .map_or("an unknown function", |function| &function.name)
}

/// Functions of C and C++ libraries that take locks.
fn is_lock_function(name: &str) -> bool {
    let name = name.trim_start_matches('_');
    let parts = [
        "lll_",
        "pthread_",
        "futex_",
        "gthread_",
        "GI_",
        "std::",
        "libc.so",
        "libpthread",
    ];
    name.is_empty() || parts.iter().any(|part| name.starts_with(part))
}
