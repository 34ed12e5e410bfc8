//! Memory of a target that never answers whoever reads it.

use std::fs;
use std::io::{self, Seek};
use std::path::{Path, PathBuf};
use std::process::{Command, Output};
use std::sync::mpsc::channel;
use std::thread;
use std::time::Duration;

use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use tempfile::TempDir;
use wcprof_testkit::{
    Attach, Engine, Recording, RemoteProcess, Variant, fixture, has_capability, interrupt,
    read_trace, skip, text, wait_for_trace, wait_until, worker,
};
use wcprof_trace::Ending;

use crate::jit::beside_hung_server;

/// A recording that wcprof ended by itself.
struct Ended {
    output: Output,
    folder: TempDir,
    worker: i32,
}

fn program() -> PathBuf {
    fixture("silent.c", Variant::NoFramePointers)
}

/// The target, after the process whose end would free what waits for its answer.
struct Silent {
    answering: Option<RemoteProcess>,
    target: RemoteProcess,
}

/// Does something, and ends a process that does not answer if that takes ten minutes: then it has waited for it.
pub(crate) fn guard<T>(answering: i32, work: impl FnOnce() -> T) -> (T, bool) {
    let (done, waits) = channel::<()>();
    let guard = thread::spawn(move || {
        let is_in_time = waits.recv_timeout(Duration::from_secs(600)).is_ok();
        if !is_in_time {
            let _ = kill(Pid::from_raw(answering), Signal::SIGKILL);
        }
        is_in_time
    });
    let result = work();
    // The guard may have given up.
    let _ = done.send(());
    (result, guard.join().expect("no panic"))
}

impl Silent {
    fn guard<T>(&self, work: impl FnOnce() -> T) -> (T, bool) {
        let answering = self.answering.as_ref().unwrap_or(&self.target);
        guard(answering.pid(), work)
    }

    /// Records it, makes it silent, and waits until wcprof ends by itself.
    #[track_caller]
    fn record(&mut self, engine: Engine) -> Ended {
        let pid = self.target.pid();
        let (child, folder) = Attach::new(engine, pid).seconds(0.0).spawn();
        let worker = worker(&child);
        wait_for_trace(&folder);
        self.target.send_line("SILENCE");
        self.target.answer("MARK");
        let wait = || child.wait_with_output().expect("wcprof can be waited for");
        let (output, is_in_time) = self.guard(wait);
        assert!(is_in_time, "wcprof waited: {}", text(&output.stderr));
        Ended {
            output,
            folder,
            worker,
        }
    }
}

impl Ended {
    /// Asserts what was said, and that the recording is whole up to its end.
    #[track_caller]
    fn assert_sound(&self, words: &str) {
        let said = text(&self.output.stderr);
        assert_eq!(self.output.status.code(), Some(1), "{said}");
        assert!(said.contains(words), "no {words:?} in: {said}");
        let (trace, ending) = read_trace(&self.folder.path().join("test.wct"));
        assert_eq!(ending, Ending::Clean);
        let mut names = trace.tables.threads.iter().map(|thread| thread.name());
        assert!(
            names.any(|name| name == "silent"),
            "{:?}",
            trace.tables.threads
        );
    }
}

/// A thread's stack, or the lock that it waits for, in memory registered with userfaultfd.
pub(crate) fn userfaultfd(engine: Engine) {
    if !has_capability() {
        return skip("silent::userfaultfd", "needs root for userfaultfd");
    }
    for mode in ["stack", "lock"] {
        let mut silent = Silent {
            answering: None,
            target: RemoteProcess::start_command(Command::new(program()).args([mode, "-"])),
        };
        let tid = silent.target.mark().get("silent");
        let pid = silent.target.pid();
        let words = match mode {
            "stack" => format!("thread {tid} of pid {pid}"),
            _ => format!("a lock of pid {pid}"),
        };
        silent.record(engine).assert_sound(&words);
        // Nobody stopped it.
        silent.target.mark();
    }
}

