//! Runs the built wcprof.

use std::collections::BTreeMap;
use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::Duration;

use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use tempfile::TempDir;
use wcprof_trace::model::{Tables, Trace};
use wcprof_trace::{Ending, FILE_HEADER_BYTES, TraceReader};

use crate::build::program_folder;
use crate::folded::Folded;
use crate::machine::{self, Verdict};
use crate::proc::{children, wait_until};
use crate::remote::{Mark, RemoteProcess};
use crate::skip::skip;

/// The engine that observes.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub enum Engine {
    /// BPF task iterator and perf events.
    Bpf,
    /// `/proc` and perf events.
    Procfs,
    /// `/proc` alone.
    ProcfsOnly,
}

impl Engine {
    /// Its name on the command line and in a trace's header.
    pub fn name(self) -> &'static str {
        match self {
            Self::Bpf => "bpf",
            Self::Procfs => "procfs",
            Self::ProcfsOnly => "procfs-only",
        }
    }

    /// Whether it sees the stacks of running threads.
    pub fn sees_running(self) -> bool {
        self != Self::ProcfsOnly
    }
}

/// Path of the built program.
pub fn program() -> PathBuf {
    program_folder().join("wcprof")
}

/// A command that runs the built program, without standard input and without what the user's environment
/// would change.
pub fn wcprof() -> Command {
    alone(Command::new(program()))
}

fn alone(mut command: Command) -> Command {
    command.stdin(Stdio::null());
    // A login shell may set it: no test is to leave this machine.
    command.env_remove("DEBUGINFOD_URLS");
    command
}

/// Output as text; it must be UTF-8.
#[track_caller]
pub fn text(bytes: &[u8]) -> &str {
    std::str::from_utf8(bytes).expect("output is UTF-8")
}

/// The output of a subcommand on a trace; it must succeed.
#[track_caller]
pub fn printed(command: &str, trace: &Path, args: &[&str]) -> String {
    let output = wcprof()
        .arg(command)
        .arg(trace)
        .args(args)
        .output()
        .expect("wcprof starts");
    assert!(
        output.status.success(),
        "wcprof {command} {args:?} failed: {}",
        String::from_utf8_lossy(&output.stderr)
    );
    text(&output.stdout).to_owned()
}

/// Assert an exit code, that the message holds these words, and that nothing is on standard
/// output.
#[track_caller]
pub fn assert_fails(output: &Output, code: i32, words: &[&str]) {
    let message = text(&output.stderr);
    assert_eq!(output.status.code(), Some(code), "{message}");
    for word in words {
        assert!(message.contains(word), "no {word:?} in: {message}");
    }
    assert_eq!(text(&output.stdout), "", "standard output is for data");
    assert!(!message.contains("panicked"), "{message}");
}

/// A trace that can be read, and how it ends.
#[track_caller]
pub fn read_trace(path: &Path) -> (Trace, Ending) {
    TraceReader::open(path)
        .and_then(TraceReader::read_all)
        .unwrap_or_else(|e| panic!("trace can not be read: {e}"))
}

/// Start and end of a recording, nanoseconds since 1970.
fn stretch(tables: &Tables) -> (u64, u64) {
    let begin = tables.header.started_unix_ns;
    (begin, begin + tables.stats.duration.0)
}

/// A recording to be made.
#[derive(Clone, Debug)]
pub struct Attach {
    engine: Engine,
    pid: i32,
    others: Vec<i32>,
    seconds: f64,
    rate: u32,
    flags: &'static [&'static str],
    limit: Option<&'static str>,
}

/// A recording that was made.
#[derive(Debug)]
pub struct Recording {
    folder: TempDir,
    /// What `wcprof attach` printed.
    pub output: Output,
    /// Whether the machine stood still meanwhile.
    pub verdict: Verdict,
}

impl Attach {
    /// Three seconds at the default rate.
    pub fn new(engine: Engine, pid: i32) -> Self {
        Self {
            engine,
            pid,
            others: Vec::new(),
            seconds: 3.0,
            rate: 99,
            flags: &[],
            limit: None,
        }
    }

    /// Record this process, too.
    pub fn and(mut self, pid: i32) -> Self {
        self.others.push(pid);
        self
    }

    /// Record for this long; 0 until interrupted.
    pub fn seconds(self, seconds: f64) -> Self {
        Self { seconds, ..self }
    }

    /// Ticks a second.
    pub fn rate(self, rate: u32) -> Self {
        Self { rate, ..self }
    }

