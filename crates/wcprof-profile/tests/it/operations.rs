//! Counters of processes to what one of their operations costs.

use crate::support;

use support::{MS, Maker, syscall};
use wcprof_profile::diff::{DiffOptions, diff};
use wcprof_profile::model::{Profile, Slices};
use wcprof_profile::{Cores, Cost, ProfileBuilder, Rules, cores, counted_by_class, vm_exits};
use wcprof_trace::model::{CounterId, CounterReading, ProcessId, Source};
use wcprof_types::{CounterName, CounterValue, StackEnd, ThreadState, TimeNs};

/// Adds a reading of writes: how many since the start of the process, and how long they took.
fn read(m: &mut Maker, process: ProcessId, ms: u64, count: u64, time_ms: u64) {
    let facts = &mut m.tables.origins.counters;
    if facts.names.is_empty() {
        facts.names = ["osd.op_w", "osd.op_w_latency"]
            .map(|name| CounterName {
                name: name.into(),
                timed: name.ends_with("latency"),
            })
            .to_vec();
    }
    let counted = CounterValue { count, time_ns: 0 };
    let timed = CounterValue {
        count,
        time_ns: time_ms * MS,
    };
    facts.readings.push(CounterReading {
        process,
        time: TimeNs(ms * MS),
        values: vec![(CounterId(0), counted), (CounterId(1), timed)],
    });
}

/// A second of an OSD: 400 ms of CPU time in two pools, 100 ms in fdatasync; 1000 operations of 2 ms each in all of it,
/// read 10 ms after its begin and before its end.
fn osd() -> Maker {
    let mut m = Maker::new();
    let t = m.thread(101, "tp_osd_tp");
    m.on_cpu(t, &["OSD::dequeue_op", "malloc"], 300 * MS);
    let t = m.thread(102, "bstore_kv_sync");
    m.on_cpu(t, &["BlueStore::_kv_sync_thread"], 100 * MS);
    let stack = m.stack(&["BlueStore::_kv_sync_thread", "fdatasync"], StackEnd::Root);
    let wait = m.wait(syscall("fdatasync"));
    m.span(t, ThreadState::Blocked, Some(wait), Some(stack), 100 * MS);
    read(&mut m, ProcessId(0), 10, 5_000, 7_000);
    read(&mut m, ProcessId(0), 990, 5_980, 7_000 + 1_960);
    m
}

fn cores_of(profile: &Profile, n_ops: Option<f64>) -> Cores {
    let rules = Rules::builtin().unwrap();
    cores(profile, &rules, &rules.categories().unwrap(), n_ops)
}

fn near(a: f64, b: f64) -> bool {
    (a - b).abs() < 1e-6 * b.abs().max(1.0)
}

/// Check number, rate and latency of operations, that pools add up to the process, and kinds of work to its CPU time.
#[test]
fn one_process() {
    let found = cores_of(&osd().profile(), None);
    let class = &found.classes[0];
    let counted = class.operations.as_ref().unwrap();
    assert!(
        near(counted.all.n, 1000.0) && near(counted.per_second, 1000.0),
        "{counted:?}"
    );
    assert!(near(counted.all.latency_us.unwrap(), 2000.0));
    assert_eq!(counted.kinds.len(), 1);
    assert_eq!(counted.kinds[0].name, "write");
    let costs = class.per_operation.as_ref().unwrap();
    let expected = Cost {
        cpu_us: 400.0,
        disk_us: 100.0,
        ..Cost::default()
    };
    let pools = costs.pools.iter().map(|pool| pool.cost);
    for sum in [costs.total, pools.fold(Cost::default(), Cost::plus)] {
        assert!(near(sum.cpu_us, expected.cpu_us) && near(sum.disk_us, expected.disk_us));
        assert!(near(sum.lock_us + sum.cpu_wait_us + sum.other_us, 0.0));
    }
    assert_eq!(costs.pools[0].name, "tp_osd_tp");
    assert!(near(costs.work.iter().map(|work| work.cpu_us).sum(), 400.0));
    assert_eq!(costs.work[0].name.as_deref(), Some("malloc, free"));
    assert!(near(class.us_per_op.unwrap(), 400.0) && near(found.us_per_op.unwrap(), 400.0));
}

