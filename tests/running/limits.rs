//! Limits of control groups, budgets, CPU sets and idle CPUs, against the kernel's own files.
//!
//! Groups are made below the root of a hierarchy of version 1 and removed by the test.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::{self, JoinHandle};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use serde_json::Value;
use wcprof_testkit::{
    Attach, Engine, Recording, RemoteProcess, Variant, fixture, interrupt, printed, run_delay_ns,
    skip, thread_ids, wait_for_thread, wait_for_write, wait_until,
};

/// A control group of version 1 with one process or thread of a target in it.
struct TestGroup(PathBuf);

impl TestGroup {
    /// `None`, and a skip, where there is no such hierarchy, or it may not be changed.
    fn new(test: &str, engine: Engine, controller: &str) -> Option<Self> {
        let name = format!("wcprof-test-{}-{test}", std::process::id());
        let path = Path::new("/sys/fs/cgroup").join(controller).join(name);
        match fs::create_dir(&path) {
            Ok(()) if path.join("tasks").exists() => Some(Self(path)),
            made => {
                let reason = format!("no control group `{}`: {made:?}", path.display());
                skip(&format!("{test} ({})", engine.name()), &reason);
                let _ = made.and_then(|()| fs::remove_dir(&path));
                None
            }
        }
    }

    fn set(&self, file: &str, value: impl ToString) {
        let path = self.0.join(file);
        let written = fs::write(&path, value.to_string());
        written.unwrap_or_else(|error| panic!("{}: {error}", path.display()));
    }

    /// Its path in its hierarchy.
    fn path(&self) -> String {
        format!("/{}", self.0.file_name().unwrap().to_str().unwrap())
    }
}

impl Drop for TestGroup {
    fn drop(&mut self) {
        // The target has ended, and its last thread may still be on its way out.
        wait_until("the group is not empty", || match fs::remove_dir(&self.0) {
            Err(error) if error.raw_os_error() == Some(16) => None,
            removed => Some(removed),
        })
        .expect("the group can be removed");
    }
}

/// A program of `fixtures/src/limits.c`, whose first thread of this name runs.
fn target(arguments: &[&str], thread: &str) -> (RemoteProcess, i32) {
    let program = fixture("limits.c", Variant::NoFramePointers);
    let target = RemoteProcess::start_command(Command::new(program).args(arguments));
    let tid = wait_for_thread(target.pid(), thread);
    (target, tid)
}

/// Numbers of a file of the kernel over time: ns since 1970, and what `read` finds in it.
struct NumberLog {
    is_over: Arc<AtomicBool>,
    thread: JoinHandle<Vec<(u64, u64)>>,
}

impl NumberLog {
    fn start(read: impl Fn() -> u64 + Send + 'static) -> Self {
        let is_over = Arc::new(AtomicBool::new(false));
        let over = Arc::clone(&is_over);
        let thread = thread::spawn(move || {
            let mut log = Vec::new();
            loop {
                let last = over.load(Ordering::Relaxed);
                let now = SystemTime::now().duration_since(UNIX_EPOCH);
                log.push((now.unwrap().as_nanos() as u64, read()));
                if last {
                    return log;
                }
                thread::sleep(Duration::from_millis(10));
            }
        });
        Self { is_over, thread }
    }

    /// The least and the most that can have been added between two readings, each of which was made at some time in
    /// a stretch.
    fn added(self, first: (u64, u64), last: (u64, u64)) -> (u64, u64) {
        self.is_over.store(true, Ordering::Relaxed);
        let log = self.thread.join().expect("the log is read");
        let before = |time| log.iter().rev().find(|(at, _)| *at <= time);
        let after = |time| log.iter().find(|(at, _)| *at >= time);
        let value = |entry: Option<&(u64, u64)>| entry.expect("the log covers it").1;
        let (begin, end) = (
            (value(before(first.0)), value(after(first.1))),
            (value(before(last.0)), value(after(last.1))),
        );
        (end.0.saturating_sub(begin.1), end.1 - begin.0)
    }
}

/// A number of a file of `key number` lines.
fn number(path: &Path, key: &str) -> u64 {
    let text = fs::read_to_string(path).unwrap_or_default();
    let mut lines = text.lines().filter_map(|line| line.rsplit_once(' '));
    let value = lines.find(|(name, _)| *name == key).map(|(_, value)| value);
    value.and_then(|value| value.parse().ok()).unwrap_or(0)
}

