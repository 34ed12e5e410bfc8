//! Readings of the kernel's accounts to what happened between them: what CPUs did over the time of a profile, how
//! pressure, other processes and the counts of control groups changed from the first whole reading of a recording to the
//! last, and what limits of threads and groups were other ones at any of them.

use std::cmp::Reverse;
use std::collections::{BTreeMap, BTreeSet, HashMap};

use wcprof_trace::model::{AccountsReading, Tables};
use wcprof_types::accounts::{
    Accounts, AccountsDetail, CpuTimes, OtherProcess, OtherProcesses, ThreadSet, limits,
};
use wcprof_types::cgroup::{BlockIo, Cgroup, Pressure};
use wcprof_types::{Pid, Tid, parse_cpus};

use crate::slices::{Slices, TimeAxis};

/// Whole readings of a recording between the first and the last that are looked at.
const MAX_BETWEEN: usize = 1024;
/// Groups of all readings together.
const MAX_GROUPS: usize = 4 * limits::GROUPS;
/// Other limits that are kept of a group or a thread.
const MAX_EARLIER: usize = 8;
/// Sets of threads that had other limits.
const MAX_EARLIER_SETS: usize = 4 * limits::SETS;
/// The time that the latest change is of at least, where the readings are of as much, ns.
const LATEST_NS: u64 = 2_500_000_000;

/// What the kernel accounted on the host of a recording while it was made.
#[derive(Clone, PartialEq, Debug, Default)]
pub struct HostAccounts {
    /// Times of all CPUs together, in the time of the profile.
    pub cpu: CpuTimes,
    /// The idle part of that, by slice of the profile, ns.
    idle: Slices,
    /// All of it, by slice of the profile, ns.
    all: Slices,
    /// From the first whole reading to the last; `None` where there are no two.
    pub change: Option<AccountsChange>,
}

/// What changed between two whole readings of a recording, whatever part of it the profile is about.
#[derive(Clone, PartialEq, Debug, Default)]
pub struct AccountsChange {
    /// The time between the readings, ns.
    pub length_ns: u64,
    /// Times of each CPU.
    pub by_cpu: BTreeMap<u32, CpuTimes>,
    /// Stall times of the host by resource (`cpu`, `io`, `memory`).
    pub pressure: BTreeMap<String, Pressure>,
    /// Delay accounting was on; `None` where the kernel has none.
    pub delay_accounting: Option<bool>,
    /// Control groups of the recorded threads, and the ones above.
    pub groups: Vec<GroupChange>,
    /// Groups that were not read.
    pub n_more_groups: u64,
    /// The recorded threads at the last reading that had them; `groups` are places in the list above.
    pub threads: Vec<ThreadSet>,
    /// Threads that were not read.
    pub n_more_threads: u64,
    /// Threads whose control groups were other ones at an earlier reading than at the last one that had them.
    pub n_moved_threads: u64,
    /// Processes that were not recorded.
    pub others: OtherProcesses,
    /// How long the threads of each process waited for block devices, ns, where delay accounting was on. Threads that
    /// exited are not in it.
    pub block_wait_ns: BTreeMap<Pid, u64>,
    /// Where what was read of each thread is.
    places: ThreadPlaces,
}

/// Where what was read of each thread is.
#[derive(Clone, PartialEq, Debug, Default)]
struct ThreadPlaces {
    /// By thread: its place in [`AccountsChange::threads`].
    set_of: HashMap<(Pid, Tid), usize>,
    /// What was read of sets of threads, some of which had other groups, CPUs or budgets at the next reading.
    earlier: Vec<ThreadSet>,
    /// By such a thread: its places in `earlier`, the latest first.
    earlier_of: HashMap<(Pid, Tid), Vec<usize>>,
}

/// A control group during a recording.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct GroupChange {
    /// Its limits, as they were last read, and what was added to its counts.
    pub group: Cgroup,
    /// Its quotas and the periods of these, us, in order of time: each that was another one than at the reading before;
    /// `None` without one.
    pub quotas: Vec<Option<(u64, u64)>>,
    /// Whether the counts are of the whole time.
    pub fate: GroupFate,
}

