//! Checks on snapshots made by hand: each finds what it is for, and says nothing where nothing is
//! known. Whole hosts are tested in `crates/wcprof/tests/doctor.rs`.

use wcprof_types::cgroup::Cgroup;
use wcprof_types::redact_args;
use wcprof_types::snapshot::{Library, NumaMemory, NumaNode, Snapshot, ThreadSetup};

use crate::{Observed, Report};

fn ids(report: &Report) -> Vec<&str> {
    report.findings.iter().map(|f| f.rule.as_str()).collect()
}

fn diagnose(snapshot: &Snapshot) -> Report {
    crate::diagnose(snapshot, &Observed::default())
}

fn snapshot(args: &[&str]) -> Snapshot {
    let mut snapshot = Snapshot::default();
    snapshot.process.cmdline = args.iter().map(|&a| a.to_owned()).collect();
    snapshot
}

/// Check that an empty snapshot has no findings, whatever the program is.
#[test]
fn nothing_known() {
    for args in [
        &["x"][..],
        &["ceph-osd"],
        &["radosgw"],
        &["qemu-system-x86_64"],
        &[],
    ] {
        let report = diagnose(&snapshot(args));
        assert_eq!(ids(&report), [""; 0], "{args:?}");
        assert!(!report.unknown.is_empty());
    }
}

/// Check the four ways an allocator is and is not in use.
#[test]
fn allocators() {
    let mut s = snapshot(&["ceph-osd"]);
    let library = |path: &str| Library {
        path: path.into(),
        ..Library::default()
    };
    s.process.libraries = Some(vec![library("/lib/libc.so.6")]);
    assert_eq!(ids(&diagnose(&s)), ["libc-malloc"]);
    // Named, but not mapped.
    let preload = |text: &str| Some([("LD_PRELOAD".to_owned(), text.to_owned())].into());
    s.process.environ = preload("/nowhere/libtcmalloc.so.4");
    assert_eq!(
        ids(&diagnose(&s)),
        ["allocator-not-effective", "libc-malloc"]
    );
    // Mapped and first.
    s.process.libraries = Some(vec![
        library("/lib/libc.so.6"),
        library("/lib/libtcmalloc.so.4.5.10"),
    ]);
    assert_eq!(ids(&diagnose(&s)), [""; 0]);
    // Mapped, but what is bound is libc's.
    s.process.malloc = Some(wcprof_types::snapshot::Malloc {
        caller: "/usr/bin/ceph-osd".into(),
        provider: "/lib/libc.so.6".into(),
    });
    assert_eq!(
        ids(&diagnose(&s)),
        ["allocator-not-effective", "libc-malloc"]
    );
    // Two of them: the first one counts.
    s.process.malloc = None;
    s.process.environ = preload("libjemalloc.so.2 libtcmalloc.so.4");
    let both = [
        library("/lib/libjemalloc.so.2"),
        library("/lib/libtcmalloc.so.4"),
    ];
    s.process.libraries = Some(both.to_vec());
    assert_eq!(ids(&diagnose(&s)), ["allocator-not-effective"]);
}

/// Check that stacks tell of encryption where no setting does, and that their silence proves
/// nothing.
#[test]
fn encryption_by_stacks() {
    let s = snapshot(&["ceph-osd"]);
    let name = "ceph::crypto::onwire::AES128GCM_OnWireTxHandler::final()";
    let observed = Observed {
        encrypting: Some(name.into()),
        ..Observed::default()
    };
    let report = crate::diagnose(&s, &observed);
    assert_eq!(ids(&report), ["msgr-secure"]);
    let is_open = |r: &Report| r.unknown.iter().any(|u| u.check == "msgr-secure");
    assert!(!is_open(&report));
    let silent = diagnose(&s);
    assert!(is_open(&silent) && silent.findings.is_empty());
}

/// Check that stopped threads are found by settings alone where there is no recording.
#[test]
fn stopped_threads() {
    let mut s = snapshot(&["program"]);
    s.process.threads = vec![Default::default(); 2];
    let has_passed = |r: &Report| r.passed.iter().any(|p| p.check == "threads-stopped");
    assert!(has_passed(&diagnose(&s)));
    let recording = Observed {
        is_recording: true,
        ..Observed::default()
    };
    assert!(!has_passed(&crate::diagnose(&s, &recording)));
    s.process.threads[0].stop = Some("signal".into());
    let report = diagnose(&s);
    assert_eq!(ids(&report), ["threads-stopped"]);
    // By signal(7), and nothing of other causes.
    assert_eq!(report.findings[0].action, "SIGCONT");
    let advice = &report.findings[0].advice;
    let end = format!("kill -CONT {}`.", s.process.pid);
    assert!(advice.ends_with(&end), "{advice}");
    assert_eq!(ids(&crate::diagnose(&s, &recording)), [""; 0]);
}

