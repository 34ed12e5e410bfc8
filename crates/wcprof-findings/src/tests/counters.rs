//! Findings beside the counters of their process.

use wcprof_profile::ProcessCounters;
use wcprof_profile::model::{ProfileProcess, State};
use wcprof_types::{CounterValue, Pid, StackEnd};

use super::builder::{Builder, DURATION_NS};
use crate::{RuleSet, hotspots, render_finding};

/// A thread that waits in fdatasync for 7 of 10 s, in a process that did 1000 pieces of work of 8 ms each.
fn finding(pool: &str, counter: &str) -> String {
    let mut b = Builder::new();
    let t = b.thread(pool);
    let stack = ["ceph-osd!work()", "libc.so.6!fdatasync"];
    b.wait(t, State::Disk, 700, (&stack, StackEnd::Root), Some(75));
    let mut profile = b.build();
    let value = CounterValue {
        count: 1000,
        time_ns: 8_000_000_000,
    };
    profile.processes[0] = ProfileProcess {
        pid: Pid(100),
        comm: "ceph-osd".into(),
        cgroup: String::new(),
        title: "osd.0".into(),
        class: "ceph-osd".into(),
        host: "node1".into(),
        fsid: String::new(),
        is_folded: false,
        recorded_ns: DURATION_NS,
        ended: None,
        accounts: Default::default(),
        counters: ProcessCounters {
            grown: [(counter.to_owned(), value)].into(),
            covered_ns: DURATION_NS,
            ..ProcessCounters::default()
        },
    };
    let found = hotspots(&profile, &RuleSet::builtin().unwrap(), &[]);
    let fsync = found.findings.iter().find(|f| f.rule == "fsync").unwrap();
    render_finding(fsync, 120)
}

/// Check what a piece of work takes, and how much of it is the wait; and that other counters and pools say nothing.
#[test]
fn beside_time() {
    let text = finding("bstore_kv_sync", "bluestore.kv_sync_lat");
    let expected =
        "bluestore.kv_sync_lat: 8.00 ms each, 100 a second; 7.00 ms of each are this time";
    assert!(text.contains(expected), "{text}");
    assert!(text.contains("+ 87.50% bluestore"), "{text}");
    for (pool, counter) in [
        ("rocksdb:low", "bluestore.kv_sync_lat"),
        ("bstore_kv_sync", "bluestore.csum_lat"),
    ] {
        let text = finding(pool, counter);
        assert!(!text.contains("own counters"), "{text}");
    }
}
