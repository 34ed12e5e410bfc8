//! Batches in, spans of a trace out.

use std::collections::HashMap;
use std::fs::File;
use std::sync::mpsc::Sender;

use thiserror::Error;
use wcprof_capture::{
    KernelStack, Liveness, StackBytes, StackCopy, StackRequest, Target, TargetError, ThreadTick,
    TickBatch, TickCounts, monotonic_ns, own_cpu_ns,
};
use wcprof_trace::model::{
    Frame, FrameId, Header, NodeId, Process, ProcessId, Span, StackId, Stats, ThreadId, WaitId,
};
use wcprof_trace::{TraceError, TraceWriter};
use wcprof_types::{Avma, FrameAddress, Sched, StackEnd, ThreadState as State, Tid, TimeNs, Wait};
use wcprof_unwind::{SplicedStack, StackCopy as Copy, UnwindLimits, Unwinder, UnwoundStack};
use wcprof_weights::{Piece, TimerHit};

use crate::live_stack::{LiveStack, LiveText};
use crate::modules::{ModuleProblem, Modules, TargetFiles};
use crate::replay::{Reads, Replay, Watched};
use crate::threads::{Place, ThreadState};

/// The trace is written out this often.
const FLUSH_NS: u64 = 1_000_000_000;
/// Mappings are read again at most this often for code that is in no module.
const REFRESH_NS: u64 = 500_000_000;
/// Frames of which the id is remembered; beyond it the memory starts afresh.
const MAX_FRAME_IDS: usize = 1 << 20;
/// Unwindings of a thread after which what it needs is known.
const SETTLED: u32 = 16;
/// Unexplained CPU time of the process that can be counters not settled yet, per CPU.
const UNSETTLED_NS: u64 = 12_000_000;

/// Why a recording failed.
#[derive(Debug, Error)]
pub enum RecordError {
    /// The trace could not be written.
    #[error(transparent)]
    Trace(#[from] TraceError),
    /// The target could not be read.
    #[error(transparent)]
    Target(#[from] TargetError),
}

/// What a recording is made of.
#[derive(Debug)]
pub struct RecorderOptions {
    /// Facts for the trace's header.
    pub header: Header,
    /// Batches have kernel stacks.
    pub kernel: bool,
    /// Where requests for longer stack copies go.
    pub requests: Sender<StackRequest>,
}

/// A recording that has ended.
#[derive(Debug)]
pub struct Recorded {
    /// Its counts.
    pub stats: Stats,
    /// The trace's time 0, `CLOCK_MONOTONIC` ns.
    pub begin: u64,
    /// Modules that stacks could not be unwound through.
    pub problems: Vec<ModuleProblem>,
    /// Files of its modules, for their names.
    pub files: TargetFiles,
    /// Why the end of the trace is not in its file (full disk).
    pub write_error: Option<RecordError>,
    /// Its trace, to which names can be added.
    pub writer: TraceWriter<File>,
}

/// How far a recording is.
#[derive(Clone, PartialEq, Debug, Default)]
pub struct Progress {
    /// Time recorded, ns.
    pub recorded_ns: u64,
    /// Live threads.
    pub n_threads: usize,
    /// Counts so far.
    pub stats: Stats,
    /// Bytes of the trace file.
    pub trace_bytes: u64,
    /// Thread time on-CPU (guests too), runnable and off-CPU, ns.
    pub state_ns: [u64; 3],
}

/// Fills a trace from batches.
pub struct Recorder {
    target: Target,
    process: ProcessId,
    /// When the first tick began, `CLOCK_MONOTONIC` ns: the trace's time 0.
    begin: Option<u64>,
    last_time: u64,
    n_cpus: u64,
    writer: TraceWriter<File>,
    modules: Modules,
    unwinder: Unwinder,
    unwound: UnwoundStack,
    reads: Reads,
    replay: Replay,
    frame_ids: HashMap<FrameAddress<Avma>, FrameId>,
    stack_frames: Vec<FrameId>,
    /// Leaves of the stacks met so far, to which the kernel's part is added; `None` without one.
    leaves: Option<HashMap<StackId, (Option<NodeId>, StackEnd)>>,
    threads: HashMap<Tid, ThreadState>,
    pieces: Vec<Piece<Place>>,
    requests: Sender<StackRequest>,
    stats: Stats,
    state_ns: [u64; 3],
    flushed: u64,
    mapped: u64,
    exited: ExitedCpu,
}

/// CPU time of threads that were born and died between two ticks.
#[derive(Debug, Default)]
struct ExitedCpu {
    /// The process's CPU clock when the recording began, and last.
    first: Option<u64>,
    last: u64,
    /// CPU time that threads showed, and that was given to the pseudo-thread, ns.
    shown: u64,
    thread: Option<ThreadId>,
    since: u64,
}

impl std::fmt::Debug for Recorder {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Recorder")
            .field("target", &self.target)
            .field("stats", &self.stats)
            .finish_non_exhaustive()
    }
}

impl Recorder {
    /// Begins a trace in `writer` and reads the target's modules.
    pub fn new(
        target: Target,
        mut writer: TraceWriter<File>,
        options: RecorderOptions,
    ) -> Result<Self, RecordError> {
        let process = writer.add_process(Process {
            pid: target.pid(),
            comm: target.comm().to_owned(),
            cmdline: target.cmdline(),
            cgroup: target.cgroup(),
        })?;
        let mut recorder = Self {
            modules: Modules::new(process, &target),
            target,
            process,
            begin: None,
            last_time: 0,
            n_cpus: u64::from(options.header.n_cpus),
            writer,
            unwinder: Unwinder::new(),
            unwound: UnwoundStack::default(),
            reads: Reads::default(),
            replay: Replay::default(),
            frame_ids: HashMap::new(),
            stack_frames: Vec::new(),
            leaves: options.kernel.then(HashMap::new),
            threads: HashMap::new(),
            pieces: Vec::new(),
            requests: options.requests,
            stats: Stats::default(),
            state_ns: [0; 3],
            flushed: 0,
            mapped: 0,
            exited: ExitedCpu::default(),
        };
        recorder.read_modules(monotonic_ns())?;
        Ok(recorder)
    }