impl GroupChange {
    /// It had a quota at some time.
    pub fn is_limited(&self) -> bool {
        self.quotas.iter().any(Option::is_some)
    }

    /// It was there all the time, with the same quota.
    pub fn is_steady(&self) -> bool {
        let stayed = [GroupFate::Same, GroupFate::LimitChanged].contains(&self.fate);
        stayed && self.quotas.len() <= 1
    }
}

/// What became of a control group during a recording.
#[derive(Copy, Clone, PartialEq, Eq, Debug, Default)]
pub enum GroupFate {
    /// It was there with the same limits.
    #[default]
    Same,
    /// It was there, and a limit changed.
    LimitChanged,
    /// No thread was in it at the beginning: what it counted before that is not told apart.
    Appeared,
    /// It was not there at the end: what it counted is not known.
    Vanished,
    /// Another group of the same path took its place: what it counted is not known.
    Replaced,
}

impl GroupFate {
    /// As a remark; `None` where there is nothing to say.
    pub fn remark(self) -> Option<&'static str> {
        match self {
            Self::Same => None,
            Self::LimitChanged => Some("a limit changed during the recording"),
            Self::Appeared => {
                Some("its threads entered it during the recording: counts are not known")
            }
            Self::Vanished => Some(
                "its threads left it, or it was removed, during the recording: counts are not known",
            ),
            Self::Replaced => {
                Some("it was removed and made anew during the recording: counts are not known")
            }
        }
    }
}

impl HostAccounts {
    /// The idle part of the CPUs' time, 0 to 1, while something had these weights over the profile's time; `None` where
    /// no reading covers it.
    pub fn idle_while<'a>(&self, weights: impl Iterator<Item = &'a Slices>) -> Option<f64> {
        let idle: BTreeMap<usize, f32> = self.idle.iter().collect();
        let all: BTreeMap<usize, f32> = self.all.iter().collect();
        let (mut sum, mut idle_sum) = (0.0, 0.0);
        for (slice, weight) in weights.flat_map(Slices::iter) {
            let whole = all.get(&slice).copied().unwrap_or(0.0);
            if whole > 0.0 {
                let part = idle.get(&slice).copied().unwrap_or(0.0) / whole;
                sum += f64::from(weight);
                idle_sum += f64::from(weight) * f64::from(part);
            }
        }
        (sum > 0.0).then(|| idle_sum / sum)
    }

    /// Adds what CPUs did between two readings.
    fn add(&mut self, axis: &TimeAxis, (from, to): (u64, u64), done: &CpuTimes) {
        let (start, end) = (axis.start.0, axis.end.0);
        let inside = (from.clamp(start, end), to.clamp(start, end));
        if inside.0 >= inside.1 {
            return;
        }
        let part = (inside.1 - inside.0) as f64 / (to - from) as f64;
        let scale = |ns: u64| (ns as f64 * part) as u64;
        self.cpu = self.cpu.plus(&CpuTimes {
            user: scale(done.user),
            system: scale(done.system),
            idle: scale(done.idle),
            irq: scale(done.irq),
            steal: scale(done.steal),
        });
        let inside = (inside.0 - start, inside.1 - start);
        self.idle.spread(axis, inside, done.idle as f64 * part);
        self.all.spread(axis, inside, done.total() as f64 * part);
    }
}

