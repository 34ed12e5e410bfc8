//! Copies of stack memory: of blocked and preempted threads by reading it, of running ones out of
//! the perf rings.

use std::ops::Range;
use std::sync::Arc;

use wcprof_types::{Avma, Pid, RED_ZONE, Sched, ThreadState, Tid, UserRegs, Wait};

use super::locks::lock_of;
use super::pulse::Pulse;
use super::slot::Slot;
use super::state::{KernelSource, Sampler};
use super::targets::Observed;
use crate::batch::{KernelStack, StackBytes, StackCopy, TargetId, TimerSample};
use crate::bpf::MAX_STACK;
use crate::engine::{InSyscall, SnapshotStack, Snapshots, ThreadSnapshot};
use wcprof_host::fds::{FdCache, needs_proof, unname};
use wcprof_host::procfs::{SyscallState, blocked_in, kernel_stack, stopped};
use wcprof_perf::PerfSample;

/// Where the mapping of a stack pointer is not known, one page is copied.
const UNKNOWN_READ: u64 = 4096;
/// Looks at a thread whose copy was torn.
const ATTEMPTS: u32 = 3;

/// Stacks that are still to be read for the observations of a tick.
#[derive(Debug, Default)]
pub(super) struct PendingStacks {
    /// Each with its observation's place in the batch.
    pub(super) reads: Vec<(usize, StackRead)>,
    pub(super) retries: Vec<Retry>,
}

/// A stack to read.
#[derive(Clone, Debug)]
pub(super) struct StackRead {
    target: TargetId,
    tid: Tid,
    n_runs: u64,
    regs: UserRegs,
    part: StackPart,
    limit: Option<Avma>,
    /// The engine copied the inner part of it, which is kept if more cannot be had.
    has_inner: bool,
}

/// Bytes of a stack: `below` of them below the stack pointer, `above` from it upward.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
struct StackPart {
    below: usize,
    above: usize,
}

impl StackPart {
    fn len(self) -> usize {
        self.below + self.above
    }
}

/// A thread to look at once more, since it ran while it was looked at.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub(super) struct Retry {
    /// Its place in the batch's threads.
    pub(super) index: usize,
    pub(super) tid: Tid,
    /// Its stack is torn; else the file of its wait is all that lacks.
    pub(super) torn: bool,
}

/// What an observation has of wait and stack, and what is to be read for it.
#[derive(Default)]
pub(super) struct StackPlan {
    pub(super) wait: Option<Wait>,
    pub(super) stack: StackCopy,
    pub(super) kernel: KernelStack,
    pub(super) read: Option<StackRead>,
    /// The thread has run since, so that the file of its wait, or its stack in the kernel, is not certain.
    pub(super) is_unproven: bool,
}

/// What to copy around `sp`: what unwinding is known to need, and the red zone, as far as the mapping goes.
fn part_to_read(slot: &Slot, sp: Avma, mapping: Option<&Range<Avma>>) -> StackPart {
    let (below, room) = mapping.map_or((0, UNKNOWN_READ - sp.0 % UNKNOWN_READ), |mapping| {
        (
            sp.0 - mapping.start.0,
            slot.end_of(sp, mapping.end).0 - sp.0,
        )
    });
    StackPart {
        below: below.min(RED_ZONE as u64) as usize,
        above: (slot.read_size as u64).min(room) as usize,
    }
}

/// The kernel's part of a blocked thread's stack, when it was asked for.
fn kernel_stack_of(
    source: KernelSource,
    snapshots: &mut dyn Snapshots,
    pid: Pid,
    now: &ThreadSnapshot,
) -> KernelStack {
    match source {
        KernelSource::None | KernelSource::Workers => KernelStack::None,
        KernelSource::Engine if now.kernel.is_empty() => KernelStack::None,
        KernelSource::Engine => KernelStack::Addresses {
            bytes: now.kernel.clone(),
            interrupted: false,
        },
        KernelSource::Procfs => {
            let names = kernel_names(snapshots, (pid, now.tid), now.n_runs);
            names.map_or(KernelStack::None, KernelStack::Names)
        }
    }
}

