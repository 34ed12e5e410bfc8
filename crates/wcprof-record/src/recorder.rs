//! Batches in, spans of a trace out.

use std::collections::{HashMap, HashSet};
use std::fs::File;
use std::sync::Arc;
use std::sync::mpsc::Sender;
use std::time::{SystemTime, UNIX_EPOCH};

use thiserror::Error;
use wcprof_capture::{
    KernelStack, LockGlance, StackBytes, StackCopy, StackRequest, Target, TargetEnd, TargetError,
    TargetId, ThreadTick, TickBatch, TickCounts, add_recording_cpu, monotonic_ns, own_cpu_ns,
    thread_cpu_ns,
};
use wcprof_trace::model::{
    Frame, FrameId, Header, LockLook, NodeId, ProcessEnd, Span, StackId, Stats, ThreadId, WaitId,
};
use wcprof_trace::{TraceError, TraceSink, TraceWriter};
use wcprof_types::{
    Avma, FdKind, FrameAddress, Sched, StackEnd, ThreadState as State, Tid, TimeNs, Wait,
};
use wcprof_unwind::UnwoundStack;
use wcprof_weights::{Piece, TimerHit};

use crate::exited::ExitedCpu;
use crate::locks::Locks;
use crate::modules::{ModuleProblem, SharedFiles, TargetFiles};
use crate::need::Unwinding;
use crate::process::{ProcessState, UnmappedFrames};
use crate::replay::Reads;
use crate::threads::{Place, ThreadState};

/// The trace is written out this often.
const FLUSH_NS: u64 = 1_000_000_000;

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
pub struct Recorded<S = TraceWriter<File>> {
    /// Its counts.
    pub stats: Stats,
    /// The trace's time 0, `CLOCK_MONOTONIC` ns.
    pub begin: u64,
    /// Modules that stacks could not be unwound through.
    pub problems: Vec<ModuleProblem>,
    /// Files of its modules, for their names; by process.
    pub files: Vec<TargetFiles>,
    /// Whose the frames outside of every module are.
    pub unmapped: UnmappedFrames,
    /// Children of targets that could not be recorded.
    pub n_left_out: u64,
    /// Why the end of the trace is not in its file (full disk).
    pub write_error: Option<RecordError>,
    /// Its trace, to which names can be added.
    pub writer: S,
}

/// How far a recording is.
#[derive(Clone, PartialEq, Debug, Default)]
pub struct Progress {
    /// Time recorded, ns.
    pub recorded_ns: u64,
    /// Live threads.
    pub n_threads: usize,
    /// Processes that are recorded at the moment.
    pub n_processes: usize,
    /// Counts so far.
    pub stats: Stats,
    /// Bytes of the trace file.
    pub trace_bytes: u64,
    /// Thread time on-CPU (guests too), runnable and off-CPU, ns.
    pub state_ns: [u64; 3],
}

/// Fills a trace from batches.
pub struct Recorder<S = TraceWriter<File>> {
    /// By [`TargetId`]; `None` when the sink has forgotten it.
    pub(crate) processes: Vec<Option<Box<ProcessState>>>,
    n_running: usize,
    /// When the first tick began, `CLOCK_MONOTONIC` ns: the trace's time 0.
    pub(crate) begin: Option<u64>,
    last_time: u64,
    n_cpus: u64,
    pub(crate) writer: S,
    shared: SharedFiles,
    unwound: UnwoundStack,
    reads: Reads,
    stack_frames: Vec<FrameId>,
    pub(crate) unmapped: UnmappedFrames,
    /// Leaves of the stacks met so far, to which the kernel's part is added; `None` without one.
    leaves: Option<HashMap<StackId, (Option<NodeId>, StackEnd)>>,
    pub(crate) threads: HashMap<(TargetId, Tid), ThreadState>,
    pieces: Vec<Piece<Place>>,
    requests: Sender<StackRequest>,
    stats: Stats,
    n_left_out: u64,
    state_ns: [u64; 3],
    flushed: u64,
}

/// A moment of `CLOCK_MONOTONIC` that was a little while ago, in ns since 1970 (UTC).
fn unix_ns_at(monotonic: u64) -> u64 {
    let ago = monotonic_ns().saturating_sub(monotonic);
    let now = SystemTime::now().duration_since(UNIX_EPOCH);
    now.map_or(0, |now| (now.as_nanos() as u64).saturating_sub(ago))
}

