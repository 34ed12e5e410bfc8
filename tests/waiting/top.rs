//! `wcprof top` in a terminal: a pseudo-terminal of tmux, whose screen is read.

use std::path::Path;
use std::process::{Command, Stdio};
use std::thread;
use std::time::{Duration, Instant};

use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use tempfile::TempDir;
use wcprof_trace::Ending;

use wcprof_testkit::{
    Engine, PATIENCE, RemoteProcess, Variant, assert_weights, fixture, read_trace, skip, text,
    usable, wait_until, wcprof,
};

/// A terminal of its own; it is gone when this is dropped.
struct Screen {
    folder: TempDir,
}

impl Screen {
    /// Run a shell command in a terminal of 120 columns and 40 rows; `None` without tmux.
    fn run(test: &str, command: &str) -> Option<Self> {
        let screen = Self {
            folder: tempfile::tempdir().expect("temporary folder"),
        };
        let version = Command::new("tmux")
            .arg("-V")
            .stdout(Stdio::null())
            .status();
        if version.is_err() {
            skip(test, "needs tmux");
            return None;
        }
        screen.tmux(&[
            "new-session",
            "-d",
            "-s",
            "s",
            "-x",
            "120",
            "-y",
            "40",
            command,
        ]);
        Some(screen)
    }

    #[track_caller]
    fn tmux(&self, args: &[&str]) -> String {
        let output = Command::new("tmux")
            .arg("-S")
            .arg(self.folder.path().join("socket"))
            .args(["-f", "/dev/null"])
            .args(args)
            .env("TERM", "screen")
            .output()
            .expect("tmux starts");
        assert!(output.status.success(), "tmux {args:?}: {output:?}");
        text(&output.stdout).to_owned()
    }

    fn keys(&self, key: &str) {
        self.tmux(&["send-keys", "-t", "s", key]);
    }

    /// Wait until the screen has all of `parts`.
    #[track_caller]
    fn wait_for(&self, parts: &[&str]) -> String {
        let begin = Instant::now();
        loop {
            let screen = self.tmux(&["capture-pane", "-p", "-t", "s"]);
            if parts.iter().all(|part| screen.contains(part)) {
                return screen;
            }
            assert!(
                begin.elapsed() < PATIENCE,
                "{parts:?} does not come:\n{screen}"
            );
            thread::sleep(Duration::from_millis(50));
        }
    }

    /// Assert that the terminal is as it was: no second screen, a cursor, echo and line mode.
    #[track_caller]
    fn assert_restored(&self, exit: &str) {
        let screen = self.wait_for(&[exit, "STTY", "MODES"]);
        let stty = screen.split("STTY").nth(1).expect("it is there");
        let words: Vec<&str> = stty.split_whitespace().collect();
        assert!(
            words.contains(&"echo") && words.contains(&"icanon"),
            "{screen}"
        );
        let format = "#{alternate_on} #{cursor_flag}";
        let modes = self.tmux(&["display-message", "-p", "-t", "s", format]);
        assert_eq!(modes.trim(), "0 1");
    }
}

impl Drop for Screen {
    fn drop(&mut self) {
        // Fails when nothing was started.
        let _ = Command::new("tmux")
            .arg("-S")
            .arg(self.folder.path().join("socket"))
            .arg("kill-server")
            .output();
    }
}

/// `wcprof top`, whose pid goes into a file, then its exit code and the modes of the terminal.
fn command(pid: i32, folder: &Path, engine: Engine, flags: &str) -> String {
    format!(
        "cd {}; sh -c 'echo $$ > pid; exec \"$0\" \"$@\"' {} top {pid} --engine {} \
         --max-cpu 100 -o v.wct {flags}; echo EXIT=$?; echo STTY; stty -a; echo MODES; cat",
        folder.display(),
        env!("CARGO_BIN_EXE_wcprof"),
        engine.name()
    )
}

/// Check that pools are listed, and who holds what they wait for, that keys choose, unfold and pause, that a saved trace is whole, and
/// that the terminal is as before.
#[test]
fn view() {
    let mut target = RemoteProcess::start(&fixture("contend.c", Variant::NoFramePointers));
    target.send_line("CONTEND");
    let folder = tempfile::tempdir().expect("temporary folder");
    let command = command(
        target.pid(),
        folder.path(),
        Engine::ProcfsOnly,
        "--window 2",
    );
    let Some(screen) = Screen::run("top: view", &command) else {
        return;
    };
    screen.wait_for(&["c-want-N", "c-holder", "calm_sleep", "? help"]);
    screen.wait_for(&["answers", "WHERE THREADS WAIT", "held by "]);
    screen.keys("?");
    screen.wait_for(&["choose a pool or thread"]);
    screen.keys("t");
    screen.wait_for(&["tree of"]);
    // Whichever is the first, one of the first two pools has two threads.
    screen.keys("Home");
    screen.keys("Enter");
    screen.keys("End");
    screen.keys("p");
    screen.wait_for(&["PAUSED"]);
    screen.tmux(&["resize-window", "-t", "s", "-x", "80", "-y", "20"]);
    screen.wait_for(&["PAUSED", "c-want-N"]);
    screen.keys("s");
    screen.wait_for(&["saved", "v-1.wct"]);
    let (trace, ending) = read_trace(&folder.path().join("v-1.wct"));
    assert_eq!(ending, Ending::Clean);
    assert_eq!(trace.tables.stats.end_reason, "saved from the live view");
    assert_weights(&trace);
    let names: Vec<&str> = trace.tables.threads.iter().map(|t| t.name()).collect();
    assert!(names.contains(&"c-want-1"), "{names:?}");
    // What is saved when the view ends is whole, too.
    screen.keys("s");
    screen.keys("q");
    screen.assert_restored("EXIT=0");
    assert_eq!(read_trace(&folder.path().join("v-2.wct")).1, Ending::Clean);
}

