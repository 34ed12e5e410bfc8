//! Records in order of time to threads, their stacks, and their time on and off CPUs.

use std::collections::HashMap;

use linux_perf_data::linux_perf_event_reader::{
    ContextSwitchRecord, CpuMode, SampleRecord, TaskWasPreempted,
};
use linux_perf_data::{DsoInfo, DsoKey};
use wcprof_trace::model::{Frame, FrameId, ProcessId, Span, StackId, ThreadId, Trace};
use wcprof_types::{Avma, BuildId, Pid, StackEnd, ThreadState, Tid, TimeNs};

use super::dwarf::Copies;
use super::events::{Event, Kind};
use super::maps::{Files, Map, Maps};
use super::scale;
use crate::builder::{Builder, cut};
use crate::error::ImportError;
use crate::limits;

/// Context markers of call chains (`include/uapi/linux/perf_event.h`).
const CONTEXT_MAX: u64 = -4095_i64 as u64;
const CONTEXT_KERNEL: u64 = -128_i64 as u64;
const CONTEXT_USER: u64 = -512_i64 as u64;

#[derive(Debug)]
struct Process {
    id: ProcessId,
    maps: Maps,
}

#[derive(Debug)]
struct Seen {
    id: ThreadId,
    pid: i32,
    /// Since when it is off CPU, with which stack, and whether it could run.
    off: Option<(u64, Option<StackId>, bool)>,
    /// Since when it is on a CPU, as a switch told.
    on: Option<u64>,
    /// It exited: its last switch is no wait.
    is_gone: bool,
}

/// Time of a thread, not yet scaled.
#[derive(Debug)]
struct Piece {
    thread: ThreadId,
    /// Absolute, ns.
    end: u64,
    /// ns, or counts of an event.
    weight: u64,
    /// The event that `weight` counts; `None` for ns.
    event: Option<usize>,
    state: ThreadState,
    stack: Option<StackId>,
}

/// What was read so far.
#[derive(Debug)]
pub(super) struct Recording {
    pub(super) builder: Builder,
    pub(super) n_samples: u64,
    pub(super) n_lost: u64,
    events: Vec<Event>,
    build_ids: HashMap<String, BuildId>,
    files: Files,
    processes: HashMap<i32, Process>,
    threads: HashMap<i32, Seen>,
    pieces: Vec<Piece>,
    last: u64,
    n_maps: usize,
    /// By event: samples, and the sum of their periods.
    sums: Vec<(u64, u64)>,
    n_other: u64,
    n_idle: u64,
    copies: Copies,
    /// Ends of waits that no switch told.
    n_open: u64,
    has_switches: bool,
}

impl Recording {
    pub(super) fn new(
        builder: Builder,
        events: Vec<Event>,
        build_ids: HashMap<DsoKey, DsoInfo>,
    ) -> Self {
        let build_ids = build_ids
            .into_iter()
            .filter_map(|(key, info)| {
                let path = match key {
                    DsoKey::Vdso64 => "[vdso]".to_owned(),
                    _ => String::from_utf8_lossy(&info.path).into_owned(),
                };
                Some((path, BuildId::new(&info.build_id)?))
            })
            .collect();
        Self {
            builder,
            n_samples: 0,
            n_lost: 0,
            sums: vec![(0, 0); events.len()],
            events,
            build_ids,
            files: Files::default(),
            processes: HashMap::new(),
            threads: HashMap::new(),
            pieces: Vec::new(),
            last: 0,
            n_maps: 0,
            n_other: 0,
            n_idle: 0,
            copies: Copies::default(),
            n_open: 0,
            has_switches: false,
        }
    }

    fn process(&mut self, pid: i32) -> Result<&mut Process, ImportError> {
        if !self.processes.contains_key(&pid) {
            let id = self.builder.process(Pid(pid), "")?;
            let maps = Maps::default();
            self.processes.insert(pid, Process { id, maps });
        }
        // The entry was made above.
        self.processes
            .get_mut(&pid)
            .ok_or_else(|| ImportError::Perf(format!("process {pid} is missing")))
    }

    /// Makes sure that a thread is known.
    fn thread(&mut self, pid: i32, tid: i32) -> Result<ThreadId, ImportError> {
        if let Some(seen) = self.threads.get(&tid)
            && seen.pid == pid
        {
            return Ok(seen.id);
        }
        let process = self.process(pid)?.id;
        let id = self.builder.thread(process, Tid(tid), "")?;
        self.threads.insert(
            tid,
            Seen {
                id,
                pid,
                off: None,
                on: None,
                is_gone: false,
            },
        );
        Ok(id)
    }

