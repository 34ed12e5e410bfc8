//! How a recording ends when it does not end by its duration.

use std::fs::rename;
use std::io::{BufRead, BufReader, Read};
use std::process::{Child, Command, Stdio};
use std::time::{SystemTime, UNIX_EPOCH};

use nix::sys::signal::{Signal, kill};
use nix::sys::stat::Mode;
use nix::unistd::{Pid, mkfifo};
use tempfile::TempDir;
use wcprof_trace::Ending;
use wcprof_trace::model::Span;

use wcprof_testkit::{
    Attach, Engine, Recording, RemoteProcess, Variant, fixture, has_capability, interrupt,
    read_trace, skip, text, trace_in, wait_for_trace, wcprof, worker,
};

/// Record for ever, do something to the target or to wcprof after a second, and take what comes.
fn recording_that_ends(
    engine: Engine,
    target: &mut RemoteProcess,
    end: impl FnOnce(&mut RemoteProcess, &Child),
) -> Recording {
    let (child, folder) = Attach::new(engine, target.pid()).begin();
    end(target, &child);
    Recording::finish(child, folder)
}

#[track_caller]
fn assert_kept(recording: &Recording, reason: &str, comm: &str, function: &str) {
    let (trace, ending) = recording.trace();
    assert_eq!(ending, Ending::Clean);
    let stats = &trace.tables.stats;
    assert!(stats.complete);
    assert!(
        stats.end_reason.contains(reason),
        "ended by {:?}",
        stats.end_reason
    );
    // Names are saved also when the target is gone.
    let thread = recording.folded().thread(comm);
    let right = thread.chain(&[function]);
    assert!(
        right.total() > 800_000,
        "little time is kept:\n{}",
        thread.show()
    );
    // How long it runs, and waits for a CPU, when it is woken in the end is the machine's affair.
    let waits = thread.waits();
    assert!(right.waits().share_of(&waits) > 0.99, "{}", thread.show());
}

/// Record a second, give the target a command, and record two more: names are read once a second.
fn recording_around(engine: Engine, source: &'static str, command: &str) -> Recording {
    let mut target = RemoteProcess::start(&fixture(source, Variant::NoFramePointers));
    let recording = Attach::new(engine, target.pid()).run_around(|| {
        target.send_line(command);
        target.answer("MARK");
    });
    recording.assert_sound(engine);
    recording
}

pub(crate) fn renamed(engine: Engine) {
    let recording = recording_around(engine, "rename.c", "RENAME");
    let folded = recording.folded();
    let thread = folded.thread("new-name");
    let sleeping = thread.chain(&["named_sleep"]);
    assert!(sleeping.total() > 1_800_000, "{}", folded.show());
    let waits = thread.waits();
    assert!(
        sleeping.waits().share_of(&waits) > 0.99,
        "{}",
        thread.show()
    );
    assert_eq!(folded.thread("old-name").total(), 0);
}

pub(crate) fn number_again(engine: Engine) {
    if !has_capability() {
        return skip(
            "life::number_again",
            "needs root to choose a thread's number",
        );
    }
    let recording = recording_around(engine, "again.c", "AGAIN");
    let trace = recording.trace().0;
    let spans_of = |name: &'static str| {
        let threads = &trace.tables.threads;
        let is_its = move |span: &&Span| threads[span.thread.0 as usize].name() == name;
        trace.spans.iter().filter(is_its)
    };
    let end = spans_of("first").map(|span| span.end.0).max();
    let begin = spans_of("second").map(|span| span.start.0).min();
    let (end, begin) = end.zip(begin).expect("both were seen");
    // The kernel gives births in clock ticks in `/proc`.
    assert!(end <= begin + 20_000_000, "{end} {begin}");
    assert_apart(&recording);
}

/// Check that the one who had the number first, and the one who has it next, have stacks of their own alone.
fn assert_apart(recording: &Recording) {
    let folded = recording.folded();
    for (name, function, other) in [
        ("first", "first_wait", "second_wait"),
        ("second", "second_wait", "first_wait"),
    ] {
        let thread = folded.thread(name);
        let right = thread.chain(&[function]).total();
        assert!(right > 800_000, "{name}: {}", folded.show());
        assert_eq!(thread.chain(&[other]).total(), 0, "{}", thread.show());
    }
}

