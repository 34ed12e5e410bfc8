//! A saved trace on its way to a profile store: what the store gets against the report of the same trace.

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;
use std::process::{Command, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, SystemTime};

use wcprof_export::{PushedProfile, StoreLimits, StoreProfiles, pyroscope_request};
use wcprof_net::{
    PushFigures, Pusher, PusherOptions, Spool, SpoolOptions, Store, StoreKind, StoreOptions,
};
use wcprof_testkit::{PATIENCE, RateLimit, Reply, TestStore, skip, wait_until};

use crate::support::{OSD, fixture, json};

/// The pprof message that a store has of a trace, pushed by way of a 429.
fn pushed(trace: &str) -> Vec<u8> {
    let path = fixture(trace);
    let profile = wcprof_cli::profile_of(Path::new(&path), None, &wcprof_cli::defaults());
    let profile = profile.expect("the trace can be read");
    let profile = StoreProfiles::new(&profile, false).of(0, StoreLimits::PYROSCOPE);
    let request = PushedProfile {
        labels: Vec::new(),
        profile: profile.expect("some time"),
        id: String::new(),
    };
    let mut statuses = [429, 200].into_iter();
    let server = TestStore::start(move || Reply::Status(statuses.next().unwrap_or(500)));
    let kind = StoreKind::Pyroscope;
    let spool = Spool::open(SpoolOptions {
        folder: None,
        kind: kind.name(),
        max_bytes: 64 << 20,
        max_age: None,
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
        .add(kind.pack(pyroscope_request(&[request])), SystemTime::now())
        .expect("its folder takes it");
    let [refused, taken] = [server.next(), server.next()];
    assert!(pusher.finish(PATIENCE, Duration::ZERO));
    assert_eq!((refused.status, taken.status), (429, 200));
    assert_eq!(refused.body, taken.body);
    let [pushed] = &taken.pushed()[..] else {
        panic!("one profile")
    };
    assert_eq!(pushed.labels["__name__"], "process_cpu");
    pushed.pprof.clone()
}

/// Check that two agents that share a tenant at its rate limit, with a store that breaks one connection, have each interval
/// stored once, or counted as one that may be there.
#[test]
fn shared_tenant() {
    const N_REQUESTS: usize = 12;
    let path = fixture(OSD);
    let profile = wcprof_cli::profile_of(Path::new(&path), None, &wcprof_cli::defaults());
    let profile = profile.expect("the trace can be read");
    let made = StoreProfiles::new(&profile, false)
        .of(0, StoreLimits::PYROSCOPE)
        .expect("some time");
    let size = made.len_bytes() as f64;
    let mut limit = RateLimit::new(50.0 * size, 1.5 * size);
    let mut n = 0;
    let server = TestStore::start_at(0, move |request| {
        n += 1;
        let series = request.pushed();
        assert_eq!(series.len(), 1, "taken or refused whole");
        match n {
            7 => Reply::Leave,
            _ if limit.takes(series[0].pprof.len()) => Reply::Status(200),
            _ => Reply::Status(429),
        }
    });
    let agents = ["one", "two"].map(|agent| {
        let kind = StoreKind::Pyroscope;
        let spool = Spool::open(SpoolOptions {
            folder: None,
            kind: kind.name(),
            max_bytes: 64 << 20,
            max_age: Some(PATIENCE),
        });
        let spool = Arc::new(spool.expect("it is in memory"));
        let mut options = StoreOptions::new(&server.url, kind);
        options.limits.proxy = false;
        let fast = PusherOptions {
            first_wait: Some(Duration::from_millis(1)),
            ..PusherOptions::default()
        };
        for at in 0..N_REQUESTS {
            let pushed = PushedProfile {
                labels: Vec::new(),
                profile: made.clone(),
                id: format!("{agent}-{at}"),
            };
            let request = kind.pack(pyroscope_request(&[pushed]));
            spool
                .add(request, SystemTime::now())
                .expect("it is in memory");
        }
        let store = Store::new(options).expect("a URL");
        Pusher::start(store, spool, fast, || {}, |_, _| {}).expect("a thread")
    });
    let count = |of: fn(&PushFigures) -> &AtomicU64| -> u64 {
        let counts = agents
            .iter()
            .map(|agent| of(&agent.figures).load(Ordering::Relaxed));
        counts.sum()
    };
    let mut stored = BTreeSet::new();
    let mut n_refused = 0;
    while stored.len() + 1 < 2 * N_REQUESTS {
        let request = server.next();
        n_refused += u64::from(request.status == 429);
        if request.status == 200 {
            let id = request.pushed().remove(0).id;
            assert!(stored.insert(id), "stored twice");
        }
    }
    wait_until("not all answers are read", || {
        (count(|figures| &figures.n_taken) == stored.len() as u64).then_some(())
    });
    assert_eq!(count(|figures| &figures.n_unsure), 1);
    assert_eq!(count(|figures| &figures.n_retries), n_refused);
    assert!(n_refused > 0, "the limit was not reached");
    for agent in agents {
        assert!(agent.finish(PATIENCE, Duration::ZERO));
    }
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
fn shown(program: &[&str], pprof: &[u8], kind: &str) -> BTreeMap<String, u64> {
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
        .arg(format!("-sample_index={kind}"))
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
    let pprof = pushed(OSD);
    for (kind, flags) in [("wall", &[][..]), ("cpu", &["--state", "on-cpu,guest"])] {
        let (shown, reported) = (shown(program, &pprof, kind), reported(OSD, flags));
        assert!(shown.len() > 50, "{shown:?}");
        assert_eq!(shown, reported);
    }
}
