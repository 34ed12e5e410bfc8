//! Bad input and bad circumstances: a clear error, advice, the documented exit code.

use std::fs;
use std::io::{Read, Write};
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::process::{Child, Command, Output, Stdio};

use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use tempfile::TempDir;
use wcprof_trace::model::Trace;
use wcprof_trace::{Ending, TraceReader};

use crate::said::Said;
use wcprof_testkit::{
    Attach, Engine, Recording, RemoteProcess, Variant, assert_fails, build_tiny32, copy_program,
    fixture, has_capability, interrupt, kill_worker, output_folder, read_trace, skip, text,
    wait_for_trace, wait_until, wcprof, worker,
};

const FAILURE: i32 = 1;
const USAGE: i32 = 2;
const NO_TARGET: i32 = 3;
const NOT_PERMITTED: i32 = 4;

/// Run to the end in an empty folder.
fn run(args: &[&str]) -> Output {
    let folder = tempfile::tempdir().expect("temporary folder");
    wcprof()
        .args(args)
        .current_dir(folder.path())
        .output()
        .expect("wcprof starts")
}

/// A pid that no process has: one that just ended and was waited for.
fn free_pid() -> i32 {
    let mut child = Command::new("true").spawn().expect("true runs");
    let pid = child.id() as i32;
    child.wait().expect("true ends");
    pid
}

/// A short recording of a quiet target.
fn small_recording() -> Recording {
    let target = RemoteProcess::start(&fixture("eintr.c", Variant::NoFramePointers));
    Attach::new(Engine::ProcfsOnly, target.pid())
        .seconds(1.2)
        .run()
}

/// Check a pid that does not exist, for each command that takes one.
#[test]
fn no_such_pid() {
    let pid = free_pid().to_string();
    let output = run(&["attach", &pid, "-d", "1"]);
    assert_fails(&output, NO_TARGET, &[&pid, "hint:"]);
    let output = run(&["check", &pid]);
    assert_eq!(output.status.code(), Some(NO_TARGET));
    for pid in ["0", "-5", "x", "99999999999"] {
        let output = run(&["attach", pid, "-d", "1"]);
        assert!(
            matches!(output.status.code(), Some(USAGE | NO_TARGET)),
            "{pid}: {output:?}"
        );
    }
}

/// Check that a kernel thread is refused with a better tool's name.
#[test]
fn kernel_thread() {
    let kernel = fs::read_to_string("/proc/2/comm").is_ok_and(|comm| comm == "kthreadd\n");
    if !kernel {
        return skip(
            "kernel_thread",
            "kthreadd is not visible in this pid namespace",
        );
    }
    let output = run(&["attach", "2", "-d", "1"]);
    assert_fails(&output, NO_TARGET, &["kernel thread", "perf"]);
}

/// Check that a 32-bit target is refused.
#[test]
fn thirty_two_bit() {
    let program = match build_tiny32() {
        Ok(program) => program,
        Err(reason) => return skip("thirty_two_bit", reason.lines().next().unwrap_or_default()),
    };
    let target = RemoteProcess::start(&program);
    let output = run(&["attach", &target.pid().to_string(), "-d", "1"]);
    assert_fails(&output, NO_TARGET, &["32-bit"]);
}

/// Check that a pid which exists only inside another pid namespace is answered with the host's.
#[test]
fn pid_of_another_namespace() {
    if !has_capability() {
        return skip("pid_of_another_namespace", "needs root to unshare");
    }
    // A second process in the namespace gets pid 2 there, which a kernel thread has out here; so
    // push the counter to a pid that is free out here.
    let wanted = free_pid();
    let target = RemoteProcess::start_command(
        Command::new("unshare")
            .args([
                "--pid",
                "--fork",
                "--mount-proc",
                "--kill-child",
                "sh",
                "-ec",
            ])
            .arg("echo $(($0 - 1)) > /proc/sys/kernel/ns_last_pid; \"$1\"; true")
            .arg(wanted.to_string())
            .arg(fixture("eintr.c", Variant::NoFramePointers)),
    );
    let inside = target.keys["pid"].to_string();
    if Path::new("/proc").join(&inside).exists() {
        return skip(
            "pid_of_another_namespace",
            "the pid was taken out here meanwhile",
        );
    }
    let host = wcprof_testkit::children(wcprof_testkit::children(target.pid())[0])[0].to_string();
    let output = run(&["attach", &inside, "-d", "1"]);
    assert_fails(&output, NO_TARGET, &[&inside, &host]);
}

