//! Several processes in one recording.

use std::fs::{self, Permissions};
use std::os::unix::fs::PermissionsExt as _;
use std::os::unix::process::CommandExt as _;
use std::process::Command;

use nix::sys::signal::Signal;
use wcprof_trace::Ending;
use wcprof_trace::model::Trace;
use wcprof_types::StackEnd;

use crate::said::Said;
use wcprof_testkit::{
    Attach, Engine, Recording, RemoteProcess, Variant, fixture, has_capability, interrupt,
    read_trace, skip, text, thread_ids, wait_for_a_second, wait_for_trace, wait_for_write,
    wait_until, wcprof, worker,
};

fn start(program: &'static str) -> RemoteProcess {
    RemoteProcess::start(&fixture(program, Variant::NoFramePointers))
}

/// Observed time of the threads of a process, ns, by its place in the trace.
fn observed(trace: &Trace, process: usize) -> Vec<u64> {
    let threads = trace.tables.threads.iter();
    threads
        .filter(|t| t.process.0 as usize == process && t.tid.0 != 0)
        .map(|t| t.end.0 - t.start.0)
        .collect()
}

/// Why and when the part of a process ended, if it ended before the recording.
fn end_of(trace: &Trace, process: usize) -> Option<(&str, u64)> {
    let ends = trace.tables.origins.process_ends.iter();
    let mut ends = ends.filter(|(id, _)| id.0 as usize == process);
    ends.next()
        .map(|(_, end)| (end.reason.as_str(), end.time.0))
}

pub(crate) fn several(engine: Engine) {
    let (waiters, sleepers) = (start("eintr.c"), start("split_sleep.c"));
    let recording = Attach::new(engine, waiters.pid())
        .and(sleepers.pid())
        .and(waiters.pid())
        .seconds(2.0)
        .run();
    recording.assert_sound(engine);
    let (trace, _) = recording.trace();
    let pids: Vec<i32> = trace.tables.processes.iter().map(|p| p.pid.0).collect();
    assert_eq!(pids, [waiters.pid(), sleepers.pid()], "each once, in order");
    assert!(trace.tables.origins.process_ends.is_empty());
    // Ten waiters and the main thread; all of each for the whole time.
    assert_eq!(observed(&trace, 0).len(), 11);
    for process in [0, 1] {
        let whole = trace.tables.stats.duration.0;
        for ns in observed(&trace, process) {
            assert!(
                ns > whole - 300_000_000,
                "process {process}: observed for {ns} of {whole} ns"
            );
        }
    }
    let folded = recording.folded();
    let waiting = folded.thread("waiter").waits();
    assert!(waiting.chain(&["waiter", "epoll_wait"]).share_of(&waiting) > 0.99);
    let sleeping = folded.chain(&["wait_seven"]);
    assert!(sleeping.total() > 500_000, "{}", folded.show());
    let text = recording.report(&["--by", "process"]);
    for pid in pids {
        assert!(text.contains(&format!("(pid {pid})")), "{text}");
    }
}

pub(crate) fn crowd(engine: Engine) {
    let target = start("crowd.c");
    let recording = Attach::new(engine, target.pid()).seconds(3.0).run();
    let (trace, _) = recording.trace();
    let threads = observed(&trace, 0);
    assert_eq!(threads.len(), 1001);
    assert!(threads.iter().all(|&ns| ns > 0), "{threads:?}");
    // They were not born in the recording: none is observed for longer than it.
    let whole = trace.tables.stats.duration.0;
    assert!(threads.iter().all(|&ns| ns <= whole), "{whole} {threads:?}");
    let waiting = recording.folded().chain(&["one_of_many"]);
    assert!(waiting.total() > 0, "{}", waiting.show());
}

