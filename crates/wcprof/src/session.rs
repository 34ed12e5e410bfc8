//! One recording: the sampler and the recorder on threads of their own, Ctrl-C and the status line
//! on this one.

use std::io::{IsTerminal, Write};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc;
use std::thread;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use anyhow::Context;
use globset::{Glob, GlobSet, GlobSetBuilder};
use tokio::sync::{oneshot, watch};
use wcprof_capture::{
    EngineKind, KeepThread, Punctuality, Sampler, SamplerLinks, SamplerOptions, SamplingEnd,
    StackRequest, TickBatch,
};
use wcprof_host::Target;
use wcprof_host::clock::monotonic_ns;
use wcprof_record::{Progress, RecordError, Recorded, Recorder, RecorderOptions};
use wcprof_trace::TraceWriter;
use wcprof_trace::model::Header;
use wcprof_types::Pid;

use crate::cli::EngineArg;
use crate::doctor;
use crate::failure::{Exit, Failure};
use crate::progress::columns_of_stderr;

/// Batches that may wait for the recorder: two seconds at 99 Hz.
const BATCHES: usize = 200;
/// Processes of which is kept how they are set up: it takes milliseconds of each.
const MAX_SETUPS: usize = 16;
const STATUS_EVERY: Duration = Duration::from_millis(250);

/// What to record and how.
#[derive(Debug)]
pub(crate) struct SessionOptions {
    /// At least one.
    pub(crate) targets: Vec<Arc<Target>>,
    /// Processes that they start, too.
    pub(crate) children: bool,
    /// `None`: until Ctrl-C.
    pub(crate) duration: Option<Duration>,
    pub(crate) rate_hz: u32,
    pub(crate) max_cpu_percent: u32,
    pub(crate) engine: EngineArg,
    /// Kernel stacks, too.
    pub(crate) kernel: bool,
    pub(crate) threads: Vec<String>,
    pub(crate) exclude_threads: Vec<String>,
    pub(crate) trace: PathBuf,
}

/// A finished recording.
#[derive(Debug)]
pub(crate) struct Session {
    pub(crate) recorded: Recorded,
    /// What the user should know of a recording that is whole.
    pub(crate) remark: Option<String>,
    /// What went wrong on the way: the recording is kept as far as it came.
    pub(crate) loss: Option<String>,
}

/// What a recording begins with.
pub(crate) struct Start {
    pub(crate) sampler: Sampler,
    pub(crate) header: Header,
    /// How processes are set up, as JSON.
    pub(crate) setups: Vec<String>,
}

/// Opens the targets for sampling.
pub(crate) fn start(options: &SessionOptions) -> Result<Start, Failure> {
    let keep = thread_filter(&options.threads, &options.exclude_threads)?;
    // Before sampling begins: the kernel walks page tables for it.
    let setups: Vec<String> = options
        .targets
        .iter()
        .take(MAX_SETUPS)
        .filter_map(|target| doctor::setup_of(target.pid()))
        .collect();
    let sampler = Sampler::new(
        &options.targets,
        SamplerOptions {
            rate_hz: options.rate_hz,
            max_cpu_percent: options.max_cpu_percent,
            engine: match options.engine {
                EngineArg::Auto => None,
                EngineArg::Bpf => Some(EngineKind::Bpf),
                EngineArg::Procfs => Some(EngineKind::Procfs),
                EngineArg::ProcfsOnly => Some(EngineKind::ProcfsOnly),
            },
            kernel: options.kernel,
            children: options.children,
            keep_thread: keep,
        },
    )?;
    let header = header(&sampler, options);
    Ok(Start {
        sampler,
        header,
        setups,
    })
}

/// Where the sampler of a recording comes to its end.
pub(crate) type Sampling = thread::JoinHandle<(SamplingEnd, Punctuality)>;

/// Begins to sample, on a thread of its own.
pub(crate) fn sample(
    sampler: Sampler,
    duration: Option<Duration>,
    stop: &Arc<AtomicBool>,
    requests: mpsc::Receiver<StackRequest>,
) -> Result<(Sampling, mpsc::Receiver<TickBatch>), Failure> {
    let (batches_tx, batches_rx) = mpsc::sync_channel::<TickBatch>(BATCHES);
    let stop = Arc::clone(stop);
    let sampling = thread::Builder::new()
        .name("wcprof-sampler".into())
        .spawn(move || {
            let punctuality = Sampler::become_punctual();
            let end = sampler.run(&SamplerLinks {
                stop: &stop,
                duration,
                batches: batches_tx,
                requests,
            });
            (end, punctuality)
        })?;
    Ok((sampling, batches_rx))
}

