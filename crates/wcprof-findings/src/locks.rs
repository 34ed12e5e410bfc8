//! Lock blame: where threads lost time to locks, and what those who held them did meanwhile.

use std::cmp::Reverse;
use std::collections::{BTreeMap, BTreeSet, HashMap};

use serde::Serialize;
use wcprof_profile::GroupBy;
use wcprof_profile::model::{
    Deadlock, DeadlockedThread, Function, FunctionId, LockKind, LockRow, Profile, ProfileProcess,
    ProfileStackId, State, UnknownHolder,
};
use wcprof_text::{count, percent, printable_json};
use wcprof_types::{Pid, Tid};

use crate::finding::{Evidence, EvidenceLine, HELD_BY};
use crate::matching::CompiledRule;
use crate::rule::Show;
use crate::rule_set::RuleSet;
use crate::sessions::DatabaseLocks;
use crate::totals::host;

/// Holders of one site that are kept, heaviest first.
const MAX_HOLDS: usize = 24;
/// Frames of a holder that are kept, next to the leaf.
const MAX_FRAMES: usize = 64;
/// Callers of a site.
const MAX_CALLERS: usize = 8;
/// Lines that name holders in a finding.
const MAX_LINES: usize = 4;

/// Time lost to locks, by the function that wanted one.
#[derive(Clone, PartialEq, Debug, Serialize)]
pub struct LockReport {
    /// `wcprof-locks`.
    pub schema: &'static str,
    /// 2; it grows as that of the findings.
    pub version: u32,
    /// Length of the recording.
    pub duration_ns: u64,
    /// Snapshots that it is of, in which times are counts of threads; 0 of what has a time axis.
    #[serde(skip_serializing_if = "is_none")]
    pub n_snapshots: u32,
    /// Time of all threads in every state but idle.
    pub non_idle_ns: u64,
    /// Time lost at all sites.
    pub lost_ns: u64,
    /// The part of it whose holder is known.
    pub known_ns: u64,
    /// The part of that which is uncertain.
    pub uncertain_ns: u64,
    /// Circles of threads that wait for each other.
    pub deadlocks: Vec<DeadlockReport>,
    /// The sites, most lost time first.
    pub sites: Vec<LockSite>,
}

/// A circle of threads: each waits for a lock that the next one holds, and the last for one that the first holds.
#[derive(Clone, PartialEq, Debug, Serialize)]
pub struct DeadlockReport {
    /// What a user calls the process: `osd.3`.
    pub process: String,
    /// Its pid.
    pub pid: Pid,
    /// One of them, where a thread waits for its own lock.
    pub threads: Vec<DeadlockLink>,
}

/// A thread of a circle.
#[derive(Clone, PartialEq, Debug, Serialize)]
pub struct DeadlockLink {
    /// The thread.
    pub tid: Tid,
    /// Its name.
    pub name: String,
    /// Address of the lock that it waits for.
    pub lock: u64,
    /// Kind of that lock.
    pub kind: LockKind,
    /// Its stack, leaf first.
    pub frames: Vec<String>,
}

/// A function that wanted locks.
#[derive(Clone, PartialEq, Debug, Serialize)]
pub struct LockSite {
    /// The group of threads that it is of, where sites are grouped by anything but programs.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub group: String,
    /// The processes whose threads waited.
    pub pids: Vec<Pid>,
    /// What a user calls the process: `osd.3`; of several, what they have in common.
    pub process: String,
    /// The host that they ran on, in a trace of several hosts; else empty.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub host: String,
    /// The first function above the lock functions.
    pub function: String,
    /// File name of its module.
    pub module: String,
    /// Its callers where most time was lost, nearest first.
    pub callers: Vec<String>,
    /// Kinds of lock, and whether recursive.
    pub kinds: Vec<LockKind>,
    /// A lock of it is a recursive mutex.
    pub recursive: bool,
    /// Distinct locks, by address.
    pub n_locks: usize,
    /// Thread time lost.
    pub lost_ns: u64,
    /// Percent of the time lost at all sites.
    pub percent: f64,
    /// Threads that waited on average.
    pub waiting_at_once: f64,
    /// Who waited, most lost time first.
    pub waiters: Vec<Waiters>,
    /// Who held them, heaviest first.
    pub held_by: Vec<Hold>,
    /// Holders left out here.
    pub n_more_holds: usize,
    /// Time whose holder is not known, by reason.
    pub unknown: Vec<Unknown>,
}

