//! Selectors to processes as they come: each process is looked at when it is new and once more, since a process has its
//! program's name only some time after its birth, and all of them once a minute. Where there is no room for all, [`choose`]
//! says which are recorded.

use std::collections::{BTreeSet, HashMap};
use std::sync::Arc;
use std::time::{Duration, Instant};

use wcprof_capture::add_steady_cpu;
use wcprof_host::procfs::own_rss;
use wcprof_host::select::{Selector, candidate, pids};
use wcprof_host::{Liveness, Target, TargetError, new_silences, work_cpu_ns};
use wcprof_types::Pid;

use super::log::{self, Level, Sparing};
use super::owners::{FoundProcess, FoundProcesses, Owner, choose, left_out};
use super::room::ProcessRoom;
use crate::session::Sampling;

/// The shortest pause between two searches.
const SHORTEST_PAUSE: Duration = Duration::from_secs(1);
/// The longest one, however much CPU time a search takes: an OSD that comes back is found after this.
const LONGEST_PAUSE: Duration = Duration::from_secs(10);
/// The part of the CPU limit that searches take at most, as one part of so many: each process that comes costs two looks.
const SEARCH_SHARE: u32 = 4;
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
    room: ProcessRoom,
    found: FoundProcesses,
    /// By pid, how often it was looked at.
    looked: HashMap<i32, u8>,
    all_looked: Option<Instant>,
    targets: Vec<Arc<Target>>,
    left_out: Vec<LeftOut>,
    refused: Sparing,
    /// Processes that were left out for want of room at the last search.
    n_said: usize,
    beyond: Sparing,
    /// CPU limit of the agent, percent of a core.
    max_cpu: u32,
    pause: Duration,
}

/// What a search has found.
#[derive(Debug)]
pub(super) struct ProcessSearch {
    /// Targets that are new since the last search.
    pub(super) new: Vec<Arc<Target>>,
    /// Others have made room for these: a new recording has to begin.
    pub(super) exchange: bool,
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
    /// `max_cpu` is the CPU limit of the agent, in percent of a core.
    pub(super) fn new(selectors: Vec<Selector>, room: ProcessRoom, max_cpu: u32) -> Self {
        Self {
            selectors,
            room,
            found: FoundProcesses::new(),
            looked: HashMap::new(),
            all_looked: None,
            targets: Vec::new(),
            left_out: Vec::new(),
            refused: Sparing::default(),
            n_said: 0,
            beyond: Sparing::default(),
            max_cpu,
            pause: SHORTEST_PAUSE,
        }
    }

    /// How long to wait before the next search.
    pub(super) fn pause(&self) -> Duration {
        self.pause
    }

    /// Processes that are recorded and have not ended, in the order in which they were chosen.
    pub(super) fn targets(&self) -> &[Arc<Target>] {
        &self.targets
    }

    /// For ten minutes, and until it answers, this process is no target: its next program may be as silent.
    pub(super) fn leave_out(&mut self, pid: Pid, sampler: Sampling) {
        let is_it = |target: &Arc<Target>| target.pid() == pid;
        if let Some(at) = self.targets.iter().position(is_it) {
            self.found.remove(&pid.0);
            self.left_out.push(LeftOut {
                target: self.targets.remove(at),
                since: Instant::now(),
                sampler,
            });
        }
    }

    /// How many processes that are meant are not recorded.
    pub(super) fn n_left_out(&self) -> usize {
        self.found.len().saturating_sub(self.targets.len())
    }

    /// Searches for processes, and chooses those to record.
    pub(super) fn search(&mut self) -> ProcessSearch {
        let before = work_cpu_ns();
        let search = self.search_now();
        let cpu_ns = work_cpu_ns().saturating_sub(before);
        add_steady_cpu(cpu_ns);
        self.pause = pause_after(Duration::from_nanos(cpu_ns), self.max_cpu);
        search
    }

    fn search_now(&mut self) -> ProcessSearch {
        self.forget_ended();
        for silence in new_silences() {
            log::line(Level::Warning, &silence);
        }
        let now = Instant::now();
        self.left_out.retain(|left_out| !left_out.is_over(now));
        if self.all_looked.is_none_or(|looked| now - looked >= AGAIN) {
            self.all_looked = Some(now);
            let looks = self.looked.values_mut();
            looks.for_each(|n_looks| *n_looks = LOOKS - 1);
        }
        let left_out = self.left_out.iter().map(|left_out| &left_out.target);
        let known = self.targets.iter().chain(left_out);
        let known: BTreeSet<i32> = known.map(|target| target.pid().0).collect();
        let before = std::mem::take(&mut self.looked);
        let all = pids();
        for &pid in &all {
            let n_looks = before.get(&pid).copied().unwrap_or(0);
            if n_looks < LOOKS && !known.contains(&pid) {
                match self.look(pid) {
                    Some(found) => self.found.insert(pid, found),
                    None => self.found.remove(&pid),
                };
            }
            self.looked
                .insert(pid, n_looks.saturating_add(1).min(LOOKS));
        }
        let all: BTreeSet<i32> = all.into_iter().collect();
        self.found.retain(|pid, _| all.contains(pid));
        self.choose(now)
    }

