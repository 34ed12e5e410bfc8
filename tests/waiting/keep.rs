//! The flight recorder: what it writes, when, and how long it is.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::thread;
use std::time::Duration;

use nix::sys::signal::Signal;
use wcprof_trace::model::Trace;
use wcprof_trace::{Ending, TraceReader};

use crate::input::TinyDisk;
use crate::said::Said;
use wcprof_testkit::{
    Attach, Engine, Folded, RemoteProcess, Variant, assert_weights, children, fixture,
    has_capability, skip, text, wait_until, wcprof,
};

/// Between two ticks, ns.
const TICK_NS: u64 = 1_000_000_000 / 99;

/// Begin to record into numbered files beside `trace`, and wait until it runs.
fn start(attach: &Attach, trace: &Path, flags: &[&str]) -> Said {
    run(attach.command(trace).args(flags))
}

/// A flight recorder that runs.
fn run(command: &mut Command) -> Said {
    let flight = Said::by(command);
    flight.line("Ctrl-C writes them and ends");
    flight
}

#[track_caller]
fn read(path: &Path) -> Trace {
    let (trace, ending) = TraceReader::open(path)
        .and_then(TraceReader::read_all)
        .unwrap_or_else(|e| panic!("{}: {e}", path.display()));
    assert_eq!(ending, Ending::Clean);
    assert!(trace.tables.stats.complete);
    assert_weights(&trace);
    trace
}

fn folded(path: &Path) -> Folded {
    let output = wcprof()
        .arg("report")
        .arg(path)
        .args(["--format", "folded", "--states", "--idle", "show"])
        .args(["--by", "thread", "--min-percent", "0"])
        .output()
        .expect("wcprof starts");
    assert!(output.status.success(), "{output:?}");
    Folded::parse(text(&output.stdout))
}

fn files(folder: &Path) -> Vec<String> {
    let entries = fs::read_dir(folder).expect("folder is there");
    let mut names: Vec<String> = entries
        .map(|e| {
            e.expect("an entry")
                .file_name()
                .to_string_lossy()
                .into_owned()
        })
        .collect();
    names.sort();
    names
}

pub(crate) fn signals(engine: Engine) {
    let target = RemoteProcess::start(&fixture("eintr.c", Variant::NoFramePointers));
    let folder = tempfile::tempdir().expect("temporary folder");
    let trace = folder.path().join("a.wct");
    let attach = Attach::new(engine, target.pid()).seconds(0.0);
    let flight = start(&attach, &trace, &["--keep", "2s"]);
    let path = |n: u32| -> PathBuf { folder.path().join(format!("a-{n}.wct")) };
    let mut traces = Vec::new();
    for n in [1, 2] {
        // Until then more than 2 s are recorded, however late it began, since it says its length.
        while traces.len() < n {
            flight.signal(Signal::SIGUSR1);
            let line = flight.line("wrote");
            let file = line
                .split(": ")
                .nth(1)
                .and_then(|l| l.strip_prefix("wrote "));
            let file = PathBuf::from(file.expect("a path"));
            let trace = read(&file);
            assert_eq!(trace.tables.stats.end_reason, "SIGUSR1");
            if trace.tables.stats.duration.0 >= 1_999_999_000 {
                traces.push(trace);
            } else {
                fs::remove_file(&file).expect("the file is there");
            }
            thread::sleep(Duration::from_millis(700));
        }
    }
    assert_eq!(flight.end(), Some(0));
    let names = files(folder.path());
    assert_eq!(names.len(), 3, "two by signals and the last: {names:?}");
    let last = names
        .iter()
        .filter_map(|name| name.strip_prefix("a-")?.strip_suffix(".wct")?.parse().ok())
        .max()
        .expect("there are files");
    let last_trace = read(&path(last));
    assert_eq!(last_trace.tables.stats.end_reason, "interrupted");
    traces.push(last_trace);
    let mut before = 0;
    for trace in &traces {
        let tables = &trace.tables;
        // Times are kept in whole microseconds.
        let length = tables.stats.duration.0;
        assert!(
            length.abs_diff(2_000_000_000) <= 1_000,
            "{length} ns are kept"
        );
        assert!(tables.header.started_unix_ns > before);
        before = tables.header.started_unix_ns;
        let waiter = tables.threads.iter().find(|t| t.name() == "waiter");
        let waiter = waiter.expect("the thread is there");
        // It never runs, and its time lacks nothing at either end.
        assert!(waiter.start.0 < 20_000_000, "{waiter:?}");
        let missing = length.saturating_sub(waiter.end.0);
        assert!(missing <= TICK_NS, "{missing} ns of {waiter:?}");
        let n_ticks = tables.stats.n_ticks;
        assert!((1..=210).contains(&n_ticks), "{n_ticks} ticks in 2 s");
    }
    let thread = folded(&path(last)).thread("waiter").waits();
    assert!(
        thread.chain(&["waiter"]).share_of(&thread) > 0.99,
        "names are saved: {}",
        thread.show()
    );
}