/// The same from `/proc`; `None` if the thread ran, or was woken, since its counts were read.
fn kernel_names(
    snapshots: &mut dyn Snapshots,
    (pid, tid): (Pid, Tid),
    n_runs: u64,
) -> Option<Vec<String>> {
    let names = kernel_stack(pid, tid);
    let is_proven = snapshots.n_runs(tid) == Some(n_runs);
    Some(names).filter(|names| is_proven && !names.is_empty())
}

/// The wait of a thread without a user stack: the innermost function of its kernel stack, here without its module.
fn wait_in(names: &[String]) -> Wait {
    let innermost = names.first().and_then(|name| name.split(' ').next());
    Wait {
        kernel: innermost.unwrap_or_default().to_owned(),
        ..Wait::default()
    }
}

/// Such a thread has its kernel stack alone: from the engine, else from `/proc`.
fn plan_of_worker(snapshots: &mut dyn Snapshots, pid: Pid, now: &ThreadSnapshot) -> StackPlan {
    let mut plan = StackPlan::default();
    if !now.kernel.is_empty() {
        plan.stack = StackCopy::NoUserStack;
        plan.kernel = KernelStack::Addresses {
            bytes: now.kernel.clone(),
            interrupted: false,
        };
    }
    if now.sched != Sched::Blocked {
        return plan;
    }
    match kernel_names(snapshots, (pid, now.tid), now.n_runs) {
        Some(names) => {
            plan.stack = StackCopy::NoUserStack;
            plan.wait = Some(wait_in(&names));
            if now.kernel.is_empty() {
                plan.kernel = KernelStack::Names(names);
            }
        }
        // It was blocked there all the same.
        None if !now.kernel.is_empty() => plan.wait = Some(Wait::default()),
        None => (plan.stack, plan.is_unproven) = (StackCopy::Torn, true),
    }
    plan
}

/// The wait that a thread was seen in, and whether the file that was just read for it is proven: the
/// thread has not been put on a CPU since, so it is in the same call. Else the wait has no file's name.
fn wait_of(
    fds: &mut FdCache,
    snapshots: &mut dyn Snapshots,
    seen: &ThreadSnapshot,
) -> (Wait, bool) {
    let (number, args) = seen.syscall.map_or((None, [0; 3]), |s| (s.number, s.args));
    let mut wait = fds.wait(seen.tid, number, args);
    let is_proven = !needs_proof(&wait)
        || (seen.stack != SnapshotStack::Torn && snapshots.n_runs(seen.tid) == Some(seen.n_runs));
    if !is_proven {
        unname(&mut wait);
    }
    (wait, is_proven)
}

impl Observed {
    /// Decides what an observation needs, whose counters are known. Tells the engine what to copy of the
    /// thread's stack from now on.
    pub(super) fn plan_stack(
        &mut self,
        kernel: KernelSource,
        snapshots: &mut dyn Snapshots,
        slot: &mut Slot,
        now: &ThreadSnapshot,
    ) -> StackPlan {
        let mut plan = StackPlan::default();
        let pid = self.pid();
        if now.info.kernel_side {
            return plan_of_worker(snapshots, pid, now);
        }
        if now.sched == Sched::Blocked {
            plan.kernel = kernel_stack_of(kernel, snapshots, pid, now);
            let (wait, is_proven) = wait_of(&mut self.fds, snapshots, now);
            plan.wait = Some(wait);
            plan.is_unproven = !is_proven;
        }
        let Some(regs) = now.regs else {
            return plan;
        };
        let range = self.stack_map.range(&self.target, regs.sp, now.time);
        let mapping = range.as_ref().map(|found| &found.range);
        let limit = mapping.map(|mapping| mapping.end);
        let part = part_to_read(slot, regs.sp, mapping);
        let read = |has_inner| StackRead {
            target: now.target,
            tid: now.tid,
            n_runs: now.n_runs,
            regs,
            part,
            limit,
            has_inner,
        };
        plan.stack = match now.stack.clone() {
            SnapshotStack::Copied { bytes, below } => {
                let is_cut = bytes.len() - below >= MAX_STACK && part.above > MAX_STACK;
                plan.read = is_cut.then(|| read(true));
                StackCopy::Copied(StackBytes {
                    regs,
                    bytes,
                    below,
                    limit,
                })
            }
            SnapshotStack::Torn => StackCopy::Torn,
            SnapshotStack::None => {
                plan.read = Some(read(false));
                StackCopy::Torn
            }
        };
        if let Some(found) = range
            && found.is_anonymous
            && let Some(want) = slot.new_want(found.range, regs.sp)
        {
            snapshots.want_stack(want);
        }
        plan
    }
}

