//! Selectors to processes as they come: each process is looked at when it is new and once more, since a process has its
//! program's name only some time after its birth, and all of them once a minute.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::{Duration, Instant};

use wcprof_host::select::{Selector, candidate, pids};
use wcprof_host::{Liveness, Target, TargetError, new_silences};
use wcprof_types::Pid;

use super::log::{self, Level, Sparing};
use crate::session::Sampling;

/// Between two searches.
pub(super) const SEARCH: Duration = Duration::from_secs(1);
/// Looks at a new process.
const LOOKS: u8 = 2;
/// A process that has been looked at is looked at again after this: it may run another program, or be another one.
const AGAIN: Duration = Duration::from_secs(60);

/// A process that was left out may have been slow once.
const LEFT_OUT: Duration = Duration::from_secs(600);

/// Finds processes.
#[derive(Debug)]
pub(super) struct Finder {
    selectors: Vec<Selector>,
    /// By pid, how often it was looked at.
    looked: HashMap<i32, u8>,
    all_looked: Option<Instant>,
    targets: Vec<Arc<Target>>,
    left_out: Vec<LeftOut>,
    refused: Sparing,
}

/// A process that could not be recorded.
#[derive(Debug)]
struct LeftOut {
    target: Arc<Target>,
    since: Instant,
    /// Still waits for its answer.
    sampler: Sampling,
}

impl LeftOut {
    /// Each further sampler would wait as well.
    fn is_over(&self, now: Instant) -> bool {
        let is_old = now.saturating_duration_since(self.since) >= LEFT_OUT;
        self.target.has_exited() || is_old && self.sampler.is_finished()
    }
}

impl Finder {
    pub(super) fn new(selectors: Vec<Selector>) -> Self {
        Self {
            selectors,
            looked: HashMap::new(),
            all_looked: None,
            targets: Vec::new(),
            left_out: Vec::new(),
            refused: Sparing::default(),
        }
    }

    /// Processes that were found and have not ended, in the order in which they were found.
    pub(super) fn targets(&self) -> &[Arc<Target>] {
        &self.targets
    }

    /// For ten minutes, and until it answers, this process is no target: its next program may be as silent.
    pub(super) fn leave_out(&mut self, pid: Pid, sampler: Sampling) {
        let is_it = |target: &Arc<Target>| target.pid() == pid;
        if let Some(at) = self.targets.iter().position(is_it) {
            self.left_out.push(LeftOut {
                target: self.targets.remove(at),
                since: Instant::now(),
                sampler,
            });
        }
    }

    /// Processes that are new since the last search.
    pub(super) fn search(&mut self) -> Vec<Arc<Target>> {
        let looked = &mut self.looked;
        self.targets.retain(|target| {
            let is_same = target.liveness() == Liveness::Same;
            if !is_same {
                looked.remove(&target.pid().0);
            }
            is_same
        });
        for silence in new_silences() {
            log::line(Level::Warning, &silence);
        }
        let now = Instant::now();
        self.left_out.retain(|left_out| !left_out.is_over(now));
        if self.all_looked.is_none_or(|looked| now - looked >= AGAIN) {
            self.all_looked = Some(now);
            self.looked.clear();
        }
        let before = std::mem::take(&mut self.looked);
        let mut new = Vec::new();
        for pid in pids() {
            let n_looks = before.get(&pid).copied().unwrap_or(0);
            let left_out = self.left_out.iter().map(|left_out| &left_out.target);
            let mut known = self.targets.iter().chain(left_out);
            let is_known = known.any(|target| target.pid() == Pid(pid));
            if n_looks < LOOKS && !is_known {
                new.extend(self.look(pid));
            }
            self.looked
                .insert(pid, n_looks.saturating_add(1).min(LOOKS));
        }
        self.targets.extend(new.iter().cloned());
        new
    }