/// Check that rate, duration and CPU budget out of range are refused with the range.
#[test]
fn out_of_range() {
    for (flag, value, words) in [
        ("-r", "0", &["1", "1000"][..]),
        ("-r", "100000", &["1", "1000"]),
        ("-r", "x", &["-r"]),
        ("-d", "-1", &["-d"]),
        ("-d", "nan", &["not a time"]),
        ("-d", "25h", &["24h"]),
        ("--max-cpu", "0", &["1", "100"]),
        ("--engine", "gdb", &["bpf", "procfs", "procfs-only"]),
    ] {
        let output = run(&["attach", "1", &format!("{flag}={value}")]);
        let code = output.status.code();
        assert_eq!(code, Some(USAGE), "{flag} {value}: {output:?}");
        for word in words {
            assert!(
                text(&output.stderr).contains(word),
                "{flag} {value}: {output:?}"
            );
        }
    }
}

/// Check that an output that can not be written is refused before anything is recorded.
#[test]
fn output_not_writable() {
    let target = RemoteProcess::start(&fixture("eintr.c", Variant::NoFramePointers));
    let folder = tempfile::tempdir().expect("temporary folder");
    let missing = folder.path().join("missing/t.wct");
    for path in [missing.as_path(), folder.path(), Path::new("/dev/null")] {
        // It would not end otherwise.
        let output = Attach::new(Engine::ProcfsOnly, target.pid())
            .seconds(0.0)
            .command(path)
            .output()
            .expect("wcprof starts");
        assert_fails(
            &output,
            FAILURE,
            &["failed to", &path.display().to_string()],
        );
    }
}

/// Check that a trace is private to its owner.
#[test]
fn trace_mode() {
    let recording = small_recording();
    let mode = fs::metadata(recording.path())
        .expect("trace exists")
        .permissions()
        .mode();
    assert_eq!(mode & 0o777, 0o600);
}

/// A tmpfs of 1 MiB with little room left, mounted while this lives.
pub(crate) struct TinyDisk(pub(crate) TempDir);

impl TinyDisk {
    pub(crate) fn mount(room: usize) -> Self {
        let disk = Self(tempfile::tempdir().expect("temporary folder"));
        let status = Command::new("mount")
            .args(["-t", "tmpfs", "-o", "size=1m", "none"])
            .arg(disk.0.path())
            .status();
        assert!(status.is_ok_and(|s| s.success()), "tmpfs can be mounted");
        fs::write(disk.0.path().join("filler"), vec![1; (1 << 20) - room]).expect("it fits");
        disk
    }
}

impl Drop for TinyDisk {
    fn drop(&mut self) {
        // Lazily, so that a file held open does not keep it.
        let _ = Command::new("umount").arg("-l").arg(self.0.path()).status();
    }
}

/// Check that a full disk ends the recording, loudly, and that what was written is readable.
#[test]
fn disk_full() {
    if !has_capability() {
        return skip("disk_full", "needs root to mount a tmpfs");
    }
    let disk = TinyDisk::mount(200 * 1024);
    let trace = disk.0.path().join("t.wct");
    let target = RemoteProcess::start(&fixture("split_sleep.c", Variant::NoFramePointers));
    let output = Attach::new(Engine::ProcfsOnly, target.pid())
        .seconds(0.0)
        .rate(997)
        .command(&trace)
        .output()
        .expect("wcprof starts");
    let message = text(&output.stderr);
    assert!(message.contains("No space left"), "{message}");
    assert!(message.contains("kept"), "{message}");
    assert!(!message.contains("panicked"), "{message}");
    let (trace, ending) = read_trace(&trace);
    assert_ne!(ending, Ending::Clean);
    assert!(!trace.spans.is_empty());
}

