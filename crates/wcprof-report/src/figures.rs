//! A profile to the figures of the first screen: what the threads of each pool do, where they wait.

use std::cmp::Reverse;
use std::collections::HashMap;

use indexmap::IndexMap;
use wcprof_profile::model::{FunctionId, Holder, LockRow, Profile, ProfileStackId, Row, State};
use wcprof_profile::short;
use wcprof_profile::{CategoryTime, NOT_SAMPLED, OwnFunctions, VmExits, syscall_name, waits_in};
use wcprof_text::{duration, percent, terminal_name};

/// The columns of the pools, and the states that each adds up.
pub const COLUMNS: [(&str, &[State]); 5] = [
    ("running", &[State::OnCpu, State::Guest, State::VmExit]),
    ("cpu-wait", &[State::Runnable, State::StealIrq]),
    ("lock", &[State::Lock]),
    ("disk", &[State::Disk]),
    (
        "other",
        &[State::Net, State::Throttle, State::Sleep, State::Blocked],
    ),
];

/// Fewest threads on average that are not 0.00.
pub(crate) const MIN_SHOWN: f64 = 0.005;

/// What the threads of all pools of one name did.
#[derive(Debug)]
pub(crate) struct PoolTimes<'p> {
    /// Not escaped.
    pub(crate) name: &'p str,
    pub(crate) n_threads: usize,
    /// Nanoseconds, in the order of [`State::ALL`].
    states: [u64; State::ALL.len()],
}

impl PoolTimes<'_> {
    /// Time in some states, ns.
    pub(crate) fn total(&self, of: &[State]) -> u64 {
        let times = of.iter().map(|state| self.states[*state as usize]);
        times.fold(0, u64::saturating_add)
    }

    /// Time in all [`COLUMNS`], ns.
    pub(crate) fn busy(&self) -> u64 {
        let columns = COLUMNS.iter().map(|(_, of)| self.total(of));
        columns.fold(0, u64::saturating_add)
    }
}

/// The busiest pools, at most `max`, and the others: how many, and threads on average of all of them.
pub(crate) fn busiest_pools(profile: &Profile, max: usize) -> (Vec<PoolTimes<'_>>, usize, f64) {
    let mut shown = pools(profile);
    let is_shown = |pool: &&PoolTimes<'_>| at_a_time(profile, pool.busy()) >= MIN_SHOWN;
    let n_shown = shown.iter().take(max).filter(is_shown).count();
    let others = shown.split_off(n_shown);
    let rest = others.iter().map(PoolTimes::busy);
    let rest = rest.fold(0_u64, u64::saturating_add);
    (shown, others.len(), at_a_time(profile, rest))
}

/// The pools, the busiest first.
fn pools(profile: &Profile) -> Vec<PoolTimes<'_>> {
    let mut pools: IndexMap<&str, PoolTimes<'_>> = IndexMap::new();
    let name_of = |thread: usize| {
        let pool = profile.pools.get(profile.threads[thread].pool);
        pool.map(|pool| pool.name.as_str())
    };
    for (at, thread) in profile.threads.iter().enumerate() {
        if let Some(name) = name_of(at) {
            let pool = pools.entry(name).or_insert(PoolTimes {
                name,
                n_threads: 0,
                states: [0; State::ALL.len()],
            });
            pool.n_threads += usize::from(thread.tid.0 != 0);
        }
    }
    for row in &profile.rows {
        if let Some(pool) = name_of(row.thread).and_then(|name| pools.get_mut(name)) {
            let sum = &mut pool.states[row.state as usize];
            *sum = sum.saturating_add(row.weight);
        }
    }
    let mut pools: Vec<_> = pools.into_values().collect();
    pools.sort_by_cached_key(|pool| (Reverse(pool.busy()), pool.name));
    pools
}

/// Threads at a time, on average, of a sum of time.
pub fn at_a_time(profile: &Profile, ns: u64) -> f64 {
    ns as f64 / profile.duration_ns().max(1) as f64
}

/// What [`amount`] gives: `time`, or `threads` of snapshots.
pub(crate) fn amount_of(profile: &Profile) -> &'static str {
    match profile.header.n_snapshots {
        0 => "time",
        _ => "threads",
    }
}

/// A sum of time: `1.23 s`; of snapshots, which have none, threads in each: `3 thr`.
pub fn amount(profile: &Profile, ns: u64) -> String {
    if profile.header.n_snapshots == 0 {
        return duration(ns);
    }
    let n = at_a_time(profile, ns);
    let digits = if n.fract() == 0.0 { 0 } else { 2 };
    format!("{n:.digits$} thr")
}

/// Threads at a time of a sum of time as text.
pub(crate) fn at_a_time_text(profile: &Profile, ns: u64) -> String {
    threads_text(at_a_time(profile, ns))
}

/// Threads at a time as text: `0.45`, or `-` for none.
pub fn threads_text(n: f64) -> String {
    if n > 0.0 {
        format!("{n:.2}")
    } else {
        "-".to_owned()
    }
}

/// Least share of CPU time of which no stack is known that is shown, percent.
const MIN_UNKNOWN: f64 = 1.0;