/// Also when SIGHUP comes twice, as at the end of a session, the file has names.
pub(crate) fn last_signals(engine: Engine) {
    let target = RemoteProcess::start(&fixture("eintr.c", Variant::NoFramePointers));
    let folder = tempfile::tempdir().expect("temporary folder");
    let attach = Attach::new(engine, target.pid()).seconds(0.0);
    for (n, signal) in [Signal::SIGHUP, Signal::SIGQUIT, Signal::SIGTERM]
        .into_iter()
        .enumerate()
    {
        let base = folder.path().join(format!("{n}.wct"));
        let flight = start(&attach, &base, &["--keep", "2s"]);
        flight.signal(Signal::SIGUSR1);
        flight.line("wrote");
        if signal == Signal::SIGHUP {
            flight.signal(signal);
        }
        assert_eq!(flight.end_by(signal), Some(0), "{signal}");
        let last = folder.path().join(format!("{n}-2.wct"));
        let trace = read(&last);
        assert_eq!(trace.tables.stats.end_reason, "interrupted");
        assert!(trace.tables.names.symbols.is_some(), "names are saved");
    }
}

/// Check that a recorder which was started with SIGHUP ignored (`nohup`) outlives its session.
#[test]
fn nohup() {
    let target = RemoteProcess::start(&fixture("eintr.c", Variant::NoFramePointers));
    let folder = tempfile::tempdir().expect("temporary folder");
    let attach = Attach::new(Engine::ProcfsOnly, target.pid()).seconds(0.0);
    let wcprof = attach.command(&folder.path().join("t.wct"));
    let mut command = Command::new("sh");
    command
        .args(["-c", "trap '' HUP; exec \"$@\"", "sh"])
        .arg(wcprof.get_program())
        .args(wcprof.get_args())
        .args(["--keep", "2s"]);
    let flight = run(&mut command);
    flight.signal(Signal::SIGHUP);
    // Had it ended, there would be no second file of this.
    for _ in 0..2 {
        flight.signal(Signal::SIGUSR1);
        let line = flight.line("wrote");
        assert!(line.contains("(SIGUSR1)"), "{line}");
    }
    assert_eq!(flight.end(), Some(0));
    assert_eq!(files(folder.path()).len(), 3);
}

pub(crate) fn trigger(engine: Engine) {
    let mut target = RemoteProcess::start(&fixture("contend.c", Variant::NoFramePointers));
    let folder = tempfile::tempdir().expect("temporary folder");
    let trace = folder.path().join("t.wct");
    let attach = Attach::new(engine, target.pid()).seconds(0.0);
    let lock = "p50 lock of c-want-N > 50% over 2s";
    let function = "func:want_lock of all > 30% over 2s";
    let never = "disk of all > 50% over 2s";
    // On a slow machine names, and with them the lock, are known seconds later.
    let flags = [
        "--keep",
        "60s",
        "--trigger",
        lock,
        "--trigger",
        function,
        "--trigger",
        never,
    ];
    let flight = start(&attach, &trace, &flags);
    // Some time without contention: it is not enough that a thread has a name that fits.
    thread::sleep(Duration::from_millis(2500));
    assert_eq!(files(folder.path()), [""; 0]);
    target.send_line("CONTEND");
    target.answer("MARK");
    let line = flight.line("wrote");
    assert!(
        line.contains("trigger: ") && line.contains("over 2s"),
        "{line}"
    );
    target.send_line("CALM");
    target.answer("MARK");
    // Both conditions hold for up to two seconds more: it is one incident.
    thread::sleep(Duration::from_millis(3500));
    assert_eq!(files(folder.path()), ["t-1.wct"]);
    assert_eq!(flight.end(), Some(0));
    assert_eq!(files(folder.path()), ["t-1.wct", "t-2.wct"]);

    let first = folder.path().join("t-1.wct");
    let trace = read(&first);
    let reason = &trace.tables.stats.end_reason;
    assert!(
        reason.contains("lock of c-want-N") || reason.contains("func:want_lock"),
        "{reason}"
    );
    let folded = folded(&first);
    for name in ["c-want-0", "c-want-1"] {
        let thread = folded.thread(name);
        let wanting = thread.chain(&["want_lock"]);
        assert!(
            wanting.total() > 1_000_000,
            "the incident: {}",
            thread.show()
        );
        let calm = thread.chain(&["calm_sleep"]);
        assert!(
            calm.total() > 1_000_000,
            "and what was before: {}",
            thread.show()
        );
    }
    let output = wcprof()
        .args(["diff"])
        .args([first, folder.path().join("t-2.wct")])
        .output()
        .expect("wcprof starts");
    assert!(output.status.success(), "{output:?}");
}