pub(crate) fn one_exits(engine: Engine) {
    let (mut going, staying) = (start("eintr.c"), start("eintr.c"));
    let attach = Attach::new(engine, going.pid()).and(staying.pid());
    let recording = attach.run_around(|| assert!(going.close().success()));
    recording.assert_sound(engine);
    let (trace, _) = recording.trace();
    let (reason, time) = end_of(&trace, 0).expect("one has left");
    assert_eq!(reason, "exited");
    assert_eq!(end_of(&trace, 1), None);
    let whole = trace.tables.stats.duration.0;
    assert!(time < whole - 400_000_000, "left at {time} of {whole} ns");
    let (gone, stayed) = (observed(&trace, 0), observed(&trace, 1));
    assert_eq!((gone.len(), stayed.len()), (11, 11));
    assert!(
        gone.iter().all(|ns| *ns > 300_000_000 && *ns <= time),
        "{gone:?}"
    );
    assert!(
        stayed.iter().all(|ns| *ns > whole - 300_000_000),
        "{stayed:?}"
    );
    // Names are found although it is gone.
    let waiting = recording.folded().thread("waiter").waits();
    assert!(waiting.chain(&["waiter"]).share_of(&waiting) > 0.99);
}

pub(crate) fn one_execs(engine: Engine) {
    let (mut changing, staying) = (start("exec.c"), start("eintr.c"));
    let attach = Attach::new(engine, changing.pid()).and(staying.pid());
    let recording = attach.run_around(|| {
        changing.send_line("EXEC");
        changing.answer("EXECED");
    });
    recording.assert_sound(engine);
    let (trace, _) = recording.trace();
    assert_eq!(end_of(&trace, 0).map(|(reason, _)| reason), Some("exec"));
    assert_eq!(end_of(&trace, 1), None);
    assert_eq!(
        trace.tables.processes.len(),
        2,
        "what it runs now was not asked for"
    );
    let folded = recording.folded();
    let before = folded.thread("before-exec").waits();
    assert!(before.chain(&["sleep_before_exec"]).share_of(&before) > 0.99);
}

pub(crate) fn children(engine: Engine) {
    let mut parent = start("fork.c");
    let pid = parent.pid();
    let mut begin = |command: &str| {
        parent.send_line(command);
        let pid = parent.answer("STARTED").get("pid").copied();
        parent.answer("MARK");
        pid.expect("a pid") as i32
    };
    let mut started = vec![begin("FORK")];
    let attach = Attach::new(engine, pid).flags(&["--children"]);
    let recording = attach.run_around(|| started.extend(["FORK", "EXEC"].map(begin)));
    recording.assert_sound(engine);
    let (trace, _) = recording.trace();
    let folded = recording.folded();
    let pids: Vec<i32> = trace.tables.processes.iter().map(|p| p.pid.0).collect();
    for pid in started {
        assert!(pids.contains(&pid), "{pid} is not among {pids:?}");
    }
    let whole = trace.tables.stats.duration.0 / 1000;
    let of = |comm: &str, function: &str| folded.thread(comm).chain(&[function]).total();
    // One for the whole time, one for its second half.
    let children = of("child", "child_sleep");
    assert!(
        children > whole + 400_000,
        "{children} us:\n{}",
        folded.show()
    );
    let other = of("other", "other_sleep");
    assert!(other > 400_000, "{other} us:\n{}", folded.show());
}

/// Check that a limit of CPU time is kept where without it three times as much is taken.
#[test]
fn limited() {
    let target = start("crowd.c");
    let folder = tempfile::tempdir().expect("temporary folder");
    let trace = folder.path().join("t.wct");
    let output = wcprof()
        .args(["attach", &target.pid().to_string(), "-d", "3s", "-o"])
        .arg(&trace)
        .args(["--engine", "procfs-only", "--max-cpu", "10", "--raw"])
        .output()
        .expect("wcprof starts");
    let said = text(&output.stderr);
    assert_eq!(output.status.code(), Some(0), "{said}");
    let stats = read_trace(&trace).0.tables.stats;
    let share = stats.own_cpu_ns as f64 / stats.duration.0 as f64;
    assert!(share < 0.2, "{share}");
}