    /// The process, if it is meant.
    fn look(&mut self, pid: i32) -> Option<Arc<Target>> {
        let process = candidate(pid)?;
        if !self
            .selectors
            .iter()
            .any(|selector| selector.matches(&process))
        {
            return None;
        }
        match Target::open_found(Pid(pid)) {
            Ok(target) => Some(Arc::new(target)),
            Err(TargetError::NoSuchProcess(_) | TargetError::Zombie(_)) => None,
            Err(error) => {
                let text = format!("pid {pid} is left out: {error}");
                log::sparingly(&mut self.refused, Level::Warning, &text);
                None
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use std::process::{Child, Command, Stdio};
    use std::sync::mpsc::{Receiver, channel};
    use std::thread;

    use globset::Glob;
    use wcprof_capture::{Punctuality, SamplingEnd};

    use super::*;

    fn cat() -> Child {
        Command::new("cat").stdin(Stdio::piped()).spawn().unwrap()
    }

    /// Check that a process is found once, that the next one is found, and that one that has ended is no target.
    #[test]
    fn comes_and_goes() {
        let mut first = cat();
        let name = Glob::new("cat").unwrap().compile_matcher();
        let mut finder = Finder::new(vec![Selector::Name(name)]);
        let has = |found: &[Arc<Target>], child: &Child| {
            found
                .iter()
                .any(|target| target.pid().0 == child.id() as i32)
        };
        // A child has its program's name when it runs it.
        assert!((0..1000).any(|_| {
            finder.looked.clear();
            has(&finder.search(), &first)
        }));
        assert!(!has(&finder.search(), &first) && has(finder.targets(), &first));
        let mut second = cat();
        assert!((0..1000).any(|_| {
            finder.looked.remove(&(second.id() as i32));
            has(&finder.search(), &second)
        }));
        assert!(has(finder.targets(), &first) && has(finder.targets(), &second));
        first.kill().unwrap();
        first.wait().unwrap();
        finder.search();
        assert!(!has(finder.targets(), &first) && has(finder.targets(), &second));
        second.kill().unwrap();
        second.wait().unwrap();
    }

    /// Check that a process that is left out is not found again for a while, nor before it has answered, that others still
    /// are, and that it is forgotten when it has ended.
    #[test]
    fn left_out() {
        let (mut silent, mut other) = (cat(), cat());
        let name = Glob::new("cat").unwrap().compile_matcher();
        let mut finder = Finder::new(vec![Selector::Name(name)]);
        let pids = [&silent, &other].map(|child| Pid(child.id() as i32));
        let has = |finder: &Finder, pid| finder.targets().iter().any(|target| target.pid() == pid);
        assert!((0..1000).any(|_| {
            finder.looked.clear();
            finder.search();
            pids.iter().all(|&pid| has(&finder, pid))
        }));
        let (go, wait) = channel::<()>();
        let leave_out = |finder: &mut Finder, wait: Receiver<()>| {
            let sampler = thread::spawn(move || {
                let _ = wait.recv();
                (SamplingEnd::Stopped, Punctuality::RealTime)
            });
            finder.leave_out(pids[0], sampler);
        };
        leave_out(&mut finder, wait);
        finder.all_looked = None;
        let found = finder.search();
        assert!(found.iter().all(|target| target.pid() != pids[0]));
        assert_eq!(pids.map(|pid| has(&finder, pid)), [false, true]);
        let search_later = |finder: &mut Finder| {
            finder.left_out[0].since -= LEFT_OUT;
            finder.looked.clear();
            finder.search();
            has(finder, pids[0])
        };
        assert!(!search_later(&mut finder), "it still waits");
        drop(go);
        while !finder.left_out[0].sampler.is_finished() {
            thread::yield_now();
        }
        assert!(search_later(&mut finder));
        let (_go, wait) = channel();
        leave_out(&mut finder, wait);
        silent.kill().unwrap();
        silent.wait().unwrap();
        finder.search();
        assert!(finder.left_out.is_empty());
        other.kill().unwrap();
        other.wait().unwrap();
    }
}
