//! Snapshots from the BPF task iterator, with the stacks that it copies.
//!
//! A stack that it does not copy (a thread seen for the first time, an old kernel) is copied and
//! proven by the sampler, by the thread's count of runs in `/proc/PID/task/TID/schedstat`, the
//! same number as the iterator's.

use std::fs::File;
use std::ops::Range;
use std::os::fd::BorrowedFd;

use wcprof_types::{Pid, Sched, Tid};

use super::queue_clock::QueueClock;
use super::{
    Comm, HeldSnapshot, InSyscall, SnapshotError, SnapshotSet, SnapshotStack, Snapshots, StackWant,
    ThreadSnapshot,
};
use crate::bpf::{BpfEngine, BpfError, Changes, SnapshotInfo, TaskFlags, TaskRecord, WantedStack};
use crate::sampler::TargetId;
use crate::tid_map::TidMap;
use wcprof_host::clock::boot_offset_ns;
use wcprof_host::procfs::{line_buffer, parse_schedstat, read_line};

/// A process whose threads are snapshotted.
#[derive(Copy, Clone, Debug)]
struct Observed {
    target: TargetId,
    /// Its number in the initial pid namespace, once its timer samples are let through.
    host_pid: Option<i32>,
}

#[derive(Debug)]
pub(crate) struct BpfSnapshots {
    /// By pid.
    targets: TidMap<Observed>,
    engine: BpfEngine,
    changes: Changes,
    /// Files held open, at most `max_held`.
    schedstats: TidMap<File>,
    max_held: usize,
    boot_offset: u64,
    clock: QueueClock,
    /// The next snapshot lists unchanged threads.
    list: bool,
    /// Kernel stacks were asked for.
    kernel: bool,
    /// Threads of the last pass that was held.
    n_threads_held: u32,
    /// Timer samples that the filter had kept by the last pass that was read.
    n_kept_read: u32,
}

impl BpfSnapshots {
    pub(crate) fn new(
        targets: &[(TargetId, Pid)],
        max_held: usize,
        kernel: bool,
    ) -> Result<Self, BpfError> {
        let pids: Vec<Pid> = targets.iter().map(|&(_, pid)| pid).collect();
        let observed = |&(target, pid): &(TargetId, Pid)| {
            let host_pid = None;
            (Tid(pid.0), Observed { target, host_pid })
        };
        Ok(Self {
            targets: targets.iter().map(observed).collect(),
            engine: match kernel {
                true => BpfEngine::with_kernel_stacks(&pids)?,
                false => BpfEngine::new(&pids)?,
            },
            changes: Changes::default(),
            schedstats: TidMap::default(),
            max_held,
            boot_offset: boot_offset_ns(),
            clock: QueueClock::default(),
            list: false,
            kernel,
            n_threads_held: 0,
            n_kept_read: 0,
        })
    }

    /// The program that drops timer samples of other processes.
    pub(crate) fn perf_filter(&self) -> Option<BorrowedFd<'_>> {
        self.engine.perf_filter_fd()
    }

    /// Why the records have no kernel stacks although asked for.
    pub(crate) fn no_kernel_stacks(&self) -> Option<&str> {
        self.engine.features().no_kernel_stacks.as_deref()
    }

    fn thread(&self, target: TargetId, task: &TaskRecord, stack: &Range<usize>) -> ThreadSnapshot {
        let kernel_side = task.state.flags.has(TaskFlags::IO_WORKER)
            || task.state.flags.has(TaskFlags::USER_WORKER);
        let sched = if task.state.is_running() {
            Sched::OnCpu
        } else if task.state.is_blocked() {
            Sched::Blocked
        } else {
            Sched::Queued {
                waited_ns: task
                    .queue
                    .map(|q| self.clock.waited_ns(task.time_ns, q.last_queued)),
            }
        };
        // Those of a thread on a CPU are of its last kernel entry, not of now.
        let regs = task.regs.filter(|_| sched != Sched::OnCpu);
        let queue = task.queue;
        ThreadSnapshot {
            target,
            tid: task.tid,
            time: task.time_ns,
            sched,
            switches: task.counters.switches(),
            voluntary: Some(task.counters.nvcsw),
            run_ns: task.counters.run_time_ns,
            delay_ns: queue.map_or(0, |q| q.run_delay_ns),
            n_runs: queue.map_or(0, |q| q.n_runs),
            regs: regs.filter(|_| !kernel_side).map(|r| r.user_regs()),
            syscall: regs.map(|r| InSyscall {
                number: r.syscall.number(),
                args: [r.syscall.args[0], r.syscall.args[1], r.syscall.args[2]],
            }),
            kernel_side,
            started: task.start_boottime_ns.saturating_sub(self.boot_offset),
            comm: Some(Comm(task.comm)),
            exec_id: u64::from(task.exec_id) + 1,
            host_tid: Some(task.host_tid),
            stack: if task.torn {
                SnapshotStack::Torn
            } else if stack.is_empty() {
                SnapshotStack::None
            } else {
                SnapshotStack::Copied(stack.clone())
            },
            kernel: stack.end..stack.end + task.kernel_len,
        }
    }

    /// Hands on what a pass found.
    fn hand_on(&mut self, out: &mut SnapshotSet, info: &SnapshotInfo, list: bool) {
        out.full.clear();
        out.unchanged.clear();
        out.incomplete = info.incomplete;
        out.gone.clear();
        for (task, stack) in &self.changes.changed {
            if let Some(queue) = task.queue {
                self.clock.learn(task.time_ns, queue.reader_arrival);
            }
            if task.state.is_exiting() {
                continue;
            }
            let Some(observed) = self.targets.get_mut(&Tid(task.pid.0)) else {
                continue;
            };
            if observed.host_pid.is_none() {
                // Refused: the stacks of its running threads are missing, nothing else.
                let _ = self.engine.keep_samples(task.host_pid);
                observed.host_pid = Some(task.host_pid);
            }
            let target = observed.target;
            out.full.push(self.thread(target, task, stack));
        }
        let n_unlisted = self.changes.n_unmentioned as usize;
        out.unlisted = (!list).then_some((n_unlisted, info.time_ns));
        let unchanged = self.changes.unchanged.iter();
        out.unchanged
            .extend(unchanged.map(|&tid| (tid, info.time_ns)));
    }
}

