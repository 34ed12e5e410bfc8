//! Lock blame and files, against hand-made profiles.

use wcprof_profile::GroupBy;
use wcprof_profile::model::{
    Deadlock, DeadlockedThread, Holder, LockKind, LockRow, Pool, Profile, ProfileStackId, State,
    UnknownHolder,
};
use wcprof_types::{Avma, FdKind, FdTarget, Pid, StackEnd, Tid};

use super::builder::Builder;
use super::rules::TABLE_LOCK;
use crate::{RuleSet, hotspots, lock_report, locks_to_json, render_locks, to_do};

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
    let report = lock_report(&contended(), &rules, None);
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
    let text = render_locks(&lock_report(&contended(), &rules, None), 10, 100);
    assert!(text.contains("83.3 %"), "{text}");
    assert!(
        text.contains("bstore?[31m [disk] (fdatasync) in BlueStore::_kv_sync_thread()"),
        "{text}"
    );
    assert!(!text.contains('\x1b'));
    let mut of_snapshots = contended();
    of_snapshots.header.n_snapshots = 1;
    let text = render_locks(&lock_report(&of_snapshots, &rules, None), 10, 100);
    let first = text.lines().next().unwrap();
    assert!(first.contains(" threads wait for locks: "), "{first}");
    assert!(
        !text.contains(" s of ") && text.contains(" thr  "),
        "{text}"
    );
    let none = lock_report(&Builder::new().build(), &rules, None);
    assert!(render_locks(&none, 10, 100).starts_with("no thread was seen waiting"));
}

/// Sessions of a PostgreSQL server, eight of which wait for the lock of a table for nine tenths of the time; of the other
/// ones it is not known what they wait for.
fn sessions(n_others: usize) -> Profile {
    let mut b = Builder::new();
    let sleep = [
        "postgres!PostgresMain",
        "postgres!pg_sleep",
        "libc.so.6!epoll_wait",
    ];
    for _ in 0..8 {
        let session = b.thread("postgres");
        b.row(session, State::Lock, 900, &TABLE_LOCK);
        b.row(session, State::OnCpu, 100, &["postgres!PostgresMain"]);
    }
    for _ in 0..n_others {
        let session = b.thread("postgres");
        b.row(session, State::Sleep, 1000, &sleep);
    }
    let writer = b.thread("postgres");
    b.row(
        writer,
        State::Idle,
        1000,
        &["postgres!WalWriterMain", "libc.so.6!epoll_wait"],
    );
    let mut profile = b.build();
    profile.processes = (0..profile.threads.len())
        .map(|at| super::format::process(100 + at as i32, "postgres", "node1"))
        .collect();
    for process in &mut profile.processes {
        (process.comm, process.class) = ("postgres".to_owned(), "postgres".to_owned());
    }
    for (at, thread) in profile.threads.iter_mut().enumerate() {
        (thread.process, thread.pid) = (at, Pid(100 + at as i32));
    }
    // The builder has one pool of one process; here each has its own.
    let pool = profile.pools[0].clone();
    profile.pools = (0..profile.threads.len())
        .map(|at| Pool {
            process: at,
            pid: Pid(100 + at as i32),
            threads: vec![at],
            ..pool.clone()
        })
        .collect();
    for (at, thread) in profile.threads.iter_mut().enumerate() {
        thread.pool = at;
    }
    let row = |thread: usize| LockRow {
        thread,
        stack: Some(ProfileStackId(0)),
        address: None,
        kind: LockKind::Other,
        recursive: false,
        holder: Err(UnknownHolder::NotRecorded),
        weight: 900 * TICK_NS,
    };
    profile.locks.held = (0..8).map(row).collect();
    profile
}

/// Check that what eight sessions wait for is one site of one program, that the lock's function is the one above the lock
/// functions, also through one without a name, and that the only session which does not wait is named.
#[test]
fn table_lock() {
    let rules = RuleSet::builtin().unwrap();
    let profile = sessions(1);
    let report = lock_report(&profile, &rules, None);
    let [site] = report.sites.as_slice() else {
        panic!("one site: {:?}", report.sites);
    };
    assert_eq!(
        (site.function.as_str(), site.pids.len()),
        ("LockRelationOid", 8)
    );
    let [unknown] = site.unknown.as_slice() else {
        panic!("one reason: {:?}", site.unknown);
    };
    assert_eq!(unknown.reason, "database");
    let only = "of 9 sessions only pid 108 (postgres) does not wait";
    assert!(unknown.text.starts_with(only), "{}", unknown.text);
    assert!(
        unknown.text.contains("pg_blocking_pids"),
        "{}",
        unknown.text
    );
    let apart = lock_report(&profile, &rules, Some(GroupBy::Process));
    assert_eq!(apart.sites.len(), 8);
    assert_eq!(apart.sites[0].group, "postgres (pid 100)");
    let found = hotspots(&profile, &rules, &[]);
    let items = to_do(&profile, &found.findings, &[]).items;
    assert_eq!(items.len(), 1, "{items:?}");
    assert!(
        items[0]
            .why
            .starts_with("8 of 10 postgres processes: Sessions wait"),
        "{items:?}"
    );
    assert!(
        items[0]
            .why
            .contains("90.0 % of their non-idle time, 7.20 threads"),
        "{items:?}"
    );
    assert!(items[0].action.contains(only), "{items:?}");
}

/// Check that of two sessions which do not wait none is named.
#[test]
fn two_others() {
    let rules = RuleSet::builtin().unwrap();
    let report = lock_report(&sessions(2), &rules, None);
    let text = &report.sites[0].unknown[0].text;
    assert!(text.starts_with("PostgreSQL knows"), "{text}");
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

/// Check that threads which wait for each other's locks are one finding, the first thing to do, and stand above the sites; and that
/// without a circle there is none.
#[test]
fn deadlock() {
    let mut profile = contended();
    let found = |profile: &Profile| hotspots(profile, &RuleSet::builtin().unwrap(), &[]).findings;
    assert!(
        found(&profile)
            .iter()
            .all(|finding| finding.rule != "deadlock")
    );
    let waits = |thread: usize, address| DeadlockedThread {
        thread,
        address: Avma(address),
        kind: LockKind::Mutex,
        stack: Some(ProfileStackId(thread as u32)),
        seen_ns: 2_000_000_000,
    };
    profile.locks.deadlocks = vec![Deadlock {
        threads: vec![waits(0, 0x1000), waits(1, 0x2000)],
    }];
    let findings = found(&profile);
    let items = to_do(&profile, &findings, &[]).items;
    let why = "Deadlock: 2 threads wait for each other's locks: tp_osd_tp (tid 101) waits for the mutex at 0x1000 in PG::lock()";
    assert!(items[0].why.starts_with(why), "{items:?}");
    assert_eq!(items[0].gain.text(), "2.00 threads");
    let rules = RuleSet::builtin().unwrap();
    let text = render_locks(&lock_report(&profile, &rules, None), 10, 120);
    let first = "DEADLOCK in ceph-osd (pid 100): 2 threads wait for each other's locks\n  tp_osd_tp (tid 101) waits for the mutex at 0x1000, which tp_osd_tp (tid 102) holds\n    in __lll_lock_wait < ";
    assert!(text.starts_with(first), "{text}");
}