impl AccountsChange {
    /// What happened from the first of whole readings to the last; each is with its time, and they are in order of it. `None` of
    /// fewer than two.
    pub fn between(mut readings: Vec<(u64, AccountsDetail)>) -> Option<Self> {
        let n_more = readings.len().saturating_sub(MAX_BETWEEN + 2);
        if n_more > 0 {
            readings.drain(1..1 + n_more);
        }
        let others = others(&readings);
        let [(began, first), .., (ended, last)] = readings.as_slice() else {
            return None;
        };
        let since =
            |(cpu, times): (&u32, &CpuTimes)| Some((*cpu, times.since(first.by_cpu.get(cpu)?)));
        let mut change = AccountsChange {
            length_ns: ended.saturating_sub(*began),
            by_cpu: last.by_cpu.iter().filter_map(since).collect(),
            pressure: pressure(&first.pressure, &last.pressure),
            delay_accounting: last.delay_accounting,
            n_more_groups: most(&readings, |detail| detail.n_more_groups),
            n_more_threads: most(&readings, |detail| detail.n_more_threads),
            others,
            block_wait_ns: block_waits(&first.threads, &last.threads),
            ..AccountsChange::default()
        };
        let places = add_groups(&mut change, &readings);
        // The latest first: what a thread had then is compared with what it had before.
        for (_, detail) in readings.into_iter().rev() {
            let places: Vec<Option<u32>> = (detail.groups.iter())
                .map(|group| places.get(&key(group)).copied())
                .collect();
            for set in detail.threads {
                let groups = set.groups.iter();
                let groups = groups.filter_map(|at| *places.get(*at as usize)?).collect();
                let (known, gone): (Vec<Tid>, Vec<Tid>) = (set.tids.iter().copied())
                    .partition(|tid| change.places.set_of.contains_key(&(set.pid, *tid)));
                let set = ThreadSet { groups, ..set };
                add_earlier(&mut change, &set, known);
                if !gone.is_empty() {
                    add_set(&mut change, ThreadSet { tids: gone, ..set });
                }
            }
        }
        Some(change)
    }

    /// What was read of a thread.
    pub fn thread(&self, pid: Pid, tid: Tid) -> Option<&ThreadSet> {
        self.threads.get(*self.places.set_of.get(&(pid, tid))?)
    }

    /// What was read of a thread before its groups, CPUs or budget became other ones, in order of time.
    pub fn earlier(&self, pid: Pid, tid: Tid) -> impl Iterator<Item = &ThreadSet> {
        let places = self.places.earlier_of.get(&(pid, tid));
        let places = places.into_iter().flatten().rev();
        places.filter_map(|at| self.places.earlier.get(*at))
    }

    /// What changed of the groups and limits of the recorded threads, as texts.
    pub fn limit_changes(&self) -> Vec<String> {
        let of_group =
            |one: &GroupChange| Some(format!("{}: {}", one.group.path, one.fate.remark()?));
        let mut texts: Vec<String> = self.groups.iter().filter_map(of_group).collect();
        if !self.places.earlier_of.is_empty() {
            let n = self.places.earlier_of.len();
            texts.push(format!(
                "other groups, CPUs or budgets in between or at the end: {n} of the threads"
            ));
        }
        texts
    }

    /// Times of some CPUs together.
    pub fn of_cpus(&self, cpus: &BTreeSet<u32>) -> CpuTimes {
        let of = self.by_cpu.iter().filter(|(cpu, _)| cpus.contains(cpu));
        of.fold(CpuTimes::default(), |sum, (_, times)| sum.plus(times))
    }

    /// CPUs that were online.
    pub fn online(&self) -> BTreeSet<u32> {
        self.by_cpu.keys().copied().collect()
    }

    /// CPUs that a thread may use: its affinity within its cpuset; all where it was not read.
    pub fn allowed(&self, set: Option<&ThreadSet>) -> BTreeSet<u32> {
        let online = self.online();
        let allowed = set.map(|set| parse_cpus(&set.cpus)).unwrap_or_default();
        let both: BTreeSet<u32> = allowed.intersection(&online).copied().collect();
        if both.is_empty() { online } else { both }
    }
}

/// What changed on the host of each recording of a trace that has two whole readings.
pub fn accounts_changes(tables: &Tables) -> Vec<AccountsChange> {
    let hosts = accounts(tables, &TimeAxis::default());
    hosts.into_iter().filter_map(|host| host.change).collect()
}

