//! Saved traces of real programs in, views out: what wcprof said of them must not change unnoticed.
//! `WCPROF_BLESS=1` writes the golden files anew.

use serde_json::Value;
use wcprof_testkit::assert_fails;

use crate::support::{OSD, QEMU, fixture, golden, json, run, text};

/// Every view of a trace that has a golden file.
fn views(stem: &str) {
    let trace = format!("{stem}.wct");
    let found = text(&["doctor", &trace, "--all"]);
    golden(&format!("{stem}.doctor.txt"), &found);
    let tree = [
        "report",
        &trace,
        "--by",
        "pool",
        "--invert",
        "--min-percent",
        "3",
    ];
    golden(&format!("{stem}.pools.txt"), &text(&tree));
}

fn findings(stem: &str) -> Vec<String> {
    rules_found("time", stem)
}

/// What doctor finds in a trace.
fn settings(stem: &str) -> Vec<String> {
    rules_found("setting", stem)
}

fn rules_found(kind: &str, stem: &str) -> Vec<String> {
    let json = json(&["doctor", "--json", &format!("{stem}.wct")]);
    let findings = json["findings"].as_array().expect("a list");
    let of_kind = findings.iter().filter(|f| f["basis"]["kind"] == kind);
    let id = |f: &Value| f["rule"].as_str().expect("an id").to_owned();
    of_kind.map(id).collect()
}

/// Check the views of a real ceph-osd in secure mode, and that AES-GCM and libc's malloc are
/// found in it and the rbd cache is not.
#[test]
fn ceph_osd() {
    let stem = "ceph-osd-secure-randread";
    views(stem);
    let found = findings(stem);
    for id in ["aes-gcm", "libc-malloc"] {
        assert!(found.iter().any(|f| f == id), "{id} in {found:?}");
    }
    assert!(found.iter().all(|f| f != "rbd-cache"), "{found:?}");
}

/// Check the views of a real OSD that counted its operations, and that it compares with itself by them.
#[test]
fn counted() {
    let trace = "ceph-osd-counted.wct";
    golden("ceph-osd-counted.top.txt", &text(&["report", trace]));
    let args = [
        "diff",
        trace,
        trace,
        "--per-op",
        "counted",
        "--by",
        "class,category",
    ];
    golden("ceph-osd-counted.diff.txt", &text(&args));
    let args = ["diff", trace, trace, "--per-op", "counted", "--json"];
    let found = json(&args);
    assert_eq!(found["unit"], "ns/op");
    assert_eq!(found["n_significant"], 0);
}

/// Check the views of a real QEMU with librbd's cache on, and that the cache is found.
#[test]
fn qemu() {
    let stem = "qemu-librbd-writeback";
    views(stem);
    let found = findings(stem);
    assert!(found.iter().any(|f| f == "rbd-cache"), "{found:?}");
}

/// Check that each step of the lab's story shows what there is to tune, and no more what was tuned: neither a
/// finding, nor a setting, nor a frame.
#[test]
fn story() {
    const RULES: [&str; 3] = ["rbd-cache", "libc-malloc", "aes-gcm"];
    const SETTINGS: [&str; 3] = ["qemu-rbd-cache", "libc-malloc", "msgr-secure"];
    const FRAMES: [&str; 3] = ["ObjectCacher", "", "AES128GCM_OnWire"];
    for (stem, expected) in [
        ("story-1-cache-qemu", [true, true, false]),
        ("story-1-cache-osd", [false, true, false]),
        ("story-2-no-cache-qemu", [false, true, false]),
        ("story-2-no-cache-osd", [false, true, false]),
        ("story-3-tcmalloc-qemu", [false, false, false]),
        ("story-3-tcmalloc-osd", [false, false, false]),
        ("story-4-secure-qemu", [false, false, true]),
        ("story-4-secure-osd", [false, false, true]),
    ] {
        let found = findings(stem);
        let settings = settings(stem);
        let trace = format!("{stem}.wct");
        let folded = text(&["report", &trace, "--format", "folded"]);
        for (i, expected) in expected.into_iter().enumerate() {
            let is_found = found.iter().any(|id| id == RULES[i]);
            assert_eq!(is_found, expected, "{stem}: {} in {found:?}", RULES[i]);
            let is_set = settings.iter().any(|id| id == SETTINGS[i]);
            assert_eq!(is_set, expected, "{stem}: {} in {settings:?}", SETTINGS[i]);
            let is_seen = folded.contains(FRAMES[i]);
            assert!(
                FRAMES[i].is_empty() || is_seen == expected,
                "{stem}: {}",
                FRAMES[i]
            );
        }
    }
}

