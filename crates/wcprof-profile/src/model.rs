//! The profile's data. Ids are indices into the tables of the profile they came from. All ids that
//! [`ProfileBuilder`](crate::ProfileBuilder) puts into a profile are valid, save those of processes.

use std::collections::BTreeSet;
use std::sync::Arc;

use serde::{Deserialize, Serialize};
use wcprof_trace::model::{Header, Stats};
use wcprof_types::{Avma, BuildId, Pid, StackEnd, StopCause, Tid, Wait};

use crate::accounts::{AccountsChange, HostAccounts};
use crate::counters::ProcessCounters;
use crate::precision::Estimator;
pub use crate::slices::{MAX_SLICES, Slices, TimeAxis};

/// The module name of kernel places.
pub const KERNEL: &str = "[kernel]";

/// Begin of the name of code that no file holds and nothing named; its place is behind it.
pub const CODE_IN: &str = "[code in ";

/// What a thread did, as shown to a reader: the kernel's state refined by stack, wait and rules.
#[derive(Copy, Clone, PartialEq, Eq, Hash, PartialOrd, Ord, Debug, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum State {
    /// `[on-cpu]`
    OnCpu,
    /// `[guest]`
    Guest,
    /// `[runnable]`
    Runnable,
    /// `[lock]`
    Lock,
    /// `[disk]`
    Disk,
    /// `[net]`
    Net,
    /// `[sleep]`
    Sleep,
    /// `[idle]`: it waits for work, at the top of its pool's dispatch loop.
    Idle,
    /// `[blocked]`: any other wait.
    Blocked,
    /// `[steal/irq]`
    StealIrq,
    /// `[unknown]`: what was imported tells no state.
    Unknown,
    /// `[throttle]`: it is held back by a limit of its own program.
    Throttle,
    /// `[place-unknown]`: it waits in a way in which threads wait for work, but nothing shows whether
    /// it does: its pool hardly ran.
    PlaceUnknown,
    /// `[stopped]`: the kernel does not let it run until somebody lets it go on, whatever it did before: a
    /// stop signal, a frozen control group, a debugger, a core dump.
    Stopped,
    /// `[vm-exit]`: it ran in the kernel for a guest, not in it.
    VmExit,
}

impl State {
    /// Every value, in declaration order; `state as usize` is its place here.
    pub const ALL: [Self; 15] = [
        Self::OnCpu,
        Self::Guest,
        Self::Runnable,
        Self::Lock,
        Self::Disk,
        Self::Net,
        Self::Sleep,
        Self::Idle,
        Self::Blocked,
        Self::StealIrq,
        Self::Unknown,
        Self::Throttle,
        Self::PlaceUnknown,
        Self::Stopped,
        Self::VmExit,
    ];

    /// Its name, as in `[on-cpu]` without the brackets.
    pub fn name(self) -> &'static str {
        self.frame().trim_matches(['[', ']'])
    }

    /// Its frame in a stack, `[on-cpu]`.
    pub fn frame(self) -> &'static str {
        match self {
            Self::OnCpu => "[on-cpu]",
            Self::Guest => "[guest]",
            Self::Runnable => "[runnable]",
            Self::Lock => "[lock]",
            Self::Disk => "[disk]",
            Self::Net => "[net]",
            Self::Throttle => "[throttle]",
            Self::Sleep => "[sleep]",
            Self::Idle => "[idle]",
            Self::PlaceUnknown => "[place-unknown]",
            Self::VmExit => "[vm-exit]",
            Self::Blocked => "[blocked]",
            Self::StealIrq => "[steal/irq]",
            Self::Unknown => "[unknown]",
            Self::Stopped => "[stopped]",
        }
    }

    /// On a CPU: for itself, in a guest, or for one.
    pub fn is_running(self) -> bool {
        matches!(self, Self::OnCpu | Self::Guest | Self::VmExit)
    }

    /// Off-CPU in a wait that is not idle.
    pub fn is_waiting(self) -> bool {
        matches!(
            self,
            Self::Lock | Self::Disk | Self::Net | Self::Throttle | Self::Sleep | Self::Blocked
        )
    }

    /// In a wait for work, or in what looks like one.
    pub fn is_idle(self) -> bool {
        matches!(self, Self::Idle | Self::PlaceUnknown)
    }

    /// Neither idle nor stopped: what the program itself does or waits for.
    pub fn is_active(self) -> bool {
        !self.is_idle() && self != Self::Stopped
    }
}

