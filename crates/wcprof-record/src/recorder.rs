//! Batches in, spans of a trace out.

use std::collections::HashMap;
use std::fs::File;
use std::sync::Arc;
use std::sync::mpsc::Sender;

use wcprof_capture::{
    LockGlance, SamplerRequest, Since, StackBytes, StackCopy, TargetEnd, TargetId, ThreadTick,
    TickBatch, TickCounts, TimerSample, add_recording_cpu, add_steady_cpu,
};
use wcprof_host::clock::{moment, own_cpu_ns};
use wcprof_host::fds::{needs_proof, unname};
use wcprof_host::procfs::own_rss;
use wcprof_host::{Target, work_cpu_ns};
use wcprof_trace::model::{Header, LockLook, ProcessEnd, Span, StackId, Stats, ThreadId, WaitId};
use wcprof_trace::{TraceError, TraceSink, TraceWriter};
use wcprof_types::{FdKind, Sched, StackEnd, StopCause, ThreadState as State, Tid, TimeNs, Wait};

use crate::clock::Clock;
use crate::counters::CounterIds;
use crate::exited::ExitedCpu;
use crate::files::TargetFiles;
use crate::folds::Fold;
use crate::locks::Locks;
use crate::modules::ModuleProblem;
use crate::need::Unwinding;
use crate::process::ProcessState;
use crate::processes::Processes;
use crate::stacks::{Copied, Stacks};
use crate::threads::{Place, ThreadState};
use crate::unmapped::UnmappedFrames;
use crate::weights::{Piece, TimerHit};

/// Changes of the rate that are remembered, the last ones.
const MAX_RATE_CHANGES: usize = 256;
/// The trace is written out this often.
const FLUSH_NS: u64 = 1_000_000_000;

/// What a recording is made of.
#[derive(Debug)]
pub struct RecorderOptions {
    /// Facts for the trace's header.
    pub header: Header,
    /// Batches have kernel stacks.
    pub kernel: bool,
    /// Files of modules that are held open at most.
    pub module_files: usize,
    /// Most CPU that wcprof may use, percent of one core. A part of it takes in modules.
    pub max_cpu_percent: u32,
    /// The trace keeps whole command lines, with what they hold of secrets.
    pub full_command_lines: bool,
    /// Where requests to the sampler go.
    pub requests: Sender<SamplerRequest>,
}

/// A recording that has ended.
#[derive(Debug)]
pub struct Recorded<S = TraceWriter<File>> {
    /// Its counts.
    pub stats: Stats,
    /// The trace's time 0, `CLOCK_MONOTONIC` ns.
    pub begin: u64,
    /// No time of any thread is in the trace.
    pub is_empty: bool,
    /// Modules that stacks could not be unwound through.
    pub problems: Vec<ModuleProblem>,
    /// Files of its modules, for their names.
    pub files: Vec<TargetFiles>,
    /// Whose the frames outside of every module are.
    pub unmapped: UnmappedFrames,
    /// Why the end of the trace is not in its file (full disk).
    pub write_error: Option<TraceError>,
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
    pub(crate) processes: Processes,
    pub(crate) threads: HashMap<(TargetId, Tid), ThreadState>,
    pub(crate) stacks: Stacks,
    pub(crate) clock: Clock,
    pub(crate) writer: S,
    n_cpus: u64,
    /// Pieces of one thread that are to be written.
    pieces: Vec<Piece<Place>>,
    requests: Sender<SamplerRequest>,
    is_settled: bool,
    pub(crate) counters: CounterIds,
    totals: Totals,
}

/// What is counted over the whole recording.
#[derive(Debug, Default)]
struct Totals {
    stats: Stats,
    n_left_out: u64,
    n_bare_waits: u64,
    state_ns: [u64; 3],
}

/// No system call has a number beyond it.
const MAX_SYSCALL: u32 = 1024;

/// Leaves of a wait what few differ in.
fn make_bare(wait: &mut Wait) {
    // Targets choose requests of `ioctl`, and with a filter also numbers of calls.
    if wait.futex.take().is_none() {
        wait.op = 0;
    }
    wait.syscall = wait.syscall.filter(|number| *number < MAX_SYSCALL);
    if needs_proof(wait) {
        unname(wait);
    }
}

