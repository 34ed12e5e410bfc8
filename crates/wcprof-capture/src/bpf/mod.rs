//! The BPF engine: one pass of a program over the kernel's tasks gives every thread of the targets,
//! and another program filters per-CPU perf events by process.
//!
//! Where the kernel can, wcprof runs the first program itself (`pass.rs`); elsewhere it is a task
//! iterator, whose passes cost more.
//!
//! The programs are C (`bpf/wcprof.bpf.c`); their object is in the repository and is relocated
//! against the running kernel's types when loaded, so that neither clang nor kernel headers are
//! needed. Whether the kernel can restrict the iterator to a process is found by trying.

mod btf;
mod error;
mod load;
mod pass;
mod probe;
mod record;
mod sys;
mod targets;
mod wire;

#[cfg(test)]
mod tests;

use std::fmt;
use std::io::ErrorKind;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

use std::ops::Range;

use wcprof_types::{Avma, Pid, Tid};

pub use error::BpfError;
pub(crate) use pass::HeldPass;
pub use probe::{Check, probe};
pub use record::{Counters, Queue, Syscall, TaskFlags, TaskRecord, TaskRegs, TaskState};
pub use wire::WireError;

use load::Want;
use wire::{End, Record};

/// Most targets at once: the size of the programs' maps.
pub const MAX_TARGETS: usize = 1024;

/// Most bytes that the iterator copies of one stack.
pub const MAX_COPY: usize = wire::MAX_STACK;

/// Entries of the program's tables, which are indexed by the low bits of a thread id.
const SLOTS: i32 = 1 << 16;

/// The kernel hands out at most 32 KiB (8 pages) a read.
const READ_LEN: usize = 32 << 10;

/// Passes that are tried for one snapshot when a thread's exit cuts a pass short.
const MAX_PASSES: u32 = 3;

/// What the kernel supports, found by trying.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Features {
    /// Why passes are those of the task iterator; `None` when wcprof runs a program for them.
    pub no_own_passes: Option<String>,
    /// The iterator visits only the targets' threads. Otherwise it visits all threads of the
    /// machine, and the program drops the others.
    pub link_filter: bool,
    /// Why perf events cannot be filtered by process; `None` when they can.
    pub no_perf_filter: Option<String>,
    /// Why the iterator cannot copy stacks; `None` when it can.
    pub no_stack_copies: Option<String>,
    /// Why it does not give kernel stacks although asked to; `None` when it does, or was not.
    pub no_kernel_stacks: Option<String>,
}

/// What a snapshot returns beside its records.
#[derive(Copy, Clone, PartialEq, Eq, Debug, Default)]
pub struct SnapshotInfo {
    /// When the pass ended, `CLOCK_MONOTONIC` ns.
    pub time_ns: u64,
    /// Threads seen.
    pub n_threads: u32,
    /// A thread that exited while it was visited cut each attempt short: threads that are not
    /// in the records may still exist.
    pub incomplete: bool,
}

/// What changed since the snapshot before.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Changes {
    /// Threads that are new, ran, run, are queued, exit or got another name, and where in the
    /// bytes read the copy of their stack is: what was wanted of it, from the stack pointer upward,
    /// proven not to be torn. An empty range: nothing was wanted, or nothing could be copied.
    pub changed: Vec<(TaskRecord, Range<usize>)>,
    /// Blocked threads that have not run since they were last in `changed`: state, counters and
    /// registers are the same. Empty when they are not to be mentioned.
    pub unchanged: Vec<Tid>,
    /// How many of these there are that were not mentioned.
    pub n_unmentioned: u32,
}

impl Changes {
    fn clear(&mut self) {
        self.changed.clear();
        self.unchanged.clear();
        self.n_unmentioned = 0;
    }

    fn add(&mut self, record: Record) {
        match record {
            Record::Task(task, stack) => self.changed.push((task, stack)),
            Record::Unchanged(tid) => self.unchanged.push(tid),
            Record::End(end) => self.n_unmentioned += end.n_unmentioned,
        }
    }
}

