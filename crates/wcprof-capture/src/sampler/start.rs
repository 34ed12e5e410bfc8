//! Chooses the engine and opens what it needs.

use std::collections::BTreeSet;
use std::fmt;
use std::io::{BufRead, BufReader};
use std::sync::Arc;

use nix::errno::Errno;
use thiserror::Error;
use wcprof_types::{Avma, Pid, Tid, cpu_list};

use super::arrivals::Arrivals;
use super::budget::CpuBudget;
use super::children::Births;
use super::clock::TickClock;
use super::outbox::Outbox;
use super::pulse::isolated_note;
use super::state::{HeldTicks, KernelSource, Sampler};
use super::targets::Targets;
use super::threads::{KeepThread, ThreadTable};
use crate::batch::TargetId;
use crate::bpf::{BpfError, MAX_TARGETS};
use crate::engine::{BpfSnapshots, EngineKind, ProcfsSnapshots, SnapshotSet, Snapshots};
use crate::sys::{process_vm_readv_reaches_kernel, raise_open_files};
use wcprof_host::Target;
use wcprof_host::fds::may_have_workers;
use wcprof_host::procfs::{list_threads, live_task, open, read_file, read_text};
use wcprof_host::sys::{CAP_SYS_PTRACE, has_capability};
use wcprof_host::{read_in_time, read_memory, readable_address};
use wcprof_perf::{
    CpuPolicy, PerfError, PerfMode, PerfOptions, PerfSampler, isolated_cpus, online_cpus,
};

/// Stack copied with each timer sample, as far as there is so much of it; deeper stacks are
/// continued from live memory. Ceph's messenger has a frame with 1024 iovecs, 16 KiB.
pub(crate) const DUMP_BYTES: u32 = 32 << 10;

/// Descriptors of wcprof itself: standard streams, trace, event loop, BPF objects, debug files.
pub(crate) const OWN_FILES: usize = 48;
/// Descriptors for each process that joins: itself, its root, an iterator, and a file of its own.
const FILES_OF_PROCESS: usize = 4;

/// Modules of a process that are taken in, the largest ones: any user can map more, which hold nothing.
pub const MAX_MODULES: usize = 2048;
/// Files of modules that are held open for all processes: those of hundreds of containers.
pub const MAX_MODULE_FILES: usize = 16 << 10;
/// Files beside those that are mapped now and a third of them: of libraries that are loaded later. One user's processes may
/// take three quarters.
const MORE_MODULE_FILES: usize = 16;

/// What to sample and how.
pub struct SamplerOptions {
    /// Ticks a second, 1 to 1000.
    pub rate_hz: u32,
    /// Most CPU that wcprof may use, percent of one core.
    pub max_cpu_percent: u32,
    /// This engine and no other; `None`: the best that works.
    pub engine: Option<EngineKind>,
    /// Kernel stacks, too; `None`: where they are cheap and have names, which is with the engine `bpf`.
    pub kernel: Option<bool>,
    /// Processes that targets start meanwhile, too.
    pub children: bool,
    /// Processes that another thread finds meanwhile, too.
    pub arrivals: Option<Arrivals>,
    /// Where timers may be.
    pub cpus: CpuPolicy,
    /// Whether a thread of this name is wanted; `None` for all.
    pub keep_thread: Option<KeepThread>,
}

impl Default for SamplerOptions {
    /// 99 ticks a second, 20 % of a core, the best engine, the targets alone.
    fn default() -> Self {
        Self {
            rate_hz: 99,
            max_cpu_percent: 20,
            engine: None,
            kernel: None,
            children: false,
            arrivals: None,
            cpus: CpuPolicy::default(),
            keep_thread: None,
        }
    }
}

impl fmt::Debug for SamplerOptions {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("SamplerOptions")
            .field("rate_hz", &self.rate_hz)
            .field("max_cpu_percent", &self.max_cpu_percent)
            .field("engine", &self.engine)
            .field("kernel", &self.kernel)
            .finish_non_exhaustive()
    }
}