/// What happened in the last whole readings of one host: the last two, and those before it of the last seconds; `None` of
/// fewer than two.
pub fn latest_change<'r>(
    readings: impl DoubleEndedIterator<Item = &'r AccountsReading>,
) -> Option<AccountsChange> {
    let whole = readings.rev().filter_map(|reading| {
        let accounts: Accounts = serde_json::from_str(&reading.json).ok()?;
        Some((reading.time.0, cut(accounts.detail?)))
    });
    let mut last: Vec<(u64, AccountsDetail)> = Vec::new();
    for reading in whole {
        let length = last.first().map(|(end, _)| end.saturating_sub(reading.0));
        last.push(reading);
        // A change of limits is read at once, however long ago the last reading was.
        if length.is_some_and(|length| length >= LATEST_NS) || last.len() > MAX_BETWEEN {
            break;
        }
    }
    last.reverse();
    AccountsChange::between(last)
}

/// What the kernel accounted on the host of each recording of a trace: of one that was not merged the only one.
pub(crate) fn accounts(tables: &Tables, axis: &TimeAxis) -> Vec<HostAccounts> {
    let n_sources = tables.origins.sources.len().max(1);
    let mut readings: Vec<Vec<(&AccountsReading, Accounts)>> = vec![Vec::new(); n_sources];
    for reading in &tables.origins.accounts {
        // One that is no such document is left out.
        if let Some(of_source) = readings.get_mut(reading.source as usize)
            && let Ok(accounts) = serde_json::from_str(&reading.json)
        {
            of_source.push((reading, accounts));
        }
    }
    readings
        .into_iter()
        .map(|all| of_source(all, axis))
        .collect()
}

fn of_source(readings: Vec<(&AccountsReading, Accounts)>, axis: &TimeAxis) -> HostAccounts {
    let mut host = HostAccounts::default();
    let mut last: Option<(u64, CpuTimes)> = None;
    let mut whole: Vec<(u64, AccountsDetail)> = Vec::new();
    for (reading, accounts) in readings {
        let time = reading.time.0;
        if let Some(cpu) = accounts.cpu {
            if let Some((before, earlier)) = last.filter(|(before, _)| *before < time) {
                host.add(axis, (before, time), &cpu.since(&earlier));
            }
            last = Some((time, cpu));
        }
        whole.extend(accounts.detail.map(|detail| (time, cut(detail))));
    }
    host.change = AccountsChange::between(whole);
    host
}

/// As much as a reading may hold: a trace may come from elsewhere.
fn cut(mut detail: AccountsDetail) -> AccountsDetail {
    detail.groups.truncate(limits::GROUPS);
    detail.threads.truncate(limits::SETS);
    let mut n_threads = 0;
    for set in &mut detail.threads {
        set.tids.truncate(limits::THREADS - n_threads);
        set.groups.truncate(limits::GROUPS);
        n_threads += set.tids.len();
    }
    detail.others.by_name.truncate(limits::OTHERS);
    while detail.by_cpu.len() > limits::CPUS {
        detail.by_cpu.pop_last();
    }
    detail
}

fn add_set(change: &mut AccountsChange, set: ThreadSet) {
    let at = change.threads.len();
    let keys = set.tids.iter().map(|tid| ((set.pid, *tid), at));
    change.places.set_of.extend(keys);
    change.threads.push(set);
}

