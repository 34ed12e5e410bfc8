//! One recording: the sampler and the recorder on threads of their own, the status line on this one.

use std::ffi::OsStr;
use std::fs::File;
use std::io::IsTerminal;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::mpsc::{self, RecvTimeoutError};
use std::thread::{self, JoinHandle};
use std::time::Duration;

use anyhow::Context;
use globset::GlobSet;
use nix::sys::utsname::{UtsName, uname};
use wcprof_capture::probe::kept_while_recording;
use wcprof_capture::{
    Arrivals, CpuPolicy, EngineKind, KeepThread, Pulse, Punctuality, Sampler, SamplerLinks,
    SamplerOptions, SamplerRequest, SamplingEnd, Stuck, TickBatch, Watcher, become_punctual,
};
use wcprof_host::Target;
use wcprof_host::apart;
use wcprof_host::clock::unix_ns;
use wcprof_host::sys::keep_capabilities;
use wcprof_record::{ModuleProblem, Progress, Recorded, Recorder, RecorderOptions};
use wcprof_text::percent;
use wcprof_trace::model::Header;
use wcprof_trace::{TraceError, TraceSink, TraceWriter};
use wcprof_types::Pid;

use crate::accounting::{Accounting, WholeReadings};
use crate::ahead::{self, Ahead, Due};
use crate::args::{EngineArg, SamplingArgs};
use crate::counting::{Counting, Daemons};
use crate::failure::Failure;
use crate::filters::globs;
use crate::output::{NewTrace, path_of};
use crate::progress;
use crate::settings;
use crate::signals::Ending;

/// Batches that may wait for the recorder: two seconds at 99 Hz.
const BATCHES: usize = 200;
/// Processes of which is kept how they are set up: it takes milliseconds of each.
const MAX_SETUPS: usize = 16;
/// Why a recording ended that the user ended.
pub(crate) const INTERRUPTED: &str = "interrupted";
const STATUS_EVERY: Duration = Duration::from_millis(250);

/// What to record and how.
#[derive(Debug)]
pub(crate) struct SessionOptions {
    /// At least one.
    pub(crate) targets: Vec<Arc<Target>>,
    /// Processes that they start, too.
    pub(crate) children: bool,
    /// Where processes come that are found meanwhile; `None`: none are looked for.
    pub(crate) arrivals: Option<Arrivals>,
    /// `None`: until Ctrl-C.
    pub(crate) duration: Option<Duration>,
    pub(crate) sampling: SamplingArgs,
    /// Kernel stacks, too; `None`: where they are cheap.
    pub(crate) kernel: Option<bool>,
    /// The trace keeps whole command lines.
    pub(crate) full_command_lines: bool,
    /// Also what the names of numbered traces are made from.
    pub(crate) trace: PathBuf,
    /// Ends the recording, and is told when it has ended.
    pub(crate) ending: Ending,
}

/// A finished recording.
#[derive(Debug)]
pub(crate) struct Session {
    pub(crate) trace: PathBuf,
    /// It, whatever its name leads to by now.
    pub(crate) file: File,
    pub(crate) recorded: Recorded,
    /// What the user should know of a recording that is whole.
    pub(crate) remark: Option<String>,
    /// What went wrong on the way: the recording is kept as far as it came.
    pub(crate) loss: Option<String>,
}

/// The sampler's thread.
pub(crate) type Sampling = JoinHandle<(SamplingEnd, Punctuality)>;

/// A recording that runs.
pub(crate) struct Running<S> {
    sampling: Sampling,
    pulse: Arc<Pulse>,
    /// Gives also what is to be said of it.
    recording: JoinHandle<(Recorder<S>, RecordingEnd, Vec<String>)>,
}

/// How the recorder's thread ended.
#[derive(Default)]
struct RecordingEnd {
    failed: Option<TraceError>,
    /// The sampler's thread never returns.
    stuck: Option<Stuck>,
}

