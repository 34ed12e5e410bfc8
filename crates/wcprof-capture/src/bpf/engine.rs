//! Processes to passes over their threads, by the program or the iterator that works on this kernel.

use std::collections::{BTreeSet, VecDeque};
use std::io;
use std::ops::Range;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::fs::MetadataExt;

use wcprof_types::{Pid, RED_ZONE, UserRegs};

use super::error::BpfError;
use super::object::LoadedObject;
use super::red_zones::RedZones;
use super::shared::{MAX_TARGETS, Pass, SEEN_SLOTS, TaskRecord, Want, records};
use super::sys::{self, Map, SharedMemory};
use crate::queue::MAX_BYTES;
use wcprof_host::fds::is_quiet;

/// Inode of the initial pid namespace: `PROC_PID_INIT_INO`, `include/linux/proc_ns.h`.
const INITIAL_NAMESPACE: u64 = 0xefff_fffc;

/// Passes that are tried for one snapshot when a thread's exit cuts a pass short.
const MAX_PASSES: u32 = 3;

/// With more than this in use the shared memory is emptied before the next pass.
const MAX_HELD: u32 = 1 << 19;

/// What the kernel supports, found by trying.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct Features {
    /// Why passes are those of the task iterator; `None` when wcprof runs a program for them.
    pub(crate) no_own_passes: Option<String>,
    /// The iterator visits only the targets' threads. Otherwise it visits all threads of the
    /// machine, and the program drops the others.
    pub(crate) link_filter: bool,
    /// Why perf events cannot be filtered by process; `None` when they can.
    pub(crate) no_perf_filter: Option<String>,
    /// Why the iterator cannot copy stacks; `None` when it can.
    pub(crate) no_stack_copies: Option<String>,
}

/// What makes passes.
enum PassSource {
    /// A program that is run for each target. Needs Linux 6.10 (functions of the kernel in programs of
    /// this type), and the initial pid namespace, because the kernel finds a thread by its number there.
    Program(OwnedFd),
    /// The task iterator, with a link for each target, or one for all threads of the machine.
    Iterator {
        program: OwnedFd,
        links: Vec<OwnedFd>,
    },
}

/// The loaded programs.
pub(crate) struct BpfEngine {
    targets: Vec<Pid>,
    source: PassSource,
    perf_program: Option<OwnedFd>,
    features: Features,
    /// The targets, for an iterator over all threads; and by their numbers in the initial pid namespace,
    /// for the filter of timer samples.
    pids: Map<u32>,
    host_pids: Map<u32>,
    wants: Map<Want>,
    /// `struct seen`.
    seen: Map<[u64; 4]>,
    memory: SharedMemory,
    red_zones: RedZones,
    /// Passes whose records are still in the shared memory, oldest first, and where.
    held: VecDeque<(Range<u32>, Pass)>,
}

impl BpfEngine {
    /// Loads the programs for these processes (ids of wcprof's own pid namespace) and tries them. With
    /// `kernel_stacks`, records of blocked threads have their kernel stacks.
    ///
    /// # Errors
    /// Everything that makes the engine unusable; see [`BpfError`].
    pub(crate) fn new(targets: &[Pid], kernel_stacks: bool) -> Result<Self, BpfError> {
        if targets.len() > MAX_TARGETS {
            return Err(BpfError::TooManyTargets(targets.len()));
        }
        let object = LoadedObject::new()?;
        let own_program = match is_in_initial_namespace() {
            true => object.pass_program().map_err(|why| why.to_string()),
            false => Err("wcprof is not in the initial pid namespace".to_owned()),
        };
        Self::with_program(object, own_program, targets, kernel_stacks)
    }

    /// The same with the task iterator also where the kernel can do better.
    #[cfg(test)]
    pub(super) fn with_iterator(targets: &[Pid], kernel_stacks: bool) -> Result<Self, BpfError> {
        let no_program = Err("not asked for".to_owned());
        Self::with_program(LoadedObject::new()?, no_program, targets, kernel_stacks)
    }