/// Check that limits that changed during a recording pass no check.
#[test]
fn changed_limits() {
    let mut s = snapshot(&["x"]);
    s.process.cgroups = vec![Cgroup::default()];
    let observed = Observed {
        has_accounts: true,
        limit_changes: vec!["/a: a limit changed during the recording".into()],
        ..Observed::default()
    };
    let report = crate::diagnose(&s, &observed);
    let is = |check: &str| check == "cgroup-throttled";
    assert!(report.passed.iter().all(|one| !is(&one.check)));
    let unknown = report.unknown.iter().find(|one| is(&one.check)).unwrap();
    assert!(unknown.reason.contains("/a: a limit changed"));
    let steady = crate::diagnose(&s, &Observed::default());
    assert!(steady.passed.iter().any(|one| is(&one.check)));
    // One that is throttled passes none either, where the recording has its finding.
    s.process.cgroups[0] = Cgroup {
        quota_us: Some(20_000),
        period_us: Some(100_000),
        n_periods: Some(24),
        n_throttled: Some(23),
        ..Cgroup::default()
    };
    let throttled = Observed {
        has_accounts: true,
        ..Observed::default()
    };
    let report = crate::diagnose(&s, &throttled);
    assert!(report.passed.iter().all(|one| !is(&one.check)));
    assert!(report.findings.iter().all(|one| !is(&one.rule)));
}

/// Check throttling at its threshold.
#[test]
fn throttling() {
    let mut s = snapshot(&["x"]);
    let group = |n_periods, n_throttled| Cgroup {
        path: "/a".into(),
        quota_us: Some(100_000),
        period_us: Some(100_000),
        n_periods: Some(n_periods),
        n_throttled: Some(n_throttled),
        ..Cgroup::default()
    };
    for (periods, throttled, found) in [
        (1000, 10, true),
        (1000, 9, false),
        (50, 50, false),
        (0, 0, false),
    ] {
        s.process.cgroups = vec![group(periods, throttled)];
        let report = diagnose(&s);
        assert_eq!(
            !report.findings.is_empty(),
            found,
            "{throttled} of {periods}"
        );
    }
}

/// Check memory on the wrong node, on the right one, and on both.
#[test]
fn numa() {
    let mut s = snapshot(&["x"]);
    let node = |id: u32, cpus: &str| NumaNode {
        id,
        cpus: cpus.into(),
    };
    s.host.nodes = vec![node(0, "0-3"), node(1, "4-7")];
    s.host.cpus = "0-7".into();
    let thread = |cpus: &str| ThreadSetup {
        cpus: cpus.into(),
        ..ThreadSetup::default()
    };
    let gib = 1 << 30;
    for (cpus, on0, on1, found) in [
        ("0-3", 0, 4 * gib, &["numa-memory-remote"][..]),
        ("0-3", 4 * gib, 0, &[]),
        ("0-7", 2 * gib, 2 * gib, &["numa-spread"]),
        ("0-7", 4 * gib, 0, &[]),
        ("0-3", 0, 1 << 20, &[]),
    ] {
        s.process.threads = vec![thread(cpus)];
        s.process.numa = Some(NumaMemory {
            bytes: [(0, on0), (1, on1)].into(),
            source: "numa_maps".into(),
        });
        assert_eq!(ids(&diagnose(&s)), found, "{cpus} {on0} {on1}");
    }
}

/// Check that figures at the ends of their range make no check panic.
#[test]
fn extreme_figures() {
    let mut s = snapshot(&["qemu-system-x86_64"]);
    s.process.status = [
        ("VmRSS", u64::MAX),
        ("VmSwap", u64::MAX),
        ("HugetlbPages", u64::MAX),
    ]
    .map(|(k, v)| (k.to_owned(), format!("{v} kB")))
    .into();
    s.process.rollup_kib = [("AnonHugePages".to_owned(), u64::MAX)].into();
    s.process.ksm_merging_pages = Some(u64::MAX);
    s.process.fds = Some(wcprof_types::snapshot::OpenFiles {
        n: u64::MAX,
        limit: Some(u64::MAX),
        ..Default::default()
    });
    s.process.cgroups = vec![Cgroup {
        quota_us: Some(u64::MAX),
        period_us: Some(0),
        n_periods: Some(u64::MAX),
        n_throttled: Some(u64::MAX),
        throttled_us: Some(u64::MAX),
        ..Cgroup::default()
    }];
    s.host.huge_pages = vec![wcprof_types::snapshot::HugePages {
        size_kib: u64::MAX,
        total: u64::MAX,
        free: u64::MAX,
    }];
    s.process.numa = Some(NumaMemory {
        bytes: [(0, u64::MAX), (1, u64::MAX)].into(),
        source: String::new(),
    });
    s.host.nodes = vec![
        NumaNode {
            id: 0,
            cpus: "0".into(),
        },
        NumaNode {
            id: 1,
            cpus: "1-99999".into(),
        },
    ];
    s.process.threads = vec![ThreadSetup {
        cpus: "0".into(),
        ..ThreadSetup::default()
    }];
    diagnose(&s);
}

