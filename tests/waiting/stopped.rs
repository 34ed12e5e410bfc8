//! Processes that somebody stops: a signal, a debugger, the freezer of their control group.

use std::fs;
use std::ops::{Range, RangeInclusive};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::{SystemTime, UNIX_EPOCH};

use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use wcprof_trace::model::{Span, ThreadId, Trace};
use wcprof_types::{StopCause, ThreadState};

use wcprof_testkit::{
    Attach, Engine, Recording, RemoteProcess, Variant, fixture, has_capability, printed, skip,
    thread_ids, wait_for_write, wait_until, wcprof,
};

/// The threads of the fixture, and where each is when it is not stopped.
const THREADS: [(&str, &str); 4] = [
    ("st-burn", "burn_on"),
    ("st-nap", "take_naps"),
    ("st-sleep", "sleep_long"),
    ("st-wait", "wait_for_ever"),
];

/// Ticks within which the borders of a stop are to be found.
const BORDER_TICKS: usize = 2;
/// Length of so many ticks that are not late.
const BORDER_NS: u64 = BORDER_TICKS as u64 * 1_000_000_000 / 99;

/// When wcprof looked, in order, since the recording's begin: where ticks are late, a border is found later.
pub(crate) fn ticks(trace: &Trace) -> Vec<u64> {
    let mut ticks: Vec<u64> = trace.spans.iter().map(|span| span.end.0).collect();
    ticks.sort_unstable();
    ticks.dedup();
    ticks
}

/// The times at which the border of an event may be found.
pub(crate) fn border(event: Event, ticks: &[u64]) -> RangeInclusive<u64> {
    let n_before = ticks.partition_point(|tick| *tick < event.before);
    let before = n_before.checked_sub(BORDER_TICKS).map(|at| ticks[at]);
    let n_until = ticks.partition_point(|tick| *tick <= event.after);
    let after = ticks.get(n_until + BORDER_TICKS - 1).copied();
    let earliest = event.before.saturating_sub(BORDER_NS);
    let latest = event.after + BORDER_NS;
    before.map_or(earliest, |tick| tick.min(earliest))
        ..=after.map_or(latest, |tick| tick.max(latest))
}

/// When something was done, and when it had happened by the kernel's own word: ns since 1970.
#[derive(Copy, Clone, Debug)]
pub(crate) struct Event {
    pub(crate) before: u64,
    pub(crate) after: u64,
}

fn now() -> u64 {
    let since = SystemTime::now().duration_since(UNIX_EPOCH);
    since.expect("it is past 1970").as_nanos() as u64
}

/// Do something, and wait until the kernel says that it is so.
fn event(act: impl FnOnce(), mut is_so: impl FnMut() -> bool) -> Event {
    let before = now();
    act();
    wait_until("the kernel does not say so", || is_so().then_some(()));
    Event {
        before,
        after: now(),
    }
}

fn target() -> RemoteProcess {
    RemoteProcess::start(&fixture("stopped.c", Variant::NoFramePointers))
}

/// State letters of the threads.
fn letters(pid: i32) -> String {
    let stat = |tid: &i32| fs::read_to_string(format!("/proc/{pid}/task/{tid}/stat")).ok();
    let letter = |stat: String| stat.rsplit_once(") ")?.1.chars().next();
    let tids = thread_ids(pid);
    tids.keys().filter_map(|tid| letter(stat(tid)?)).collect()
}

/// Record a second, stop the process, let it go on after a second, and record one more.
fn record(
    engine: Engine,
    pid: i32,
    stop: impl FnOnce() -> Event,
    go: impl FnOnce() -> Event,
) -> (Recording, Event, Event) {
    let mut events = None;
    let (child, folder) = Attach::new(engine, pid).begin();
    let stopped = stop();
    wait_for_write(&folder);
    wait_for_write(&folder);
    events.replace((stopped, go()));
    wait_for_write(&folder);
    wait_for_write(&folder);
    wcprof_testkit::interrupt(&child);
    let recording = Recording::finish(child, folder);
    let (stopped, went_on) = events.expect("both happened");
    (recording, stopped, went_on)
}

fn stopped_spans(trace: &Trace, cause: StopCause, name: &str) -> Vec<Span> {
    let tables = &trace.tables;
    let is_stop = |span: &&Span| {
        let wait = span.wait.and_then(|id| tables.waits.get(id.0 as usize));
        span.state == ThreadState::Blocked
            && wait.is_some_and(|wait| wait.stop == Some(cause))
            && tables.threads[span.thread.0 as usize].name() == name
    };
    trace.spans.iter().filter(is_stop).cloned().collect()
}