    fn with_program(
        mut object: LoadedObject,
        own_program: Result<OwnedFd, String>,
        targets: &[Pid],
        kernel_stacks: bool,
    ) -> Result<Self, BpfError> {
        let (perf_program, no_perf_filter) = match object.perf_filter() {
            Ok(program) => (Some(program), None),
            Err(e) => (None, Some(e.to_string())),
        };
        let mut features = Features {
            no_own_passes: None,
            link_filter: true,
            no_perf_filter,
            no_stack_copies: None,
        };
        let source = match own_program {
            Ok(program) => PassSource::Program(program),
            Err(why) => {
                features.no_own_passes = Some(why);
                let program;
                (program, features.no_stack_copies) = object.iterator()?;
                let links;
                (links, features.link_filter) = create_links(program.as_fd(), targets)?;
                PassSource::Iterator { program, links }
            }
        };
        let mut engine = Self {
            targets: targets.to_vec(),
            source,
            perf_program,
            features,
            pids: object.take_map("targets")?,
            host_pids: object.take_map("host_targets")?,
            wants: object.take_map("wants")?,
            seen: object.take_map("seen_tasks")?,
            memory: object.shared_memory()?,
            red_zones: object.red_zones()?,
            held: VecDeque::new(),
        };
        engine.memory.filter = (!engine.features.link_filter).into();
        engine.memory.kernel = kernel_stacks.into();
        engine.memory.set_quiet_calls(is_quiet);
        engine.forget_seen();
        for pid in targets {
            engine.pids.set(pid.0, &1).map_err(set_up)?;
        }
        engine.try_pass()?;
        Ok(engine)
    }

    /// Makes a pass, and lets timer samples of the targets through.
    fn try_pass(&mut self) -> Result<(), BpfError> {
        let mut tasks = self.all_tasks()?;
        let is_target = |task: &TaskRecord| self.targets.contains(&Pid(task.tgid));
        if self.features.link_filter && !tasks.iter().all(is_target) {
            // Linux 6.0 takes the filter and ignores it.
            self.filter_in_program()?;
            tasks = self.all_tasks()?;
        }
        let found: BTreeSet<(i32, i32)> = tasks.iter().map(|t| (t.tgid, t.host_tgid)).collect();
        for target in &self.targets {
            let host_pid = found.iter().find(|(pid, _)| *pid == target.0);
            self.keep_samples(host_pid.ok_or(BpfError::NoSuchProcess(*target))?.1)?;
        }
        self.forget_seen();
        Ok(())
    }

    fn all_tasks(&mut self) -> Result<Vec<TaskRecord>, BpfError> {
        let mut bytes = Vec::new();
        self.forget_seen();
        self.pass(false, &mut bytes)?;
        let tasks = records(&bytes, 0).map(|record| record.map(|(task, _)| task));
        Ok(tasks.collect::<Result<_, _>>()?)
    }

    /// Other calls in which a blocked thread can be looked at later.
    #[cfg(test)]
    pub(super) fn set_quiet_calls(&mut self, is_quiet: impl Fn(i64) -> bool) {
        self.memory.set_quiet_calls(is_quiet);
    }

    /// Goes on with a link to all threads of the machine.
    pub(super) fn filter_in_program(&mut self) -> Result<(), BpfError> {
        if let PassSource::Iterator { program, links } = &mut self.source {
            *links = vec![create_link(program.as_fd(), None)?];
            self.features.link_filter = false;
            self.memory.filter = 1;
        }
        Ok(())
    }

    /// What the kernel supports.
    pub(crate) fn features(&self) -> &Features {
        &self.features
    }

