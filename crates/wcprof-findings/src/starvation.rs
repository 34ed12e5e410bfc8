//! Why runnable threads did not run: what the kernel accounted of quotas, budgets, CPUs and other processes meanwhile.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use wcprof_profile::model::{ProfileProcess, ProfileThread, State};
use wcprof_profile::{AccountsChange, GroupChange};
use wcprof_text::{and_more, duration};
use wcprof_types::accounts::{CpuTimes, DeadlineBudget, OtherProcess, ThreadSet};
use wcprof_types::cgroup::Cgroup;
use wcprof_types::cpu_list;

use crate::applied::AppliedRule;
use crate::counted::{Counted, Sum};
use crate::finding::{Evidence, EvidenceLine, Finding};
use crate::limits::{of_time, quota_text, throttled_percent, throttled_text};
use crate::rule::{Cause, CauseText};

/// Share of periods, percent, from which on throttling is a cause.
const MIN_THROTTLED_PERCENT: f64 = 1.0;
/// Part of the waiting that must be of threads with a limit for it to be the cause.
const MOST: f64 = 0.5;
/// Part of a recording that readings must be of for another cause than a limit's.
const MIN_READ: f64 = 0.5;
/// Part of a budget that must be used for it to be the cause.
const MIN_BUDGET_USED: f64 = 0.8;
/// Threads at a time for each of the CPUs that they may use from which on these are too few, whatever else runs there.
const CROWDED: f64 = 2.0;
/// Idle part of CPUs from which on there was no lack of them.
const IDLE: f64 = 0.25;
/// Stolen part of the CPUs' time from which on it is the cause.
const STOLEN: f64 = 0.1;
/// Other processes that are named.
const MAX_NAMED: usize = 2;
/// Groups that evidence lists.
const MAX_GROUPS: usize = 8;
/// Other processes that evidence lists.
const MAX_OTHERS: usize = 4;

/// Why threads waited for a CPU.
pub(crate) struct FoundCause {
    cause: Cause,
    figures: String,
    /// What the CPUs did meanwhile, and groups whose counts are not known.
    pub(crate) evidence: Vec<Evidence>,
}

impl FoundCause {
    /// A finding that says the cause.
    pub(crate) fn told(self, finding: Finding, texts: &[CauseText]) -> Finding {
        let Some(text) = texts.iter().find(|text| text.cause == self.cause) else {
            return finding;
        };
        let fill = |text: &str| text.replace("{figures}", &self.figures);
        Finding {
            severity: text.severity,
            title: fill(&text.title),
            action: fill(&text.action),
            remedy: text.remedy,
            explanation: fill(&text.explanation),
            advice: fill(&text.advice),
            verify: fill(&text.verify),
            ..finding
        }
    }
}

/// A thread that waited.
struct Waiter<'a> {
    thread: &'a ProfileThread,
    weight: f64,
    on_cpu_ns: u64,
}

