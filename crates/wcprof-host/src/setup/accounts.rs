//! `/proc/stat`, `/proc/pressure`, control groups and the CPU time of other processes to a reading of what the
//! kernel has accounted. Two readings by one reader give what happened between them.

use std::collections::hash_map::DefaultHasher;
use std::collections::{BTreeMap, BTreeSet, HashMap, HashSet};
use std::hash::{Hash, Hasher};
use std::io;
use std::path::Path;

use wcprof_types::accounts::{
    Accounts, AccountsDetail, CpuTimes, DeadlineBudget, OtherProcess, OtherProcesses, ThreadSet,
    limits,
};
use wcprof_types::cgroup::{Cgroup, Pressure};
use wcprof_types::{Pid, Tid, cpu_list};

use super::cgroup::{Groups, MAX_TEXT, pressure};
use super::tree::{Absent, Tree};
use crate::clock::thread_cpu_ns;
use crate::procfs::{list_processes, list_threads, read_file, read_text};
use crate::scheduling::{allowed_cpus, deadline_budget};

/// Length of a clock tick of `/proc` on x86-64 (`USER_HZ`), ns.
const TICK_NS: u64 = 10_000_000;
/// `/proc/stat`, whose lines of CPUs come first.
const MAX_STAT: usize = 256 << 10;
/// Processes that are read between two looks at the CPU time.
const PROCESSES_A_LOOK: usize = 16;

/// Reads what the kernel has accounted, and remembers what the next reading is compared with.
#[derive(Debug, Default)]
pub struct AccountsReader {
    /// CPU time of other processes, ticks, by pid and start.
    others: Option<HashMap<(i32, u64), u64>>,
    last: LastLimits,
}

/// What limited the recorded threads when that was last read.
#[derive(Debug, Default)]
struct LastLimits {
    /// Groups that were read, without their counts.
    groups: Vec<Cgroup>,
    /// By thread: a hash of its groups, and one of its CPUs and budget.
    threads: HashMap<(Pid, Tid), (u64, u64)>,
    /// The first of these hashes of all threads.
    places: HashSet<u64>,
}

/// What limits a thread.
struct ThreadLimits {
    /// The text of its `cgroup` file; empty where that cannot be read.
    groups: String,
    cpus: BTreeSet<u32>,
    deadline: Option<DeadlineBudget>,
}

impl AccountsReader {
    /// The times of all CPUs together: one file.
    pub fn brief(&self) -> Accounts {
        let text = read_file("/proc/stat").unwrap_or_default();
        Accounts {
            cpu: text.lines().next().and_then(cpu_times),
            detail: None,
        }
    }

    /// Everything, of these recorded processes. Other processes are read as long as the reading has taken less than
    /// `max_cpu_ns` of CPU time.
    pub fn full(&mut self, targets: &[Pid], max_cpu_ns: u64) -> Accounts {
        let until = thread_cpu_ns().saturating_add(max_cpu_ns);
        let mut accounts = self.without_others(targets);
        if let Some(detail) = &mut accounts.detail {
            detail.others = self.read_others(targets, until);
        }
        accounts
    }

    /// Everything but other processes.
    pub fn without_others(&mut self, targets: &[Pid]) -> Accounts {
        let Ok(tree) = Tree::new(Path::new("/")) else {
            return self.brief();
        };
        let stat = tree.long_text("/proc/stat", MAX_STAT, Absent::Noted);
        let stat = stat.unwrap_or_default();
        let mut detail = AccountsDetail {
            by_cpu: by_cpu(&stat),
            pressure: host_pressure(&tree),
            delay_accounting: delay_accounting(&tree),
            ..AccountsDetail::default()
        };
        let mut groups = Groups::new(&tree);
        let mut last = LastLimits::default();
        read_threads(&tree, targets, (&mut groups, &mut last), &mut detail);
        // Those that no thread is in any more, too.
        for group in &self.last.groups {
            groups.read(&group.hierarchy, &group.path);
        }
        (detail.groups, detail.n_more_groups) = (groups.found, groups.n_more);
        last.groups = detail.groups.iter().map(Cgroup::without_counts).collect();
        self.last = last;
        detail.unread = tree.into_unread();
        Accounts {
            cpu: stat.lines().next().and_then(cpu_times),
            detail: Some(detail),
        }
    }