impl Sampler {
    /// Reads the stacks asked for, each checked at once: a thread that was put on a CPU since its snapshot
    /// has a torn copy and is looked at once more.
    pub(super) fn read_stacks(&mut self, pending: PendingStacks) {
        let PendingStacks { reads, mut retries } = pending;
        for (index, read) in reads {
            self.read_stack(index, &read, &mut retries);
        }
        for Retry { index, tid, torn } in retries {
            let whole = (0..ATTEMPTS).any(|_| self.look_again(index, tid).is_some());
            self.outbox.batch.counts.n_torn += u64::from(torn && !whole);
            if let Some(slot) = self.threads.slots.get_mut(&tid) {
                slot.read_again(self.snapshots.as_mut());
            }
        }
    }

    fn read_stack(&mut self, index: usize, read: &StackRead, retries: &mut Vec<Retry>) {
        let Some(pid) = self.targets.get(read.target).map(Observed::pid) else {
            return;
        };
        if !self.outbox.has_room(read.part.len()) || self.targets.pulse.is_late() {
            if read.has_inner {
                return;
            }
            self.outbox.batch.counts.n_torn += 1;
            if let Some(slot) = self.threads.slots.get_mut(&read.tid) {
                slot.read_again(self.snapshots.as_mut());
            }
            return;
        }
        let batch = &mut self.outbox.batch;
        let (thread, pulse) = ((pid, read.tid), &self.targets.pulse);
        let (sp, part) = (read.regs.sp, read.part);
        let Some(bytes) = copy(pulse, thread, sp, part, &mut batch.stacks) else {
            // The process is gone: the next tick says so.
            return;
        };
        if self.snapshots.n_runs(read.tid) != Some(read.n_runs) {
            batch.stacks.truncate(bytes.start);
            let (tid, torn) = (read.tid, true);
            if !read.has_inner {
                retries.push(Retry { index, tid, torn });
            }
        } else if let Some(tick) = batch.threads.get_mut(index) {
            tick.stack = StackCopy::Copied(StackBytes {
                regs: read.regs,
                below: part.below.min(bytes.len()),
                bytes,
                limit: read.limit,
            });
        }
    }

    /// Looks once more at a thread that ran while its stack was copied, alone and at once. A short
    /// wait is torn more often than a long one, so doing without would favor the long ones; where
    /// the thread is now is as fair a sample as where it was.
    fn look_again(&mut self, index: usize, tid: Tid) -> Option<()> {
        let n_runs = self.snapshots.n_runs(tid)?;
        let (read_size, is_worker) = {
            let slot = self.threads.slots.get(&tid)?;
            (slot.read_size, slot.is_worker())
        };
        if !self.outbox.has_room(read_size) {
            return None;
        }
        let batch = &mut self.outbox.batch;
        let tick = batch.threads.get_mut(index)?;
        let pulse = Arc::clone(&self.targets.pulse);
        let observed = self.targets.get_mut(tick.target)?;
        let pid = observed.pid();
        let _asking = pulse.state(pid);
        let SyscallState::Blocked { number, args, regs } = blocked_in(pid, tid)? else {
            return None;
        };
        if is_worker {
            let names = kernel_names(self.snapshots.as_mut(), (pid, tid), n_runs)?;
            tick.wait = Some(wait_in(&names));
            tick.kernel = KernelStack::Names(names);
            tick.stack = StackCopy::NoUserStack;
            return Some(());
        }
        let range = observed
            .stack_map
            .range(&observed.target, regs.sp, tick.time);
        let mapping = range.as_ref().map(|found| &found.range);
        let slot = self.threads.slots.get_mut(&tid)?;
        let part = part_to_read(slot, regs.sp, mapping);
        let bytes = copy(&pulse, (pid, tid), regs.sp, part, &mut batch.stacks)?;
        let wait = observed.fds.wait(tid, number, args);
        let stop = stopped(pid, tid);
        if self.snapshots.n_runs(tid) != Some(n_runs) {
            batch.stacks.truncate(bytes.start);
            return None;
        }
        let call = InSyscall { number, args };
        let lock = lock_of(Sched::Blocked, Some(call).filter(|_| stop.is_none()));
        observed.locks.change(slot, lock);
        (tick.wait, tick.stop) = (Some(wait), stop);
        tick.kernel = match self.kernel {
            KernelSource::None | KernelSource::Workers => KernelStack::None,
            _ => kernel_names(self.snapshots.as_mut(), (pid, tid), n_runs)
                .map_or(KernelStack::None, KernelStack::Names),
        };
        tick.stack = StackCopy::Copied(StackBytes {
            regs,
            below: part.below.min(bytes.len()),
            bytes,
            limit: mapping.map(|mapping| mapping.end),
        });
        Some(())
    }