impl<S> std::fmt::Debug for Recorder<S> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Recorder")
            .field("n_processes", &self.processes.len())
            .field("stats", &self.stats)
            .finish_non_exhaustive()
    }
}

impl<S: TraceSink> Recorder<S> {
    /// Begins a trace in `writer` and reads the modules of the targets, which are the sampler's in
    /// the same order.
    pub fn new(
        targets: &[Arc<Target>],
        writer: S,
        options: RecorderOptions,
    ) -> Result<Self, RecordError> {
        let mut recorder = Self {
            processes: Vec::new(),
            n_running: 0,
            begin: None,
            last_time: 0,
            n_cpus: u64::from(options.header.n_cpus),
            writer,
            shared: SharedFiles::default(),
            unwound: UnwoundStack::default(),
            reads: Reads::default(),
            stack_frames: Vec::new(),
            unmapped: UnmappedFrames::default(),
            leaves: options.kernel.then(HashMap::new),
            threads: HashMap::new(),
            pieces: Vec::new(),
            requests: options.requests,
            stats: Stats::default(),
            n_left_out: 0,
            state_ns: [0; 3],
            flushed: 0,
        };
        for target in targets {
            recorder.join(target)?;
        }
        Ok(recorder)
    }

    /// Takes in one more process.
    fn join(&mut self, target: &Arc<Target>) -> Result<(), RecordError> {
        let mut process = ProcessState::new(Arc::clone(target), &mut self.writer)?;
        process.read_modules(monotonic_ns(), &mut self.writer, &mut self.shared)?;
        process.exited.since = self.last_time;
        self.processes.push(Some(Box::new(process)));
        self.n_running += 1;
        Ok(())
    }

    /// Takes one batch. The CPU time that it takes is a part of what the sampler keeps to its budget.
    pub fn batch(&mut self, batch: &TickBatch) -> Result<(), RecordError> {
        let before = thread_cpu_ns();
        let taken = self.take_batch(batch);
        add_recording_cpu(thread_cpu_ns().saturating_sub(before));
        taken
    }

    fn take_batch(&mut self, batch: &TickBatch) -> Result<(), RecordError> {
        let is_first = self.begin.is_none();
        if is_first {
            self.writer.begins_at(unix_ns_at(batch.time));
        }
        self.count(batch);
        for (_, target) in &batch.joined {
            self.join(target)?;
        }
        for tick in batch.threads.iter().filter(|t| t.since.is_some()) {
            self.know_thread(tick)?;
        }
        for sample in &batch.timer_samples {
            // A thread that no tick has seen (yet): its time is found by the process's CPU clock.
            let key = (sample.target, sample.tid);
            if !self.threads.contains_key(&key) {
                continue;
            }
            let Some(copy) = &sample.stack else { continue };
            let stack = self.unwind(key, copy, &batch.stacks, false, sample.time)?;
            let stack = self.add_kernel(stack, &sample.kernel, &batch.stacks)?;
            if let Some(thread) = self.threads.get_mut(&key) {
                thread.hits.push(TimerHit {
                    time: sample.time,
                    place: (Some(stack), None),
                    guest: sample.guest,
                });
            }
        }
        let mut glances = batch.locks.iter().peekable();
        for (i, tick) in batch.threads.iter().enumerate() {
            while let Some(glance) = glances.next_if(|g| g.after <= i) {
                self.glance(glance);
            }
            self.thread_tick(tick, &batch.stacks)?;
        }
        glances.for_each(|glance| self.glance(glance));
        self.note_locks(batch)?;
        for &thread in &batch.exited {
            self.end_thread(thread)?;
        }
        for &(target, cpu) in &batch.process_cpu_ns {
            let n_cpus = self.n_cpus;
            self.give_exited(target, |exited, now| {
                exited.read(cpu);
                exited.take_settled(n_cpus, now)
            })?;
        }
        for &(target, end, time) in &batch.ended {
            self.end_process(target, end, time)?;
        }
        if is_first || batch.time.saturating_sub(self.flushed) >= FLUSH_NS {
            self.flushed = batch.time;
            self.flush()?;
        }
        Ok(())
    }

    /// Writes out what is known.
    pub(crate) fn flush(&mut self) -> Result<(), RecordError> {
        self.note_threads()?;
        self.write_all_looks(Locks::take_all)?;
        self.stats.own_cpu_ns = own_cpu_ns();
        self.writer.set_stats(&self.stats)?;
        self.writer.flush()?;
        if self.writer.sweep_due() {
            let mut held = Vec::new();
            for thread in self.threads.values() {
                held.extend(thread.places());
            }
            self.writer.sweep(&held);
            self.forget();
        }
        Ok(())
    }