    /// Whether a recorded thread has other groups, CPUs or another budget than when everything was last read, or a group
    /// other limits. What was otherwise and is as it was then again is not seen.
    pub fn have_limits_changed(&mut self, targets: &[Pid]) -> bool {
        let Ok(tree) = Tree::new(Path::new("/")) else {
            return false;
        };
        let mut groups = Groups::new(&tree);
        let changed = |group: &Cgroup| {
            let now = groups.limits(&group.hierarchy, &group.path);
            now.as_ref() != Some(group)
        };
        if self.last.groups.iter().any(changed) {
            return true;
        }
        let threads = targets.iter().flat_map(|&pid| {
            let tids = list_threads(pid).unwrap_or_default();
            tids.into_iter().map(move |tid| (pid, tid))
        });
        for thread in threads.take(limits::THREADS) {
            let Some(now) = ThreadLimits::read(&tree, thread) else {
                continue;
            };
            let is_new = match self.last.threads.get(&thread) {
                Some(before) => *before != now.hashes(),
                // A thread begins in the groups of the one that made it.
                None => !self.last.places.contains(&now.hashes().0),
            };
            if is_new {
                return true;
            }
            self.last.add(thread, &now);
        }
        false
    }

    fn read_others(&mut self, targets: &[Pid], until: u64) -> OtherProcesses {
        let targets: BTreeSet<i32> = targets.iter().map(|pid| pid.0).collect();
        let mut pids = list_processes();
        pids.retain(|pid| !targets.contains(pid));
        let mut read = HashMap::with_capacity(pids.len());
        let mut by_name: BTreeMap<String, OtherProcess> = BTreeMap::new();
        let mut others = OtherProcesses {
            // The first process of a pid namespace is always there.
            are_hidden: !Path::new("/proc/1").exists(),
            ..OtherProcesses::default()
        };
        for (at, pid) in pids.iter().enumerate() {
            if at % PROCESSES_A_LOOK == 0 && thread_cpu_ns() >= until {
                others.n_unread += (pids.len() - at) as u64;
                break;
            }
            let used = match read_text(Pid(*pid), "stat") {
                Ok(text) => used_cpu(&text),
                // It has ended since it was listed.
                Err(error) if error.kind() == io::ErrorKind::NotFound => continue,
                Err(_) => None,
            };
            let Some((name, start, ticks)) = used else {
                others.n_unread += 1;
                continue;
            };
            others.n_read += 1;
            if let Some(before) = &self.others {
                // What began since then has used all of it since then.
                let earlier = before.get(&(*pid, start)).copied().unwrap_or(0);
                let cpu_ns = ticks.saturating_sub(earlier).saturating_mul(TICK_NS);
                if cpu_ns > 0 {
                    let one = by_name.entry(name).or_default();
                    one.n += 1;
                    one.cpu_ns = one.cpu_ns.saturating_add(cpu_ns);
                }
            }
            read.insert((*pid, start), ticks);
        }
        self.others = Some(read);
        let named = by_name.into_iter();
        others.by_name = named
            .map(|(name, one)| OtherProcess { name, ..one })
            .collect();
        others
            .by_name
            .sort_by_key(|one| std::cmp::Reverse(one.cpu_ns));
        others.by_name.truncate(limits::OTHERS);
        others
    }
}

impl LastLimits {
    fn add(&mut self, thread: (Pid, Tid), limits: &ThreadLimits) {
        if self.threads.len() < limits::THREADS {
            let hashes = limits.hashes();
            self.places.insert(hashes.0);
            self.threads.insert(thread, hashes);
        }
    }
}

impl ThreadLimits {
    /// `None` of a thread that has exited.
    fn read(tree: &Tree, (pid, tid): (Pid, Tid)) -> Option<Self> {
        let cpus = allowed_cpus(tid)?;
        let path = cgroup_path(pid, tid);
        let groups = tree.long_text(&path, MAX_TEXT, Absent::Fine);
        Some(Self {
            groups: groups.unwrap_or_default(),
            cpus,
            deadline: deadline_budget(tid),
        })
    }