    /// Reads the samples of running threads. Those that are deeper than their copy are handed on at once:
    /// the rest of the stack is read while it is still there. Gives whether there were such.
    pub(super) fn drain_timer_samples(&mut self) -> bool {
        let mut is_deep = false;
        let Some(mut perf) = self.perf.take() else {
            return false;
        };
        let n_lost = perf.drain(|sample| is_deep |= self.take_timer_sample(sample) == Some(true));
        self.perf = Some(perf);
        self.outbox.batch.counts.n_lost += n_lost;
        self.outbox.is_urgent |= is_deep;
        is_deep
    }

    /// Gives whether the sample is deeper than its copy; `None` for one that is not wanted.
    fn take_timer_sample(&mut self, sample: &PerfSample<'_>) -> Option<bool> {
        let has_kernel_stacks = self.has_kernel_stacks();
        let slot = self.threads.slots.get(&sample.tid);
        if slot.is_some_and(|slot| !slot.keep) {
            return None;
        }
        let id = self.targets.of_pid(sample.pid)?;
        let observed = self.targets.get_mut(id)?;
        let batch = &mut self.outbox.batch;
        let mut is_deep = false;
        // Older kernels give workers the registers of the system call that made them.
        let is_worker = sample.regs.is_none() || slot.is_some_and(Slot::is_worker);
        let stack = sample.regs.filter(|_| !is_worker).map(|regs| {
            let limit = observed
                .stack_map
                .limit(&observed.target, regs.sp, sample.time);
            let end = limit.map(|limit| slot.map_or(limit, |s| s.end_of(regs.sp, limit)));
            let room = end.map_or(usize::MAX, |end| (end.0 - regs.sp.0) as usize);
            let bytes = &sample.stack[..sample.stack.len().min(room)];
            is_deep = bytes.len() < room && limit.is_some();
            let red_zone = slot
                .and_then(Slot::host_tid)
                .and_then(|tid| self.snapshots.red_zone(sample.cpu, tid, &regs));
            let red_zone = red_zone.as_ref().map_or(&[][..], |zone| &zone[..]);
            let start = append(&mut batch.stacks, red_zone).start;
            StackBytes {
                regs,
                bytes: start..append(&mut batch.stacks, bytes).end,
                below: red_zone.len(),
                limit,
            }
        });
        let is_kernel_wanted = is_worker || has_kernel_stacks;
        let kernel = match sample.kernel {
            [] => KernelStack::None,
            _ if !is_kernel_wanted => KernelStack::None,
            kernel => KernelStack::Addresses {
                bytes: append(&mut batch.stacks, kernel),
                interrupted: true,
            },
        };
        batch.timer_samples.push(TimerSample {
            target: id,
            tid: sample.tid,
            time: sample.time,
            state: match (is_worker, sample.in_guest, sample.in_kvm_run) {
                (false, true, _) => ThreadState::Guest,
                (false, false, true) => ThreadState::VmExit,
                _ => ThreadState::OnCpu,
            },
            stack,
            kernel,
        });
        Some(is_deep)
    }
}