    /// Takes one batch.
    pub fn batch(&mut self, batch: &TickBatch) -> Result<(), RecordError> {
        self.count(batch);
        for tick in batch.threads.iter().filter(|t| t.since.is_some()) {
            self.know_thread(tick)?;
        }
        for sample in &batch.timer_samples {
            // A thread that no tick has seen (yet): its time is found by the process's CPU clock.
            if !self.threads.contains_key(&sample.tid) {
                continue;
            }
            let Some(copy) = &sample.stack else { continue };
            let stack = self.unwind(copy, &batch.stacks, None, sample.time)?;
            let stack = self.add_kernel(stack, &sample.kernel, &batch.stacks)?;
            if let Some(thread) = self.threads.get_mut(&sample.tid) {
                thread.hits.push(TimerHit {
                    time: sample.time,
                    place: (Some(stack), None),
                    guest: sample.guest,
                });
            }
        }
        for tick in &batch.threads {
            self.thread_tick(tick, &batch.stacks)?;
        }
        for tid in &batch.exited {
            self.end_thread(*tid)?;
        }
        if let Some(cpu) = batch.process_cpu_ns {
            self.exited.first.get_or_insert(cpu);
            self.exited.last = cpu;
            let unsettled = UNSETTLED_NS * self.n_cpus;
            self.give_exited(unsettled, unsettled)?;
        }
        if batch.time.saturating_sub(self.flushed) >= FLUSH_NS {
            self.flushed = batch.time;
            self.note_threads()?;
            self.stats.own_cpu_ns = own_cpu_ns();
            self.writer.set_stats(&self.stats)?;
            self.writer.flush()?;
        }
        Ok(())
    }

