//! Copies of stack memory: of blocked and preempted threads by reading it, of running ones out of
//! the perf rings.

use wcprof_types::{Avma, Pid, Sched, Tid, UserRegs, Wait};

use super::batch::{KernelStack, StackBytes, StackCopy, TargetId, TimerSample};
use super::locks::lock_of;
use super::slot::Slot;
use super::start::KernelSource;
use super::targets::Observed;
use super::{Run, Sampler};
use crate::engine::{InSyscall, SnapshotStack, Snapshots, ThreadSnapshot};
use wcprof_host::fds::{FdCache, needs_proof, unname};
use wcprof_host::procfs::{SyscallState, blocked_in, kernel_place, kernel_stack};
use wcprof_host::{ReadRange, read_ranges};

/// Stacks read before their switch counts are checked: the fewer, the fewer are torn.
const BATCH: usize = 16;
/// Where the mapping of a stack pointer is not known, one page is copied.
const UNKNOWN_READ: u64 = 4096;

/// Looks at a thread whose copy was torn.
const ATTEMPTS: u32 = 3;

/// A stack to read.
#[derive(Clone, Debug)]
pub(super) struct CopyRead {
    /// Its place in the batch's threads.
    pub(super) index: usize,
    target: TargetId,
    tid: Tid,
    n_runs: u64,
    regs: UserRegs,
    len: usize,
    limit: Option<Avma>,
}

/// What to do for the stack of one observation.
#[derive(Default)]
pub(super) struct CopyJob {
    pub(super) wait: Option<Wait>,
    pub(super) stack: StackCopy,
    pub(super) kernel: KernelStack,
    pub(super) read: Option<CopyRead>,
    /// The thread has run since, so that the file of its wait is not certain.
    pub(super) unnamed: bool,
}

/// A thread to look at once more, since it ran while it was looked at.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub(super) struct Again {
    /// Its place in the batch's threads.
    pub(super) index: usize,
    pub(super) tid: Tid,
    /// Its stack is torn; else the file of its wait is all that lacks.
    pub(super) torn: bool,
}

/// Bytes to copy from `sp`: what unwinding is known to need, as far as the mapping goes.
fn read_len(slot: &Slot, sp: Avma, limit: Option<Avma>) -> usize {
    let room = limit.map_or_else(
        || UNKNOWN_READ - sp.0 % UNKNOWN_READ,
        |limit| slot.end_of(sp, limit).0 - sp.0,
    );
    (slot.read_size as u64).min(room) as usize
}

/// The kernel's part of a blocked thread's stack, when it was asked for.
fn kernel_stack_of(
    source: KernelSource,
    snapshots: &mut dyn Snapshots,
    pid: Pid,
    now: &ThreadSnapshot,
) -> KernelStack {
    match source {
        KernelSource::None => KernelStack::None,
        KernelSource::Engine if now.kernel.is_empty() => KernelStack::None,
        KernelSource::Engine => KernelStack::Addresses {
            bytes: now.kernel.clone(),
            interrupted: false,
        },
        KernelSource::Procfs => kernel_names(snapshots, pid, now.tid, now.n_runs),
    }
}

/// The same from `/proc`, if the thread did not run since its counts were read.
fn kernel_names(snapshots: &mut dyn Snapshots, pid: Pid, tid: Tid, n_runs: u64) -> KernelStack {
    let names = kernel_stack(pid, tid);
    match snapshots.n_runs(tid) == Some(n_runs) {
        true if !names.is_empty() => KernelStack::Names(names),
        _ => KernelStack::None,
    }
}

/// The wait that a thread was seen in, and whether the file that was just read for it is proven: the
/// thread has not been put on a CPU since, so it is in the same call. Else the wait has no file's name.
fn wait_of(
    fds: &mut FdCache,
    snapshots: &mut dyn Snapshots,
    seen: &ThreadSnapshot,
) -> (Wait, bool) {
    let (number, args) = seen.syscall.map_or((None, [0; 3]), |s| (s.number, s.args));
    let mut wait = fds.wait(number, args);
    let is_proven = !needs_proof(&wait)
        || (seen.stack != SnapshotStack::Torn && snapshots.n_runs(seen.tid) == Some(seen.n_runs));
    if !is_proven {
        unname(&mut wait);
    }
    (wait, is_proven)
}

