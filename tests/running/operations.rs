//! A process that counts its operations and says so through an admin socket; and sockets that misbehave.

use std::process::Command;

use tempfile::TempDir;
use wcprof_testkit::{Attach, Engine, Recording, RemoteProcess, Variant, assert_within, fixture};

fn start(how: &str) -> (RemoteProcess, TempDir) {
    let folder = tempfile::tempdir().expect("temporary folder");
    let mut command = Command::new(fixture("operations.c", Variant::NoFramePointers));
    command.arg(folder.path().join("osd.0.asok")).arg(how);
    (RemoteProcess::start_command(&mut command), folder)
}

fn class(recording: &Recording) -> serde_json::Value {
    let report = recording.report(&["--json"]);
    let report: serde_json::Value = serde_json::from_str(&report).expect("JSON");
    report["cores"]["classes"][0].clone()
}

/// The number of operations, their latency and their CPU time against the process's own counters.
pub(crate) fn counted(engine: Engine) {
    let (mut target, _folder) = start("answer");
    let attach = Attach::new(engine, target.pid())
        .seconds(3.0)
        .flags(&["--ceph"]);
    let (recording, before, after) = attach.run_marked(&mut target);
    recording.assert_sound(engine);
    let class = class(&recording);
    let all = &class["operations"]["all"];
    let n = after.since(&before, "ops") as f64;
    assert_within(
        "operations",
        all["n"].as_f64().expect("counted"),
        n,
        0.02 * n,
    );
    // Its sums of latencies grow by one second an operation.
    let latency = all["latency_us"].as_f64().expect("known");
    assert_within("latency, us", latency, 1e6, 1e4);
    let us = after.since(&before, "op_cpu") as f64 / n / 1e3;
    let pools = class["per_operation"]["pools"].as_array().expect("pools");
    let cost = |name: &str| {
        let pool = pools.iter().find(|pool| pool["name"] == name);
        pool.and_then(|pool| pool["cpu_us"].as_f64())
    };
    let worker = cost("tp_osd_tp").expect("the worker's pool");
    // Its clock is read around each operation, not around the sleep.
    assert_within("CPU time of an operation, us", worker, us, 0.15 * us);
    let sum: f64 = pools
        .iter()
        .filter_map(|pool| pool["cpu_us"].as_f64())
        .sum();
    let total = class["per_operation"]["total"]["cpu_us"]
        .as_f64()
        .expect("total");
    assert_within("sum of the pools, us", sum, total, 1e-6 * total);
    let screen = recording.report(&[]);
    for words in [
        "operations a second",
        "PER OPERATION of operations",
        "100 % write",
    ] {
        assert!(screen.contains(words), "no {words:?} in: {screen}");
    }
}

/// Sockets that hang, say that too much follows, or say nonsense: the recording is whole, and the reason is said
/// once.
pub(crate) fn misbehaves(engine: Engine) {
    for (how, reason) in [
        ("hang", "did not answer within 2 s"),
        ("huge", "answered with 100000000 bytes"),
        ("nonsense", "answered with something else: nonsense"),
    ] {
        let (target, _folder) = start(how);
        let attach = Attach::new(engine, target.pid()).seconds(2.0);
        let recording = attach.flags(&["--ceph"]).run();
        recording.assert_sound(engine);
        let said = recording.said();
        assert_eq!(said.matches(reason).count(), 1, "{how}: {said}");
        assert_eq!(said.matches("no counters of").count(), 1, "{how}: {said}");
        let (trace, _) = recording.trace();
        assert!(trace.tables.origins.counters.readings.is_empty());
        assert!(!class(&recording).is_object());
    }
}

/// A process without an admin socket.
pub(crate) fn none(engine: Engine) {
    let target = RemoteProcess::start(&fixture("eintr.c", Variant::NoFramePointers));
    let attach = Attach::new(engine, target.pid()).seconds(1.0);
    let recording = attach.flags(&["--ceph"]).run();
    recording.assert_sound(engine);
    let said = recording.said();
    assert!(said.contains("it listens on no admin socket"), "{said}");
}