/// Copies a stack to the end of `to`, and gives where it is; `None` when the process is gone.
fn copy(
    pulse: &Pulse,
    thread: (Pid, Tid),
    sp: Avma,
    part: StackPart,
    to: &mut Vec<u8>,
) -> Option<Range<usize>> {
    let start = to.len();
    to.resize(start + part.len(), 0);
    let from = Avma(sp.0.saturating_sub(part.below as u64));
    let read = pulse.read(thread, from, &mut to[start..]);
    to.truncate(start + read.unwrap_or(0));
    read.ok().map(|_| start..to.len())
}

/// Appends bytes, and gives where they are.
fn append(to: &mut Vec<u8>, bytes: &[u8]) -> Range<usize> {
    let start = to.len();
    to.extend_from_slice(bytes);
    start..to.len()
}

#[cfg(test)]
mod tests {
    use std::os::fd::{AsRawFd, OwnedFd};

    use wcprof_host::Target;
    use wcprof_types::FdKind;

    use std::sync::atomic::AtomicI32;
    use std::sync::atomic::Ordering::Relaxed;

    use super::super::budget::CpuBudget;
    use super::super::clock::TickClock;
    use super::super::outbox::Outbox;
    use super::super::slot::tick_of;
    use super::super::state::HeldTicks;
    use super::super::targets::Targets;
    use super::super::threads::ThreadTable;
    use super::*;
    use crate::batch::{ThreadCounters, ThreadTick};
    use crate::engine::{EngineKind, SnapshotError, SnapshotSet, ThreadInfo};
    use crate::queue::MAX_BYTES;

    /// An engine that knows how often a thread ran by now, and tells which threads are asked for.
    struct Counts(Option<u64>, Arc<AtomicI32>);

    fn counts(n_runs: Option<u64>) -> Counts {
        Counts(n_runs, Arc::default())
    }

    impl Snapshots for Counts {
        fn snapshot(&mut self, _: &mut SnapshotSet, _: &mut Vec<u8>) -> Result<(), SnapshotError> {
            Ok(())
        }

        fn add_target(&mut self, _: TargetId, _: Pid) -> Result<(), SnapshotError> {
            Ok(())
        }

        fn remove_target(&mut self, _: TargetId, _: Pid) {}

        fn want_thread(&mut self, host_tid: i32) {
            self.1.store(host_tid, Relaxed);
        }

        fn n_runs(&mut self, _: Tid) -> Option<u64> {
            self.0
        }

        fn forget(&mut self, _: Tid) {}
    }

    fn seen(call: i64, fd: i32, stack: SnapshotStack) -> ThreadSnapshot {
        ThreadSnapshot {
            target: TargetId(0),
            tid: Tid(std::process::id() as i32),
            time: 0,
            sched: Sched::Blocked,
            counters: ThreadCounters::default(),
            n_runs: 7,
            regs: None,
            syscall: Some(InSyscall {
                number: u32::try_from(call).ok(),
                args: [fd as u64, 0, 0],
            }),
            stop: None,
            stack,
            kernel: 0..0,
            info: ThreadInfo::default(),
        }
    }

