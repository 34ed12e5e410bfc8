//! Records in order of time to threads, their stacks, and their time on and off CPUs.

use std::collections::HashMap;

use linux_perf_data::linux_perf_event_reader::{
    ContextSwitchRecord, CpuMode, SampleRecord, TaskWasPreempted,
};
use wcprof_trace::limits::MAX_NAME_BYTES;
use wcprof_trace::model::{StackId, ThreadId};
use wcprof_types::{ThreadState, Tid, TimeNs};

use super::events::{Event, Kind};
use super::offcpu::{self, SleptThread};
use super::pieces::{Piece, SaidBy};
use super::processes::{Processes, is_deferred};
use crate::builder::Builder;
use crate::error::{Result, within};
use crate::limits;

struct Seen {
    id: ThreadId,
    pid: i32,
    /// Since when it is off CPU, with which stack, and whether it could run.
    off: Option<(u64, Option<StackId>, bool)>,
    /// Since when it is on a CPU, by a switch.
    on: Option<u64>,
    /// It exited: its last switch is no wait.
    is_gone: bool,
}

/// What was counted on the way.
#[derive(Debug, Default)]
pub(super) struct Counts {
    pub(super) n_samples: u64,
    pub(super) n_lost: u64,
    /// Samples of other events.
    pub(super) n_other: u64,
    pub(super) n_idle: u64,
    /// Sums of waits whose times perf does not say.
    pub(super) n_untimed: u64,
    /// Samples whose user stacks are in records of their own.
    pub(super) n_deferred: u64,
    /// Waits whose end no switch recorded.
    pub(super) n_open: u64,
    pub(super) has_switches: bool,
}

/// What was read so far.
pub(super) struct Recording<'c> {
    pub(super) builder: Builder,
    pub(super) counts: Counts,
    pub(super) processes: Processes<'c>,
    pub(super) events: Vec<Event>,
    /// By event: samples, and the sum of their periods.
    pub(super) sums: Vec<(u64, u64)>,
    pub(super) pieces: Vec<Piece>,
    /// Latest time, ns.
    pub(super) last: u64,
    /// What it is for, where that is not time.
    pub(super) made_for: Option<&'static str>,
    threads: HashMap<i32, Seen>,
}

impl<'c> Recording<'c> {
    pub(super) fn new(
        builder: Builder,
        events: Vec<Event>,
        processes: Processes<'c>,
        made_for: Option<&'static str>,
    ) -> Self {
        Self {
            builder,
            counts: Counts::default(),
            processes,
            sums: vec![(0, 0); events.len()],
            events,
            pieces: Vec::new(),
            last: 0,
            made_for,
            threads: HashMap::new(),
        }
    }

    /// Makes sure that a thread is known.
    fn thread(&mut self, pid: i32, tid: i32) -> Result<ThreadId> {
        if let Some(seen) = self.threads.get(&tid)
            && seen.pid == pid
        {
            return Ok(seen.id);
        }
        let process = self.processes.id(pid, &mut self.builder)?;
        let id = self.builder.thread(process, Tid(tid), "")?;
        let seen = Seen {
            id,
            pid,
            off: None,
            on: None,
            is_gone: false,
        };
        self.threads.insert(tid, seen);
        Ok(id)
    }

    pub(super) fn comm(&mut self, pid: i32, tid: i32, name: &str, is_exec: bool) -> Result<()> {
        if tid <= 0 {
            return Ok(());
        }
        let thread = self.thread(pid, tid)?;
        if is_exec {
            self.processes.exec(pid, &mut self.builder)?;
        }
        let name = name[..name.floor_char_boundary(MAX_NAME_BYTES)].to_owned();
        let process = self.processes.id(pid, &mut self.builder)?;
        let tables = &mut self.builder.trace.tables;
        if pid == tid {
            let process = &mut tables.processes[process.0 as usize];
            process.comm.clone_from(&name);
        }
        tables.threads[thread.0 as usize].names = vec![(TimeNs(0), name)];
        Ok(())
    }

    pub(super) fn fork(&mut self, pid: i32, tid: i32, parent: i32, parent_tid: i32) -> Result<()> {
        if tid <= 0 || pid <= 0 {
            return Ok(());
        }
        let threads = &self.builder.trace.tables.threads;
        let name = |parent: &Seen| threads[parent.id.0 as usize].name().to_owned();
        let inherited = self.threads.get(&parent_tid).map(name);
        self.processes.fork(pid, parent, &mut self.builder)?;
        // A tid that is used again is another thread.
        self.threads.remove(&tid);
        self.thread(pid, tid)?;
        if let Some(name) = inherited {
            self.comm(pid, tid, &name, false)?;
        }
        Ok(())
    }

