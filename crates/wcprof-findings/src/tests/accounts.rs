//! Rules beside what the kernel accounted: limits of control groups, and why threads waited for a CPU.

use std::sync::Arc;

use wcprof_profile::model::{Profile, State};
use wcprof_profile::{AccountsChange, GroupFate, HostAccounts};
use wcprof_types::accounts::{
    AccountsDetail, CpuTimes, DeadlineBudget, OtherProcess, OtherProcesses, ThreadSet,
};
use wcprof_types::cgroup::{BlockIo, Cgroup, Pressure};
use wcprof_types::{Pid, Tid};

use super::builder::{Builder, DURATION_NS};
use super::format::process;
use super::rules::Case;
use crate::{Finding, RuleSet, Severity, hotspots, render_finding, to_do};

const S: u64 = 1_000_000_000;

/// Two threads of a pool, each running and runnable for so many of 1000 ticks.
fn profile(on_cpu: u64, runnable: u64) -> Profile {
    let mut b = Builder::new();
    for _ in 0..2 {
        let t = b.thread("CPU N/KVM");
        b.row(t, State::OnCpu, on_cpu, &["qemu!run"]);
        b.row(t, State::Runnable, runnable, &["qemu!run"]);
    }
    let mut profile = b.build();
    profile.processes = vec![process(100, "vm1", "node1")];
    profile.processes[0].recorded_ns = DURATION_NS;
    profile
}

/// What was accounted in ten seconds: what `last` has beyond nothing.
fn accounted(mut profile: Profile, cpu: CpuTimes, last: AccountsDetail) -> Profile {
    let first = AccountsDetail {
        by_cpu: last
            .by_cpu
            .keys()
            .map(|cpu| (*cpu, CpuTimes::default()))
            .collect(),
        groups: last.groups.iter().map(started).collect(),
        pressure: last
            .pressure
            .keys()
            .map(|r| (r.clone(), Pressure::default()))
            .collect(),
        others: OtherProcesses {
            n_read: 1,
            ..OtherProcesses::default()
        },
        ..AccountsDetail::default()
    };
    let mut host = HostAccounts::default();
    host.cpu = cpu;
    host.change = AccountsChange::between(vec![(0, first), (DURATION_NS, last)]);
    profile.processes[0].accounts = Arc::new(host);
    profile
}

/// A group of which nothing is counted yet.
fn started(group: &Cgroup) -> Cgroup {
    let zero = BlockIo {
        read_bytes: Some(0),
        write_bytes: Some(0),
        reads: Some(0),
        writes: Some(0),
    };
    Cgroup {
        n_periods: Some(0),
        n_throttled: Some(0),
        throttled_us: Some(0),
        n_memory_high: Some(0),
        n_memory_max: Some(0),
        io: group
            .io
            .keys()
            .map(|device| (device.clone(), zero))
            .collect(),
        ..group.clone()
    }
}

/// The threads of [`profile`], which may use these CPUs and are in the first of the groups.
fn threads(cpus: &str, groups: &[u32]) -> ThreadSet {
    ThreadSet {
        pid: Pid(100),
        tids: vec![Tid(101), Tid(102)],
        groups: groups.to_vec(),
        cpus: cpus.to_owned(),
        ..ThreadSet::default()
    }
}

fn cpu(user: u64, idle: u64, steal: u64) -> CpuTimes {
    CpuTimes {
        user: user * S,
        idle: idle * S,
        steal: steal * S,
        ..CpuTimes::default()
    }
}

/// The threads in a group with these limits and counts.
fn grouped(profile: Profile, group: Cgroup) -> Profile {
    let path = "/machine.slice/vm1/vcpu0".to_owned();
    let detail = AccountsDetail {
        groups: vec![Cgroup { path, ..group }],
        threads: vec![threads("0-1", &[0])],
        ..AccountsDetail::default()
    };
    accounted(profile, CpuTimes::default(), detail)
}