    /// Ends the recording and gives its counts; `reason` says why it ended.
    pub fn finish(mut self, reason: &str) -> Recorded {
        let mut write_error = self.finish_threads().err();
        if self.target.liveness() == Liveness::Same
            && let Ok(mappings) = self.target.mappings()
        {
            // A jitdump that was opened late.
            self.modules.hold_jitdumps(&mappings);
        }
        self.stats.own_cpu_ns = own_cpu_ns();
        self.stats.own_rss_bytes = own_peak_rss();
        self.stats.end_reason = reason.to_owned();
        self.stats.complete = true;
        let written = self.writer.finish(&self.stats);
        write_error = write_error.or(written.err().map(RecordError::Trace));
        let (problems, files) = self.modules.into_parts();
        Recorded {
            write_error,
            begin: self.begin.unwrap_or(0),
            stats: self.stats,
            problems,
            files,
            writer: self.writer,
        }
    }

    fn finish_threads(&mut self) -> Result<(), RecordError> {
        let tids: Vec<Tid> = self.threads.keys().copied().collect();
        for tid in tids {
            self.end_thread(tid)?;
        }
        // What threads show that were seen to the end is exact now, but for what they ran since.
        let used = self
            .exited
            .last
            .saturating_sub(self.exited.first.unwrap_or(0));
        self.give_exited((used / 200).max(UNSETTLED_NS), 0)
    }

    /// How far it is.
    pub fn progress(&self) -> Progress {
        Progress {
            recorded_ns: self.time(self.last_time).0,
            n_threads: self.threads.len(),
            stats: self.stats.clone(),
            trace_bytes: self.writer.len_bytes(),
            state_ns: self.state_ns,
        }
    }

    fn count(&mut self, batch: &TickBatch) {
        if self.begin.is_none() {
            self.begin = Some(batch.time);
            self.flushed = batch.time;
            self.exited.since = batch.time;
        }
        self.last_time = self.last_time.max(batch.time);
        let now = self.time(self.last_time);
        let TickCounts {
            n_ticks,
            n_late,
            n_missed,
            n_observations,
            n_torn,
            n_lost,
            n_dropped_batches,
            new_rate_hz,
        } = batch.counts;
        let stats = &mut self.stats;
        stats.duration = now;
        stats.n_ticks += n_ticks;
        stats.n_late += n_late;
        stats.n_missed += n_missed;
        stats.n_observations += n_observations;
        stats.n_torn += n_torn;
        stats.n_lost += n_lost;
        stats.n_dropped_batches += n_dropped_batches;
        stats.n_timer_samples += batch.timer_samples.len() as u64;
        if let Some(rate) = new_rate_hz {
            stats.rate_changes.push((now, rate));
        }
    }

    fn know_thread(&mut self, tick: &ThreadTick) -> Result<(), RecordError> {
        if !self.threads.contains_key(&tick.tid) {
            let seen = self.time(tick.time);
            let name = tick.comm.as_deref().unwrap_or("?");
            let id = self.writer.add_thread(self.process, tick.tid, seen, name)?;
            let thread = ThreadState::new(id, tick, self.begin.unwrap_or(0));
            self.threads.insert(tick.tid, thread);
        } else if let Some(name) = &tick.comm
            && let Some(thread) = self.threads.get(&tick.tid)
        {
            let (id, seen) = (thread.id, self.time(tick.time));
            self.writer.thread_name(id, seen, name)?;
        }
        Ok(())
    }

    fn thread_tick(&mut self, tick: &ThreadTick, stacks: &[u8]) -> Result<(), RecordError> {
        self.know_thread(tick)?;
        let place = self.place(tick, stacks)?;
        if let Some(thread) = self.threads.get_mut(&tick.tid) {
            let place = match tick.stack {
                StackCopy::Unchanged => thread.place,
                _ => place,
            };
            let before = thread.ledger.run_ns();
            thread.observe(tick, place, &mut self.pieces);
            self.exited.shown += thread.ledger.run_ns() - before;
            let id = thread.id;
            self.write_pieces(id)?;
        }
        Ok(())
    }