    fn hashes(&self) -> (u64, u64) {
        (hash(&self.groups), hash(&(&self.cpus, &self.deadline)))
    }
}

fn cgroup_path(pid: Pid, tid: Tid) -> String {
    format!("/proc/{pid}/task/{tid}/cgroup")
}

fn hash(value: &impl Hash) -> u64 {
    let mut hasher = DefaultHasher::new();
    value.hash(&mut hasher);
    hasher.finish()
}

/// A line of `/proc/stat` (`cpu0 1 2 3 4 ...`) without its name's check.
fn cpu_times(line: &str) -> Option<CpuTimes> {
    let fields = line.split_ascii_whitespace().skip(1);
    let ticks: Vec<u64> = fields.map_while(|field| field.parse().ok()).collect();
    let ns = |field: usize| ticks.get(field).map_or(0, |n| n.saturating_mul(TICK_NS));
    (line.starts_with("cpu") && ticks.len() >= 4).then(|| CpuTimes {
        user: ns(0).saturating_add(ns(1)),
        system: ns(2),
        idle: ns(3).saturating_add(ns(4)),
        irq: ns(5).saturating_add(ns(6)),
        steal: ns(7),
    })
}

fn by_cpu(stat: &str) -> BTreeMap<u32, CpuTimes> {
    let lines = stat.lines().filter_map(|line| {
        let number = line.strip_prefix("cpu")?.split(' ').next()?;
        Some((number.parse().ok()?, cpu_times(line)?))
    });
    lines.take(limits::CPUS).collect()
}

fn host_pressure(tree: &Tree) -> BTreeMap<String, Pressure> {
    let of = |resource: &str| {
        let path = format!("/proc/pressure/{resource}");
        // Where it is off, the file is not there, or reading it fails.
        let text = tree.long_text(&path, 4096, Absent::Fine)?;
        Some((resource.to_owned(), pressure(&text)?))
    };
    ["cpu", "io", "memory"].into_iter().filter_map(of).collect()
}

pub(super) fn delay_accounting(tree: &Tree) -> Option<bool> {
    let value: u32 = tree.number("/proc/sys/kernel/task_delayacct")?;
    Some(value != 0)
}

/// Whether stall times can be read.
pub(super) fn has_pressure(tree: &Tree) -> bool {
    !host_pressure(tree).is_empty()
}