    /// A thread must run to exit: that ends its wait.
    pub(super) fn exit(&mut self, tid: i32, time: u64) -> Result<()> {
        self.last = self.last.max(time);
        self.close(tid, time, 0)?;
        if let Some(seen) = self.threads.get_mut(&tid) {
            seen.is_gone = true;
        }
        Ok(())
    }

    pub(super) fn sample(&mut self, event: usize, sample: &SampleRecord<'_>) -> Result<()> {
        let Some(of_event) = self.events.get(event) else {
            return Ok(());
        };
        let (kind, copies_stack) = (of_event.kind, of_event.copies_stack);
        let weight = sample.period.unwrap_or(of_event.period);
        let (Some(pid), Some(tid), Some(time)) = (sample.pid, sample.tid, sample.timestamp) else {
            self.counts.n_other += 1;
            return Ok(());
        };
        if kind == Kind::OffCpu {
            return self.slept(sample, (pid, tid), weight, time);
        }
        self.last = self.last.max(time);
        if kind == Kind::Switch {
            self.runs_next(sample, time)?;
        }
        if tid <= 0 || pid <= 0 {
            self.counts.n_idle += 1;
            return Ok(());
        }
        if kind == Kind::Other || !self.is_wanted(event) {
            self.counts.n_other += 1;
            return Ok(());
        }
        self.counts.n_samples += 1;
        self.counts.n_deferred += u64::from(is_deferred(sample));
        let thread = self.thread(pid, tid)?;
        let builder = &mut self.builder;
        // Addresses of a guest are none of the process that runs it.
        let in_guest = matches!(sample.cpu_mode, CpuMode::GuestKernel | CpuMode::GuestUser);
        let stack = match in_guest {
            true => None,
            false => Some((self.processes).stack(pid, sample, copies_stack, builder)?),
        };
        let mut piece = Piece {
            thread,
            end: time,
            weight,
            event: None,
            state: match kind {
                Kind::Happened { .. } => ThreadState::Unknown,
                _ if in_guest => ThreadState::Guest,
                _ => ThreadState::OnCpu,
            },
            stack,
            said_by: SaidBy::Sample,
        };
        match kind {
            Kind::Clock | Kind::Counted { .. } | Kind::Happened { .. } => {
                let is_clock = kind == Kind::Clock;
                self.close(tid, time, if is_clock { weight } else { 0 })?;
                let (n, periods) = &mut self.sums[event];
                *n += 1;
                *periods = periods.saturating_add(weight);
                piece.event = (!is_clock).then_some(event);
                self.piece(piece)?;
            }
            Kind::Switch => {
                self.close(tid, time, 0)?;
                // `prev_state` is 0 for a thread that could go on (`include/trace/events/sched.h`).
                let state = raw_number(sample, 32, 8);
                let could_run = state.is_some_and(|s| s & 0xff == 0);
                self.leaves(tid, time, stack, could_run)?;
            }
            Kind::OffCpu | Kind::Other => {}
        }
        Ok(())
    }

    /// Time that a thread was off CPU, by `perf record --off-cpu`.
    fn slept(
        &mut self,
        sample: &SampleRecord<'_>,
        (pid, tid): (i32, i32),
        period: u64,
        time: u64,
    ) -> Result<()> {
        let sleeper = SleptThread::of(sample);
        let is_timed = time < offcpu::UNTIMED;
        let pid_of = |tid: i32| self.threads.get(&tid).map(|seen| seen.pid);
        let (pid, tid) = (sleeper.as_ref()).map_or((pid, tid), |s| s.pid_tid(is_timed, pid_of));
        if tid <= 0 || pid <= 0 {
            self.counts.n_idle += 1;
            return Ok(());
        }
        self.counts.n_samples += 1;
        let thread = self.thread(pid, tid)?;
        let builder = &mut self.builder;
        let stack = match &sleeper {
            Some(sleeper) => self.processes.stack_of(pid, &sleeper.chain, builder)?,
            None => self.processes.stack(pid, sample, false, builder)?,
        };
        let ns = sleeper.map_or(period, |sleeper| sleeper.ns);
        if is_timed {
            self.last = self.last.max(time);
            // It ran before it slept: that ends a time on a run queue whose end no switch recorded.
            let is_off = |seen: &Seen| seen.off.is_some_and(|(_, _, could_run)| could_run);
            if self.threads.get(&tid).is_some_and(is_off) {
                self.close(tid, time.saturating_sub(ns), 0)?;
            }
        } else {
            self.counts.n_untimed += 1;
        }
        self.piece(Piece {
            thread,
            end: if is_timed { time } else { offcpu::UNTIMED },
            weight: ns,
            event: None,
            state: ThreadState::Blocked,
            stack: Some(stack),
            said_by: SaidBy::OffCpu,
        })
    }