/// Why a row has its state.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub enum Reason {
    /// The kernel says so.
    Kernel,
    /// A rule of the default table, by the system call and the functions at the leaf.
    Table(Arc<str>),
    /// A rule of the user or for a known program.
    Rule(Arc<str>),
    /// It waits at the top of its pool's dispatch loop.
    DispatchLoop,
    /// It waits below a function that works.
    BelowWork,
    /// It waits in a way in which threads wait for work, but its pool shows no dispatch loop.
    NoDispatchLoop,
    /// No rule covers the wait.
    NoRule,
}

impl std::fmt::Display for Reason {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Kernel => f.write_str("the kernel's state"),
            Self::Table(rule) => write!(f, "default: {rule}"),
            Self::Rule(rule) => write!(f, "rule: {rule}"),
            Self::DispatchLoop => f.write_str("top of the pool's dispatch loop"),
            Self::BelowWork => f.write_str("below a function that works"),
            Self::NoDispatchLoop => {
                f.write_str("may wait for work; the pool ran too little to show its dispatch loop")
            }
            Self::NoRule => f.write_str("no rule covers this wait"),
        }
    }
}

impl std::str::FromStr for State {
    type Err = UnknownState;

    /// From its name: `on-cpu`, `lock`, `steal/irq` ...
    fn from_str(name: &str) -> Result<Self, UnknownState> {
        Self::ALL
            .into_iter()
            .find(|s| s.name() == name)
            .ok_or_else(|| UnknownState(name.chars().take(40).collect()))
    }
}

/// A name that is no [`State`].
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
#[error(
    "unknown state {0:?} (known: on-cpu, guest, runnable, lock, disk, net, sleep, idle, blocked, steal/irq, unknown, throttle, place-unknown, stopped, vm-exit)"
)]
pub struct UnknownState(pub String);

/// Index into [`Profile::functions`].
#[derive(Copy, Clone, PartialEq, Eq, Hash, PartialOrd, Ord, Debug)]
pub struct FunctionId(pub u32);

/// Index into [`Profile::stacks`].
#[derive(Copy, Clone, PartialEq, Eq, Hash, PartialOrd, Ord, Debug)]
pub struct ProfileStackId(pub u32);

/// A function (or a stand-in for one), inline or not. What [`Detail`] tells apart are several of them.
#[derive(Clone, PartialEq, Eq, Hash, Debug, Default)]
pub struct Function {
    /// Full demangled name with arguments; `libcrypto.so.3+0x241c80` without a symbol; a bare
    /// `0x7f..` outside every module; the kernel's name for a kernel place.
    pub name: String,
    /// File name of its module (`libc.so.6`), `[kernel]`, or empty.
    pub module: String,
    /// The name comes from a symbol.
    pub resolved: bool,
    /// Where in its source the frame is; with [`Detail::Lines`] and [`Detail::Frames`], as far as known.
    pub source: Option<Source>,
    /// It is a part of the machine code of its caller, the next frame to the root; with
    /// [`Detail::Frames`].
    pub inlined: bool,
    /// Index of its module in [`Profile::modules`], which tells builds of one name apart; with
    /// [`Detail::Frames`], unless it is the kernel or in no module.
    pub image: Option<usize>,
}

impl Function {
    /// Its name, from the target: escape it for its destination.
    pub fn shown_name(&self) -> &str {
        match self.name.as_str() {
            "" => "???",
            name => name,
        }
    }

    /// Where it is, as far as a line is known: `AsyncConnection.cc:231`. From the target, too.
    pub fn place(&self) -> Option<String> {
        let Source { file, line } = self.source.as_ref().filter(|source| source.line > 0)?;
        let file = file.rsplit('/').next().unwrap_or_default();
        Some(format!("{file}:{line}"))
    }
}