/// Check that limits that were made on purpose are found: a client's only messenger thread, and an OSD's only
/// thread for a pool of one placement group.
#[test]
fn provoked() {
    for (stem, rule) in [
        ("fio-one-messenger", "msgr-saturated"),
        ("osd-one-pg", "pool-imbalance"),
    ] {
        let found = findings(stem);
        assert!(found.iter().any(|id| id == rule), "{stem}: {found:?}");
    }
}

/// Check that no fixture names the host that it was recorded on, or its kernel's builder.
#[test]
fn fixtures_are_anonymous() {
    let folder = fixture("");
    let mut n = 0;
    for entry in std::fs::read_dir(folder).expect("the folder is readable") {
        let path = entry.expect("the folder is readable").path();
        if path.extension().is_none_or(|e| e != "wct") {
            continue;
        }
        n += 1;
        let reader = wcprof_trace::TraceReader::open(&path).expect("the trace opens");
        let (tables, _) = reader.read(|_, _| ()).expect("the trace is whole");
        let mut kernels = vec![tables.header.kernel.clone()];
        let mut hosts = vec![tables.header.host.clone()];
        for source in &tables.origins.sources {
            kernels.push(source.kernel.clone());
            hosts.push(source.host.clone());
        }
        for setup in &tables.origins.setups {
            let setup: Value = serde_json::from_str(setup).expect("valid JSON");
            let text = |key: &str| setup["host"][key].as_str().unwrap_or_default().to_owned();
            kernels.push(text("kernel"));
            hosts.push(text("name"));
        }
        let is_version = |kernel: &String| kernel.chars().all(|c| c.is_ascii_digit() || c == '.');
        assert!(
            kernels.iter().all(is_version),
            "{}: {kernels:?}",
            path.display()
        );
        let is_plain = |host: &String| ["", "lab", "host1", "node1"].contains(&host.as_str());
        assert!(hosts.iter().all(is_plain), "{}: {hosts:?}", path.display());
    }
    assert!(n > 10, "{n}");
}

/// Check that folded weights of each thread add up to the time it was observed, which JSON states.
#[test]
fn folded_adds_up() {
    for trace in [OSD, QEMU] {
        let sum = |args: &[&str]| -> u64 {
            let all = [
                &["report", trace, "--format", "folded", "--idle", "show"],
                args,
            ]
            .concat();
            let folded = text(&all);
            let weight = |line: &str| line.rsplit(' ').next().and_then(|w| w.parse::<u64>().ok());
            folded.lines().map(|l| weight(l).expect("a weight")).sum()
        };
        let by_thread = sum(&[]);
        assert!(by_thread > 100_000_000, "{by_thread}");
        for grouping in ["pool", "process", "all"] {
            assert_eq!(sum(&["--by", grouping]), by_thread, "{grouping}");
            assert_eq!(sum(&["--by", grouping, "--invert", "--states"]), by_thread);
        }
    }
}

/// Check that exports hold the time that JSON says, with filters and groups and without.
#[test]
fn exports_add_up() {
    let numbers = |list: &Value| -> Vec<f64> {
        let list = list.as_array().expect("a list").iter();
        list.map(|n| n.as_f64().expect("a number")).collect()
    };
    let filters: [&[&str]; 4] = [
        &[],
        &["--idle", "show", "--by", "pool"],
        &[
            "--from",
            "2s",
            "--to",
            "4s",
            "--state",
            "on-cpu,lock",
            "--threads",
            "msgr-*",
        ],
        &[
            "--focus",
            "BlueStore",
            "--hide",
            "^std::",
            "--kernel",
            "--lines",
            "--min-percent",
            "2",
        ],
    ];
    for args in filters {
        let report = |format| [&["report", OSD, "--format", format], args].concat();
        let groups = json(&[&["report", OSD, "--json"], args].concat());
        let groups = groups["groups"].as_array().expect("a list");
        let shown: f64 = groups.iter().filter_map(|g| g["shown_ns"].as_f64()).sum();
        assert!(shown > 1e6, "{args:?}");

        let csv = text(&report("csv"));
        let weight = |line: &str| line.split(',').nth(2).and_then(|w| w.parse::<f64>().ok());
        let sum: f64 = csv.lines().skip(1).filter_map(weight).sum();
        assert_eq!(sum, shown, "csv {args:?}");

        let speedscope = json(&report("speedscope"));
        let profiles = speedscope["profiles"].as_array().expect("a list");
        let mut sum = 0.0;
        for profile in profiles {
            let samples = profile["samples"].as_array().expect("a list");
            for (stack, weight) in samples.iter().zip(numbers(&profile["weights"])) {
                if stack.as_array().is_some_and(|s| !s.is_empty()) {
                    sum += weight;
                }
            }
        }
        assert_eq!(sum, shown, "speedscope {args:?}");

        let firefox = json(&report("firefox"));
        let threads = firefox["threads"].as_array().expect("a list");
        let weights = threads.iter().map(|t| numbers(&t["samples"]["weight"]));
        let sum: f64 = weights.flatten().sum();
        assert!(
            (sum * 1e6 - shown).abs() < 1e3,
            "firefox {args:?}: {sum} ms, {shown} ns"
        );
    }
}

