//! Calls of the system that fail once while wcprof records.

use std::ffi::OsString;
use std::fmt;
use std::fs::{self, File};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};

use nix::errno::Errno;
use tempfile::TempDir;
use wcprof_testkit::{
    Attach, Engine, RemoteProcess, Variant, children, fixture, has_capability, interrupt,
    read_trace, skip, thread_capabilities, wait_until, wcprof,
};
use wcprof_trace::Ending;

const FIXTURES: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../../fixtures/traces");
/// Of one kind.
const MAX_CALLS: u32 = 1000;

/// Of the agent.
const NOT_TAKEN: &str = "does not take requests";

/// What fails, and how (`fixtures/src/fail.c`).
const FAULTS: [(&str, Errno); 6] = [
    ("write", Errno::ENOSPC),
    ("write", Errno::EIO),
    ("mmap", Errno::ENOMEM),
    ("create", Errno::EMFILE),
    ("perf_event_open", Errno::EMFILE),
    ("bpf", Errno::EPERM),
];

/// What runs while a call fails.
#[derive(Copy, Clone, PartialEq, Debug)]
enum Work {
    /// A recording for a moment, with a flame graph.
    Attach,
    /// A flight recorder, until it runs.
    Keep,
    /// An agent whose store cannot be reached, until a profile waits for it.
    Agent,
    /// A page made from a trace.
    Report,
    /// A trace made from two.
    Merge,
    /// A trace made from another profiler's file.
    Import,
}

/// How that ended.
struct Ended {
    code: Option<i32>,
    said: String,
    folder: TempDir,
    /// The call was reached.
    is_hit: bool,
}

impl Work {
    fn command(self, target: &RemoteProcess, folder: &Path) -> Command {
        let pid = target.pid().to_string();
        let given = |name: &str| Path::new(FIXTURES).join(name);
        let traces = ["ceph-osd-secure-randread.wct", "ceph-osd-idle.wct"];
        let mut command = wcprof();
        match self {
            Self::Report => command
                .args(["report", "--format", "html"])
                .arg(given(traces[0])),
            Self::Merge => command.arg("merge").args(traces.map(given)),
            Self::Import => command.arg("import").arg(folder.join("a.folded")),
            Self::Attach => command
                .args(["attach", &pid, "-d", "300ms", "--flamegraph"])
                .arg(folder.join("t.svg")),
            Self::Keep => command.args(["attach", &pid, "--keep", "1s"]),
            Self::Agent => command
                .args(["agent", "--name", "split_sleep*", "--interval", "1s"])
                .args(["--listen", "none", "--store", "http://127.0.0.1:1"])
                .arg("--state-dir")
                .arg(folder),
        };
        if self != Self::Agent {
            command.arg("-o").arg(folder.join("t.wct"));
        }
        command
    }

    /// What can fail then. All sample alike.
    fn can_fail(self, call: &str) -> bool {
        match self {
            Self::Attach => true,
            Self::Keep | Self::Agent => !matches!(call, "perf_event_open" | "bpf"),
            Self::Report | Self::Merge | Self::Import => matches!(call, "write" | "create"),
        }
    }

    /// Whether wcprof has done what is wanted of it.
    fn is_done(self, folder: &Path, wcprof: &Child) -> bool {
        match self {
            Self::Attach | Self::Report | Self::Merge | Self::Import => false,
            // The message that says so may be what fails.
            Self::Keep => {
                let worker = children(wcprof.id() as i32).first().copied();
                let mut threads = worker.into_iter().flat_map(thread_capabilities);
                threads.any(|(name, _)| name == "wcprof-sampler")
            }
            Self::Agent => {
                let spool = fs::read_dir(folder.join("spool")).into_iter().flatten();
                spool.flatten().next().is_some() || said(folder).contains(NOT_TAKEN)
            }
        }
    }

