//! Which process takes in modules next, and for how long: any user can map thousands of files in hundreds of processes, and what
//! these cost must not be what others are recorded with.

use std::collections::BTreeMap;

use wcprof_capture::TargetId;
use wcprof_host::work_cpu_ns;

/// CPU time of one turn, ns: the list of mappings is read for each, which takes a few ms where it has thousands.
const TURN_NS: u64 = 20_000_000;
/// CPU time of all turns before the first tick, ns: modules that are not there then are missing in stacks.
const AT_START_NS: u64 = 1_000_000_000;
/// The same of one process where there are several. A ceph-osd with its libraries takes a fifth of it.
const OF_ONE_AT_START_NS: u64 = 500_000_000;
/// Turns may take this part of the CPU time that wcprof may use.
const PART: f64 = 0.3;
/// The part of so much time, ns, may be taken at once: a program that begins later maps all of its libraries in its first second.
const SAVED_NS: f64 = 40e9;

/// CPU time in which modules are taken in.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub(crate) struct Turn {
    /// When it is over, in CPU time of this thread, ns.
    until: u64,
}

impl Turn {
    #[cfg(test)]
    pub(crate) const LONG: Self = Self { until: u64::MAX };

    pub(crate) fn is_over(self) -> bool {
        work_cpu_ns() >= self.until
    }
}

/// Processes that have modules to take in. The one whose turn it is has taken the least CPU time so far.
#[derive(Debug)]
pub(crate) struct TakingIn {
    /// Of a core.
    share: f64,
    /// CPU time that turns may take now, ns; what the last one took too much is made up for.
    left: f64,
    /// When that was found, `CLOCK_MONOTONIC` ns; `None` before the first tick.
    at: Option<u64>,
    /// CPU time of all turns, ns, by process; a process that has ended is not in it.
    used: BTreeMap<TargetId, Used>,
    /// CPU time of turns that was not handed on yet, ns.
    new_ns: u64,
}

#[derive(Debug, Default)]
struct Used {
    ns: u64,
    waits: bool,
}

impl TakingIn {
    pub(crate) fn new(max_cpu_percent: u32) -> Self {
        let share = f64::from(max_cpu_percent) / 100.0 * PART;
        Self {
            share,
            left: AT_START_NS as f64,
            at: None,
            used: BTreeMap::new(),
            new_ns: 0,
        }
    }

    /// A process has modules that may not be known.
    pub(crate) fn wants(&mut self, target: TargetId) {
        self.used.entry(target).or_default().waits = true;
    }

    pub(crate) fn ended(&mut self, target: TargetId) {
        self.used.remove(&target);
    }

    /// The process whose turn it is at a time, `CLOCK_MONOTONIC` ns, if there is CPU time left for one.
    pub(crate) fn next(&mut self, now: u64) -> Option<TargetId> {
        match self.at.replace(now) {
            // What was not used at the start is not there later.
            None => self.left = self.left.min(SAVED_NS * self.share),
            Some(before) => {
                let more = now.saturating_sub(before) as f64 * self.share;
                self.left = (self.left + more).min(SAVED_NS * self.share);
            }
        }
        if self.left <= 0.0 {
            return None;
        }
        let waiting = self.used.iter().filter(|(_, used)| used.waits);
        let (target, _) = waiting.min_by_key(|(_, used)| used.ns)?;
        Some(*target)
    }

    /// How long the turn of a process may be.
    pub(crate) fn turn(&self, target: TargetId) -> Turn {
        let now = work_cpu_ns();
        let used = self.used.get(&target).map_or(0, |used| used.ns);
        let ns = match self.at {
            None => OF_ONE_AT_START_NS
                .saturating_sub(used)
                .min(self.left.max(0.0) as u64),
            Some(_) => TURN_NS,
        };
        Turn { until: now + ns }
    }

    /// CPU time of turns since this was last asked, ns. Fewer ticks would not make them cheaper.
    pub(crate) fn take_ns(&mut self) -> u64 {
        std::mem::take(&mut self.new_ns)
    }

    /// A process has had a turn, which took so much CPU time.
    pub(crate) fn took(&mut self, target: TargetId, ns: u64, more_wait: bool) {
        self.left -= ns as f64;
        self.new_ns += ns;
        let used = self.used.entry(target).or_default();
        used.ns = used.ns.saturating_add(ns);
        used.waits = more_wait;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MS: u64 = 1_000_000;

    /// Turns for a minute, in each of which a process takes what it takes at once. Gives the CPU time of all, ns, and of each
    /// process how often its turn was.
    fn minute(taking_in: &mut TakingIn, cost: [u64; 3]) -> (u64, [u64; 3]) {
        let (mut all, mut n) = (0, [0; 3]);
        for now in (0..60_000).step_by(10) {
            for id in 0..3 {
                taking_in.wants(TargetId(id));
            }
            if let Some(target) = taking_in.next(now * MS) {
                let at = target.0 as usize;
                taking_in.took(target, cost[at], false);
                (all, n[at]) = (all + cost[at], n[at] + 1);
            }
        }
        (all, n)
    }

    /// Check that what processes take at the start is limited for each, and for all together.
    #[test]
    fn at_start() {
        let mut taking_in = TakingIn::new(1);
        let length = |turn: Turn| turn.until.saturating_sub(work_cpu_ns());
        let mut longest = Vec::new();
        for id in 0..4 {
            longest.push(length(taking_in.turn(TargetId(id))));
            taking_in.took(TargetId(id), OF_ONE_AT_START_NS, true);
        }
        assert!(longest[..2].iter().all(|ns| *ns > OF_ONE_AT_START_NS / 2));
        assert_eq!(longest[2..], [0, 0]);
    }

    /// Check that all together take the part of the limit which is theirs, beside what was saved before, and that processes
    /// whose turns take long do not delay one whose turns take little.
    #[test]
    fn shares() {
        let mut taking_in = TakingIn::new(1);
        taking_in.next(0);
        let (all, n) = minute(&mut taking_in, [100 * MS, 100 * MS, MS]);
        let allowed = (60e9 + SAVED_NS) * 0.01 * PART;
        assert!(all as f64 <= allowed + 100e6, "{all}");
        assert!(n[2] >= n[0].max(n[1]) * 50, "{n:?}");
        // One that ends is forgotten.
        taking_in.ended(TargetId(2));
        assert!(!taking_in.used.contains_key(&TargetId(2)));
    }
}