fn throttled(n: u64, of: u64) -> Cgroup {
    Cgroup {
        quota_us: Some(20_000),
        period_us: Some(100_000),
        n_periods: Some(of),
        n_throttled: Some(n),
        // 7.5 s of 97 periods.
        throttled_us: Some(n * 7_500_000 / 97),
        ..Cgroup::default()
    }
}

pub(super) fn cpu_quota() -> Case {
    let of = |group| grouped(profile(10, 0), group);
    let unlimited = Cgroup {
        quota_us: None,
        ..throttled(90, 100)
    };
    let rare = vec![of(throttled(1, 100)), of(throttled(2, 201)), of(unlimited)];
    ("cpu-quota", of(throttled(2, 200)), rare)
}

pub(super) fn io_limit() -> Case {
    let of = |bytes_a_second: u64| {
        let device = "8:0".to_owned();
        let limit = BlockIo {
            write_bytes: Some(1 << 20),
            ..BlockIo::default()
        };
        let done = BlockIo {
            write_bytes: Some(10 * bytes_a_second),
            ..BlockIo::default()
        };
        let group = Cgroup {
            io_limits: [(device.clone(), limit)].into(),
            io: [(device, done)].into(),
            ..Cgroup::default()
        };
        grouped(profile(10, 0), group)
    };
    ("io-limit", of(900 << 10), vec![of(700 << 10), of(0)])
}

pub(super) fn memory_high() -> Case {
    let of = |n, limit| {
        let group = Cgroup {
            memory_high: limit,
            n_memory_high: Some(n),
            ..Cgroup::default()
        };
        grouped(profile(10, 0), group)
    };
    let high = Some(64 << 20);
    (
        "memory-high",
        of(10, high),
        vec![of(9, high), of(1000, None)],
    )
}

pub(super) fn memory_max() -> Case {
    let of = |n, limit| {
        let group = Cgroup {
            memory_max: limit,
            n_memory_max: Some(n),
            ..Cgroup::default()
        };
        grouped(profile(10, 0), group)
    };
    let max = Some(64 << 20);
    ("memory-max", of(10, max), vec![of(9, max), of(1000, None)])
}

/// Check that a limit of memory or of a disk comes with how long its group and the host waited for that.
#[test]
fn limit_and_pressure() {
    let of = |resource: &str, some_us: u64| {
        let pressure = Pressure {
            some_us,
            full_us: 0,
        };
        [(resource.to_owned(), pressure)].into()
    };
    let (_, profile, _) = memory_high();
    let set = |mut profile: Profile, resource: &str| {
        let accounts = Arc::make_mut(&mut profile.processes[0].accounts);
        let change = accounts.change.as_mut().unwrap();
        change.groups[0].group.pressure = of(resource, 8_123_000);
        change.pressure = of(resource, 9_000_000);
        change.block_wait_ns = [(Pid(100), 7 * S)].into();
        render_finding(&found(&profile)[0], 400)
    };
    let text = set(profile, "memory");
    for part in [
        "memory.high 64 MiB held threads up 10 times during the recording, for at least 81.2 % of that time some thread waited for memory; \
         threads: CPU N/KVM",
        "memory pressure (a mean over CPUs) and delays, % of the recording",
        "90.00% the host: some task waited",
        "81.23% /machine.slice/vm1/vcpu0: some task waited",
    ] {
        assert!(text.contains(part), "{part} in {text}");
    }
    let (_, profile, _) = io_limit();
    // Where the kernel accounts none, nothing is said of it.
    assert!(!render_finding(&found(&profile)[0], 400).contains("evidence"));
    let text = set(profile, "io");
    for part in [
        "81.23% /machine.slice/vm1/vcpu0: some task waited",
        "70.00% delay accounting: its threads waited for block devices",
    ] {
        assert!(text.contains(part), "{part} in {text}");
    }
}

fn found(profile: &Profile) -> Vec<Finding> {
    hotspots(profile, &RuleSet::builtin().unwrap(), &[]).findings
}

/// Sets what the CPUs did.
fn with_cpu(profile: &mut Profile, cpu: CpuTimes) {
    Arc::make_mut(&mut profile.processes[0].accounts).cpu = cpu;
}