/// Check that `kill -9` leaves a trace that `report` reads, saying that it is not whole.
#[test]
fn killed_while_recording() {
    let target = RemoteProcess::start(&fixture("eintr.c", Variant::NoFramePointers));
    let (mut child, folder) = Attach::new(Engine::ProcfsOnly, target.pid())
        .seconds(0.0)
        .spawn();
    let trace = folder.path().join("test.wct");
    wait_until("nothing is saved", || {
        let read = TraceReader::open(&trace).and_then(TraceReader::read_all);
        let of_waiter = |trace: &Trace| {
            let mut threads = trace.spans.iter().map(|span| span.thread.0 as usize);
            threads.any(|thread| trace.tables.threads[thread].name() == "waiter")
        };
        read.is_ok_and(|(trace, _)| of_waiter(&trace)).then_some(())
    });
    kill_worker(&mut child);
    let trace = trace.display().to_string();
    let output = run(&["report", &trace, "--format", "folded", "--idle", "show"]);
    assert!(output.status.success(), "{output:?}");
    assert!(text(&output.stdout).contains("waiter;"));
    assert!(
        text(&output.stderr).contains("did not end cleanly"),
        "{output:?}"
    );
}

/// A recording that has begun, and the process that does its work.
fn recording(target: &RemoteProcess) -> (Child, i32, TempDir) {
    let (child, folder) = Attach::new(Engine::ProcfsOnly, target.pid())
        .seconds(0.0)
        .spawn();
    let worker = worker(&child);
    wait_for_trace(&folder);
    (child, worker, folder)
}

/// Waits until the process that does the work has ended.
fn wait_for_end(worker: i32) {
    wait_until("the process that does the work lives", || {
        (!Path::new(&format!("/proc/{worker}")).exists()).then_some(())
    });
}

/// Check that `kill -9` of the process that the user started ends the recording, and that the trace is complete.
#[test]
fn front_killed() {
    let target = RemoteProcess::start(&fixture("eintr.c", Variant::NoFramePointers));
    let (mut child, worker, folder) = recording(&target);
    child.kill().expect("wcprof runs");
    child.wait().expect("wcprof can be waited for");
    wait_for_end(worker);
    let (_, ending) = read_trace(&folder.path().join("test.wct"));
    assert_eq!(ending, Ending::Clean);
}

/// Check that the third Ctrl-C ends a wcprof whose process that does the work is stopped, and that what it wrote is there.
#[test]
fn stopped_child() {
    let target = RemoteProcess::start(&fixture("eintr.c", Variant::NoFramePointers));
    let (mut child, worker, folder) = recording(&target);
    kill(Pid::from_raw(worker), Signal::SIGSTOP).expect("it runs");
    // Until the time between two of them is long enough.
    wait_until("wcprof does not end", || {
        interrupt(&child);
        child.try_wait().expect("it can be waited for")
    });
    wait_for_end(worker);
    let (trace, ending) = read_trace(&folder.path().join("test.wct"));
    assert_ne!(ending, Ending::Clean);
    assert!(!trace.tables.threads.is_empty());
}