    pub(super) fn comm(
        &mut self,
        pid: i32,
        tid: i32,
        name: &str,
        is_exec: bool,
        time: Option<u64>,
    ) -> Result<(), ImportError> {
        if tid <= 0 {
            return Ok(());
        }
        let thread = self.thread(pid, tid)?;
        if is_exec {
            self.process(pid)?.maps = Maps::default();
            self.copies.forget(pid);
        }
        let name = cut(name).to_owned();
        let process = self.process(pid)?.id;
        let tables = &mut self.builder.trace.tables;
        if pid == tid
            && let Some(process) = tables.processes.get_mut(process.0 as usize)
        {
            process.comm.clone_from(&name);
        }
        if let Some(thread) = tables.threads.get_mut(thread.0 as usize) {
            // Names before the first sample are those of the past.
            let is_past = time.is_none_or(|t| t == 0) || self.pieces.is_empty();
            match thread.names.first_mut() {
                Some(first) if is_past || thread.n_ticks == 0 => first.1 = name,
                _ => thread.names = vec![(TimeNs(0), name)],
            }
        }
        Ok(())
    }

    pub(super) fn fork(
        &mut self,
        pid: i32,
        tid: i32,
        parent: i32,
        parent_tid: i32,
    ) -> Result<(), ImportError> {
        if tid <= 0 || pid <= 0 {
            return Ok(());
        }
        let name = |recording: &Self, tid: i32| {
            let id = recording.threads.get(&tid)?.id;
            let thread = recording.builder.trace.tables.threads.get(id.0 as usize)?;
            Some(thread.name().to_owned())
        };
        let inherited = name(self, parent_tid);
        if pid != parent
            && let Some(process) = self.processes.get(&parent)
        {
            let maps = process.maps.inherited();
            self.count_maps(maps.len())?;
            self.process(pid)?.maps = maps;
            self.copies.forget(pid);
        }
        // A tid that is used again is another thread.
        self.threads.remove(&tid);
        self.thread(pid, tid)?;
        if let Some(name) = inherited {
            self.comm(pid, tid, &name, false, None)?;
        }
        Ok(())
    }

    /// A thread must run to exit: that ends its wait.
    pub(super) fn exit(&mut self, tid: i32, time: u64) -> Result<(), ImportError> {
        self.last = self.last.max(time);
        self.close(tid, time, 0)?;
        if let Some(seen) = self.threads.get_mut(&tid) {
            seen.is_gone = true;
        }
        Ok(())
    }

    fn count_maps(&mut self, n: usize) -> Result<(), ImportError> {
        self.n_maps += n;
        if self.n_maps > limits::MAX_MAPPINGS {
            return Err(ImportError::TooLarge {
                what: "the number of mappings",
                limit: limits::MAX_MAPPINGS as u64,
            });
        }
        Ok(())
    }

    #[allow(clippy::too_many_arguments, reason = "the fields of a record")]
    pub(super) fn map(
        &mut self,
        pid: i32,
        start: u64,
        len: u64,
        offset: u64,
        path: &[u8],
        build_id: Option<&[u8]>,
        mode: CpuMode,
    ) -> Result<(), ImportError> {
        if pid < 0 || !matches!(mode, CpuMode::User) {
            return Ok(());
        }
        let path = String::from_utf8_lossy(path).into_owned();
        let path = cut(&path).to_owned();
        let build_id = build_id
            .and_then(BuildId::new)
            .or_else(|| self.build_ids.get(&path).cloned());
        self.count_maps(1)?;
        let end = start.saturating_add(len);
        self.process(pid)?
            .maps
            .add(start, Map::new(end, offset, path, build_id));
        Ok(())
    }