/// Why sampling cannot start.
#[derive(Debug, Error)]
pub enum StartError {
    /// Memory of the target cannot be read, so no engine can see stacks.
    #[error(
        "failed to read the memory of pid {pid}: {cause} (kernel.yama.ptrace_scope is {yama}): {reason}; no engine works without it"
    )]
    Memory {
        /// The target.
        pid: Pid,
        /// What `process_vm_readv` answered.
        cause: Errno,
        /// Value of the sysctl, or `not set`.
        yama: String,
        /// The likely cause and what to do.
        reason: &'static str,
    },
    /// The BPF engine was asked for and does not work.
    #[error("engine bpf does not work here: {0}; try --engine procfs")]
    Bpf(#[source] BpfError),
    /// An engine with perf was asked for and perf does not work.
    #[error("engine {engine} does not work here: {source}; try --engine procfs-only")]
    Perf {
        /// The engine.
        engine: EngineKind,
        /// Why.
        source: PerfError,
    },
    /// Files of `/proc` that an engine without BPF reads of every thread are refused.
    #[error(
        "engine {engine} does not work here: failed to read `{file}`: {cause}; another user's process needs CAP_SYS_PTRACE and CAP_DAC_READ_SEARCH"
    )]
    ThreadFiles {
        /// The engine.
        engine: EngineKind,
        /// The file of the target's first thread.
        file: String,
        /// Why.
        cause: std::io::Error,
    },
    /// The only target, or the first of them all, exited before sampling began.
    #[error("process {0} ended before it could be recorded")]
    Ended(Pid),
    /// There is nothing to sample.
    #[error("no process to record")]
    NoTarget,
    /// RLIMIT_NOFILE is too low for any engine.
    #[error(
        "RLIMIT_NOFILE is {limit}, but recording {n_targets} processes takes at least {need} open files: raise it (`ulimit -Hn` as root, LimitNOFILE= of a service)"
    )]
    OpenFiles {
        /// Processes that are to be recorded.
        n_targets: usize,
        /// The hard limit.
        limit: u64,
        /// Descriptors for wcprof itself and for each process, without the files that it maps.
        need: usize,
    },
}

/// CPU time between two timer samples. A little less than the tick interval, by a ratio that no
/// small fraction comes near: were both the same, the timer could fall into every tick, when
/// wcprof itself is on the CPU, and never see the target there.
pub(super) fn timer_period_ns(rate_hz: u32) -> u64 {
    (1_000_000_000 / u64::from(rate_hz.max(1))) * 618 / 641
}

