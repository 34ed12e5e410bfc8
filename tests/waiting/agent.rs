//! The agent against live processes and a store: which intervals there are, whose, and what they hold.

use std::io::{Read, Write};
use std::net::TcpStream;
use std::os::unix::fs::MetadataExt;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};

use nix::sys::signal::Signal;
use wcprof_testkit::{
    Engine, RemoteProcess, Reply, StoredProfile, TestStore, Variant, assert_fails, copy_program,
    fixture, has_capability, read_trace, skip, wcprof,
};

use crate::said::Said;

/// Threads of a target: sleepers and the first one.
const N_THREADS: i64 = 21;
const INTERVAL: i64 = 1_000_000_000;
/// What is waited for is among so many.
const MAX_REQUESTS: usize = 120;

fn start(engine: Engine, store: &TestStore, folder: &Path, name: &str) -> Said {
    let config = folder.join("agent.toml");
    let text = format!(
        "name = [\"{name}\"]\nstore = \"{}\"\ninterval = \"1s\"\nrate = 49\nmax-cpu = 100\n\
         idle = true\nlabel = \"cluster=test\"\nlisten = \"127.0.0.1:0\"\nengine = \"{}\"\n",
        store.url,
        engine.name()
    );
    std::fs::write(&config, text).expect("the folder is there");
    Said::by(
        wcprof()
            .arg("agent")
            .arg("--config")
            .arg(&config)
            .arg("--state-dir")
            .arg(folder),
    )
}

/// A profile that the store has.
struct Got(StoredProfile);

impl Got {
    /// Whether it is of a whole interval: the clock of the day may have been corrected meanwhile.
    fn is_whole(&self) -> bool {
        (self.0.pprof.duration_nanos - INTERVAL).abs() < INTERVAL / 50
    }

    fn label(&self, name: &str) -> &str {
        &self.0.labels[name]
    }

    /// Wall-clock time.
    fn sum(&self) -> i64 {
        self.0.sums["wall"]
    }

    /// Wall-clock time below a function.
    fn time_in(&self, function: &str) -> i64 {
        let profile = &self.0.pprof;
        let is_in = |id: &u64| {
            let lines = &profile.location[*id as usize - 1].line;
            let mut functions = lines
                .iter()
                .map(|line| &profile.function[line.function_id as usize - 1]);
            functions.any(|of| profile.text(of.name) == function)
        };
        let samples = profile.sample.iter();
        let inside = samples.filter(|sample| sample.location_id.iter().any(is_in));
        inside.map(|sample| sample.value[1]).sum()
    }
}

/// Profiles until one satisfies.
fn until(store: &TestStore, all: &mut Vec<Got>, mut is_last: impl FnMut(&Got) -> bool) {
    for _ in 0..MAX_REQUESTS {
        let request = store.next();
        assert_eq!(request.path, "/push.v1.PusherService/Push");
        if request.status != 200 {
            continue;
        }
        let mut found = false;
        for got in request.stored.into_iter().map(Got) {
            let is_new = all.iter().all(|known| known.0.id != got.0.id);
            assert!(is_new, "a profile came twice");
            assert_eq!(got.label("__name__"), "process_cpu");
            assert_eq!(got.label("cluster"), "test");
            found |= is_last(&got);
            all.push(got);
        }
        if found {
            return;
        }
    }
    let seen: Vec<_> = all
        .iter()
        .map(|got| (got.0.pprof.duration_nanos, got.sum()))
        .collect();
    panic!("not among {MAX_REQUESTS} requests: {seen:?}");
}

/// The program of `split_sleep.c`, copied to a folder under a name that no other process has.
fn sleeper(folder: &Path, name: &str) -> PathBuf {
    let program = folder.join(name);
    copy_program(
        &fixture("split_sleep.c", Variant::NoFramePointers),
        &program,
    );
    program
}

/// One interval of a service begins where the last one ends. They come in any order: one that was refused comes later.
fn assert_gapless(all: &mut [Got], service: &str) {
    for got in &*all {
        assert_eq!(got.label("service_name"), service);
    }
    all.sort_by_key(|got| got.0.pprof.time_nanos);
    for pair in all.windows(2) {
        let gap = pair[1].0.pprof.time_nanos - pair[0].0.end();
        assert!(gap.abs() < 1_000_000, "{gap} ns between intervals");
    }
}