    pub(super) fn sample(
        &mut self,
        event: usize,
        sample: &SampleRecord<'_>,
    ) -> Result<(), ImportError> {
        let Some(Event {
            kind,
            period,
            copies_stack,
            ..
        }) = self.events.get(event).cloned()
        else {
            return Ok(());
        };
        let (Some(pid), Some(tid), Some(time)) = (sample.pid, sample.tid, sample.timestamp) else {
            self.n_other += 1;
            return Ok(());
        };
        self.last = self.last.max(time);
        if kind == Kind::Switch {
            self.runs_next(sample, time)?;
        }
        if tid <= 0 || pid <= 0 {
            self.n_idle += 1;
            return Ok(());
        }
        if kind == Kind::Other || !self.is_wanted(event) {
            self.n_other += 1;
            return Ok(());
        }
        self.n_samples += 1;
        let thread = self.thread(pid, tid)?;
        let stack = self.stack(pid, sample, copies_stack)?;
        let weight = sample.period.unwrap_or(period);
        match kind {
            Kind::Clock | Kind::Counted { .. } => {
                let ran = match kind {
                    Kind::Clock => weight,
                    _ => 0,
                };
                self.close(tid, time, ran)?;
                if let Some(sum) = self.sums.get_mut(event) {
                    *sum = (sum.0 + 1, sum.1.saturating_add(weight));
                }
                let of = matches!(kind, Kind::Counted { .. }).then_some(event);
                self.piece(thread, time, weight, of, ThreadState::OnCpu, Some(stack))?;
            }
            Kind::OffCpu => {
                self.piece(
                    thread,
                    time,
                    weight,
                    None,
                    ThreadState::Blocked,
                    Some(stack),
                )?;
            }
            Kind::Switch => {
                self.close(tid, time, 0)?;
                // `prev_state` is 0 for a thread that could go on (`include/trace/events/sched.h`).
                let raw = sample.raw.map(|raw| raw.as_slice().into_owned());
                let state = raw.as_deref().and_then(|raw| number(raw, 32, 8));
                let could_run = state.is_some_and(|s| s & 0xff == 0);
                self.leaves(tid, time, Some(stack), could_run)?;
            }
            Kind::Other => {}
        }
        Ok(())
    }

    /// Of several events that count CPU time, the first is taken, with its like on other cores.
    fn is_wanted(&self, event: usize) -> bool {
        let counts = |e: &Event| matches!(e.kind, Kind::Clock | Kind::Counted { .. });
        let Some(wanted) = self.events.get(event) else {
            return false;
        };
        match self.events.iter().find(|e| counts(e)) {
            Some(first) if counts(wanted) => first.name == wanted.name && first.kind == wanted.kind,
            _ => true,
        }
    }

    /// The thread that `sched_switch` puts on the CPU.
    fn runs_next(&mut self, sample: &SampleRecord<'_>, time: u64) -> Result<(), ImportError> {
        let Some(raw) = sample.raw.map(|raw| raw.as_slice().into_owned()) else {
            return Ok(());
        };
        let Some(next) = number(&raw, 56, 4).and_then(|n| i32::try_from(n).ok()) else {
            return Ok(());
        };
        if next > 0 && self.threads.contains_key(&next) {
            self.enters(next, time)?;
        }
        Ok(())
    }

    pub(super) fn switch(
        &mut self,
        tid: i32,
        time: u64,
        switch: &ContextSwitchRecord,
    ) -> Result<(), ImportError> {
        self.last = self.last.max(time);
        match switch {
            ContextSwitchRecord::In { .. } => self.enters(tid, time),
            ContextSwitchRecord::Out { preempted, .. } => {
                let could_run = *preempted == TaskWasPreempted::Yes;
                self.leaves(tid, time, None, could_run)
            }
        }
    }

    fn enters(&mut self, tid: i32, time: u64) -> Result<(), ImportError> {
        self.has_switches = true;
        self.end_wait(tid, time)?;
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
    ) -> Result<(), ImportError> {
        let counts = |e: &Event| matches!(e.kind, Kind::Clock | Kind::Counted { .. });
        let has_samples = self.events.iter().any(counts);
        let Some(seen) = self.threads.get_mut(&tid) else {
            return Ok(());
        };
        let (thread, on) = (seen.id, seen.on.take());
        // The tracepoint and the record of one switch: the first has the stack.
        if seen.off.is_none() && !seen.is_gone {
            seen.off = Some((time, stack, could_run));
        }
        if let (Some(on), false) = (on, has_samples) {
            let ran = time.saturating_sub(on);
            self.piece(thread, time, ran, None, ThreadState::OnCpu, None)?;
        }
        Ok(())
    }

    /// A sign of a thread at `time` ends its wait, if no switch did, the time before that it `ran`, ns.
    fn close(&mut self, tid: i32, time: u64, ran: u64) -> Result<(), ImportError> {
        if self
            .threads
            .get(&tid)
            .is_some_and(|seen| seen.off.is_some())
        {
            self.n_open += 1;
            self.end_wait(tid, time.saturating_sub(ran))?;
        }
        Ok(())
    }