    /// Runs while a call fails; over a file that is there, if its content is given.
    fn run(self, target: &RemoteProcess, fault: &str, over: Option<&str>) -> Ended {
        let folder = tempfile::tempdir().expect("temporary folder");
        let path = folder.path();
        let stderr = File::create(path.join("said")).expect("temporary file");
        fs::write(path.join("a.folded"), "a;b 7\nc 3\n").expect("temporary file");
        let mut command = self.command(target, path);
        if let Some(content) = over {
            fs::write(path.join("t.wct"), content).expect("temporary file");
            command.arg("--force");
        }
        let mut child = command
            .env("LD_PRELOAD", fixture("fail.c", Variant::Preload))
            .env("FAIL", fault)
            .env("FAIL_LOG", path.join("hit"))
            .stdout(Stdio::null())
            .stderr(stderr)
            .spawn()
            .expect("wcprof starts");
        let mut status = None;
        let pid = child.id();
        let nothing = fmt::from_fn(|f| {
            let (waits, said) = (waits(pid), said(path));
            write!(f, "{self:?}, {fault}: it does nothing: {waits:?}, {said}")
        });
        wait_until(nothing, || {
            status = child.try_wait().expect("it can be waited for");
            (status.is_some() || self.is_done(path, &child)).then_some(())
        });
        let status = status.unwrap_or_else(|| {
            interrupt(&child);
            child.wait().expect("it can be waited for")
        });
        Ended {
            code: status.code(),
            said: said(path),
            is_hit: path.join("hit").exists(),
            folder,
        }
    }

    /// Asserts that there was a message if there is less than there should be, and that all that there is can be read.
    #[track_caller]
    fn assert_sound(self, fault: &str, ended: &Ended) {
        let Ended { code, said, .. } = ended;
        let what = format!("{self:?}, {fault}: {code:?}: {said}");
        assert!(!said.contains("panicked"), "{what}");
        assert!(matches!(code, Some(0..=5 | 130)), "{what}");
        assert!(*code == Some(0) || said.contains("(os error "), "{what}");
        let path = |name| ended.folder.path().join(name);
        let trace = match self {
            Self::Attach | Self::Merge | Self::Import => path("t.wct"),
            Self::Report => {
                let page = fs::read_to_string(path("t.wct"));
                let is_whole = page.is_ok_and(|page| page.trim_end().ends_with("</html>"));
                return assert_eq!(is_whole, *code == Some(0), "{what}");
            }
            // The last one is tried twice.
            Self::Keep if path("t-2.wct").exists() => path("t-2.wct"),
            Self::Keep => path("t-1.wct"),
            Self::Agent => return,
        };
        let is_written = fs::metadata(&trace).is_ok_and(|file| file.len() > 0);
        let has_begun = self == Self::Keep && said.contains("Ctrl-C writes them and ends");
        assert!(!has_begun || is_written, "{what}");
        let ending = is_written.then(|| read_trace(&trace).1);
        let is_whole = ending == Some(Ending::Clean);
        assert!(*code != Some(0) || is_whole, "{what}");
        let has_page = self != Self::Attach || path("t.svg").exists();
        assert!(*code != Some(0) || has_page, "{what}");
    }
}

/// Threads of wcprof, and where they are in the kernel.
fn waits(wcprof: u32) -> Vec<String> {
    let worker = children(wcprof as i32).into_iter();
    let folders = worker.flat_map(|pid| fs::read_dir(format!("/proc/{pid}/task")));
    let tasks = folders.flatten().flatten().map(|task| task.path());
    let text = |task: &Path, name| fs::read_to_string(task.join(name)).unwrap_or_default();
    let state = |task: PathBuf| format!("{} {}", text(&task, "comm").trim(), text(&task, "wchan"));
    tasks.map(state).collect()
}

fn said(folder: &Path) -> String {
    fs::read_to_string(folder.join("said")).expect("wcprof writes text")
}

/// Each of the first `n_calls` calls fails once, or of as many as there are.
#[track_caller]
fn each_fails_once(work: Work, n_calls: u32) {
    let target = RemoteProcess::start(&fixture("split_sleep.c", Variant::NoFramePointers));
    for (name, errno) in FAULTS {
        if !work.can_fail(name) {
            continue;
        }
        let is_hit = |n: &u32| {
            let fault = format!("{name}:{n}:{}", errno as i32);
            let ended = work.run(&target, &fault, None);
            work.assert_sound(&fault, &ended);
            ended.is_hit
        };
        let n_hit = (1..=n_calls).take_while(is_hit).count();
        assert!(n_hit > 0, "no call of {name} was reached");
    }
}

/// Check that a failed call is no crash, has a message if something is missing then, and leaves a trace that can be
/// read.
#[test]
fn first_calls() {
    each_fails_once(Work::Attach, 3);
}