/// Check a minute of the agent with its own rate and limits on the workload of `attach --demo`: intervals without a
/// gap, each with its waits.
#[test]
fn minute_of_demo() {
    let folder = tempfile::tempdir().expect("temporary folder");
    let mut demo = wcprof();
    demo.args(["attach", "--demo", "-d", "1h", "-o", "demo.wct"]);
    let demo = Said::by(demo.current_dir(folder.path()));
    demo.line("workload runs");
    let store = TestStore::start(|| Reply::AsReal);
    let mut agent = wcprof();
    agent.args(["agent", "--name", "demo-osd", "--interval", "10s"]);
    agent.args(["--listen", "none", "--label", "cluster=test"]);
    agent.args(["--store", &store.url, "--state-dir"]);
    let agent = Said::by(agent.arg(folder.path()));
    let mut all: Vec<Got> = Vec::new();
    let mut length = 0;
    until(&store, &mut all, |got| {
        length += got.0.pprof.duration_nanos;
        length >= 60 * INTERVAL
    });
    assert_gapless(&mut all, "wcprof-crypto");
    // Its pool of eight waits for one lock most of the time.
    assert!(all.iter().all(|got| got.sum() > got.0.pprof.duration_nanos));
    assert_eq!(agent.end_by(Signal::SIGTERM), Some(0));
    assert_eq!(demo.end_by(Signal::SIGTERM), Some(0));
}

/// Check that `--check` says what the store would get of a process: one pool that sleeps, and one that is idle or runs.
#[test]
fn check_measures() {
    let folder = tempfile::tempdir().expect("temporary folder");
    let program = sleeper(folder.path(), "measured");
    let target = RemoteProcess::start(&program);
    let mut check = wcprof();
    check.args(["agent", "--check", "--name", "measured", "--interval", "2s"]);
    let output = check.output().expect("wcprof starts");
    let said = String::from_utf8_lossy(&output.stdout);
    assert_eq!(output.status.code(), Some(0), "{output:?}");
    let row = said.lines().rfind(|line| line.ends_with("  measured"));
    let row = row.unwrap_or_else(|| panic!("{said}"));
    let [series, samples, kilobytes] = [0, 1, 2].map(|at| {
        let word = row.split_whitespace().nth(at);
        word.and_then(|word| word.parse::<f64>().ok())
            .expect("a number")
    });
    // Both functions that sleep, of one pool in one state.
    assert!(series >= 1.0 && samples >= 2.0 && kilobytes > 0.3, "{said}");
    assert!(said.contains("4194 kB, 16000"), "{said}");
    drop(target);
}

/// Check that of two processes that say that they are one OSD the system's keeps the name, and the profiles of the one of a
/// user without rights are another series.
#[test]
fn one_name_for_two() {
    if !has_capability() {
        return skip("agent::one_name_for_two", "needs root for another user");
    }
    let named = |uid: u32| {
        let mut command = Command::new("/bin/sh");
        // It waits for input.
        command.args(["-c", "read line", "--id", "987654"]);
        let child = command.arg0("ceph-osd").uid(uid).stdin(Stdio::piped());
        child.spawn().expect("sh starts")
    };
    let mut both = [named(0), named(65_534)];
    let pids = both.each_ref().map(Child::id);
    let folder = tempfile::tempdir().expect("temporary folder");
    let store = TestStore::start(|| Reply::AsReal);
    let mut agent = wcprof();
    agent.args(["agent", "--osd", "987654", "--interval", "1s", "--idle"]);
    agent.args(["--listen", "none", "--label", "cluster=test", "--store"]);
    let agent = Said::by(agent.arg(&store.url).arg("--state-dir").arg(folder.path()));
    agent.line(&format!(
        "pid {} (uid 65534) says that it is osd.987654",
        pids[1]
    ));
    let mut n_doubtful = 0;
    let mut all = Vec::new();
    until(&store, &mut all, |got| {
        assert_eq!(got.label("daemon"), "osd.987654");
        n_doubtful += usize::from(got.0.labels.contains_key("doubtful"));
        n_doubtful == 3
    });
    // As many of the other, but for the interval that is being sent.
    let doubtful = format!("pid {}", pids[1]);
    let of_doubtful = |got: &&Got| got.0.labels.get("doubtful") == Some(&doubtful);
    assert_eq!(all.iter().filter(of_doubtful).count(), 3);
    assert!(all.len() >= 5, "{}", all.len());
    assert_eq!(agent.end_by(Signal::SIGTERM), Some(0));
    for child in &mut both {
        drop(child.stdin.take());
        child.wait().expect("it ends");
    }
}