    fn end_wait(&mut self, tid: i32, time: u64) -> Result<(), ImportError> {
        let Some(seen) = self.threads.get_mut(&tid) else {
            return Ok(());
        };
        let Some((since, stack, could_run)) = seen.off.take() else {
            return Ok(());
        };
        let (thread, state) = (
            seen.id,
            match could_run {
                true => ThreadState::Runnable,
                false => ThreadState::Blocked,
            },
        );
        self.piece(
            thread,
            time.max(since),
            time.saturating_sub(since),
            None,
            state,
            stack,
        )
    }

    fn piece(
        &mut self,
        thread: ThreadId,
        end: u64,
        weight: u64,
        event: Option<usize>,
        state: ThreadState,
        stack: Option<StackId>,
    ) -> Result<(), ImportError> {
        if self.pieces.len() >= limits::MAX_SPANS {
            return Err(ImportError::TooLarge {
                what: "the number of samples",
                limit: limits::MAX_SPANS as u64,
            });
        }
        self.pieces.push(Piece {
            thread,
            end,
            weight,
            event,
            state,
            stack,
        });
        Ok(())
    }

    fn stack(
        &mut self,
        pid: i32,
        sample: &SampleRecord<'_>,
        copies_stack: bool,
    ) -> Result<StackId, ImportError> {
        // Leaf first: address, whether the kernel's, whether it is where execution was.
        let mut chain: Vec<(u64, bool, bool)> = Vec::new();
        let is_kernel = |mode| matches!(mode, CpuMode::Kernel);
        let mut kernel = is_kernel(sample.cpu_mode);
        let mut exact = true;
        if let Some(addresses) = &sample.callchain {
            for address in (0..addresses.len()).filter_map(|i| addresses.get(i)) {
                if address >= CONTEXT_MAX {
                    kernel = address == CONTEXT_KERNEL || (kernel && address != CONTEXT_USER);
                    exact = true;
                } else if chain.len() <= limits::MAX_FRAMES {
                    chain.push((address, kernel, exact));
                    exact = false;
                }
            }
        }
        if chain.is_empty()
            && let Some(ip) = sample.ip
        {
            chain.push((ip, kernel, true));
        }
        let mut end = StackEnd::Root;
        // The address of a sample in user space is the first one that the copy gives, too.
        let has_callers = chain.iter().any(|(_, kernel, exact)| !kernel && !exact);
        if copies_stack
            && !has_callers
            && let (Some(regs), Some(copy)) = (&sample.user_regs, &sample.user_stack)
        {
            self.process(pid)?;
            if let Some(process) = self.processes.get_mut(&pid) {
                let (frames, why) = self.copies.unwind(pid, &mut process.maps, regs, copy);
                if !frames.is_empty() {
                    chain.retain(|(_, kernel, _)| *kernel);
                }
                // As lookup addresses, which are not to be changed again.
                chain.extend(frames.into_iter().map(|address| (address, false, true)));
                end = why;
            }
        }
        if chain.iter().all(|(_, kernel, _)| *kernel) {
            end = StackEnd::NoUserStack;
        }
        let mut frames: Vec<FrameId> = Vec::with_capacity(chain.len());
        for (address, kernel, exact) in chain.into_iter().rev() {
            let lookup = address.wrapping_sub(u64::from(!exact));
            let frame = match kernel {
                true => Frame::KernelCode(Avma(lookup)),
                false => self.user_frame(pid, lookup)?,
            };
            frames.push(self.builder.frame(frame)?);
        }
        self.builder.stack(frames, end)
    }

    fn user_frame(&mut self, pid: i32, address: u64) -> Result<Frame, ImportError> {
        self.process(pid)?;
        let Some(process) = self.processes.get_mut(&pid) else {
            return Ok(Frame::Unmapped(Avma(address)));
        };
        let (id, files) = (process.id, &mut self.files);
        process.maps.frame(address, id, &mut self.builder, files)
    }