    /// Forgets targets that have ended, or run another program.
    fn forget_ended(&mut self) {
        let (looked, found) = (&mut self.looked, &mut self.found);
        self.targets.retain(|target| {
            let is_same = target.liveness() == Liveness::Same;
            if !is_same {
                looked.remove(&target.pid().0);
                found.remove(&target.pid().0);
            }
            is_same
        });
    }

    /// Takes in as many as there is room for; with a new recording also in place of others.
    fn choose(&mut self, now: Instant) -> ProcessSearch {
        self.room.adapt(now, own_rss().0, self.targets.len());
        let room = self.room.n();
        let recorded: BTreeSet<i32> = self.targets.iter().map(|target| target.pid().0).collect();
        let chosen = choose(&self.found, room, |pid| recorded.contains(&pid));
        let new: Vec<i32> = chosen.difference(&recorded).copied().collect();
        let exchange = recorded.len() + new.len() > room && self.room.may_exchange(now);
        if exchange {
            self.room.exchange(now);
            self.targets
                .retain(|target| chosen.contains(&target.pid().0));
        }
        let mut opened = Vec::new();
        for pid in new {
            if self.targets.len() + opened.len() >= room {
                break;
            }
            match self.open(pid) {
                Some(target) => opened.push(target),
                None => {
                    self.found.remove(&pid);
                    self.looked.remove(&pid);
                }
            }
        }
        self.targets.extend(opened.iter().cloned());
        self.note_left_out();
        ProcessSearch {
            new: opened,
            exchange,
        }
    }

    /// Says who is left out when these are more than before, once a minute.
    fn note_left_out(&mut self) {
        let n = self.n_left_out();
        if n > self.n_said {
            let recorded = self.targets.iter().map(|target| target.pid().0).collect();
            if let Some(text) = left_out(&self.found, &recorded) {
                log::sparingly(&mut self.beyond, Level::Warning, &text);
            }
        }
        self.n_said = n;
    }

    /// The process, if it is meant.
    fn look(&mut self, pid: i32) -> Option<FoundProcess> {
        let process = candidate(pid)?;
        let mut selectors = self.selectors.iter();
        let is_meant = selectors.any(|selector| selector.matches(&process));
        is_meant.then(|| FoundProcess {
            started: process.started,
            owner: Owner::of(&process),
            comm: process.comm,
        })
    }

    fn open(&mut self, pid: i32) -> Option<Arc<Target>> {
        match Target::open_found(Pid(pid)) {
            Ok(target) => {
                let found = self.found.get(&pid);
                let is_it = found.is_some_and(|found| found.started == target.started());
                is_it.then(|| Arc::new(target))
            }
            Err(TargetError::NoSuchProcess(_) | TargetError::Zombie(_)) => None,
            Err(error) => {
                let text = format!("pid {pid} is left out: {error}");
                log::sparingly(&mut self.refused, Level::Warning, &text);
                None
            }
        }
    }
}

/// The pause after a search that took so much CPU time.
fn pause_after(cpu: Duration, max_cpu_percent: u32) -> Duration {
    let pause = cpu.saturating_mul(100 * SEARCH_SHARE) / max_cpu_percent.max(1);
    pause.clamp(SHORTEST_PAUSE, LONGEST_PAUSE)
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

    /// Check that searches take a quarter of the CPU limit: after 20 ms with a limit of 1 % there is none for 8 s.
    #[test]
    fn pauses() {
        let ms = Duration::from_millis;
        assert_eq!(pause_after(ms(20), 1), ms(8000));
        assert_eq!(pause_after(ms(20), 10), SHORTEST_PAUSE);
        assert_eq!(pause_after(ms(1), 1), SHORTEST_PAUSE);
        assert_eq!(pause_after(ms(900), 1), LONGEST_PAUSE);
        assert_eq!(pause_after(Duration::MAX, 0), LONGEST_PAUSE);
    }

    /// Check that a process is found once, that the next one is found, and that one that has ended is no target.
    #[test]
    fn comes_and_goes() {
        let mut first = cat();
        let name = Glob::new("cat").unwrap().compile_matcher();
        let mut finder = Finder::new(
            vec![Selector::Name(name)],
            ProcessRoom::new(1024, u64::MAX),
            1,
        );
        let has = |found: &[Arc<Target>], child: &Child| {
            found
                .iter()
                .any(|target| target.pid().0 == child.id() as i32)
        };
        // A child has its program's name when it runs it.
        assert!((0..1000).any(|_| {
            finder.looked.clear();
            has(&finder.search().new, &first)
        }));
        assert!(!has(&finder.search().new, &first) && has(finder.targets(), &first));
        let mut second = cat();
        assert!((0..1000).any(|_| {
            finder.looked.remove(&(second.id() as i32));
            has(&finder.search().new, &second)
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
        let mut finder = Finder::new(
            vec![Selector::Name(name)],
            ProcessRoom::new(1024, u64::MAX),
            1,
        );
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
        let found = finder.search().new;
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