/// Keeps what was read of those of some threads that had other groups, CPUs or budgets at the next reading.
fn add_earlier(change: &mut AccountsChange, set: &ThreadSet, tids: Vec<Tid>) {
    let at = change.places.earlier.len();
    let mut is_kept = false;
    for tid in tids {
        let thread = (set.pid, tid);
        let Some(last) = change.thread(set.pid, tid) else {
            continue;
        };
        let next = change.earlier(set.pid, tid).next().unwrap_or(last);
        let has_moved = last.groups != set.groups;
        let is_other = |other: &ThreadSet| {
            other.groups != set.groups || other.cpus != set.cpus || other.deadline != set.deadline
        };
        if !is_other(next) {
            continue;
        }
        let had_moved = change
            .earlier(set.pid, tid)
            .any(|one| one.groups != last.groups);
        change.n_moved_threads += u64::from(has_moved && !had_moved);
        let earlier = change.places.earlier_of.entry(thread).or_default();
        if earlier.len() < MAX_EARLIER && at < MAX_EARLIER_SETS {
            earlier.push(at);
            is_kept = true;
        }
    }
    if is_kept {
        change.places.earlier.push(ThreadSet {
            tids: Vec::new(),
            ..set.clone()
        });
    }
}

/// Stall times of the resources that both readings have.
fn pressure(
    first: &BTreeMap<String, Pressure>,
    last: &BTreeMap<String, Pressure>,
) -> BTreeMap<String, Pressure> {
    let since =
        |(name, last): (&String, &Pressure)| Some((name.clone(), last.since(first.get(name)?)));
    last.iter().filter_map(since).collect()
}

fn block_waits(first: &[ThreadSet], last: &[ThreadSet]) -> BTreeMap<Pid, u64> {
    let sum = |sets: &[ThreadSet]| {
        let mut sums: BTreeMap<Pid, u64> = BTreeMap::new();
        for set in sets {
            if let Some(ns) = set.block_wait_ns {
                let sum = sums.entry(set.pid).or_default();
                *sum = sum.saturating_add(ns);
            }
        }
        sums
    };
    let before = sum(first);
    let since = |(pid, now): (Pid, u64)| Some((pid, now.saturating_sub(*before.get(&pid)?)));
    sum(last).into_iter().filter_map(since).collect()
}

/// The largest number of any reading.
fn most(readings: &[(u64, AccountsDetail)], of: impl Fn(&AccountsDetail) -> u64) -> u64 {
    let all = readings.iter().map(|(_, detail)| of(detail));
    all.max().unwrap_or(0)
}

/// CPU time of other processes in all readings of them after the first; the largest numbers of processes.
fn others(readings: &[(u64, AccountsDetail)]) -> OtherProcesses {
    let mut sums: BTreeMap<&str, OtherProcess> = BTreeMap::new();
    let mut all = OtherProcesses {
        n_read: most(readings, |detail| detail.others.n_read),
        n_unread: most(readings, |detail| detail.others.n_unread),
        are_hidden: readings.iter().any(|(_, detail)| detail.others.are_hidden),
        ..OtherProcesses::default()
    };
    let others = readings.iter().map(|(_, detail)| &detail.others);
    let others = others.filter(|others| others.is_read()).skip(1);
    for one in others.flat_map(|others| &others.by_name) {
        let sum = sums.entry(&one.name).or_default();
        sum.cpu_ns = sum.cpu_ns.saturating_add(one.cpu_ns);
        sum.n = sum.n.max(one.n);
    }
    let named = sums.into_iter().map(|(name, sum)| OtherProcess {
        name: name.to_owned(),
        ..sum
    });
    all.by_name = named.collect();
    all.by_name.sort_by_key(|one| Reverse(one.cpu_ns));
    all
}

fn key(group: &Cgroup) -> (String, String) {
    (group.hierarchy.clone(), group.path.clone())
}

/// Adds the groups of all readings, those of the last one first. Gives their places.
fn add_groups(
    change: &mut AccountsChange,
    readings: &[(u64, AccountsDetail)],
) -> BTreeMap<(String, String), u32> {
    let mut places: BTreeMap<(String, String), u32> = BTreeMap::new();
    // By place: what each reading knew, by its number.
    let mut known: Vec<Vec<(usize, &Cgroup)>> = Vec::new();
    for (number, (_, detail)) in readings.iter().enumerate().rev() {
        for group in &detail.groups {
            let at = known.len();
            let at = *places.entry(key(group)).or_insert(at as u32) as usize;
            match known.get_mut(at) {
                Some(known) => known.push((number, group)),
                None if at < MAX_GROUPS => known.push(vec![(number, group)]),
                None => {}
            }
        }
    }
    places.retain(|_, at| (*at as usize) < known.len());
    let end = readings.len() - 1;
    let groups = known.into_iter().map(|mut known| {
        known.reverse();
        group_change(&known, end)
    });
    change.groups = groups.collect();
    places
}

