//! Threads that poll.

use std::fs;
use std::path::PathBuf;
use std::process::Command;
use std::time::Duration;

use wcprof_types::ThreadState;

use wcprof_testkit::{
    Attach, Engine, Recording, RemoteProcess, Samples, Variant, alone, assert_share, fixture,
    interrupt, printed, wait_for_trace, wait_until,
};

/// What `wcprof doctor --json` says of a rule.
fn finding(recording: &Recording, rule: &str) -> Option<serde_json::Value> {
    let json = printed("doctor", &recording.path(), &["--json"]);
    let all: serde_json::Value = serde_json::from_str(&json).expect("JSON");
    let findings = all["findings"].as_array().expect("a list");
    findings.iter().find(|f| f["rule"] == rule).cloned()
}

/// CPU time that each reactor is recorded for: some 100 samples at 99 Hz.
const CPU_EACH: Duration = Duration::from_secs(1);

/// Record the reactors of a process until each has run for long enough.
fn record(engine: Engine, mode: &str) -> Recording {
    let program = fixture("reactors.c", Variant::NoFramePointers);
    let target = RemoteProcess::start_command(Command::new(&program).arg(mode));
    let (child, folder) = Attach::new(engine, target.pid()).seconds(0.0).spawn();
    wait_for_trace(&folder);
    let start = cpu_of_reactors(target.pid());
    let has_run = |now: &[Duration]| now.iter().zip(&start).all(|(b, a)| *b >= *a + CPU_EACH);
    wait_until("reactors do not get CPU time", || {
        has_run(&cpu_of_reactors(target.pid())).then_some(())
    });
    interrupt(&child);
    let recording = Recording::finish(child, folder);
    recording.assert_sound(engine);
    recording
}

/// CPU time of each reactor so far.
fn cpu_of_reactors(pid: i32) -> Vec<Duration> {
    let read = |path: PathBuf| fs::read_to_string(path).unwrap_or_default();
    let threads = fs::read_dir(format!("/proc/{pid}/task")).expect("the target runs");
    let mut cpu: Vec<(String, Duration)> = threads
        .map(|thread| thread.expect("a thread's folder").path())
        .map(|path| (read(path.join("comm")), read(path.join("schedstat"))))
        .filter(|(name, _)| name.starts_with("reactor_"))
        .map(|(name, line)| {
            let ns = line.split(' ').next().and_then(|ns| ns.parse().ok());
            (
                name,
                Duration::from_nanos(ns.expect("run time comes first")),
            )
        })
        .collect();
    assert_eq!(cpu.len(), 4, "{cpu:?}");
    cpu.sort();
    cpu.into_iter().map(|(_, cpu)| cpu).collect()
}

/// Share of a reactor's CPU time in the bdevs' work.
#[track_caller]
fn assert_work(recording: &Recording, reactor: &str, truth: f64) {
    let on_cpu = recording.folded().thread(reactor).states(&["[on-cpu]"]);
    let work = on_cpu.chain(&["reactor_run", "bdev_rbd_start_aio"]);
    let mut samples = Samples::default();
    samples.add(recording, |thread, state| {
        thread == reactor && state == ThreadState::OnCpu
    });
    // At most those that the recording waited for: more come one after another.
    let n = samples.n_effective().min(100);
    assert_share(reactor, work.share_of(&on_cpu), truth, n);
}

pub(crate) fn reactors(engine: Engine) {
    let _load = alone();
    let skewed = record(engine, "skewed");
    let spread = record(engine, "spread");
    if skewed.stood_still("reactors", engine) || spread.stood_still("reactors", engine) {
        return;
    }
    assert_eq!(finding(&spread, "reactor-imbalance"), None);
    let found = finding(&skewed, "reactor-imbalance");
    if !engine.sees_running() {
        assert_eq!(found, None, "without stacks nobody can tell");
        return;
    }
    let found = found.expect("one reactor does the others' work");
    assert_eq!(found["basis"]["tids"].as_array().map(Vec::len), Some(1));
    let evidence = found["evidence"].to_string();
    for name in ["reactor_0/", "bdev_rbd_start_aio"] {
        assert!(evidence.contains(name), "{evidence}");
    }
    assert!(!evidence.contains("reactor_1/"), "{evidence}");
    assert!(finding(&skewed, "polling-idle").is_some());
    assert_work(&skewed, "reactor_0", 4000.0 / 5400.0);
    for reactor in ["reactor_0", "reactor_1", "reactor_2", "reactor_3"] {
        assert_work(&spread, reactor, 1000.0 / 2100.0);
    }
}