/// A kind of work as it is shown.
#[derive(Debug)]
pub(crate) struct KindOfWork<'a> {
    pub(crate) category: &'a CategoryTime,
    /// Not escaped.
    pub(crate) name: &'a str,
    /// Of the CPU time of all kinds.
    pub(crate) percent: f64,
}

/// The `max` largest kinds of work, and the time of which no stack is known: whatever that was spent on would come
/// before some of them.
pub(crate) fn kinds_of_work(categories: &[CategoryTime], max: usize) -> Vec<KindOfWork<'_>> {
    let times = categories.iter().map(|category| category.weight);
    let on_cpu = times.fold(0, u64::saturating_add);
    let kinds = categories.iter().filter(|category| category.weight > 0);
    let kinds = kinds.map(|category| KindOfWork {
        category,
        name: category.name.as_deref().unwrap_or("other code"),
        percent: percent(category.weight, on_cpu),
    });
    let (unknown, known): (Vec<_>, Vec<_>) = kinds.partition(|kind| kind.name == NOT_SAMPLED);
    let unknown = unknown
        .into_iter()
        .filter(|kind| kind.percent >= MIN_UNKNOWN);
    known.into_iter().take(max).chain(unknown).collect()
}

/// What is said of CPU time without a stack where threads ran too briefly for the timer.
const TOO_BRIEF: &str = "threads that ran too briefly to be sampled; a higher --rate sees them";

/// Periods of the timer for which a thread may run and still often have no sample: e^-3 of such threads have none.
const BRIEF_PERIODS: u64 = 3;

/// Whether threads without samples ran so briefly that chance explains it.
fn ran_briefly(profile: &Profile) -> bool {
    let rate = u64::from(profile.header.rate_hz);
    if rate == 0 || profile.stats.n_timer_samples == 0 {
        return false;
    }
    let rows = profile.rows.iter();
    let rows = rows.filter(|row| row.state.is_running() && row.stack.is_none());
    let mut unsampled: HashMap<usize, u64> = HashMap::new();
    for row in rows {
        let sum = unsampled.entry(row.thread).or_default();
        *sum = sum.saturating_add(row.weight);
    }
    let n_threads = unsampled.len() as u64;
    let weight = unsampled.into_values().fold(0, u64::saturating_add);
    n_threads > 0 && weight / n_threads <= BRIEF_PERIODS * 1_000_000_000 / rate
}

/// The functions that ask most for a kind of work; of CPU time without a stack, why it has none, if that is known. Not escaped.
pub(crate) fn callers(profile: &Profile, category: &CategoryTime) -> String {
    if category.name.as_deref() == Some(NOT_SAMPLED) {
        let why = ran_briefly(profile).then_some(TOO_BRIEF);
        return why.unwrap_or_default().to_owned();
    }
    let callers = category.callers.iter().take(3);
    let callers = callers.filter_map(|(f, _)| profile.functions.get(f.0 as usize));
    let callers: Vec<String> = callers.map(|f| short(&f.name)).collect();
    callers.join(", ")
}

/// Reasons of exits that are shown.
const MAX_REASONS: usize = 4;

/// `147024 VM exits a second (io 147002, irq 20)`, or `VM exits a second: io 147002` where nobody counts all of them; the reasons'
/// names are escaped.
pub(crate) fn vm_exits_text(exits: &VmExits) -> String {
    let reasons = exits.reasons.iter().take(MAX_REASONS);
    let reasons = reasons.filter(|(_, rate)| *rate >= 0.5);
    let reasons = reasons.map(|(name, rate)| format!("{} {rate:.0}", terminal_name(name)));
    let reasons = reasons.collect::<Vec<_>>().join(", ");
    let polling = match exits.polling {
        cores if cores >= MIN_SHOWN => format!("; halt polling {cores:.2} cores"),
        _ => String::new(),
    };
    let counted = match (exits.per_second >= 0.5, reasons.is_empty()) {
        (true, true) => format!("{:.0} VM exits a second", exits.per_second),
        (true, false) => format!("{:.0} VM exits a second ({reasons})", exits.per_second),
        (false, true) => "no VM exits".to_owned(),
        (false, false) => format!("VM exits a second: {reasons}"),
    };
    counted + &polling
}

/// Waits at one place. Texts are not escaped.
#[derive(Debug)]
pub(crate) struct WaitSite {
    pub(crate) state: State,
    /// The system call, where the state says no more than that it is a wait.
    call: &'static str,
    /// `callee < caller`, the innermost functions of the program.
    pub(crate) place: String,
    /// Of locks: who held them most of the time, or that no holder was seen; of threads that are waited for: which, as far as known.
    pub(crate) holder: Option<String>,
    /// Nanoseconds.
    pub(crate) weight: u64,
}

impl WaitSite {
    /// The state, with the system call.
    pub(crate) fn state_text(&self) -> String {
        match self.call {
            "" => self.state.name().to_owned(),
            call => format!("{} ({call})", self.state.name()),
        }
    }
}

