//! Threads that cannot run until somebody lets them go on.

use std::collections::BTreeMap;

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
    for (cause, n) in causes {
        let value = format!("{n} of {} by {cause}", count(n_threads, "thread"));
        found.push(setting("stopped", value, "task/TID/stat, wchan, cgroup"));
    }
    if !found.is_empty() {
        for (key, none) in [("TracerPid", "0"), ("CoreDumping", "0")] {
            let value = process.status.get(key).filter(|value| *value != none);
            found.extend(value.map(|value| setting(key, value, "status")));
        }
    }
    out.found_or_passed(
        ID_STOPPED,
        found,
        match n_threads {
            0 => String::new(),
            _ => "no thread is stopped".to_owned(),
        },
    );
}
