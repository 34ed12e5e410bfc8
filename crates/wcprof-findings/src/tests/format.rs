//! Golden outputs. `WCPROF_BLESS=1` writes them anew.

use std::path::Path;

use wcprof_profile::ProcessCounters;
use wcprof_profile::model::{Profile, ProfileProcess, State};
use wcprof_testkit::golden;
use wcprof_types::{Pid, StackEnd};

use super::builder::Builder;
use crate::{
    Basis, CountedGain, Detail, Finding, Remedy, RuleSet, Setting, SettingsFound, Severity,
    TimeShare, ToDoList, hotspots, render_rules, render_text, to_do, to_json,
};

fn check_golden(name: &str, actual: &str) {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/golden");
    golden(folder.join(name), actual);
}

/// An OSD in secure mode without tcmalloc.
fn osd() -> Profile {
    let mut b = Builder::new();
    let workers = [
        b.thread("msgr-worker-N"),
        b.thread("msgr-worker-N"),
        b.thread("msgr-worker-N"),
    ];
    let root = [
        "libc.so.6!clone3",
        "libstdc++.so.6!execute_native_thread_routine",
    ];
    let rx = "ceph-osd!ceph::crypto::onwire::AES128GCM_OnWireRxHandler::authenticated_decrypt_update(ceph::buffer::v15_2_0::list&)";
    let disasm = "ceph-osd!ceph::msgr::v2::FrameAssembler::disasm_remaining_secure_rev1(ceph::buffer::v15_2_0::list*, ceph::buffer::v15_2_0::list&) const";
    let update = "libcrypto.so.3!EVP_DecryptUpdate";
    let kernel = "libcrypto.so.3!libcrypto.so.3+0x241c80";
    let decrypt = [root[0], root[1], disasm, rx, update, kernel];
    b.row(workers[2], State::OnCpu, 260, &decrypt);
    b.row(
        workers[2],
        State::OnCpu,
        20,
        &[root[0], root[1], disasm, rx, update],
    );
    b.row(workers[2], State::OnCpu, 640, &[root[0], root[1], "ceph-osd!EventCenter::process_events(unsigned int, std::chrono::duration<unsigned long>*)"]);
    b.row(workers[0], State::OnCpu, 40, &decrypt);
    for i in 0..4 {
        let t = b.thread("tp_osd_tp");
        let op = "ceph-osd!PrimaryLogPG::do_op(boost::intrusive_ptr<OpRequest>&)";
        b.row(
            t,
            State::OnCpu,
            12,
            &[
                root[0],
                op,
                "libc.so.6!malloc",
                "libc.so.6!libc.so.6+0x98a10",
            ],
        );
        b.row(
            t,
            State::OnCpu,
            6,
            &[
                root[0],
                op,
                "ceph-osd!MOSDOpReply::encode()",
                "libc.so.6!free",
            ],
        );
        b.row(t, State::OnCpu, 150 + i, &[root[0], op]);
        let lock = ["libc.so.6!pthread_mutex_lock", "libc.so.6!__lll_lock_wait"];
        b.row(
            t,
            State::Lock,
            30,
            &[root[0], "ceph-osd!PG::lock(bool) const", lock[0], lock[1]],
        );
        b.row(
            t,
            State::Lock,
            10,
            &[
                root[0],
                "ceph-osd!OSDShard::_attach()\u{1b}[31m",
                lock[0],
                lock[1],
            ],
        );
    }
    let t = b.thread("bstore_kv_sync");
    let flush = [
        root[0],
        "ceph-osd!BlueStore::_kv_sync_thread()",
        "ceph-osd!KernelDevice::flush()",
        "libc.so.6!fdatasync",
    ];
    b.wait(t, State::Disk, 240, (&flush, StackEnd::Root), Some(75));
    b.build()
}

/// Check the text of several findings.
#[test]
fn text() {
    let profile = osd();
    let found = hotspots(&profile, &RuleSet::builtin().unwrap(), &[]);
    let text = render_text(&profile, &found, 120, Detail::Full);
    assert!(!text.contains('\u{1b}'));
    assert!(text.lines().all(|l| l.chars().count() <= 120));
    check_golden("osd.txt", &text);
}

pub(super) fn process(pid: i32, title: &str, host: &str) -> ProfileProcess {
    ProfileProcess {
        counters: ProcessCounters::default(),
        pid: Pid(pid),
        comm: "ceph-osd".to_owned(),
        cgroup: String::new(),
        title: title.to_owned(),
        class: "ceph-osd".to_owned(),
        host: host.to_owned(),
        fsid: String::new(),
        is_folded: false,
        recorded_ns: 1,
        ended: None,
        accounts: Default::default(),
    }
}