/// The waits other than idle ones, most time first. Of snapshots also where threads wait for work, behind the others: who looks
/// at one moment of a process asks where each thread stands.
pub(crate) fn wait_sites(profile: &Profile) -> Vec<WaitSite> {
    let own = &OwnFunctions::new(profile);
    let mut sites: IndexMap<(State, &str, String), u64> = IndexMap::new();
    let has_idle = profile.header.n_snapshots > 0;
    let is_shown = |state: State| state.is_waiting() || has_idle && state.is_idle();
    for row in profile.rows.iter().filter(|r| is_shown(r.state)) {
        let place = place(profile, own, row.stack, 2);
        let call = call(profile, row).unwrap_or_default();
        let sum = sites.entry((row.state, call, place)).or_default();
        *sum = sum.saturating_add(row.weight);
    }
    sites.sort_by(|a, m, b, n| {
        let is_behind = |(state, ..): &(State, &str, String)| state.is_idle();
        let by_time = is_behind(a).cmp(&is_behind(b)).then_with(|| n.cmp(m));
        by_time.then_with(|| a.cmp(b))
    });
    let holders = most(profile, own, &profile.locks.held, |row| {
        Some(holder_text(profile, own, row.holder.ok()?))
    });
    let ends = most(profile, own, &profile.locks.joins, |row| {
        end_text(profile, row.holder.ok()?)
    });
    let site = |((state, call, place), weight): ((State, _, String), u64)| WaitSite {
        state,
        call,
        holder: match state {
            State::Lock => Some(
                holders
                    .get(&place)
                    .map_or(NOT_SEEN, String::as_str)
                    .to_owned(),
            ),
            State::Blocked if call == "futex" => ends.get(&place).cloned(),
            _ => None,
        },
        place,
        weight,
    };
    sites.into_iter().map(site).collect()
}

/// The system call of a wait whose state says no more than that it is one.
fn call(profile: &Profile, row: &Row) -> Option<&'static str> {
    let wait = row.wait.filter(|_| row.state == State::Blocked)?;
    let wait = profile.waits.get(wait as usize)?;
    syscall_name(wait.syscall?)
}

/// The innermost `n` functions of the program in a stack that say what it does: `callee < caller`.
fn place(profile: &Profile, own: &OwnFunctions, stack: Option<ProfileStackId>, n: usize) -> String {
    let stack = stack.and_then(|id| profile.stacks.get(id.0 as usize));
    let frames = stack.map_or(&[][..], |stack| &stack.frames);
    let leaf_first: Vec<FunctionId> = frames.iter().rev().copied().collect();
    let function = |f: FunctionId| profile.functions.get(f.0 as usize);
    let says = own.own(&leaf_first).filter_map(function).take(n);
    let mut names: Vec<String> = says.map(|f| short(&f.name)).collect();
    names.dedup();
    if names.is_empty() {
        let functions = leaf_first.iter().filter_map(|f| function(*f));
        names.extend(waits_in(functions).map(|f| short(&f.name)));
    }
    names.join(" < ")
}

/// What is said of rows most of the time, by the place that is waited at.
fn most(
    profile: &Profile,
    own: &OwnFunctions,
    rows: &[LockRow],
    text: impl Fn(&LockRow) -> Option<String>,
) -> HashMap<String, String> {
    let mut sums: HashMap<String, HashMap<String, u64>> = HashMap::new();
    for row in rows {
        if let Some(text) = text(row) {
            let of_site = sums.entry(place(profile, own, row.stack, 2)).or_default();
            let sum = of_site.entry(text).or_default();
            *sum = sum.saturating_add(row.weight);
        }
    }
    let most = sums.into_iter().filter_map(|(site, texts)| {
        let texts = texts.into_iter();
        let most = texts.max_by(|a, b| (a.1, &b.0).cmp(&(b.1, &a.0)))?;
        Some((site, most.0))
    });
    most.collect()
}

/// What is said of a lock whose holder no tick found.
const NOT_SEEN: &str = "holder not seen";

/// Who held a lock, and what it did meanwhile.
fn holder_text(profile: &Profile, own: &OwnFunctions, holder: Holder) -> String {
    let does = does(holder.state);
    match place(profile, own, holder.stack, 1) {
        held_at if held_at.is_empty() => {
            format!("held by a thread whose stack was not read ({does})")
        }
        held_at => format!("held by {held_at} ({does})"),
    }
}

/// What a thread does, in words.
fn does(state: State) -> &'static str {
    match state {
        State::OnCpu | State::Guest | State::VmExit => "running",
        State::Runnable | State::StealIrq => "waiting for a CPU",
        State::Lock => "waiting for a lock",
        State::Disk => "waiting for the disk",
        State::Net => "waiting for the network",
        State::Sleep => "sleeping",
        State::Throttle => "throttled",
        State::Blocked => "waiting",
        State::Idle => "idle",
        State::PlaceUnknown => "waiting, probably for work",
        State::Stopped => "stopped",
        State::Unknown => "state not known",
    }
}

/// Whose end is waited for: a thread by its name, or its pool's, and what it does.
fn end_text(profile: &Profile, holder: Holder) -> Option<String> {
    let pool = profile.pools.get(holder.pool)?;
    Some(format!("until {} ends ({})", pool.name, does(holder.state)))
}
