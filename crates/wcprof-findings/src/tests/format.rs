//! Golden outputs. `WCPROF_BLESS=1` writes them anew.

use std::fs;
use std::path::Path;

use wcprof_profile::model::{Profile, ProfileProcess, State};
use wcprof_types::{Pid, StackEnd};

use super::builder::Builder;
use crate::{Detail, Finding, RuleSet, TextOptions, hotspots, render_rules, render_text, to_json};

fn check_golden(name: &str, actual: &str) {
    let path = Path::new(env!("CARGO_MANIFEST_DIR"))
        .join("tests/golden")
        .join(name);
    if std::env::var_os("WCPROF_BLESS").is_some() {
        fs::write(&path, actual).unwrap();
    }
    let expected = fs::read_to_string(&path).unwrap();
    assert!(
        actual == expected,
        "{name} differs; WCPROF_BLESS=1 accepts:\n{actual}"
    );
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

/// Check the text of several findings, wide and cut to one.
#[test]
fn text() {
    let profile = osd();
    let findings = hotspots(&profile, &RuleSet::builtin().unwrap());
    let text = render_text(&profile, &findings, TextOptions::default());
    assert!(!text.contains('\u{1b}'));
    assert!(text.lines().all(|l| l.chars().count() <= 120));
    check_golden("osd.txt", &text);
    let options = TextOptions {
        width: 60,
        max_findings: 1,
        detail: Detail::Full,
    };
    let short = render_text(&profile, &findings, options);
    assert!(short.contains(&format!(
        "\n{} more findings not shown: ",
        findings.len() - 1
    )));
    assert!(short.matches("advice  :").count() == 1);
}

/// Check the brief form: four kinds of lines a finding, each share and advice once.
#[test]
fn brief() {
    let profile = osd();
    let findings = hotspots(&profile, &RuleSet::builtin().unwrap());
    let options = TextOptions {
        width: 100,
        detail: Detail::Brief,
        ..TextOptions::default()
    };
    let text = render_text(&profile, &findings, options);
    assert_eq!(text.matches("  share   : ").count(), findings.len());
    assert_eq!(text.matches("  advice  : ").count(), findings.len());
    check_golden("osd-brief.txt", &text);
}

/// Check that the brief form names the process where there are several, escaped.
#[test]
fn brief_of_several_processes() {
    let mut profile = osd();
    let findings = hotspots(&profile, &RuleSet::builtin().unwrap());
    let process = |pid, title: &str| ProfileProcess {
        pid: Pid(pid),
        comm: "ceph-osd".to_owned(),
        cgroup: String::new(),
        title: title.to_owned(),
        class: "ceph-osd".to_owned(),
        host: "node1".to_owned(),
        recorded_ns: 1,
        ended: None,
    };
    profile.processes = vec![process(7, "osd.1"), process(100, "osd.3\x1b")];
    let options = TextOptions {
        detail: Detail::Brief,
        ..TextOptions::default()
    };
    let text = render_text(&profile, &findings, options);
    assert!(text.contains("] osd.3?/100 msgr-worker-N: "), "{text}");
}

/// Check that processes of two hosts with the same pid are told apart by their hosts, in findings too that
/// would else be added to each other.
#[test]
fn equal_pids_of_two_hosts() {
    let mut profile = osd();
    let process = |title: &str, host: &str| ProfileProcess {
        pid: Pid(100),
        comm: "ceph-osd".to_owned(),
        cgroup: String::new(),
        title: title.to_owned(),
        class: "ceph-osd".to_owned(),
        host: host.to_owned(),
        recorded_ns: 1,
        ended: None,
    };
    profile.processes = vec![process("osd.1", "node1"), process("osd.2", "node2")];
    for pool in &mut profile.pools {
        pool.process = 1;
    }
    let mut findings = hotspots(&profile, &RuleSet::builtin().unwrap());
    assert!(findings.iter().all(|f| f.host == "node2"));
    let mut other = findings[0].clone();
    other.host = "node1".to_owned();
    findings.insert(1, other);
    let options = TextOptions {
        detail: Detail::Brief,
        ..TextOptions::default()
    };
    let text = render_text(&profile, &findings, options);
    for place in ["osd.1/100 on node1 ", "osd.2/100 on node2 "] {
        assert!(text.contains(place), "{text}");
    }
    let text = render_text(&profile, &findings, TextOptions::default());
    assert!(text.contains("osd.1/100 on node1: "), "{text}");
    profile.processes.pop();
    let findings = hotspots(&profile, &RuleSet::builtin().unwrap());
    assert!(findings.iter().all(|f| f.host.is_empty()));
}

/// Check that the brief form adds a rule's other pools to its first finding, that they do not
/// use up the number of findings, and that what does not fit is named once.
#[test]
fn brief_of_many_pools() {
    let profile = osd();
    let mut findings = hotspots(&profile, &RuleSet::builtin().unwrap());
    assert!(findings.len() > 2);
    let (last, at) = (findings.last().unwrap().title.clone(), findings.len());
    for pool in ["finisher", "bstore_mempool"] {
        let mut other = findings[0].clone();
        other.pools = vec![pool.to_owned()];
        findings.insert(1, other);
    }
    let options = TextOptions {
        width: 60,
        max_findings: at - 1,
        detail: Detail::Brief,
    };
    let text = render_text(&profile, &findings, options);
    assert_eq!(text.matches("  advice  : ").count(), at - 1);
    let also: Vec<_> = text.lines().filter(|l| l.contains("also in")).collect();
    assert_eq!(also.len(), 1, "{text}");
    assert!(
        also[0].starts_with("  also in : bstore_mempool ("),
        "{text}"
    );
    assert!(text.contains("finisher ("), "{text}");
    assert!(text.lines().all(|l| l.chars().count() <= 60), "{text}");
    let joined = text.split_whitespace().collect::<Vec<_>>().join(" ");
    assert!(
        joined.contains(&format!("1 more finding not shown: {last}")),
        "{text}"
    );
}

/// Check the JSON document, and that it can be read back.
#[test]
fn json() {
    let findings = hotspots(&osd(), &RuleSet::builtin().unwrap());
    let text = to_json(&findings, None).unwrap();
    assert!(!text.contains('\u{1b}'));
    check_golden("osd.json", &text);
    let document: serde_json::Value = serde_json::from_str(&text).unwrap();
    let read: Vec<Finding> = serde_json::from_value(document["findings"].clone()).unwrap();
    assert_eq!(read, findings);
}

/// Check that no finding is said plainly, and that missing stacks are named as a reason.
#[test]
fn nothing_found() {
    let mut b = Builder::new();
    let t = b.thread("tp_osd_tp");
    b.bare(t, State::OnCpu, 500);
    let mut profile = b.build();
    profile.header.engine = "procfs-only".into();
    let findings = hotspots(&profile, &RuleSet::builtin().unwrap());
    let text = render_text(&profile, &findings, TextOptions::default());
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
    let findings = hotspots(&b.build(), &RuleSet::builtin().unwrap());
    let evidence = &findings[0].evidence[0];
    assert_eq!(evidence.lines.len(), 8);
    assert!(evidence.n_cut > 0);
    assert!(evidence.lines.iter().any(|l| l.name == "other()"));
}