/// Check that processes of a user without rights do not displace one of another user where there is no room for all, and
/// that those left out are counted and named.
#[test]
fn too_many_of_one() {
    if !has_capability() {
        return skip("agent::too_many_of_one", "needs root for another user");
    }
    let osd = |id: u32, uid: u32| {
        let mut command = Command::new("/bin/sh");
        // It waits for input.
        command.args(["-c", "read line", "--id", &id.to_string()]);
        let child = command.arg0("ceph-osd").uid(uid).stdin(Stdio::piped());
        child.spawn().expect("sh starts")
    };
    let mut all: Vec<Child> = (0..60).map(|n| osd(876_000 + n, 65_534)).collect();
    let folder = tempfile::tempdir().expect("temporary folder");
    let store = TestStore::start(|| Reply::AsReal);
    // Room for 50.
    let mut agent = Command::new("prlimit");
    agent.arg("--nofile=400").arg(wcprof().get_program());
    agent.args(["agent", "--osd", "876*", "--interval", "1s", "--idle"]);
    agent.args(["--max-cpu", "100", "--listen", "none", "--store"]);
    agent.arg(&store.url).arg("--state-dir").arg(folder.path());
    let agent = Said::by(&mut agent);
    agent.line("10 processes are not recorded beside 50 that are: 10 of uid 65534, such as pid");
    agent.line("recording 50 processes");
    let real = osd(876_999, 0);
    agent.line(&format!("found osd.876999 (pid {})", real.id()));
    agent.line("recording 50 processes");
    all.push(real);
    let mut n_of_real = 0;
    for _ in 0..40 * MAX_REQUESTS {
        let stored = store.next().stored.into_iter();
        n_of_real += stored
            .filter(|profile| profile.labels["daemon"] == "osd.876999")
            .count();
        if n_of_real == 2 {
            break;
        }
    }
    assert_eq!(n_of_real, 2);
    assert_eq!(agent.end_by(Signal::SIGTERM), Some(0));
    for child in &mut all {
        drop(child.stdin.take());
        child.wait().expect("it ends");
    }
}

/// Check that a second agent is refused the state folder of the first one.
#[test]
fn state_folder() {
    let folder = tempfile::tempdir().expect("temporary folder");
    let agent = || {
        let mut agent = wcprof();
        agent.args(["agent", "--name", "no-such-program", "--listen", "none"]);
        agent.arg("--state-dir").arg(folder.path());
        agent
    };
    let first = Said::by(&mut agent());
    first.line("a profile of each process");
    let second = agent().output().expect("wcprof starts");
    assert_fails(
        &second,
        1,
        &["another agent uses the state folder", "--state-dir"],
    );
    assert_eq!(first.end_by(Signal::SIGTERM), Some(0));
}

/// Check that the journal has why an agent does not start as one line of the level of errors, and that the exit code is the one
/// after which the unit starts it no more.
#[test]
fn refused_configuration() {
    let folder = tempfile::tempdir().expect("temporary folder");
    let [config, journal] = ["agent.toml", "journal"].map(|name| folder.path().join(name));
    std::fs::write(&config, "what = 1\n").expect("a configuration");
    let written = std::fs::File::create(&journal).expect("a file");
    let about = written.metadata().expect("its inode");
    let status = wcprof()
        .args(["agent", "--config"])
        .arg(&config)
        .env("JOURNAL_STREAM", format!("{}:{}", about.dev(), about.ino()))
        .stderr(written)
        .status()
        .expect("wcprof starts");
    assert_eq!(status.code(), Some(2));
    let said = std::fs::read_to_string(&journal).expect("lines");
    assert!(said.starts_with("<3>in `"), "{said}");
    assert!(
        said.contains("--what") && said.lines().count() == 1,
        "{said}"
    );
}