pub(crate) fn process_number_again(engine: Engine) {
    if !has_capability() {
        let test = "life::process_number_again";
        return skip(test, "needs root to choose a process's number");
    }
    let program = fixture("process_again.c", Variant::NoFramePointers);
    let mut target = RemoteProcess::start(&program);
    let attach = Attach::new(engine, target.pid()).flags(&["--children"]);
    let recording = attach.run_around(|| {
        target.send_line("AGAIN");
        target.answer("MARK");
    });
    recording.assert_sound(engine);
    let number = target.mark().get("child");
    let number = i32::try_from(number).expect("a number");
    let trace = recording.trace().0;
    let processes = trace.tables.processes.iter();
    let of_it = processes.filter(|process| process.pid.0 == number);
    let births: Vec<&str> = of_it.map(|process| &*process.birth).collect();
    assert!(births.len() == 2 && births[0] != births[1], "{births:?}");
    assert_apart(&recording);
}

pub(crate) fn ends_soon(engine: Engine) {
    // Opening an engine takes some tenths of a second: the target ends before, meanwhile, and after it.
    for tenths in 0..12 {
        let seconds = format!("{}.{}", tenths / 10, tenths % 10);
        let script = format!("echo READY; sleep {seconds}; :");
        let target = RemoteProcess::start_command(Command::new("sh").args(["-c", &script]));
        let (child, folder) = Attach::new(engine, target.pid()).seconds(5.0).spawn();
        let output = child.wait_with_output().expect("wcprof ends");
        let trace = trace_in(&folder);
        match output.status.code() {
            Some(0) => {
                let (trace, ending) = read_trace(&trace);
                assert_eq!(ending, Ending::Clean);
                assert!(!trace.spans.is_empty(), "{seconds} s: {output:?}");
            }
            Some(3) => assert!(!trace.exists(), "{seconds} s: {output:?}"),
            _ => panic!("{seconds} s: {output:?}"),
        }
    }
}

pub(crate) fn target_exits(engine: Engine) {
    let mut target = RemoteProcess::start(&fixture("eintr.c", Variant::NoFramePointers));
    let recording = recording_that_ends(engine, &mut target, |target, _| {
        assert!(target.close().success());
    });
    assert_kept(&recording, "exited", "waiter", "waiter");
}

pub(crate) fn target_execs(engine: Engine) {
    let mut target = RemoteProcess::start(&fixture("exec.c", Variant::NoFramePointers));
    let recording = recording_that_ends(engine, &mut target, |target, _| {
        target.send_line("EXEC");
        target.answer("EXECED");
    });
    assert_kept(&recording, "exec", "before-exec", "sleep_before_exec");
}

pub(crate) fn interrupted(engine: Engine) {
    let target = &mut RemoteProcess::start(&fixture("eintr.c", Variant::NoFramePointers));
    let recording = recording_that_ends(engine, target, |_, wcprof| interrupt(wcprof));
    recording.assert_sound(engine);
    assert_kept(&recording, "interrupted", "waiter", "waiter");
    let observed = recording.trace().0.tables.stats.duration.0;
    assert!(observed >= 1_000_000_000, "{observed} ns until Ctrl-C");
}

/// Check that wcprof reads what it recorded, whatever somebody else puts in its place meanwhile.
#[test]
fn exchanged() {
    let target = RemoteProcess::start(&fixture("eintr.c", Variant::NoFramePointers));
    let attach = Attach::new(Engine::ProcfsOnly, target.pid()).seconds(0.0);
    let (child, folder) = attach.spawn();
    wait_for_trace(&folder);
    let [trace, moved] = ["test.wct", "moved.wct"].map(|name| folder.path().join(name));
    rename(&trace, &moved).expect("it can be moved");
    mkfifo(&trace, Mode::S_IRWXU).expect("a pipe that nobody writes to");
    interrupt(&child);
    let output = child.wait_with_output().expect("wcprof ends");
    assert!(output.status.success(), "{output:?}");
    assert!(text(&output.stdout).contains("quality"), "{output:?}");
    let (trace, ending) = read_trace(&moved);
    assert_eq!(ending, Ending::Clean);
    assert!(trace.tables.names.symbols.is_some());
}