    /// Pieces to spans, from the first moment on.
    pub(super) fn finish(mut self) -> Result<Trace, ImportError> {
        let open: Vec<i32> = self
            .threads
            .iter()
            .filter(|(_, seen)| seen.off.is_some())
            .map(|(tid, _)| *tid)
            .collect();
        // No sign of these to the end: they waited until then.
        let last = self.last;
        let mut open = open;
        open.sort_unstable();
        for tid in open {
            self.end_wait(tid, last)?;
        }
        let weights: Vec<u64> =
            self.pieces
                .iter()
                .map(|piece| match piece.event {
                    Some(event) => (piece.weight as f64 * scale(&self.events, event, &self.sums))
                        .round() as u64,
                    None => piece.weight,
                })
                .collect();
        let begin = |(piece, weight): (&Piece, &u64)| piece.end.saturating_sub(*weight);
        let first = self.pieces.iter().zip(&weights).map(begin).min();
        let Some(first) = first else {
            return Err(ImportError::NoSamples(match self.n_other + self.n_idle {
                0 => String::new(),
                n => format!(
                    " of time: {n} are of other events or of no process; record a clock, cycles or \
                     sched:sched_switch"
                ),
            }));
        };
        let duration = last.saturating_sub(first);
        if duration > limits::MAX_TIME_NS {
            return Err(ImportError::Perf("its times are too far apart".to_owned()));
        }
        let pieces = std::mem::take(&mut self.pieces);
        let mut total = 0_u64;
        for (piece, weight) in pieces.iter().zip(&weights) {
            let end = piece.end.saturating_sub(first);
            let weight = (*weight).min(end);
            total = total.saturating_add(weight);
            let start = end - weight;
            self.builder.span(Span {
                thread: piece.thread,
                start: TimeNs(start),
                end: TimeNs(end),
                weight,
                n_samples: 1,
                state: piece.state,
                wait: None,
                stack: piece.stack,
            })?;
            let threads = &mut self.builder.trace.tables.threads;
            if let Some(thread) = threads.get_mut(piece.thread.0 as usize) {
                thread.start = match thread.end.0 {
                    0 => TimeNs(start),
                    _ => thread.start.min(TimeNs(start)),
                };
                thread.end = thread.end.max(TimeNs(end));
            }
        }
        if total > limits::MAX_TIME_NS {
            return Err(ImportError::TooLarge {
                what: "the sum of all weights, ns,",
                limit: limits::MAX_TIME_NS,
            });
        }
        self.say_what_is_unknown();
        let stats = &mut self.builder.trace.tables.stats;
        stats.n_lost = self.n_lost;
        stats.ends.clone_from(&self.copies.ends);
        Ok(self.builder.finish(duration))
    }

    fn say_what_is_unknown(&mut self) {
        let is = |kind: fn(&Kind) -> bool| self.events.iter().any(|e| kind(&e.kind));
        let samples = is(|k| matches!(k, Kind::Clock | Kind::Counted { .. }));
        let switches = is(|k| matches!(k, Kind::Switch | Kind::OffCpu)) || self.has_switches;
        let hz = self.events.iter().find_map(|e| e.hz).unwrap_or_default();
        self.builder.trace.tables.header.rate_hz = u32::try_from(hz).unwrap_or_default();
        if !switches {
            self.builder.note("time off CPU was not recorded");
        } else {
            self.builder.note(
                "what blocked threads waited for is guessed from the functions that they were in; time \
                 on a run queue after a wait counts as wait",
            );
        }
        if !samples {
            self.builder
                .note("time on CPU has no stacks: no clock or cycles were recorded");
        }
        let fixed = |k: &Kind| *k == Kind::Counted { hz: None };
        if is(fixed) {
            self.builder
                .note("one count of the event counts as 1 ns: perf recorded no times");
        }
        let modules = self.builder.trace.tables.modules.iter();
        let n_unknown = modules
            .filter(|m| m.build_id.is_none() && m.path.starts_with('/'))
            .count();
        for note in self.copies.notes() {
            self.builder.note(note);
        }
        for (n, what) in [
            (
                self.n_open,
                "waits have no recorded end (record with -a or --switch-events): each goes on until \
                 the thread's next sample",
            ),
            (self.n_other, "samples of other events are left out"),
            (self.n_idle, "samples of the idle CPUs are left out"),
            (
                n_unknown as u64,
                "modules have no build-id, so that their functions have no names (record with \
                 --buildid-all)",
            ),
        ] {
            if n > 0 {
                self.builder.note(format!("{n} {what}"));
            }
        }
    }
}

/// A little-endian number in a tracepoint's data.
fn number(raw: &[u8], at: usize, len: usize) -> Option<u64> {
    let bytes = raw.get(at..at + len)?;
    Some(bytes.iter().rev().fold(0, |n, b| n << 8 | u64::from(*b)))
}
