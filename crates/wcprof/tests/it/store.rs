//! A saved trace on its way to a profile store: what the store gets against the report of the same trace.

use std::collections::BTreeMap;
use std::path::Path;
use std::process::{Command, Stdio};
use std::sync::Arc;
use std::time::Duration;

use wcprof_export::{PushedProfile, Series, StoreLimits, StoreProfiles, pyroscope_request};
use wcprof_net::{Pusher, PusherOptions, Spool, SpoolOptions, Store, StoreKind, StoreOptions};
use wcprof_testkit::{PATIENCE, Reply, TestStore, skip};

use crate::support::{OSD, fixture, json};

/// The pprof messages that a store has of a trace, pushed by way of a 429.
fn pushed(trace: &str, series: &[Series]) -> Vec<Vec<u8>> {
    let path = fixture(trace);
    let profile = wcprof_cli::profile_of(Path::new(&path), None, &wcprof_cli::defaults());
    let profile = profile.expect("the trace can be read");
    let profiles = StoreProfiles::new(&profile);
    let requests: Vec<PushedProfile> = series
        .iter()
        .map(|series| PushedProfile {
            labels: Vec::new(),
            profile: profiles
                .of(0, *series, StoreLimits::PYROSCOPE)
                .expect("some time"),
            id: String::new(),
        })
        .collect();
    let mut statuses = [429, 200].into_iter();
    let server = TestStore::start(move || Reply::Status(statuses.next().unwrap_or(500)));
    let kind = StoreKind::Pyroscope;
    let spool = Spool::open(SpoolOptions {
        folder: None,
        kind: kind.name(),
        max_bytes: 64 << 20,
    });
    let spool = Arc::new(spool.expect("it is in memory"));
    let mut options = StoreOptions::new(&server.url, kind);
    options.limits.proxy = false;
    let store = Store::new(options).expect("a URL");
    let fast = PusherOptions {
        first_wait: Some(Duration::from_millis(1)),
        ..PusherOptions::default()
    };
    let pusher = Pusher::start(store, Arc::clone(&spool), fast, || {}, |_, _| {});
    let pusher = pusher.expect("a thread");
    spool
        .add(kind.pack(pyroscope_request(&requests)))
        .expect("its folder takes it");
    let [refused, taken] = [server.next(), server.next()];
    assert!(pusher.finish(PATIENCE, Duration::ZERO));
    assert_eq!((refused.status, taken.status), (429, 200));
    assert_eq!(refused.body, taken.body);
    let pushed = taken.pushed().into_iter().zip(series);
    pushed
        .map(|(pushed, series)| {
            assert_eq!(pushed.labels["__name__"], series.name());
            pushed.pprof
        })
        .collect()
}

/// A name up to its arguments or templates, which pprof shortens.
fn short(name: &str) -> String {
    name.split(['(', '<'])
        .next()
        .unwrap_or(name)
        .trim()
        .to_owned()
}

/// Self time by function as `report --json` has it: the roots of inverted trees, ns.
fn reported(trace: &str, flags: &[&str]) -> BTreeMap<String, u64> {
    let args = [
        "report",
        trace,
        "--json",
        "--by",
        "all",
        "--invert",
        "--min-percent",
        "0",
    ];
    let report = json(&[&args, flags].concat());
    let mut sums = BTreeMap::new();
    for node in report["groups"][0]["nodes"].as_array().expect("a tree") {
        if node["parent"].is_null() {
            let name = short(node["name"].as_str().expect("a name"));
            *sums.entry(name).or_default() += node["weight_ns"].as_u64().expect("a number");
        }
    }
    sums
}

/// The same as pprof's `-top` shows it.
fn shown(program: &[&str], pprof: &[u8]) -> BTreeMap<String, u64> {
    let file = tempfile::NamedTempFile::new().expect("a file");
    std::fs::write(file.path(), pprof).expect("it can be written");
    let output = Command::new(program[0])
        .args(&program[1..])
        .args([
            "-top",
            "-unit=ns",
            "-symbolize=none",
            "-nodefraction=0",
            "-nodecount=100000",
        ])
        .arg(file.path())
        .stderr(Stdio::null())
        .output()
        .expect("it starts");
    let text = String::from_utf8(output.stdout).expect("text");
    let mut sums = BTreeMap::new();
    for line in text.lines() {
        // flat flat% sum% cum cum% name
        let words: Vec<&str> = line.split_whitespace().collect();
        let flat = words
            .first()
            .and_then(|word| word.strip_suffix("ns")?.parse().ok());
        if let (Some(flat @ 1_u64..), Some(name)) = (flat, words.get(5..)) {
            let name = name.join(" ");
            *sums
                .entry(short(name.trim_end_matches("(inline)")))
                .or_default() += flat;
        }
    }
    sums
}

/// Check that pprof shows for each function what the report says, of what a store was sent: wall-clock time without idle
/// time, and time on a CPU.
#[test]
fn pprof_of_a_store() {
    let runs = |words: &[&str]| {
        let mut command = Command::new(words[0]);
        command
            .args(&words[1..])
            .stdout(Stdio::null())
            .stderr(Stdio::null());
        command.status().is_ok()
    };
    let program: &[&str] = match (runs(&["pprof", "-h"]), runs(&["go", "version"])) {
        (true, _) => &["pprof"],
        (_, true) => &["go", "tool", "pprof"],
        _ => return skip("pprof_of_a_store", "neither `go` nor `pprof` is installed"),
    };
    let series = [Series::Wall { idle: false }, Series::Cpu];
    let pprofs = pushed(OSD, &series);
    for (pprof, flags) in pprofs.iter().zip([&[][..], &["--state", "on-cpu,guest"]]) {
        let (shown, reported) = (shown(program, pprof), reported(OSD, flags));
        assert!(shown.len() > 50, "{shown:?}");
        assert_eq!(shown, reported);
    }
}