/// A file server over `/tmp`, of this mode and with one file, and what runs beside it, by a program and the file's path.
fn start(
    (mode, content): (&str, &[u8]),
    name: &str,
    command: impl FnOnce(&str, &str) -> Command,
) -> Silent {
    let file = format!("/tmp/perf-{name}.map");
    fs::write(&file, content).expect("temporary file");
    let server = RemoteProcess::start_command(
        Command::new("unshare")
            .arg("--mount")
            .arg(fixture("hung_fuse.c", Variant::NoFramePointers))
            .args([mode, name])
            .env_clear(),
    );
    fs::remove_file(&file).expect("temporary file");
    // The checkout may lie below the mount.
    let visible = format!("/proc/{}/root{}", std::process::id(), program().display());
    let command = command(&visible, &file);
    let mut beside = Command::new("nsenter");
    beside
        .args(["--mount", "--target", &server.pid().to_string()])
        .arg(command.get_program())
        .args(command.get_args());
    Silent {
        answering: Some(server),
        target: RemoteProcess::start_command(&mut beside),
    }
}

/// Why there is no [`above`].
pub(crate) fn no_layers() -> Option<&'static str> {
    let known = fs::read_to_string("/proc/filesystems").expect("/proc is there");
    let has_fuse = has_capability() && Path::new("/dev/fuse").exists();
    match known.contains("overlay") {
        _ if !has_fuse => Some("needs root and FUSE"),
        false => Some("this kernel has no overlayfs"),
        true => None,
    }
}

/// What [`start`] starts on overlayfs above such a server: a shell command, by the program and the file's path there.
fn above(
    server: (&str, &[u8]),
    name: &str,
    command: impl FnOnce(&str, &str) -> String,
) -> (Silent, TempDir) {
    let folder = tempfile::tempdir_in("/var/tmp").expect("temporary folder");
    let at = |name: &str| {
        let path = folder.path().join(name);
        fs::create_dir(&path).expect("temporary folder");
        path.to_str().expect("it is text").to_owned()
    };
    let (empty, merged) = (at("empty"), at("merged"));
    let silent = start(server, name, |program, file| {
        let file = file.replace("/tmp", &merged);
        let command = command(program, &file);
        let script =
            format!("mount -t overlay none -o lowerdir=/tmp:{empty} {merged} && exec {command}");
        let mut shell = Command::new("sh");
        shell.args(["-c", &script]);
        shell
    });
    (silent, folder)
}

/// A module on overlayfs, a layer of which is on a server that answers no read: it costs the stacks through it.
pub(crate) fn layer(engine: Engine) {
    if let Some(reason) = no_layers() {
        return skip("silent::layer", reason);
    }
    let name = format!("layer-{}", engine.name());
    let (silent, _folder) = above(("reads", b""), &name, |program, file| {
        format!("{program} module {file}")
    });
    let attach = Attach::new(engine, silent.target.pid()).seconds(1.0);
    let (recording, is_in_time) = silent.guard(|| attach.run());
    let said = recording.said();
    assert!(is_in_time, "wcprof waited: {said}");
    recording.assert_sound(engine);
    assert!(said.contains("did not answer in time"), "{said}");
    let folded = recording.folded();
    let thread = folded.thread("silent");
    let named = thread.chain(&["sleeper", "clock_nanosleep"]);
    let mounts = fs::read_to_string("/proc/self/mounts").expect("/proc is there");
    // There libc waits for the same answer.
    let is_layered = mounts.contains(" / overlay ");
    assert!(is_layered || named.total() > 0, "{}", thread.show());
}