    /// Further flags of `attach`.
    pub fn flags(self, flags: &'static [&'static str]) -> Self {
        Self { flags, ..self }
    }

    /// Record under a limit of resources, as a flag of prlimit(1).
    pub fn limit(self, limit: &'static str) -> Self {
        let limit = Some(limit);
        Self { limit, ..self }
    }

    /// The command that records into `trace`. Its CPU budget is a whole core: a lowered rate would
    /// leave too few samples for the tolerances.
    pub fn command(&self, trace: &Path) -> Command {
        let mut command = wcprof();
        if let Some(limit) = self.limit {
            command = alone(Command::new("prlimit"));
            command.arg(limit).arg(program());
        }
        command
            .arg("attach")
            .arg(self.pid.to_string())
            .args(self.others.iter().map(ToString::to_string))
            .args(["--engine", self.engine.name(), "--max-cpu", "100"])
            .args(["-d", &self.seconds.to_string()])
            .args(["-r", &self.rate.to_string()])
            .args(self.flags)
            .arg("-o")
            .arg(trace);
        command
    }

    /// Begin to record; the trace goes into the folder that comes back.
    pub fn spawn(&self) -> (Child, TempDir) {
        machine::watch();
        let folder = tempfile::tempdir().expect("temporary folder");
        let child = self
            .command(&trace_in(&folder))
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .expect("wcprof starts");
        (child, folder)
    }

    /// Record, and assert success.
    #[track_caller]
    pub fn run(&self) -> Recording {
        let (child, folder) = self.spawn();
        Recording::finish(child, folder)
    }

    /// The same, with the target's counters at the start and at the end of the recorded interval: the time
    /// in which wcprof starts or writes its report is excluded.
    #[track_caller]
    pub fn run_marked(&self, target: &mut RemoteProcess) -> (Recording, Mark, Mark) {
        let over = AtomicBool::new(false);
        let mut marks = vec![target.mark()];
        let (child, folder) = self.spawn();
        let output = thread::scope(|scope| {
            scope.spawn(|| {
                loop {
                    // The last mark is after the end.
                    let last = over.load(Ordering::Relaxed);
                    marks.push(target.mark());
                    if last {
                        break;
                    }
                    thread::sleep(Duration::from_millis(20));
                }
            });
            let output = child.wait_with_output();
            over.store(true, Ordering::Relaxed);
            output
        });
        let recording = Recording::of(output, folder);
        let (begin, end) = recording.stretch();
        let [before, after] = [begin, end].map(|time| Mark::at(&marks, time));
        (recording, before, after)
    }

    /// Begin to record until interrupted; comes back after a second of the recording.
    #[track_caller]
    pub fn begin(self) -> (Child, TempDir) {
        let (child, folder) = self.seconds(0.0).spawn();
        wait_for_trace(&folder);
        wait_for_write(&folder);
        (child, folder)
    }

    /// Record a second, let something happen, and record a second of what is so then.
    #[track_caller]
    pub fn run_around(self, event: impl FnOnce()) -> Recording {
        let (child, folder) = self.begin();
        event();
        wait_for_a_second(&folder);
        interrupt(&child);
        Recording::finish(child, folder)
    }
}

/// Whether the machine stood still, so that no share can be checked; prints the skip.
#[must_use]
pub fn stood_still(verdict: &Verdict, test: &str, engine: Engine) -> bool {
    let stood_still = verdict.stood_still();
    if stood_still {
        skip(&format!("{test} ({})", engine.name()), &verdict.to_string());
    }
    stood_still
}

fn trace_len(folder: &TempDir) -> u64 {
    fs::metadata(trace_in(folder)).map_or(0, |m| m.len())
}

/// Where a recording of a test puts its trace.
pub fn trace_in(folder: &TempDir) -> PathBuf {
    folder.path().join("test.wct")
}

/// The process that does the work: wcprof's child, which it starts first of all.
#[track_caller]
pub fn worker(wcprof: &Child) -> i32 {
    let front = wcprof.id() as i32;
    wait_until("wcprof has no child", || children(front).first().copied())
}

/// `kill -9` of wcprof: of the process that does the work, which can not prepare for it.
#[track_caller]
pub fn kill_worker(wcprof: &mut Child) {
    let worker = Pid::from_raw(worker(wcprof));
    kill(worker, Signal::SIGKILL).expect("wcprof runs");
    wcprof.wait().expect("wcprof can be waited for");
}

/// End a recording as Ctrl-C does.
#[track_caller]
pub fn interrupt(wcprof: &Child) {
    kill(Pid::from_raw(wcprof.id() as i32), Signal::SIGINT).expect("wcprof runs");
}

/// Wait until sampling has started: everything from then on is recorded.
#[track_caller]
pub fn wait_for_trace(folder: &TempDir) {
    wait_for_more(folder, FILE_HEADER_BYTES as u64);
}

/// Wait for the next write of the trace. Writes are a second of the recording apart.
#[track_caller]
pub fn wait_for_write(folder: &TempDir) {
    wait_for_more(folder, trace_len(folder));
}

/// Wait until a second is recorded of what has begun now.
#[track_caller]
pub fn wait_for_a_second(folder: &TempDir) {
    wait_for_write(folder);
    wait_for_write(folder);
}