/// What was added to the counts of a group from the first reading to the last, number `end`, and what its limits were. It is `known`
/// at some of the readings, in order of time.
fn group_change(known: &[(usize, &Cgroup)], end: usize) -> GroupChange {
    let [(began, first), ..] = *known else {
        return GroupChange::default();
    };
    let (ended, last) = *known.last().unwrap_or(&(began, first));
    let limits = |group: &Cgroup| {
        (
            (group.quota_us, group.period_us),
            (group.memory_high, group.memory_max),
            group.cpus.clone(),
            group.io_limits.clone(),
        )
    };
    let all = || known.iter().map(|(_, group)| *group);
    let mut quotas: Vec<Option<(u64, u64)>> = all().map(quota).collect();
    quotas.dedup();
    quotas.truncate(MAX_EARLIER);
    let fate = if ended != end {
        GroupFate::Vanished
    } else if all().any(|group| group.inode != last.inode) {
        GroupFate::Replaced
    } else if began != 0 {
        GroupFate::Appeared
    } else if all().any(|group| limits(group) != limits(last)) {
        GroupFate::LimitChanged
    } else {
        GroupFate::Same
    };
    let group = match fate {
        GroupFate::Same | GroupFate::LimitChanged => counted(first, last),
        _ => last.without_counts(),
    };
    GroupChange {
        group,
        quotas,
        fate,
    }
}

/// A group with what was added to its counts.
fn counted(first: &Cgroup, last: &Cgroup) -> Cgroup {
    let since = |of: fn(&Cgroup) -> Option<u64>| Some(of(last)?.saturating_sub(of(first)?));
    let io = last.io.iter().filter_map(|(device, last)| {
        let first = first.io.get(device)?;
        let since = |of: fn(&BlockIo) -> Option<u64>| Some(of(last)?.saturating_sub(of(first)?));
        let done = BlockIo {
            read_bytes: since(|io| io.read_bytes),
            write_bytes: since(|io| io.write_bytes),
            reads: since(|io| io.reads),
            writes: since(|io| io.writes),
        };
        Some((device.clone(), done))
    });
    Cgroup {
        n_periods: since(|group| group.n_periods),
        n_throttled: since(|group| group.n_throttled),
        throttled_us: since(|group| group.throttled_us),
        n_memory_high: since(|group| group.n_memory_high),
        n_memory_max: since(|group| group.n_memory_max),
        io: io.collect(),
        pressure: pressure(&first.pressure, &last.pressure),
        ..last.clone()
    }
}

/// A group's quota and the period of that, us.
fn quota(group: &Cgroup) -> Option<(u64, u64)> {
    Some((group.quota_us?, group.period_us.unwrap_or(0)))
}

#[cfg(test)]
mod tests {
    use wcprof_types::TimeNs;

    use super::*;

    const S: u64 = 1_000_000_000;

    fn group(path: &str, inode: u64, n: u64) -> Cgroup {
        Cgroup {
            path: path.to_owned(),
            inode: Some(inode),
            quota_us: Some(20_000),
            n_periods: Some(10 * n),
            n_throttled: Some(9 * n),
            ..Cgroup::default()
        }
    }

    fn set(tids: &[i32], groups: &[u32]) -> ThreadSet {
        ThreadSet {
            pid: Pid(7),
            tids: tids.iter().copied().map(Tid).collect(),
            groups: groups.to_vec(),
            cpus: "1".to_owned(),
            ..ThreadSet::default()
        }
    }

