//! Limits: CPU and memory of control groups, descriptors.

use wcprof_text::count;

use crate::report::{Out, setting};

const ID_THROTTLED: &str = "cgroup-throttled";
const ID_MEMORY_HIGH: &str = "cgroup-memory-high";
const ID_FILES: &str = "open-files";

/// Share of periods, percent, below which throttling is a rare burst.
const THROTTLED_PERCENT: u64 = 1;
const MIN_PERIODS: u64 = 100;
const FILES_PERCENT: u64 = 80;

pub(super) fn check(out: &mut Out<'_>) {
    let process = &out.snapshot.process;
    let (mut throttled, mut limits) = (Vec::new(), Vec::new());
    for group in process.cgroups.iter().filter(|g| g.quota_us.is_some()) {
        let cpus = group.quota_us.zip(group.period_us);
        let limit = cpus.map_or("no CPU limit".to_owned(), |(quota, period)| {
            format!("{:.2} CPUs", quota as f64 / period.max(1) as f64)
        });
        let n = group.n_throttled.unwrap_or(0);
        let of = group.n_periods.unwrap_or(0);
        let text = format!(
            "{limit}, throttled in {n} of {}",
            count(of as usize, "period")
        );
        if of >= MIN_PERIODS && n.saturating_mul(100) / of >= THROTTLED_PERCENT {
            let lost = group.throttled_us.unwrap_or(0) as f64 / 1e6;
            let value = format!("{text}, {lost:.1} s lost");
            throttled.push(setting(&group.path, value, "cpu.max, cpu.stat"));
        }
        limits.push(format!("{}: {text}", group.path));
    }
    let seen = match limits.is_empty() {
        true if process.cgroups.is_empty() => String::new(),
        true => "no CPU limit".to_owned(),
        false => limits.join(", "),
    };
    out.found_or_passed(ID_THROTTLED, throttled, seen);
    let high = process.cgroups.iter().filter_map(|group| {
        let n = group.n_memory_high.filter(|n| *n > 0)?;
        Some(setting(&group.path, format!("{n} times"), "memory.events"))
    });
    out.found(ID_MEMORY_HIGH, high);
    if let Some((open, limit)) = process.fds.as_ref().and_then(|f| Some((f.n, f.limit?))) {
        let text = format!("{open} of {limit}");
        if limit > 0 && open.saturating_mul(100) / limit >= FILES_PERCENT {
            out.found(ID_FILES, [setting("open files", text, "fd, limits")]);
        } else if open > 0 {
            out.passed(ID_FILES, text);
        }
    }
}