/// Check that nothing is found in idle programs, and in programs busy with their own work only that
/// the machine had too few CPUs for all that ran; of a database whose clients wait for each other, that;
/// and of settings what is so.
#[test]
fn no_false_alarms() {
    const STARVED: &[&str] = &["run-queue-delay"];
    const NONE: &[&str] = &[];
    for (stem, hotspots, settings) in [
        ("redis-server-load", STARVED, NONE),
        ("cc1plus", STARVED, NONE),
        ("qemu-idle", NONE, &["qemu-tcg"][..]),
        ("ceph-osd-idle", NONE, &["libc-malloc"][..]),
        // Its four clients update the same few rows.
        (
            "postgres-load",
            &["run-queue-delay", "database-locks", "lock-contention"],
            NONE,
        ),
    ] {
        assert_eq!(findings(stem), hotspots, "{stem}");
        assert_eq!(self::settings(stem), settings, "{stem}");
    }
}

/// Check that a rule of the user's own, named by `--rules`, is listed beside the built-in ones and finds
/// what it is for, that a file of state rules still is one, and that a broken rule is an error.
#[test]
fn own_rule() {
    let folder = tempfile::tempdir().expect("a temporary folder");
    let write = |name: &str, text: &str| {
        let path = folder.path().join(name);
        std::fs::write(&path, text).expect("the file is writable");
        path.to_str().expect("the path is text").to_owned()
    };
    let rule = r#"
id = "workers-wait"
title = "Workers wait for work"
severity = "info"
explanation = "Nothing to do."
advice = "More load."
verify = "Attach again."
action = "add load"
match = { states = ["idle"], pools = ["tp_osd_tp"] }
threshold = { of = "wall", percent = 50.0, why = "half of the time" }
sources = [{ report = "a test", figure = "50 %" }]
"#;
    let own = write("own.toml", rule);
    let states = write(
        "states.toml",
        "[[state]]\nstate = \"blocked\"\npool = [\"no-such-pool\"]\n",
    );
    let args = ["doctor", OSD, "--rules", &own, "--rules", &states];
    let found = text(&args);
    assert!(
        found.contains("Workers wait for work (workers-wait)"),
        "{found}"
    );
    let list = text(&["doctor", "--list", "--rules", &own]);
    for id in [
        "workers-wait [info]",
        "aes-gcm [medium]",
        "half of the time",
    ] {
        assert!(list.contains(id), "{id} in {list}");
    }
    let json = json(&["doctor", "--list", "--json"]);
    let rules = json["rules"].as_array().expect("a list");
    for rule in rules {
        assert!(
            rule["sources"].as_array().is_some_and(|s| !s.is_empty()),
            "{rule}"
        );
    }
    let broken = write(
        "broken.toml",
        &rule.replace("percent = 50.0", "percent = 500.0"),
    );
    let output = run(&["doctor", OSD, "--rules", &broken]);
    assert_fails(&output, 2, &["threshold.percent"]);
}

/// Check that uwpmp's format has no inline functions, as `--no-inline` leaves none of those that the trace holds.
#[test]
fn no_inline() {
    let trace = "story-3-tcmalloc-osd.wct";
    let report = |args: &[&str]| text(&[&["report", trace, "--idle", "show"], args].concat());
    let inline = "__invoke_impl";
    assert!(report(&["--format", "folded"]).contains(inline));
    assert!(!report(&["--format", "folded", "--no-inline"]).contains(inline));
    let uwpmp = report(&["--format", "uwpmp"]);
    assert!(!uwpmp.contains(inline) && uwpmp.contains("EventCenter::process_events"));
}

/// Check that the block for trackers of a busy OSD fits, and names its pools, findings and locks.
#[test]
fn markdown() {
    let block = text(&["report", "story-2-no-cache-osd.wct", "--format", "markdown"]);
    assert!(block.lines().count() <= 100, "{block}");
    for part in [
        "## wcprof: `osd.",
        "| `tp_osd_tp` |",
        "\n1. **",
        "### Where CPU goes",
        "</details>",
    ] {
        assert!(block.contains(part), "{part}: {block}");
    }
}
