//! A process whose core dump takes long, with both ways to look at threads: run by `cargo xtask vmtest` alone, since it
//! changes where the kernel writes all core dumps.

use std::env;

use wcprof_host::procfs::stopped_threads;
use wcprof_types::StopCause;

use super::*;
use crate::TargetId;
use crate::engine::{BpfSnapshots, ProcfsSnapshots, SnapshotSet, Snapshots};

/// Set by the first process of the virtual machine, whose `/bin/dump` takes a core dump and never reads it.
const VMTEST: &str = "WCPROF_VMTEST";
/// Makes this program the one that dumps core.
const VICTIM: &str = "WCPROF_TEST_VICTIM";

/// No test: dumps core when a line comes.
#[test]
fn victim() {
    if env::var_os(VICTIM).is_some() {
        thread::spawn(thread::park);
        std::io::stdin().read_line(&mut String::new()).unwrap();
        std::process::abort();
    }
}

/// Check that all threads of a process are stopped while its core dump is written, also the one that writes it.
#[test]
fn core_dump() {
    if env::var_os(VMTEST).is_none() {
        return skip("changes the kernel's core_pattern: `cargo xtask vmtest` boots a machine");
    }
    fs::write("/proc/sys/kernel/core_pattern", "|/bin/dump").unwrap();
    let mut child = Command::new(env::current_exe().unwrap())
        .args(["--exact", "bpf::tests::core_dump::victim", "--nocapture"])
        .env(VICTIM, "1")
        .stdin(Stdio::piped())
        .spawn()
        .unwrap();
    let pid = Pid(child.id() as i32);
    let target = [(TargetId(0), pid)];
    let mut engines: [Box<dyn Snapshots>; 2] = [
        Box::new(BpfSnapshots::new(&target, 100, false).unwrap()),
        Box::new(ProcfsSnapshots::new(&target, 100, false, Arc::default())),
    ];
    let stops = |engine: &mut Box<dyn Snapshots>| {
        let mut set = SnapshotSet {
            max_new: usize::MAX,
            ..SnapshotSet::default()
        };
        engine.want_full();
        engine.snapshot(&mut set, &mut Vec::new()).unwrap();
        let stops = set.threads.iter().map(|thread| thread.stop);
        stops.collect::<Vec<_>>()
    };
    for engine in &mut engines {
        wait_for("three threads that run", || {
            let stops = stops(engine);
            (stops.len() >= 3 && stops.iter().all(Option::is_none)).then_some(())
        });
    }
    child.stdin.take().unwrap().write_all(b"\n").unwrap();
    for engine in &mut engines {
        wait_for("a core dump", || {
            let stops = stops(engine);
            let is_dump = |stop: &Option<StopCause>| *stop == Some(StopCause::CoreDump);
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