impl Sampler {
    /// Decides what an observation needs. Its counters are known, its stack is not yet.
    pub(super) fn copy_job(&mut self, slot: &mut Slot, now: &ThreadSnapshot) -> CopyJob {
        // Split so that each part can be borrowed by itself.
        let Some(Observed {
            target,
            fds,
            stack_map,
            ..
        }) = self.targets.get_mut(now.target)
        else {
            return CopyJob::default();
        };
        let mut job = CopyJob::default();
        if now.sched == Sched::Blocked {
            job.wait = Some(match now.kernel_side {
                true => Wait {
                    kernel: kernel_place(target.pid(), now.tid),
                    ..Wait::default()
                },
                false => {
                    let (wait, is_proven) = wait_of(fds, self.snapshots.as_mut(), now);
                    job.unnamed = !is_proven;
                    wait
                }
            });
            if now.kernel_side {
                job.stack = StackCopy::NoUserStack;
            }
            job.kernel = kernel_stack_of(self.kernel, self.snapshots.as_mut(), target.pid(), now);
        }
        if let Some(regs) = now.regs.filter(|_| !now.kernel_side) {
            let range = stack_map.range(target, regs.sp, now.time);
            let limit = range.as_ref().map(|range| range.end);
            if let (Some(mapping), Some(host_tid)) = (range, now.host_tid)
                && let Some(want) = slot.new_want(mapping, regs.sp)
            {
                self.snapshots.want_stack(host_tid, want);
            }
            job.stack = StackCopy::Torn;
            match &now.stack {
                SnapshotStack::None => {}
                SnapshotStack::Torn => return job,
                SnapshotStack::Copied(bytes) => {
                    job.stack = StackCopy::Copied(StackBytes {
                        regs,
                        bytes: bytes.clone(),
                        limit,
                    });
                    return job;
                }
            }
            job.read = Some(CopyRead {
                index: 0,
                target: now.target,
                tid: now.tid,
                n_runs: now.n_runs,
                regs,
                len: read_len(slot, regs.sp, limit),
                limit,
            });
        }
        job
    }

    /// Reads the stacks asked for, in small batches, each checked at once: a thread that was put
    /// on a CPU since its snapshot has a torn copy.
    pub(super) fn copy_stacks(&mut self, run: &mut Run<'_>) {
        let jobs = std::mem::take(&mut self.copies);
        // Threads of a process come one after the other.
        let of_process = jobs.chunk_by(|a, b| a.target == b.target);
        for jobs in of_process.flat_map(|jobs| jobs.chunks(BATCH)) {
            let target = jobs.first().and_then(|job| self.targets.get(job.target));
            let Some(pid) = target.map(Observed::pid) else {
                continue;
            };
            self.ranges.clear();
            self.ranges.extend(jobs.iter().map(|job| ReadRange {
                address: job.regs.sp,
                len: job.len,
            }));
            let read = read_ranges(pid, &self.ranges, &mut self.arena, &mut self.lengths);
            if read.is_err() {
                // The process is gone: the next tick says so.
                continue;
            }
            let mut start = 0;
            for (job, &len) in jobs.iter().zip(&self.lengths) {
                let copy = start..start + len;
                start += job.len;
                let whole = self.snapshots.n_runs(job.tid) == Some(job.n_runs);
                if !whole {
                    self.again.push(Again {
                        index: job.index,
                        tid: job.tid,
                        torn: true,
                    });
                    continue;
                }
                let at = run.batch.stacks.len();
                run.batch.stacks.extend_from_slice(&self.arena[copy]);
                if let Some(tick) = run.batch.threads.get_mut(job.index) {
                    tick.stack = StackCopy::Copied(StackBytes {
                        regs: job.regs,
                        bytes: at..at + len,
                        limit: job.limit,
                    });
                }
            }
        }
        self.copies = jobs;
        self.copies.clear();
        let mut again = std::mem::take(&mut self.again);
        for Again { index, tid, torn } in again.drain(..) {
            let whole = (0..ATTEMPTS).any(|_| self.copy_again(run, index, tid).is_some());
            run.counts.n_torn += u64::from(torn && !whole);
            if let Some(slot) = run.slots.get_mut(&tid) {
                slot.force = true;
            }
        }
        self.again = again;
    }