/// When the first and the last whole reading of a recording were made, ns since 1970: the time of each is that of its end, and
/// reading takes less than half a second.
fn whole_readings(recording: &Recording) -> [(u64, u64); 2] {
    let (trace, _) = recording.trace();
    let readings = trace.tables.origins.accounts.iter();
    let mut whole = readings.filter(|reading| reading.json.contains("\"detail\""));
    let (first, last) = (whole.next().expect("one"), whole.next_back().expect("two"));
    let start = trace.tables.header.started_unix_ns;
    [first, last].map(|reading| {
        let end = start + reading.time.0;
        (end.saturating_sub(500_000_000).max(start), end + 1_000_000)
    })
}

fn findings(recording: &Recording) -> Vec<Value> {
    let json = printed("doctor", &recording.path(), &["--json"]);
    let all: Value = serde_json::from_str(&json).expect("JSON");
    all["findings"].as_array().expect("a list").clone()
}

/// A text of a finding of a rule.
#[track_caller]
fn text_of<'f>(findings: &'f [Value], rule: &str, pointer: &str) -> &'f str {
    let finding = findings.iter().find(|finding| finding["rule"] == rule);
    let text = finding.and_then(|finding| finding.pointer(pointer)?.as_str());
    text.unwrap_or_else(|| panic!("no {pointer} of {rule} in {findings:#?}"))
}

const SETTING: &str = "/basis/settings/0/value";

/// The number that follows a word of a text.
#[track_caller]
fn after(text: &str, word: &str) -> f64 {
    let rest = text.split_once(word).map(|(_, rest)| rest.trim_start());
    let number = rest.and_then(|rest| rest.split(' ').next()?.parse().ok());
    number.unwrap_or_else(|| panic!("no number after {word:?} in {text:?}"))
}

fn assert_between(what: &str, value: f64, (least, most): (u64, u64)) {
    let is_right = value >= least as f64 && value <= most as f64;
    assert!(is_right, "{what}: {value}, truth {least} to {most}");
}

pub(crate) fn quota(engine: Engine) {
    let Some(group) = TestGroup::new("limits::quota", engine, "cpu") else {
        return;
    };
    let (target, tid) = target(&["spin", "1"], "spinner");
    group.set("cpu.cfs_quota_us", 20_000);
    group.set("tasks", tid);
    let stat = group.0.join("cpu.stat");
    wait_until("the group is not throttled", || {
        (number(&stat, "nr_throttled") > 0).then_some(())
    });
    let log = |key: &'static str| {
        let stat = stat.clone();
        NumberLog::start(move || number(&stat, key))
    };
    let (periods, throttled, time) = (
        log("nr_periods"),
        log("nr_throttled"),
        log("throttled_time"),
    );
    let pid = target.pid();
    let waited = NumberLog::start(move || run_delay_ns(pid, tid));
    let recording = Attach::new(engine, target.pid()).run();
    recording.assert_sound(engine);
    let [first, last] = whole_readings(&recording);
    let found = findings(&recording);
    // Before its symptom.
    assert_eq!(found[0]["rule"], "cpu-quota", "{found:#?}");
    assert_eq!(found[0]["basis"]["settings"][0]["name"], group.path());
    let text = text_of(&found, "cpu-quota", SETTING);
    assert!(
        text.starts_with("0.20 CPUs (20.0 ms of each 100 ms)"),
        "{text}"
    );
    assert!(text.ends_with("threads: spinner"), "{text}");
    assert_between(
        "throttled",
        after(text, "throttled in"),
        throttled.added(first, last),
    );
    let (_, of) = text.split_once("throttled in ").expect("counts");
    assert_between("periods", after(of, "of"), periods.added(first, last));
    // Other processes may keep it from its CPU for longer than its quota does.
    let (time, waited) = (time.added(first, last), waited.added(first, last));
    let is_most = match (2 * time.0 > waited.1, 2 * time.1 < waited.0) {
        (true, _) => true,
        (_, true) => false,
        _ => {
            let what = format!("limits::quota ({})", engine.name());
            return skip(&what, "its quota held it for about half of its waiting");
        }
    };
    let title = text_of(&found, "run-queue-delay", "/title");
    let is_told = title == "CPU-starved by the quota of a control group";
    assert_eq!(is_told, is_most, "{title}: {time:?} of {waited:?}");
    let severity = text_of(&found, "run-queue-delay", "/severity");
    assert!(!is_told || severity == "medium", "{severity}");
    drop(target);
}