    /// The stack and wait of a tick, when it has them.
    fn place(&mut self, tick: &ThreadTick, stacks: &[u8]) -> Result<Option<Place>, RecordError> {
        let stack = match &tick.stack {
            StackCopy::None | StackCopy::Unchanged | StackCopy::Torn => return Ok(None),
            StackCopy::Copied(copy) => {
                let stack = self.unwind(copy, stacks, Some(tick.tid), tick.time)?;
                self.add_kernel(stack, &tick.kernel, stacks)?
            }
            StackCopy::NoUserStack if tick.kernel != KernelStack::None => {
                let end = StackEnd::NoUserStack;
                *self.stats.ends.entry(end).or_default() += 1;
                let empty = self.intern_stack(end)?;
                self.add_kernel(empty, &tick.kernel, stacks)?
            }
            StackCopy::NoUserStack => self.kernel_stack(tick.wait.as_ref())?,
        };
        let wait = match &tick.wait {
            Some(wait) if tick.sched == Sched::Blocked => Some(self.wait(wait)?),
            _ => None,
        };
        Ok(Some((Some(stack), wait)))
    }

    fn wait(&mut self, wait: &Wait) -> Result<WaitId, RecordError> {
        Ok(self.writer.intern_wait(wait.clone())?)
    }

    fn kernel_stack(&mut self, wait: Option<&Wait>) -> Result<StackId, RecordError> {
        *self.stats.ends.entry(StackEnd::NoUserStack).or_default() += 1;
        let name = wait.map(|w| w.kernel.clone()).unwrap_or_default();
        let frame = match name.is_empty() {
            true => None,
            false => Some(self.writer.intern_frame(Frame::Kernel(name))?),
        };
        Ok(self.writer.intern_stack(frame, StackEnd::NoUserStack)?)
    }

    /// Unwinds one copy. `blocked` is the thread when it was not running: its next copies can be
    /// longer or shorter.
    fn unwind(
        &mut self,
        copy: &StackBytes,
        stacks: &[u8],
        blocked: Option<Tid>,
        now: u64,
    ) -> Result<StackId, RecordError> {
        let bytes = stacks.get(copy.bytes.clone()).unwrap_or_default();
        if let Some((stack, end)) = self.replay.find(&copy.regs, bytes) {
            *self.stats.ends.entry(end).or_default() += 1;
            return Ok(stack);
        }
        self.unwind_once(copy, bytes);
        let unknown = self.unwound.frames.iter().any(|f| f.module.is_none());
        if unknown && now.saturating_sub(self.mapped) >= REFRESH_NS {
            // A library may have been loaded since.
            self.read_modules(now)?;
            self.unwind_once(copy, bytes);
        }
        let end = self.unwound.end;
        *self.stats.ends.entry(end).or_default() += 1;
        if let Some(tid) = blocked {
            self.ask_for(tid, bytes.len(), copy.limit.is_some());
        }
        self.stack_frames.clear();
        for i in (0..self.unwound.frames.len()).rev() {
            let id = self.frame(i)?;
            self.stack_frames.push(id);
        }
        let stack = self.intern_stack(end)?;
        self.replay.remember(&copy.regs, &self.reads, stack, end);
        Ok(stack)
    }

    /// The stack of `stack_frames`; what it takes them for is taken over.
    fn intern_stack(&mut self, end: StackEnd) -> Result<StackId, RecordError> {
        let mut leaf = None;
        for frame in self.stack_frames.drain(..) {
            leaf = Some(self.writer.intern_node(leaf, frame)?);
        }
        let stack = self.writer.intern_leaf(leaf, end)?;
        if let Some(leaves) = &mut self.leaves {
            leaves.insert(stack, (leaf, end));
        }
        Ok(stack)
    }

    /// The same stack with the kernel's part on its leaf side.
    fn add_kernel(
        &mut self,
        stack: StackId,
        kernel: &KernelStack,
        stacks: &[u8],
    ) -> Result<StackId, RecordError> {
        let known = self.leaves.as_ref().and_then(|leaves| leaves.get(&stack));
        let Some(&(mut leaf, end)) = known else {
            return Ok(stack);
        };
        for frame in kernel_frames(kernel, stacks) {
            let frame = self.writer.intern_frame(frame)?;
            leaf = Some(self.writer.intern_node(leaf, frame)?);
        }
        Ok(self.writer.intern_leaf(leaf, end)?)
    }