/// Check that a recording has the names of the other modules where the server of one answers no more after it was
/// opened: the process that reads it, which no signal ends, is left behind.
#[test]
#[ignore = "long: with --full"]
fn leaving() {
    if let Some(reason) = no_layers() {
        return skip("leaving", reason);
    }
    let program =
        fs::read(fixture("spin.c", Variant::NoFramePointers)).expect("the fixture is there");
    let (mut silent, _folder) = above(("leaving", &program), "leaving", |_, file| file.to_owned());
    let attach = Attach::new(Engine::ProcfsOnly, silent.target.pid());
    let (child, folder) = attach.seconds(1.0).spawn();
    wait_for_trace(&folder);
    let server = silent.answering.as_mut().expect("it was started");
    server.send_line("SILENCE");
    server.answer("MARK");
    let wait = || child.wait_with_output().expect("wcprof can be waited for");
    let (output, is_in_time) = silent.guard(wait);
    let said = text(&output.stderr);
    assert!(is_in_time, "wcprof waited: {said}");
    assert_eq!(output.status.code(), Some(0), "{said}");
    let named = "in perf-leaving.map: its files were not read: the process that reads it did not get on for 10 s";
    assert!(said.contains(named) && !said.contains("libc.so"), "{said}");
}

/// Check that a recording, and the process that makes names, do not wait for a module on overlayfs whose server answers
/// all but its closing.
#[test]
fn closing() {
    if let Some(reason) = no_layers() {
        return skip("closing", reason);
    }
    let program =
        fs::read(fixture("spin.c", Variant::NoFramePointers)).expect("the fixture is there");
    let (mut silent, _folder) = above(("closing", &program), "closing", |_, file| file.to_owned());
    let attach = Attach::new(Engine::ProcfsOnly, silent.target.pid()).seconds(1.0);
    let (recording, is_in_time) = silent.guard(|| attach.run());
    let said = recording.said();
    assert!(is_in_time, "wcprof waited: {said}");
    recording.assert_sound(Engine::ProcfsOnly);
    let folded = recording.folded();
    let thread = folded.thread("perf-closing.ma");
    assert!(
        thread.chain(&["main"]).total() > 0,
        "{}\n{said}",
        thread.show()
    );
    let server = silent.answering.as_mut().expect("it was started");
    assert!(server.mark().get("taken") > 0, "nothing was closed");
}

/// Check that of a program on FUSE which several processes run one copy is held.
#[test]
fn shared_copy() {
    if !has_capability() || !Path::new("/dev/fuse").exists() {
        return skip("shared_copy", "needs root and FUSE");
    }
    let program =
        fs::read(fixture("spin.c", Variant::NoFramePointers)).expect("the fixture is there");
    let first = start(("leaving", &program), "shared", |_, file| {
        Command::new(file)
    });
    let second = RemoteProcess::start_command(
        Command::new("nsenter")
            .args(["--mount", "--target", &first.target.pid().to_string()])
            .arg("/tmp/perf-shared.map"),
    );
    let attach = Attach::new(Engine::ProcfsOnly, first.target.pid()).and(second.pid());
    let (child, folder) = attach.begin();
    let files = fs::read_dir(format!("/proc/{}/fd", worker(&child))).expect("it runs");
    let links = files.filter_map(|file| fs::read_link(file.ok()?.path()).ok());
    let copies = links.filter(|link| link.to_string_lossy().contains("wcprof-copy"));
    assert_eq!(copies.count(), 1);
    interrupt(&child);
    let recording = Recording::finish(child, folder);
    recording.assert_sound(Engine::ProcfsOnly);
    let folded = recording.report(&["--by", "process"]);
    assert!(folded.contains("perf-shared.map"), "{folded}");
}

/// A thread's stack in a mapped file whose server answers no read: the process that waits for it is left behind,
/// and ends with the server.
pub(crate) fn file(engine: Engine) {
    if !has_capability() || !Path::new("/dev/fuse").exists() {
        return skip("silent::file", "needs root and FUSE");
    }
    let name = format!("silent-{}", engine.name());
    let mut silent = start(("reads", b""), &name, |program, file| {
        let mut command = Command::new(program);
        command.args(["file", file]);
        command
    });
    let tid = silent.target.mark().get("silent");
    let ended = silent.record(engine);
    ended.assert_sound(&format!("thread {tid} of pid"));
    let is_left = || Path::new(&format!("/proc/{}", ended.worker)).exists();
    assert!(is_left(), "nobody read the file");
    silent.answering = None;
    wait_until("the process that was left behind lives", || {
        (!is_left()).then_some(())
    });
}