    /// The program for `PERF_EVENT_IOC_SET_BPF`: keeps the targets' samples, drops all others.
    pub(crate) fn perf_filter_fd(&self) -> Option<BorrowedFd<'_>> {
        self.perf_program.as_ref().map(AsFd::as_fd)
    }

    /// Appends to `bytes` a record of each thread that is new, ran, runs, is queued or exits since the
    /// pass before, in no particular order; the first pass has every thread. [`records`] reads them.
    ///
    /// Blocked threads that have not run since their last record are only counted. With `list`, they
    /// have a record without stacks: who has none is gone, unless threads were missed. A target that
    /// has exited has no records; that is no error. Passes that are held are forgotten.
    ///
    /// # Errors
    /// When a program cannot be run; the next pass then has every thread.
    pub(crate) fn pass(&mut self, list: bool, bytes: &mut Vec<u8>) -> Result<Pass, BpfError> {
        let start = bytes.len();
        self.held.clear();
        self.memory.list = list.into();
        for is_last in (1..=MAX_PASSES).map(|n| n == MAX_PASSES) {
            let pass = self.pass_over_all(bytes);
            if pass.as_ref().is_ok_and(|pass| pass.n_missed == 0) {
                return pass;
            }
            // The program believes that its records arrived.
            self.forget_seen();
            if is_last || pass.is_err() {
                return pass;
            }
            bytes.truncate(start);
        }
        Ok(Pass::default())
    }

    /// A pass over each target, or each link.
    fn pass_over_all(&mut self, bytes: &mut Vec<u8>) -> Result<Pass, BpfError> {
        let n = match &self.source {
            PassSource::Program(_) => self.targets.len(),
            PassSource::Iterator { links, .. } => links.len(),
        };
        let mut whole = Pass::default();
        for at in 0..n {
            whole = self.pass_over(at, bytes)?.after(whole);
        }
        Ok(whole)
    }

    fn pass_over(&mut self, at: usize, bytes: &mut Vec<u8>) -> Result<Pass, BpfError> {
        let iterator = match &self.source {
            PassSource::Program(_) => None,
            PassSource::Iterator { links, .. } => Some(
                sys::create_iterator(links[at].as_fd())
                    .map_err(failed("open the task iterator"))?,
            ),
        };
        self.memory.host_tgid = self.targets.get(at).map_or(0, |pid| pid.0);
        self.memory.pass = Pass::default();
        while self.memory.pass.is_done == 0 {
            self.memory.len = 0;
            self.memory.copies = (bytes.len() < MAX_BYTES).into();
            let goes_on = match (&self.source, &iterator) {
                (PassSource::Iterator { .. }, Some(iterator)) => {
                    sys::read_iterator(iterator, &mut self.memory)
                        .map_err(failed("read the task iterator"))?
                }
                _ => {
                    self.run_program()?;
                    // A record always fits into the empty memory.
                    self.memory.len > 0
                }
            };
            bytes.extend_from_slice(self.memory.records(0..self.memory.len));
            if !goes_on && self.memory.pass.is_done == 0 {
                return Err(BpfError::Truncated);
            }
        }
        let mut pass = self.memory.pass;
        if iterator.is_some() && self.features.link_filter {
            // Restricted to a process, the kernel goes from thread to thread and stops when the one it
            // stands on has gone. Over all threads it goes by number.
            pass.n_missed += pass.n_threads.saturating_sub(pass.n_seen());
        }
        Ok(pass)
    }

    fn run_program(&mut self) -> Result<(), BpfError> {
        match &self.source {
            PassSource::Program(program) => sys::run_program(program.as_fd(), &mut self.memory)
                .map_err(failed("run the task iterator")),
            PassSource::Iterator { .. } => Ok(()),
        }
    }

    /// A pass as of [`Self::pass`] without list, whose records [`Self::take_held`] gives later: reading
    /// those of several passes in one go costs less. `None` where passes cannot be held, or this one
    /// could not; the next [`Self::pass`] then loses nothing, but must come after what is held.
    ///
    /// # Errors
    /// When the program cannot be run.
    pub(crate) fn hold(&mut self) -> Result<Option<Pass>, BpfError> {
        let start = self.held.back().map_or(0, |(records, _)| records.end);
        let (PassSource::Program(_), [pid]) = (&self.source, self.targets.as_slice()) else {
            return Ok(None);
        };
        if start > MAX_HELD {
            return Ok(None);
        }
        self.memory.host_tgid = pid.0;
        self.memory.list = 0;
        self.memory.len = start;
        self.memory.copies = 1;
        self.memory.pass = Pass::default();
        let run = self.run_program();
        let pass = self.memory.pass;
        if run.is_err() || pass.is_done == 0 || pass.n_missed > 0 {
            // The program may believe that its records arrived.
            self.forget_seen();
            return run.map(|()| None);
        }
        self.held.push_back((start..self.memory.len, pass));
        Ok(Some(pass))
    }

    /// The oldest pass that is held, whose records are appended to `bytes`; `None` when none is.
    pub(crate) fn take_held(&mut self, bytes: &mut Vec<u8>) -> Option<Pass> {
        let (records, pass) = self.held.pop_front()?;
        bytes.extend_from_slice(self.memory.records(records));
        Some(pass)
    }

    /// Makes the next pass give every thread.
    pub(crate) fn forget_seen(&mut self) {
        self.memory.generation = self.memory.generation.wrapping_add(1);
    }

    /// Makes the next pass give this thread, and others that share its entry.
    pub(crate) fn forget_seen_thread(&mut self, host_tid: i32) {
        let slot = host_tid & (SEEN_SLOTS - 1);
        if self.seen.set(slot, &[0; 4]).is_err() {
            self.forget_seen();
        }
    }

    /// From now on copies of the thread's stack come with its records.
    ///
    /// # Errors
    /// When the program cannot be told.
    pub(crate) fn want_stack(&mut self, want: &Want) -> Result<(), BpfError> {
        let slot = want.host_tid & (SEEN_SLOTS - 1);
        self.wants.set(slot, want).map_err(set_up)
    }

    /// The red zone of a timer sample, see [`RedZones::find`].
    pub(crate) fn red_zone(
        &mut self,
        cpu: u32,
        host_tid: i32,
        regs: &UserRegs,
    ) -> Option<[u8; RED_ZONE]> {
        self.red_zones.find(cpu, host_tid, regs)
    }

    /// Makes passes visit the threads of `pid`, too. Its timer samples are dropped until
    /// [`Self::keep_samples`].
    ///
    /// # Errors
    /// When there are [`MAX_TARGETS`] already, or the programs cannot be told.
    pub(crate) fn add_target(&mut self, pid: Pid) -> Result<(), BpfError> {
        if self.targets.contains(&pid) {
            return Ok(());
        }
        if self.targets.len() >= MAX_TARGETS {
            return Err(BpfError::TooManyTargets(self.targets.len() + 1));
        }
        self.pids.set(pid.0, &1).map_err(set_up)?;
        if let (PassSource::Iterator { program, links }, true) =
            (&mut self.source, self.features.link_filter)
        {
            links.push(create_link(program.as_fd(), Some(pid))?);
        }
        self.targets.push(pid);
        Ok(())
    }

    /// Lets timer samples of a target through, by its number in the initial pid namespace (as its
    /// records have it).
    ///
    /// # Errors
    /// When the program cannot be told.
    pub(crate) fn keep_samples(&self, host_pid: i32) -> Result<(), BpfError> {
        self.host_pids.set(host_pid, &1).map_err(set_up)
    }

    /// Makes passes leave out the threads of `pid`; a number that is used again is not taken for it.
    pub(crate) fn remove_target(&mut self, pid: Pid, host_pid: Option<i32>) {
        let Some(at) = self.targets.iter().position(|&target| target == pid) else {
            return;
        };
        self.targets.remove(at);
        if let (PassSource::Iterator { links, .. }, true) =
            (&mut self.source, self.features.link_filter)
        {
            links.remove(at);
        }
        // An entry that is not there is what was asked for.
        let _ = self.pids.remove(pid.0);
        if let Some(host_pid) = host_pid {
            let _ = self.host_pids.remove(host_pid);
        }
    }
}