impl Sampler {
    /// Opens the best engine that works, or the one asked for. The ids of `targets` are their
    /// places in the list.
    pub fn new(targets: &[Arc<Target>], options: SamplerOptions) -> Result<Self, StartError> {
        let mut members = Targets::default();
        for target in targets {
            check_memory(target)?;
            members.add(Arc::clone(target));
        }
        let mut notes = Vec::new();
        let others_join = options.children || options.arrivals.is_some();
        if targets.is_empty()
            && !options
                .arrivals
                .as_ref()
                .is_some_and(Arrivals::is_expecting)
        {
            return Err(StartError::NoTarget);
        }
        let files = FileBudget::new(targets, others_join, &mut notes)?;
        members.room.module_files = files.modules;
        members.room.max_alive = (targets.len() + files.joining).min(MAX_TARGETS);
        let start = Start {
            targets: &members,
            period_ns: timer_period_ns(options.rate_hz),
            // Names of addresses are looked up after the recording; where that will not work, the
            // kernel can still name its functions itself.
            by_address: options.kernel != Some(false) && kernel_names_readable(),
            is_kernel_wanted: options.kernel == Some(true),
            files,
            cpus: options.cpus,
        };
        let opened = start.open(options.engine, &mut notes);
        // What opening says of processes that are gone is about no engine.
        let may_join = options.children || options.arrivals.is_some();
        if let Some(first) = targets.first()
            && !may_join
            && targets.iter().all(|target| target.has_exited())
        {
            return Err(StartError::Ended(first.pid()));
        }
        let (engine, snapshots, perf) = opened?;
        let has_kernel_stacks = snapshots.has_kernel_stacks();
        let kernel = match (options.kernel, has_kernel_stacks) {
            (Some(false), _) => KernelSource::None,
            (_, true) => KernelSource::Engine,
            (None, false) if targets.iter().any(|t| may_have_workers(t.pid())) => {
                KernelSource::Workers
            }
            (None, false) => KernelSource::None,
            (Some(true), false) => KernelSource::Procfs,
        };
        if start.is_kernel_wanted
            && let Some(first) = targets.first()
        {
            notes.extend(kernel_note(first, kernel, start.by_address));
        }
        members.births = options.children.then(Births::new);
        members.arrivals = options.arrivals;
        members.cpus.cpus = perf.as_ref().map(PerfSampler::cpus).unwrap_or_default();
        let budget = CpuBudget::new(options.rate_hz, options.max_cpu_percent);
        Ok(Self {
            engine,
            notes,
            snapshots,
            perf,
            kernel,
            targets: members,
            threads: ThreadTable {
                keep_thread: options.keep_thread,
                ..ThreadTable::default()
            },
            clock: TickClock::new(budget.interval(), 0),
            budget,
            held: HeldTicks::default(),
            set: SnapshotSet::default(),
            outbox: Outbox::default(),
        })
    }
}

/// How the descriptors that RLIMIT_NOFILE leaves are shared out.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
struct FileBudget {
    /// Timers of single threads.
    events: usize,
    /// Files of `/proc` that are held open.
    held: usize,
    /// Processes that may join.
    joining: usize,
    /// Files of modules that are held open.
    modules: usize,
}

impl FileBudget {
    /// Raises the limit as far as permitted. What has no room in it is said in `notes`.
    fn new(
        targets: &[Arc<Target>],
        others_join: bool,
        notes: &mut Vec<String>,
    ) -> Result<Self, StartError> {
        let limit = raise_open_files();
        let (n_modules, most) = module_files(targets);
        // Of each process itself, its root and an iterator.
        let need = OWN_FILES + 3 * targets.len() + online_cpus().len();
        let budget = Self::of(limit, need, n_modules, others_join);
        let budget = budget.ok_or(StartError::OpenFiles {
            n_targets: targets.len(),
            limit,
            need,
        })?;
        if let Some((pid, n)) = most.filter(|_| budget.modules < n_modules) {
            let modules = budget.modules;
            notes.push(format!(
                "stacks through some modules are incomplete: RLIMIT_NOFILE of {limit} permits to open {modules} of {n_modules} files, {n} of which pid {pid} maps; raise it (`ulimit -Hn`)"
            ));
        }
        Ok(budget)
    }

    /// `need` descriptors are taken in any case; `n_modules` files are mapped.
    fn of(limit: u64, need: usize, n_modules: usize, others_join: bool) -> Option<Self> {
        let limit = usize::try_from(limit).unwrap_or(usize::MAX);
        let rest = limit.checked_sub(need)?;
        // Any process can map as many as it likes: they never take what timers need.
        let wanted = n_modules.saturating_add(n_modules / 3 + MORE_MODULE_FILES);
        let modules = wanted.min(MAX_MODULE_FILES).min(rest / 2);
        let rest = rest - modules;
        let joining = match others_join {
            true => (rest / 2 / FILES_OF_PROCESS).min(MAX_TARGETS),
            false => 0,
        };
        let rest = rest - joining * FILES_OF_PROCESS;
        Some(Self {
            events: rest - rest / 3,
            held: rest / 3,
            joining,
            modules: (modules + joining).min(MAX_MODULE_FILES),
        })
    }
}

