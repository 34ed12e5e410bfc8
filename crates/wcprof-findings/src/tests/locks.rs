//! Lock blame and files, against hand-made profiles.

use wcprof_profile::model::{
    Holder, LockKind, LockRow, Profile, ProfileStackId, State, UnknownHolder,
};
use wcprof_types::{Avma, FdKind, FdTarget, StackEnd, Tid};

use super::builder::Builder;
use crate::{RuleSet, hotspots, lock_report, locks_to_json, render_locks};

const TICK_NS: u64 = 10_000_000;

/// Two workers lose 200 and 100 ticks to one lock; a third of a name that drives a terminal had it.
fn contended() -> Profile {
    let mut b = Builder::new();
    let site = [
        "ceph-osd!OSD::dequeue_op()",
        "ceph-osd!PG::lock()",
        "libc.so.6!pthread_mutex_lock",
        "libc.so.6!__lll_lock_wait",
    ];
    let first = b.thread("tp_osd_tp");
    let second = b.thread("tp_osd_tp");
    let holder = b.thread("bstore\x1b[31m");
    b.row(first, State::Lock, 200, &site);
    b.row(second, State::Lock, 100, &site);
    let stack = [
        "ceph-osd!BlueStore::_kv_sync_thread()",
        "libc.so.6!fdatasync",
    ];
    b.row(holder, State::Disk, 300, &stack);
    let mut profile = b.build();
    let row = |thread: usize, ticks: u64, holder| LockRow {
        thread,
        stack: Some(ProfileStackId(thread as u32)),
        address: Some(Avma(0x1000)),
        kind: LockKind::Mutex,
        recursive: false,
        holder,
        weight: ticks * TICK_NS,
    };
    let held = |uncertain| {
        Ok(Holder {
            tid: Tid(103),
            pool: 1,
            state: State::Disk,
            stack: Some(ProfileStackId(2)),
            uncertain,
        })
    };
    profile.locks.held = vec![
        row(0, 150, held(false)),
        row(0, 50, Err(UnknownHolder::Changed)),
        row(1, 90, held(false)),
        row(1, 10, held(true)),
    ];
    profile
}

/// Check sums and shares of a site, of those who waited and of those who held it.
#[test]
fn site() {
    let rules = RuleSet::builtin().unwrap();
    let report = lock_report(&contended(), &rules);
    assert_eq!(report.lost_ns, 300 * TICK_NS);
    assert_eq!(report.known_ns, 250 * TICK_NS);
    assert_eq!(report.uncertain_ns, 10 * TICK_NS);
    let [site] = report.sites.as_slice() else {
        panic!("one site: {:?}", report.sites);
    };
    assert_eq!(site.function, "PG::lock()");
    assert_eq!(site.callers, ["OSD::dequeue_op()"]);
    assert_eq!((site.n_locks, site.waiters[0].n_threads), (1, 2));
    let [hold] = site.held_by.as_slice() else {
        panic!("one holder: {:?}", site.held_by);
    };
    assert_eq!(hold.function, "BlueStore::_kv_sync_thread()");
    assert_eq!(hold.frames[0], "fdatasync");
    assert_eq!(hold.uncertain_ns, 10 * TICK_NS);
    assert!((hold.percent - 250.0 / 3.0).abs() < 1e-9);
    assert_eq!(site.unknown[0].reason, "changed");
    assert!(locks_to_json(&report).unwrap().contains("\"wcprof-locks\""));
}

/// Check that the text names the holder, and no name reaches the terminal as it is.
#[test]
fn text() {
    let rules = RuleSet::builtin().unwrap();
    let text = render_locks(&lock_report(&contended(), &rules), 10, 100);
    assert!(text.contains("83.3 %"), "{text}");
    assert!(
        text.contains("bstore?[31m [disk] (fdatasync) in BlueStore::_kv_sync_thread()"),
        "{text}"
    );
    assert!(!text.contains('\x1b'));
    let none = lock_report(&Builder::new().build(), &rules);
    assert!(render_locks(&none, 10, 100).starts_with("no thread was seen waiting"));
}

/// Check that the finding on locks says who held them.
#[test]
fn in_finding() {
    let profile = contended();
    let findings = hotspots(&profile, &RuleSet::builtin().unwrap(), &[]).findings;
    let finding = findings
        .iter()
        .find(|f| f.rule == "lock-contention")
        .expect("a finding on locks");
    assert!(finding.evidence[0].heading.starts_with("held by"));
    let line = &finding.evidence[0].lines[0];
    assert!(
        line.name.ends_with("in BlueStore::_kv_sync_thread()"),
        "{line:?}"
    );
}

/// Check that a finding on flushes names the file, and not that of idle time.
#[test]
fn file() {
    let mut b = Builder::new();
    let t = b.thread("bstore_kv_sync");
    let stack = (&["ceph-osd!f()", "libc.so.6!fdatasync"][..], StackEnd::Root);
    b.wait(t, State::Disk, 150, stack, Some(75));
    let mut profile = b.build();
    profile.waits[0].fd = Some(FdTarget {
        kind: FdKind::Block,
        path: "/dev/block".into(),
    });
    let findings = hotspots(&profile, &RuleSet::builtin().unwrap(), &[]).findings;
    let evidence = &findings[0].evidence[0];
    assert!(evidence.heading.starts_with("files and sockets"));
    assert_eq!(evidence.lines[0].name, "fdatasync on /dev/block");
    assert_eq!(
        evidence.lines[0].percent,
        findings[0].evidence[1].lines[0].percent
    );
}