    /// Forgets the ids that hold no more.
    fn forget(&mut self) {
        let writer = &self.writer;
        if let Some(leaves) = &mut self.leaves {
            leaves.retain(|stack, _| writer.holds_stack(*stack));
        }
        self.unmapped.retain(|frame| writer.holds_frame(frame));
        for slot in &mut self.processes {
            match slot {
                Some(process) if writer.holds_process(process.id) => process.forget(writer),
                _ => *slot = None,
            }
        }
    }

    /// Ends the part of one process.
    fn end_process(
        &mut self,
        target: TargetId,
        end: TargetEnd,
        time: u64,
    ) -> Result<(), RecordError> {
        self.finish_process(target)?;
        let time = self.time(time);
        if let Some(process) = of(&mut self.processes, target) {
            process.end();
            let reason = match end {
                TargetEnd::Exited => "exited",
                TargetEnd::Exec => "exec",
            };
            let reason = reason.to_owned();
            let end = ProcessEnd { time, reason };
            self.writer.process_ended(process.id, &end)?;
            self.n_running = self.n_running.saturating_sub(1);
        }
        Ok(())
    }

    /// Ends all threads; `reason` says why the recording ended.
    pub(crate) fn end_all(&mut self, reason: &str) -> Option<RecordError> {
        let all = (0..).map(TargetId).take(self.processes.len());
        let mut write_error = None;
        for target in all {
            let finished = self.finish_process(target);
            write_error = write_error.or(finished.err());
        }
        self.stats.own_cpu_ns = own_cpu_ns();
        self.stats.own_rss_bytes = own_peak_rss();
        self.stats.end_reason = reason.to_owned();
        self.stats.complete = true;
        let written = self.writer.finish(&self.stats);
        write_error.or(written.err().map(RecordError::Trace))
    }

    /// Ends the recording and gives its counts; `reason` says why it ended.
    pub fn finish(mut self, reason: &str) -> Recorded<S> {
        let write_error = self.end_all(reason);
        let (mut problems, mut files) = (Vec::new(), Vec::new());
        for mut process in self.processes.into_iter().flatten() {
            process.hold_late_files();
            let (of_process, handles) = process.into_files();
            // The same library in many processes is one problem.
            problems.extend(of_process);
            files.push(handles);
        }
        let mut known = HashSet::new();
        problems.retain(|problem: &ModuleProblem| known.insert(problem.clone()));
        Recorded {
            write_error,
            begin: self.begin.unwrap_or(0),
            stats: self.stats,
            problems,
            files,
            unmapped: self.unmapped,
            n_left_out: self.n_left_out,
            writer: self.writer,
        }
    }

    fn finish_process(&mut self, target: TargetId) -> Result<(), RecordError> {
        self.write_looks(target, Locks::take_all)?;
        let threads: Vec<(TargetId, Tid)> = self
            .threads
            .keys()
            .copied()
            .filter(|(of, _)| *of == target)
            .collect();
        for thread in threads {
            self.end_thread(thread)?;
        }
        self.give_exited(target, ExitedCpu::take_rest)
    }

    /// How far it is.
    pub fn progress(&self) -> Progress {
        Progress {
            recorded_ns: self.time(self.last_time).0,
            n_threads: self.threads.len(),
            n_processes: self.n_running,
            stats: self.stats.clone(),
            trace_bytes: self.writer.len_bytes(),
            state_ns: self.state_ns,
        }
    }

    fn glance(&mut self, glance: &LockGlance) {
        let begin = self.begin.unwrap_or(0);
        let time = |at: u64| TimeNs(at.saturating_sub(begin));
        if let Some(process) = of(&mut self.processes, glance.target) {
            let of = process.id;
            process.locks.glance(of, glance, &self.threads, time);
        }
    }

    /// Writes what is known of locks.
    fn note_locks(&mut self, batch: &TickBatch) -> Result<(), RecordError> {
        for &(target, tid, own) in &batch.own_tids {
            if let Some(thread) = self.threads.get(&(target, tid)) {
                self.writer.own_tid(thread.id, own)?;
            }
        }
        for &(target, tid, tick) in &batch.moved {
            if let Some(thread) = self.threads.get(&(target, tid)) {
                self.writer.waiter_moved(thread.id, self.time(tick))?;
            }
        }
        if batch.counts.n_locks_skipped > 0 {
            self.writer.locks_skipped(batch.counts.n_locks_skipped)?;
        }
        self.write_all_looks(Locks::take_ready)
    }

