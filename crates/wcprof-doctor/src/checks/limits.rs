//! Limits: CPU and memory of control groups, descriptors.

use super::plural;
use crate::report::{Out, setting};

const ID_THROTTLED: &str = "cgroup-throttled";
const ID_MEMORY_HIGH: &str = "cgroup-memory-high";
const ID_FILES: &str = "open-files";

/// Share of periods, percent, below which throttling is a rare burst.
const THROTTLED_PERCENT: u64 = 1;
const MIN_PERIODS: u64 = 100;
const FILES_PERCENT: u64 = 80;

pub(super) fn check(out: &mut Out<'_>) {
    let snapshot = out.snapshot;
    let groups = &snapshot.process.cgroups;
    let mut throttled = Vec::new();
    let mut limits = Vec::new();
    let mut high = Vec::new();
    for group in groups {
        let limit = match (group.quota_us, group.period_us) {
            (Some(quota), Some(period)) => {
                format!("{:.2} CPUs", quota as f64 / period.max(1) as f64)
            }
            _ => "no CPU limit".to_owned(),
        };
        let n = group.n_throttled.unwrap_or(0);
        let of = group.n_periods.unwrap_or(0);
        if group.quota_us.is_some() {
            let text = format!(
                "{limit}, throttled in {n} of {}",
                plural(of as usize, "period")
            );
            limits.push(format!("{}: {text}", group.path));
            if of >= MIN_PERIODS && n.saturating_mul(100) / of >= THROTTLED_PERCENT {
                let lost = group.throttled_us.unwrap_or(0) as f64 / 1e6;
                let value = format!("{text}, {lost:.1} s lost");
                throttled.push(setting(group.path.clone(), value, "cpu.max, cpu.stat"));
            }
        }
        if let Some(n) = group.n_memory_high.filter(|n| *n > 0) {
            high.push(setting(
                group.path.clone(),
                format!("{n} times"),
                "memory.events",
            ));
        }
    }
    let seen = match limits.is_empty() {
        true if groups.is_empty() => String::new(),
        true => "no CPU limit".to_owned(),
        false => limits.join(", "),
    };
    out.found_or_passed(ID_THROTTLED, throttled, seen);
    out.found_or_passed(ID_MEMORY_HIGH, high, "");
    if let Some((open, limit)) = snapshot
        .process
        .fds
        .as_ref()
        .and_then(|f| Some((f.n, f.limit?)))
    {
        let text = format!("{open} of {limit}");
        if limit > 0 && open.saturating_mul(100) / limit >= FILES_PERCENT {
            out.found(
                ID_FILES,
                vec![setting("open files", text, "fd, limits")],
                &[],
            );
        } else if open > 0 {
            out.passed(ID_FILES, text);
        }
    }
}