    /// Has the sampler copy what unwinding needs: twice as much where it needed more than it got,
    /// less where it needed far less.
    fn ask_for(&mut self, tid: Tid, copied: usize, could_be_longer: bool) {
        let needed = self.reads.extent;
        let short = self.unwound.end == StackEnd::CopyTooShort || needed > copied;
        let Some(thread) = self.threads.get_mut(&tid) else {
            return;
        };
        thread.needed = thread.needed.max(needed);
        let bytes = if short && could_be_longer {
            thread.needed = needed;
            needed.max(copied) * 2
        } else if thread.n_unwound >= SETTLED && thread.needed * 3 < copied * 2 {
            thread.needed + thread.needed / 4
        } else {
            thread.n_unwound += 1;
            return;
        };
        thread.n_unwound = 0;
        // The sampler is gone at the end of a recording: nothing to ask for then.
        let _ = self.requests.send(StackRequest { tid, bytes });
    }

    /// Where the copy ends before the stack does, live memory is read; it may have changed since,
    /// so each return address from there is checked.
    fn unwind_once(&mut self, copy: &StackBytes, bytes: &[u8]) {
        let limit = copy.limit.unwrap_or(Avma(u64::MAX));
        let mut rest = LiveStack::new(self.target.pid());
        let memory = Copy::new(copy.regs.sp, bytes, limit);
        self.reads.clear();
        let mut memory = Watched {
            memory: SplicedStack::new(memory, &mut rest),
            base: copy.regs.sp.0,
            reads: &mut self.reads,
        };
        self.unwinder.unwind(
            &copy.regs,
            &mut memory,
            Some(&mut LiveText(self.target.pid())),
            UnwindLimits::default(),
            &mut self.unwound,
        );
    }

    /// The trace's frame of the `i`th unwound frame.
    fn frame(&mut self, i: usize) -> Result<FrameId, RecordError> {
        let frame = self.unwound.frames[i];
        if let Some(&id) = self.frame_ids.get(&frame.address) {
            return Ok(id);
        }
        let lookup = frame.address.for_lookup();
        let module = frame.module.and_then(|key| self.modules.id(key));
        let id = self.writer.intern_frame(match module {
            Some((module, bias, base)) => {
                let relative = |avma: Avma| {
                    let svma = bias.to_svma(avma);
                    wcprof_types::RelativeAddress(svma.0.wrapping_sub(base.0))
                };
                Frame::Native {
                    module,
                    address: relative(lookup),
                    function: self.unwinder.fde_start(lookup).map(relative),
                }
            }
            None => Frame::Unmapped(lookup),
        })?;
        if self.frame_ids.len() >= MAX_FRAME_IDS {
            self.frame_ids.clear();
        }
        self.frame_ids.insert(frame.address, id);
        Ok(id)
    }

    fn read_modules(&mut self, now: u64) -> Result<(), RecordError> {
        self.mapped = now;
        let mappings = match self.target.mappings() {
            Ok(mappings) => mappings,
            // It has exited: what is known stays.
            Err(TargetError::NoSuchProcess(_)) => return Ok(()),
            Err(error) => return Err(error.into()),
        };
        let mut failed = None;
        let writer = &mut self.writer;
        self.modules
            .update(&mappings, &mut self.unwinder, |module| {
                writer.add_module(module).unwrap_or_else(|error| {
                    failed = Some(error);
                    wcprof_trace::model::ModuleId(0)
                })
            });
        // Addresses can mean other modules now.
        self.frame_ids.clear();
        self.replay.forget();
        failed.map_or(Ok(()), |error| Err(error.into()))
    }

    fn time(&self, monotonic: u64) -> TimeNs {
        TimeNs(monotonic.saturating_sub(self.begin.unwrap_or(0)))
    }

    fn write_pieces(&mut self, thread: ThreadId) -> Result<(), RecordError> {
        let mut pieces = std::mem::take(&mut self.pieces);
        for piece in &pieces {
            let (stack, wait) = piece.place.unwrap_or((None, None));
            let group = match piece.state {
                State::OnCpu | State::Guest => 0,
                State::Runnable => 1,
                State::Blocked | State::StealIrq | State::Unknown => 2,
            };
            self.state_ns[group] += piece.weight;
            self.writer.span(&Span {
                thread,
                start: self.time(piece.start),
                end: self.time(piece.end),
                weight: piece.weight,
                n_samples: piece.n_samples,
                state: piece.state,
                wait: wait.filter(|_| piece.state == State::Blocked),
                stack,
            })?;
        }
        pieces.clear();
        self.pieces = pieces;
        Ok(())
    }