/// Check that SIGTERM ends an agent whose store answers nobody, amid a storm of SIGHUP.
#[test]
fn hangups() {
    let folder = tempfile::tempdir().expect("temporary folder");
    let program = sleeper(folder.path(), "hangups");
    let target = RemoteProcess::start(&program);
    let store = TestStore::start(|| Reply::Hang);
    let agent = start(Engine::ProcfsOnly, &store, folder.path(), "hangups");
    agent.line("engine procfs-only");
    // It is asked, and does not answer.
    store.next();
    for _ in 0..100 {
        agent.signal(Signal::SIGHUP);
    }
    assert_eq!(agent.end_by(Signal::SIGTERM), Some(0));
    // What the store may have does not wait any more.
    let again = TestStore::start(|| Reply::AsReal);
    let agent = start(Engine::ProcfsOnly, &again, folder.path(), "hangups");
    agent.line("an earlier agent ended while it sent 1 requests");
    assert_eq!(agent.end_by(Signal::SIGTERM), Some(0));
    drop(target);
}

/// Open files of a process.
fn n_descriptors(pid: i32) -> usize {
    std::fs::read_dir(format!("/proc/{pid}/fd")).map_or(0, Iterator::count)
}

/// The answer of an agent that serves its figures at this address.
fn figures(address: &str) -> String {
    let mut connection = TcpStream::connect(address).expect("it listens");
    write!(connection, "GET /metrics HTTP/1.0\r\n\r\n").expect("it reads");
    let mut answer = String::new();
    connection.read_to_string(&mut answer).expect("it answers");
    answer
}

/// Check that a process which is started anew as often as that goes leaves no descriptors in the agent and no figures of its own, and
/// that the other one has a profile of each interval.
#[test]
fn restarts() {
    let folder = tempfile::tempdir().expect("temporary folder");
    let name = "restarts-often";
    let program = sleeper(folder.path(), name);
    let other = RemoteProcess::start(&program);
    let store = TestStore::start(|| Reply::AsReal);
    let agent = start(Engine::ProcfsOnly, &store, folder.path(), name);
    let address = agent.line("figures are at http://");
    let address = address
        .split("//")
        .nth(1)
        .and_then(|at| at.strip_suffix("/metrics"));
    agent.line("recording 1 processes");
    let mut all = Vec::new();
    let mut n_whole = 0;
    until(&store, &mut all, |got| {
        n_whole += i64::from(got.is_whole());
        n_whole == 2
    });
    let before = n_descriptors(agent.worker());
    let short = std::thread::spawn(move || {
        for _ in 0..500 {
            let mut child = Command::new(&program);
            let child = child.stdin(Stdio::piped()).stdout(Stdio::null());
            let mut child = child.spawn().expect("it starts");
            std::thread::sleep(std::time::Duration::from_millis(10));
            drop(child.stdin.take());
            child.wait().expect("it ends");
        }
    });
    while !short.is_finished() {
        until(&store, &mut all, |_| true);
    }
    short.join().expect("no panic");
    let mut n_alone = 0;
    until(&store, &mut all, |got| {
        n_alone += i64::from(got.is_whole() && got.sum() > 20 * INTERVAL);
        n_alone == 3
    });
    wcprof_testkit::wait_until("descriptors of processes that ended are closed", || {
        (n_descriptors(agent.worker()) <= before + 8).then_some(())
    });
    let figures = figures(address.expect("an address"));
    let observed = figures
        .lines()
        .filter(|line| line.starts_with("wcprof_observations_total{"));
    let observed: Vec<_> = observed.collect();
    let of_name = format!("wcprof_observations_total{{target=\"{name}\"}} ");
    assert!(
        matches!(&*observed, [one] if one.starts_with(&of_name)),
        "{observed:?}"
    );
    assert_eq!(agent.end_by(Signal::SIGTERM), Some(0));
    // Those that restart have little time.
    all.retain(|got| got.sum() > 15 * INTERVAL);
    assert_gapless(&mut all, name);
    drop(other);
}