/// Check what an unprivileged user is told about a process of another: the capability that is
/// missing, and the exit code.
#[test]
fn not_permitted() {
    if !has_capability() {
        return skip("not_permitted", "needs root to become another user");
    }
    let target = RemoteProcess::start(&fixture("eintr.c", Variant::NoFramePointers));
    // The build's folder may be closed to others: run a copy.
    let folder = tempfile::tempdir().expect("temporary folder");
    let open = fs::Permissions::from_mode(0o755);
    fs::set_permissions(folder.path(), open.clone()).expect("folder is ours");
    let program = folder.path().join("wcprof");
    copy_program(Path::new(env!("CARGO_BIN_EXE_wcprof")), &program);
    fs::set_permissions(&program, open).expect("file is ours");
    let as_nobody = |args: &[&str]| {
        Command::new("setpriv")
            .args(["--reuid=65534", "--regid=65534", "--clear-groups"])
            .arg(&program)
            .args(args)
            .current_dir("/")
            .stdin(Stdio::null())
            .output()
            .expect("setpriv runs")
    };
    let pid = target.pid().to_string();
    for engine in ["auto", "bpf", "procfs", "procfs-only"] {
        let args = [
            "attach",
            &pid,
            "--engine",
            engine,
            "-d",
            "1",
            "-o",
            "/tmp/none.wct",
        ];
        assert_fails(&as_nobody(&args), NOT_PERMITTED, &["CAP_", "hint:"]);
    }
    let output = as_nobody(&["check", &pid]);
    assert_eq!(output.status.code(), Some(NOT_PERMITTED), "{output:?}");
    let message = format!("{}{}", text(&output.stdout), text(&output.stderr));
    assert!(message.contains("CAP_SYS_PTRACE"), "{message}");
    assert!(message.contains("perf_event_paranoid"), "{message}");
    assert!(message.contains("would not work"), "{message}");
}

/// The line with which the agent finds a process that runs this program.
fn said_by_agent(program: &Path) -> String {
    let folder = tempfile::tempdir().expect("temporary folder");
    let mut command = wcprof();
    command
        .args(["agent", "--name", "evil*", "--engine", "procfs-only"])
        .args(["--listen", "none", "--store", "http://127.0.0.1:1"])
        .arg("--state-dir")
        .arg(folder.path());
    let agent = Said::by(&mut command);
    agent.line("recording 1 processes");
    let _second = RemoteProcess::start(program);
    let line = agent.line("found ");
    assert!(line.contains("evil;?[31m?x"), "{line}");
    line
}

/// Check that hostile names, of a thread and of a file, reach no terminal as they are.
#[test]
fn hostile_names() {
    let folder = tempfile::tempdir_in(output_folder()).expect("temporary folder");
    let program = folder.path().join("evil;\x1b[31m\nx");
    copy_program(&fixture("eintr.c", Variant::NoFramePointers), &program);
    let target = RemoteProcess::start(&program);
    let recording = Attach::new(Engine::ProcfsOnly, target.pid())
        .seconds(1.0)
        .run();
    let mut outputs = vec![
        text(&recording.output.stdout).to_owned(),
        recording.said().to_owned(),
        said_by_agent(&program),
    ];
    for format in [
        "--tree",
        "--json",
        "--format=uwpmp",
        "--format=folded",
        "--format=svg",
    ] {
        outputs.push(recording.report(&[format, "--idle", "show"]));
    }
    for output in outputs {
        assert!(!output.contains('\x1b'), "{output}");
    }
    // Also sorted lines of known form: the newline of the name did not make one of its own.
    recording.folded();
}

/// Check the help of every command, and that a command that does not exist, or lacks what it needs, is wrong usage.
#[test]
fn usage() {
    for command in ["attach", "report", "doctor", "check", "man"] {
        let output = run(&[command, "--help"]);
        assert!(output.status.success());
        assert!(text(&output.stdout).contains("Usage: wcprof"));
    }
    assert_eq!(run(&["atach"]).status.code(), Some(USAGE));
    assert_eq!(run(&["report"]).status.code(), Some(USAGE));
}