/// Files of modules that will be held open, and the process that maps most of them with their number.
fn module_files(targets: &[Arc<Target>]) -> (usize, Option<(Pid, usize)>) {
    let mut all: BTreeSet<((u32, u32), u64)> = BTreeSet::new();
    let mut most = None;
    for target in targets {
        let mappings = target.mappings().unwrap_or_default();
        let mapped = mappings.iter().filter(|m| m.executable && m.inode != 0);
        let files: BTreeSet<_> = mapped.map(|m| (m.device, m.inode)).collect();
        if most.is_none_or(|(_, n)| files.len() > n) {
            most = Some((target.pid(), files.len()));
        }
        all.extend(files.into_iter().take(MAX_MODULES));
    }
    (all.len().min(MAX_MODULE_FILES), most)
}

/// Reads of the main thread what the engine will read of all: a target whose files are refused would
/// look like one without threads.
fn check_thread_files(pid: Pid, engine: EngineKind) -> Result<(), StartError> {
    for name in ["schedstat", "syscall"] {
        let task = live_task(pid).unwrap_or(pid);
        let file = format!("/proc/{pid}/task/{task}/{name}");
        match read_in_time(pid, &file) {
            // A process that has exited since is noticed by the sampler. ESRCH: a main thread that
            // has exited before the others tells nothing.
            Err(cause) if !matches!(cause.raw_os_error(), Some(libc::ESRCH | libc::ENOENT)) => {
                return Err(StartError::ThreadFiles {
                    engine,
                    file,
                    cause,
                });
            }
            _ => {}
        }
    }
    Ok(())
}

/// The reason alone: a note stands beside the engine that was chosen instead.
fn without_hint(error: &StartError) -> String {
    let text = error.to_string();
    match text.split_once("; try --engine") {
        Some((reason, _)) => reason.to_owned(),
        None => text,
    }
}

type Opened = (EngineKind, Box<dyn Snapshots>, Option<PerfSampler>);

/// What engines are opened with.
struct Start<'a> {
    targets: &'a Targets,
    period_ns: u64,
    /// Kernel stacks as addresses.
    by_address: bool,
    /// Kernel stacks with every engine.
    is_kernel_wanted: bool,
    files: FileBudget,
    cpus: CpuPolicy,
}