    fn detail(groups: Vec<Cgroup>, threads: Vec<ThreadSet>) -> AccountsDetail {
        AccountsDetail {
            groups,
            threads,
            ..AccountsDetail::default()
        }
    }

    /// Check the counts of groups: of the time between the readings, and not known of those that came, went or were
    /// made anew; and that each thread is found with its groups, also one that has exited.
    #[test]
    fn groups() {
        let first = detail(
            vec![
                group("/same", 1, 5),
                group("/gone", 2, 5),
                group("/new", 3, 5),
                group("/limit", 4, 5),
            ],
            vec![set(&[1, 2], &[0]), set(&[3, 4], &[1])],
        );
        let limit = Cgroup {
            quota_us: Some(30_000),
            ..group("/limit", 4, 5)
        };
        let last = detail(
            vec![
                group("/came", 9, 5),
                group("/new", 8, 6),
                limit,
                group("/same", 1, 7),
            ],
            vec![set(&[2], &[3]), set(&[4, 5], &[0])],
        );
        let change = AccountsChange::between(vec![(S, first), (3 * S, last)]).unwrap();
        assert_eq!(change.length_ns, 2 * S);
        let groups: Vec<_> = change
            .groups
            .iter()
            .map(|one| (one.group.path.as_str(), one.fate, one.group.n_throttled))
            .collect();
        let expected = [
            ("/came", GroupFate::Appeared, None),
            ("/new", GroupFate::Replaced, None),
            ("/limit", GroupFate::LimitChanged, Some(0)),
            ("/same", GroupFate::Same, Some(18)),
            ("/gone", GroupFate::Vanished, None),
        ];
        assert_eq!(groups, expected);
        let of = |tid| {
            change
                .thread(Pid(7), Tid(tid))
                .map(|set| set.groups.as_slice())
        };
        assert_eq!(
            [of(1), of(2), of(3)],
            [Some(&[3][..]), Some(&[3]), Some(&[4])]
        );
        assert_eq!([of(4), of(5), of(6)], [Some(&[0][..]), Some(&[0]), None]);
        assert_eq!(change.n_moved_threads, 1);
    }

    /// Check what was otherwise between the first reading and the last alone: threads in another group that is gone at the end, and a
    /// quota that was lifted for a time. A thread that never moved, and a group whose limits never changed, say nothing.
    #[test]
    fn in_between() {
        let home = || group("/home", 1, 5);
        let lifted = Cgroup {
            quota_us: None,
            ..home()
        };
        let at_home = || vec![set(&[1, 2, 3], &[0])];
        let visit = |quota: Cgroup| {
            detail(
                vec![quota, group("/away", 2, 5)],
                vec![set(&[1], &[1]), set(&[2, 3], &[0])],
            )
        };
        let still = || detail(vec![group("/still", 7, 5), home()], at_home());
        let readings = vec![
            (S, detail(vec![home()], at_home())),
            (2 * S, visit(lifted)),
            (3 * S, visit(home())),
            (4 * S, detail(vec![home()], at_home())),
        ];
        let change = AccountsChange::between(readings).unwrap();
        let fates: Vec<_> = (change.groups.iter())
            .map(|one| (one.group.path.as_str(), one.fate, one.quotas.clone()))
            .collect();
        let (quota, none) = (Some((20_000, 0)), None);
        let expected = [
            ("/home", GroupFate::LimitChanged, vec![quota, none, quota]),
            ("/away", GroupFate::Vanished, vec![quota]),
        ];
        assert_eq!(fates, expected);
        assert!(!change.groups[0].is_steady());
        let earlier = |tid| {
            let sets = change.earlier(Pid(7), Tid(tid));
            sets.map(|set| set.groups.clone()).collect::<Vec<_>>()
        };
        assert_eq!(earlier(1), [vec![0], vec![1]], "in order of time");
        assert_eq!((earlier(2), change.n_moved_threads), (vec![], 1));
        assert_eq!(change.limit_changes().len(), 3);
        let change =
            AccountsChange::between(vec![(S, still()), (2 * S, still()), (3 * S, still())]);
        let change = change.unwrap();
        assert_eq!(
            (change.limit_changes(), change.n_moved_threads),
            (vec![], 0)
        );
    }

