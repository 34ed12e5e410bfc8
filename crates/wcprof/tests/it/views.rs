//! Filters, groups and comparisons of saved traces, by the command line.
//! `WCPROF_BLESS=1` writes the golden files anew.

use serde_json::Value;

use crate::support::{OSD, QEMU, at_root, golden, json, run, text};

fn list(value: &Value) -> &[Value] {
    value.as_array().map_or(&[], Vec::as_slice)
}

fn observed(args: &[&str]) -> u64 {
    let report = json(&[&["report", OSD, "--json"], args].concat());
    let groups = list(&report["groups"]).iter();
    groups
        .map(|g| g["observed_ns"].as_u64().expect("a time"))
        .sum()
}

/// Check that windows that follow each other add up to the whole trace, to the nanosecond, and
/// that pools and threads split it.
#[test]
fn parts_add_up() {
    let whole = observed(&[]);
    let windows = [
        observed(&["--to", "2500ms"]),
        observed(&["--from", "2.5s", "--to", "0.1m"]),
        observed(&["--from", "6"]),
    ];
    assert!(windows.iter().all(|w| *w > 0), "{windows:?}");
    assert_eq!(windows.iter().sum::<u64>(), whole);
    let workers = observed(&["--pools", "msgr-worker-*"]);
    let none = observed(&["--pools", "msgr-worker-*", "--processes", "radosgw"]);
    assert!(0 < workers && workers < whole);
    assert_eq!(none, 0);
    assert_eq!(observed(&["--processes", "ceph-*"]), whole);
}

/// Check that every node of the JSON has an interval that holds its weight.
#[test]
fn intervals() {
    let report = json(&["report", OSD, "--json", "--by", "pool"]);
    let mut n = 0;
    for group in list(&report["groups"]) {
        for node in list(&group["nodes"]) {
            let of = |key: &str| node[key].as_u64().expect("a time");
            assert!(of("low_ns") <= of("weight_ns") && of("weight_ns") <= of("high_ns"));
            assert!(of("high_ns") <= group["observed_ns"].as_u64().expect("a time"));
            n += 1;
        }
    }
    assert!(n > 500, "{n}");
}

/// Check filters together, callers, and the flat profile against golden files.
#[test]
fn filtered_views() {
    let filtered = [
        "report",
        OSD,
        "--from",
        "2s",
        "--to",
        "8s",
        "--pools",
        "msgr-worker-*",
        "--state",
        "on-cpu",
        "--focus",
        "EVP_",
        "--hide",
        "^libcrypto",
        "--by",
        "all",
        "--min-percent",
        "5",
    ];
    golden("ceph-osd-secure-randread.filtered.txt", &text(&filtered));
    let callers = [
        "report",
        OSD,
        "--callers-of",
        "operator new",
        "--min-percent",
        "10",
    ];
    golden("ceph-osd-secure-randread.callers.txt", &text(&callers));
    let flat = [
        "report",
        OSD,
        "--functions",
        "--by",
        "process",
        "--min-percent",
        "3",
    ];
    golden("ceph-osd-secure-randread.functions.txt", &text(&flat));
}

/// Check that hotspots of a part say so, and of a part without the messenger do not find AES-GCM.
#[test]
fn hotspots_of_a_part() {
    let found = text(&["doctor", OSD, "--pools", "msgr-worker-*", "--from", "1s"]);
    assert!(found.contains("AES-128-GCM"), "{found}");
    let other = text(&["doctor", OSD, "--pools", "bstore_*"]);
    assert!(!other.contains("AES-128-GCM"), "{other}");
}

/// Check that wrong filters fail with advice, and that filters that leave nothing say what there is.
#[test]
fn wrong_filters() {
    let failed = |args: &[&str]| {
        let output = run(&[&["report", OSD], args].concat());
        assert_eq!(output.status.code(), Some(2), "{args:?}");
        String::from_utf8_lossy(&output.stderr).into_owned()
    };
    assert!(failed(&["--from", "5s", "--to", "3s"]).contains("ends before it begins"));
    assert!(failed(&["--from", "100s"]).contains("the recording is 10.0 s long"));
    assert!(failed(&["--from", "soon"]).contains("not a time"));
    assert!(failed(&["--pools", "["]).contains("globs know"));
    assert!(failed(&["--focus", "("]).contains("bad regular expression"));
    assert!(failed(&["--focus", "(a{1000}){1000}"]).contains("bad regular expression"));
    assert!(failed(&["--state", "busy"]).contains("known: on-cpu"));
    assert!(failed(&["--callers-of", "no_such"]).contains("no function is named `no_such`"));
    assert!(failed(&["--callers-of", "pthread_cond_wai"]).contains("pthread_cond_wait"));
    let empty = run(&["report", OSD, "--pools", "nothing-*"]);
    let said = String::from_utf8_lossy(&empty.stderr).into_owned();
    assert!(empty.status.success());
    assert!(
        said.contains("no time passes the filters") && said.contains("msgr-worker-N"),
        "{said}"
    );
}

/// Check that a trace compared with itself has no change and no warning.
#[test]
fn a_trace_with_itself() {
    let same = text(&["diff", OSD, OSD]);
    assert!(same.contains("\n0 of "), "{same}");
    assert!(!same.contains("warning"), "{same}");
    let found = json(&["diff", OSD, OSD, "--json"]);
    assert_eq!(found["n_significant"], 0);
    for table in list(&found["tables"]) {
        for line in list(&table["lines"]) {
            assert_eq!(line["change"], 0.0, "{line}");
        }
    }
}