    fn write_all_looks(
        &mut self,
        take: impl Fn(&mut Locks) -> Vec<LockLook>,
    ) -> Result<(), RecordError> {
        let mut targets = (0..self.processes.len() as u32).map(TargetId);
        targets.try_for_each(|target| self.write_looks(target, &take))
    }

    /// Writes looks at locks of one process.
    fn write_looks(
        &mut self,
        target: TargetId,
        take: impl Fn(&mut Locks) -> Vec<LockLook>,
    ) -> Result<(), RecordError> {
        let Some(process) = of(&mut self.processes, target) else {
            return Ok(());
        };
        let looks = take(&mut process.locks);
        Ok(looks
            .iter()
            .try_for_each(|look| self.writer.lock_look(look))?)
    }

    fn count(&mut self, batch: &TickBatch) {
        if self.begin.is_none() {
            self.begin = Some(batch.time);
            self.flushed = batch.time;
            for process in self.processes.iter_mut().flatten() {
                process.exited.since = batch.time;
            }
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
            // Written with the looks.
            n_locks_skipped: _,
            n_left_out,
            new_rate_hz,
        } = batch.counts;
        self.n_left_out += n_left_out;
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
        let key = (tick.target, tick.tid);
        if !self.threads.contains_key(&key) {
            let seen = self.time(tick.time);
            let Some(process) = of(&mut self.processes, tick.target) else {
                return Ok(());
            };
            let name = tick.comm.as_deref().unwrap_or("?");
            let id = self.writer.add_thread(process.id, tick.tid, seen, name)?;
            let thread = ThreadState::new(id, tick, self.begin.unwrap_or(0));
            self.threads.insert(key, thread);
        } else if let Some(name) = &tick.comm
            && let Some(thread) = self.threads.get(&key)
        {
            let (id, seen) = (thread.id, self.time(tick.time));
            self.writer.thread_name(id, seen, name)?;
        }
        Ok(())
    }

    fn thread_tick(&mut self, tick: &ThreadTick, stacks: &[u8]) -> Result<(), RecordError> {
        self.know_thread(tick)?;
        let place = self.place(tick, stacks)?;
        let key = (tick.target, tick.tid);
        if let Some(thread) = self.threads.get_mut(&key) {
            let place = match tick.stack {
                StackCopy::Unchanged => thread.place,
                _ => place,
            };
            let run = thread.observe(tick, place, &mut self.pieces);
            let id = thread.id;
            if let Some(process) = of(&mut self.processes, tick.target) {
                process.exited.show(run);
            }
            self.write_pieces(id)?;
        }
        Ok(())
    }