/// What only the running machine can name: JIT code by its perf map and its jitdump, and the vdso. The
/// conditions that must never hold come first: one that holds at the same look is the reason that is
/// given.
pub(crate) fn local_names(engine: Engine) {
    let folder = tempfile::tempdir().expect("temporary folder");
    let program = fixture("jit.c", Variant::FramePointers);
    let mut target = RemoteProcess::start_command(Command::new(program).arg(folder.path()));
    let conditions = [
        "func:jit_old of j-map > 0% over 2s",
        "func:jit_mapped of j-dump > 0% over 2s",
        "func:jit_other* of all > 0% over 2s",
        "func:jit_mapped of j-map > 90% over 2s",
        "func:jit_mapped(int) of j-map > 90% over 2s",
    ];
    let (trace, reason) = triggered(engine, target.pid(), folder.path(), &conditions);
    let part = "trigger: func:jit_mapped of j-map > 90% over 2s (it is ";
    assert!(reason.starts_with(part), "{reason}");
    let mapped = folded(&trace).thread("j-map");
    let right = mapped.chain(&["jit_mapped(int)", "sleep_long"]);
    assert!(right.share_of(&mapped) > 0.99, "{}", mapped.show());

    // Either has the address of the other a moment later.
    let conditions = [
        "func:jit_third of j-dump > 0% over 2s",
        "func:jit_[fs]* of j-dump > 50% over 2s",
    ];
    let (_, reason) = triggered(engine, target.pid(), folder.path(), &conditions);
    assert!(reason.contains("func:jit_[fs]* of j-dump"), "{reason}");
    target.send_line("END");
    target.answer("MARK");

    if !engine.sees_running() {
        return;
    }
    let target = RemoteProcess::start(&fixture("vdso.c", Variant::NoFramePointers));
    let conditions = [
        "func:tim of v-clock > 0% over 2s",
        "func:time of vdso-* > 0% over 2s",
        "func:time of v-clock > 1% over 2s",
    ];
    let (trace, reason) = triggered(engine, target.pid(), folder.path(), &conditions);
    let part = "func:time of v-clock > 1% over 2s";
    assert!(reason.contains(part), "{reason}");
    let clock = folded(&trace).thread("v-clock");
    let named = clock.chain(&["ask_for_ever", "time"]);
    assert!(named.total() > 0, "{}", clock.show());
}

/// The first file that a trigger writes, and why it was written.
#[track_caller]
fn triggered(engine: Engine, pid: i32, folder: &Path, conditions: &[&str]) -> (PathBuf, String) {
    let trace = folder.join("n.wct");
    let attach = Attach::new(engine, pid).seconds(0.0);
    let mut flags = vec!["--keep", "10s"];
    flags.extend(conditions.iter().flat_map(|text| ["--trigger", text]));
    let flight = start(&attach, &trace, &flags);
    let line = flight.line("wrote");
    // Who looked up files of the target: each of its processes would have one.
    let worker = flight.worker();
    wait_until("a child of wcprof stays", || {
        children(worker).is_empty().then_some(())
    });
    assert_eq!(flight.end(), Some(0));
    let path = line
        .split(": ")
        .nth(1)
        .and_then(|l| l.strip_prefix("wrote "));
    let path = PathBuf::from(path.expect("a path"));
    let reason = read(&path).tables.stats.end_reason;
    (path, reason)
}