/// The finding on run-queue delay.
fn delay(profile: &Profile) -> Finding {
    let mut found = found(profile);
    let at = found
        .iter()
        .position(|f| f.rule == "run-queue-delay")
        .unwrap();
    found.remove(at)
}

/// Check that a limit comes before what it costs, as one thing to do, and that its counts are of the recording.
#[test]
fn limit_and_symptom() {
    let p = grouped(profile(200, 800), throttled(97, 100));
    // The times of the CPUs are needed to say a cause.
    let mut p = p;
    with_cpu(&mut p, cpu(4, 16, 0));
    let findings = found(&p);
    let ids: Vec<&str> = findings.iter().map(|f| f.rule.as_str()).collect();
    assert_eq!(ids, ["cpu-quota", "run-queue-delay"]);
    assert_eq!(findings[1].severity, Severity::Medium);
    let to_do = to_do(&p, &findings, &[]).items;
    assert_eq!(to_do.len(), 1);
    let why = "A control group's CPU quota stops its threads: /machine.slice/vm1/vcpu0 0.20 CPUs (20.0 ms of each 100 ms), \
               throttled in 97 of 100 periods during the recording, 7.50 s of throttled time (added up over CPUs); threads: CPU N/KVM; \
               they wait 80.0 % of CPU N/KVM's non-idle time";
    assert_eq!(to_do[0].why, why);
    // In a ring the readings are of a part.
    let mut short = p.clone();
    let accounts = Arc::make_mut(&mut short.processes[0].accounts);
    accounts.change.as_mut().unwrap().length_ns = 4 * S;
    let text = render_finding(&found(&short)[0], 400);
    assert!(
        text.contains("97 of 100 periods in 4.00 s of the recording"),
        "{text}"
    );
    // A group that was made anew says nothing of its quota but that.
    let mut anew = p.clone();
    let accounts = Arc::make_mut(&mut anew.processes[0].accounts);
    let group = &mut accounts.change.as_mut().unwrap().groups[0];
    group.fate = GroupFate::Replaced;
    (group.group.n_throttled, group.group.n_periods) = (None, None);
    let text = render_finding(&found(&anew)[0], 400);
    let said =
        "/machine.slice/vm1/vcpu0: 0.20 CPUs (20.0 ms of each 100 ms), 7.50 s of throttled time";
    assert!(text.contains(said) && text.contains("made anew"), "{text}");
    // So it may have been the cause.
    let unknown = "Threads wait for a CPU, and their limits changed during the recording";
    assert!(text.contains(unknown), "{text}");
    // Few throttled periods do not explain much waiting, nor do many that were short.
    let short = Cgroup {
        throttled_us: Some(419_000),
        ..throttled(97, 100)
    };
    for group in [throttled(3, 100), short] {
        let mut p = grouped(profile(200, 800), group);
        with_cpu(&mut p, cpu(20, 0, 0));
        let title = delay(&p).title;
        assert!(
            title.starts_with("Threads wait for a CPU while other processes"),
            "{title}"
        );
    }
}

/// Check that readings which are not of the profile's own time tell the cause, too, in their proportion.
#[test]
fn readings_around() {
    let read = grouped(profile(200, 800), throttled(97, 100));
    let change = read.processes[0].accounts.change.clone().unwrap();
    let mut longer = change.clone();
    longer.length_ns *= 4;
    for (change, cause) in [
        (change, "CPU-starved by the quota of a control group"),
        // A quarter of its throttled time is less than half of the waiting.
        (longer, "Threads wait for a CPU while other processes"),
    ] {
        let mut p = profile(200, 800);
        with_cpu(&mut p, cpu(20, 0, 0));
        p.set_change(&change);
        let findings = found(&p);
        assert_eq!(findings[0].rule, "cpu-quota");
        let title = delay(&p).title;
        assert!(title.starts_with(cause), "{title}");
    }
}