/// Check the list of what to do: one item for what comes to the same action, the worst first, and names of
/// processes where there are several.
#[test]
fn what_to_do() {
    let mut profile = osd();
    let mut findings = hotspots(&profile, &RuleSet::builtin().unwrap(), &[]).findings;
    let mut other = findings[0].clone();
    other.pools = vec!["finisher".to_owned()];
    findings.push(other);
    let mut setting = findings[0].clone();
    setting.basis = Basis::Setting(SettingsFound {
        settings: vec![Setting {
            name: "ms_cluster_mode".to_owned(),
            value: "secure".to_owned(),
            origin: "ceph.conf".to_owned(),
        }],
        n_threads: None,
    });
    setting.action = "change it".to_owned();
    findings.push(setting);
    let lines = |profile: &Profile| {
        let items = to_do(profile, &findings, &[]).items.into_iter();
        let lines =
            items.map(|item| format!("{} {} -> {}\n", item.gain.text(), item.why, item.action));
        lines.collect::<String>()
    };
    check_golden("osd-to-do.txt", &lines(&profile));
    profile.processes = vec![process(7, "osd.1", "node1"), process(100, "osd.3", "node1")];
    assert!(lines(&profile).lines().all(|line| line.contains(" osd.3")));
}

/// Check that a setting is worth what a rule counted of it, whatever its severity, and else by severity a part of all CPU time.
#[test]
fn gains_of_settings() {
    let mut profile = osd();
    profile.processes = vec![process(100, "osd.3", "node1")];
    let found = hotspots(&profile, &RuleSet::builtin().unwrap(), &[]);
    let malloc = found.findings.iter().find(|one| one.rule == "libc-malloc");
    let setting = |severity, action: &str| Finding {
        severity,
        action: action.to_owned(),
        basis: Basis::Setting(SettingsFound::default()),
        ..malloc.unwrap().clone()
    };
    // Three threads of a quarter of the time each.
    let action = &malloc.unwrap().action;
    let settings = [
        setting(Severity::High, "change what no rule counts"),
        setting(Severity::Low, action),
    ];
    let first =
        |counted: &[CountedGain]| to_do(&profile, &settings, counted).items[0].action.clone();
    assert_eq!(first(&[]), "change what no rule counts");
    let gain = |gain_ns| CountedGain {
        host: String::new(),
        pid: Pid(100),
        action: action.clone(),
        gain_ns,
        unnamed_ns: 0,
    };
    assert_eq!(first(&[gain(10_000_000_000)]), *action);
    assert_eq!(first(&[gain(0)]), "change what no rule counts");
    let of_malloc = found.counted.iter().filter(|one| one.action == *action);
    let of_malloc: Vec<u64> = of_malloc.map(|one| one.gain_ns).collect();
    let counted = match &malloc.unwrap().basis {
        Basis::Time(share) => share.matched_ns,
        _ => 0,
    };
    assert_eq!(of_malloc, [(counted as f64 * 0.6) as u64]);
    // What a guest computes is no matter of the settings of its emulator.
    for pool in &mut profile.pools {
        pool.name = "CPU N/TCG".to_owned();
    }
    let of_guest = to_do(&profile, &settings[..1], &[]);
    assert_eq!(of_guest.items[0].gain.text(), "<0.01 cores");
}

/// Check that what many processes have in common is one thing to do, and that what follows from something else is none where
/// anything can be changed.
#[test]
fn causes_before_symptoms() {
    let mut profile = osd();
    profile.processes.push(process(7, "osd.1", "node1"));
    let found = hotspots(&profile, &RuleSet::builtin().unwrap(), &[]).findings;
    let of_rule = |rule: &str| found.iter().find(|one| one.rule == rule).unwrap();
    let malloc = of_rule("libc-malloc");
    let like = |pid: i32, process: &str| Finding {
        pid: Pid(pid),
        process: process.to_owned(),
        ..malloc.clone()
    };
    let waiting = match &malloc.basis {
        Basis::Time(share) => Basis::Time(TimeShare {
            states: vec![State::Runnable],
            ..share.clone()
        }),
        other => other.clone(),
    };
    let starved = |pid: i32| Finding {
        title: "Others use the CPUs".to_owned(),
        action: "fewer other processes".to_owned(),
        remedy: Remedy::Nothing,
        severity: Severity::High,
        basis: waiting.clone(),
        ..like(pid, "osd")
    };
    let both = [malloc.clone(), like(7, "osd.1"), starved(7), starved(100)];
    let ToDoList { cpu_wait, items } = to_do(&profile, &both, &[]);
    assert_eq!(items.len(), 1, "{items:?}");
    let why = cpu_wait.unwrap().why;
    assert!(why.contains(": Others use the CPUs: "), "{why}");
    let start = "ceph-osd and osd.1: Memory comes from libc's malloc";
    assert!(items[0].why.starts_with(start), "{items:?}");
    let three = [malloc.clone(), like(7, "osd.1"), like(8, "osd.2")];
    let start = "ceph-osd and 2 others: Memory";
    assert!(to_do(&profile, &three, &[]).items[0].why.starts_with(start));
    // Once for all processes.
    let ToDoList { cpu_wait, items } = to_do(&profile, &[starved(7), starved(100)], &[]);
    assert_eq!(items.len(), 1, "{items:?}");
    assert_eq!(cpu_wait, None);
    // A lock, which needs other code, does not explain it.
    let items = to_do(
        &profile,
        &[of_rule("lock-contention").clone(), starved(7)],
        &[],
    )
    .items;
    assert_eq!(items.len(), 2, "{items:?}");
}

