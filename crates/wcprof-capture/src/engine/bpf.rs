//! Snapshots from passes of the BPF programs, with the stacks that they copy.
//!
//! A stack that they do not copy (a thread seen for the first time, an old kernel) is copied and proven
//! by the sampler, by the thread's count of runs in `/proc/PID/task/TID/schedstat`, which is the same
//! number as in the records.

use std::collections::HashMap;
use std::collections::hash_map::Entry;
use std::fs::File;
use std::ops::Range;
use std::os::fd::BorrowedFd;

use wcprof_types::{Pid, RED_ZONE, Sched, StopCause, Tid, UserRegs};

use super::queue_clock::QueueClock;
use super::snapshot::{
    Comm, HeldSnapshot, InSyscall, SnapshotError, SnapshotSet, SnapshotStack, Snapshots,
    ThreadInfo, ThreadSnapshot,
};
use crate::batch::{TargetId, ThreadCounters};
use crate::bpf::{BpfEngine, BpfError, Pass, TaskRecord, Want, records};
use wcprof_host::clock::boot_offset_ns;
use wcprof_host::procfs::{line_buffer, open, parse_schedstat, read_line};

/// A process whose threads are snapshotted.
#[derive(Copy, Clone, Debug)]
struct Observed {
    target: TargetId,
    /// Its number in the initial pid namespace, once its timer samples are let through.
    host_pid: Option<i32>,
}