/// Check that the sampler gives up its real-time priority where ticks take long, and that this is said.
#[test]
fn slow_ticks() {
    if !has_capability() {
        return skip("slow_ticks", "needs root for a real-time priority");
    }
    let target = start("crowd.c");
    let attach = Attach::new(Engine::ProcfsOnly, target.pid());
    let (child, folder) = attach.seconds(0.0).spawn();
    wait_for_trace(&folder);
    wait_for_a_second(&folder);
    let mut threads = thread_ids(worker(&child)).into_iter();
    let sampler = threads.find(|(_, name)| name == "wcprof-sampler");
    let sampler = sampler.expect("it runs").0;
    assert_eq!(policy(sampler), Some(SCHED_OTHER));
    interrupt(&child);
    let recording = Recording::finish(child, folder);
    let said = recording.said();
    assert!(said.contains("gave up its real-time priority"), "{said}");
}

/// `include/uapi/linux/sched.h`.
const SCHED_OTHER: i32 = 0;

/// How a thread is scheduled.
fn policy(tid: i32) -> Option<i32> {
    let stat = fs::read_to_string(format!("/proc/{tid}/stat")).ok()?;
    let after_name = stat.rsplit_once(") ")?.1;
    after_name.split(' ').nth(38)?.parse().ok()
}

/// Starts so many programs, 20 at a time, each long enough that it is noticed.
const SHORT_LIVED: &str = "echo READY; while read n; do
    while [ $n -gt 0 ]; do for i in 1 2 3 4 5 6 7 8 9 10 11 12 13 14 15 16 17 18 19 20; do sleep 0.1 & done; wait; n=$((n - 20)); done
    echo DONE; done";

/// Open files and memory (KiB) of a process that records; it may be a child of the one that was started.
fn held(wcprof: i32) -> (usize, u64) {
    let n_files =
        |pid: i32| fs::read_dir(format!("/proc/{pid}/fd")).map_or(0, |files| files.count());
    let pids = wcprof_testkit::children(wcprof).into_iter().chain([wcprof]);
    let pid = pids.max_by_key(|pid| n_files(*pid)).unwrap_or(wcprof);
    let status = fs::read_to_string(format!("/proc/{pid}/status")).unwrap_or_default();
    let line = status.lines().find_map(|l| l.strip_prefix("RssAnon:"));
    let kib = line.and_then(|l| l.split_ascii_whitespace().next()?.parse().ok());
    (n_files(pid), kib.expect("wcprof runs"))
}

pub(crate) fn short_lived(engine: Engine) {
    let mut shell = RemoteProcess::start_command(Command::new("sh").args(["-c", SHORT_LIVED]));
    let attach = Attach::new(engine, shell.pid()).flags(&["--children", "--raw"]);
    let attach = attach.limit("--nofile=1024");
    let (child, folder) = attach.seconds(0.0).spawn();
    wait_for_trace(&folder);
    let n_folded = |trace: &Trace| trace.tables.origins.folded.values().sum::<u32>();
    // A process that ends before wcprof gets a CPU is not seen.
    let mut until = |n: u32| {
        let mut round = || {
            shell.send_line("200");
            shell.answer("DONE");
            wait_for_write(&folder);
            let so_far = read_trace(&folder.path().join("test.wct")).0;
            (n_folded(&so_far) >= n).then_some(())
        };
        let mut rounds = (0..100).filter_map(|_| round());
        rounds.next().expect("processes are folded");
        // All have ended; on a busy machine it notices that later.
        wait_until("descriptors of processes that ended are closed", || {
            let now = held(child.id() as i32);
            (now.0 < 300).then_some(now)
        })
    };
    let (first, later) = (until(1), until(400));
    interrupt(&child);
    let recording = Recording::finish(child, folder);
    let (trace, _) = recording.trace();
    let n = trace.tables.processes.len();
    assert!(n < 150, "{n} processes in the trace");
    assert!(
        later.1 < first.1 + 20_000,
        "{later:?} descriptors and KiB, before {first:?}"
    );
    let said = recording.said();
    assert!(!said.contains("replaced"), "{said}");
    let by_process = recording.report(&["--by", "process"]);
    assert!(by_process.contains("sleep \u{d7}"), "{by_process}");
}