impl RecordingEnd {
    /// The last readings of a recording that is whole; gives what is to be said of them.
    fn last_readings<S: TraceSink>(
        &mut self,
        readings: Readings,
        recorder: &mut Recorder<S>,
    ) -> Vec<String> {
        if self.failed.is_some() || self.stuck.is_some() {
            return Vec::new();
        }
        let read = readings.finish(recorder);
        read.unwrap_or_else(|error| {
            self.failed = Some(error);
            Vec::new()
        })
    }
}

/// What is read beside the sampler's batches while a recording runs.
struct Readings {
    accounting: Accounting,
    counting: Option<Counting>,
}

impl Readings {
    /// Hands over what is due at the time of a batch.
    fn take<S: TraceSink>(&mut self, to: &mut Recorder<S>, time: u64) -> Result<(), TraceError> {
        self.accounting.take(to, time)?;
        match &mut self.counting {
            Some(counting) => counting.take(to),
            None => Ok(()),
        }
    }

    /// The last ones; gives what is to be said of them.
    fn finish<S: TraceSink>(self, to: &mut Recorder<S>) -> Result<Vec<String>, TraceError> {
        self.accounting.finish(to)?;
        match self.counting {
            Some(counting) => counting.finish(to),
            None => Ok(Vec::new()),
        }
    }
}

/// A recording that has ended.
pub(crate) struct Finished<S> {
    pub(crate) recorder: Recorder<S>,
    pub(crate) failed: Option<TraceError>,
    pub(crate) end: SamplingEnd,
    /// The sampler, where it is left behind.
    pub(crate) left: Option<Sampling>,
    /// What the user should know of a recording that is whole.
    pub(crate) remark: Option<String>,
}

/// How the first of these processes are set up, as JSON.
fn setups(targets: &[Arc<Target>]) -> Vec<String> {
    let targets = targets.iter().take(MAX_SETUPS);
    targets
        .filter_map(|target| settings::setup_of(target.pid()))
        .collect()
}

/// Begins to record. `sink` makes what the recording goes into, given how the processes are set up, as
/// JSON; `after_batch` is called with the time of each batch, ns.
pub(crate) fn begin<S: TraceSink + Send + 'static>(
    options: &SessionOptions,
    whole_readings: WholeReadings,
    sink: impl FnOnce(&Header, Vec<String>) -> Result<S, Failure>,
    mut after_batch: impl FnMut(&mut Recorder<S>, u64) -> Result<(), TraceError> + Send + 'static,
) -> Result<Running<S>, Failure> {
    // Before sampling begins: the kernel walks page tables for it.
    let setups = setups(&options.targets);
    let daemons = Daemons::find(&options.targets, options.sampling.ceph);
    let sampler = sampler(options)?;
    let (pulse, timers) = (sampler.pulse(), sampler.timers());
    let mut watcher = Watcher::new(Arc::clone(&pulse));
    let (requests_tx, requests) = mpsc::channel();
    let recorder_options = recorder_options(&sampler, requests_tx, options);
    let sink = sink(&recorder_options.header, setups)?;
    let mut recorder = Recorder::new(&options.targets, sink, recorder_options)?;
    let (ending, duration) = (options.ending.clone(), options.duration);
    let ended = options.ending.clone();
    let (batches_tx, batches) = mpsc::sync_channel::<TickBatch>(BATCHES);
    let needed = kept_while_recording(sampler.reads_kernel_stacks());
    let sampling = move || {
        let punctuality = become_punctual();
        // What cannot be dropped is kept.
        let _ = keep_capabilities(needed);
        let end = sampler.run(&SamplerLinks {
            stop: ending.recording(),
            duration,
            batches: batches_tx,
            requests,
        });
        ending.end_recording();
        (end, punctuality)
    };
    let sampling = named("wcprof-sampler").spawn(sampling)?;
    let _ = keep_capabilities(needed);
    let _ = apart(None, move |_| keep_capabilities(needed));
    let mut readings = Readings {
        accounting: Accounting::new(whole_readings, options.sampling.max_cpu),
        counting: daemons.map(Daemons::start).transpose()?,
    };
    let recording = move || {
        let mut end = RecordingEnd::default();
        loop {
            match batches.recv_timeout(Watcher::EVERY) {
                // What comes until the sampler has noticed that it is to end.
                Ok(_) if end.failed.is_some() => {}
                Ok(batch) => {
                    let recorded = recorder.batch(&batch);
                    let read = recorded.and_then(|()| readings.take(&mut recorder, batch.time));
                    let noted = read.and_then(|()| after_batch(&mut recorder, batch.time));
                    end.failed = noted.err();
                }
                Err(RecvTimeoutError::Timeout) => end.stuck = watcher.check(),
                Err(RecvTimeoutError::Disconnected) => break,
            }
            if end.failed.is_some() || end.stuck.is_some() {
                ended.end_recording();
            }
            if end.stuck.is_some() {
                timers.stop();
                break;
            }
        }
        let remarks = end.last_readings(readings, &mut recorder);
        (recorder, end, remarks)
    };
    let recording = named("wcprof-recorder").spawn(recording)?;
    Ok(Running {
        sampling,
        pulse,
        recording,
    })
}