    /// Check that a descriptor which is another file by the time that it is read gives its name only to a
    /// thread that has not run since it was seen: not to one that ran, has exited, or whose copy was torn;
    /// and that a wait on epoll, which names no file, needs no proof.
    #[test]
    fn a_name_needs_proof() {
        let file = tempfile::NamedTempFile::new().unwrap();
        let mut fd = OwnedFd::from(file.reopen().unwrap());
        let number = fd.as_raw_fd();
        let mut fds = FdCache::default();
        let mut look = |call, runs, stack| {
            let now = seen(call, number, stack);
            let (wait, is_proven) = wait_of(&mut fds, &mut counts(runs), &now);
            let fd = wait.fd.expect("the call takes a descriptor");
            (fd.kind, fd.path, is_proven)
        };
        let read = libc::SYS_read;
        let path = file.path().to_string_lossy().into_owned();
        let none = || SnapshotStack::None;
        assert_eq!(
            look(read, Some(7), none()),
            (FdKind::Regular, path.clone(), true)
        );
        let unnamed = (FdKind::Regular, String::new(), false);
        assert_eq!(look(read, Some(8), none()), unnamed);
        assert_eq!(look(read, None, none()), unnamed);
        assert_eq!(look(read, Some(7), SnapshotStack::Torn), unnamed);

        let (socket, _peer) = std::os::unix::net::UnixStream::pair().unwrap();
        nix::unistd::dup2(&socket, &mut fd).unwrap();
        // The thread that was seen on the file runs by now, which the kernel counted.
        let (kind, name, is_proven) = look(read, Some(8), none());
        assert_eq!(
            (kind, name.as_str(), is_proven),
            (FdKind::Socket, "", false)
        );
        let (_, name, is_proven) = look(read, Some(7), none());
        assert!(is_proven && name.starts_with("socket:["), "{name}");

        let (_, name, is_proven) = look(libc::SYS_epoll_wait, Some(8), SnapshotStack::Torn);
        assert_eq!((name.as_str(), is_proven), ("[eventpoll]", true));
    }

    /// A sampler of this process with one observation, of the thread that [`seen`] gives.
    fn sampler(now: &ThreadSnapshot) -> Sampler {
        let mut targets = Targets::default();
        let own = Target::open(Pid(std::process::id() as i32)).unwrap();
        targets.add(Arc::new(own));
        let budget = CpuBudget::new(99, 20);
        let mut sampler = Sampler {
            engine: EngineKind::Procfs,
            notes: Vec::new(),
            snapshots: Box::new(counts(Some(now.n_runs))),
            perf: None,
            kernel: KernelSource::None,
            targets,
            threads: ThreadTable::default(),
            clock: TickClock::new(budget.interval(), 0),
            budget,
            held: HeldTicks::default(),
            set: SnapshotSet::default(),
            outbox: Outbox::default(),
        };
        sampler
            .threads
            .slots
            .insert(now.tid, Slot::new(now, true, 1));
        sampler.outbox.batch.threads.push(ThreadTick {
            stack: StackCopy::Torn,
            ..tick_of(now)
        });
        sampler
    }

    /// Check that a stack for which a batch has no room counts as torn and is asked for again, and that one for
    /// which it has is copied.
    #[test]
    fn room() {
        let mut now = seen(0, 0, SnapshotStack::None);
        now.info.host_tid = Some(5);
        let stack = [7; 4096];
        for (n_before, n_torn) in [(MAX_BYTES - 4096, 0), (MAX_BYTES - 4095, 1), (MAX_BYTES, 1)] {
            let mut sampler = sampler(&now);
            let engine = counts(Some(now.n_runs));
            let wanted = Arc::clone(&engine.1);
            sampler.snapshots = Box::new(engine);
            sampler.outbox.batch.stacks.resize(n_before, 0);
            let sp = Avma(stack.as_ptr() as u64);
            let read = StackRead {
                target: now.target,
                tid: now.tid,
                n_runs: now.n_runs,
                regs: UserRegs {
                    sp,
                    ..UserRegs::default()
                },
                part: StackPart {
                    below: 0,
                    above: stack.len(),
                },
                limit: None,
                has_inner: false,
            };
            let mut pending = PendingStacks::default();
            pending.reads.push((0, read));
            sampler.read_stacks(pending);
            let batch = &sampler.outbox.batch;
            assert!(batch.stacks.len() <= MAX_BYTES);
            assert_eq!(batch.counts.n_torn, n_torn);
            let is_torn = batch.threads[0].stack == StackCopy::Torn;
            assert_eq!(is_torn, n_torn == 1);
            assert_eq!(sampler.threads.slots[&now.tid].unchanged(&now), n_torn == 0);
            assert_eq!(wanted.load(Relaxed), 5 * n_torn as i32);
        }
    }
}