    /// The stack and wait of a tick, when it has them.
    fn place(&mut self, tick: &ThreadTick, stacks: &[u8]) -> Result<Option<Place>, RecordError> {
        let stack = match &tick.stack {
            StackCopy::None | StackCopy::Unchanged | StackCopy::Torn => return Ok(None),
            StackCopy::Copied(copy) => {
                let key = (tick.target, tick.tid);
                let stack = self.unwind(key, copy, stacks, true, tick.time)?;
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
            Some(wait) if tick.sched == Sched::Blocked => Some(self.wait(tick.target, wait)?),
            _ => None,
        };
        Ok(Some((Some(stack), wait)))
    }

    fn wait(&mut self, target: TargetId, wait: &Wait) -> Result<WaitId, RecordError> {
        let mut wait = wait.clone();
        if let Some(process) = of(&mut self.processes, target) {
            wait.futex = wait.futex.and_then(|at| process.locks.address(at));
            if let Some(fd) = &mut wait.fd
                && fd.kind == FdKind::Socket
                && let Some(name) = process.sockets.name(&fd.path)
            {
                name.clone_into(&mut fd.path);
            }
        }
        Ok(self.writer.intern_wait(wait)?)
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

    /// Unwinds one copy of a thread's stack. Of one that was `blocked` the next copies can be
    /// longer or shorter.
    fn unwind(
        &mut self,
        thread: (TargetId, Tid),
        copy: &StackBytes,
        stacks: &[u8],
        blocked: bool,
        now: u64,
    ) -> Result<StackId, RecordError> {
        let bytes = stacks.get(copy.bytes.clone()).unwrap_or_default();
        let Some(process) = of(&mut self.processes, thread.0) else {
            return self.intern_stack(StackEnd::NotSampled);
        };
        if let Some((stack, end)) = process.replay.find(&copy.regs, bytes) {
            *self.stats.ends.entry(end).or_default() += 1;
            return Ok(stack);
        }
        process.unwind(copy, bytes, &mut self.reads, &mut self.unwound);
        let unknown = self.unwound.frames.iter().any(|f| f.module.is_none());
        if unknown && process.may_refresh(now) {
            // A library may have been loaded since.
            process.read_modules(now, &mut self.writer, &mut self.shared)?;
            process.unwind(copy, bytes, &mut self.reads, &mut self.unwound);
        }
        let end = self.unwound.end;
        *self.stats.ends.entry(end).or_default() += 1;
        self.stack_frames.clear();
        for i in (0..self.unwound.frames.len()).rev() {
            let unmapped = &mut self.unmapped;
            let id = process.frame(&self.unwound, i, &mut self.writer, unmapped)?;
            self.stack_frames.push(id);
        }
        if blocked {
            let unwinding = Unwinding {
                sp: copy.regs.sp,
                copied: bytes.len(),
                needed: self.reads.extent,
                end,
                could_be_longer: copy.limit.is_some(),
            };
            let known = self.threads.get_mut(&thread);
            if let Some(request) = known.and_then(|known| known.need.learn(thread.1, &unwinding)) {
                // The sampler is gone at the end of a recording: nothing to ask for then.
                let _ = self.requests.send(request);
            }
        }
        let stack = self.intern_stack(end)?;
        if let Some(process) = of(&mut self.processes, thread.0) {
            process.replay.remember(&copy.regs, &self.reads, stack, end);
        }
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

    pub(crate) fn time(&self, monotonic: u64) -> TimeNs {
        TimeNs(monotonic.saturating_sub(self.begin.unwrap_or(0)))
    }

    pub(crate) fn span(&self, thread: ThreadId, piece: &Piece<Place>) -> Span {
        let (stack, wait) = piece.place.unwrap_or((None, None));
        Span {
            thread,
            start: self.time(piece.start),
            end: self.time(piece.end),
            weight: piece.weight,
            n_samples: piece.n_samples,
            state: piece.state,
            wait: wait.filter(|_| piece.state == State::Blocked),
            stack,
        }
    }

    fn write_pieces(&mut self, thread: ThreadId) -> Result<(), RecordError> {
        let mut pieces = std::mem::take(&mut self.pieces);
        for piece in &pieces {
            let group = match piece.state {
                State::OnCpu | State::Guest => 0,
                State::Runnable => 1,
                State::Blocked | State::StealIrq | State::Unknown => 2,
            };
            self.state_ns[group] += piece.weight;
            self.writer.span(&self.span(thread, piece))?;
        }
        pieces.clear();
        self.pieces = pieces;
        Ok(())
    }

    fn end_thread(&mut self, key: (TargetId, Tid)) -> Result<(), RecordError> {
        if let Some(mut thread) = self.threads.remove(&key) {
            let run = thread.finish(&mut self.pieces);
            if let Some(process) = of(&mut self.processes, key.0) {
                process.exited.show(run);
            }
            self.write_pieces(thread.id)?;
            self.note_thread(&thread)?;
            self.writer.thread_ended(thread.id);
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

    /// Writes what `take` gives, now, of the CPU time of threads that came and went unseen.
    fn give_exited(
        &mut self,
        target: TargetId,
        take: impl FnOnce(&mut ExitedCpu, u64) -> Vec<Piece<Place>>,
    ) -> Result<(), RecordError> {
        let now = self.last_time;
        let Some(process) = of(&mut self.processes, target) else {
            return Ok(());
        };
        let pieces = take(&mut process.exited, now);
        if pieces.is_empty() {
            return Ok(());
        }
        let id = match process.exited.thread {
            Some(id) => id,
            None => {
                let name = "[exited threads, not sampled]";
                let begin = TimeNs(0);
                let id = self.writer.add_thread(process.id, Tid(0), begin, name)?;
                process.exited.thread = Some(id);
                id
            }
        };
        self.pieces.extend(pieces);
        self.write_pieces(id)?;
        let end = self.time(now);
        Ok(self.writer.thread_seen(id, TimeNs(0), end, 0)?)
    }
}

/// The state of a process, if it is one that is known.
fn of(processes: &mut [Option<Box<ProcessState>>], target: TargetId) -> Option<&mut ProcessState> {
    processes.get_mut(target.0 as usize)?.as_deref_mut()
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