/// Check that an output which cannot be put in its place is said, that nothing else is left there, and that a file which
/// it was to replace is as before.
#[test]
fn renames() {
    let target = RemoteProcess::start(&fixture("split_sleep.c", Variant::NoFramePointers));
    let fault = format!("rename:1:{}", Errno::EACCES as i32);
    let Ended {
        code, said, folder, ..
    } = Work::Attach.run(&target, &fault, None);
    assert_eq!(code, Some(1), "{said}");
    assert!(
        said.contains("t.svg") && !said.contains("panicked"),
        "{said}"
    );
    assert_eq!(made(folder.path()), ["t.wct"]);
    read_trace(&folder.path().join("t.wct"));
    for work in [Work::Attach, Work::Report, Work::Merge, Work::Import] {
        let Ended {
            code, said, folder, ..
        } = work.run(&target, &fault, Some("before"));
        let what = format!("{work:?}: {said}");
        assert_eq!(code, Some(1), "{what}");
        assert!(
            said.contains("t.wct") && said.contains("(os error 13)"),
            "{what}"
        );
        assert_eq!(made(folder.path()), ["t.wct"], "{what}");
        let after = fs::read_to_string(folder.path().join("t.wct"));
        assert_eq!(after.expect("it is there"), "before", "{what}");
    }
}

/// What was made in a folder of [`Work::run`].
fn made(folder: &Path) -> Vec<OsString> {
    let names = fs::read_dir(folder).expect("a folder").flatten();
    let names = names.map(|entry| entry.file_name());
    names
        .filter(|name| name != "said" && name != "a.folded")
        .collect()
}

/// Check that the flight recorder leaves no empty file on a full disk.
#[test]
fn full_disk() {
    if !has_capability() {
        return skip(
            "faults::full_disk",
            "needs root for a file system of its own",
        );
    }
    const RECORD: &str = "mount -t tmpfs -o size=8k none . && cd . && cat /dev/zero > full
        \"$0\" attach \"$1\" --keep 5s -d 1s -o t.wct; echo $?; ls";
    let target = RemoteProcess::start(&fixture("split_sleep.c", Variant::NoFramePointers));
    let folder = tempfile::tempdir().expect("temporary folder");
    // The folder is entered anew, or it would be the one below the file system.
    let script = RECORD.replace("cd .", "cd \"$PWD\"");
    let mut command = Command::new("unshare");
    command
        .args(["-m", "sh", "-c", &script])
        .arg(wcprof().get_program());
    command
        .arg(target.pid().to_string())
        .current_dir(folder.path());
    let output = command.output().expect("unshare starts");
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(said.contains("No space left on device"), "{output:?}");
    assert_eq!(
        String::from_utf8_lossy(&output.stdout),
        "1\nfull\n",
        "{said}"
    );
}

/// Check that a file which exceeds `ulimit -f` is an error like a full disk.
#[test]
fn too_large() {
    let target = RemoteProcess::start(&fixture("crowd.c", Variant::NoFramePointers));
    let folder = tempfile::tempdir().expect("temporary folder");
    let trace = folder.path().join("t.wct");
    let attach = Attach::new(Engine::ProcfsOnly, target.pid()).seconds(0.0);
    let attach = attach.limit("--fsize=80000");
    let output = attach.command(&trace).output().expect("prlimit starts");
    let said = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.code(), Some(1), "{said}");
    assert!(said.contains("File too large (os error 27)"), "{said}");
    assert!(!said.contains("confined less"), "{said}");
    read_trace(&trace);
}

/// Check that the agent says what its spool does not take, and what is lost by that.
#[test]
fn spool() {
    let target = RemoteProcess::start(&fixture("split_sleep.c", Variant::NoFramePointers));
    let fault = format!("rename:1:{}", Errno::EACCES as i32);
    let Ended { said, folder, .. } = Work::Agent.run(&target, &fault, None);
    let is_said = |part: &str| said.lines().any(|line| line.contains(part));
    assert!(is_said(NOT_TAKEN) && is_said("(os error 13)"), "{said}");
    assert!(
        is_said("did not take are lost") && !is_said("next start"),
        "{said}"
    );
    let spool = fs::read_dir(folder.path().join("spool")).expect("a folder");
    assert_eq!(spool.count(), 0);
}

/// Check the same of all calls.
#[test]
#[ignore = "long: with --full"]
fn all_calls() {
    each_fails_once(Work::Attach, MAX_CALLS);
}

/// Check the same of a flight recorder.
#[test]
#[ignore = "long: with --full"]
fn flight_recorder() {
    each_fails_once(Work::Keep, MAX_CALLS);
}

/// Check the same of what is made from saved files.
#[test]
fn from_saved() {
    for work in [Work::Report, Work::Merge, Work::Import] {
        each_fails_once(work, MAX_CALLS);
    }
}

/// Check the same of the agent and its spool.
#[test]
#[ignore = "long: with --full"]
fn agent() {
    each_fails_once(Work::Agent, MAX_CALLS);
}
