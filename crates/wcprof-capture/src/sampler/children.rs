//! Processes that targets start while they are recorded.

use std::collections::HashSet;
use std::fs::File;

use wcprof_types::Pid;

use wcprof_host::procfs::{line_buffer, list_processes, open, parse_stat, read_line, read_text};

/// The number given out last in wcprof's pid namespace (needs `CONFIG_CHECKPOINT_RESTORE`).
const LAST_PID: &str = "/proc/sys/kernel/ns_last_pid";
/// Beyond so many new numbers it is cheaper to list all processes.
const MAX_PROBED: i32 = 1024;
/// Without [`LAST_PID`] processes are listed this often.
const LIST_NS: u64 = 100_000_000;

/// Notices new processes.
#[derive(Debug)]
pub(super) struct Births {
    last_pid: Option<File>,
    last: i32,
    listed: u64,
    /// The processes of the last listing, where they have to be listed.
    known: HashSet<i32>,
}

impl Births {
    pub(super) fn new() -> Self {
        let mut births = Self {
            last_pid: open(LAST_PID).ok(),
            last: 0,
            listed: 0,
            known: HashSet::new(),
        };
        match births.read_last() {
            Some(last) => births.last = last,
            None => births.known = list_processes().into_iter().collect(),
        }
        births
    }

    fn read_last(&self) -> Option<i32> {
        let mut buffer = line_buffer();
        let line = read_line(self.last_pid.as_ref()?, &mut buffer).ok()?;
        line.trim().parse().ok()
    }

    /// Numbers that may be of processes that are new since the last call, ascending.
    pub(super) fn candidates(&mut self, now: u64) -> Vec<i32> {
        if let Some(last) = self.read_last() {
            let before = std::mem::replace(&mut self.last, last);
            return match last - before {
                0 => Vec::new(),
                1..=MAX_PROBED => (before + 1..=last).collect(),
                // Many, or the numbers begin afresh.
                _ => list_processes(),
            };
        }
        if now.saturating_sub(self.listed) < LIST_NS {
            return Vec::new();
        }
        self.listed = now;
        let all = list_processes();
        let new = all.iter().copied().filter(|pid| !self.known.contains(pid));
        let new = new.collect();
        self.known = all.into_iter().collect();
        new
    }
}

/// The process that started the one with this number, and when, in clock ticks since boot; `None` when there is none.
pub(super) fn birth_of(pid: Pid) -> Option<(Pid, u64)> {
    let stat = parse_stat(&read_text(pid, "stat").ok()?)?;
    Some((Pid(stat.parent), stat.start_ticks))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Check that a child is among the candidates, by its number and by listing, and its parent is
    /// known.
    #[test]
    fn child() {
        let by_number = Births::new();
        let mut by_list = Births::new();
        by_list.last_pid = None;
        by_list.known = list_processes().into_iter().collect();
        for mut births in [by_number, by_list] {
            let mut child = std::process::Command::new("cat")
                .stdin(std::process::Stdio::piped())
                .spawn()
                .unwrap();
            let pid = child.id() as i32;
            let found = births.candidates(LIST_NS);
            assert!(found.contains(&pid), "{found:?} has no {pid}");
            assert!(found.is_sorted());
            let parent = birth_of(Pid(pid)).map(|(parent, _)| parent);
            assert_eq!(parent, Some(Pid(std::process::id() as i32)));
            assert!(!births.candidates(2 * LIST_NS).contains(&pid));
            drop(child.stdin.take());
            child.wait().unwrap();
        }
        assert_eq!(birth_of(Pid(-1)), None);
    }
}