impl Start<'_> {
    fn pids(&self) -> Vec<(TargetId, Pid)> {
        let targets = self.targets.iter();
        targets.map(|(id, observed)| (id, observed.pid())).collect()
    }

    /// The engine asked for, or the best that opens.
    fn open(
        &self,
        want: Option<EngineKind>,
        notes: &mut Vec<String>,
    ) -> Result<Opened, StartError> {
        if want.is_none_or(|e| e == EngineKind::Bpf) {
            match self.bpf(notes) {
                Ok(opened) => return Ok(opened),
                Err(error) if want.is_some() => return Err(error),
                Err(error) => notes.push(without_hint(&error)),
            }
        }
        if want.is_none_or(|e| e == EngineKind::Procfs) {
            let engine = EngineKind::Procfs;
            match self.perf(None, notes) {
                Ok(perf) => {
                    // No timer comes while a guest runs, where the kernel has none.
                    let snapshots = self.procfs(engine, !perf.sees_kernel())?;
                    return Ok((engine, snapshots, Some(perf)));
                }
                Err(source) => {
                    let error = StartError::Perf { engine, source };
                    if want.is_some() {
                        return Err(error);
                    }
                    notes.push(without_hint(&error));
                }
            }
        }
        let engine = EngineKind::ProcfsOnly;
        notes.push("running threads have no stack: engine procfs-only cannot see them".into());
        Ok((engine, self.procfs(engine, true)?, None))
    }

    fn procfs(
        &self,
        engine: EngineKind,
        reads_guest_time: bool,
    ) -> Result<Box<dyn Snapshots>, StartError> {
        let pids = self.pids();
        for &(_, pid) in &pids {
            check_thread_files(pid, engine)?;
        }
        let pulse = Arc::clone(&self.targets.pulse);
        Ok(Box::new(ProcfsSnapshots::new(
            &pids,
            self.files.held,
            reads_guest_time,
            pulse,
        )))
    }

    fn bpf(&self, notes: &mut Vec<String>) -> Result<Opened, StartError> {
        let mut pids = self.pids();
        let engine = loop {
            match BpfSnapshots::new(&pids, self.files.held, self.by_address) {
                // One of several that has exited since: the sampler notices.
                Err(BpfError::NoSuchProcess(gone)) if pids.len() > 1 => {
                    pids.retain(|&(_, pid)| pid != gone);
                }
                opened => break opened.map_err(StartError::Bpf)?,
            }
        };
        let perf = self
            .perf(Some(&engine), notes)
            .map_err(|source| StartError::Perf {
                engine: EngineKind::Bpf,
                source,
            })?;
        Ok((EngineKind::Bpf, Box::new(engine), Some(perf)))
    }

    fn perf(
        &self,
        bpf: Option<&BpfSnapshots>,
        notes: &mut Vec<String>,
    ) -> Result<PerfSampler, PerfError> {
        let options = PerfOptions {
            period_ns: self.period_ns,
            dump_bytes: DUMP_BYTES,
            // Those of workers without a user stack are always taken.
            kernel_stacks: self.by_address,
            filter: bpf.and_then(BpfSnapshots::perf_filter),
            max_events: self.files.events,
            policy: self.cpus,
        };
        let cpus = self
            .cpus
            .of_processes(self.pids().into_iter().map(|(_, pid)| pid));
        let refused = match PerfSampler::per_cpu(&options, &cpus) {
            Ok(perf) => {
                notes.extend(cpu_notes(&cpus, self.cpus));
                if perf.mode() == PerfMode::PerCpu {
                    notes.push(
                        "timer samples of all processes pass through wcprof, which drops those of others"
                            .into(),
                    );
                }
                return Ok(perf);
            }
            Err(error) => error,
        };
        let pids = self.pids().into_iter();
        let tids: Vec<Tid> = pids
            .flat_map(|(_, pid)| list_threads(pid).unwrap_or_default())
            .collect();
        let perf = PerfSampler::per_thread(&options, &tids)?;
        notes.extend(cpu_notes(&perf.cpus(), self.cpus));
        notes.push(format!(
            "one perf event per thread, which costs the target about 2.4 us a context switch: {refused}"
        ));
        if perf.n_unwatched() > 0 {
            notes.push(format!(
                "{} of {} threads have no timer, so no stacks while they run: too many open files, raise RLIMIT_NOFILE (`ulimit -Hn`)",
                perf.n_unwatched(),
                tids.len()
            ));
        }
        if !perf.sees_kernel() {
            notes.push(
                "time in the kernel is not sampled: it needs CAP_PERFMON or kernel.perf_event_paranoid <= 1"
                    .into(),
            );
        }
        Ok(perf)
    }
}

/// Which CPUs have timers, where that is not all of them, or some are to be left alone.
fn cpu_notes(cpus: &BTreeSet<u32>, policy: CpuPolicy) -> Vec<String> {
    let (online, isolated) = (online_cpus(), isolated_cpus());
    let mut notes = Vec::new();
    if *cpus != policy.usable() {
        notes.push(format!(
            "timers on CPUs {} of {}: no thread of the target may run on the others",
            cpu_list(cpus),
            cpu_list(&online)
        ));
    }
    notes.extend(isolated_note(&(cpus & &isolated)));
    if policy.spare_isolated && !isolated.is_empty() {
        notes.push(format!(
            "CPUs {} are isolated and have no timer (--spare-isolated): threads have no stack while they run there",
            cpu_list(&isolated)
        ));
    }
    notes
}

/// Whether `/proc/kallsyms` shows addresses: else all of them are zero (`kernel.kptr_restrict`).
fn kernel_names_readable() -> bool {
    // The first symbol of a kernel with CONFIG_X86_64_SMP before 6.15 is a per-CPU one, at 0.
    let is_shown = |line: String| !line.starts_with("0000000000000000");
    open("/proc/kallsyms").is_ok_and(|file| {
        let lines = BufReader::new(file).lines().take(64);
        lines.map_while(Result::ok).any(is_shown)
    })
}