/// Check that a file which does not fit on the disk is removed and said, that recording goes on, and
/// that the exit code tells.
#[test]
fn disk_full() {
    if !has_capability() {
        return skip("keep: disk_full", "needs root to mount a tmpfs");
    }
    let disk = TinyDisk::mount(0);
    let folder = disk.0.path();
    let target = RemoteProcess::start(&fixture("contend.c", Variant::NoFramePointers));
    let attach = Attach::new(Engine::ProcfsOnly, target.pid()).seconds(0.0);
    let before = files(folder);
    let flight = start(&attach, &folder.join("t.wct"), &["--keep", "5s"]);
    flight.signal(Signal::SIGUSR1);
    let line = flight.line("No space left");
    assert!(line.contains("failed to write"), "{line}");
    flight.line("recording goes on");
    assert_eq!(files(folder), before);
    for name in &before {
        fs::remove_file(folder.join(name)).expect("room can be made");
    }
    flight.signal(Signal::SIGUSR1);
    flight.line("wrote");
    assert_eq!(flight.end(), Some(1));
    let after = files(folder);
    assert_eq!(after.len(), 2, "{after:?}");
    for name in after {
        read(&folder.join(name));
    }
}

/// Check that a ring whose memory is used up drops its oldest part: by what it says of its bytes they
/// stay within the limit, however much was recorded; the files are whole, and say why they are short.
#[test]
fn memory_limit() {
    const MEGABYTES: f64 = 8.0;
    let target = RemoteProcess::start(&fixture("many_stacks.c", Variant::NoFramePointers));
    let folder = tempfile::tempdir().expect("temporary folder");
    let attach = Attach::new(Engine::ProcfsOnly, target.pid()).seconds(0.0);
    let flags = ["--keep", "1h", "--keep-memory", "8"];
    let flight = start(&attach, &folder.path().join("t.wct"), &flags);
    // What is said of a file after its name, that something was dropped and how often, comes before the
    // name of the next one.
    let mut last = 0;
    let mut n_said = 0;
    while n_said < 3 {
        flight.signal(Signal::SIGUSR1);
        loop {
            let line = flight.next_line();
            if line.contains("wrote") {
                break;
            }
            let Some((_, counts)) = line.split_once("since --keep-memory (") else {
                continue;
            };
            let numbers: Vec<f64> = counts
                .split_whitespace()
                .filter_map(|word| word.parse().ok())
                .collect();
            let [used, limit, n] = numbers.as_slice() else {
                panic!("{line}");
            };
            assert_eq!(*limit, MEGABYTES, "{line}");
            assert!(*used > 1.0 && *used <= MEGABYTES, "{line}");
            if *n as u64 > last {
                n_said += 1;
                last = *n as u64;
            }
        }
    }
    assert_eq!(flight.end(), Some(0));
    assert!(last >= 3);
    let names = files(folder.path());
    let number = |name: &String| -> u32 {
        let number = name.strip_prefix("t-").and_then(|n| n.strip_suffix(".wct"));
        number.and_then(|n| n.parse().ok()).expect("a number")
    };
    let newest = names.iter().max_by_key(|name| number(name));
    let trace = read(&folder.path().join(newest.expect("files")));
    let notes = &trace.tables.header.notes;
    let is_said = |note: &String| note.contains("since its memory (8 MB) or a table was full");
    assert!(notes.iter().any(is_said), "{notes:?}");
}

/// Check what is said of folders and conditions that cannot work, before anything is recorded.
#[test]
fn refused() {
    let target = RemoteProcess::start(&fixture("eintr.c", Variant::NoFramePointers));
    let pid = target.pid().to_string();
    let fails = |args: &[&str], code: i32, parts: &[&str]| {
        let output = wcprof()
            .args(["attach", &pid, "--engine", "procfs-only"])
            .args(args)
            .output()
            .expect("wcprof starts");
        let message = text(&output.stderr);
        assert_eq!(output.status.code(), Some(code), "{message}");
        for part in parts {
            assert!(message.contains(part), "{part}: {message}");
        }
    };
    let none = ["--keep", "5s", "-o", "/proc/nothing/t.wct"];
    fails(&none, 1, &["/proc/nothing/t-1.wct", "failed to create"]);
    fails(
        &["--keep", "5s", "--trigger", "lokc of all > 5% over 2s"],
        2,
        &["column 1", "unknown state", "on-cpu"],
    );
    fails(
        &["--keep", "5s", "--trigger", "lock of all > 5% over 6s"],
        2,
        &["longer time than --keep", "hint: keep more"],
    );
    fails(&["--trigger", "lock of all > 5% over 2s"], 2, &["--keep"]);
    fails(&["--keep", "1x"], 2, &["unknown unit; h, m, s, ms"]);
}