/// A place in source code.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub struct Source {
    /// Path as the compiler was given it.
    pub file: String,
    /// Counted from 1; 0 when not known.
    pub line: u32,
}

/// Which frames of one function are kept apart.
#[derive(Copy, Clone, PartialEq, Eq, Debug, Default)]
pub enum Detail {
    /// None: a function is a name in a module.
    #[default]
    Functions,
    /// Those at several source lines.
    Lines,
    /// Also those that are inlined, and those of several builds of a module.
    Frames,
}

/// A stack of functions.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub struct ProfileStack {
    /// Root first; inline functions are frames of their own.
    pub frames: Vec<FunctionId>,
    /// Why the root-most frame has no caller.
    pub end: StackEnd,
}

/// A process of the profile.
#[derive(Clone, PartialEq, Debug)]
pub struct ProfileProcess {
    /// Its pid.
    pub pid: Pid,
    /// Its name.
    pub comm: String,
    /// Its control group's path; empty when the trace does not hold it.
    pub cgroup: String,
    /// What a user calls it: `osd.3`, the name of a virtual machine; else its name. With the number of them for
    /// one that stands for several: `sh ×417`.
    pub title: String,
    /// The class that a rule puts it in: `ceph-osd`, `qemu`; without one, its program.
    pub class: String,
    /// The host that it ran on.
    pub host: String,
    /// The id of the cluster that a Ceph process belongs to; empty when its arguments and control group do not say it.
    pub fsid: String,
    /// It stands for several, as its title says.
    pub is_folded: bool,
    /// Length of the recording that it is from, or of the window of it, ns.
    pub recorded_ns: u64,
    /// Why its part ended before the recording, if it did.
    pub ended: Option<String>,
    /// What the kernel accounted on its host; processes of one recording have the same.
    pub accounts: Arc<HostAccounts>,
    /// What it counted meanwhile.
    pub counters: ProcessCounters,
}

/// A loaded ELF image: which program was recorded.
#[derive(Clone, PartialEq, Eq, Hash, PartialOrd, Ord, Debug)]
pub struct ProfileModule {
    /// Its file name (`libc.so.6`).
    pub name: String,
    /// Its build-id; `None` when it has none or could not be read.
    pub build_id: Option<BuildId>,
    /// Its path in the target's mount namespace; of several the first in order.
    pub path: String,
}

/// A thread of the profile.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct ProfileThread {
    /// Index into [`Profile::processes`].
    pub process: usize,
    /// Its process.
    pub pid: Pid,
    /// The process's name.
    pub process_comm: String,
    /// Its tid; 0 for the pseudo-thread of threads that exited unseen.
    pub tid: Tid,
    /// Last name seen.
    pub comm: String,
    /// Index into [`Profile::pools`].
    pub pool: usize,
    /// Ticks that observed it.
    pub n_ticks: u64,
    /// Time it was observed, ns.
    pub observed_ns: u64,
}

/// Threads of one process whose names differ only in a number, or that a rule names.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Pool {
    /// Its name, such as `msgr-worker-N`.
    pub name: String,
    /// Index of its process in [`Profile::processes`].
    pub process: usize,
    /// Its process's pid; processes of several hosts can have the same.
    pub pid: Pid,
    /// Indices into [`Profile::threads`].
    pub threads: Vec<usize>,
    /// A rule says that its threads are alike, as processes of one class are.
    pub is_fleet: bool,
}

/// Time of one thread in one state with one stack.
#[derive(Clone, PartialEq, Debug)]
pub struct Row {
    /// Index into [`Profile::threads`].
    pub thread: usize,
    /// What it did.
    pub state: State,
    /// Why it has this state.
    pub reason: Reason,
    /// Its stack; `None` when none was sampled (`[on-cpu, not sampled]`).
    pub stack: Option<ProfileStackId>,
    /// Index into [`Profile::waits`]; only for waits.
    pub wait: Option<u32>,
    /// Nanoseconds of wall-clock time.
    pub weight: u64,
    /// Observations it stands on.
    pub n_samples: u64,
    /// `weight` over time.
    pub slices: Slices,
}