/// What is wanted of a thread's stack from now on.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct WantedStack {
    /// The thread in the initial pid namespace.
    pub host_tid: i32,
    /// The mapping of the stack; with the stack pointer elsewhere nothing is copied.
    pub mapping: Range<Avma>,
    /// Bytes from the stack pointer upward; where it would be more than [`MAX_COPY`], nothing is
    /// copied.
    pub bytes: usize,
}

/// How passes are made.
enum Way {
    /// A program for each target.
    Own(pass::Passes),
    /// The task iterator's links: one per target with the link filter, else one for all.
    Iterator(Vec<OwnedFd>),
}

/// The loaded programs.
pub struct BpfEngine {
    targets: Vec<Pid>,
    way: Way,
    perf_program: Option<OwnedFd>,
    features: Features,
    /// For links of targets that join, where passes are the task iterator's.
    iterator: Option<OwnedFd>,
    /// The targets, for the iterator; and by their numbers in the initial pid namespace, for the
    /// filter.
    pids: sys::Map<4, 4>,
    host_pids: sys::Map<4, 4>,
    config: sys::Map<4, 32>,
    wants: sys::Map<4, 24>,
    /// What the program was last told, see [`BpfEngine::tell`].
    told: Option<(u32, bool)>,
    /// The generation of [`BpfEngine::snapshot_changes`], never 0.
    changes_generation: u32,
    buffer: Vec<u8>,
}

impl fmt::Debug for BpfEngine {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("BpfEngine")
            .field("targets", &self.targets)
            .field("features", &self.features)
            .finish_non_exhaustive()
    }
}

impl BpfEngine {
    /// Loads the programs for these processes (ids of wcprof's own pid namespace) and tries them.
    ///
    /// # Errors
    /// Everything that makes the engine unusable; see [`BpfError`].
    pub fn new(targets: &[Pid]) -> Result<Self, BpfError> {
        load::load(targets, Want::Best)
    }

    /// The same, with kernel stacks of blocked threads in its records where the kernel can.
    ///
    /// # Errors
    /// As [`Self::new`].
    pub fn with_kernel_stacks(targets: &[Pid]) -> Result<Self, BpfError> {
        load::load(targets, Want::KernelStacks)
    }

    /// The same with the task iterator also where the kernel can do better.
    #[cfg(test)]
    fn with_iterator(targets: &[Pid]) -> Result<Self, BpfError> {
        load::load(targets, Want::Iterator)
    }

    /// What the kernel supports.
    pub fn features(&self) -> &Features {
        &self.features
    }