/// Check each cause of waiting for a CPU, with its figures and how much it matters.
#[test]
fn causes() {
    let by_cpu = |first: CpuTimes, second: CpuTimes| [(0, first), (1, second)].into();
    let busy_and_idle = by_cpu(cpu(10, 0, 0), cpu(1, 9, 0));
    let both_busy = by_cpu(cpu(10, 0, 0), cpu(10, 0, 0));
    let of = |cpu: CpuTimes, last: AccountsDetail| delay(&accounted(profile(400, 400), cpu, last));
    let set = |cpus| AccountsDetail {
        threads: vec![threads(cpus, &[])],
        ..AccountsDetail::default()
    };
    let fio = OtherProcess {
        name: "fio".into(),
        n: 2,
        cpu_ns: 11 * S,
    };
    let mut others = set("0-1");
    others.others.by_name = vec![fio];
    others.others.n_unread = 3;
    let pressure = Pressure {
        some_us: 3_000_000,
        full_us: 0,
    };
    others.pressure = [("cpu".to_owned(), pressure)].into();
    let budget = DeadlineBudget {
        runtime_ns: 4_000_000,
        period_ns: 10_000_000,
    };
    let mut deadline = set("0-1");
    deadline.threads[0].deadline = Some(budget);
    let mut unused = deadline.clone();
    unused.threads[0].deadline = Some(DeadlineBudget {
        runtime_ns: 9_000_000,
        ..budget
    });
    let on = |cpus, by_cpu| AccountsDetail {
        by_cpu,
        ..set(cpus)
    };
    let (high, low) = (Severity::High, Severity::Low);
    for (expected, severity, cpu, last) in [
        (
            "Threads wait for a CPU in bursts: the CPUs were idle for 60.0 % of that time",
            low,
            cpu(8, 12, 0),
            set("0-1"),
        ),
        (
            "Threads wait for a CPU while the recorded processes use 0.80 of 2 cores",
            high,
            cpu(15, 4, 1),
            set("0-1"),
        ),
        (
            "Threads wait for a CPU while other processes use 1.10 of 2 cores (fio 1.10)",
            high,
            cpu(19, 1, 0),
            others.clone(),
        ),
        (
            "CPU-starved by the hypervisor (it took 40.0 % of the CPUs' time)",
            high,
            cpu(12, 0, 8),
            set("0-1"),
        ),
        (
            "CPU-starved by their own budget under SCHED_DEADLINE (4.00 ms of each 10.0 ms, of which 40.0 % of the time was used)",
            high,
            cpu(8, 12, 0),
            deadline,
        ),
        (
            "Threads wait for a CPU in bursts: the CPUs were idle for 60.0 % of that time",
            low,
            cpu(8, 12, 0),
            unused,
        ),
        (
            "CPU-starved on the CPUs that they may use (1.60 threads on average for CPU 0, 0.0 % idle; CPU 1 was 90.0 % idle)",
            high,
            cpu(11, 9, 0),
            on("0", busy_and_idle),
        ),
        (
            "CPU-starved on the CPUs that they may use (1.60 threads on average for CPU 0, 0.0 % idle; CPU 1 was 0.0 % idle)",
            high,
            cpu(20, 0, 0),
            on("0", both_busy),
        ),
    ] {
        let finding = of(cpu, last);
        let got = (finding.title.as_str(), finding.severity);
        assert_eq!(got, (expected, severity));
        assert!(!finding.action.starts_with("more CPU") || severity == high);
    }
    let text = render_finding(&of(cpu(9, 10, 1), others), 100);
    let evidence = "CPUs of node1, % of their time (3 processes were not read); these";
    for line in [
        evidence,
        "idle; 50.0 % while these threads waited",
        "fio (2 processes)",
        "stolen by the hypervisor",
        "cpu pressure (a mean over CPUs) and delays, % of the recording",
        "+ 30.00% the host: some task waited",
    ] {
        assert!(text.contains(line), "{line}: {text}");
    }
}

/// What is told of threads that waited while all CPUs were busy with others, of the first reading and the last.
fn told(first: AccountsDetail, last: AccountsDetail) -> (String, String) {
    told_of(vec![first, last])
}