/// Records until the time is over, Ctrl-C, or the end of the target.
pub(crate) fn record(options: &SessionOptions) -> Result<Session, Failure> {
    let Start {
        sampler,
        header,
        setups,
    } = start(options)?;
    let mut writer = TraceWriter::create(&options.trace, &header)?;
    for setup in &setups {
        // One that is too long is left out: the recording does not hang on it.
        let _ = writer.add_setup(setup);
    }
    let (requests_tx, requests_rx) = mpsc::channel();
    let recorder = Recorder::new(
        &options.targets,
        writer,
        RecorderOptions {
            header,
            kernel: options.kernel,
            requests: requests_tx,
        },
    )?;

    let stop = Arc::new(AtomicBool::new(false));
    let (progress_tx, progress_rx) = watch::channel(Progress::default());
    let (done_tx, done_rx) = oneshot::channel();
    let (sampler, batches_rx) = sample(sampler, options.duration, &stop, requests_rx)?;
    let recorder = thread::Builder::new()
        .name("wcprof-recorder".into())
        .spawn(move || {
            let taken = take_batches(recorder, &batches_rx, &progress_tx);
            // The waiting side only counts the end, whether it still listens or not.
            let _ = done_tx.send(());
            taken
        })?;

    wait(&stop, done_rx, &progress_rx, options)?;
    let (end, punctuality) = join(sampler, "sampler")?;
    let (recorder, failed) = join(recorder, "recorder")?;
    Ok(finish(options, recorder, failed, &end, punctuality))
}

/// Waits for a thread's end.
pub(crate) fn join<T>(thread: thread::JoinHandle<T>, name: &str) -> anyhow::Result<T> {
    let ended = thread.join();
    ended.map_err(|_| anyhow::anyhow!("the {name} thread panicked; please report this"))
}

fn take_batches(
    mut recorder: Recorder,
    batches: &mpsc::Receiver<TickBatch>,
    progress: &watch::Sender<Progress>,
) -> (Recorder, Option<RecordError>) {
    let mut shown = monotonic_ns();
    while let Ok(batch) = batches.recv() {
        if let Err(error) = recorder.batch(&batch) {
            return (recorder, Some(error));
        }
        if batch.time.saturating_sub(shown) >= STATUS_EVERY.as_nanos() as u64 {
            shown = batch.time;
            progress.send_replace(recorder.progress());
        }
    }
    (recorder, None)
}

fn finish(
    options: &SessionOptions,
    recorder: Recorder,
    failed: Option<RecordError>,
    end: &SamplingEnd,
    punctuality: Punctuality,
) -> Session {
    let remark = remark(options, end, punctuality);
    let recorded = recorder.finish(reason(end));
    let loss = match (&failed, end, &recorded.write_error) {
        (Some(error), ..) => Some(format!("the recording ended early: {error}")),
        (_, SamplingEnd::Failed(error), _) => Some(format!("sampling ended early: {error}")),
        (.., Some(error)) => Some(format!("the end of the recording is not saved: {error}")),
        _ => None,
    };
    Session {
        recorded,
        remark,
        loss,
    }
}

/// Why a recording ended, as the trace has it.
pub(crate) fn reason(end: &SamplingEnd) -> &'static str {
    match end {
        SamplingEnd::Duration => "duration",
        SamplingEnd::Stopped => "interrupted",
        SamplingEnd::TargetExited => "target exited",
        SamplingEnd::TargetExec => "target runs another program (exec)",
        SamplingEnd::ReceiverGone => "trace could not be written",
        SamplingEnd::Failed(_) => "sampling failed",
    }
}