/// What is missing of kernel stacks, and what to do about it.
fn kernel_note(target: &Target, source: KernelSource, by_address: bool) -> Option<String> {
    if source == KernelSource::Engine {
        return None;
    }
    let pid = target.pid();
    let whole = read_text(pid, &format!("task/{pid}/stack")).is_ok();
    let blocked = match whole {
        true => "come from /proc",
        false => "are their innermost function alone (wchan), the whole needs CAP_SYS_ADMIN",
    };
    let running = match by_address {
        true if whole => return None,
        true => return Some(format!("kernel stacks of blocked threads {blocked}")),
        false => read_file("/proc/sys/kernel/kptr_restrict"),
    };
    Some(format!(
        "kernel stacks of blocked threads {blocked}, running threads have none: /proc/kallsyms hides addresses (kernel.kptr_restrict is {}); run as root or with CAP_SYSLOG, and with kptr_restrict 1 or 0",
        running.map_or_else(|_| "unknown".into(), |s| s.trim().to_owned()),
    ))
}

fn why_unreadable() -> &'static str {
    let passes = process_vm_readv_reaches_kernel();
    match (passes, has_capability(CAP_SYS_PTRACE)) {
        (false, _) => {
            "a seccomp filter of this container or service refuses process_vm_readv; allow it, or run wcprof on the host"
        }
        (true, false) => "process_vm_readv needs CAP_SYS_PTRACE for this process",
        (true, true) => {
            "a security module forbids it, or the process is in another user namespace; run wcprof on the host"
        }
    }
}

/// One byte of a stack tells whether reading is permitted.
fn check_memory(target: &Target) -> Result<(), StartError> {
    let pid = target.pid();
    let Ok(mappings) = target.mappings() else {
        return Ok(());
    };
    let address = readable_address(&mappings).unwrap_or(Avma(0));
    match read_memory(pid, address, &mut [0]) {
        // It has just exited, which the sampler notices; or what is there does not answer, which is said.
        Err(Errno::ESRCH | Errno::ETIMEDOUT) => Ok(()),
        Err(cause) => Err(StartError::Memory {
            pid,
            cause,
            reason: why_unreadable(),
            yama: read_file("/proc/sys/kernel/yama/ptrace_scope")
                .map_or_else(|_| "not set".into(), |s| s.trim().to_owned()),
        }),
        _ => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Check that the shares add up to what the limit leaves, and that too low a limit has none.
    #[test]
    fn file_budget() {
        let of = |limit, join| FileBudget::of(limit, 60, 40, join);
        let (alone, joined) = (of(1024, false).unwrap(), of(1024, true).unwrap());
        assert_eq!((alone.events + alone.held, alone.joining), (895, 0));
        assert_eq!(alone.modules, 69);
        assert_eq!((joined.events + joined.held, joined.joining), (451, 111));
        assert_eq!(joined.modules, 69 + 111);
        assert_eq!(of(60, true).map(|b| (b.events, b.joining)), Some((0, 0)));
        assert_eq!(of(59, true), None);
        assert_eq!(of(u64::MAX, true).map(|b| b.joining), Some(MAX_TARGETS));
    }

    /// Check that processes with more files than the limit leave as many descriptors to timers and to `/proc` as they
    /// take, also when they map as many as there can be.
    #[test]
    fn many_files() {
        for n_modules in [970, 5000, MAX_MODULE_FILES, usize::MAX] {
            let budget = FileBudget::of(1024, 60, n_modules, false).unwrap();
            assert_eq!(budget.modules, 482, "{n_modules}");
            assert_eq!(budget.events + budget.held, 482, "{n_modules}");
        }
        let budget = FileBudget::of(1 << 20, 60, usize::MAX, true).unwrap();
        assert_eq!(budget.modules, MAX_MODULE_FILES);
    }
}