/// The same of readings in order of time.
fn told_of(readings: Vec<AccountsDetail>) -> (String, String) {
    let mut p = profile(200, 800);
    let mut host = HostAccounts::default();
    host.cpu = cpu(20, 0, 0);
    let n_steps = (readings.len() - 1) as u64;
    let readings = (0..).zip(readings);
    let readings = readings.map(|(n, detail)| (n * DURATION_NS / n_steps, detail));
    host.change = AccountsChange::between(readings.collect());
    p.processes[0].accounts = Arc::new(host);
    let finding = delay(&p);
    (finding.title, finding.explanation)
}

/// Threads in the first of these groups; all of them have an inode.
fn inside(groups: &[(&str, Cgroup)]) -> AccountsDetail {
    let groups = groups.iter().map(|(path, group)| Cgroup {
        path: (*path).to_owned(),
        inode: Some(1),
        ..group.clone()
    });
    AccountsDetail {
        groups: groups.collect(),
        threads: vec![threads("0-1", &[0])],
        ..AccountsDetail::default()
    }
}

/// Check that limits that changed are told with what is known of them, and that no other cause is named.
#[test]
fn changed_limits() {
    let quota = |n, of| throttled(n, of);
    let none = |n, of| Cgroup {
        quota_us: None,
        ..throttled(n, of)
    };
    let larger = Cgroup {
        quota_us: Some(40_000),
        ..quota(29, 30)
    };
    let mut elsewhere = inside(&[("/b", Cgroup::default()), ("/a", quota(29, 30))]);
    // Another thread of the recording stays in the group.
    elsewhere.threads.push(ThreadSet {
        tids: vec![Tid(103)],
        ..threads("0-1", &[1])
    });
    let mut both = inside(&[("/a", quota(0, 0))]);
    both.threads[0].tids.push(Tid(103));
    let budget = |budget| {
        let mut detail = inside(&[("/a", Cgroup::default())]);
        detail.threads[0].deadline = budget;
        detail
    };
    let runtime = DeadlineBudget {
        runtime_ns: 4_000_000,
        period_ns: 10_000_000,
    };
    let mut bound = inside(&[("/a", quota(1, 100))]);
    bound.threads[0].cpus = "1".to_owned();
    for (first, last, said) in [
        (
            inside(&[("/a", quota(0, 0))]),
            inside(&[("/a", none(29, 30))]),
            &["/a: 0.20 CPUs -> no quota, throttled in 29 of 30 periods during the recording"][..],
        ),
        (
            inside(&[("/a", quota(0, 0))]),
            inside(&[("/a", larger)]),
            &["/a: 0.20 CPUs -> 0.40 CPUs, throttled in 29 of 30"],
        ),
        (
            both,
            elsewhere,
            &[
                "moved from /a to /b",
                "/a: 0.20 CPUs, throttled in 29 of 30",
            ],
        ),
        (
            inside(&[("/a", quota(9, 10))]),
            inside(&[("/b", quota(0, 3))]),
            &[
                "moved from /a to /b",
                "/a: 0.20 CPUs, its threads left it",
                "/b: 0.20 CPUs, its threads entered it",
            ],
        ),
        (
            budget(Some(runtime)),
            budget(None),
            &["budget under SCHED_DEADLINE 4.00 ms of each 10.0 ms -> none"],
        ),
        (
            inside(&[("/a", quota(0, 0))]),
            bound,
            &["CPUs 0-1 -> 1", "/a: 0.20 CPUs, throttled in 1 of 100"],
        ),
    ] {
        let (title, text) = told(first, last);
        assert_eq!(
            title,
            "Threads wait for a CPU, and their limits changed during the recording"
        );
        for said in said {
            assert!(text.contains(said), "{said}: {text}");
        }
    }
    // At the end all is as it was at the beginning.
    let away = || inside(&[("/a", quota(9, 10)), ("/b", quota(0, 3))]);
    let mut visit = away();
    visit.threads[0].groups = vec![1];
    let (title, text) = told_of(vec![away(), visit, away()]);
    assert!(title.ends_with("changed during the recording"), "{title}");
    for said in ["moved from /a to /b to /a", "/b: 0.20 CPUs"] {
        assert!(text.contains(said), "{said}: {text}");
    }
    // From a group of one hierarchy to that above it, whatever groups it has in others.
    let outside = |groups: &[u32]| {
        let mut detail = inside(&[
            ("/m", Cgroup::default()),
            ("/a/b", quota(29, 30)),
            ("/a", Cgroup::default()),
        ]);
        detail.groups[1].hierarchy = "cpu".to_owned();
        detail.groups[2].hierarchy = "cpu".to_owned();
        detail.threads[0].groups = groups.to_vec();
        detail
    };
    for (up, said) in [
        (&[0, 2][..], "moved from /a/b to /a to /a/b"),
        (&[0], "moved from /a/b to / to /a/b"),
    ] {
        let inner: &[u32] = if up.len() > 1 { &[0, 1, 2] } else { &[0, 1] };
        let (_, text) = told_of(vec![outside(inner), outside(up), outside(inner)]);
        assert!(text.contains(said), "{said}: {text}");
    }
    let at_home = |quota| inside(&[("/a", quota)]);
    let (title, text) = told_of(vec![
        at_home(quota(0, 0)),
        at_home(none(10, 10)),
        at_home(quota(29, 30)),
    ]);
    assert!(title.ends_with("changed during the recording"), "{title}");
    let said = "/a: 0.20 CPUs -> no quota -> 0.20 CPUs, throttled in 29 of 30 periods";
    assert!(text.contains(said), "{text}");
    // What is not known of a group that none of the waiting threads was in hides no other cause.
    let mut other = inside(&[("/a", Cgroup::default()), ("/b", quota(0, 3))]);
    other.threads.push(ThreadSet {
        tids: vec![Tid(103)],
        ..threads("0-1", &[1])
    });
    let (title, _) = told(inside(&[("/a", Cgroup::default())]), other);
    assert!(
        title.starts_with("Threads wait for a CPU while other processes"),
        "{title}"
    );
    // A move between groups without limits is none of these, and a steady quota above says why they waited.
    let moved = |path| inside(&[(path, Cgroup::default())]);
    let (title, _) = told(moved("/a"), moved("/b"));
    assert!(
        title.starts_with("Threads wait for a CPU while other processes"),
        "{title}"
    );
    let below = |path, group| {
        let mut detail = inside(&[(path, Cgroup::default()), ("/", group)]);
        detail.threads[0].groups = vec![0, 1];
        detail
    };
    let (title, _) = told(below("/a", quota(0, 0)), below("/b", quota(97, 100)));
    assert_eq!(title, "CPU-starved by the quota of a control group");
}