/// Check that processes of two hosts with the same pid are told apart by their hosts, in findings too that
/// would else be added to each other.
#[test]
fn equal_pids_of_two_hosts() {
    let mut profile = osd();
    profile.processes = vec![
        process(100, "osd.1", "node1"),
        process(100, "osd.2", "node2"),
    ];
    for pool in &mut profile.pools {
        pool.process = 1;
    }
    let mut found = hotspots(&profile, &RuleSet::builtin().unwrap(), &[]);
    assert!(found.findings.iter().all(|f| f.host == "node2"));
    let n = to_do(&profile, &found.findings, &[]).items.len();
    let mut other = found.findings[0].clone();
    other.host = "node1".to_owned();
    other.process = "osd.1".to_owned();
    found.findings.insert(1, other);
    assert_eq!(to_do(&profile, &found.findings, &[]).items.len(), n + 1);
    let text = render_text(&profile, &found, 120, Detail::Full);
    assert!(text.contains("osd.1 (pid 100) on node1: "), "{text}");
    profile.processes.pop();
    let found = hotspots(&profile, &RuleSet::builtin().unwrap(), &[]);
    assert!(found.findings.iter().all(|f| f.host.is_empty()));
}

/// Check the JSON document, and that it can be read back.
#[test]
fn json() {
    let found = hotspots(&osd(), &RuleSet::builtin().unwrap(), &[]);
    let text = to_json(&found, &[], vec![]).unwrap();
    assert!(!text.contains('\u{1b}'));
    check_golden("osd.json", &text);
    let document: serde_json::Value = serde_json::from_str(&text).unwrap();
    let read: Vec<Finding> = serde_json::from_value(document["findings"].clone()).unwrap();
    // Percentages are not the same to the last bit.
    let facts = |list: &[Finding]| {
        let facts = list.iter().map(|f| (f.rule.clone(), f.basis.clone()));
        facts.collect::<Vec<_>>()
    };
    assert_eq!(facts(&read), facts(&found.findings));
}

/// Check that no finding is said plainly, and that missing stacks are named as a reason.
#[test]
fn nothing_found() {
    let mut b = Builder::new();
    let t = b.thread("tp_osd_tp");
    b.bare(t, State::OnCpu, 500);
    let mut profile = b.build();
    profile.header.engine = "procfs-only".into();
    let found = hotspots(&profile, &RuleSet::builtin().unwrap(), &[]);
    let text = render_text(&profile, &found, 120, Detail::Full);
    assert_eq!(
        text,
        "no hotspots found\nnote: 100 % of the on-CPU time has no stack (engine procfs-only): \
         rules on running code cannot see it\n"
    );
}

/// Check that the list names every rule with its source.
#[test]
fn list() {
    let set = RuleSet::builtin().unwrap();
    let text = render_rules(&set, 120);
    for rule in set.rules() {
        assert!(text.contains(&format!("{} [{}]", rule.id, rule.severity.name())));
    }
    assert_eq!(text.matches("\n  threshold").count(), set.rules().len());
}

/// Check that tree evidence stays within its lines and keeps the second branch.
#[test]
fn tree_is_cut() {
    let mut b = Builder::new();
    let t = b.thread("tp_osd_tp");
    let deep: Vec<String> = (0..40).map(|i| format!("a!caller_{i}")).collect();
    let mut stack: Vec<&str> = deep.iter().map(String::as_str).collect();
    stack.push("libc.so.6!malloc");
    b.row(t, State::OnCpu, 60, &stack);
    b.row(t, State::OnCpu, 40, &["a!other()", "libc.so.6!malloc"]);
    let findings = hotspots(&b.build(), &RuleSet::builtin().unwrap(), &[]).findings;
    let evidence = &findings[0].evidence[0];
    assert_eq!(evidence.lines.len(), 8);
    assert!(evidence.n_cut > 0);
    assert!(evidence.lines.iter().any(|l| l.name == "other()"));
}