/// The cause of the waiting that is in `rows`, of threads of one process's pools. `None` where the rule asks for none, or nothing
/// was accounted.
pub(crate) fn cause(
    rule: &AppliedRule<'_>,
    pools: &[usize],
    rows: &[Counted<'_>],
) -> Option<FoundCause> {
    let profile = rule.profile();
    let process = profile.pools.get(*pools.first()?)?.process;
    let process = profile.processes.get(process)?;
    let host = &process.accounts;
    if rule.rule.causes.is_empty() || host.cpu.total() == 0 {
        return None;
    }
    let mut weights: BTreeMap<usize, u64> = BTreeMap::new();
    for row in rows.iter().map(|counted| counted.row) {
        *weights.entry(row.thread).or_default() += row.weight;
    }
    let waiters = weights.into_iter().map(|(at, weight)| Waiter {
        thread: &profile.threads[at],
        weight: weight as f64,
        on_cpu_ns: rule.index.threads[at].on_cpu_ns,
    });
    let waiters: Vec<Waiter<'_>> = waiters.collect();
    let all: f64 = waiters.iter().map(|waiter| waiter.weight).sum();
    let idle = host.idle_while(rows.iter().map(|counted| &counted.row.slices));
    let idle = idle.or_else(|| host.cpu.idle_part())?;
    let cpus = Cpus::new(rule, process);
    let change = host.change.as_ref();
    let of_limit = change.and_then(|change| {
        let of_time = of_time(change, profile);
        // Readings can be of a longer time than the profile.
        let part = rule.index.duration_ns as f64 / change.length_ns.max(1) as f64;
        let quota = || quota((change, &of_time, part.min(1.0)), &waiters, all);
        let changed = || changed((change, &of_time), &waiters);
        let deadline = || deadline(change, &waiters, all);
        let affinity = || affinity(change, &waiters, (all, rule.index.duration_ns));
        let unknown = || unknown((Some(change), &waiters), process.recorded_ns);
        let of_limit = quota().or_else(changed).or_else(deadline);
        of_limit.or_else(unknown).or_else(affinity)
    });
    let of_limit = of_limit.or_else(|| unknown((change, &waiters), process.recorded_ns));
    let (cause, figures) = of_limit.unwrap_or_else(|| cpus.cause(idle));
    let waited = Sum::new(rows).weight;
    Some(FoundCause {
        cause,
        figures,
        evidence: [
            cpus.evidence(idle, waited),
            change.map_or_else(Evidence::default, unknown_groups),
        ]
        .into(),
    })
}

/// The group of a steady quota that was throttled most, where most of the waiting was of threads in throttled groups. `part` of
/// the time of its counts is that of the waiting.
fn quota(
    (change, of_time, part): (&AccountsChange, &str, f64),
    waiters: &[Waiter<'_>],
    all: f64,
) -> Option<(Cause, String)> {
    let mut waited = 0.0;
    let mut most: Option<(f64, &Cgroup)> = None;
    for waiter in waiters {
        let set = change.thread(waiter.thread.pid, waiter.thread.tid);
        let earlier = change.earlier(waiter.thread.pid, waiter.thread.tid);
        let earlier: Vec<&ThreadSet> = earlier.collect();
        let groups = set.iter().flat_map(|set| &set.groups);
        let groups = groups.filter(|place| earlier.iter().all(|set| set.groups.contains(place)));
        let groups = groups.filter_map(|place| change.groups.get(*place as usize));
        let groups = groups.filter(|one| one.is_steady()).map(|one| &one.group);
        let throttled = groups.filter_map(|group| Some((throttled_percent(group)?, group)));
        let of_thread = throttled
            .filter(|(percent, group)| {
                *percent >= MIN_THROTTLED_PERCENT
                    && longest_throttled(group) as f64 * part >= MOST * waiter.weight
            })
            .max_by(|a, b| a.0.total_cmp(&b.0));
        if let Some(of_thread) = of_thread {
            waited += waiter.weight;
            if most.is_none_or(|most| of_thread.0 > most.0) {
                most = Some(of_thread);
            }
        }
    }
    let (_, group) = most.filter(|_| waited >= MOST * all)?;
    Some((
        Cause::Quota,
        format!("{}: {}", group.path, quota_text(group, of_time)?),
    ))
}

/// The longest that a thread of a group may have waited for its quota, ns: in throttled periods alone, and not longer than the
/// group was throttled on all CPUs together.
fn longest_throttled(group: &Cgroup) -> u64 {
    let (n, period) = (group.n_throttled, group.period_us);
    let periods_us = n.unwrap_or(0).saturating_mul(period.unwrap_or(0));
    let us = group
        .throttled_us
        .map_or(periods_us, |us| us.min(periods_us));
    us.saturating_mul(1000)
}

/// What changed of the groups and limits of threads that waited, where a quota or a budget is or was among them: the counts are
/// not of these threads, or not of one limit.
fn changed(
    (change, of_time): (&AccountsChange, &str),
    waiters: &[Waiter<'_>],
) -> Option<(Cause, String)> {
    let mut texts: Vec<String> = Vec::new();
    for waiter in waiters {
        let (pid, tid) = (waiter.thread.pid, waiter.thread.tid);
        let Some(last) = change.thread(pid, tid) else {
            continue;
        };
        // In order of time.
        let sets: Vec<&ThreadSet> = change.earlier(pid, tid).chain([last]).collect();
        let places: BTreeSet<u32> = sets.iter().flat_map(|set| set.groups.clone()).collect();
        let groups = places
            .iter()
            .filter_map(|at| change.groups.get(*at as usize));
        let limited: Vec<&GroupChange> = groups.filter(|one| one.is_limited()).collect();
        let is_limited = !limited.is_empty() || sets.iter().any(|set| set.deadline.is_some());
        let is_steady = sets.len() == 1 && limited.iter().all(|one| one.is_steady());
        if !is_limited || is_steady {
            continue;
        }
        let mut of_thread: Vec<String> = Vec::new();
        if let Some(moves) = moves(change, &sets) {
            of_thread.push(moves);
        }
        let budgets = sets.iter().map(|set| match &set.deadline {
            Some(budget) => budget_text(budget),
            None => "none".to_owned(),
        });
        if let Some(budgets) = steps(budgets) {
            of_thread.push(format!("budget under SCHED_DEADLINE {budgets}"));
        }
        if let Some(cpus) = steps(sets.iter().map(|set| set.cpus.clone())) {
            of_thread.push(format!("CPUs {cpus}"));
        }
        of_thread.extend(limited.iter().map(|one| quota_change(one, of_time)));
        for text in of_thread {
            if !texts.contains(&text) {
                texts.push(text);
            }
        }
    }
    if texts.is_empty() {
        return None;
    }
    let more = and_more(texts.len().saturating_sub(MAX_GROUPS));
    texts.truncate(MAX_GROUPS);
    Some((Cause::Changed, texts.join("; ") + &more))
}

/// `2.00 ms of each 10.0 ms`
fn budget_text(budget: &DeadlineBudget) -> String {
    let [runtime, period] = [budget.runtime_ns, budget.period_ns].map(duration);
    format!("{runtime} of each {period}")
}

/// `moved from /a to /b`, by the innermost groups of the hierarchy in which a thread was in another one at the next time; `None` where
/// it stayed.
fn moves(change: &AccountsChange, sets: &[&ThreadSet]) -> Option<String> {
    let group = |at: &u32| change.groups.get(*at as usize).map(|one| &one.group);
    // The inner groups are first.
    let own = |from: &ThreadSet, other: &ThreadSet| {
        let own = from.groups.iter().find(|at| !other.groups.contains(at));
        own.and_then(group)
    };
    let path = |from: &ThreadSet, other: &ThreadSet| {
        let path = own(from, other).or_else(|| {
            // One above the other's.
            let hierarchy = &own(other, from)?.hierarchy;
            let mut groups = from.groups.iter().filter_map(group);
            groups.find(|group| group.hierarchy == *hierarchy)
        });
        path.map_or_else(|| "/".to_owned(), |group| group.path.clone())
    };
    let pairs = sets.windows(2).filter_map(|pair| match pair {
        [from, to] if from.groups != to.groups => Some((path(from, to), path(to, from))),
        _ => None,
    });
    let mut text = String::new();
    for (from, to) in pairs {
        match text.is_empty() {
            true => text = format!("moved from {from} to {to}"),
            false => text += &format!(" to {to}"),
        }
    }
    (!text.is_empty()).then_some(text)
}

/// `a -> b -> a`; `None` where it was the same all the time.
fn steps(texts: impl Iterator<Item = String>) -> Option<String> {
    let mut texts: Vec<String> = texts.collect();
    texts.dedup();
    (texts.len() > 1).then(|| texts.join(" -> "))
}

/// A group's quotas, and how often they were used up: by its counts also where one was lifted.
fn quota_change(one: &GroupChange, of_time: &str) -> String {
    let quotas = one.quotas.iter().map(|quota| match quota {
        Some((us, period)) => format!("{:.2} CPUs", *us as f64 / (*period).max(1) as f64),
        None => "no quota".to_owned(),
    });
    let quotas: Vec<String> = quotas.collect();
    let quota = quotas.join(" -> ");
    let counts = throttled_text(&one.group, of_time);
    let remark = one.fate.remark();
    let remark = remark.map_or_else(String::new, |remark| format!(", {remark}"));
    format!("{}: {quota}{counts}{remark}", one.group.path)
}

/// Why no other cause than a limit's can be named.
fn unknown(
    (change, waiters): (Option<&AccountsChange>, &[Waiter<'_>]),
    recorded_ns: u64,
) -> Option<(Cause, String)> {
    let Some(change) = change else {
        let text = "limits were not read twice, so that their counts are not known";
        return Some((Cause::Unknown, text.to_owned()));
    };
    if let Some(one) = quota_not_counted(change, waiters) {
        let text = format!(
            "how often the quota of {} was used up is not known",
            one.group.path
        );
        return Some((Cause::Unknown, text));
    }
    let is_short = (change.length_ns as f64) < MIN_READ * recorded_ns as f64;
    is_short.then(|| {
        let (read, of) = (duration(change.length_ns), duration(recorded_ns));
        let text = format!("limits were counted in {read} of {of} alone");
        (Cause::Unknown, text)
    })
}

/// A group with a quota of which it is not known how often it was used up, that one of these threads was in, or may have been.
fn quota_not_counted<'c>(
    change: &'c AccountsChange,
    waiters: &[Waiter<'_>],
) -> Option<&'c GroupChange> {
    let is_in = |place: u32| {
        waiters.iter().any(|waiter| {
            let (pid, tid) = (waiter.thread.pid, waiter.thread.tid);
            let mut sets = change
                .thread(pid, tid)
                .into_iter()
                .chain(change.earlier(pid, tid));
            change.thread(pid, tid).is_none() || sets.any(|set| set.groups.contains(&place))
        })
    };
    let mut groups = (0..).zip(&change.groups);
    let found = groups.find(|(place, one)| {
        let is_counted = one.group.quota_us.is_none() || one.group.n_throttled.is_some();
        !is_counted && is_in(*place)
    });
    found.map(|(_, one)| one)
}

/// Groups with a quota that changed, and threads that changed groups.
fn unknown_groups(change: &AccountsChange) -> Evidence {
    let mut names: Vec<String> = (change.groups.iter())
        .filter_map(|one| {
            let remark = one.fate.remark()?;
            let quota = quota_text(&one.group, "")?;
            Some(format!("{}: {quota}; {remark}", one.group.path))
        })
        .collect();
    for (n, what) in [
        (
            change.n_moved_threads,
            "of the recorded threads changed groups",
        ),
        (change.n_more_groups, "groups were not read"),
        (change.n_more_threads, "threads were not read"),
    ] {
        names.extend((n > 0).then(|| format!("{n} {what}")));
    }
    let lines = names.into_iter().map(EvidenceLine::text);
    Evidence::cut(
        "control groups that changed during the recording, or were not read".to_owned(),
        lines.collect(),
        MAX_GROUPS,
    )
}

/// The budget of the thread that waited most, where most of the waiting was of threads that used up theirs.
fn deadline(change: &AccountsChange, waiters: &[Waiter<'_>], all: f64) -> Option<(Cause, String)> {
    let spent = waiters.iter().filter_map(|waiter| {
        let set = change.thread(waiter.thread.pid, waiter.thread.tid)?;
        let budget = set.deadline.filter(|budget| budget.period_ns > 0)?;
        let part = budget.runtime_ns as f64 / budget.period_ns as f64;
        let used = waiter.on_cpu_ns as f64 / waiter.thread.observed_ns.max(1) as f64;
        (used >= MIN_BUDGET_USED * part).then_some((waiter, budget, used))
    });
    let spent: Vec<_> = spent.collect();
    let waited: f64 = spent.iter().map(|(waiter, ..)| waiter.weight).sum();
    let (_, budget, used) = spent
        .iter()
        .max_by(|a, b| a.0.weight.total_cmp(&b.0.weight))
        .filter(|_| waited >= MOST * all)?;
    let text = format!(
        "{}, of which {:.1} % of the time was used",
        budget_text(budget),
        100.0 * used,
    );
    Some((Cause::Deadline, text))
}

/// CPUs that most of the waiting is bound to, where these were busy: with the threads themselves, or while others were
/// idle.
fn affinity(
    change: &AccountsChange,
    waiters: &[Waiter<'_>],
    (all, duration_ns): (f64, u64),
) -> Option<(Cause, String)> {
    let online = change.online();
    let mut union: BTreeSet<u32> = BTreeSet::new();
    let (mut waited, mut idle, mut on_cpu) = (0.0, 0.0, 0.0);
    for waiter in waiters {
        let set = change.thread(waiter.thread.pid, waiter.thread.tid);
        let allowed = change.allowed(set);
        if allowed.len() < online.len() {
            waited += waiter.weight;
            on_cpu += waiter.on_cpu_ns as f64;
            idle += waiter.weight * change.of_cpus(&allowed).idle_part()?;
            union.extend(allowed);
        }
    }
    if waited < MOST * all || waited <= 0.0 {
        return None;
    }
    let idle = idle / waited;
    // Threads that are bound to CPUs of their own may have all of them together.
    let rest: BTreeSet<u32> = online.difference(&union).copied().collect();
    let rest_idle = change.of_cpus(&rest).idle_part();
    let at_a_time = |ns: f64| ns / duration_ns.max(1) as f64;
    let wanted = at_a_time(on_cpu + waited);
    let n_cpus = union.len() as f64;
    let is_with_themselves = at_a_time(on_cpu) >= MOST * n_cpus || wanted >= CROWDED * n_cpus;
    let is_rest_idle = rest_idle.is_some_and(|idle| idle >= IDLE);
    if idle >= IDLE || !(is_with_themselves || is_rest_idle) {
        return None;
    }
    let mut text = format!(
        "{:.2} threads on average for CPU {}, {:.1} % idle",
        wanted,
        cpu_list(&union),
        100.0 * idle,
    );
    if let Some(idle) = rest_idle {
        text += &format!("; CPU {} was {:.1} % idle", cpu_list(&rest), 100.0 * idle);
    }
    Some((Cause::Affinity, text))
}

/// What the CPUs of a host did, ns of CPU time in the time of the profile.
struct Cpus<'a> {
    times: CpuTimes,
    /// On-CPU time of the recorded processes.
    recorded: u64,
    others: Vec<(&'a OtherProcess, u64)>,
    n_unread: u64,
    host: &'a str,
    duration_ns: u64,
}

impl<'a> Cpus<'a> {
    /// What those of a process's host did.
    fn new(rule: &AppliedRule<'a>, process: &'a ProfileProcess) -> Self {
        let (profile, host) = (rule.profile(), &process.accounts);
        let is_here = |thread: usize| {
            let process = profile.processes.get(profile.threads[thread].process);
            process.is_some_and(|process| Arc::ptr_eq(&process.accounts, host))
        };
        let states = [State::OnCpu, State::Guest];
        let rows = profile.rows.iter();
        let rows = rows.filter(|row| states.contains(&row.state) && is_here(row.thread));
        let recorded = rows.map(|row| row.weight).fold(0, u64::saturating_add);
        let duration_ns = rule.index.duration_ns;
        let others = host.change.as_ref().map(|change| {
            // Those of a window are those of the recording in the same time.
            let part = duration_ns as f64 / change.length_ns.max(1) as f64;
            let named = change.others.by_name.iter();
            let named = named.map(|one| (one, (one.cpu_ns as f64 * part.min(1.0)) as u64));
            (named.collect(), change.others.n_unread)
        });
        let (others, n_unread) = others.unwrap_or_default();
        Self {
            times: host.cpu,
            recorded,
            others,
            n_unread,
            host: &process.host,
            duration_ns,
        }
    }

    fn cores(&self, ns: u64) -> f64 {
        ns as f64 / self.duration_ns.max(1) as f64
    }

    /// The cause that is none of a limit's.
    fn cause(&self, idle: f64) -> (Cause, String) {
        let n_cpus = self.cores(self.times.total()).round();
        let stolen = self.times.steal as f64 / self.times.total().max(1) as f64;
        let others = self.times.busy().saturating_sub(self.recorded);
        if idle >= IDLE {
            let figures = format!("the CPUs were idle for {:.1} % of that time", 100.0 * idle);
            (Cause::Bursts, figures)
        } else if stolen >= STOLEN {
            let figures = format!("it took {:.1} % of the CPUs' time", 100.0 * stolen);
            (Cause::Steal, figures)
        } else if self.recorded >= others {
            let own = self.cores(self.recorded);
            (Cause::Own, format!("{own:.2} of {n_cpus:.0} cores"))
        } else {
            let named = self.others.iter().take(MAX_NAMED);
            // Each is read a little before or after the CPUs.
            let mut rest = others;
            let named = named.map(|(one, ns)| {
                let ns = rest.min(*ns);
                rest -= ns;
                format!("{} {:.2}", one.name, self.cores(ns))
            });
            let named: Vec<String> = named.collect();
            let named = match named.is_empty() {
                true => String::new(),
                false => format!(" ({})", named.join(", ")),
            };
            let figures = format!("{:.2} of {n_cpus:.0} cores{named}", self.cores(others));
            (Cause::Others, figures)
        }
    }

    /// What the CPUs did, the most first.
    fn evidence(&self, idle: f64, waited: u64) -> Evidence {
        let total = self.times.total();
        let line = |name: String, ns: u64| EvidenceLine::new(name, ns, total);
        let idle_name = format!("idle; {:.1} % while these threads waited", 100.0 * idle);
        let mut lines = vec![
            line(idle_name, self.times.idle),
            line("the recorded processes".to_owned(), self.recorded),
            line("interrupts".to_owned(), self.times.irq),
            line("stolen by the hypervisor".to_owned(), self.times.steal),
        ];
        let mut rest = self.times.busy().saturating_sub(self.recorded);
        for (one, ns) in self.others.iter().take(MAX_OTHERS) {
            let n = match one.n {
                0 | 1 => String::new(),
                n => format!(" ({n} processes)"),
            };
            lines.push(line(format!("{}{n}", one.name), *ns));
            rest = rest.saturating_sub(*ns);
        }
        lines.push(line("others, also ended ones".to_owned(), rest));
        lines.retain(|line| line.weight_ns > 0);
        lines.sort_by_key(|line| std::cmp::Reverse(line.weight_ns));
        let host = match self.host {
            "" => String::new(),
            host => format!(" of {host}"),
        };
        let unread = match self.n_unread {
            0 => String::new(),
            1 => " (1 process was not read)".to_owned(),
            n => format!(" ({n} processes were not read)"),
        };
        let heading = format!(
            "CPUs{host}, % of their time{unread}; these threads waited {:.2} on average",
            self.cores(waited)
        );
        Evidence {
            heading,
            lines,
            n_cut: 0,
        }
    }
}