impl Snapshots for BpfSnapshots {
    fn snapshot(
        &mut self,
        out: &mut SnapshotSet,
        stacks: &mut Vec<u8>,
    ) -> Result<(), SnapshotError> {
        let list = std::mem::take(&mut self.list);
        let info = self
            .engine
            .snapshot_changes(list, &mut self.changes, stacks)?;
        self.hand_on(out, &info, list);
        self.n_kept_read = self.engine.n_kept();
        Ok(())
    }

    fn hold(&mut self) -> Result<Option<HeldSnapshot>, SnapshotError> {
        if self.list || self.kernel || self.targets.values().any(|t| t.host_pid.is_none()) {
            return Ok(None);
        }
        let Some(pass) = self.engine.hold_changes()? else {
            return Ok(None);
        };
        let other_threads = pass.n_threads != self.n_threads_held;
        self.n_threads_held = pass.n_threads;
        Ok(Some(HeldSnapshot {
            time: pass.time_ns,
            urgent: pass.n_urgent > 0 || other_threads,
            n_samples: pass.n_kept.wrapping_sub(self.n_kept_read),
        }))
    }

    fn take_held(
        &mut self,
        out: &mut SnapshotSet,
        stacks: &mut Vec<u8>,
    ) -> Result<(), SnapshotError> {
        if let Some(info) = self.engine.take_held(&mut self.changes, stacks)? {
            self.hand_on(out, &info, false);
        }
        self.n_kept_read = self.engine.n_kept();
        Ok(())
    }

    fn add_target(&mut self, target: TargetId, pid: Pid) -> Result<(), SnapshotError> {
        self.engine.add_target(pid)?;
        let host_pid = None;
        self.targets
            .insert(Tid(pid.0), Observed { target, host_pid });
        Ok(())
    }

    fn remove_target(&mut self, target: TargetId, pid: Pid) {
        let known = self.targets.get(&Tid(pid.0));
        if let Some(observed) = known.filter(|o| o.target == target) {
            self.engine.remove_target(pid, observed.host_pid);
            self.targets.remove(&Tid(pid.0));
        }
    }

    fn want_full(&mut self) {
        self.engine.forget_seen();
    }

    fn has_kernel_stacks(&self) -> bool {
        self.kernel && self.no_kernel_stacks().is_none()
    }

    fn want_list(&mut self) {
        self.list = true;
    }

    fn want_stack(&mut self, host_tid: i32, want: &StackWant) {
        if self.engine.features().no_stack_copies.is_some() {
            return;
        }
        // A program that cannot be told copies nothing; the sampler then does.
        let _ = self.engine.want_stack(&WantedStack {
            host_tid,
            mapping: want.mapping.clone(),
            bytes: want.bytes,
        });
    }

    fn n_runs(&mut self, tid: Tid) -> Option<u64> {
        let n_held = self.schedstats.len();
        let mut buffer = line_buffer();
        let opened;
        let file = match self.schedstats.entry(tid) {
            std::collections::hash_map::Entry::Occupied(file) => file.into_mut(),
            std::collections::hash_map::Entry::Vacant(vacant) => {
                // Not in the listing of /proc, but there: each thread has a folder as a process has.
                let path = format!("/proc/{tid}/task/{tid}/schedstat");
                let file = File::open(path).ok()?;
                if n_held < self.max_held {
                    vacant.insert(file)
                } else {
                    opened = file;
                    &opened
                }
            }
        };
        Some(parse_schedstat(read_line(file, &mut buffer).ok()?)?.n_runs)
    }

    fn forget(&mut self, tid: Tid) {
        self.schedstats.remove(&tid);
    }
}
