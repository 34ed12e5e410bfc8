//! Threads that cannot run until somebody lets them go on.

use std::collections::BTreeMap;

use wcprof_findings::RuleSet;
use wcprof_text::count;

use crate::report::{Out, setting};

const ID_STOPPED: &str = "threads-stopped";

pub(super) fn check(out: &mut Out<'_>) {
    // The rule of the same name says it.
    if out.observed.is_recording {
        return;
    }
    let process = &out.snapshot.process;
    let mut causes: BTreeMap<&str, usize> = BTreeMap::new();
    for thread in &process.threads {
        if let Some(cause) = &thread.stop {
            *causes.entry(cause).or_default() += 1;
        }
    }
    let n_threads = process.threads.len();
    let mut found = Vec::new();
    for (cause, n) in &causes {
        let value = format!("{n} of {} by {cause}", count(n_threads, "thread"));
        found.push(setting("stopped", value, "task/TID/stat, wchan, cgroup"));
    }
    if !found.is_empty() {
        for (key, none) in [("TracerPid", "0"), ("CoreDumping", "0")] {
            let value = process.status.get(key).filter(|value| *value != none);
            found.extend(value.map(|value| setting(key, value, "status")));
        }
    }
    if found.is_empty() {
        if n_threads > 0 {
            out.passed(ID_STOPPED, "no thread is stopped");
        }
        return;
    }
    // What to do is that of the recording's rule.
    let Ok(rules) = RuleSet::builtin() else {
        return;
    };
    let rule = rules.rules().iter().find(|rule| rule.id == ID_STOPPED);
    let causes: Vec<&str> = causes.into_keys().collect();
    let (action, advice) = rule.map_or_else(Default::default, |rule| rule.of_stops(&causes));
    let advice = advice.replace("{pid}", &process.pid.to_string());
    out.found_with(
        ID_STOPPED,
        found,
        &[("action", &action), ("advice", &advice)],
    );
}
