//! Threads that poll.

use std::process::Command;

use crate::common::{
    Attach, Engine, Recording, RemoteProcess, Variant, alone, assert_share, fixture, text, wcprof,
};

/// What `wcprof hotspots --json` says of a rule.
fn finding(recording: &Recording, rule: &str) -> Option<serde_json::Value> {
    let output = wcprof()
        .arg("hotspots")
        .arg(recording.path())
        .arg("--json")
        .output()
        .expect("wcprof starts");
    assert!(output.status.success(), "{}", text(&output.stderr));
    let all: serde_json::Value = serde_json::from_slice(&output.stdout).expect("JSON");
    let findings = all["findings"].as_array().expect("a list");
    findings.iter().find(|f| f["rule"] == rule).cloned()
}

fn record(engine: Engine, mode: &str) -> Recording {
    let program = fixture("reactors.c", Variant::NoFramePointers);
    let target = RemoteProcess::start_command(Command::new(&program).arg(mode));
    let recording = Attach::new(engine, target.pid()).seconds(4.0).run();
    recording.assert_sound(engine);
    recording
}

/// Share of a reactor's CPU time in the bdevs' work.
#[track_caller]
fn assert_work(recording: &Recording, reactor: &str, truth: f64) {
    let on_cpu = recording.folded().thread(reactor).states(&["[on-cpu]"]);
    let work = on_cpu.chain(&["reactor_run", "bdev_rbd_start_aio"]);
    // The least that a reactor gets of two CPUs in four seconds, at 99 Hz, is some 100 samples.
    assert_share(reactor, work.share_of(&on_cpu), truth, 100);
}

pub(crate) fn reactors(engine: Engine) {
    let _load = alone();
    let skewed = record(engine, "skewed");
    let spread = record(engine, "spread");
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