    /// Check that readings for the sake of limits alone take nothing from what other processes used.
    #[test]
    fn others_in_between() {
        let with = |n_read, cpu_ns| AccountsDetail {
            others: OtherProcesses {
                n_read,
                by_name: vec![OtherProcess {
                    name: "x".to_owned(),
                    n: 1,
                    cpu_ns,
                }],
                ..OtherProcesses::default()
            },
            ..AccountsDetail::default()
        };
        let none = AccountsDetail::default;
        for readings in [
            vec![(0, with(3, 0)), (S, none()), (2 * S, with(4, 5))],
            // A ring has forgotten the reading before these; the first of processes is of a time before them.
            vec![(0, none()), (S, with(4, 7)), (2 * S, with(3, 5))],
        ] {
            let others = AccountsChange::between(readings).unwrap().others;
            assert_eq!((others.n_read, others.by_name[0].cpu_ns), (4, 5));
        }
    }

    /// Check that one reading alone says nothing, and that a hostile one takes no more room than a real one.
    #[test]
    fn bounded() {
        assert_eq!(
            AccountsChange::between(vec![(0, AccountsDetail::default())]),
            None
        );
        let groups = (0..10_000).map(|n| group(&format!("/{n}"), n, 1));
        let hostile = detail(
            groups.collect(),
            vec![set(&[1; 1000], &[u32::MAX, 0]); 10_000],
        );
        let one = cut(hostile);
        let change = AccountsChange::between(vec![(0, one.clone()), (S, one)]).unwrap();
        assert_eq!(change.groups.len(), limits::GROUPS);
        let n_threads = change.threads.iter().map(|set| set.tids.len());
        assert!(n_threads.sum::<usize>() <= 2 * limits::THREADS);
    }

    /// Check the idle part of the time in which something waited: the CPUs are idle in the first second and busy in the
    /// second one; and that a window has its part of a reading's time.
    #[test]
    fn idle_while() {
        let reading = |time: u64, idle: u64, user: u64| {
            let cpu = CpuTimes {
                idle: idle * S,
                user: user * S,
                ..CpuTimes::default()
            };
            let accounts = Accounts {
                cpu: Some(cpu),
                detail: None,
            };
            AccountsReading {
                source: 0,
                time: TimeNs(time * S),
                json: serde_json::to_string(&accounts).unwrap(),
            }
        };
        let mut tables = Tables::default();
        tables.origins.accounts = vec![reading(0, 5, 5), reading(1, 7, 5), reading(2, 7, 7)];
        let axis = |start: u64, end: u64| TimeAxis {
            start: TimeNs(start),
            end: TimeNs(end),
            slice_ns: S / 4,
            ..TimeAxis::default()
        };
        let whole = axis(0, 2 * S);
        let host = accounts(&tables, &whole).remove(0);
        assert_eq!((host.cpu.idle, host.cpu.user), (2 * S, 2 * S));
        let waited = |from: u64, to: u64| {
            let mut waited = Slices::default();
            waited.spread(&whole, (from, to), 1.0);
            host.idle_while([&waited].into_iter()).unwrap()
        };
        assert_eq!(waited(0, S), 1.0);
        assert_eq!(waited(S, 2 * S), 0.0);
        assert!((waited(S / 2, 3 * S / 2) - 0.5).abs() < 1e-6);
        assert_eq!(host.idle_while([&Slices::default()].into_iter()), None);
        let window = accounts(&tables, &axis(S / 2, 3 * S / 2)).remove(0);
        assert_eq!((window.cpu.idle, window.cpu.user), (S, S));
        assert!(accounts(&Tables::default(), &whole)[0].cpu == CpuTimes::default());
    }
}