    /// The program for `PERF_EVENT_IOC_SET_BPF`: keeps the targets' samples, drops all others.
    pub fn perf_filter_fd(&self) -> Option<BorrowedFd<'_>> {
        self.perf_program.as_ref().map(AsFd::as_fd)
    }

    /// Replaces `out` by every thread of the targets, in no particular order.
    ///
    /// A target that has exited has no records; that is no error.
    ///
    /// # Errors
    /// When the iterator cannot be opened or read.
    pub fn snapshot(&mut self, out: &mut Vec<TaskRecord>) -> Result<SnapshotInfo, BpfError> {
        for _ in 1..MAX_PASSES {
            let info = self.snapshot_once(out)?;
            if !info.incomplete {
                return Ok(info);
            }
        }
        self.snapshot_once(out)
    }

    /// Replaces `out` by what changed since the last call; the first call has every thread in
    /// full. With `mention`, a thread that is in neither list is gone, unless the snapshot is
    /// incomplete; without, unchanged threads are only counted, and a thread that another one
    /// renamed is unchanged.
    ///
    /// Cheaper than [`BpfEngine::snapshot`], by a factor that grows with the share of threads
    /// that stay blocked. The two can be mixed. What is read, stack copies among it, is appended
    /// to `bytes`.
    ///
    /// # Errors
    /// When the iterator cannot be opened or read; the next call then has every thread in full.
    pub fn snapshot_changes(
        &mut self,
        mention: bool,
        out: &mut Changes,
        bytes: &mut Vec<u8>,
    ) -> Result<SnapshotInfo, BpfError> {
        for _ in 1..MAX_PASSES {
            let info = self.changes_once(mention, out, bytes)?;
            if !info.incomplete {
                return Ok(info);
            }
            self.forget_seen();
        }
        let info = self.changes_once(mention, out, bytes)?;
        if info.incomplete {
            self.forget_seen();
        }
        Ok(info)
    }

    fn snapshot_once(&mut self, out: &mut Vec<TaskRecord>) -> Result<SnapshotInfo, BpfError> {
        out.clear();
        self.tell(0, true)?;
        let mut bytes = std::mem::take(&mut self.buffer);
        bytes.clear();
        let info = self.pass_all(&mut bytes, |record| match record {
            Record::Task(task, _) => out.push(task),
            Record::Unchanged(_) | Record::End(_) => {}
        });
        self.buffer = bytes;
        info
    }

    fn changes_once(
        &mut self,
        mention: bool,
        out: &mut Changes,
        bytes: &mut Vec<u8>,
    ) -> Result<SnapshotInfo, BpfError> {
        out.clear();
        self.tell(self.changes_generation, mention)?;
        let info = self.pass_all(bytes, |record| out.add(record));
        if info.is_err() {
            // The program believes that its records arrived.
            self.forget_seen();
        }
        info
    }

    /// A pass as of [`BpfEngine::snapshot_changes`] without mention, whose records
    /// [`BpfEngine::take_held`] gives later: reading those of several passes in one go costs less.
    /// `None` where passes cannot be held, or this one could not; the next call of
    /// [`BpfEngine::snapshot_changes`] then loses nothing, but must come after what is held.
    ///
    /// # Errors
    /// When the program cannot be run.
    pub(crate) fn hold_changes(&mut self) -> Result<Option<HeldPass>, BpfError> {
        let (Way::Own(passes), [pid]) = (&mut self.way, self.targets.as_slice()) else {
            return Ok(None);
        };
        if self.told != Some((self.changes_generation, false)) {
            return Ok(None);
        }
        let held = passes.hold(*pid);
        if !matches!(held, Ok(Some(_))) {
            // The program may believe that its records arrived.
            self.forget_seen();
        }
        held
    }

    /// The oldest pass that is held; `None` when none is.
    ///
    /// # Errors
    /// When its records are not as they should be.
    pub(crate) fn take_held(
        &mut self,
        out: &mut Changes,
        bytes: &mut Vec<u8>,
    ) -> Result<Option<SnapshotInfo>, BpfError> {
        let Way::Own(passes) = &mut self.way else {
            return Ok(None);
        };
        out.clear();
        let end = passes.take_held(bytes, &mut |record| out.add(record))?;
        Ok(end.map(|end| SnapshotInfo {
            time_ns: end.time_ns,
            n_threads: end.n_threads,
            incomplete: false,
        }))
    }

    /// Timer samples that the filter had kept by the last pass; 0 where passes cannot be held.
    pub(crate) fn n_kept(&self) -> u32 {
        match &self.way {
            Way::Own(passes) => passes.n_kept(),
            _ => 0,
        }
    }

    /// Makes the next [`BpfEngine::snapshot_changes`] return every thread in full.
    pub fn forget_seen(&mut self) {
        self.changes_generation = self.changes_generation.wrapping_add(1).max(1);
    }

    /// From now on copies of the thread's stack come with its records.
    ///
    /// # Errors
    /// When the program cannot be told.
    pub fn want_stack(&mut self, want: &WantedStack) -> Result<(), BpfError> {
        let slot = want.host_tid & (SLOTS - 1);
        let mut value = [0; 24];
        let bytes = u32::try_from(want.bytes).unwrap_or(u32::MAX);
        for (at, field) in [
            (0, &want.mapping.start.0.to_ne_bytes()[..]),
            (8, &want.mapping.end.0.to_ne_bytes()),
            (16, &want.host_tid.to_ne_bytes()),
            (20, &bytes.to_ne_bytes()),
        ] {
            value[at..at + field.len()].copy_from_slice(field);
        }
        sys::update_map(&self.wants, &slot.to_ne_bytes(), &value)
            .map_err(|e| BpfError::from_io("configure the task iterator", &e))
    }

    /// Tells the program which generation to compare with (0 makes every record a full one) and
    /// whether to mention unchanged threads.
    fn tell(&mut self, generation: u32, mention: bool) -> Result<(), BpfError> {
        if self.told != Some((generation, mention)) {
            let filter = u32::from(!self.features.link_filter);
            let mut value = [0; 32];
            value[..4].copy_from_slice(&filter.to_ne_bytes());
            value[4..8].copy_from_slice(&generation.to_ne_bytes());
            value[8..12].copy_from_slice(&u32::from(mention).to_ne_bytes());
            sys::update_map(&self.config, &0u32.to_ne_bytes(), &value)
                .map_err(|e| BpfError::from_io("configure the task iterator", &e))?;
            self.told = Some((generation, mention));
        }
        Ok(())
    }

    /// Goes on as on a kernel without the link filter.
    #[cfg(test)]
    fn use_filter_in_program_for_test(&mut self) {
        let iterator = self.iterator.as_ref().unwrap();
        self.way = Way::Iterator(vec![sys::create_iter_link(iterator.as_fd(), None).unwrap()]);
        self.features.link_filter = false;
        self.told = None;
    }

    /// One pass over each target; what is read is appended to `bytes`.
    fn pass_all(
        &mut self,
        bytes: &mut Vec<u8>,
        mut sink: impl FnMut(Record),
    ) -> Result<SnapshotInfo, BpfError> {
        let mut info = SnapshotInfo::default();
        let mut add = |end: &End, incomplete| {
            info.n_threads += end.n_records + end.n_unmentioned;
            info.time_ns = end.time_ns;
            info.incomplete |= incomplete;
        };
        match &mut self.way {
            Way::Own(passes) => {
                for pid in &self.targets {
                    let (end, overflow) = passes.pass(*pid, bytes, &mut sink)?;
                    add(&end, overflow);
                }
            }
            Way::Iterator(links) => {
                for link in links {
                    let end = pass(link.as_fd(), bytes, &mut sink)?;
                    // Restricted to a process, the kernel goes from thread to thread and stops
                    // when the one it stands on has gone. Over all threads it goes by number.
                    let cut = end.n_records + end.n_unmentioned < end.n_threads;
                    add(&end, self.features.link_filter && cut);
                }
            }
        }
        Ok(info)
    }
}