/// Runs so many programs one after the other in each of four children.
const EXEC_STORM: &str =
    "echo READY; export S='[ $0 -gt 0 ] && exec sh -c \"$S\" $(($0 - 1)); exit 0'
    while read n; do for i in 1 2 3 4; do sh -c \"$S\" $n & done; wait; echo DONE; done";

pub(crate) fn exec_storm(engine: Engine) {
    let mut shell = RemoteProcess::start_command(Command::new("sh").args(["-c", EXEC_STORM]));
    let other = start("split_sleep.c");
    let attach = Attach::new(engine, shell.pid()).and(other.pid());
    let attach = attach.flags(&["--children", "--raw"]);
    let (child, folder) = attach.limit("--nofile=1024").seconds(0.0).spawn();
    wait_for_trace(&folder);
    let mut storm = |n: u32| {
        shell.send_line(&n.to_string());
        shell.answer("DONE");
        wait_for_write(&folder);
        // Programs that have gone are noticed later on a busy machine.
        wait_until("descriptors of programs that have gone are closed", || {
            let now = held(child.id() as i32);
            (now.0 < 300).then_some(now)
        })
    };
    // Files of programs and what they make are known after the first.
    storm(50);
    let (first, later) = (storm(100), storm(200));
    wait_for_a_second(&folder);
    interrupt(&child);
    let recording = Recording::finish(child, folder);
    assert!(
        later.1 < first.1 + 20_000,
        "{later:?} descriptors and KiB, before {first:?}"
    );
    let (trace, ending) = recording.trace();
    assert_eq!(ending, Ending::Clean);
    let processes = &trace.tables.processes;
    assert!(processes.len() < 150, "{} processes", processes.len());
    let place = processes.iter().position(|p| p.pid.0 == other.pid());
    let whole = trace.tables.stats.duration.0;
    let threads = observed(&trace, place.expect("it is recorded"));
    assert_eq!(threads.len(), 21);
    let is_whole = |ns: &u64| *ns > whole - 300_000_000;
    assert!(threads.iter().all(is_whole), "{whole} {threads:?}");
}

/// Starts so many programs, and ends them.
const LASTING: &str = "echo READY; read n; started=
    while [ $n -gt 0 ]; do sleep 300 & started=\"$started $!\"; n=$((n - 1)); done
    echo DONE; read x; kill $started; wait; echo GONE";