/// Check that a file of a ring with one reading, or with readings of a small part, names no cause.
#[test]
fn ring_without_counts() {
    let whole = accounted(profile(400, 400), cpu(8, 12, 0), AccountsDetail::default());
    assert!(
        delay(&whole)
            .title
            .starts_with("Threads wait for a CPU in bursts")
    );
    let mut once = whole.clone();
    Arc::make_mut(&mut once.processes[0].accounts).change = None;
    let mut short = whole.clone();
    let accounts = Arc::make_mut(&mut short.processes[0].accounts);
    accounts.change.as_mut().unwrap().length_ns = DURATION_NS / 3;
    for (profile, said) in [
        (once, "were not read twice"),
        (short, "were counted in 3.33 s of 10.0 s"),
    ] {
        let finding = delay(&profile);
        assert_eq!(finding.title, "Threads wait for a CPU");
        assert!(
            finding.explanation.contains(said),
            "{}",
            finding.explanation
        );
        assert!(finding.action.starts_with("find out why"));
    }
}

/// Check that a recording without accounts says that it does not tell the cause.
#[test]
fn unknown_cause() {
    let finding = delay(&profile(200, 800));
    assert_eq!(finding.title, "Threads wait for a CPU");
    assert!(
        finding
            .explanation
            .ends_with("This recording does not tell which.")
    );
    assert!(finding.action.starts_with("find out why"));
}