/// Check the comparison of two programs: the warning, the tables, and the flame graph.
#[test]
fn two_programs() {
    let dir = tempfile::tempdir().expect("a folder");
    let svg = dir.path().join("diff.svg");
    let args = ["diff", OSD, QEMU, "--limit", "4"];
    let found = text(&args);
    let drawn = ["diff", OSD, QEMU, "--format", "svg", "-o"];
    text(&[&drawn[..], &[svg.to_str().expect("text")]].concat());
    assert!(found.contains("warning: different programs: ceph-osd before, qemu-system-x86 after"));
    golden("ceph-osd-to-qemu.diff.txt", &found);
    let svg = std::fs::read_to_string(svg).expect("the flame graph exists");
    assert!(svg.contains("</svg>") && svg.contains("msgr-worker-N"));
    let classes = text(&["diff", OSD, QEMU, "--by", "class"]);
    assert!(
        classes.contains("osd (1 -> 0 processes)") && classes.contains("qemu (0 -> 1 processes)")
    );
    assert!(!classes.contains("functions, self"));
}

/// Check values per operation, and wrong counts of operations.
#[test]
fn per_operation() {
    let found = json(&["diff", OSD, OSD, "--per-op", "1000,2000", "--json"]);
    assert_eq!(found["unit"], "ns/op");
    let class = &found["tables"][0]["lines"][0];
    let [before, after] = ["before", "after"].map(|s| class[s]["value"].as_f64().expect("a value"));
    assert!((before / after - 2.0).abs() < 1e-9, "{class}");
    for wrong in ["0,1", "counted"] {
        let wrong = run(&["diff", OSD, OSD, "--per-op", wrong]);
        assert_eq!(wrong.status.code(), Some(2));
    }
}

/// Check that flags which would change nothing are refused.
#[test]
fn flags_without_effect() {
    for line in [
        "--format markdown --state lock",
        "--format markdown --by thread",
        "--functions --ops 100",
        "--locks --ops 100",
        "--functions --invert",
        "--waits --by thread",
        "--format pprof --invert",
        "--format uwpmp --states",
        "--locks --format svg",
    ] {
        let words: Vec<&str> = ["report", OSD].into_iter().chain(line.split(' ')).collect();
        assert_eq!(run(&words).status.code(), Some(2), "{line}");
    }
    text(&["report", OSD, "--waits", "--state", "lock"]);
    text(&["report", OSD, "--functions", "--by", "thread"]);
}

/// Check that kinds of work are of the user stacks, also where kernel stacks are shown.
#[test]
fn kernel_stacks_change_no_kinds() {
    let trace = "ceph-osd-counted.wct";
    let table = |flag: &str| {
        let found = text(&["report", trace, "--ops", "1000", flag]);
        let (_, table) = found.split_once("PER OPERATION").expect("a table");
        table.split("\n\n").next().expect("text").to_owned()
    };
    assert_eq!(table("--kernel"), table("--tree"));
}

/// Check that lock sites of two processes with one pid are two.
#[test]
fn locks_of_equal_pids() {
    let dir = tempfile::tempdir().expect("a folder");
    let merged = dir.path().join("twice.wct");
    let merged = merged.to_str().expect("text");
    let trace = "osd-one-pg.wct";
    let copy = dir.path().join("copy.wct");
    std::fs::copy(at_root(&format!("fixtures/traces/{trace}")), &copy).expect("a copy");
    let copy = copy.to_str().expect("text");
    text(&["merge", "--align", "start", "-o", merged, trace, copy]);
    let [one, two] = [trace, merged]
        .map(|trace| json(&["report", trace, "--locks", "--by", "process", "--json"]));
    let lost = |report: &Value| {
        let sites = list(&report["sites"]).iter();
        let mut lost: Vec<u64> = sites.filter_map(|site| site["lost_ns"].as_u64()).collect();
        lost.sort_unstable();
        lost
    };
    let twice = lost(&one).into_iter().flat_map(|ns| [ns, ns]);
    assert!(!lost(&one).is_empty());
    assert_eq!(lost(&two), twice.collect::<Vec<_>>());
}

/// Check the table of the OSDs of merged traces, and that it refuses what it cannot show.
#[test]
fn like_processes() {
    let dir = tempfile::tempdir().expect("a folder");
    let merged = dir.path().join("osds.wct");
    let merged = merged.to_str().expect("text");
    let traces = ["1-cache", "2-no-cache", "3-tcmalloc", "4-secure"];
    let traces = traces.map(|part| format!("story-{part}-osd.wct"));
    let traces: Vec<&str> = traces.iter().map(String::as_str).collect();
    text(&[&["merge", "--align", "start", "-o", merged], &traces[..]].concat());
    let table = text(&["report", merged, "--by", "daemon"]);
    golden("story-osds.daemons.txt", &table);
    let found = json(&["report", merged, "--by", "daemon", "--json"]);
    let fleets = list(&found["fleets"]);
    assert_eq!(list(&fleets[0]["members"]).len(), 4);
    // Too few for one to be unlike the others.
    assert!(
        fleets
            .iter()
            .all(|fleet| list(&fleet["outliers"]).is_empty())
    );
    for flag in [["--format", "svg"], ["--state", "lock"], ["--idle", "show"]] {
        let refused = run(&[&["report", merged, "--by", "daemon"], &flag[..]].concat());
        assert_eq!(refused.status.code(), Some(2), "{flag:?}");
    }
}