/// Check that a number that was given goes before the process's own, and that others are per operation of the only class
/// that counts.
#[test]
fn given_and_others() {
    let given = cores_of(&osd().profile(), Some(500.0));
    let costs = given.classes[0].per_operation.as_ref().unwrap();
    assert!(near(costs.total.cpu_us, 800.0));
    let mut m = osd();
    let client = m.process(200, "fio");
    let t = m.thread_of(client, 201, "fio");
    m.on_cpu(t, &["f"], 50 * MS);
    let found = cores_of(&m.profile(), None);
    let client = found
        .classes
        .iter()
        .find(|class| class.class == "fio")
        .unwrap();
    assert!(near(client.us_per_op.unwrap(), 50.0) && client.per_operation.is_none());
    assert!(near(found.us_per_op.unwrap(), 450.0));
    m.tables.origins.counters.readings.clear();
    assert_eq!(cores_of(&m.profile(), None).us_per_op, None);
}

/// Check that two windows that follow each other have all operations together, and that what is between two readings
/// belongs to both in proportion.
#[test]
fn windows() {
    let mut m = osd();
    read(&mut m, ProcessId(0), 1_000, 6_980, 9_960);
    let of = |from: u64, to: u64| {
        let mut builder = ProfileBuilder::new().with_window(TimeNs(from * MS), TimeNs(to * MS));
        m.spans.iter().for_each(|span| builder.add_span(span));
        let profile = builder.finish(&m.tables, None, &Rules::builtin().unwrap());
        let counted = counted_by_class(&profile);
        counted.get("ceph-osd").map(|counted| counted.all.n)
    };
    assert!(near(of(10, 500).unwrap(), 490.0));
    assert!(near(of(500, 990).unwrap(), 490.0));
    assert!(near(of(980, 1000).unwrap(), 1010.0));
    // Of this one less than most is known.
    assert_eq!(of(0, 20), None);
}

/// Check that readings of a part of the time say nothing of all of it, and that a counter which falls is no growth.
#[test]
fn cut_and_reset() {
    let mut m = osd();
    m.tables.stats.duration = TimeNs(2_000 * MS);
    assert!(counted_by_class(&m.profile()).is_empty());
    let mut m = osd();
    read(&mut m, ProcessId(0), 995, 10, 10);
    let profile = m.profile();
    assert!(counted_by_class(&profile)["ceph-osd"].all.n < 1_000.0);
    let mut m = osd();
    let silent = m.process(300, "ceph-osd");
    let t = m.thread_of(silent, 301, "tp_osd_tp");
    m.on_cpu(t, &["f"], 50 * MS);
    assert!(
        counted_by_class(&m.profile()).is_empty(),
        "one of two does not count"
    );
}

/// Check that processes of a class are one, also if one of them had nothing to do.
#[test]
fn several() {
    let mut m = osd();
    let second = m.process(300, "ceph-osd");
    let idle = m.process(400, "ceph-osd");
    for (ms, count) in [(0, 1_000), (1_000, 1_500)] {
        read(&mut m, second, ms, count, 4 * count);
        read(&mut m, idle, ms, 7, 7);
    }
    let profile = m.profile();
    let counted = &counted_by_class(&profile)["ceph-osd"];
    assert!(near(counted.all.n, 1_500.0), "{counted:?}");
    // 980 operations of 2 ms, and 500 of 4 ms.
    let mean = (980.0 * 2_000.0 + 500.0 * 4_000.0) / 1_480.0;
    assert!(near(counted.all.latency_us.unwrap(), mean), "{counted:?}");
}

/// Twenty seconds of an OSD whose load changes with each second; an operation takes `us` of CPU time.
fn bursts(us: u64) -> Profile {
    let mut m = Maker::new();
    m.tables.stats.duration = TimeNs(20_000 * MS);
    let t = m.thread(101, "tp_osd_tp");
    m.tables.threads[0].end = TimeNs(20_000 * MS);
    let stack = m.stack(&["OSD::dequeue_op"], StackEnd::Root);
    let (mut n, mut random) = (0, 88_172_645_463_325_252_u64);
    read(&mut m, ProcessId(0), 0, n, n);
    for second in 0..20 {
        random = random
            .wrapping_mul(6_364_136_223_846_793_005)
            .wrapping_add(1);
        let ops = 100 + (random >> 33) % 1_000;
        for tenth in 0..10 {
            m.span(t, ThreadState::OnCpu, None, Some(stack), ops * us * 100);
            let start = second * 1_000 + tenth * 100;
            m.move_last(start * MS, (start + 100) * MS);
        }
        n += ops;
        read(&mut m, ProcessId(0), (second + 1) * 1_000, n, n);
    }
    m.profile()
}