    /// Of several events that count CPU time, the first is taken, and events of the same name on other kinds of cores; one that counts something else
    /// only where nothing has time.
    fn is_wanted(&self, event: usize) -> bool {
        let wanted = &self.events[event];
        let events = || self.events.iter();
        let has_time = |event: &Event| !matches!(event.kind, Kind::Happened { .. } | Kind::Other);
        let first = match events().any(has_time) {
            true => events().find(|event| event.counts_cpu_time()),
            false => events().find(|event| matches!(event.kind, Kind::Happened { .. })),
        };
        match wanted.kind {
            Kind::Clock | Kind::Counted { .. } | Kind::Happened { .. } => {
                first.is_some_and(|first| first.name == wanted.name && first.kind == wanted.kind)
            }
            Kind::Switch | Kind::OffCpu | Kind::Other => true,
        }
    }

    /// The thread that `sched_switch` puts on the CPU.
    fn runs_next(&mut self, sample: &SampleRecord<'_>, time: u64) -> Result<()> {
        let next = raw_number(sample, 56, 4).and_then(|n| i32::try_from(n).ok());
        let next = next.filter(|next| self.threads.contains_key(next));
        next.map_or(Ok(()), |next| self.enters(next, time))
    }

    pub(super) fn switch(
        &mut self,
        tid: i32,
        time: u64,
        switch: &ContextSwitchRecord,
    ) -> Result<()> {
        self.last = self.last.max(time);
        match switch {
            ContextSwitchRecord::In { .. } => self.enters(tid, time),
            ContextSwitchRecord::Out { preempted, .. } => {
                let could_run = *preempted == TaskWasPreempted::Yes;
                self.leaves(tid, time, None, could_run)
            }
        }
    }

    fn enters(&mut self, tid: i32, time: u64) -> Result<()> {
        self.counts.has_switches = true;
        self.end_wait(tid, time, SaidBy::Switch)?;
        if let Some(seen) = self.threads.get_mut(&tid) {
            seen.on = Some(time);
        }
        Ok(())
    }

    fn leaves(
        &mut self,
        tid: i32,
        time: u64,
        stack: Option<StackId>,
        could_run: bool,
    ) -> Result<()> {
        let has_samples = self.events.iter().any(Event::counts_cpu_time);
        let Some(seen) = self.threads.get_mut(&tid) else {
            return Ok(());
        };
        let (thread, on) = (seen.id, seen.on.take());
        // The tracepoint and the record of one switch: the first has the stack.
        if seen.off.is_none() && !seen.is_gone {
            seen.off = Some((time, stack, could_run));
        }
        if let (Some(on), false) = (on, has_samples) {
            self.piece(Piece {
                thread,
                end: time,
                weight: time.saturating_sub(on),
                event: None,
                state: ThreadState::OnCpu,
                stack: None,
                said_by: SaidBy::Switch,
            })?;
        }
        Ok(())
    }

    /// A sign of a thread at `time` ends its wait, if no switch did, before the time that it `ran`, ns.
    fn close(&mut self, tid: i32, time: u64, ran: u64) -> Result<()> {
        let seen = self.threads.get(&tid);
        if seen.is_some_and(|seen| seen.off.is_some()) {
            self.counts.n_open += 1;
            self.end_wait(tid, time.saturating_sub(ran), SaidBy::Guess)?;
        }
        Ok(())
    }

    /// Ends all waits: no sign of these threads to the end means that they waited until then.
    pub(super) fn end_waits(&mut self) -> Result<()> {
        let waiting = self.threads.iter().filter(|(_, seen)| seen.off.is_some());
        let mut tids: Vec<i32> = waiting.map(|(tid, _)| *tid).collect();
        tids.sort_unstable();
        tids.into_iter()
            .try_for_each(|tid| self.end_wait(tid, self.last, SaidBy::AtEnd))
    }

    fn end_wait(&mut self, tid: i32, time: u64, said_by: SaidBy) -> Result<()> {
        if let Some(seen) = self.threads.get_mut(&tid)
            && let Some((since, stack, could_run)) = seen.off.take()
        {
            let thread = seen.id;
            return self.piece(Piece {
                thread,
                end: time.max(since),
                weight: time.saturating_sub(since),
                event: None,
                state: match could_run {
                    true => ThreadState::Runnable,
                    false => ThreadState::Blocked,
                },
                stack,
                said_by,
            });
        }
        Ok(())
    }

    fn piece(&mut self, piece: Piece) -> Result<()> {
        self.pieces.push(piece);
        let n = self.pieces.len();
        within(n, limits::MAX_SPANS, "the number of samples")
    }
}

/// A little-endian number in the data of a tracepoint's sample.
fn raw_number(sample: &SampleRecord<'_>, at: usize, len: usize) -> Option<u64> {
    let raw = sample.raw?.as_slice().into_owned();
    let bytes = raw.get(at..at + len)?;
    Some(bytes.iter().rev().fold(0, |n, b| n << 8 | u64::from(*b)))
}