/// One pass of the iterator behind `link`, to its end record.
fn pass(
    link: BorrowedFd<'_>,
    bytes: &mut Vec<u8>,
    sink: &mut impl FnMut(Record),
) -> Result<End, BpfError> {
    let failed = |action| move |cause| BpfError::Iterate { action, cause };
    let iterator = sys::create_iter(link).map_err(failed("open"))?;
    let mut parsed = bytes.len();
    let mut end = None;
    while end.is_none() {
        bytes.reserve(READ_LEN);
        match sys::read_more(&iterator, bytes) {
            Ok(0) => return Err(BpfError::Truncated(bytes.len() - parsed)),
            Ok(_) => {}
            // EAGAIN: a million threads of others were visited without a record.
            Err(e) if matches!(e.kind(), ErrorKind::Interrupted | ErrorKind::WouldBlock) => {
                continue;
            }
            Err(e) => return Err(failed("read")(e)),
        }
        parsed = wire::parse(bytes, parsed, |record| {
            if let Record::End(e) = &record {
                end = Some(*e);
            }
            sink(record);
        })?;
    }
    end.ok_or(BpfError::Truncated(0))
}

/// What the task iterator wrote, for the fuzz target.
pub(crate) fn fuzz_records(bytes: &[u8]) {
    let mut at = 0;
    let parsed = wire::parse(bytes, 0, |record| {
        if let Record::Task(task, stack) = record {
            assert!(stack.end <= bytes.len() && stack.start >= at);
            at = stack.end;
            let _ = (task.name(), task.counters.switches());
        }
    });
    assert!(parsed.is_ok_and(|used| used <= bytes.len()) || parsed.is_err());
}