pub(crate) fn changed(engine: Engine) {
    let Some(group) = TestGroup::new("limits::changed", engine, "cpu") else {
        return;
    };
    let (target, tid) = target(&["spin", "1"], "spinner");
    group.set("cpu.cfs_quota_us", 10_000);
    group.set("tasks", tid);
    let stat = group.0.join("cpu.stat");
    wait_until("the group is not throttled", || {
        (number(&stat, "nr_throttled") > 0).then_some(())
    });
    let throttled = NumberLog::start(move || number(&stat, "nr_throttled"));
    // Most of the recording, so that the waits are a finding on a quiet machine, too.
    let (child, folder) = Attach::new(engine, target.pid()).begin();
    (0..5).for_each(|_| wait_for_write(&folder));
    group.set("cpu.cfs_quota_us", -1);
    wait_for_write(&folder);
    interrupt(&child);
    let recording = Recording::finish(child, folder);
    recording.assert_sound(engine);
    let [first, last] = whole_readings(&recording);
    let found = findings(&recording);
    let title = text_of(&found, "run-queue-delay", "/title");
    let changed = "Threads wait for a CPU, and their limits changed during the recording";
    assert_eq!(title, changed);
    let text = text_of(&found, "run-queue-delay", "/explanation");
    let quota = format!("{}: 0.10 CPUs -> no quota", group.path());
    assert!(text.contains(&quota), "{text}");
    let count = after(text, "throttled in");
    assert_between("throttled", count, throttled.added(first, last));
    let json = printed("doctor", &recording.path(), &["--json"]);
    let all: Value = serde_json::from_str(&json).expect("JSON");
    let checks = all["processes"][0]["unknown"].as_array().expect("a list");
    let unknown = checks.iter().find(|one| one["check"] == "cgroup-throttled");
    let reason = unknown.and_then(|one| one["reason"].as_str());
    assert!(reason.is_some_and(|text| text.contains(&group.path())));
    drop(target);
}

pub(crate) fn changed_back(engine: Engine) {
    let Some(group) = TestGroup::new("limits::changed_back", engine, "cpu") else {
        return;
    };
    let (target, tid) = target(&["spin", "1"], "spinner");
    let task = format!("/proc/{}/task/{tid}/cgroup", target.pid());
    let home = fs::read_to_string(&task).expect("the thread's groups");
    let home = home.lines().find_map(|line| line.split_once(":cpu:"));
    let home = home.expect("a group of `cpu`").1;
    let home_tasks = Path::new("/sys/fs/cgroup/cpu").join(home.trim_start_matches('/'));
    let home_tasks = home_tasks.join("tasks");
    group.set("cpu.cfs_quota_us", 10_000);
    group.set("tasks", tid);
    let (child, folder) = Attach::new(engine, target.pid()).begin();
    // Limits are looked at as often as a thousandth of a core permits: some seconds on a slow machine.
    let wait = |n| (0..n).for_each(|_| wait_for_write(&folder));
    wait(4);
    group.set("cpu.cfs_quota_us", -1);
    wait(4);
    group.set("cpu.cfs_quota_us", 10_000);
    wait(4);
    fs::write(&home_tasks, tid.to_string()).expect("it can go home");
    wait(4);
    group.set("tasks", tid);
    wait(4);
    interrupt(&child);
    let recording = Recording::finish(child, folder);
    recording.assert_sound(engine);
    let found = findings(&recording);
    let title = text_of(&found, "run-queue-delay", "/title");
    let changed = "Threads wait for a CPU, and their limits changed during the recording";
    assert_eq!(title, changed);
    let text = text_of(&found, "run-queue-delay", "/explanation");
    let path = group.path();
    for said in [
        format!("moved from {path} to {home} to {path}"),
        format!("{path}: 0.10 CPUs -> no quota -> 0.10 CPUs"),
    ] {
        assert!(text.contains(&said), "no {said:?} in {text}");
    }
    let finding = found.iter().find(|one| one["rule"] == "run-queue-delay");
    let evidence = finding
        .and_then(|one| one["evidence"].as_array())
        .into_iter()
        .flatten();
    let mut lines = evidence.filter_map(|one| one["lines"].as_array()).flatten();
    let moved = lines.find(|line| line["name"] == "1 of the recorded threads changed groups");
    let moved = moved.expect("evidence that a thread moved");
    assert!(
        moved["percent"].is_null(),
        "a line that is no share: {moved}"
    );
    drop(target);
}