/// Check that processes beyond those that can be recorded at once are said, of a recording and of a flight recorder.
#[test]
#[ignore = "long: with --full; a thousand processes disturb other tests"]
fn beyond_the_limit() {
    const SAID: &str = "processes that started during the recording could not be recorded";
    if !has_capability() {
        return skip(
            "beyond_the_limit",
            "needs root: this user may have too few processes",
        );
    }
    let begin = || RemoteProcess::start_command(Command::new("sh").args(["-c", LASTING]));
    let start_many = |shell: &mut RemoteProcess, n: u32| {
        shell.send_line(&n.to_string());
        shell.answer("DONE");
    };
    let end = |mut shell: RemoteProcess| {
        shell.send_line("");
        shell.answer("GONE");
    };
    let limits = [("--nofile=1024", 300, 100), ("--nofile=20000", 1040, 1024)];
    for (limit, n_started, n_taken) in limits {
        let mut shell = begin();
        let attach = Attach::new(Engine::ProcfsOnly, shell.pid()).seconds(0.0);
        let attach = attach.flags(&["--children", "--raw"]);
        let (child, folder) = attach.limit(limit).spawn();
        wait_for_trace(&folder);
        start_many(&mut shell, n_started);
        let worker = worker(&child);
        wait_until("it takes no more processes", || {
            let files = fs::read_dir(format!("/proc/{worker}/fd")).ok()?.flatten();
            let links = files.filter_map(|file| fs::read_link(file.path()).ok());
            let pidfds = links.filter(|link| link.to_string_lossy().contains("pidfd"));
            (pidfds.count() >= n_taken).then_some(())
        });
        wait_for_a_second(&folder);
        interrupt(&child);
        let recording = Recording::finish(child, folder);
        recording.assert_sound(Engine::ProcfsOnly);
        let said = recording.said();
        assert!(
            said.contains(SAID) && !said.contains("open files"),
            "{said}"
        );
        end(shell);
    }

    let mut shell = begin();
    let folder = tempfile::tempdir().expect("temporary folder");
    let attach = Attach::new(Engine::ProcfsOnly, shell.pid()).seconds(0.0);
    let mut command = attach.command(&folder.path().join("a.wct"));
    let flight = Said::by(command.args(["--children", "--raw", "--keep", "2s"]));
    flight.line("Ctrl-C writes them and ends");
    start_many(&mut shell, 1040);
    // A file may be written before it is noticed.
    let written = || {
        flight.signal(Signal::SIGUSR1);
        flight.next_line()
    };
    while !written().contains(SAID) {}
    flight.line("wrote ");
    flight.signal(Signal::SIGINT);
    flight.line(SAID);
    end(shell);
}

/// Check that a process of another user which maps more files with code than RLIMIT_NOFILE permits hinders no recording of
/// others, whose stacks are whole, and that it is said which process it is.
pub(crate) fn maps_more_than_may_be_open(engine: Engine) {
    const MAPS: &str = "
import mmap, os, sys
kept = []
for name in os.listdir(sys.argv[1]):
    fd = os.open(os.path.join(sys.argv[1], name), os.O_RDONLY)
    kept.append(mmap.mmap(fd, 4096, mmap.MAP_PRIVATE, mmap.PROT_READ | mmap.PROT_EXEC))
    os.close(fd)
print('READY', flush=True)
sys.stdin.read()
";
    let folder = tempfile::tempdir().expect("temporary folder");
    fs::set_permissions(folder.path(), Permissions::from_mode(0o755)).expect("its owner");
    let library = fixture("split_sleep.c", Variant::NoFramePointers);
    for n in 0..1500 {
        fs::copy(&library, folder.path().join(n.to_string())).expect("room for copies");
    }
    let mut maps = Command::new("python3");
    maps.args(["-c", MAPS]).arg(folder.path());
    let maps = match nix::unistd::geteuid().is_root() {
        true => RemoteProcess::start_command(maps.uid(65534)),
        false => return skip("other user", "only root can start programs as others"),
    };
    let good = start("eintr.c");
    let recording = Attach::new(engine, maps.pid())
        .and(good.pid())
        .limit("--nofile=1024")
        .seconds(1.0)
        .run();
    let said = text(&recording.output.stderr);
    assert!(recording.output.status.success(), "{said}");
    let (trace, _) = recording.trace();
    let tables = &trace.tables;
    let notes = &tables.header.notes;
    let named = format!("of which pid {} maps", maps.pid());
    let is_said = |note: &String| note.contains("RLIMIT_NOFILE of 1024") && note.contains(&named);
    assert!(notes.iter().any(is_said), "{notes:?}");
    let of_good = trace
        .spans
        .iter()
        .filter(|span| tables.threads[span.thread.0 as usize].process.0 == 1);
    let stacks = of_good.filter_map(|span| span.stack);
    let ends: Vec<_> = stacks
        .map(|stack| &tables.stacks[stack.0 as usize].end)
        .collect();
    assert!(!ends.is_empty());
    assert!(ends.iter().all(|end| **end == StackEnd::Root), "{ends:?}");
}