/// Threads of a pool that waited.
#[derive(Clone, PartialEq, Debug, Serialize)]
pub struct Waiters {
    /// The pool.
    pub pool: String,
    /// How many of its threads.
    pub n_threads: usize,
    /// Time that they lost.
    pub lost_ns: u64,
}

/// What threads of a pool did while they held a lock.
#[derive(Clone, PartialEq, Debug, Serialize)]
pub struct Hold {
    /// The pool.
    pub pool: String,
    /// Its threads; the first ones.
    pub tids: Vec<Tid>,
    /// Their state, `on-cpu`, `disk`...
    pub state: State,
    /// The function that says it best: the one next to the leaf that is not of the C or C++
    /// library; empty without a stack.
    pub function: String,
    /// The stack, leaf first; empty when there is none of that tick.
    pub frames: Vec<String>,
    /// Time that others lost meanwhile.
    pub weight_ns: u64,
    /// Percent of the site's lost time.
    pub percent: f64,
    /// The part of the weight that is uncertain: waiter or owner ran before the lock was read.
    pub uncertain_ns: u64,
}

/// Time whose holder is not known.
#[derive(Clone, PartialEq, Debug, Serialize)]
pub struct Unknown {
    /// `not-recorded`, `database`, `not-looked`, `changed`, `itself`, `readers`, `died`, `not-a-thread`.
    pub reason: &'static str,
    /// The same in words.
    pub text: String,
    /// Time lost.
    pub weight_ns: u64,
    /// Percent of the site's lost time.
    pub percent: f64,
}

/// Everything that a profile says about locks. The rules that show lock sites (the built-in ones or the
/// user's) say which functions are lock functions. A site is one of all processes of a program on a host, with `by` of the
/// threads that it groups.
pub fn lock_report(profile: &Profile, rules: &RuleSet, by: Option<GroupBy>) -> LockReport {
    let all = rules.rules().iter();
    let of_sites = all.filter(|rule| rule.matches.evidence == Show::Sites);
    let compiled: Vec<CompiledRule<'_>> = of_sites
        .map(|rule| CompiledRule::new(profile, rule))
        .collect();
    // The functions from the lock site to the root.
    let site = |stack: Option<ProfileStackId>| {
        let frames = frames(profile, stack);
        // What any of them skips is a lock function.
        let sites = compiled.iter().map(|rule| rule.site(frames));
        let site = sites.min_by_key(Vec::len);
        site.unwrap_or_else(|| frames.iter().rev().copied().collect())
    };
    let mut sites: BTreeMap<(GroupId, Option<FunctionId>), Vec<&LockRow>> = BTreeMap::new();
    // Many rows may have one stack.
    let mut of_stack: HashMap<Option<ProfileStackId>, Option<FunctionId>> = HashMap::new();
    for row in profile.locks.held.iter().filter(|row| row.weight > 0) {
        let function = of_stack.entry(row.stack);
        let function = *function.or_insert_with(|| site(row.stack).first().copied());
        let group = group(profile, row.thread, by);
        sites.entry((group, function)).or_default().push(row);
    }
    let lost_ns = sum(profile.locks.held.iter());
    let sites = sites.into_iter();
    let mut sites: Vec<LockSite> = sites
        .map(|((group, _), rows)| LockSite {
            group: by.map_or_else(String::new, |_| group.0),
            ..lock_site(profile, &rows, &site(heaviest_stack(&rows)), lost_ns)
        })
        .collect();
    sites.sort_by_key(|site| Reverse(site.lost_ns));
    let known = || profile.locks.held.iter().filter(|row| row.holder.is_ok());
    let is_uncertain = |row: &&LockRow| row.holder.is_ok_and(|h| h.uncertain);
    let rows = profile.rows.iter().filter(|row| row.state.is_active());
    LockReport {
        schema: "wcprof-locks",
        version: 2,
        duration_ns: profile.duration_ns(),
        n_snapshots: profile.header.n_snapshots,
        non_idle_ns: rows.fold(0, |n, row| n.saturating_add(row.weight)),
        lost_ns,
        known_ns: sum(known()),
        uncertain_ns: sum(known().filter(is_uncertain)),
        deadlocks: (profile.locks.deadlocks.iter())
            .filter_map(|deadlock| deadlock_report(profile, deadlock))
            .collect(),
        sites,
    }
}

