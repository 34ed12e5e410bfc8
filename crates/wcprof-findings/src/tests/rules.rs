//! A positive profile and near misses for every built-in rule.

use std::collections::BTreeSet;
use std::sync::LazyLock;

use wcprof_profile::model::{Profile, State};
use wcprof_types::StackEnd;

use super::builder::Builder;
use crate::{Basis, Finding, Kind, RuleSet, hotspots};

/// Name of the rule, a profile that must show it, and profiles that must not.
pub(super) type Case = (&'static str, Profile, Vec<Profile>);

fn find(profile: &Profile) -> Vec<Finding> {
    static RULES: LazyLock<RuleSet> = LazyLock::new(|| RuleSet::builtin().unwrap());
    hotspots(profile, &RULES, &[]).findings
}

fn ids(profile: &Profile) -> Vec<String> {
    find(profile).into_iter().map(|f| f.rule).collect()
}

/// One thread of `pool`: `ticks` of its 1000 ticks with `stack`, 300 with other work.
fn busy(pool: &str, state: State, ticks: u64, stack: &[&str]) -> Profile {
    let mut b = Builder::new();
    let t = b.thread(pool);
    b.row(t, state, ticks, stack);
    b.row(
        t,
        State::OnCpu,
        300,
        &["libc.so.6!clone3", "ceph-osd!work()"],
    );
    b.build()
}

const TX: &str = "libceph-common.so.2!ceph::crypto::onwire::AES128GCM_OnWireTxHandler::authenticated_encrypt_update(ceph::buffer::v15_2_0::list const&)";

/// `n` reactors that always run: the first does `first` ticks of work, the others `others`.
fn reactors(pool: &str, n: usize, first: u64, others: u64) -> Profile {
    let mut b = Builder::new();
    for i in 0..n {
        let t = b.thread(pool);
        let work = if i == 0 { first } else { others };
        let to_poller = [
            "tgt!reactor_run",
            "tgt!thread_poll",
            "tgt!bdev_rbd_group_poll",
        ];
        let aio = [
            &to_poller[..],
            &["tgt!bdev_rbd_start_aio", "librbd.so.1!x()"],
        ]
        .concat();
        b.row(t, State::OnCpu, work, &aio);
        b.row(t, State::OnCpu, 300, &to_poller);
        let waiting = [&to_poller[..], &["libc.so.6!epoll_wait"]].concat();
        b.row(t, State::OnCpu, 700 - work, &waiting);
    }
    b.build()
}

fn reactor_imbalance() -> Case {
    (
        "reactor-imbalance",
        reactors("reactor_N", 4, 600, 20),
        vec![
            reactors("reactor_N", 4, 600, 500),
            reactors("reactor_N", 4, 100, 10),
            reactors("reactor_N", 1, 600, 0),
            reactors("tp_osd_tp", 4, 600, 20),
        ],
    )
}

fn polling_idle() -> Case {
    (
        "polling-idle",
        reactors("reactor_N", 2, 200, 200),
        vec![
            reactors("tp_osd_tp", 2, 200, 200),
            busy(
                "reactor_N",
                State::OnCpu,
                600,
                &["tgt!reactor_run", "tgt!bdev_rbd_start_aio", "tgt!memcpy"],
            ),
        ],
    )
}

fn pool_imbalance() -> Case {
    let workers = |ticks: &[u64]| {
        let mut b = Builder::new();
        for &ticks in ticks {
            let t = b.thread("worker-N");
            b.row(t, State::OnCpu, ticks, &["x!worker", "x!work"]);
        }
        b.build()
    };
    (
        "pool-imbalance",
        workers(&[850, 20, 10]),
        vec![
            workers(&[850, 800, 700]),
            workers(&[500, 20, 10]),
            workers(&[850]),
        ],
    )
}

fn rbd_cache() -> Case {
    let cached = |f| {
        busy(
            "io_context_pool",
            State::OnCpu,
            60,
            &["librbd.so.1!librbd::io::read()", f],
        )
    };
    (
        "rbd-cache",
        cached(
            "librbd.so.1!ObjectCacher::_readx(ObjectCacher::OSDRead*, ObjectCacher::ObjectSet*, Context*, bool, ZTracer::Trace*)",
        ),
        vec![
            cached("librbd.so.1!librbd::io::ImageRequest<librbd::ImageCtx>::send()"),
            cached("librbd.so.1!make_reader(ObjectCacher*)"),
            cached("ceph-osd!MyObjectCacher::read()"),
        ],
    )
}

fn libc_malloc() -> Case {
    let stack = |module: &str, f: &str, leaf: &str| {
        let caller = format!("{module}!{f}");
        busy(
            "tp_osd_tp",
            State::OnCpu,
            40,
            &["ceph-osd!do_op()", &caller, leaf],
        )
    };
    (
        "libc-malloc",
        stack("libc.so.6", "malloc", "libc.so.6!libc.so.6+0x98a10"),
        vec![
            stack(
                "libtcmalloc.so.4",
                "malloc",
                "libtcmalloc.so.4!tcmalloc::allocate()",
            ),
            stack("libjemalloc.so.2", "malloc", "libc.so.6!malloc"),
            stack("libc.so.6", "fwrite", "libc.so.6!libc.so.6+0x98a10"),
            stack("ceph-osd", "malloc_stats(int)", "ceph-osd!x"),
        ],
    )
}

fn aes_gcm() -> Case {
    let stack = |frames: &[&str]| busy("msgr-worker-N", State::OnCpu, 50, frames);
    (
        "aes-gcm",
        stack(&[
            TX,
            "libcrypto.so.3!EVP_EncryptUpdate",
            "libcrypto.so.3!libcrypto.so.3+0x241c80",
        ]),
        vec![
            stack(&["libssl.so.3!SSL_write", "libcrypto.so.3!EVP_EncryptUpdate"]),
            stack(&[
                TX,
                "libceph-common.so.2!ceph::buffer::v15_2_0::list::reserve(unsigned long)",
            ]),
            stack(&[
                "libcrypto.so.3!EVP_DigestUpdate",
                "libcrypto.so.3!libcrypto.so.3+0x1000",
            ]),
        ],
    )
}

fn cipher() -> Case {
    let stack = |frames: &[&str]| busy("rgw", State::OnCpu, 50, frames);
    (
        "cipher",
        stack(&[
            "libssl.so.3!SSL_write",
            "libcrypto.so.3!EVP_EncryptUpdate",
            "libcrypto.so.3!libcrypto.so.3+0x241c80",
        ]),
        vec![
            stack(&[TX, "libcrypto.so.3!EVP_EncryptUpdate"]),
            stack(&["libssl.so.3!SSL_write", "libcrypto.so.3!EVP_DigestUpdate"]),
        ],
    )
}

fn msgr_saturated() -> Case {
    let worker = |pool: &str, on_cpu, runnable| {
        let mut b = Builder::new();
        let (t, _idle) = (b.thread(pool), b.thread(pool));
        b.row(
            t,
            State::OnCpu,
            on_cpu,
            &["ceph-osd!EventCenter::process_events()"],
        );
        b.bare(t, State::Runnable, runnable);
        b.build()
    };
    (
        "msgr-saturated",
        worker("msgr-worker-N", 880, 30),
        vec![
            worker("msgr-worker-N", 750, 30),
            worker("tp_osd_tp", 950, 0),
        ],
    )
}

fn thread_saturated() -> Case {
    let thread = |pool: &str, ticks| {
        let mut b = Builder::new();
        let t = b.thread(pool);
        b.row(
            t,
            State::OnCpu,
            ticks,
            &["ceph-osd!BlueStore::_kv_sync_thread()"],
        );
        b.build()
    };
    (
        "thread-saturated",
        thread("bstore_kv_sync", 920),
        vec![thread("bstore_kv_sync", 780), thread("cc1", 1000)],
    )
}

fn crc32c() -> Case {
    let leaf = |f| {
        busy(
            "msgr-worker-N",
            State::OnCpu,
            60,
            &[
                "ceph-osd!ceph::buffer::v15_2_0::list::crc32c(unsigned int) const",
                f,
            ],
        )
    };
    (
        "crc32c",
        leaf("libceph-common.so.2!ceph_crc32c_sctp"),
        vec![
            leaf("libceph-common.so.2!xxhash"),
            leaf("ceph-osd!describe(crc32c_t)"),
        ],
    )
}

const LOCK_SITE: [&str; 4] = [
    "ceph-osd!OSD::ShardedOpWQ::_process(unsigned int, ceph::heartbeat_handle_d*)",
    "ceph-osd!std::mutex::lock()",
    "libc.so.6!pthread_mutex_lock",
    "libc.so.6!libc.so.6+0x86a10",
];

fn lock_contention() -> Case {
    (
        "lock-contention",
        busy("tp_osd_tp", State::Lock, 100, &LOCK_SITE),
        vec![
            busy("tp_osd_tp", State::Lock, 15, &LOCK_SITE),
            busy("tp_osd_tp", State::Idle, 100, &LOCK_SITE),
        ],
    )
}

/// A session of PostgreSQL that waits for the lock of a table.
pub(super) const TABLE_LOCK: [&str; 7] = [
    "postgres!PostgresMain",
    "postgres!LockRelationOid",
    "postgres!LockAcquireExtended",
    "postgres!postgres+0x45d8a0",
    "postgres!ProcSleep",
    "postgres!WaitLatch",
    "libc.so.6!epoll_wait",
];

fn database_locks() -> Case {
    (
        "database-locks",
        busy("postgres", State::Lock, 100, &TABLE_LOCK),
        vec![
            busy("postgres", State::Lock, 15, &TABLE_LOCK),
            busy("postgres", State::Idle, 100, &TABLE_LOCK),
            busy("tp_osd_tp", State::Lock, 100, &LOCK_SITE),
        ],
    )
}

fn compression() -> Case {
    let deflate = |n| {
        let mut b = Builder::new();
        let t = b.thread("tp_osd_tp");
        let compressor = "libceph_zlib.so.2!ZlibCompressor::compress(ceph::buffer::list const&)";
        let stack = [
            "ceph-osd!BlueStore::_do_write()",
            compressor,
            "libz.so.1!deflate",
        ];
        b.row(t, State::OnCpu, n, &stack);
        b.row(t, State::OnCpu, 500, &["ceph-osd!work()"]);
        b.build()
    };
    (
        "compression",
        deflate(300),
        vec![
            deflate(20),
            busy("tp_osd_tp", State::OnCpu, 300, &["ceph-osd!deflated()"]),
        ],
    )
}

fn fsync() -> Case {
    let wait = |state, ticks, syscall| {
        let mut b = Builder::new();
        let t = b.thread("bstore_kv_sync");
        let stack = [
            "ceph-osd!BlueStore::_kv_sync_thread()",
            "libc.so.6!libc.so.6+0x1000",
        ];
        b.wait(t, state, ticks, (&stack, StackEnd::Root), Some(syscall));
        b.build()
    };
    (
        "fsync",
        wait(State::Disk, 150, 75),
        vec![
            wait(State::Disk, 150, 0),
            wait(State::Disk, 60, 75),
            wait(State::Idle, 150, 75),
        ],
    )
}

fn rocksdb_compaction() -> Case {
    let job = |f, others| {
        let mut b = Builder::new();
        let (t, other) = (b.thread("rocksdb:lowN"), b.thread("tp_osd_tp"));
        b.row(
            t,
            State::OnCpu,
            60,
            &[
                "ceph-osd!rocksdb::ThreadPoolImpl::Impl::BGThread(unsigned long)",
                f,
            ],
        );
        b.row(other, State::OnCpu, others, &["ceph-osd!work()"]);
        b.build()
    };
    let compaction = "ceph-osd!rocksdb::CompactionJob::Run()";
    (
        "rocksdb-compaction",
        job(compaction, 300),
        vec![
            job(compaction, 900),
            job("ceph-osd!rocksdb::DBImpl::DumpStats()", 300),
        ],
    )
}

fn memcpy() -> Case {
    let leaf = |stack: &[&str]| busy("tp_osd_tp", State::OnCpu, 60, stack);
    (
        "memcpy",
        leaf(&[
            "ceph-osd!ceph::buffer::v15_2_0::list::rebuild()",
            "libc.so.6!libc.so.6+0x172440",
        ]),
        vec![
            leaf(&["ceph-osd!work()", "libc.so.6!libc.so.6+0x172440"]),
            leaf(&["ceph-osd!memcpy_stats()"]),
            leaf(&["ceph-osd!work()", "[kernel]!memcpy"]),
            leaf(&["libc.so.6!memcpy", "a!b", "a!c", "a!d"]),
        ],
    )
}

fn logging() -> Case {
    let log = |f, ticks| {
        busy(
            "tp_osd_tp",
            State::OnCpu,
            ticks,
            &["ceph-osd!PG::handle()", f],
        )
    };
    let submit = "ceph-osd!ceph::logging::Log::submit_entry(ceph::logging::Entry&&)";
    (
        "logging",
        log(submit, 40),
        vec![
            log(submit, 9),
            log("ceph-osd!std::ostream::operator<<(int)", 40),
            // The kernel's ring buffer of ftrace.
            log("[kernel]!trace_event_buffer_commit", 40),
        ],
    )
}

fn page_faults() -> Case {
    let blocked = |syscall, end| {
        let mut b = Builder::new();
        let t = b.thread("CPU N/KVM");
        b.wait(
            t,
            State::Blocked,
            60,
            (&["qemu!memory_read()"], end),
            syscall,
        );
        b.build()
    };
    (
        "page-faults",
        blocked(None, StackEnd::Root),
        vec![
            blocked(Some(16), StackEnd::Root),
            blocked(None, StackEnd::NoUserStack),
        ],
    )
}

fn tcmalloc_central() -> Case {
    let stack = |f| {
        busy(
            "tp_osd_tp",
            State::OnCpu,
            40,
            &[
                "ceph-osd!do_op()",
                "libtcmalloc.so.4!operator new(unsigned long)",
                f,
            ],
        )
    };
    (
        "tcmalloc-central",
        stack("libtcmalloc.so.4!tcmalloc::CentralFreeList::FetchFromOneSpans(int, void**, void**)"),
        vec![
            stack("libtcmalloc.so.4!tcmalloc::ThreadCache::Allocate(unsigned long)"),
            stack("libother.so!SpinLock::SlowLock()"),
        ],
    )
}

fn run_queue_delay() -> Case {
    let delayed = |ticks| {
        let mut b = Builder::new();
        let t = b.thread("tp_osd_tp");
        b.row(t, State::OnCpu, 300, &["ceph-osd!work()"]);
        b.bare(t, State::Runnable, ticks);
        b.build()
    };
    (
        "run-queue-delay",
        delayed(300),
        vec![delayed(20), delayed(200)],
    )
}

fn cases() -> Vec<Case> {
    vec![
        rbd_cache(),
        libc_malloc(),
        aes_gcm(),
        cipher(),
        msgr_saturated(),
        thread_saturated(),
        crc32c(),
        lock_contention(),
        database_locks(),
        compression(),
        fsync(),
        rocksdb_compaction(),
        memcpy(),
        logging(),
        page_faults(),
        tcmalloc_central(),
        run_queue_delay(),
        reactor_imbalance(),
        polling_idle(),
        pool_imbalance(),
        super::accounts::cpu_quota(),
        super::accounts::io_limit(),
        super::accounts::memory_high(),
        super::accounts::memory_max(),
    ]
}

/// Check that each rule flags its profile, alone, and none of its near misses.
#[test]
fn positive_and_near_miss() {
    for (id, positive, negatives) in cases() {
        // Reactors poll in vain while one works.
        let expected = match id {
            "reactor-imbalance" => vec![id, "polling-idle"],
            _ => vec![id],
        };
        assert_eq!(ids(&positive), expected);
        for (i, negative) in negatives.iter().enumerate() {
            assert!(
                !ids(negative).contains(&id.to_owned()),
                "{id}, near miss {i}"
            );
        }
    }
}

/// Check that every built-in rule has a positive and a negative profile.
#[test]
fn every_rule_is_tested() {
    let set = RuleSet::builtin().unwrap();
    let rules = set.rules().iter();
    // Of spans: tests/it/fleets.rs and tests/it/stopped.rs; of looks at locks: tests/locks.rs.
    let of_spans = [Kind::LikeProcesses, Kind::Stopped, Kind::Deadlock];
    let rules = rules.filter(|rule| !of_spans.contains(&rule.matches.kind));
    let rules: BTreeSet<&str> = rules.map(|r| r.id.as_str()).collect();
    let cases = cases();
    assert_eq!(cases.iter().map(|c| c.0).collect::<BTreeSet<_>>(), rules);
    assert!(cases.iter().all(|c| !c.2.is_empty()));
}

/// Check that an idle process gives no finding, though its few moments are all in one place.
#[test]
fn idle_process() {
    let mut b = Builder::new();
    for pool in ["msgr-worker-N", "tp_osd_tp", "bstore_kv_sync"] {
        let t = b.thread(pool);
        b.row(t, State::OnCpu, 1, &["libc.so.6!malloc"]);
        b.row(t, State::Lock, 1, &LOCK_SITE);
        b.bare(t, State::Runnable, 1);
        let stack = ["ceph-osd!KernelDevice::flush()"];
        b.wait(t, State::Disk, 2, (&stack, StackEnd::Root), Some(75));
    }
    assert_eq!(ids(&b.build()), Vec::<String>::new());
}

/// Check that three ticks are no basis for a finding, whatever they show.
#[test]
fn three_samples() {
    let mut b = Builder::with_ticks(3);
    for _ in 0..40 {
        let t = b.thread("msgr-worker-N");
        b.row(
            t,
            State::OnCpu,
            2,
            &[TX, "libcrypto.so.3!EVP_EncryptUpdate", "libc.so.6!malloc"],
        );
        b.bare(t, State::Runnable, 1);
    }
    assert_eq!(ids(&b.build()), Vec::<String>::new());
}

/// Check that findings in more than three pools of a process are merged, the heaviest first.
#[test]
fn merged() {
    let build = |n: u64| {
        let mut b = Builder::new();
        for i in 0..n {
            let t = b.thread(&format!("pool {i}"));
            b.row(
                t,
                State::OnCpu,
                50 + i,
                &["ceph-osd!work()", "ceph-osd!crc32_iscsi_00"],
            );
        }
        find(&b.build())
    };
    assert_eq!(build(3).len(), 3);
    let findings = build(4);
    assert_eq!(findings.len(), 1);
    assert_eq!(findings[0].pools, ["pool 3", "pool 2", "pool 1", "pool 0"]);
    let Basis::Time(share) = &findings[0].basis else {
        panic!("{findings:?}");
    };
    assert_eq!((share.matched_ns, share.n_threads), (2_060_000_000, 4));
}

/// Check that a rule on processes adds up their pools.
#[test]
fn whole_process() {
    let mut b = Builder::new();
    for i in 0..5 {
        let t = b.thread(&format!("pool {i}"));
        b.row(t, State::OnCpu, 5, &["ceph-osd!work()", "libc.so.6!malloc"]);
        b.row(t, State::OnCpu, 45, &["ceph-osd!work()"]);
    }
    let findings = find(&b.build());
    assert_eq!(findings.len(), 1);
    let Basis::Time(share) = &findings[0].basis else {
        panic!("{findings:?}");
    };
    assert_eq!(share.scope, crate::Scope::Process);
    assert_eq!(share.matched_ns * 10, share.on_cpu_ns);
}

/// Check that what can be changed comes before what needs other code, and what gives back more before what gives less.
#[test]
fn order() {
    let mut b = Builder::new();
    let t = b.thread("io_context_pool");
    b.row(
        t,
        State::OnCpu,
        60,
        &["librbd.so.1!ObjectCacher::flush(ZTracer::Trace*, long)"],
    );
    b.row(
        t,
        State::OnCpu,
        120,
        &["librbd.so.1!f()", "libc.so.6!malloc"],
    );
    b.row(t, State::Lock, 120, &LOCK_SITE);
    assert_eq!(
        ids(&b.build()),
        ["libc-malloc", "rbd-cache", "lock-contention"]
    );
}

/// Check that lock evidence begins at the function that called the lock function.
#[test]
fn lock_sites() {
    let profile = busy("tp_osd_tp", State::Lock, 100, &LOCK_SITE);
    let findings = find(&profile);
    let line = &findings[0].evidence[0].lines[0];
    assert!(
        line.name.starts_with("OSD::ShardedOpWQ::_process"),
        "{line:?}"
    );
    assert_eq!(line.percent, Some(25.0));
}

/// Check that work below a poller counts however it ends, and that asking from a poller itself does not.
#[test]
fn work_below_pollers() {
    let one = |deep: &[&str]| {
        let mut b = Builder::new();
        for i in 0..4 {
            let t = b.thread("reactor_N");
            let n = if i == 0 { 900 } else { 0 };
            let stack = [&["tgt!reactor_run", "tgt!thread_poll"], deep].concat();
            b.row(t, State::OnCpu, n, &stack);
            b.row(t, State::OnCpu, 1000 - n, &["tgt!reactor_run"]);
        }
        ids(&b.build()).contains(&"reactor-imbalance".to_owned())
    };
    assert!(!one(&[
        "tgt!nvmf_poll_group_poll",
        "libc.so.6!clock_gettime"
    ]));
    assert!(!one(&["tgt!bdev_rbd_group_poll"]));
    assert!(one(&[
        "tgt!bdev_rbd_group_poll",
        "tgt!bdev_rbd_start_aio",
        "libc.so.6!clock_gettime"
    ]));
    assert!(one(&[
        "tgt!bdev_rbd_group_poll",
        "librbd.so.1!librbd.so.1+0x1234"
    ]));
}