/// A process whose thread waits on a stack in userfaultfd memory: nobody who reads it gets an answer.
pub(crate) fn one_is_silent(engine: Engine) {
    if !has_capability() {
        return skip("agent::one_is_silent", "needs root for userfaultfd");
    }
    let folder = tempfile::tempdir().expect("temporary folder");
    // That of another engine's test finds its own.
    let name = &*format!("silent-{}", engine.name());
    let copy = |from: &'static str, to: &str| {
        let program = folder.path().join(to).join(name);
        std::fs::create_dir(folder.path().join(to)).expect("the folder is there");
        copy_program(&fixture(from, Variant::NoFramePointers), &program);
        program
    };
    let store = TestStore::start(|| Reply::AsReal);
    let other = RemoteProcess::start(&copy("split_sleep.c", "other"));
    let mut silent = Command::new(copy("silent.c", "silent"));
    let mut silent = RemoteProcess::start_command(silent.args(["stack", "-"]));
    silent.send_line("SILENCE");
    silent.answer("MARK");
    let agent = start(engine, &store, folder.path(), name);
    agent.line(&format!("pid {} is left out for ten minutes", silent.pid()));
    agent.line("recording 1 processes");
    // Whole intervals of the other one, which all begin after that.
    let mut n_whole = 0;
    until(&store, &mut Vec::new(), |got| {
        n_whole += i64::from(got.is_whole() && got.time_in("wait_seven") > INTERVAL);
        n_whole == 3
    });
    assert_eq!(agent.end_by(Signal::SIGTERM), Some(0));
    drop((silent, other));
}

pub(crate) fn follows(engine: Engine) {
    let folder = tempfile::tempdir().expect("temporary folder");
    let name = "agent-target";
    let program = sleeper(folder.path(), name);
    let mut n = 0;
    let store = TestStore::start(move || {
        n += 1;
        // Then there is no gap until it comes again.
        if n == 1 {
            Reply::Status(503)
        } else {
            Reply::AsReal
        }
    });
    let first = RemoteProcess::start(&program);
    let agent = start(engine, &store, folder.path(), name);
    let mut all = Vec::new();
    let mut n_whole = 0;
    // A profile does not wait long for names: the first ones may lack some.
    let has_names = |got: &Got| {
        let functions = ["wait_three", "wait_seven"];
        functions
            .into_iter()
            .all(|function| got.time_in(function) > 0)
    };
    until(&store, &mut all, |got| {
        n_whole += i64::from(got.is_whole() && has_names(got));
        n_whole == 3
    });
    // One interval begins at a whole second, and has all time of all threads.
    assert_gapless(&mut all, name);
    for got in all.iter().filter(|got| got.is_whole()) {
        let off = (got.0.end() + INTERVAL / 2) % INTERVAL - INTERVAL / 2;
        assert!(off.abs() < 50_000_000, "{off} ns off");
        // It ends at a tick, which may be late.
        let missing = N_THREADS * got.0.pprof.duration_nanos - got.sum();
        assert!(
            missing.abs() < N_THREADS * INTERVAL / 100,
            "{missing} ns missing"
        );
    }
    let named = all.iter().filter(|got| got.is_whole() && has_names(got));
    let time_in = |function| named.clone().map(|got| got.time_in(function)).sum::<i64>();
    let (seven, three) = (time_in("wait_seven"), time_in("wait_three"));
    assert!(
        seven > three && three > 3 * INTERVAL,
        "{seven} and {three} ns"
    );
    agent.signal(Signal::SIGUSR1);
    agent.line("agent-1.wct");
    let (trace, _) = read_trace(&folder.path().join("agent-1.wct"));
    assert_eq!(trace.tables.processes.len(), 1);

    let second = RemoteProcess::start(&program);
    agent.line(&format!("pid {}", second.pid()));
    let mut of_both = 0;
    until(&store, &mut all, |got| {
        // Two processes, two profiles: a full one for each second.
        of_both += i64::from(got.is_whole() && got.sum() > 20 * INTERVAL);
        of_both >= 6
    });
    drop((first, second));
    agent.line("all processes have ended");
    let third = RemoteProcess::start(&program);
    agent.line("recording 1 processes");
    let begin = all.iter().map(|got| got.0.end()).max().expect("some");
    until(&store, &mut all, |got| {
        got.0.pprof.time_nanos >= begin && got.sum() > INTERVAL
    });
    agent.signal(Signal::SIGHUP);
    agent.line("reloaded");
    agent.line("recording 1 processes");
    assert_eq!(agent.end_by(Signal::SIGTERM), Some(0));
    drop(third);
    let spool = std::fs::read_dir(folder.path().join("spool")).expect("the spool");
    assert_eq!(spool.count(), 0);
}