impl<S> std::fmt::Debug for Recorder<S> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Recorder")
            .field("totals", &self.totals)
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
    ) -> Result<Self, TraceError> {
        let mut recorder = Self {
            processes: Processes::default(),
            threads: HashMap::new(),
            stacks: Stacks::new(
                options.kernel,
                options.module_files,
                options.max_cpu_percent,
            ),
            clock: Clock::default(),
            writer,
            n_cpus: u64::from(options.header.n_cpus),
            pieces: Vec::new(),
            requests: options.requests,
            is_settled: false,
            counters: CounterIds::default(),
            totals: Totals::default(),
        };
        recorder.stacks.shared.folds.full_command_lines = options.full_command_lines;
        for (id, target) in (0..).map(TargetId).zip(targets) {
            recorder.join(id, target)?;
            recorder.take_in(id)?;
        }
        Ok(recorder)
    }

    /// Takes in one more process.
    fn join(&mut self, id: TargetId, target: &Arc<Target>) -> Result<(), TraceError> {
        let folds = &mut self.stacks.shared.folds;
        let fold = folds.enter(target, &mut self.writer)?;
        let (process, owns_id, exited) = match fold.map(|fold| folds.get(fold)) {
            Some(fold) => (fold.process, fold.is_single(), fold.exited),
            None => (
                self.writer.add_process(folds.described(target))?,
                true,
                None,
            ),
        };
        let mut process = ProcessState::new(process, Arc::clone(target));
        (process.fold, process.owns_id) = (fold, owns_id);
        process.exited.thread = exited;
        process.exited.begin(self.clock.last);
        self.processes.add(id, process);
        self.stacks.taking_in.wants(id);
        Ok(())
    }

    /// The processes that this one is one with in the trace.
    fn fold_of(&mut self, target: TargetId) -> Option<&mut Fold> {
        let fold = self.processes.get_mut(target)?.fold?;
        Some(self.stacks.shared.folds.get(fold))
    }

    /// Files of all processes.
    pub fn files(&self) -> Vec<TargetFiles> {
        let folded = self.stacks.shared.folds.iter();
        let folded = folded.map(|fold| fold.files.clone());
        self.processes.files().into_iter().chain(folded).collect()
    }

    /// Asks the sampler for all time of threads that wait, which it hands on about once a second else.
    pub fn settle(&self) {
        // One that has ended has handed on all.
        let _ = self.requests.send(SamplerRequest::Settle);
    }

    /// Whether the last batch had all time of each thread up to its end.
    pub fn is_settled(&self) -> bool {
        self.is_settled
    }

    /// Takes one batch. The CPU time that it takes is a part of what the sampler keeps to its budget.
    pub fn batch(&mut self, batch: &TickBatch) -> Result<(), TraceError> {
        // Of the start.
        self.stacks.taking_in.take_ns();
        let before = work_cpu_ns();
        let taken = self.take_batch(batch);
        let turns = self.stacks.taking_in.take_ns();
        add_steady_cpu(turns);
        add_recording_cpu(work_cpu_ns().saturating_sub(before + turns));
        taken
    }

    fn take_batch(&mut self, batch: &TickBatch) -> Result<(), TraceError> {
        let is_first = self.clock.begin.is_none();
        if is_first {
            self.begin(batch.time);
        }
        self.count(batch);
        for (id, target) in &batch.joined {
            self.join(*id, target)?;
        }
        self.take_in_next()?;
        let is_new = |tick: &&ThreadTick| tick.since.is_some();
        for tick in batch.threads.iter().filter(is_new) {
            // One that is there has not exited yet.
            if !self.threads.contains_key(&(tick.target, tick.tid)) {
                self.know_thread(tick)?;
            }
        }
        for sample in &batch.timer_samples {
            self.timer_sample(sample, &batch.stacks)?;
        }
        let mut glances = batch.locks.glances.iter().peekable();
        let mut exited = batch.exited.iter().peekable();
        for (i, tick) in batch.threads.iter().enumerate() {
            while let Some(glance) = glances.next_if(|g| g.after <= i) {
                self.glance(glance);
            }
            while let Some(&(_, target, tid)) = exited.next_if(|(after, ..)| *after <= i) {
                self.end_thread((target, tid))?;
            }
            self.thread_tick(tick, &batch.stacks)?;
        }
        glances.for_each(|glance| self.glance(glance));
        self.note_locks(batch)?;
        for &(_, target, tid) in exited {
            self.end_thread((target, tid))?;
        }
        for clock in &batch.cpu_clocks {
            let n_cpus = self.n_cpus;
            self.give_exited(clock.target, |exited, now| {
                exited.read(clock, n_cpus, now);
                exited.take_settled(n_cpus, now)
            })?;
        }
        for &(target, end, time) in &batch.ended {
            self.end_process(target, end, time)?;
        }
        if is_first || batch.time.saturating_sub(self.clock.flushed) >= FLUSH_NS {
            self.clock.flushed = batch.time;
            self.flush()?;
        }
        Ok(())
    }

    /// The first tick is the trace's time 0.
    fn begin(&mut self, time: u64) {
        self.writer.set_start(moment().unix_of(time));
        self.clock.begin = Some(time);
        for (_, process) in self.processes.iter_mut() {
            process.exited.begin(time);
        }
    }

    fn timer_sample(&mut self, sample: &TimerSample, stacks: &[u8]) -> Result<(), TraceError> {
        // A thread that no tick has seen (yet): its time is found by the process's CPU clock.
        let key = (sample.target, sample.tid);
        if self.threads.contains_key(&key) {
            let stack = match &sample.stack {
                Some(copy) => {
                    let (stack, _) = self.unwind(key, copy, stacks, sample.time)?;
                    let (kernel, writer) = (&sample.kernel, &mut self.writer);
                    self.stacks.add_kernel(stack, kernel, stacks, writer)?
                }
                None => (self.stacks).of_worker(&sample.kernel, stacks, &mut self.writer)?,
            };
            if let Some(thread) = self.threads.get_mut(&key) {
                thread.hits.push(TimerHit {
                    time: sample.time,
                    place: (Some(stack), None),
                    state: sample.state,
                });
            }
        }
        Ok(())
    }

    /// Writes out what is known.
    pub(crate) fn flush(&mut self) -> Result<(), TraceError> {
        self.note_threads()?;
        self.write_all_looks(Locks::take_all)?;
        self.writer.set_stats(&self.stats())?;
        self.writer.flush()?;
        self.retry_modules()?;
        let n_forgotten = self.processes.forget_ended(&self.writer);
        self.stacks.shared.folds.forgotten(n_forgotten);
        if self.writer.sweep_due() {
            let threads = self.threads.values();
            let held: Vec<Place> = threads.flat_map(ThreadState::places).collect();
            self.writer.sweep(&held);
            self.stacks.forget(&self.writer);
            self.processes.forget();
        }
        Ok(())
    }

    /// The counts so far.
    fn stats(&self) -> Stats {
        Stats {
            ends: self.stacks.ends.clone(),
            own_cpu_ns: own_cpu_ns(),
            ..self.totals.stats.clone()
        }
    }

    /// Ends the part of one process.
    fn end_process(
        &mut self,
        target: TargetId,
        end: TargetEnd,
        time: u64,
    ) -> Result<(), TraceError> {
        self.finish_process(target)?;
        self.hold_late_files(target);
        let time = self.clock.time(time);
        let Some(process) = self.processes.remove(target) else {
            return Ok(());
        };
        self.stacks.taking_in.ended(target);
        if process.fold.is_none() {
            let reason = match end {
                TargetEnd::Exited => "exited",
                TargetEnd::Exec => "exec",
            };
            let reason = reason.to_owned();
            let end = ProcessEnd { time, reason };
            self.writer.process_ended(process.id, &end)?;
            if self.stacks.shared.folds.ended() {
                self.processes.keep(process.into_files());
            }
        }
        self.stacks.shared.close_idle();
        Ok(())
    }

    /// Opens what a process opened late.
    fn hold_late_files(&mut self, target: TargetId) {
        let Some(process) = self.processes.get_mut(target) else {
            return;
        };
        process.hold_late_files();
        if let Some(fold) = process.fold.filter(|_| process.owns_id) {
            let fold = self.stacks.shared.folds.get(fold);
            fold.files.take_jitdumps(&process.files());
        }
    }

    /// Ends all threads; `reason` says why the recording ended. Gives the final counts.
    pub(crate) fn end_all(&mut self, reason: &str) -> (Stats, Option<TraceError>) {
        let mut write_error = None;
        for target in self.processes.targets() {
            let finished = self.finish_process(target);
            write_error = write_error.or(finished.err());
        }
        let stats = Stats {
            own_rss_bytes: own_rss().1,
            end_reason: reason.to_owned(),
            complete: true,
            ..self.stats()
        };
        for target in self.processes.targets() {
            self.hold_late_files(target);
        }
        let written = self.writer.finish(&stats);
        let write_error = write_error.or(written.err());
        (stats, write_error)
    }

    /// Modules that stacks do not get through, so far.
    pub fn problems(&mut self) -> Vec<ModuleProblem> {
        self.processes.problems().cloned().collect()
    }

    /// Ends the recording and gives its counts; `reason` says why it ended.
    pub fn finish(mut self, reason: &str) -> Recorded<S> {
        let (stats, write_error) = self.end_all(reason);
        let problems = self.problems();
        Recorded {
            stats,
            begin: self.clock.begin.unwrap_or(0),
            is_empty: self.totals.state_ns == [0; 3],
            problems,
            files: self.files(),
            unmapped: self.stacks.unmapped,
            write_error,
            writer: self.writer,
        }
    }

    fn finish_process(&mut self, target: TargetId) -> Result<(), TraceError> {
        self.write_looks(target, Locks::take_all)?;
        let keys = self.threads.keys().copied();
        let threads: Vec<_> = keys.filter(|(of, _)| *of == target).collect();
        for thread in threads {
            self.end_thread(thread)?;
        }
        self.give_exited(target, ExitedCpu::take_rest)
    }

    /// Children of targets that could not be recorded.
    pub fn n_left_out(&self) -> u64 {
        self.totals.n_left_out
    }

    /// How far it is.
    pub fn progress(&self) -> Progress {
        Progress {
            recorded_ns: self.clock.time(self.clock.last).0,
            n_threads: self.threads.len(),
            n_processes: self.processes.n_live(),
            stats: self.stats(),
            trace_bytes: self.writer.len_bytes(),
            state_ns: self.totals.state_ns,
        }
    }

    fn glance(&mut self, glance: &LockGlance) {
        if let Some(process) = self.processes.get_mut(glance.target) {
            let (id, threads) = (process.id, &self.threads);
            let time = |at: u64| self.clock.time(at);
            process.locks.glance(id, glance, threads, time);
        }
    }

    /// Writes what is known of locks.
    fn note_locks(&mut self, batch: &TickBatch) -> Result<(), TraceError> {
        for &(target, tid, own) in &batch.own_tids {
            if let Some(thread) = self.threads.get(&(target, tid)) {
                self.writer.own_tid(thread.id, own)?;
            }
        }
        for &(target, tid, tick) in &batch.locks.moved {
            if let Some(thread) = self.threads.get(&(target, tid)) {
                self.writer.waiter_moved(thread.id, self.clock.time(tick))?;
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
    ) -> Result<(), TraceError> {
        let mut targets = self.processes.targets().into_iter();
        targets.try_for_each(|target| self.write_looks(target, &take))
    }

    /// Writes looks at locks of one process.
    fn write_looks(
        &mut self,
        target: TargetId,
        take: impl Fn(&mut Locks) -> Vec<LockLook>,
    ) -> Result<(), TraceError> {
        if let Some(process) = self.processes.get_mut(target) {
            for look in take(&mut process.locks) {
                self.writer.lock_look(&look)?;
            }
        }
        Ok(())
    }

    fn count(&mut self, batch: &TickBatch) {
        self.clock.last = self.clock.last.max(batch.time);
        let now = self.clock.time(self.clock.last);
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
            is_settled,
            new_rate_hz,
        } = batch.counts;
        self.is_settled = is_settled;
        self.totals.n_left_out += n_left_out;
        let stats = &mut self.totals.stats;
        stats.duration = now;
        stats.n_ticks += n_ticks;
        stats.losses.n_late += n_late;
        stats.losses.n_missed += n_missed;
        stats.n_observations += n_observations;
        stats.losses.n_torn += n_torn;
        stats.losses.n_lost += n_lost;
        stats.losses.n_dropped_batches += n_dropped_batches;
        stats.n_timer_samples += batch.timer_samples.len() as u64;
        let known = stats.rate_changes.last().map(|(_, rate)| *rate);
        if let Some(rate) = new_rate_hz.filter(|rate| Some(*rate) != known) {
            stats.rate_changes.push((now, rate));
            let n_over = stats.rate_changes.len().saturating_sub(MAX_RATE_CHANGES);
            stats.rate_changes.drain(..n_over);
        }
    }

    fn know_thread(&mut self, tick: &ThreadTick) -> Result<(), TraceError> {
        let key = (tick.target, tick.tid);
        let seen = self.clock.time(tick.time);
        let fold = self.fold_of(tick.target).map(|fold| fold.process);
        if let Some(thread) = self.threads.get(&key) {
            if let Some(name) = tick.comm.as_ref().filter(|_| fold.is_none()) {
                self.writer.thread_name(thread.id, seen, name)?;
            }
            return Ok(());
        }
        let mut name = tick.comm.as_deref().unwrap_or("?");
        let begin = self.clock.begin.unwrap_or(0);
        match self.fold_of(tick.target).map(|fold| fold.wake(name)) {
            Some(Ok(resting)) => {
                let thread = ThreadState::resume(resting, tick, begin);
                self.threads.insert(key, thread);
                return Ok(());
            }
            Some(Err(of_group)) => name = of_group,
            None => {}
        }
        let Some(process) = self.processes.get_mut(tick.target) else {
            return Ok(());
        };
        if tick.since == Some(Since::FirstTick) {
            process.exited.looked_at_older(tick.counters.run_ns);
        }
        let id = self.writer.add_thread(process.id, tick.tid, seen, name)?;
        if let Some(fold) = self.fold_of(tick.target) {
            fold.add_thread(id, name);
        }
        self.threads.insert(key, ThreadState::new(id, tick, begin));
        Ok(())
    }

    fn thread_tick(&mut self, tick: &ThreadTick, stacks: &[u8]) -> Result<(), TraceError> {
        self.know_thread(tick)?;
        let place = self.place(tick, stacks)?;
        if let Some(thread) = self.threads.get_mut(&(tick.target, tick.tid)) {
            let place = match tick.stack {
                StackCopy::Unchanged => thread.place,
                // It runs while it writes a core dump, and does not come back from where it was.
                StackCopy::None | StackCopy::Torn => place.map(|own| thread.dumps_at(own)),
                _ => place,
            };
            let run = thread.observe(tick, place, &mut self.pieces);
            let id = thread.id;
            if let Some(process) = self.processes.get_mut(tick.target) {
                process.exited.show(run);
            }
            self.write_pieces(id)?;
        }
        Ok(())
    }

    /// The stack and wait of a tick, when it has them.
    fn place(&mut self, tick: &ThreadTick, stacks: &[u8]) -> Result<Option<Place>, TraceError> {
        let stack = match &tick.stack {
            StackCopy::None | StackCopy::Torn if tick.stop == Some(StopCause::CoreDump) => {
                let wait = self.wait(tick.target, &Wait::default(), tick.stop)?;
                return Ok(Some((None, Some(wait))));
            }
            StackCopy::None | StackCopy::Unchanged | StackCopy::Torn => return Ok(None),
            StackCopy::Copied(copy) => {
                let key = (tick.target, tick.tid);
                let (stack, unwinding) = self.unwind(key, copy, stacks, tick.time)?;
                // The next copies can be longer or shorter.
                if let Some(unwinding) = unwinding
                    && let Some(thread) = self.threads.get_mut(&key)
                    && let Some(request) = thread.need.learn(tick.tid, &unwinding)
                {
                    // The sampler is gone at the end of a recording: nothing to ask for then.
                    let _ = self.requests.send(SamplerRequest::Stack(request));
                }
                let (kernel, writer) = (&tick.kernel, &mut self.writer);
                self.stacks.add_kernel(stack, kernel, stacks, writer)?
            }
            StackCopy::NoUserStack => {
                (self.stacks).of_worker(&tick.kernel, stacks, &mut self.writer)?
            }
        };
        let wait = match &tick.wait {
            Some(wait) if tick.sched == Sched::Blocked => {
                Some(self.wait(tick.target, wait, tick.stop)?)
            }
            _ => None,
        };
        Ok(Some((Some(stack), wait)))
    }

    fn wait(
        &mut self,
        target: TargetId,
        wait: &Wait,
        stop: Option<StopCause>,
    ) -> Result<WaitId, TraceError> {
        let mut wait = Wait {
            stop,
            ..wait.clone()
        };
        if let Some(process) = self.processes.get_mut(target) {
            wait.futex = wait.futex.and_then(|at| process.locks.address(at));
            if let Some(fd) = &mut wait.fd
                && fd.kind == FdKind::Socket
                && let Some(name) = process.sockets.name(&fd.path)
            {
                name.clone_into(&mut fd.path);
            }
        }
        if !self.writer.room().waits {
            if let Some(known) = self.writer.known_wait(&wait) {
                return Ok(known);
            }
            self.totals.n_bare_waits += 1;
            make_bare(&mut wait);
        }
        self.writer.intern_wait(wait)
    }

    /// What the trace had no room for, since the targets have too many different ones.
    pub fn crowded(&self) -> Option<String> {
        let (n_waits, n_stacks) = (self.totals.n_bare_waits, self.stacks.n_bare);
        (n_waits + n_stacks > 0).then(|| {
            format!(
                "the trace has no room for more: {n_stacks} stacks have no frames, and {n_waits} waits no file and no lock"
            )
        })
    }

    /// Unwinds one copy of a thread's stack; see [`Stacks::unwind`].
    fn unwind(
        &mut self,
        thread: (TargetId, Tid),
        copy: &StackBytes,
        all: &[u8],
        time: u64,
    ) -> Result<(StackId, Option<Unwinding>), TraceError> {
        let copied = Copied { copy, all, time };
        match self.processes.get_mut(thread.0) {
            Some(process) => self
                .stacks
                .unwind(thread.0, process, &copied, &mut self.writer),
            None => {
                let end = StackEnd::NotSampled;
                let stack = self.stacks.intern(Vec::new(), end, &mut self.writer)?;
                Ok((stack, None))
            }
        }
    }

    pub(crate) fn span(&self, thread: ThreadId, piece: &Piece<Place>) -> Span {
        let (stack, wait) = piece.place.unwrap_or((None, None));
        Span {
            thread,
            start: self.clock.time(piece.start),
            end: self.clock.time(piece.end),
            weight: piece.weight,
            n_samples: piece.n_samples,
            state: piece.state,
            wait: wait.filter(|_| piece.state == State::Blocked),
            stack,
        }
    }

    fn write_pieces(&mut self, thread: ThreadId) -> Result<(), TraceError> {
        let mut pieces = std::mem::take(&mut self.pieces);
        for piece in &pieces {
            let group = match piece.state {
                State::OnCpu | State::Guest | State::VmExit => 0,
                State::Runnable => 1,
                State::Blocked | State::StealIrq | State::Unknown | State::Other(_) => 2,
            };
            self.totals.state_ns[group] += piece.weight;
            self.writer.span(&self.span(thread, piece))?;
        }
        pieces.clear();
        self.pieces = pieces;
        Ok(())
    }

    fn end_thread(&mut self, key: (TargetId, Tid)) -> Result<(), TraceError> {
        if let Some(mut thread) = self.threads.remove(&key) {
            let run = thread.finish(&mut self.pieces);
            if let Some(process) = self.processes.get_mut(key.0) {
                process.exited.show(run);
            }
            self.write_pieces(thread.id)?;
            self.note_thread(&thread)?;
            match self.fold_of(key.0) {
                Some(fold) => fold.rest(thread.resting()),
                None => self.writer.thread_ended(thread.id),
            }
        }
        Ok(())
    }

    fn note_threads(&mut self) -> Result<(), TraceError> {
        let threads = std::mem::take(&mut self.threads);
        let noted = threads.values().try_for_each(|t| self.note_thread(t));
        self.threads = threads;
        noted
    }

    fn note_thread(&mut self, thread: &ThreadState) -> Result<(), TraceError> {
        let (start, end) = (thread.first_time, thread.ledger.last_time());
        let (start, end) = (self.clock.time(start), self.clock.time(end));
        self.writer
            .thread_seen(thread.id, start, end, thread.n_ticks)
    }

    /// Writes what `take` gives, now, of the CPU time of threads that came and went unseen.
    fn give_exited(
        &mut self,
        target: TargetId,
        take: impl FnOnce(&mut ExitedCpu, u64) -> Vec<Piece<Place>>,
    ) -> Result<(), TraceError> {
        let now = self.clock.last;
        let Some(process) = self.processes.get_mut(target) else {
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
                if let Some(fold) = self.fold_of(target) {
                    fold.exited = Some(id);
                }
                id
            }
        };
        self.pieces.extend(pieces);
        self.write_pieces(id)?;
        let end = self.clock.time(now);
        self.writer.thread_seen(id, TimeNs(0), end, 0)
    }
}