/// What the user should know of the end.
pub(crate) fn remark(
    options: &SessionOptions,
    end: &SamplingEnd,
    punctuality: Punctuality,
) -> Option<String> {
    let several = options.children || options.targets.len() > 1;
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

/// Waits for the end; Ctrl-C and SIGTERM ask for it.
fn wait(
    stop: &Arc<AtomicBool>,
    done: oneshot::Receiver<()>,
    progress: &watch::Receiver<Progress>,
    options: &SessionOptions,
) -> Result<(), Failure> {
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .context("failed to start the event loop")?;
    runtime.block_on(async {
        let mut terminate =
            tokio::signal::unix::signal(tokio::signal::unix::SignalKind::terminate())?;
        let mut status = tokio::time::interval(STATUS_EVERY);
        let show = std::io::stderr().is_terminal();
        tokio::pin!(done);
        loop {
            tokio::select! {
                _ = &mut done => break,
                signal = tokio::signal::ctrl_c() => {
                    signal?;
                    stop.store(true, Ordering::Relaxed);
                }
                _ = terminate.recv() => stop.store(true, Ordering::Relaxed),
                _ = status.tick(), if show => show_status(&progress.borrow(), options),
            }
        }
        if show {
            // A terminal that has gone is no reason to stop.
            let _ = write!(std::io::stderr(), "\r\x1b[K");
        }
        Ok(())
    })
}

/// One line that is written over again and again.
fn show_status(progress: &Progress, options: &SessionOptions) {
    let seconds = progress.recorded_ns as f64 / 1e9;
    let of = options
        .duration
        .map_or(String::new(), |d| format!(" of {:.0}", d.as_secs_f64()));
    let total: u64 = progress.state_ns.iter().sum();
    let share = |ns: u64| 100.0 * ns as f64 / total.max(1) as f64;
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
    // A line that wraps cannot be written over.
    let room = columns_of_stderr().saturating_sub(1);
    let line = wcprof_findings::cut(&line, Some(room));
    let _ = write!(std::io::stderr(), "\r\x1b[K{line}");
    // The status line is a courtesy: a terminal that is gone is noticed elsewhere.
    let _ = std::io::stderr().flush();
}

/// `pid 7`, `3 processes`.
pub(crate) fn subject(options: &SessionOptions, n_processes: usize) -> String {
    match options.targets.as_slice() {
        [only] if !options.children => format!("pid {}", only.pid()),
        _ if n_processes == 1 => "1 process".into(),
        _ => format!("{n_processes} processes"),
    }
}

fn header(sampler: &Sampler, options: &SessionOptions) -> Header {
    let uname = nix::sys::utsname::uname().ok();
    let text = |f: fn(&nix::sys::utsname::UtsName) -> &std::ffi::OsStr| {
        uname
            .as_ref()
            .map_or(String::new(), |u| f(u).to_string_lossy().into_owned())
    };
    Header {
        wcprof_version: env!("CARGO_PKG_VERSION").into(),
        engine: sampler.engine().name().into(),
        notes: sampler.notes().to_vec(),
        rate_hz: options.rate_hz,
        host: text(|u| u.nodename()),
        kernel: text(|u| u.release()),
        n_cpus: thread::available_parallelism().map_or(1, |n| n.get() as u32),
        started_unix_ns: SystemTime::now()
            .duration_since(UNIX_EPOCH)
            .map_or(0, |d| d.as_nanos() as u64),
    }
}

/// Names that match an include glob (all, without one) and no exclude glob.
fn thread_filter(include: &[String], exclude: &[String]) -> Result<Option<KeepThread>, Failure> {
    if include.is_empty() && exclude.is_empty() {
        return Ok(None);
    }
    let (include, exclude) = (globs(include)?, globs(exclude)?);
    let all = include.is_empty();
    Ok(Some(Box::new(move |name| {
        (all || include.is_match(name)) && !exclude.is_match(name)
    })))
}

pub(crate) fn globs(patterns: &[String]) -> Result<GlobSet, Failure> {
    let mut set = GlobSetBuilder::new();
    for pattern in patterns {
        let glob = Glob::new(pattern)
            .map_err(|e| Failure::new(Exit::Usage, e).hint("globs know *, ?, [a-z] and {a,b}"))?;
        set.add(glob);
    }
    set.build().map_err(|e| Failure::new(Exit::Usage, e))
}

/// `wcprof-PID-DATE.wct` in the current folder; a name that is not taken.
pub(crate) fn default_trace_path(pid: Pid) -> PathBuf {
    let now = SystemTime::now()
        .duration_since(UNIX_EPOCH)
        .map_or(0, |d| d.as_secs());
    let stem = format!("wcprof-{pid}-{now}");
    let plain = PathBuf::from(format!("{stem}.wct"));
    if !plain.exists() {
        return plain;
    }
    (2..)
        .map(|n| Path::new(&format!("{stem}-{n}.wct")).to_owned())
        .find(|path| !path.exists())
        .unwrap_or(plain)
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