fn is_none(n: &u32) -> bool {
    *n == 0
}

impl DeadlockReport {
    /// What is said of it in a line.
    pub(crate) fn title(&self) -> String {
        match self.threads.len() {
            1 => "a thread waits for a lock that it holds itself".to_owned(),
            n => format!("{} wait for each other's locks", count(n, "thread")),
        }
    }

    /// Its threads, each with the one that holds what it waits for.
    pub(crate) fn links(&self) -> impl Iterator<Item = (&DeadlockLink, &DeadlockLink)> {
        self.threads.iter().zip(self.threads.iter().cycle().skip(1))
    }
}

/// What a profile says of a circle of threads; `None` of one whose first thread it lacks.
pub(crate) fn deadlock_report(profile: &Profile, deadlock: &Deadlock) -> Option<DeadlockReport> {
    let link = |one: &DeadlockedThread| {
        let thread = profile.threads.get(one.thread)?;
        let functions = frames(profile, one.stack).iter().rev();
        let names = functions.filter_map(|id| profile.functions.get(id.0 as usize));
        Some(DeadlockLink {
            tid: thread.tid,
            name: thread.comm.clone(),
            lock: one.address.0,
            kind: one.kind,
            frames: names.take(MAX_FRAMES).map(|f| f.name.to_string()).collect(),
        })
    };
    let first = profile.threads.get(deadlock.threads.first()?.thread)?;
    let process = profile.processes.get(first.process)?;
    Some(DeadlockReport {
        process: process.title.clone(),
        pid: process.pid,
        threads: deadlock.threads.iter().filter_map(link).collect(),
    })
}

/// The name of a group, and what tells apart those of one name: processes of several hosts may have one pid.
type GroupId = (String, usize);

/// What the sites of a thread are grouped by.
fn group(profile: &Profile, thread: usize, by: Option<GroupBy>) -> GroupId {
    let at = thread;
    let thread = &profile.threads[at];
    let process = profile.processes.get(thread.process);
    let of = |text: fn(&ProfileProcess) -> &str| (process.map_or("", text).to_owned(), 0);
    match by {
        // Those of one program on one host.
        None => {
            let (class, host) = (of(|p| &p.class).0, of(|p| &p.host).0);
            (format!("{class} {host}"), 0)
        }
        Some(GroupBy::All) => ("all".to_owned(), 0),
        Some(GroupBy::Host) => of(|p| &p.host),
        Some(GroupBy::Cgroup) => of(|p| &p.cgroup),
        Some(GroupBy::Pool) => (profile.pools[thread.pool].name.clone(), 0),
        Some(GroupBy::Process) => {
            let title = profile.process_title(thread);
            (format!("{title} (pid {})", thread.pid), thread.process)
        }
        Some(GroupBy::Thread) => (format!("{} (tid {})", thread.comm, thread.tid), at),
    }
}

/// The report as one indented JSON document that ends with a newline.
///
/// # Errors
/// A share is not finite, which those of [`lock_report`] never are.
pub fn locks_to_json(report: &LockReport) -> Result<String, serde_json::Error> {
    printable_json(report)
}

fn sum<'a>(rows: impl Iterator<Item = &'a LockRow>) -> u64 {
    rows.fold(0, |n, row| n.saturating_add(row.weight))
}

/// Root first; none without a stack.
pub(crate) fn frames(profile: &Profile, stack: Option<ProfileStackId>) -> &[FunctionId] {
    stack.map_or(&[][..], |id| &profile.stacks[id.0 as usize].frames)
}

fn heaviest_stack(rows: &[&LockRow]) -> Option<ProfileStackId> {
    let mut stacks: BTreeMap<Option<ProfileStackId>, u64> = BTreeMap::new();
    for row in rows {
        let sum = stacks.entry(row.stack).or_default();
        *sum = sum.saturating_add(row.weight);
    }
    let heaviest = stacks.into_iter().max_by_key(|(id, w)| (*w, Reverse(*id)));
    heaviest?.0
}