/// Check that what a trace keeps of a command line gives the report that the whole command line gives, whatever its
/// program and notation.
#[test]
fn redacted_command_lines() {
    let cases: [&[&str]; 9] = [
        &[
            "/usr/bin/qemu-system-x86_64",
            "-name",
            "guest=vm1,debug-threads=on",
            "-accel",
            "tcg,thread=multi",
            "-smp",
            "4",
            "-smbios",
            "type=11,value=io.systemd.credential:root=x",
            "-drive",
            "file=rbd:p/i:id=a:key=AQ==:conf=/etc/ceph/c.conf:rbd_cache=true,format=raw,if=virtio,cache=writeback",
        ],
        &[
            "qemu-kvm",
            "-machine",
            "q35,accel=kvm",
            "-cpu",
            "qemu64,+x",
            "-device",
            "e1000,netdev=n0",
            "-netdev",
            "user,id=n0",
        ],
        &[
            "qemu-system-x86_64",
            "-enable-kvm",
            "-object",
            r#"{"qom-type":"iothread","id":"io1"}"#,
            "-object",
            r#"{"qom-type":"secret","id":"s","data":"c2VjcmV0"}"#,
            "-blockdev",
            r#"{"driver":"rbd","pool":"p","image":"d","server":[{"host":"a"}],"user":"u","key-secret":"s","node-name":"s1","cache":{"direct":false}}"#,
            "-blockdev",
            r#"{"node-name":"f1","driver":"raw","file":"s1"}"#,
            "-device",
            r#"{"driver":"virtio-blk-pci","iothread":"io1","drive":"f1","id":"disk0"}"#,
        ],
        &[
            "qemu-system-x86_64",
            "-device",
            "lsi53c895a,id=s0",
            "-drive",
            "file=/a,,b.img,if=none,id=d,aio=threads",
            "-device",
            "scsi-hd,bus=s0.0,drive=d",
        ],
        &[
            "qemu-system-x86_64",
            "-hda",
            "/a,b.img",
            "-cdrom",
            "x.iso",
            "--nographic",
        ],
        &[
            "qemu-system-x86_64",
            "-drive",
            "file.driver=host_device,file.filename=/dev/x,file.cache.direct=on,if=ide",
        ],
        &[
            "ceph-osd",
            "-f",
            "--id",
            "3",
            "--key",
            "AQ==",
            "--ms-cluster-mode=secure",
            "--ms_service_mode",
            "secure crc",
            "--osd-op-num-shards",
            "1",
        ],
        &[
            "radosgw",
            "-n",
            "client.rgw.a",
            "--ms-client-mode=crc secure",
            "--rgw-crypt-key=x",
        ],
        &["fio", "--ms-client-mode=secure", "--password=x"],
    ];
    let (mut n_findings, mut n_redacted) = (0, 0);
    for args in cases {
        let mut snapshot = snapshot(args);
        snapshot.process.libraries = Some(vec![Library {
            path: "/usr/lib/librados.so.2".into(),
            ..Library::default()
        }]);
        let whole = diagnose(&snapshot);
        snapshot.process.cmdline = redact_args("", &snapshot.process.cmdline);
        let kept = diagnose(&snapshot);
        n_redacted += usize::from(snapshot.process.cmdline != args);
        assert_eq!(
            format!("{:?}", kept.findings),
            format!("{:?}", whole.findings),
            "{args:?}"
        );
        assert_eq!(
            format!("{:?}", kept.unknown),
            format!("{:?}", whole.unknown),
            "{args:?}"
        );
        n_findings += kept.findings.len();
    }
    assert!(
        n_redacted >= 6 && n_findings >= 12,
        "{n_redacted} {n_findings}"
    );
}