/// Wait until the trace is longer than this.
#[track_caller]
fn wait_for_more(folder: &TempDir, than: u64) {
    wait_until("no trace is written", || {
        (trace_len(folder) > than).then_some(())
    });
}

impl Recording {
    /// Wait for the end of a recording, and assert success.
    #[track_caller]
    pub fn finish(child: Child, folder: TempDir) -> Self {
        Self::of(child.wait_with_output(), folder)
    }

    #[track_caller]
    fn of(output: io::Result<Output>, folder: TempDir) -> Self {
        let output = output.expect("wcprof can be waited for");
        assert!(
            output.status.success(),
            "wcprof attach failed with {:?}: {}",
            output.status,
            String::from_utf8_lossy(&output.stderr)
        );
        let tables = read_trace(&trace_in(&folder)).0.tables;
        let stats = &tables.stats;
        let missed =
            stats.losses.n_missed as f64 / (stats.n_ticks + stats.losses.n_missed).max(1) as f64;
        let (begin, end) = stretch(&tables);
        Self {
            folder,
            output,
            verdict: Verdict::on(begin, end, missed),
        }
    }

    /// Whether the machine stood still, so that no share can be checked; prints the skip.
    #[must_use]
    pub fn stood_still(&self, test: &str, engine: Engine) -> bool {
        stood_still(&self.verdict, test, engine)
    }

    /// The trace file.
    pub fn path(&self) -> PathBuf {
        trace_in(&self.folder)
    }

    /// The whole trace.
    #[track_caller]
    pub fn trace(&self) -> (Trace, Ending) {
        read_trace(&self.path())
    }

    /// The messages of `wcprof attach` on standard error.
    pub fn said(&self) -> &str {
        text(&self.output.stderr)
    }

    /// Begin and end, nanoseconds since 1970.
    #[track_caller]
    pub fn stretch(&self) -> (u64, u64) {
        stretch(&self.trace().0.tables)
    }

    /// What `wcprof report` prints with these arguments.
    #[track_caller]
    pub fn report(&self, args: &[&str]) -> String {
        printed("report", &self.path(), args)
    }

    /// The same with the kernel's functions.
    #[track_caller]
    pub fn folded_with_kernel(&self) -> Folded {
        Folded::parse(&self.report(&[
            "--format", "folded", "--states", "--idle", "show", "--kernel",
        ]))
    }

    /// Everything, per thread.
    #[track_caller]
    pub fn folded(&self) -> Folded {
        Folded::parse(&self.report(&[
            "--format",
            "folded",
            "--states",
            "--idle",
            "show",
            "--by",
            "thread",
            "--min-percent",
            "0",
        ]))
    }

    /// Assert what holds for every recording of a fixture: it is complete, by the engine that was
    /// asked for, and the weights of each thread add up to the time it was observed.
    #[track_caller]
    pub fn assert_sound(&self, engine: Engine) {
        let (trace, ending) = self.trace();
        assert_eq!(ending, Ending::Clean);
        let tables = &trace.tables;
        assert_eq!(tables.header.engine, engine.name());
        assert!(tables.stats.complete);
        let sums = assert_weights(&trace);
        let folded = self.folded();
        // A process that runs another program can have the name of the next one at its last tick.
        let mut groups: BTreeMap<String, Vec<u64>> = BTreeMap::new();
        for (thread, sum) in tables.threads.iter().zip(sums) {
            // Time of threads that exited unseen is not of a thread.
            if thread.tid.0 != 0 {
                let group = format!("{}/{}", thread.name(), thread.tid);
                groups.entry(group).or_default().push(sum);
            }
        }
        for (group, sums) in groups {
            let lines = folded.lines.iter().filter(|l| l.group == group);
            let shown: u64 = lines.map(|l| l.weight).sum();
            let sum: u64 = sums.iter().sum();
            assert!(
                shown.abs_diff(sum / 1000) <= sums.len() as u64,
                "{group}: folded sums to {shown} us, the trace to {sum} ns"
            );
        }
    }
}

/// Assert that the weights of each thread add up to the time it was observed; gives the sums.
#[track_caller]
pub fn assert_weights(trace: &Trace) -> Vec<u64> {
    let threads = &trace.tables.threads;
    let mut sums = vec![0_u64; threads.len()];
    for span in &trace.spans {
        assert!(span.weight <= span.end.0 - span.start.0, "{span:?}");
        sums[span.thread.0 as usize] += span.weight;
    }
    for (thread, &sum) in threads.iter().zip(&sums) {
        let observed = thread.end.0 - thread.start.0;
        // Threads that exited unseen were not observed: their time is the process's CPU clock.
        if thread.tid.0 != 0 {
            assert!(
                sum.abs_diff(observed) as f64 <= 0.001 * observed as f64 + 1000.0,
                "{}/{}: weights sum to {sum} ns, observed for {observed} ns",
                thread.name(),
                thread.tid
            );
        }
    }
    sums
}