/// `site`: the functions of its heaviest stack, from itself to the root.
fn lock_site(profile: &Profile, rows: &[&LockRow], site: &[FunctionId], all_ns: u64) -> LockSite {
    let lost_ns = sum(rows.iter().copied());
    let kinds: BTreeSet<LockKind> = rows.iter().map(|row| row.kind).collect();
    let locks: BTreeSet<_> = rows.iter().filter_map(|row| row.address).collect();
    let mut functions = site.iter().map(|id| &profile.functions[id.0 as usize]);
    let function = functions.next();
    let callers = functions.take(MAX_CALLERS);
    let thread = &profile.threads[rows[0].thread];
    let processes: BTreeSet<usize> = rows
        .iter()
        .map(|row| profile.threads[row.thread].process)
        .collect();
    let pids: BTreeSet<Pid> = rows
        .iter()
        .map(|row| profile.threads[row.thread].pid)
        .collect();
    let process = match profile.processes.get(thread.process) {
        Some(process) if processes.len() > 1 => &process.class,
        _ => profile.process_title(thread),
    };
    let mut holds = holds(profile, rows, lost_ns);
    let n_more_holds = holds.len().saturating_sub(MAX_HOLDS);
    holds.truncate(MAX_HOLDS);
    LockSite {
        group: String::new(),
        pids: pids.into_iter().collect(),
        process: process.to_owned(),
        host: host(profile, thread.process).to_owned(),
        function: function.map_or_else(|| "[no stack sampled]".to_owned(), |f| f.name.clone()),
        module: function.map_or_else(String::new, |f| f.module.clone()),
        callers: callers.map(|f| f.name.clone()).collect(),
        kinds: kinds.into_iter().collect(),
        recursive: rows.iter().any(|row| row.recursive),
        n_locks: locks.len(),
        lost_ns,
        percent: percent(lost_ns, all_ns),
        waiting_at_once: lost_ns as f64 / profile.duration_ns().max(1) as f64,
        waiters: waiters(profile, rows),
        held_by: holds,
        n_more_holds,
        unknown: unknown(profile, rows, lost_ns),
    }
}

fn waiters(profile: &Profile, rows: &[&LockRow]) -> Vec<Waiters> {
    let mut pools: BTreeMap<&str, (BTreeSet<usize>, u64)> = BTreeMap::new();
    for row in rows {
        let pool = &profile.pools[profile.threads[row.thread].pool].name;
        let (threads, lost_ns) = pools.entry(pool).or_default();
        threads.insert(row.thread);
        *lost_ns = lost_ns.saturating_add(row.weight);
    }
    let waiters = pools.into_iter().map(|(pool, (threads, lost_ns))| Waiters {
        pool: pool.to_owned(),
        n_threads: threads.len(),
        lost_ns,
    });
    let mut waiters: Vec<Waiters> = waiters.collect();
    waiters.sort_by_key(|w| Reverse(w.lost_ns));
    waiters
}

/// Who held the locks of these rows, heaviest first.
fn holds(profile: &Profile, rows: &[&LockRow], lost_ns: u64) -> Vec<Hold> {
    type Key<'p> = (&'p str, State, Option<ProfileStackId>);
    let mut sums: BTreeMap<Key<'_>, (BTreeSet<Tid>, u64, u64)> = BTreeMap::new();
    for row in rows {
        let Ok(holder) = row.holder else { continue };
        let pool = profile.pools[holder.pool].name.as_str();
        let sum = sums.entry((pool, holder.state, holder.stack)).or_default();
        let (tids, weight_ns, uncertain_ns) = sum;
        tids.insert(holder.tid);
        *weight_ns = weight_ns.saturating_add(row.weight);
        if holder.uncertain {
            *uncertain_ns = uncertain_ns.saturating_add(row.weight);
        }
    }
    let mut holds = Vec::new();
    for ((pool, state, stack), (tids, weight_ns, uncertain_ns)) in sums {
        let leaf_first = frames(profile, stack).iter().rev();
        let functions: Vec<&Function> = leaf_first
            .map(|id| &profile.functions[id.0 as usize])
            .collect();
        let own = functions.iter().find(|f| !is_library(&f.module));
        let best = own.or(functions.first());
        let frames = functions.iter().take(MAX_FRAMES);
        holds.push(Hold {
            pool: pool.to_owned(),
            tids: tids.into_iter().take(MAX_HOLDS).collect(),
            state,
            function: best.map_or_else(String::new, |f| f.name.clone()),
            frames: frames.map(|f| f.name.clone()).collect(),
            weight_ns,
            percent: percent(weight_ns, lost_ns),
            uncertain_ns,
        });
    }
    holds.sort_by_key(|hold| Reverse(hold.weight_ns));
    holds
}