/// Check that time which follows the load is compared per operation with a narrow interval, and that a number alone
/// gives a wide one.
#[test]
fn compared() {
    let (before, after) = (bursts(400), bursts(440));
    let counted = [&before, &after].map(|profile| counted_by_class(profile)["ceph-osd"].clone());
    let n_ops = Some(counted.each_ref().map(|counted| counted.all.n));
    let width = |ops_over_time: [Slices; 2]| {
        let options = DiffOptions {
            n_ops,
            ops_over_time,
            ..DiffOptions::default()
        };
        let found = diff(&before, &after, &options);
        let line = found.tables[0].lines[0].clone();
        assert!(near(line.difference(), 40_000.0), "{line:?}");
        let change = line.change.expect("it is tested");
        (change.high - change.low, change.significant)
    };
    let (narrow, is_significant) = width(counted.map(|counted| counted.over_time));
    assert!(is_significant && narrow < 20_000.0, "{narrow}");
    let (wide, is_significant) = width(Default::default());
    assert!(!is_significant && wide > 10.0 * narrow, "{wide}");
}

/// Check that operations between two recordings of one process do not count.
#[test]
fn recorded_twice() {
    let mut m = osd();
    m.tables.stats.duration = TimeNs(11_000 * MS);
    let source = |start: u64, n_processes| Source {
        host: "a".into(),
        engine: "bpf".into(),
        kernel: String::new(),
        n_cpus: 2,
        rate_hz: 99,
        started_unix_ns: 0,
        start: TimeNs(start * MS),
        duration: TimeNs(1_000 * MS),
        n_processes,
    };
    m.tables.origins.sources = vec![source(0, 1), source(10_000, 0)];
    m.tables.origins.recorded_again = vec![(ProcessId(0), 1)];
    read(&mut m, ProcessId(0), 10_010, 1_000_000, 1_000_000);
    read(&mut m, ProcessId(0), 10_990, 1_000_980, 1_001_960);
    let profile = m.profile();
    let n = counted_by_class(&profile)["ceph-osd"].all.n;
    assert!(near(n, 2_000.0), "{n}");
}

/// Check that a forged process which was recorded often, and often says what it counted, is done with: each reading
/// compared with each recording, it would take nearly 10^11 steps.
#[test]
fn recorded_often() {
    let mut m = osd();
    let source = Source {
        duration: TimeNs(1_000 * MS),
        n_processes: 1,
        ..Source::default()
    };
    m.tables.origins.sources = vec![source];
    m.tables.origins.recorded_again = vec![(ProcessId(0), 0); 1 << 18];
    let once = counted_by_class(&m.profile())["ceph-osd"].all.n;
    m.tables.origins.counters.readings.clear();
    for reading in 0..1 << 18 {
        m.tables.origins.counters.readings.push(CounterReading {
            process: ProcessId(0),
            time: TimeNs((reading * 1_000 * MS) >> 18),
            values: vec![(
                CounterId(0),
                CounterValue {
                    count: reading,
                    time_ns: 0,
                },
            )],
        });
    }
    let often = counted_by_class(&m.profile())["ceph-osd"].all.n;
    assert!(
        near(once, 1_000.0) && near(often, f64::from(1 << 18)),
        "{often}"
    );
}

/// Check exits of virtual machines a second by reason, beside counters of the process's own, and that what was before the first
/// reading does not count.
#[test]
fn exits_of_guests() {
    let mut m = Maker::new();
    let t = m.thread(101, "CPU 0/KVM");
    m.on_cpu(t, &["kvm_cpu_exec"], 1000 * MS);
    assert_eq!(vm_exits(&m.profile()), None);
    let names = [
        "kvm.exits",
        "kvm.io_exits",
        "kvm.halt_poll_fail_ns",
        "kvm.insn_emulation",
    ];
    let facts = &mut m.tables.origins.counters;
    facts.names = names
        .map(|name| CounterName {
            name: name.into(),
            timed: false,
        })
        .to_vec();
    for (ms, counts) in [
        (0, [1_000, 500, 7, 0]),
        (500, [3_000, 2_400, 7 + 50 * MS, 600]),
    ] {
        let values = (0..).map(CounterId).zip(counts);
        facts.readings.push(CounterReading {
            process: ProcessId(0),
            time: TimeNs(ms * MS),
            values: values
                .map(|(id, count)| (id, CounterValue { count, time_ns: 0 }))
                .collect(),
        });
    }
    let exits = vm_exits(&m.profile()).expect("exits were counted");
    assert!(
        near(exits.per_second, 4_000.0) && near(exits.polling, 0.1),
        "{exits:?}"
    );
    let reasons: Vec<_> = exits
        .reasons
        .iter()
        .map(|(name, n)| (name.as_str(), n.round()))
        .collect();
    assert_eq!(
        reasons,
        [("io", 3_800.0), ("emulated instruction", 1_200.0)]
    );
}