    /// Looks once more at a thread that ran while its stack was copied, alone and at once. A short
    /// wait is torn more often than a long one, so doing without would favor the long ones; where
    /// the thread is now is as fair a sample as where it was.
    fn copy_again(&mut self, run: &mut Run<'_>, index: usize, tid: Tid) -> Option<()> {
        let n_runs = self.snapshots.n_runs(tid)?;
        let tick = run.batch.threads.get_mut(index)?;
        let observed = self.targets.get_mut(tick.target)?;
        let pid = observed.pid();
        let SyscallState::Blocked { number, args, regs } = blocked_in(pid, tid)? else {
            return None;
        };
        let Observed {
            target,
            fds,
            locks,
            stack_map,
            ..
        } = observed;
        let limit = stack_map.limit(target, regs.sp, tick.time);
        let address = regs.sp;
        let len = read_len(run.slots.get(&tid)?, address, limit);
        let range = ReadRange { address, len };
        read_ranges(pid, &[range], &mut self.arena, &mut self.lengths).ok()?;
        let len = *self.lengths.first()?;
        let args = [args[0], args[1], args[2]];
        let wait = fds.wait(number, args);
        if self.snapshots.n_runs(tid)? != n_runs {
            return None;
        }
        let at = run.batch.stacks.len();
        run.batch.stacks.extend_from_slice(&self.arena[..len]);
        if let Some(slot) = run.slots.get_mut(&tid) {
            let lock = lock_of(Sched::Blocked, Some(InSyscall { number, args }));
            locks.change(slot, lock);
        }
        tick.wait = Some(wait);
        tick.kernel = match self.kernel {
            KernelSource::None => KernelStack::None,
            _ => kernel_names(self.snapshots.as_mut(), pid, tid, n_runs),
        };
        tick.stack = StackCopy::Copied(StackBytes {
            regs,
            bytes: at..at + len,
            limit,
        });
        Some(())
    }

    pub(super) fn drain_timer_samples(&mut self, run: &mut Run<'_>) {
        let Some(perf) = &mut self.perf else { return };
        let targets = &mut self.targets;
        let (batch, slots, deep) = (&mut run.batch, &run.slots, &mut run.deep_sample);
        let drained = perf.drain(|sample| {
            let slot = slots.get(&sample.tid);
            if slot.is_some_and(|slot| !slot.keep) {
                return;
            }
            let Some(id) = targets.of_pid(sample.pid) else {
                return;
            };
            let Some(Observed {
                target, stack_map, ..
            }) = targets.get_mut(id)
            else {
                return;
            };
            let stack = sample.regs.map(|regs| {
                let limit = stack_map.limit(target, regs.sp, sample.time);
                let end = limit.map(|limit| slot.map_or(limit, |s| s.end_of(regs.sp, limit)));
                let room = end.map_or(usize::MAX, |end| (end.0 - regs.sp.0) as usize);
                let bytes = &sample.stack[..sample.stack.len().min(room)];
                *deep |= bytes.len() < room && limit.is_some();
                let at = batch.stacks.len();
                batch.stacks.extend_from_slice(bytes);
                StackBytes {
                    regs,
                    bytes: at..at + bytes.len(),
                    limit,
                }
            });
            batch.timer_samples.push(TimerSample {
                target: id,
                tid: sample.tid,
                time: sample.time,
                guest: sample.in_kvm_run,
                stack,
                kernel: match sample.kernel {
                    [] => KernelStack::None,
                    kernel => {
                        let at = batch.stacks.len();
                        batch.stacks.extend_from_slice(kernel);
                        KernelStack::Addresses {
                            bytes: at..batch.stacks.len(),
                            interrupted: true,
                        }
                    }
                },
            });
        });
        run.counts.n_lost += drained.n_lost + drained.n_malformed;
    }
}

#[cfg(test)]
mod tests {
    use std::os::fd::{AsRawFd, OwnedFd};

    use wcprof_types::FdKind;

    use super::*;
    use crate::engine::{SnapshotError, SnapshotSet};

    /// An engine that knows how often a thread ran by now, and nothing else.
    struct Counts(Option<u64>);

    impl Snapshots for Counts {
        fn snapshot(&mut self, _: &mut SnapshotSet, _: &mut Vec<u8>) -> Result<(), SnapshotError> {
            Ok(())
        }

        fn add_target(&mut self, _: TargetId, _: Pid) -> Result<(), SnapshotError> {
            Ok(())
        }

        fn remove_target(&mut self, _: TargetId, _: Pid) {}

        fn n_runs(&mut self, _: Tid) -> Option<u64> {
            self.0
        }

        fn forget(&mut self, _: Tid) {}
    }

    fn seen(call: i64, fd: i32, stack: SnapshotStack) -> ThreadSnapshot {
        ThreadSnapshot {
            target: TargetId(0),
            tid: Tid(1),
            time: 0,
            sched: Sched::Blocked,
            switches: 0,
            voluntary: None,
            run_ns: 0,
            delay_ns: 0,
            n_runs: 7,
            regs: None,
            syscall: Some(InSyscall {
                number: u32::try_from(call).ok(),
                args: [fd as u64, 0, 0],
            }),
            kernel_side: false,
            started: 0,
            comm: None,
            exec_id: 0,
            host_tid: None,
            stack,
            kernel: 0..0,
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
        let mut fds = FdCache::new(Pid(std::process::id() as i32));
        let mut look = |call, runs, stack| {
            let now = seen(call, number, stack);
            let (wait, is_proven) = wait_of(&mut fds, &mut Counts(runs), &now);
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
}