impl<S: TraceSink> Running<S> {
    /// Waits for the end, and says what of it is the same in every mode.
    pub(crate) fn finish(self, options: &SessionOptions) -> Result<Finished<S>, Failure> {
        let (recorder, recorded, remarks) = join(self.recording, "recorder")?;
        for remark in remarks {
            message!("wcprof: {remark}");
        }
        print_left_out(recorder.n_left_out());
        if let Some(crowded) = recorder.crowded() {
            message!("wcprof: {crowded}");
        }
        for note in self.pulse.notes() {
            message!("wcprof: {note}");
        }
        let failed = recorded.failed;
        if let Some(stuck) = recorded.stuck {
            return Ok(Finished {
                recorder,
                failed,
                remark: None,
                end: SamplingEnd::Stuck(stuck),
                left: Some(self.sampling),
            });
        }
        let (end, punctuality) = join(self.sampling, "sampler")?;
        Ok(Finished {
            failed,
            remark: remark(options, &end, punctuality),
            recorder,
            end,
            left: None,
        })
    }
}

/// Says which modules stacks do not get through, the first ones of many.
pub(crate) fn print_problems(problems: &[ModuleProblem]) {
    const MOST: usize = 10;
    for ModuleProblem { path, reason } in problems.iter().take(MOST) {
        message!("wcprof: stacks through `{path}` are incomplete: {reason}");
    }
    if problems.len() > MOST {
        let n = problems.len() - MOST;
        message!("wcprof: and through {n} more modules");
    }
}

/// Says that processes are missing.
pub(crate) fn print_left_out(n: u64) {
    if n > 0 {
        message!("wcprof: {n} processes that started during the recording could not be recorded");
    }
}

/// A thread with a name.
pub(crate) fn named(name: &str) -> thread::Builder {
    thread::Builder::new().name(name.to_owned())
}

fn join<T>(thread: JoinHandle<T>, name: &str) -> anyhow::Result<T> {
    let ended = thread.join();
    ended.map_err(|_| anyhow::anyhow!("the {name} thread panicked; please report this"))
}

fn recorder_options(
    sampler: &Sampler,
    requests: mpsc::Sender<SamplerRequest>,
    options: &SessionOptions,
) -> RecorderOptions {
    RecorderOptions {
        header: header(sampler, options),
        kernel: sampler.has_kernel_stacks(),
        module_files: sampler.module_files(),
        max_cpu_percent: options.sampling.max_cpu,
        full_command_lines: options.full_command_lines,
        requests,
    }
}

fn sampler(options: &SessionOptions) -> Result<Sampler, Failure> {
    let sampling = &options.sampling;
    let sampler_options = SamplerOptions {
        rate_hz: sampling.rate,
        max_cpu_percent: sampling.max_cpu,
        engine: match sampling.engine {
            EngineArg::Auto => None,
            EngineArg::Bpf => Some(EngineKind::Bpf),
            EngineArg::Procfs => Some(EngineKind::Procfs),
            EngineArg::ProcfsOnly => Some(EngineKind::ProcfsOnly),
        },
        kernel: options.kernel,
        children: options.children,
        arrivals: options.arrivals.clone(),
        cpus: CpuPolicy {
            spare_isolated: sampling.spare_isolated,
        },
        keep_thread: thread_filter(&sampling.threads, &sampling.exclude_threads)?,
    };
    Ok(Sampler::new(&options.targets, sampler_options)?)
}

