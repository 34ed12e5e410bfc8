//! Programs whose threads wait in known ways, with names and with fewer: a state may become unknown, and never another one.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use tempfile::TempDir;
use wcprof_testkit::{
    Attach, Engine, Folded, RemoteProcess, Samples, Variant, copy_program, fixture, printed, skip,
    thread_ids, wait_until,
};
use wcprof_types::ThreadState;

/// Thread, its state, and whether a function of the C library says so; else one of the program does.
type Known = (&'static str, &'static str, bool);

const CPP: [Known; 18] = [
    ("k-sem", "[idle]", true),
    ("k-sem-time", "[idle]", true),
    ("k-sem-clock", "[idle]", true),
    ("k-cond", "[idle]", true),
    ("k-cond-time", "[idle]", true),
    ("k-sem20", "[idle]", false),
    ("k-atomic", "[idle]", false),
    ("k-own", "[idle]", false),
    ("k-mutex", "[lock]", true),
    ("k-mutex-time", "[lock]", true),
    ("k-read", "[lock]", true),
    ("k-write", "[lock]", true),
    ("k-read-time", "[lock]", true),
    ("k-barrier", "[blocked]", true),
    ("k-join", "[blocked]", true),
    ("k-sleep", "[sleep]", true),
    ("k-feed", "[sleep]", true),
    ("k-poll", "[place-unknown]", true),
];

const RUST: [Known; 8] = [
    ("r-cond", "[idle]", false),
    ("r-recv", "[idle]", false),
    ("r-park", "[idle]", false),
    ("r-mutex", "[lock]", false),
    ("r-read", "[lock]", false),
    ("r-write", "[lock]", false),
    ("r-join", "[blocked]", true),
    ("r-sleep", "[sleep]", true),
];

/// What has names.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
struct Names {
    program: bool,
    /// The local functions of the C library; what it exports always has.
    libc: bool,
}

/// Least time that a thread waits for its states to be looked at, us.
const MIN_WAITS_US: u64 = 100_000;

const NAMES: [Names; 4] = [
    Names {
        program: true,
        libc: true,
    },
    Names {
        program: true,
        libc: false,
    },
    Names {
        program: false,
        libc: true,
    },
    Names {
        program: false,
        libc: false,
    },
];

pub(crate) fn fewer_names(engine: Engine) {
    for names in NAMES {
        let cpp = fixture("known.cpp", Variant::NoFramePointers);
        let folder = tempfile::tempdir().expect("temporary folder");
        let mut target = start(&cpp, names, &folder);
        let (recording, before, after) = Attach::new(engine, target.pid())
            .seconds(4.0)
            .run_marked(&mut target);
        recording.assert_sound(engine);
        let folded = recording.folded();
        assert_known(&folded, &CPP, names, engine);
        let first_screen = printed("report", &recording.path(), &[]);
        assert!(
            first_screen.contains("until k-sleep ends (sleeping)"),
            "{first_screen}"
        );
        let thread = folded.thread("k-ask");
        if hardly_waits(&thread, "k-ask", engine) {
            continue;
        }
        if !engine.sees_running() {
            assert_states(&thread, &["[place-unknown]"]);
            continue;
        }
        // The same call, in the loop and below the work.
        assert_states(&thread, &["[idle]", "[blocked]"]);
        if recording.stood_still("fewer_names", engine) {
            continue;
        }
        let time = |key| {
            let delay = after.since(&before, &format!("{key}_delay"));
            after.since(&before, key).saturating_sub(delay) as f64
        };
        let truth = time("ask") / (time("ask") + time("rest"));
        let mut samples = Samples::default();
        // What it waits, of which the share is: a machine that gives it no CPU has few of these.
        samples.add(&recording, |thread, state| {
            thread == "k-ask" && state == ThreadState::Blocked
        });
        let tolerance = recording.verdict.tolerance(truth, samples.n_effective());
        let waits = thread.states(&["[idle]", "[blocked]"]);
        let share = waits.states(&["[blocked]"]).share_of(&waits);
        assert!(
            (share - truth).abs() < tolerance + 0.03,
            "{names:?}: blocked {share:.3}, truth {truth:.3}, tolerance {tolerance:.3}:\n{}",
            thread.show()
        );
    }
}