/// Time of one thread lost to one lock while one other held it.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub struct LockRow {
    /// The waiting thread: index into [`Profile::threads`].
    pub thread: usize,
    /// Its stack.
    pub stack: Option<ProfileStackId>,
    /// The lock; `None` in recordings that do not hold it.
    pub address: Option<Avma>,
    /// Its kind.
    pub kind: LockKind,
    /// It is a recursive mutex.
    pub recursive: bool,
    /// Who held it.
    pub holder: Result<Holder, UnknownHolder>,
    /// Nanoseconds of wall-clock time.
    pub weight: u64,
}

/// Time in which threads waited for what another one holds.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct LockRows {
    /// The time in [`State::Lock`], by who held the locks.
    pub held: Vec<LockRow>,
    /// The time in which threads waited for the end of another one (`pthread_join`), by that one.
    pub joins: Vec<LockRow>,
    /// Circles of threads that wait for each other's locks.
    pub deadlocks: Vec<Deadlock>,
}

/// Threads of which each waits for what the next one holds, and the last for what the first one holds; one that waits for a lock
/// of its own is a circle of one.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Deadlock {
    /// Never empty.
    pub threads: Vec<DeadlockedThread>,
}

/// A thread in a circle.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct DeadlockedThread {
    /// Index into [`Profile::threads`].
    pub thread: usize,
    /// The lock that it waits for, which the next thread holds.
    pub address: Avma,
    /// The lock's kind.
    pub kind: LockKind,
    /// Where it waits.
    pub stack: Option<ProfileStackId>,
    /// How long nothing changed while that was looked at, ns; of a core file it says nothing.
    pub seen_ns: u64,
}

/// Kinds of locks, as far as they matter for who holds them.
#[derive(Copy, Clone, PartialEq, Eq, Hash, PartialOrd, Ord, Debug, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum LockKind {
    /// A pthread mutex.
    Mutex,
    /// A pthread rwlock, wanted for reading.
    RwlockRead,
    /// A pthread rwlock, wanted for writing.
    RwlockWrite,
    /// No lock: the end of a thread, which is as good as its owner. Only in [`LockRows::joins`].
    Join,
    /// Any other: its memory does not name the owner.
    Other,
}

/// The thread that held a lock, at the tick at which that was looked at.
#[derive(Copy, Clone, PartialEq, Eq, Hash, PartialOrd, Ord, Debug)]
pub struct Holder {
    /// The thread. It may be one that a filter has left out of the profile.
    pub tid: Tid,
    /// Its pool: index into [`Profile::pools`].
    pub pool: usize,
    /// What it did.
    pub state: State,
    /// Its stack; `None` when there is none of that tick.
    pub stack: Option<ProfileStackId>,
    /// The waiter or the owner ran between its own observation and the look at the lock: the
    /// owner may be a later one, or its stack an older one.
    pub uncertain: bool,
}

/// Why it is not known who held a lock.
#[derive(Copy, Clone, PartialEq, Eq, Hash, PartialOrd, Ord, Debug)]
pub enum UnknownHolder {
    /// This kind of lock does not record its owner.
    NotRecorded,
    /// Nobody looked: the wait was too short, or too many locks were waited for.
    NotLooked,
    /// It was free or on its way to the next owner.
    Changed,
    /// It was the waiter's own by then, or the waiter waits for itself.
    Itself,
    /// Readers, of which none is recorded.
    Readers,
    /// Its owner died.
    Died,
    /// This tid (of the target's own pid namespace) is no thread that was recorded: one that has
    /// exited, of another process, or left out.
    NotAThread(i32),
}

/// A symbolized, classified, aggregated trace.
#[derive(Clone, PartialEq, Debug, Default)]
pub struct Profile {
    /// The trace's header.
    pub header: Header,
    /// The counts of the whole recording.
    pub stats: Stats,
    /// Which part of the recording the rows are about, and how it is sliced.
    pub time: TimeAxis,
    /// Processes in the order of the trace.
    pub processes: Vec<ProfileProcess>,
    /// Modules, distinct by name and build-id, in order.
    pub modules: Vec<ProfileModule>,
    /// Functions.
    pub functions: Vec<Function>,
    /// Distinct stacks of functions.
    pub stacks: Vec<ProfileStack>,
    /// Threads in the order of the trace.
    pub threads: Vec<ProfileThread>,
    /// Pools.
    pub pools: Vec<Pool>,
    /// Distinct waits.
    pub waits: Vec<Wait>,
    /// One row for each distinct (thread, state, stack, wait).
    pub rows: Vec<Row>,
    /// The time in which threads waited for what another one holds.
    pub locks: LockRows,
}

