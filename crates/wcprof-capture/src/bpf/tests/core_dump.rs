//! A process whose core dump takes long, with both ways to look at threads: run by `cargo xtask vmtest` alone, since it
//! changes where the kernel writes all core dumps.

use std::env;

use nix::sys::resource::{RLIM_INFINITY, Resource, setrlimit};
use wcprof_host::procfs::{list_threads, parse_task_state, stopped_threads};
use wcprof_types::StopCause;

use super::*;
use crate::TargetId;
use crate::engine::{BpfSnapshots, ProcfsSnapshots, SnapshotSet, Snapshots};

/// Set by the first process of the virtual machine, whose `/bin/dump` takes a core dump and never reads it.
const VMTEST: &str = "WCPROF_VMTEST";
/// Makes this program the one that dumps core, with this many MiB of memory.
const VICTIM: &str = "WCPROF_TEST_VICTIM";
/// `PF_DUMPCORE` of `stat`: the thread writes the dump.
const PF_DUMPCORE: u32 = 0x200;

/// No test: dumps core when a line comes.
#[test]
fn victim() {
    let Some(size) = env::var(VICTIM)
        .ok()
        .and_then(|mib| mib.parse::<usize>().ok())
    else {
        return;
    };
    setrlimit(Resource::RLIMIT_CORE, RLIM_INFINITY, RLIM_INFINITY).unwrap();
    let memory: Vec<u8> = (0..size << 20).map(|at| at as u8).collect();
    thread::spawn(thread::park);
    std::io::stdin().read_line(&mut String::new()).unwrap();
    assert_eq!(memory.len(), size << 20);
    std::process::abort();
}

/// Starts a victim, and both ways to look at it.
fn start(size: usize) -> (Child, [Box<dyn Snapshots>; 2]) {
    let child = Command::new(env::current_exe().unwrap())
        .args(["--exact", "bpf::tests::core_dump::victim", "--nocapture"])
        .env(VICTIM, size.to_string())
        .stdin(Stdio::piped())
        .spawn()
        .unwrap();
    let target = [(TargetId(0), Pid(child.id() as i32))];
    let mut engines: [Box<dyn Snapshots>; 2] = [
        Box::new(BpfSnapshots::new(&target, 100, false).unwrap()),
        Box::new(ProcfsSnapshots::new(&target, 100, false, Arc::default())),
    ];
    for engine in &mut engines {
        wait_for("three threads that run", || {
            let stops = stops(engine);
            (stops.len() >= 3 && stops.iter().all(|(_, stop)| stop.is_none())).then_some(())
        });
    }
    (child, engines)
}

/// What stops each thread.
fn stops(engine: &mut Box<dyn Snapshots>) -> Vec<(Tid, Option<StopCause>)> {
    let mut set = SnapshotSet {
        max_new: usize::MAX,
        ..SnapshotSet::default()
    };
    engine.want_full();
    engine.snapshot(&mut set, &mut Vec::new()).unwrap();
    let threads = set.threads.iter();
    threads.map(|thread| (thread.tid, thread.stop)).collect()
}

fn abort(child: &mut Child) {
    child.stdin.take().unwrap().write_all(b"\n").unwrap();
}

/// Check that all threads of a process are stopped while its core dump is written, also the one that writes it: where
/// nobody reads it, and where it is a file, so that the kernel writes all the time and its thread runs.
#[test]
fn core_dump() {
    if env::var_os(VMTEST).is_none() {
        return skip("changes the kernel's core_pattern: `cargo xtask vmtest` boots a machine");
    }
    unread();
    written();
}

fn unread() {
    fs::write("/proc/sys/kernel/core_pattern", "|/bin/dump").unwrap();
    let (mut child, mut engines) = start(1);
    let pid = Pid(child.id() as i32);
    abort(&mut child);
    for engine in &mut engines {
        wait_for("a core dump", || {
            let stops = stops(engine);
            let is_dump = |(_, stop): &(Tid, Option<StopCause>)| *stop == Some(StopCause::CoreDump);
            (stops.len() >= 3 && stops.iter().all(is_dump)).then_some(())
        });
    }
    wait_for("the same in /proc", || {
        let (causes, n_threads) = stopped_threads(pid);
        let dumps = causes.get(&StopCause::CoreDump)?;
        (dumps.n == n_threads).then_some(())
    });
    child.kill().unwrap();
    child.wait().unwrap();
}

/// The thread that runs and writes a dump, by its `stat`.
fn writer(pid: Pid) -> Option<Tid> {
    let tids = list_threads(pid).ok()?;
    tids.into_iter().find(|tid| {
        let stat = fs::read(format!("/proc/{pid}/task/{tid}/stat"));
        let state = stat.ok().and_then(|stat| parse_task_state(&stat));
        state.is_some_and(|(letter, flags)| letter == 'R' && flags & PF_DUMPCORE != 0)
    })
}

fn written() {
    fs::write("/proc/sys/kernel/core_pattern", "/wcprof-core").unwrap();
    let (mut child, mut engines) = start(160);
    let pid = Pid(child.id() as i32);
    let status = format!("/proc/{pid}/status");
    abort(&mut child);
    let mut n_looks = [0; 2];
    while child.try_wait().unwrap().is_none() {
        for (n, engine) in n_looks.iter_mut().zip(&mut engines) {
            let Some(tid) = writer(pid) else {
                continue;
            };
            let stops = stops(engine);
            // Still: its dump was being written all the while.
            if fs::read_to_string(&status).is_ok_and(|text| text.contains("CoreDumping:\t1")) {
                let stop = stops.into_iter().find(|(seen, _)| *seen == tid);
                assert_eq!(stop, Some((tid, Some(StopCause::CoreDump))));
                *n += 1;
            }
        }
    }
    assert!(n_looks.into_iter().all(|n| n > 0), "{n_looks:?}");
    for file in fs::read_dir("/").unwrap().flatten() {
        if file
            .file_name()
            .to_string_lossy()
            .starts_with("wcprof-core")
        {
            fs::remove_file(file.path()).unwrap();
        }
    }
}