pub(crate) fn fewer_names_of_rust(engine: Engine) {
    for names in NAMES {
        let rust = fixture("known.rs", Variant::NoFramePointers);
        let folder = tempfile::tempdir().expect("temporary folder");
        let target = start(&rust, names, &folder);
        let recording = Attach::new(engine, target.pid()).seconds(4.0).run();
        recording.assert_sound(engine);
        let folded = recording.folded();
        assert_known(&folded, &RUST, names, engine);
        // It is called by a register that it has saved, which engines that do not see the frame pointer need to know.
        let parked = folded.thread("r-park").waits();
        if parked.total() >= MIN_WAITS_US {
            let whole = with_root(&parked);
            assert!(whole.share_of(&parked) > 0.9, "{}", parked.show());
        }
    }
}

/// Of a program with its own C library, and no name at all, only sleep is known. A wait that a stop has interrupted goes
/// on as what it was.
pub(crate) fn no_names(engine: Engine) {
    let program = fixture("known.cpp", Variant::Static);
    let folder = tempfile::tempdir().expect("temporary folder");
    let names = Names {
        program: false,
        libc: true,
    };
    let target = start(&program, names, &folder);
    let of_libc = CPP.map(|(name, state, _)| (name, state, state == "[sleep]"));
    interrupt_waits(target.pid());
    let recording = Attach::new(engine, target.pid()).seconds(3.0).run();
    assert_known(&recording.folded(), &of_libc, names, engine);
    let (trace, _) = recording.trace();
    let tables = &trace.tables;
    let spans = trace.spans.iter();
    let polls = spans.filter(|span| tables.threads[span.thread.0 as usize].name() == "k-poll");
    let calls = polls.filter_map(|span| tables.waits[span.wait?.0 as usize].syscall);
    let mut calls: Vec<u32> = calls.collect();
    calls.dedup();
    assert_eq!(calls, [7], "poll");
}

/// Stop a process and let it go on: the kernel says that its waits with a time limit go on in `restart_syscall`.
fn interrupt_waits(pid: i32) {
    let all = |letters: &dyn Fn(char) -> bool| {
        thread_ids(pid).keys().all(|tid| {
            let stat = fs::read_to_string(format!("/proc/{pid}/task/{tid}/stat"));
            let stat = stat.unwrap_or_default();
            let state = stat
                .rsplit_once(") ")
                .and_then(|(_, rest)| rest.chars().next());
            state.is_some_and(letters)
        })
    };
    kill(Pid::from_raw(pid), Signal::SIGSTOP).expect("it lives");
    wait_until("it is not stopped", || {
        all(&|state| state == 'T').then_some(())
    });
    kill(Pid::from_raw(pid), Signal::SIGCONT).expect("it lives");
    let restarts = |name: &str| {
        let threads = thread_ids(pid);
        let mut threads = threads.iter();
        let (tid, _) = threads.find(|(_, comm)| *comm == name).expect("it lives");
        let call = fs::read_to_string(format!("/proc/{pid}/task/{tid}/syscall"));
        call.is_ok_and(|call| call.starts_with("219 "))
    };
    wait_until("waits do not go on in restart_syscall", || {
        (restarts("k-poll") && restarts("k-sleep")).then_some(())
    });
}

/// Python's locks and queues are waited for in one function of the interpreter: that is never said to be idle, nor a lock.
pub(crate) fn python(engine: Engine) {
    const SCRIPT: &str = r#"
import ctypes, os, queue, sys, threading, time
libc = ctypes.CDLL(None)
lock, jobs = threading.Lock(), queue.Queue()
def work():
    for i in range(20000): pass
def body(name, wait):
    libc.prctl(15, name.encode(), 0, 0, 0)
    while True:
        wait()
        work()
def take():
    with lock: time.sleep(0.01)
def start(name, wait):
    threading.Thread(target=body, args=(name, wait), daemon=True).start()
for i in range(8): start("p-lock", take)
start("p-queue", jobs.get)
def feed():
    time.sleep(0.015)
    jobs.put(1)
start("p-feed", feed)
time.sleep(0.3)
print("READY pid=%d" % os.getpid(), flush=True)
sys.stdin.read()
"#;
    let mut command = Command::new("python3");
    if command.arg("--version").output().is_err() {
        skip("python", "there is no python3");
        return;
    }
    let target = RemoteProcess::start_command(Command::new("python3").args(["-c", SCRIPT]));
    let recording = Attach::new(engine, target.pid()).seconds(3.0).run();
    let folded = recording.folded();
    // The interpreter's own lock is one; who has the lock sleeps.
    assert_states(
        &folded.thread("p-lock"),
        &["[place-unknown]", "[lock]", "[sleep]"],
    );
    assert_states(&folded.thread("p-queue"), &["[place-unknown]", "[lock]"]);
    let unknown = folded.thread("p-lock").states(&["[place-unknown]"]);
    assert!(unknown.share_of(&folded.thread("p-lock")) > 0.5);
}

