//! Threads to pools: by rule, else by names that differ only in numbers.

use std::sync::LazyLock;

use indexmap::IndexMap;
use regex::Regex;

use crate::model::{Pool, ProfileProcess, ProfileThread};
use crate::rules::Rules;

/// Puts every thread into a pool, in the order of the pools' first threads, and writes the pool's
/// index into the thread.
pub(crate) fn pools(
    threads: &mut [ProfileThread],
    processes: &[ProfileProcess],
    rules: &Rules,
) -> Vec<Pool> {
    // By process, whether a rule names it, and the name with numbers taken out.
    let mut pools: IndexMap<(usize, bool, String), Pool> = IndexMap::new();
    for (at, thread) in threads.iter_mut().enumerate() {
        let named = rules.pool(&thread.comm, &thread.process_comm);
        let key = match &named {
            Some(name) => (thread.process, true, name.clone()),
            None => (thread.process, false, without_numbers(&thread.comm)),
        };
        let pool = pools.entry(key);
        thread.pool = pool.index();
        let pool = pool.or_insert_with(|| Pool {
            name: named.unwrap_or_default(),
            process: thread.process,
            pid: thread.pid,
            threads: Vec::new(),
            is_fleet: false,
        });
        pool.threads.push(at);
    }
    for pool in pools.values_mut().filter(|pool| pool.name.is_empty()) {
        pool.name = common_name(pool.threads.iter().map(|&t| threads[t].comm.as_str()));
    }
    for pool in pools.values_mut() {
        let process = processes.get(pool.process);
        pool.is_fleet = process.is_some_and(|p| rules.has_like_threads(&p.class, &pool.name));
    }
    pools.into_values().collect()
}

static RUN: LazyLock<Regex> =
    LazyLock::new(|| Regex::new("[0-9]+|[^0-9]+").expect("a test compiles it"));

/// Splits a name into runs of digits and runs of other characters.
fn runs(name: &str) -> impl Iterator<Item = &str> {
    RUN.find_iter(name).map(|run| run.as_str())
}

fn is_number(run: &str) -> bool {
    run.starts_with(|c: char| c.is_ascii_digit())
}

/// The name with `N` in place of every number: what pools of several recordings have in common.
pub fn without_numbers(name: &str) -> String {
    let runs = runs(name).map(|run| if is_number(run) { "N" } else { run });
    runs.collect()
}

/// The names' common form: `N` in place of the numbers in which they differ.
fn common_name<'a>(mut names: impl Iterator<Item = &'a str>) -> String {
    let Some(first) = names.next() else {
        return String::new();
    };
    let mut common: Vec<&str> = runs(first).collect();
    for name in names {
        for (run, other) in common.iter_mut().zip(runs(name)) {
            if *run != other {
                *run = "N";
            }
        }
    }
    common.concat()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Check that only numbers that differ become N, and that a lone name is kept.
    #[test]
    fn names() {
        assert_eq!(
            common_name(["CPU 0/KVM", "CPU 12/KVM"].into_iter()),
            "CPU N/KVM"
        );
        assert_eq!(common_name(["w-1-0", "w-1-1"].into_iter()), "w-1-N");
        assert_eq!(
            common_name(["tp_osd_tp", "tp_osd_tp"].into_iter()),
            "tp_osd_tp"
        );
        assert_eq!(common_name(["reader 7"].into_iter()), "reader 7");
        assert_eq!(common_name(["é1ü", "é22ü"].into_iter()), "éNü");
    }

    /// Check that numbers are taken out at any place of a name.
    #[test]
    fn numbers() {
        assert_eq!(without_numbers("rocksdb:low0"), "rocksdb:lowN");
        assert_eq!(without_numbers("12ab34"), "NabN");
        assert_eq!(without_numbers(""), "");
    }
}