/// Check that Ctrl-C ends wcprof where its own output folder is on a server that never answers: its process is left behind.
#[test]
fn third_signal() {
    if !has_capability() || !Path::new("/dev/fuse").exists() {
        return skip("third_signal", "needs root and FUSE");
    }
    ends(|pid| {
        ["attach", pid, "-d", "0", "-o", "/tmp/a.wct"]
            .map(str::to_owned)
            .to_vec()
    });
}

/// Check the same of a report of a trace that is on such a server.
#[test]
fn report() {
    if !has_capability() || !Path::new("/dev/fuse").exists() {
        return skip("silent::report", "needs root and FUSE");
    }
    ends(|_| ["report", "/tmp/a.wct"].map(str::to_owned).to_vec());
}

/// Assert that wcprof with these arguments, given a target's pid, ends by Ctrl-C while `/tmp` never answers.
#[track_caller]
fn ends(args: impl FnOnce(&str) -> Vec<String>) {
    let target = RemoteProcess::start_command(
        Command::new("unshare")
            .arg("--mount")
            .arg(fixture("eintr.c", Variant::NoFramePointers)),
    );
    let pid = target.pid().to_string();
    // Who is left behind would hold the end of a pipe open.
    let mut said = tempfile::tempfile().expect("temporary file");
    let attach = |server: &mut RemoteProcess| {
        let program = env!("CARGO_BIN_EXE_wcprof");
        let mut wcprof = Command::new("nsenter")
            .args(["--mount", "--target", &pid])
            // The program's path, or one of libraries, may lead to the server.
            .arg(format!("/proc/{}/root{program}", std::process::id()))
            .env_clear()
            .args(args(&pid))
            .stderr(said.try_clone().expect("a descriptor"))
            .spawn()
            .expect("nsenter starts");
        let worker = worker(&wcprof);
        let wchan = format!("/proc/{worker}/wchan");
        wait_until("it does not wait for the server", || {
            let waits = fs::read_to_string(&wchan).ok()?;
            waits.contains("request_wait_answer").then_some(())
        });
        // Until then a signal ends the wait.
        wait_until("the server does not take the request", || {
            (server.mark().get("taken") > 0).then_some(())
        });
        // Until the time between two of them is long enough.
        wait_until("wcprof does not end", || {
            interrupt(&wcprof);
            wcprof.try_wait().expect("it can be waited for")
        })
    };
    let (ended, _) = beside_hung_server("lookups", target.pid(), attach);
    said.rewind().expect("a file");
    let said = io::read_to_string(said).expect("it is text");
    assert_eq!(ended.code(), Some(130), "{said}");
    assert!(said.contains("is left behind"), "{said}");
}

/// Check that neither a recording nor `check` waits for an admin socket whose path leads to a server that never answers.
#[test]
fn admin_socket() {
    if !has_capability() || !Path::new("/dev/fuse").exists() {
        return skip("admin_socket", "needs root and FUSE");
    }
    let folder = tempfile::tempdir_in("/tmp").expect("temporary folder");
    let target = RemoteProcess::start_command(
        Command::new("unshare")
            .arg("--mount")
            .arg(fixture("operations.c", Variant::NoFramePointers))
            .arg(folder.path().join("osd.0.asok"))
            .arg("answer"),
    );
    let pid = target.pid();
    let engine = Engine::ProcfsOnly;
    let both = |_: &mut _| {
        let attach = Attach::new(engine, pid).seconds(1.0).flags(&["--ceph"]);
        let mut check = Command::new(env!("CARGO_BIN_EXE_wcprof"));
        check.args(["check", &pid.to_string()]);
        (attach.run(), check.output().expect("wcprof starts"))
    };
    let ((recording, check), _) = beside_hung_server("lookups", pid, both);
    recording.assert_sound(engine);
    for said in [recording.said(), text(&check.stdout)] {
        assert!(said.contains("socket did not answer within 2 s"), "{said}");
    }
}