pub(crate) struct BpfSnapshots {
    /// By pid.
    targets: HashMap<Pid, Observed>,
    engine: BpfEngine,
    /// Files held open, at most `max_held`.
    schedstats: HashMap<Tid, File>,
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
            (pid, Observed { target, host_pid })
        };
        Ok(Self {
            targets: targets.iter().map(observed).collect(),
            engine: BpfEngine::new(&pids, kernel)?,
            schedstats: HashMap::default(),
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

    fn thread(&self, target: TargetId, task: &TaskRecord, stack: &Range<usize>) -> ThreadSnapshot {
        let kernel_side = task.is_kernel_worker();
        let stop = task.stop();
        let sched = if stop == Some(StopCause::CoreDump) {
            // Wherever the thread is that writes the dump: its program does not run.
            Sched::Blocked
        } else if task.is_on_cpu() {
            Sched::OnCpu
        } else if task.is_blocked() {
            Sched::Blocked
        } else {
            let waited_ns = self.clock.waited_ns(task.time, task.last_queued);
            Sched::Queued {
                waited_ns: task.has_queue_times().then_some(waited_ns),
            }
        };
        // Those of a thread on a CPU are of its last kernel entry, not of now; a worker has those of the
        // system call that made it.
        let is_known = sched != Sched::OnCpu && !kernel_side;
        let regs = task.user_regs().filter(|_| is_known);
        ThreadSnapshot {
            target,
            tid: Tid(task.tid),
            time: task.time,
            sched,
            counters: ThreadCounters {
                switches: task.nvcsw.wrapping_add(task.nivcsw),
                voluntary: Some(task.nvcsw),
                run_ns: task.run_time,
                delay_ns: task.run_delay,
                guest_ns: 0,
            },
            n_runs: task.pcount,
            syscall: regs.map(|_| InSyscall {
                number: task.syscall(),
                args: [task.di, task.si, task.dx],
            }),
            stop,
            regs,
            stack: match (task.is_torn(), stack.is_empty()) {
                (true, _) => SnapshotStack::Torn,
                (false, true) => SnapshotStack::None,
                (false, false) => SnapshotStack::Copied {
                    bytes: stack.clone(),
                    below: (task.stack_below as usize).min(stack.len()),
                },
            },
            kernel: stack.end..stack.end + task.kernel_len as usize,
            info: ThreadInfo {
                started: task.start_boottime.saturating_sub(self.boot_offset),
                comm: Some(Comm(task.comm)),
                exec_id: u64::from(task.exec_id) + 1,
                kernel_side,
                host_tid: Some(task.host_tid),
            },
        }
    }

    /// Hands on what a pass found, whose records begin at `start`.
    fn hand_on(
        &mut self,
        pass: &Pass,
        list: bool,
        (stacks, start): (&[u8], usize),
        out: &mut SnapshotSet,
    ) -> Result<(), SnapshotError> {
        out.clear();
        out.incomplete = pass.n_missed > 0;
        out.unlisted = (!list).then_some((pass.n_unlisted as usize, pass.end));
        self.n_kept_read = pass.n_kept;
        for record in records(stacks, start) {
            let (task, stack) = record.map_err(BpfError::from)?;
            if task.has_queue_times() {
                self.clock.learn(task.time, task.reader_arrival);
            }
            if task.is_exiting() {
                continue;
            }
            let Some(observed) = self.targets.get_mut(&Pid(task.tgid)) else {
                continue;
            };
            if observed.host_pid.is_none() {
                // Refused: the stacks of its running threads are missing, nothing else.
                let _ = self.engine.keep_samples(task.host_tgid);
                observed.host_pid = Some(task.host_tgid);
            }
            let target = observed.target;
            out.threads.push(self.thread(target, &task, &stack));
        }
        Ok(())
    }
}

impl Snapshots for BpfSnapshots {
    fn snapshot(
        &mut self,
        out: &mut SnapshotSet,
        stacks: &mut Vec<u8>,
    ) -> Result<(), SnapshotError> {
        let list = std::mem::take(&mut self.list);
        let start = stacks.len();
        let pass = self.engine.pass(list, stacks)?;
        self.hand_on(&pass, list, (stacks, start), out)
    }

    fn hold(&mut self) -> Result<Option<HeldSnapshot>, SnapshotError> {
        if self.list || self.targets.values().any(|t| t.host_pid.is_none()) {
            return Ok(None);
        }
        let Some(pass) = self.engine.hold()? else {
            return Ok(None);
        };
        let n_threads_before = std::mem::replace(&mut self.n_threads_held, pass.n_seen());
        Ok(Some(HeldSnapshot {
            time: pass.begin,
            urgent: pass.n_urgent > 0 || pass.n_seen() != n_threads_before,
            n_samples: pass.n_kept.wrapping_sub(self.n_kept_read),
        }))
    }

    fn take_held(
        &mut self,
        out: &mut SnapshotSet,
        stacks: &mut Vec<u8>,
    ) -> Result<(), SnapshotError> {
        let start = stacks.len();
        match self.engine.take_held(stacks) {
            Some(pass) => self.hand_on(&pass, false, (stacks, start), out),
            None => Ok(()),
        }
    }

    fn add_target(&mut self, target: TargetId, pid: Pid) -> Result<(), SnapshotError> {
        self.engine.add_target(pid)?;
        let host_pid = None;
        self.targets.insert(pid, Observed { target, host_pid });
        Ok(())
    }

    fn remove_target(&mut self, target: TargetId, pid: Pid) {
        let known = self.targets.get(&pid);
        if let Some(observed) = known.filter(|o| o.target == target) {
            self.engine.remove_target(pid, observed.host_pid);
            self.targets.remove(&pid);
        }
    }

    fn want_full(&mut self) {
        self.engine.forget_seen();
    }

    fn want_thread(&mut self, host_tid: i32) {
        self.engine.forget_seen_thread(host_tid);
    }

    fn has_kernel_stacks(&self) -> bool {
        self.kernel
    }

    fn want_list(&mut self) {
        self.list = true;
    }

    fn want_stack(&mut self, want: &Want) {
        // A program that cannot be told copies nothing; the sampler then does.
        let _ = self.engine.want_stack(want);
    }

    fn red_zone(&mut self, cpu: u32, host_tid: i32, regs: &UserRegs) -> Option<[u8; RED_ZONE]> {
        self.engine.red_zone(cpu, host_tid, regs)
    }

    fn n_runs(&mut self, tid: Tid) -> Option<u64> {
        let n_held = self.schedstats.len();
        let mut buffer = line_buffer();
        let opened;
        let file = match self.schedstats.entry(tid) {
            Entry::Occupied(file) => file.into_mut(),
            Entry::Vacant(vacant) => {
                // Not in the listing of /proc, but there: each thread has a folder as a process has.
                let path = format!("/proc/{tid}/task/{tid}/schedstat");
                let file = open(path).ok()?;
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