/// Records until the time is over, Ctrl-C, or the end of the target. `create` makes the trace, once it is known that
/// the processes can be recorded.
pub(crate) fn record(
    options: &SessionOptions,
    ahead: Option<Ahead>,
    create: impl FnOnce() -> Result<NewTrace, Failure>,
) -> Result<Session, Failure> {
    let (progress_tx, progress) = mpsc::sync_channel(1);
    let (mut due, files) = Due::channel();
    // Nobody is woken for a line that is not shown.
    let is_shown = std::io::stderr().is_terminal();
    let mut shown = None;
    let mut created = None;
    let running = begin(
        options,
        WholeReadings::Twice,
        |header, setups| {
            let (path, file) = create()?;
            created = Some((path, file.try_clone()?));
            let mut writer = TraceWriter::for_file(file, header)?;
            for setup in &setups {
                // One that is too long is left out: the recording does not hang on it.
                let _ = writer.add_setup(setup);
            }
            Ok(writer)
        },
        move |recorder, time| {
            due.note(recorder, time);
            let since = time.saturating_sub(*shown.get_or_insert(time));
            if is_shown && since >= STATUS_EVERY.as_nanos() as u64 {
                shown = Some(time);
                // A recording goes on without its status line.
                let _ = progress_tx.try_send(recorder.progress());
            }
            Ok(())
        },
    )?;
    // Without it all names are looked up at the end.
    let (trace, file) = created.context("nothing was created")?;
    let ahead = ahead.and_then(|ahead| ahead::Running::start(ahead, path_of(&file), files).ok());
    for progress in progress {
        show_status(&progress, options);
    }
    progress::clear();
    let finished = running.finish(options);
    if let Some(ahead) = ahead {
        ahead.end();
    }
    let finished = finished?;
    let reason = finished.reason();
    let recorded = finished.recorder.finish(reason);
    let unsaved = recorded.write_error.as_ref();
    let unsaved = unsaved.map(|error| format!("the end of the recording is not saved: {error}"));
    let loss = loss(finished.failed.as_ref(), &finished.end).or(unsaved);
    Ok(Session {
        trace,
        file,
        recorded,
        remark: finished.remark,
        loss,
    })
}

/// What went wrong before the end of a recording.
pub(crate) fn loss(failed: Option<&TraceError>, end: &SamplingEnd) -> Option<String> {
    match (failed, end) {
        (Some(error), _) => Some(format!("the recording ended early: {error}")),
        (None, SamplingEnd::Failed(error)) => Some(format!("sampling ended early: {error}")),
        (None, SamplingEnd::Stuck(stuck)) => Some(format!("sampling ended early: {stuck}")),
        (None, _) => None,
    }
}

impl<S> Finished<S> {
    /// Why the recording ended, as the trace has it.
    pub(crate) fn reason(&self) -> &'static str {
        match self.end {
            _ if self.failed.is_some() => "trace could not be written",
            SamplingEnd::Duration => "duration",
            SamplingEnd::Stopped => INTERRUPTED,
            SamplingEnd::TargetExited => "target exited",
            SamplingEnd::TargetExec => "target runs another program (exec)",
            SamplingEnd::ReceiverGone => "the recorder ended",
            SamplingEnd::Failed(_) => "sampling failed",
            SamplingEnd::Stuck(_) => "the target's memory does not answer",
        }
    }
}