pub(crate) fn io_limit(engine: Engine) {
    const BYTES_A_SECOND: u64 = 1 << 20;
    let Some(group) = TestGroup::new("limits::io_limit", engine, "blkio") else {
        return;
    };
    let Some(device) = LoopDevice::new("limits::io_limit", engine) else {
        return;
    };
    let limit = format!("{} {BYTES_A_SECOND}", device.number);
    group.set("blkio.throttle.write_bps_device", limit);
    let (target, tid) = target(&["write", &device.path], "writer");
    group.set("tasks", tid);
    let file = group.0.join("blkio.throttle.io_service_bytes");
    let key = format!("{} Write", device.number);
    let written = move || number(&file, &key);
    wait_until("nothing is written", || (written() > 0).then_some(()));
    let written = NumberLog::start(written);
    let recording = Attach::new(engine, target.pid()).run();
    recording.assert_sound(engine);
    let [first, last] = whole_readings(&recording);
    let found = findings(&recording);
    let text = text_of(&found, "io-limit", SETTING);
    assert!(
        text.starts_with(&format!("device {}: ", device.number)),
        "{text}"
    );
    assert!(
        text.ends_with("the limit is 1 MiB a second; threads: writer"),
        "{text}"
    );
    let seconds = (last.1 - first.1) as f64 / 1e9;
    let (least, most) = written.added(first, last);
    let a_second = |n: u64| (n as f64 / seconds) as u64 >> 10;
    let printed = after(text, &format!("device {}:", device.number));
    // Whole KiB or MiB a second, rounded down.
    let unit = if text.contains(" MiB a second written") {
        1024
    } else {
        1
    };
    let bound = (a_second(least).saturating_sub(unit), a_second(most) + 1);
    assert_between("KiB a second", printed * unit as f64, bound);
    drop(target);
}

/// A block device in a file.
struct LoopDevice {
    path: String,
    /// `7:0`
    number: String,
    _file: tempfile::NamedTempFile,
}

impl LoopDevice {
    fn new(test: &str, engine: Engine) -> Option<Self> {
        let file = tempfile::NamedTempFile::new().expect("a temporary file");
        file.as_file()
            .set_len(16 << 20)
            .expect("it can be made longer");
        let mut losetup = Command::new("losetup");
        losetup
            .args(["--find", "--show", "--direct-io=off"])
            .arg(file.path());
        match losetup.output() {
            Ok(output) if output.status.success() => {
                let path = String::from_utf8_lossy(&output.stdout).trim().to_owned();
                let name = path.trim_start_matches("/dev/");
                let number = fs::read_to_string(format!("/sys/block/{name}/dev"));
                let number = number.expect("its number").trim().to_owned();
                Some(Self {
                    path,
                    number,
                    _file: file,
                })
            }
            failed => {
                let reason = format!("no loop device: {failed:?}");
                skip(&format!("{test} ({})", engine.name()), &reason);
                None
            }
        }
    }
}

impl Drop for LoopDevice {
    fn drop(&mut self) {
        let status = Command::new("losetup")
            .arg("--detach")
            .arg(&self.path)
            .status();
        assert!(
            status.is_ok_and(|status| status.success()),
            "{} stays",
            self.path
        );
    }
}

pub(crate) fn memory_limit(engine: Engine) {
    let Some(group) = TestGroup::new("limits::memory_limit", engine, "memory") else {
        return;
    };
    group.set("memory.limit_in_bytes", 32 << 20);
    // Its page cache alone is larger.
    let program = fixture("limits.c", Variant::NoFramePointers);
    let enter = format!(
        "echo $$ > {}/cgroup.procs; exec \"$0\" touch 128",
        group.0.display()
    );
    let target = RemoteProcess::start_command(Command::new("sh").args(["-c", &enter]).arg(program));
    wait_for_thread(target.pid(), "toucher");
    let file = group.0.join("memory.failcnt");
    let failures = move || {
        let text = fs::read_to_string(&file).unwrap_or_default();
        text.trim().parse().unwrap_or(0)
    };
    wait_until("the limit is not met", || (failures() > 0).then_some(()));
    let failures = NumberLog::start(failures);
    let recording = Attach::new(engine, target.pid()).run();
    let [first, last] = whole_readings(&recording);
    let found = findings(&recording);
    let text = text_of(&found, "memory-max", SETTING);
    assert!(
        text.starts_with("needed memory at its limit of 32 MiB"),
        "{text}"
    );
    assert_between(
        "failures",
        after(text, "of 32 MiB"),
        failures.added(first, last),
    );
    drop(target);
}