/// Check that the view ends with its terminal.
#[test]
fn terminal_gone() {
    let target = RemoteProcess::start(&fixture("contend.c", Variant::NoFramePointers));
    let folder = tempfile::tempdir().expect("temporary folder");
    let command = command(target.pid(), folder.path(), Engine::ProcfsOnly, "");
    let Some(screen) = Screen::run("top: terminal_gone", &command) else {
        return;
    };
    screen.wait_for(&["c-want-N", "c-holder"]);
    let pid = std::fs::read_to_string(folder.path().join("pid")).expect("it was written");
    drop(screen);
    wait_until("the view lives on", || {
        (!Path::new(&format!("/proc/{}", pid.trim())).exists()).then_some(())
    });
}

/// Check that a trace which cannot be saved is said, that nothing is left of it, and that the view goes on.
#[test]
fn not_saved() {
    let target = RemoteProcess::start(&fixture("contend.c", Variant::NoFramePointers));
    let folder = tempfile::tempdir().expect("temporary folder");
    let command = command(target.pid(), folder.path(), Engine::ProcfsOnly, "");
    // Blocks of 512 bytes.
    let command = format!("ulimit -f 2; {command}");
    let Some(screen) = Screen::run("top: not_saved", &command) else {
        return;
    };
    screen.wait_for(&["c-want-N", "c-holder"]);
    screen.keys("s");
    screen.wait_for(&["File too large (os error 27)"]);
    screen.keys("?");
    screen.wait_for(&["choose a pool or thread"]);
    screen.keys("q");
    screen.assert_restored("EXIT=0");
    let files = std::fs::read_dir(folder.path()).expect("a folder").count();
    assert_eq!(files, 1, "only the pid");
}

/// Check that the target's exit leaves the last picture and says so, and that SIGTERM ends the view
/// and restores the terminal.
#[test]
fn ends() {
    let mut target = RemoteProcess::start(&fixture("contend.c", Variant::NoFramePointers));
    let folder = tempfile::tempdir().expect("temporary folder");
    let command = command(target.pid(), folder.path(), Engine::ProcfsOnly, "");
    let Some(screen) = Screen::run("top: ends", &command) else {
        return;
    };
    screen.wait_for(&["c-want-N", "c-holder"]);
    assert!(target.close().success());
    screen.wait_for(&["the recording has ended (q says why)", "c-want-N"]);
    let pid = std::fs::read_to_string(folder.path().join("pid")).expect("it was written");
    let pid = pid.trim().parse().expect("a number");
    kill(Pid::from_raw(pid), Signal::SIGTERM).expect("it still runs");
    screen.assert_restored("EXIT=0");
    screen.wait_for(&["the recording ended: target exited"]);
}

/// Check that names which only the running machine can give are in the view: of a perf map, a
/// jitdump, and the vdso.
#[test]
fn local_names() {
    let engines = [Engine::ProcfsOnly, Engine::Procfs, Engine::Bpf];
    for engine in engines.into_iter().filter(|e| usable(*e, "top: names")) {
        let folder = tempfile::tempdir().expect("temporary folder");
        let program = fixture("jit.c", Variant::FramePointers);
        let mut jit = RemoteProcess::start_command(Command::new(program).arg(folder.path()));
        let vdso = RemoteProcess::start(&fixture("vdso.c", Variant::NoFramePointers));
        let mut shown = vec![
            (jit.pid(), "j-map", ["jit_mapped", "sleep_long"]),
            // Which of its two functions is at the address changes all the time.
            (jit.pid(), "j-dump", ["jit_", "nap"]),
            // The mapping stands for code that nothing names.
            (jit.pid(), "j-late", ["[code in 0x", "sleep_long"]),
        ];
        if engine.sees_running() {
            shown.push((vdso.pid(), "v-clock", ["time < ask_for_ever", "v-clock"]));
        }
        for (pid, thread, names) in shown {
            let flags = format!("--threads {thread}");
            let command = command(pid, folder.path(), engine, &flags);
            let Some(screen) = Screen::run("top: names", &command) else {
                return;
            };
            screen.wait_for(&["answers", thread]);
            screen.keys("t");
            let title = format!("tree of {thread}");
            let text = screen.wait_for(&[&title, names[0], names[1]]);
            assert!(!text.contains("jit_old"), "{text}");
            screen.keys("q");
            screen.assert_restored("EXIT=0");
        }
        jit.send_line("END");
        jit.answer("MARK");
    }
}

/// Check what is said without a terminal.
#[test]
fn no_terminal() {
    let output = wcprof().args(["top", "1"]).output().expect("wcprof starts");
    let message = text(&output.stderr);
    assert_eq!(output.status.code(), Some(2), "{message}");
    assert!(message.contains("needs a terminal"), "{message}");
    assert!(
        message.contains("hint: `wcprof attach PID` prints"),
        "{message}"
    );
    assert!(output.stdout.is_empty());
}