    fn end_thread(&mut self, tid: Tid) -> Result<(), RecordError> {
        if let Some(mut thread) = self.threads.remove(&tid) {
            let before = thread.ledger.run_ns();
            thread.finish(&mut self.pieces);
            self.exited.shown += thread.ledger.run_ns() - before;
            self.write_pieces(thread.id)?;
            self.note_thread(&thread)?;
        }
        Ok(())
    }

    fn note_threads(&mut self) -> Result<(), RecordError> {
        let threads = std::mem::take(&mut self.threads);
        let noted = threads.values().try_for_each(|t| self.note_thread(t));
        self.threads = threads;
        noted
    }

    fn note_thread(&mut self, thread: &ThreadState) -> Result<(), RecordError> {
        let (start, end) = (thread.first_time, thread.ledger.last_time());
        let (start, end) = (self.time(start), self.time(end));
        Ok(self
            .writer
            .thread_seen(thread.id, start, end, thread.n_ticks)?)
    }

    /// CPU time that the process used and none of its threads showed is of threads that came and
    /// went between two ticks. Less than `slack` ns is noise; `keep` ns may still be shown.
    fn give_exited(&mut self, slack: u64, keep: u64) -> Result<(), RecordError> {
        let used = self
            .exited
            .last
            .saturating_sub(self.exited.first.unwrap_or(0));
        let gap = used.saturating_sub(self.exited.shown);
        let end = self.last_time;
        let interval = end.saturating_sub(self.exited.since);
        if gap <= slack || interval == 0 {
            return Ok(());
        }
        let id = match self.exited.thread {
            Some(id) => id,
            None => {
                let name = "[exited threads, not sampled]";
                let begin = TimeNs(0);
                let id = self.writer.add_thread(self.process, Tid(0), begin, name)?;
                self.exited.thread = Some(id);
                id
            }
        };
        // Several such threads may have run at a time, but no span weighs more than its interval.
        let mut rest = gap.saturating_sub(keep);
        self.exited.shown += rest;
        while rest > 0 {
            let weight = rest.min(interval);
            rest -= weight;
            self.pieces.push(Piece {
                start: self.exited.since,
                end,
                weight,
                n_samples: 0,
                state: State::OnCpu,
                place: None,
            });
        }
        self.exited.since = end;
        self.write_pieces(id)?;
        let end = self.time(end);
        Ok(self.writer.thread_seen(id, TimeNs(0), end, 0)?)
    }
}

/// The frames of a kernel stack, root first.
fn kernel_frames(kernel: &KernelStack, stacks: &[u8]) -> Vec<Frame> {
    match kernel {
        KernelStack::None => Vec::new(),
        KernelStack::Names(names) => names.iter().rev().cloned().map(Frame::Kernel).collect(),
        KernelStack::Addresses { bytes, interrupted } => {
            let words = stacks
                .get(bytes.clone())
                .unwrap_or_default()
                .chunks_exact(8);
            let address =
                |word: &[u8]| Avma(u64::from_ne_bytes(word.try_into().unwrap_or_default()));
            let frame = |(i, word)| match i == 0 && *interrupted {
                true => FrameAddress::InstructionPointer(address(word)),
                false => FrameAddress::ReturnAddress(address(word)),
            };
            let leaf_first: Vec<_> = words.enumerate().map(frame).collect();
            let frames = leaf_first.into_iter().rev();
            frames.map(|f| Frame::KernelCode(f.for_lookup())).collect()
        }
    }
}

/// `VmHWM` of wcprof itself, bytes.
fn own_peak_rss() -> u64 {
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let line = status.lines().find_map(|l| l.strip_prefix("VmHWM:"));
    let kib = line.and_then(|l| l.split_ascii_whitespace().next()?.parse::<u64>().ok());
    kib.unwrap_or(0) * 1024
}