/// The threads of processes, together where all that is read of them is equal.
fn read_threads(
    tree: &Tree,
    targets: &[Pid],
    (groups, last): (&mut Groups<'_>, &mut LastLimits),
    detail: &mut AccountsDetail,
) {
    let mut sets: HashMap<_, usize> = HashMap::new();
    let mut n_read = 0;
    for &pid in targets {
        for tid in list_threads(pid).unwrap_or_default() {
            if n_read >= limits::THREADS || detail.threads.len() >= limits::SETS {
                detail.n_more_threads += 1;
                continue;
            }
            // It has exited meanwhile.
            let Some(limits) = ThreadLimits::read(tree, (pid, tid)) else {
                continue;
            };
            n_read += 1;
            last.add((pid, tid), &limits);
            let ThreadLimits {
                groups: text,
                cpus,
                deadline,
            } = limits;
            let places = match text.as_str() {
                "" => Vec::new(),
                _ => groups.of_text(&cgroup_path(pid, tid), text),
            };
            let is_delay_accounted = detail.delay_accounting == Some(true);
            let block_wait_ns = is_delay_accounted
                .then(|| read_text(pid, &format!("task/{tid}/stat")).ok())
                .flatten()
                .and_then(|stat| Some(stat_field(&stat, 42)?.saturating_mul(TICK_NS)));
            let key = (pid, places.clone(), cpus.clone(), deadline);
            let at = *sets.entry(key).or_insert_with(|| {
                detail.threads.push(ThreadSet {
                    pid,
                    groups: places,
                    cpus: cpu_list(&cpus),
                    deadline,
                    ..ThreadSet::default()
                });
                detail.threads.len() - 1
            });
            let set = &mut detail.threads[at];
            set.tids.push(tid);
            if let Some(ns) = block_wait_ns {
                *set.block_wait_ns.get_or_insert_default() += ns;
            }
        }
    }
}

/// A field of `stat`, numbered from 1 as in proc(5).
pub(super) fn stat_field(stat: &str, number: usize) -> Option<u64> {
    let (_, rest) = stat.rsplit_once(") ")?;
    let field = rest.split_ascii_whitespace().nth(number - 3)?;
    field.parse().ok()
}

/// Name, start and CPU time of a process's `stat`, in ticks.
fn used_cpu(stat: &str) -> Option<(String, u64, u64)> {
    let name = stat.get(stat.find('(')? + 1..stat.rfind(')')?)?;
    // `kworker/0:1-events`: what they work on changes all the time.
    let name = match name.split_once('/') {
        Some(("kworker", _)) => "kworker",
        _ => name,
    };
    let cpu = stat_field(stat, 14)?.saturating_add(stat_field(stat, 15)?);
    Some((name.to_owned(), stat_field(stat, 22)?, cpu))
}

#[cfg(test)]
mod tests {
    use wcprof_types::Tid;

    use super::*;

    /// Check lines of `/proc/stat`: all CPUs, one, one of an old kernel without steal, and others.
    #[test]
    fn cpus() {
        let text = "cpu  10 2 30 400 5 6 7 8 9 0\ncpu0 1 0 3 40 0 0 0 1 0 0\ncpu2 1 0 3 40\ncpux 1\nintr 1 2 3 4\n";
        let all = cpu_times(text.lines().next().unwrap()).unwrap();
        let ms = |n: u64| n * TICK_NS;
        let expected = CpuTimes {
            user: ms(12),
            system: ms(30),
            idle: ms(405),
            irq: ms(13),
            steal: ms(8),
        };
        assert_eq!(all, expected);
        let one = by_cpu(text);
        assert_eq!(one.keys().copied().collect::<Vec<_>>(), [0, 2]);
        assert_eq!((one[&0].steal, one[&2].steal), (ms(1), 0));
        assert_eq!(cpu_times("intr 1 2 3 4 5"), None);
        assert_eq!(cpu_times("cpu 1 2 x 4 5"), None);
    }

    /// Check the CPU time of a process with a hostile name, of a worker of the kernel, and of cut lines.
    #[test]
    fn used() {
        let line = |name: &str| {
            format!(
                "7 ({name}) S 1 7 7 0 -1 4194304 9 0 0 0 11 22 0 0 20 0 1 0 4711 8 9 10 0 0 0 0"
            )
        };
        let of = |name: &str| used_cpu(&line(name)).unwrap();
        assert_eq!(of("a) R (b"), ("a) R (b".to_owned(), 4711, 33));
        assert_eq!(of("kworker/u8:0-writeback").0, "kworker");
        let line = line("x");
        for n in 0..line.len() - 25 {
            assert_eq!(used_cpu(&line[..n]), None);
        }
    }

    /// Check that a process which uses CPU time between two readings is among the others, unless it is recorded, and
    /// that nothing is read without CPU time to read it in.
    #[test]
    fn others() {
        let own = Pid(std::process::id() as i32);
        let mut reader = AccountsReader::default();
        let first = reader.full(&[], u64::MAX).detail.unwrap().others;
        assert!(first.n_read > 0 && first.by_name.is_empty());
        let until = thread_cpu_ns() + 50_000_000;
        while thread_cpu_ns() < until {}
        let name = read_text(own, "comm").unwrap().trim().to_owned();
        let second = reader.full(&[], u64::MAX).detail.unwrap().others;
        let one = second.by_name.iter().find(|one| one.name == name);
        assert!(one.unwrap().cpu_ns >= 40_000_000, "{second:?}");
        let detail = reader.full(&[own], 0).detail.unwrap();
        assert_eq!((detail.others.n_read, detail.others.by_name.len()), (0, 0));
        assert!(detail.others.n_unread > 0);
        let tid = Tid(nix::unistd::gettid().as_raw());
        assert!(detail.threads.iter().any(|set| set.tids.contains(&tid)));
    }
}