/// Modules of the kernel, the C and the C++ library begin so: they say how something is done, not what.
const LIBRARIES: [&str; 7] = [
    "libc.so",
    "libc-",
    "libpthread",
    "libstdc++",
    "libc++",
    "ld-",
    "[",
];

fn is_library(module: &str) -> bool {
    LIBRARIES.iter().any(|library| module.starts_with(library))
}

fn unknown(profile: &Profile, rows: &[&LockRow], lost_ns: u64) -> Vec<Unknown> {
    let unrecorded = |row: &&&LockRow| row.holder == Err(UnknownHolder::NotRecorded);
    let stacks = rows.iter().filter(unrecorded).map(|row| row.stack);
    let database = DatabaseLocks::new(profile, stacks);
    let mut sums: BTreeMap<(&'static str, String), u64> = BTreeMap::new();
    for row in rows {
        if let Err(why) = row.holder {
            let of_database = database.as_ref();
            let of_database =
                of_database.filter(|of| unrecorded(&row) && of.stacks.contains(&row.stack));
            let key = match of_database {
                Some(database) => ("database", database.text()),
                None => words(why),
            };
            let sum = sums.entry(key).or_default();
            *sum = sum.saturating_add(row.weight);
        }
    }
    let list = sums.into_iter().map(|((reason, text), weight_ns)| Unknown {
        reason,
        text,
        weight_ns,
        percent: percent(weight_ns, lost_ns),
    });
    let mut list: Vec<Unknown> = list.collect();
    list.sort_by_key(|unknown| Reverse(unknown.weight_ns));
    list
}

/// A reason for programs and for people.
fn words(why: UnknownHolder) -> (&'static str, String) {
    let (reason, text) = match why {
        UnknownHolder::NotRecorded => (
            "not-recorded",
            "the owner is not recorded by this kind of lock",
        ),
        UnknownHolder::NotLooked => ("not-looked", "the lock was not read: too short a wait"),
        UnknownHolder::Changed => ("changed", "free, or changing hands, when it was read"),
        UnknownHolder::Itself => (
            "itself",
            "already handed to the waiter when it was read, or it waits for itself",
        ),
        UnknownHolder::Readers => ("readers", "held by readers, which a rwlock does not record"),
        UnknownHolder::Died => ("died", "its owner died"),
        UnknownHolder::NotAThread(tid) => {
            let what = "was not recorded: exited, of another process, or left out";
            let text = format!("its owner (tid {tid} in its pid namespace) {what}");
            return ("not-a-thread", text);
        }
    };
    (reason, text.to_owned())
}

/// Evidence for a finding on locks: who held those that threads of `pools` waited for.
pub(crate) fn held_by(profile: &Profile, pools: &[usize]) -> Option<Evidence> {
    let is_waiter = |row: &&LockRow| pools.contains(&profile.threads[row.thread].pool);
    let rows = profile.locks.held.iter().filter(|row| row.weight > 0);
    let rows: Vec<&LockRow> = rows.filter(is_waiter).collect();
    let is_told = |unknown: &Unknown| unknown.reason == "database";
    let lost_ns = sum(rows.iter().copied());
    let missing = unknown(profile, &rows, lost_ns);
    if !rows.iter().any(|row| row.holder.is_ok()) && !missing.iter().any(is_told) {
        return None;
    }
    // Stacks that differ below the function that says most are one line.
    let mut sums: BTreeMap<(String, State, String), u64> = BTreeMap::new();
    for hold in holds(profile, &rows, lost_ns) {
        let key = (hold.pool, hold.state, hold.function);
        *sums.entry(key).or_default() += hold.weight_ns;
    }
    let line = |name, weight_ns| EvidenceLine::new(name, weight_ns, lost_ns);
    let known = sums.into_iter().map(|((pool, state, function), ns)| {
        let place = format!("{pool} {}", state.frame());
        match function.as_str() {
            "" => line(place, ns),
            function => line(format!("{place} in {function}"), ns),
        }
    });
    let missing = missing
        .into_iter()
        .map(|u| line(format!("? {}", u.text), u.weight_ns));
    let mut lines: Vec<EvidenceLine> = known.chain(missing).collect();
    lines.sort_by_key(|line| Reverse(line.weight_ns));
    let subject = if pools.len() == 1 { "it" } else { "they" };
    let heading = format!("{HELD_BY}, % of the time that {subject} lost to locks");
    Some(Evidence::cut(heading, lines, MAX_LINES))
}