pub(crate) fn deadline(engine: Engine) {
    let (target, tid) = target(&["spin", "1"], "spinner");
    let budget = [
        "--sched-runtime",
        "2000000",
        "--sched-deadline",
        "10000000",
        "--sched-period",
        "10000000",
    ];
    let mut chrt = Command::new("chrt");
    chrt.arg("--deadline")
        .args(budget)
        .args(["-p", "0"])
        .arg(tid.to_string());
    match chrt.output() {
        Ok(output) if output.status.success() => {}
        failed => {
            let reason = format!("no SCHED_DEADLINE: {failed:?}");
            return skip(&format!("limits::deadline ({})", engine.name()), &reason);
        }
    }
    let recording = Attach::new(engine, target.pid()).run();
    recording.assert_sound(engine);
    let found = findings(&recording);
    let title = text_of(&found, "run-queue-delay", "/title");
    let start =
        "CPU-starved by their own budget under SCHED_DEADLINE (2.00 ms of each 10.0 ms, of which ";
    let used = title
        .strip_prefix(start)
        .unwrap_or_else(|| panic!("{title}"));
    // The kernel lets it run for its runtime of each period, give or take a tick.
    assert_between("used, %", after(&format!("used {used}"), "used"), (17, 23));
}

pub(crate) fn affinity(engine: Engine) {
    let n_cpus = thread::available_parallelism().map_or(1, usize::from);
    let program = fixture("limits.c", Variant::NoFramePointers);
    let mut command = Command::new("taskset");
    command.args(["-c", "0"]).arg(program).args(["spin", "4"]);
    if n_cpus < 2 {
        return skip(&format!("limits::affinity ({})", engine.name()), "one CPU");
    }
    let target = RemoteProcess::start_command(&mut command);
    wait_for_thread(target.pid(), "spinner");
    for tid in thread_ids(target.pid()).keys() {
        let status = fs::read_to_string(format!("/proc/{tid}/status")).expect("it runs");
        assert!(status.contains("Cpus_allowed_list:\t0\n"), "{status}");
    }
    let recording = Attach::new(engine, target.pid()).run();
    recording.assert_sound(engine);
    let found = findings(&recording);
    let title = text_of(&found, "run-queue-delay", "/title");
    let rest = title.strip_prefix("CPU-starved on the CPUs that they may use (");
    let rest = rest.unwrap_or_else(|| panic!("{title}"));
    assert!(rest.contains(" threads on average for CPU 0, "), "{title}");
    // Four threads that never wait.
    assert_between("threads", after(&format!("x {rest}"), "x"), (3, 5));
}

pub(crate) fn bursts(engine: Engine) {
    let n_cpus = thread::available_parallelism().map_or(1, usize::from);
    // Four times as many as CPUs wake up together; all of them have 12 % of the time.
    let n = (4 * n_cpus).to_string();
    let (target, _) = target(&["bursts", &n, "300"], "burst");
    let stat = |field: usize| {
        move || {
            let text = fs::read_to_string("/proc/stat").expect("it is there");
            let line = text.lines().next().unwrap_or_default();
            let ticks = line.split_ascii_whitespace().skip(1);
            let ticks: Vec<u64> = ticks.filter_map(|n| n.parse().ok()).collect();
            match field {
                0 => ticks[..8].iter().sum(),
                _ => ticks[3] + ticks[4],
            }
        }
    };
    let (all, idle) = (NumberLog::start(stat(0)), NumberLog::start(stat(1)));
    let recording = Attach::new(engine, target.pid()).run();
    recording.assert_sound(engine);
    let (begin, end) = recording.stretch();
    let (all, idle) = (
        all.added((begin, begin), (end, end)),
        idle.added((begin, begin), (end, end)),
    );
    let part = |idle: u64, all: u64| 100.0 * idle as f64 / all.max(1) as f64;
    let (least, most) = (part(idle.0, all.1), part(idle.1, all.0));
    let found = findings(&recording);
    let waits = found
        .iter()
        .any(|finding| finding["rule"] == "run-queue-delay");
    // Beside other work on the machine the waits have another cause.
    if least < 40.0 || !waits {
        let reason =
            format!("the CPUs are idle for {least:.0} to {most:.0} %; threads wait: {waits}");
        return skip(&format!("limits::bursts ({})", engine.name()), &reason);
    }
    let title = text_of(&found, "run-queue-delay", "/title");
    let start = "Threads wait for a CPU in bursts: the CPUs were idle for";
    assert!(title.starts_with(start), "{title}");
    // That of the whole time, and of the time in which threads waited, which is every ten milliseconds.
    let bound = ((least - 10.0).max(0.0) as u64, (most + 10.0) as u64);
    assert_between("idle, %", after(title, start), bound);
    assert_eq!(text_of(&found, "run-queue-delay", "/severity"), "low");
    assert!(text_of(&found, "run-queue-delay", "/action").starts_with("no more CPU"));
}