/// How long a thread was found to have waited for a CPU, of the spans that reach into this time, ns.
fn queued(trace: &Trace, thread: ThreadId, time: Range<u64>) -> u64 {
    let spans = trace.spans.iter().filter(|span| {
        let is_in = span.end.0 > time.start && span.start.0 < time.end;
        is_in && span.thread == thread && span.state == ThreadState::Runnable
    });
    spans.map(|span| span.weight).sum()
}

/// Check that each thread is stopped from the one event to the other and at no other time, and that nothing else is made
/// of it.
#[track_caller]
fn assert_stopped(
    test: &str,
    engine: Engine,
    cause: StopCause,
    (recording, stop, go): &(Recording, Event, Event),
) {
    recording.assert_sound(engine);
    let (trace, _) = recording.trace();
    let begin = trace.tables.header.started_unix_ns;
    let all: u64 = trace.tables.stats.duration.0;
    let stood_still = recording.stood_still(test, engine);
    let folded = recording.folded();
    let ticks = ticks(&trace);
    // Relative to the recording's begin.
    let [stop, go] = [stop, go].map(|event| Event {
        before: event.before - begin,
        after: event.after - begin,
    });
    for (name, function) in THREADS {
        let mut spans = stopped_spans(&trace, cause, name);
        spans.sort_by_key(|span| span.end);
        let (first, last) = spans.first().zip(spans.last()).unwrap_or_else(|| {
            panic!("{name} is not stopped:\n{}", folded.thread(name).show());
        });
        let what = || format!("{name}: {stop:?} {go:?} {spans:#?}");
        if stood_still {
            continue;
        }
        let from = first.end.0 - first.weight;
        let to = last.start.0 + last.weight;
        let (begins, ends) = (border(stop, &ticks), border(go, &ticks));
        // One that waits for a CPU when it is stopped is seen to have waited only after it has stopped.
        let queued = queued(&trace, first.thread, stop.before..go.before);
        let begins = *begins.start()..=begins.end() + queued;
        assert!(
            begins.contains(&from) && ends.contains(&to),
            "{from} {to} {}",
            what()
        );
        let weight: u64 = spans.iter().map(|span| span.weight).sum();
        let least = ends.start().saturating_sub(*begins.end());
        let most = ends.end() - begins.start();
        assert!((least..=most).contains(&weight), "{name}: {weight} ns");
        let thread = folded.thread(name);
        let stopped = thread.states(&["[stopped]"]).total();
        assert!(stopped.abs_diff(weight / 1000) < 1000, "{}", thread.show());
        // Where its stack is seen when it is not stopped, it is where it always is.
        if engine.sees_running() || name != "st-burn" {
            let elsewhere = thread.chain(&[function]).total();
            assert!(elsewhere * 10 > thread.total() * 9, "{}", thread.show());
        }
    }
    let screen = recording.said().to_owned() + &recording.report(&[]);
    let line = format!("STOPPED {}: ", cause.text());
    assert!(screen.contains(&line), "no {line:?} in:\n{screen}");
    assert!(!screen.contains("page faults"), "{screen}");
    let doctor = printed("doctor", &recording.path(), &[]);
    assert!(!doctor.contains("page-faults"), "{doctor}");
    let json: serde_json::Value =
        serde_json::from_str(&recording.report(&["--json"])).expect("it is JSON");
    let stopped = &json["headline"]["stopped"][0];
    assert_eq!(stopped["cause"], cause.name(), "{json:#}");
    let longest = stopped["longest_ns"].as_u64().expect("a number");
    assert!(longest > 0 && longest < all, "{longest} of {all}");
}

/// The message of `wcprof check` about the stopped process.
#[track_caller]
fn assert_checked(pid: i32, words: &[&str]) {
    let output = wcprof().arg("check").arg(pid.to_string()).output();
    let output = output.expect("wcprof starts");
    let text = String::from_utf8_lossy(&output.stdout);
    // Prose is wrapped.
    let text = text.split_whitespace().collect::<Vec<_>>().join(" ");
    for word in words {
        assert!(text.contains(word), "no {word:?} in:\n{text}");
    }
}

pub(crate) fn stopped_by_a_signal(engine: Engine) {
    let target = target();
    let pid = target.pid();
    let send = |signal| kill(Pid::from_raw(pid), signal).expect("it runs");
    let is_stopped = || letters(pid).chars().all(|letter| letter == 'T');
    let made = record(
        engine,
        pid,
        || event(|| send(Signal::SIGSTOP), is_stopped),
        || {
            assert_checked(pid, &["5 of 5 by a stop signal (SIGSTOP or SIGTSTP)"]);
            event(|| send(Signal::SIGCONT), || !letters(pid).contains('T'))
        },
    );
    assert_stopped("stopped_by_a_signal", engine, StopCause::Signal, &made);
}