/// What the user should know of the end.
fn remark(options: &SessionOptions, end: &SamplingEnd, punctuality: Punctuality) -> Option<String> {
    let several = options.children || options.arrivals.is_some() || options.targets.len() > 1;
    match end {
        SamplingEnd::TargetExited | SamplingEnd::TargetExec if several => {
            Some("all processes have ended; what was sampled is kept".into())
        }
        SamplingEnd::TargetExited => Some("the target exited; what was sampled is kept".into()),
        SamplingEnd::TargetExec => {
            Some("the target runs another program now (exec); what was sampled is kept".into())
        }
        _ if punctuality == Punctuality::Normal => Some(
            "no privilege to raise the sampler's priority (CAP_SYS_NICE): ticks are late when all CPUs are busy"
                .into(),
        ),
        _ => None,
    }
}

/// One line that is written over again and again.
fn show_status(progress: &Progress, options: &SessionOptions) {
    let seconds = progress.recorded_ns as f64 / 1e9;
    let of = options
        .duration
        .map(|d| format!(" of {:.0}", d.as_secs_f64()));
    let of = of.unwrap_or_default();
    let total: u64 = progress.state_ns.iter().sum();
    let share = |ns: u64| percent(ns, total);
    let mut line = format!(
        "recording {}: {seconds:.1}{of} s, {} threads, {} samples, {:.1} % on-CPU, {:.1} % runnable, {} KiB",
        subject(options, progress.n_processes),
        progress.n_threads,
        progress.stats.n_observations + progress.stats.n_timer_samples,
        share(progress.state_ns[0]),
        share(progress.state_ns[1]),
        progress.trace_bytes / 1024,
    );
    if options.duration.is_none() {
        line.push_str("; Ctrl-C ends");
    }
    progress::put(&line);
}

/// What is recorded: `pid 7`, `3 processes`.
pub(crate) fn subject(options: &SessionOptions, n_processes: usize) -> String {
    match options.targets.as_slice() {
        [only] if !options.children && options.arrivals.is_none() => format!("pid {}", only.pid()),
        _ if n_processes == 1 => "1 process".into(),
        _ => format!("{n_processes} processes"),
    }
}

fn header(sampler: &Sampler, options: &SessionOptions) -> Header {
    let uname = uname().ok();
    let text = |field: fn(&UtsName) -> &OsStr| {
        let text = uname
            .as_ref()
            .map(|u| field(u).to_string_lossy().into_owned());
        text.unwrap_or_default()
    };
    Header {
        wcprof_version: env!("CARGO_PKG_VERSION").into(),
        engine: sampler.engine().name().into(),
        notes: sampler.notes().to_vec(),
        rate_hz: options.sampling.rate,
        host: text(|u| u.nodename()),
        kernel: text(|u| u.release()),
        n_cpus: thread::available_parallelism().map_or(1, |n| n.get() as u32),
        started_unix_ns: unix_ns(),
        n_snapshots: 0,
    }
}

/// Names that match an include glob (all, without one) and no exclude glob.
fn thread_filter(include: &[String], exclude: &[String]) -> Result<Option<KeepThread>, Failure> {
    if include.is_empty() && exclude.is_empty() {
        return Ok(None);
    }
    let (include, exclude) = (globs(include)?, globs(exclude)?);
    Ok(Some(Box::new(move |name| {
        let is_in = |globs: &GlobSet| globs.is_match(name);
        include.as_ref().is_none_or(is_in) && !exclude.as_ref().is_some_and(is_in)
    })))
}

/// `wcprof-PID-DATE.wct` in the current folder.
pub(crate) fn default_trace_path(pid: Pid) -> PathBuf {
    format!("wcprof-{pid}-{}.wct", unix_ns() / 1_000_000_000).into()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Check include and exclude globs, alone and together.
    #[test]
    fn filters() {
        let filter = |i: &[&str], e: &[&str]| {
            let own = |p: &[&str]| p.iter().map(|s| (*s).to_owned()).collect::<Vec<_>>();
            thread_filter(&own(i), &own(e)).unwrap()
        };
        assert!(filter(&[], &[]).is_none());
        let msgr = filter(&["msgr-*", "IO *"], &["*-2"]).unwrap();
        assert!(msgr("msgr-worker-1") && msgr("IO io0"));
        assert!(!msgr("msgr-worker-2") && !msgr("tp_osd_tp"));
        assert!(thread_filter(&["[".into()], &[]).is_err());
    }
}