/// Whether ids of wcprof's pid namespace are those of the initial one; not when it is not known.
fn is_in_initial_namespace() -> bool {
    std::fs::metadata("/proc/self/ns/pid").is_ok_and(|ns| ns.ino() == INITIAL_NAMESPACE)
}

/// One link per target where the kernel can restrict a link to a process, else one for all; and whether
/// it can.
fn create_links(
    program: BorrowedFd<'_>,
    targets: &[Pid],
) -> Result<(Vec<OwnedFd>, bool), BpfError> {
    let link = |pid: &Pid| sys::create_iterator_link(program, Some(*pid));
    match targets.iter().map(link).collect() {
        Ok(links) => Ok((links, true)),
        Err(e) if matches!(e.raw_os_error(), Some(libc::E2BIG | libc::EINVAL)) => {
            Ok((vec![create_link(program, None)?], false))
        }
        Err(e) => Err(BpfError::from_io(ATTACH, &e)),
    }
}

fn create_link(program: BorrowedFd<'_>, pid: Option<Pid>) -> Result<OwnedFd, BpfError> {
    sys::create_iterator_link(program, pid).map_err(|e| BpfError::from_io(ATTACH, &e))
}

const ATTACH: &str = "attach the task iterator";

fn set_up(error: io::Error) -> BpfError {
    BpfError::from_io("set up the BPF maps", &error)
}

fn failed(action: &'static str) -> impl Fn(io::Error) -> BpfError {
    move |cause| BpfError::Load {
        action,
        cause: cause.to_string(),
    }
}