impl Profile {
    /// Length of what the rows are about, ns: of the recording or of a window of it, without gaps.
    pub fn duration_ns(&self) -> u64 {
        match self.time.is_window {
            true => self.time.covered_ns(),
            false => self.whole_ns(),
        }
    }

    /// The functions on the stack of a row, leaf first; none without a stack.
    pub fn leaf_first(&self, row: &Row) -> impl Iterator<Item = &Function> + Clone {
        let stack = row.stack.and_then(|id| self.stacks.get(id.0 as usize));
        let frames = stack.map_or(&[][..], |stack| &stack.frames);
        let functions = frames.iter().rev();
        functions.filter_map(|id| self.functions.get(id.0 as usize))
    }

    /// Takes what the kernel accounted in a time that need not be the profile's own, where nothing else is known of it.
    pub fn set_change(&mut self, change: &AccountsChange) {
        let mut hosts: Vec<(Arc<HostAccounts>, Arc<HostAccounts>)> = Vec::new();
        let unknown = self.processes.iter_mut().map(|one| &mut one.accounts);
        for accounts in unknown.filter(|accounts| accounts.change.is_none()) {
            // Processes of one host share what was read of it.
            let known = hosts
                .iter()
                .find(|(before, _)| Arc::ptr_eq(before, accounts));
            let with_change = known.map(|(_, now)| Arc::clone(now)).unwrap_or_else(|| {
                let mut host = (**accounts).clone();
                host.change = Some(change.clone());
                let host = Arc::new(host);
                hosts.push((Arc::clone(accounts), Arc::clone(&host)));
                host
            });
            *accounts = with_change;
        }
    }

    /// The cause that stops a thread in a row of [`State::Stopped`]; a signal where nothing else is known.
    pub fn stop_cause(&self, row: &Row) -> StopCause {
        let wait = row.wait.and_then(|wait| self.waits.get(wait as usize));
        wait.and_then(|wait| wait.stop).unwrap_or(StopCause::Signal)
    }

    /// When what the rows are about began, ns since 1970 (UTC).
    pub fn began_unix_ns(&self) -> u64 {
        let start = self.time.start.0;
        self.header.started_unix_ns.saturating_add(start)
    }

    /// The same with the gaps.
    pub fn extent_ns(&self) -> u64 {
        match self.time.is_window {
            true => self.time.duration_ns(),
            false => self.stats.duration.0,
        }
    }

    /// Length of the whole recording, ns, whatever the rows are about; without the gaps of a merged one.
    pub fn whole_ns(&self) -> u64 {
        self.stats.duration.0.saturating_sub(self.time.all_gaps_ns)
    }

    /// What a user calls the process of a thread: `osd.3`, the name of a virtual machine; else its name.
    pub fn process_title<'p>(&'p self, thread: &'p ProfileThread) -> &'p str {
        let process = self.process_of(thread);
        process.map_or(&thread.process_comm, |p| &p.title)
    }

    /// What gives confidence intervals to weights; `None` when it is too short for them.
    pub fn estimator(&self) -> Option<Estimator> {
        Estimator::new(&self.time, self.header.rate_hz)
    }

    /// The process of a thread.
    pub fn process_of(&self, thread: &ProfileThread) -> Option<&ProfileProcess> {
        self.processes.get(thread.process)
    }
}

/// Distinct processes in order, each as `name (pid N)`; not escaped.
pub fn process_names<'p>(processes: impl Iterator<Item = (Pid, &'p str)>) -> Vec<String> {
    let distinct: BTreeSet<_> = processes.collect();
    let names = distinct.into_iter();
    names
        .map(|(pid, name)| format!("{name} (pid {pid})"))
        .collect()
}