/// Start a program with these names alone. The C library's debug file is not found for a copy of another build-id.
fn start(program: &Path, names: Names, folder: &TempDir) -> RemoteProcess {
    let copy = folder.path().join("known");
    copy_program(program, &copy);
    if !names.program {
        let status = Command::new("strip").arg(&copy).status();
        assert!(status.expect("strip starts").success());
    }
    let mut command = Command::new(copy);
    if !names.libc {
        let note = b"\x04\0\0\0\x14\0\0\0\x03\0\0\0GNU\0";
        let mut libc = fs::read(libc_path()).expect("the C library can be read");
        let mut windows = libc.windows(note.len());
        let at = windows
            .position(|bytes| bytes == note)
            .expect("it has a build-id");
        libc[at + note.len()] ^= 0xff;
        fs::write(folder.path().join("libc.so.6"), libc).expect("folder can be written");
        command.env("LD_LIBRARY_PATH", folder.path());
    }
    RemoteProcess::start_command(&mut command)
}

/// The C library that this test itself runs with.
fn libc_path() -> PathBuf {
    let maps = fs::read_to_string("/proc/self/maps").expect("own maps");
    let paths = maps
        .lines()
        .filter_map(|line| Some(&line[line.find('/')?..]));
    let mut paths = paths.map(PathBuf::from);
    let is_libc = |path: &PathBuf| path.file_name().is_some_and(|name| name == "libc.so.6");
    paths.find(is_libc).expect("the test has a C library")
}

#[track_caller]
fn assert_known(folded: &Folded, known: &[Known], names: Names, engine: Engine) {
    for &(name, state, is_of_libc) in known {
        // Without its callers a wait has no place: a frame pointer that the engine does not see may not be found.
        let thread = with_root(&folded.thread(name));
        if hardly_waits(&thread, name, engine) {
            continue;
        }
        let has_names = is_of_libc || names.program;
        // Without stacks of what runs, nothing shows a loop.
        let is_shown = state != "[idle]" || engine.sees_running();
        match has_names && is_shown {
            true => assert_states(&thread, &[state]),
            false => assert_states(&thread, &["[place-unknown]"]),
        }
    }
}

/// Lines whose stacks are whole.
fn with_root(folded: &Folded) -> Folded {
    let whole = folded.lines.iter().filter(|line| !line.is_truncated());
    Folded {
        lines: whole.cloned().collect(),
    }
}

/// Whether a thread waits too little to look at its states; prints the skip. Where CPUs are scarce, work is always there, or a
/// wait spins for all of its time.
fn hardly_waits(thread: &Folded, name: &str, engine: Engine) -> bool {
    let hardly = thread.waits().total() < MIN_WAITS_US;
    if hardly {
        let reason = "it hardly waited, or its stacks are cut";
        skip(&format!("{name} ({})", engine.name()), reason);
    }
    hardly
}

/// Assert that waits are in one of these states but for a rest: what a mutex inside of a wait costs, more where its holder waits for
/// a CPU itself.
#[track_caller]
fn assert_states(thread: &Folded, states: &[&str]) {
    let waits = thread.waits();
    let is_starved = thread.states(&["[runnable]"]).total() > waits.total();
    let least = if is_starved { 0.8 } else { 0.95 };
    assert!(
        waits.states(states).share_of(&waits) > least,
        "should be {states:?}:\n{}",
        thread.show()
    );
}