/// Check that standard output of a recording can be a closed pipe and the trace is whole all the
/// same.
#[test]
fn attach_into_broken_pipe() {
    let target = RemoteProcess::start(&fixture("eintr.c", Variant::NoFramePointers));
    let (mut child, folder) = Attach::new(Engine::ProcfsOnly, target.pid())
        .seconds(1.0)
        .spawn();
    drop(child.stdout.take());
    let mut message = String::new();
    let mut stderr = child.stderr.take().expect("stderr is a pipe");
    stderr
        .read_to_string(&mut message)
        .expect("stderr is UTF-8");
    assert!(
        child.wait().expect("can be waited for").success(),
        "{message}"
    );
    let trace = folder.path().join("test.wct");
    let (_, ending) = read_trace(&trace);
    assert_eq!(ending, Ending::Clean);
    // Keep the target until here.
    std::io::stderr().flush().expect("stderr works");
    drop(target);
}

/// Check that processes are found by name, program, OSD, virtual machine and group, together, and
/// what is said when there is none.
#[test]
fn chosen_processes() {
    use std::os::unix::process::CommandExt;
    let fixture = fixture("eintr.c", Variant::NoFramePointers);
    let start = |name: &str, args: &[&str]| {
        RemoteProcess::start_command(Command::new(&fixture).arg0(name).args(args))
    };
    let osd = start("/usr/bin/ceph-osd", &["-f", "--id", "987654"]);
    let vm = start("qemu-kvm", &["-name", "guest=wcprof-test,debug-threads=on"]);
    let named = start("/opt/wcprof-odd-name", &[]);
    let folder = tempfile::tempdir().expect("temporary folder");
    let trace = folder.path().join("chosen.wct");
    let output = wcprof()
        .args(["attach", "--osd", "987654", "--vm", "wcprof-test"])
        .args(["--name", "wcprof-odd-*", "-d", "1", "-o"])
        .arg(&trace)
        .output()
        .expect("wcprof starts");
    assert!(output.status.success(), "{}", text(&output.stderr));
    let (trace, _) = read_trace(&trace);
    let pids: Vec<i32> = trace.tables.processes.iter().map(|p| p.pid.0).collect();
    let mut expected = [osd.pid(), vm.pid(), named.pid()];
    expected.sort_unstable();
    assert_eq!(pids, expected);
    for args in [
        ["--osd", "1234567"],
        ["--vm", "no-such-machine"],
        ["--name", "no-such-name"],
        ["--cgroup", "/no/such/group"],
    ] {
        let output = run(&["attach", args[0], args[1], "-d", "1"]);
        assert_fails(&output, NO_TARGET, &[args[0], args[1], "hint:"]);
    }
    assert_fails(&run(&["attach", "--name", "["]), USAGE, &["hint:"]);
    assert_eq!(run(&["attach", "--children"]).status.code(), Some(USAGE));
}

/// Check a merged trace: both recordings are in it, and it can be read like any other.
#[test]
fn merged_traces() {
    let (a, b) = (small_recording(), small_recording());
    let folder = tempfile::tempdir().expect("temporary folder");
    let both = folder.path().join("both.wct");
    let paths = [a.path(), b.path(), both].map(|p| p.display().to_string());
    let [a_path, b_path, both] = [&*paths[0], &*paths[1], &*paths[2]];
    let output = run(&["merge", a_path, b_path, "-o", both]);
    assert!(output.status.success(), "{}", text(&output.stderr));
    let report = |path: &str| {
        let output = run(&[
            "report", path, "--by", "pool", "--format", "folded", "--idle", "show",
        ]);
        assert!(output.status.success(), "{}", text(&output.stderr));
        let sum = text(&output.stdout)
            .lines()
            .filter(|l| l.starts_with("waiter"));
        let weights = sum.filter_map(|l| l.rsplit(' ').next()?.parse::<u64>().ok());
        weights.sum::<u64>()
    };
    let (one, two, all) = (report(a_path), report(b_path), report(both));
    assert!(all.abs_diff(one + two) <= 2, "{one} + {two} != {all}");
}