pub(crate) fn stopped_by_a_debugger(engine: Engine) {
    let mut command = Command::new(fixture("stopped.c", Variant::NoFramePointers));
    let mut tracer = RemoteProcess::start_command(command.arg("traced"));
    let pid = tracer.keys["child"] as i32;
    let (child, folder) = Attach::new(engine, pid).begin();
    tracer.send_line("TRACE");
    tracer.answer("MARK");
    wait_for_write(&folder);
    let by = format!("by a debugger (ptrace), {}", comm(tracer.pid()));
    assert_checked(pid, &[&by]);
    wait_for_write(&folder);
    tracer.send_line("GO");
    tracer.answer("MARK");
    wait_for_write(&folder);
    wait_for_write(&folder);
    wcprof_testkit::interrupt(&child);
    let recording = Recording::finish(child, folder);
    let mark = tracer.mark();
    let event = |what: &str| Event {
        before: mark.get(&format!("{what}_before")),
        after: mark.get(&format!("{what}_after")),
    };
    let made = (recording, event("stop"), event("go"));
    assert_stopped("stopped_by_a_debugger", engine, StopCause::Debugger, &made);
}

fn comm(pid: i32) -> String {
    let comm = fs::read_to_string(format!("/proc/{pid}/comm")).expect("it lives");
    format!("{} (pid {pid})", comm.trim())
}

/// A control group, removed in the end.
struct Group {
    folder: PathBuf,
}

impl Group {
    /// A new group below a mounted hierarchy; `None`, and a skip, where there cannot be one.
    fn new(test: &str, mounts: &[&str], file: &str) -> Option<Self> {
        if !has_capability() {
            skip(test, "needs root to make a control group");
            return None;
        }
        for mount in mounts {
            let name = format!(
                "wcprof-test-{}-{}",
                std::process::id(),
                test.replace(':', "-")
            );
            let folder = Path::new(mount).join(name);
            if fs::create_dir(&folder).is_ok() {
                let group = Self { folder };
                if group.folder.join(file).exists() {
                    return Some(group);
                }
            }
        }
        skip(test, &format!("no hierarchy with {file} is mounted"));
        None
    }

    fn write(&self, file: &str, text: &str) {
        let file = self.folder.join(file);
        fs::write(&file, text).unwrap_or_else(|e| panic!("{}: {e}", file.display()));
    }

    fn has(&self, file: &str, text: &str) -> bool {
        fs::read_to_string(self.folder.join(file)).is_ok_and(|all| all.contains(text))
    }
}

impl Drop for Group {
    fn drop(&mut self) {
        // Its processes were killed, and may not be gone yet.
        for _ in 0..1000 {
            if fs::remove_dir(&self.folder).is_ok() {
                return;
            }
            std::thread::sleep(std::time::Duration::from_millis(5));
        }
    }
}

/// Freezes a group by a file, and waits for another one to say so; and the other way round.
fn frozen(
    test: &str,
    engine: Engine,
    group: &Group,
    [file, freeze, thaw]: [&str; 3],
    [state, is_frozen, is_thawed]: [&str; 3],
) {
    let target = target();
    let pid = target.pid();
    group.write("cgroup.procs", &pid.to_string());
    let folder = group.folder.display().to_string();
    let made = record(
        engine,
        pid,
        || event(|| group.write(file, freeze), || group.has(state, is_frozen)),
        || {
            assert_checked(pid, &["5 of 5 by the cgroup freezer", &folder]);
            event(|| group.write(file, thaw), || group.has(state, is_thawed))
        },
    );
    assert_stopped(test, engine, StopCause::Freezer, &made);
}

pub(crate) fn frozen_v1(engine: Engine) {
    let test = format!("stopped::frozen_v1::{}", engine.name());
    let Some(group) = Group::new(&test, &["/sys/fs/cgroup/freezer"], "freezer.state") else {
        return;
    };
    let file = ["freezer.state", "FROZEN", "THAWED"];
    frozen(
        &test,
        engine,
        &group,
        file,
        ["freezer.state", "FROZEN", "THAWED"],
    );
}

pub(crate) fn frozen_v2(engine: Engine) {
    let test = format!("stopped::frozen_v2::{}", engine.name());
    let mounts = ["/sys/fs/cgroup/unified", "/sys/fs/cgroup"];
    let Some(group) = Group::new(&test, &mounts, "cgroup.freeze") else {
        return;
    };
    let state = ["cgroup.events", "frozen 1", "frozen 0"];
    frozen(&test, engine, &group, ["cgroup.freeze", "1", "0"], state);
}