/// Check that a recording ends, and is kept, when wcprof has used the CPU time that `ulimit -St` permits.
#[test]
fn out_of_time() {
    let engine = Engine::ProcfsOnly;
    let target = &mut RemoteProcess::start(&fixture("eintr.c", Variant::NoFramePointers));
    let recording = recording_that_ends(engine, target, |_, wcprof| {
        kill(Pid::from_raw(worker(wcprof)), Signal::SIGXCPU).expect("wcprof runs");
    });
    assert_kept(&recording, "interrupted", "waiter", "waiter");
}

/// What a command that wcprof runs leaves: its exit code, and what wcprof said.
fn run_command(engine: Engine, flags: &[&str], command: &[&str]) -> (Option<i32>, TempDir, String) {
    let folder = tempfile::tempdir().expect("a folder");
    let output = wcprof()
        .args(["attach", "--engine", engine.name(), "--raw", "-o"])
        .arg(trace_in(&folder))
        .args(flags)
        .arg("--")
        .args(command)
        .output()
        .expect("wcprof starts");
    (
        output.status.code(),
        folder,
        text(&output.stderr).to_owned(),
    )
}

pub(crate) fn command(engine: Engine) {
    for (code, command) in [(7, "exit 7"), (143, "kill -TERM $$"), (0, "exec sleep 0.3")] {
        let (found, folder, said) = run_command(engine, &[], &["sh", "-c", command]);
        assert_eq!(found, Some(code), "{command}: {said}");
        if code == 0 {
            let (trace, ending) = read_trace(&trace_in(&folder));
            assert_eq!(ending, Ending::Clean);
            let last = trace.tables.processes.last().expect("a process");
            assert_eq!(last.comm, "sleep", "the program that the command became");
        }
    }
    let (found, _, said) = run_command(engine, &[], &["/nonexistent/command"]);
    assert_eq!(found, Some(127), "{said}");
    assert!(said.contains("/nonexistent/command"), "{said}");
    if has_capability() {
        // Its own rights, and no others; it begins with a second of the clock, not before the next one.
        let script = "[ $(id -un) = nobody ] && grep -q 'CapEff:.0*$' /proc/self/status && sleep 0.3 && exit 5";
        let flags = ["--user", "nobody", "--at", "/1s"];
        let now = SystemTime::now()
            .duration_since(UNIX_EPOCH)
            .expect("a time");
        let (found, folder, said) = run_command(engine, &flags, &["sh", "-c", script]);
        assert_eq!(found, Some(5), "{said}");
        let (trace, _) = read_trace(&trace_in(&folder));
        let began = trace.tables.header.started_unix_ns / 1_000_000_000;
        assert!(began > now.as_secs(), "{began} after {now:?}");
    } else {
        skip("a command of another user", "needs root");
    }
    // A signal of the user is the command's.
    let folder = tempfile::tempdir().expect("a folder");
    let script = "trap 'exit 9' TERM; echo ready; while :; do sleep 0.02; done";
    let mut child = wcprof()
        .args(["attach", "--engine", engine.name(), "--raw", "-o"])
        .arg(trace_in(&folder))
        .args(["--", "sh", "-c", script])
        .stdout(Stdio::piped())
        .spawn()
        .expect("wcprof starts");
    let mut line = String::new();
    let mut stdout = BufReader::new(child.stdout.take().expect("a pipe"));
    stdout.read_line(&mut line).expect("the command writes");
    assert_eq!(line, "ready\n");
    let pid = Pid::from_raw(child.id() as i32);
    kill(pid, Signal::SIGTERM).expect("wcprof is there");
    // What it prints of the recording.
    stdout.read_to_string(&mut line).expect("text");
    assert_eq!(child.wait().expect("wcprof ends").code(), Some(9));
}
