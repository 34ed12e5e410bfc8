//! A saved trace on its way to a profile store: what the store gets against the report of the same trace.

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;
use std::process::{Command, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, SystemTime};

use prost::Message;
use wcprof_export::{
    Labels, PushedProfile, StoreLimits, StoreProfile, StoreProfiles, otlp_request, parca_request,
    pyroscope_request,
};
use wcprof_net::{
    PushFigures, Pusher, PusherOptions, Spool, SpoolOptions, Store, StoreKind, StoreOptions,
};
use wcprof_profile::model::Profile;
use wcprof_testkit::{
    PATIENCE, Reply, StoreRequest, StoreRules, StoredProfile, TestStore, skip, wait_until,
};

use crate::support::{OSD, fixture, json};

/// Requests of an agent in a test of several.
const N_REQUESTS: usize = 12;

fn profile(trace: &str) -> Profile {
    let path = fixture(trace);
    let profile = wcprof_cli::profile_of(Path::new(&path), None, &wcprof_cli::defaults());
    let mut profile = profile.expect("the trace can be read");
    // Stores refuse what was recorded long ago.
    profile.header.started_unix_ns = unix_ns(SystemTime::now());
    profile
}

fn unix_ns(time: SystemTime) -> u64 {
    let since = time.duration_since(SystemTime::UNIX_EPOCH);
    since.expect("after 1970").as_nanos() as u64
}

/// The profile of the first process for a store.
fn made(trace: &str) -> StoreProfile {
    let made = StoreProfiles::new(&profile(trace), false).of(0, StoreLimits::PYROSCOPE);
    made.expect("some time")
}

fn pushed(profile: &StoreProfile, more: Labels, id: &str) -> PushedProfile {
    let service = [("service_name".to_owned(), "ceph-osd".to_owned())];
    PushedProfile {
        labels: service.into_iter().chain(more).collect(),
        profile: profile.clone(),
        id: id.to_owned(),
    }
}

/// What an agent has of its store: a pusher, and the spool that it empties.
struct Agent {
    spool: Arc<Spool>,
    pusher: Pusher,
    kind: StoreKind,
}

impl Agent {
    /// Repeats as fast as a test wants.
    fn start(url: &str, kind: StoreKind) -> Self {
        let spool = Spool::open(SpoolOptions {
            folder: None,
            kind: kind.name(),
            max_bytes: 64 << 20,
            max_age: Some(PATIENCE),
        });
        let spool = Arc::new(spool.expect("it is in memory"));
        let mut options = StoreOptions::new(url, kind);
        options.limits.proxy = false;
        let fast = PusherOptions {
            first_wait: Some(Duration::from_millis(1)),
            ..PusherOptions::default()
        };
        let store = Store::new(options).expect("a URL");
        let pusher = Pusher::start(store, Arc::clone(&spool), fast, || {}, |_, _| {});
        Self {
            spool,
            pusher: pusher.expect("a thread"),
            kind,
        }
    }

    fn add(&self, request: Vec<u8>) {
        let added = self.spool.add(self.kind.pack(request), SystemTime::now());
        added.expect("it is in memory");
    }

    fn count(&self, of: fn(&PushFigures) -> &AtomicU64) -> usize {
        of(&self.pusher.figures).load(Ordering::Relaxed) as usize
    }

    /// Requests of which it knows what became.
    fn n_settled(&self) -> usize {
        self.count(|f| &f.n_taken) + self.count(|f| &f.n_refused) + self.count(|f| &f.n_unsure)
    }

    fn end(self) {
        assert!(self.pusher.finish(PATIENCE, Duration::ZERO, || false));
        let figures = self.spool.figures();
        assert_eq!((figures.n_waiting, figures.n_dropped), (0, 0));
    }
}

/// Waits until so many requests of each agent are settled.
fn settle(agents: &[Agent], n_requests: usize) {
    wait_until("not all requests are settled", || {
        let mut all = agents.iter();
        all.all(|agent| agent.n_settled() == n_requests)
            .then_some(())
    });
}

fn sum(agents: &[Agent], of: fn(&PushFigures) -> &AtomicU64) -> usize {
    agents.iter().map(|agent| agent.count(of)).sum()
}

/// Two agents that share a tenant, each with requests of one profile.
fn two_agents(url: &str, made: &StoreProfile) -> [Agent; 2] {
    ["one", "two"].map(|name| {
        let agent = Agent::start(url, StoreKind::Pyroscope);
        add_requests(&agent, made, name);
        agent
    })
}

/// Hands requests of one profile to an agent.
fn add_requests(agent: &Agent, made: &StoreProfile, name: &str) {
    for at in 0..N_REQUESTS {
        let id = format!("{name}-{at}");
        agent.add(pyroscope_request(&[pushed(made, Labels::new(), &id)]));
    }
}

/// The profiles of requests, none of which is there twice.
fn stored_once(requests: &[StoreRequest]) -> Vec<&StoredProfile> {
    let stored: Vec<_> = requests
        .iter()
        .flat_map(|request| &request.stored)
        .collect();
    let ids: BTreeSet<_> = stored.iter().map(|stored| &stored.id).collect();
    assert_eq!(ids.len(), stored.len(), "stored twice");
    stored
}

/// The pprof message that a store has of a trace, pushed by way of a 429.
fn pprof_in_store(trace: &str) -> Vec<u8> {
    let mut replies = [Reply::Status(429)].into_iter();
    let server = TestStore::start(move || replies.next().unwrap_or(Reply::AsReal));
    let agent = Agent::start(&server.url, StoreKind::Pyroscope);
    agent.add(pyroscope_request(&[pushed(
        &made(trace),
        Labels::new(),
        "",
    )]));
    let [refused, taken] = [server.next(), server.next()];
    agent.end();
    assert_eq!((refused.status, taken.status), (429, 200));
    assert_eq!(refused.body, taken.body);
    let [stored] = &taken.stored[..] else {
        panic!("one profile")
    };
    assert_eq!(stored.labels["__name__"], "process_cpu");
    stored.pprof.encode_to_vec()
}

/// Check that two agents that share a tenant at its rate limit, with a store that stores one request and breaks its connection,
/// have each interval stored once; and that the one is counted as one that may be there.
#[test]
fn shared_tenant() {
    let made = made(OSD);
    let size = made.len_bytes() as f64;
    let rules = StoreRules {
        rate: 50.0 * size,
        burst: 1.5 * size,
        ..StoreRules::default()
    };
    let mut n = 0;
    let server = TestStore::start_with(rules, 0, move |_| {
        n += 1;
        match n {
            1 => Reply::StoreAndLeave,
            _ => Reply::AsReal,
        }
    });
    let agents = two_agents(&server.url, &made);
    settle(&agents, N_REQUESTS);
    let (requests, _) = server.end();
    assert_eq!(stored_once(&requests).len(), 2 * N_REQUESTS);
    assert_eq!(sum(&agents, |figures| &figures.n_unsure), 1);
    let n_refused = requests
        .iter()
        .filter(|request| request.status == 429)
        .count();
    assert!(n_refused > 0, "the limit was not reached");
    assert_eq!(sum(&agents, |figures| &figures.n_retries), n_refused);
    agents.into_iter().for_each(Agent::end);
}

/// Check that the store has what was recorded, of which nothing twice, when it is away for a hundred times the first wait and
/// then answers 500 until it is ready: but for requests that were under way when it ended, which are counted.
#[test]
fn store_restarts() {
    let made = made(OSD);
    let server = TestStore::start(|| Reply::AsReal);
    let agents = two_agents(&server.url, &made);
    let mut requests: Vec<_> = (0..7).map(|_| server.next()).collect();
    let (rest, port) = server.end();
    requests.extend(rest);
    // Whatever each of them has sent by now.
    add_requests(&agents[0], &made, "three");
    add_requests(&agents[1], &made, "four");
    wait_until("no agent notices", || {
        (sum(&agents, |figures| &figures.n_retries) >= 12).then_some(())
    });
    let starting = StoreRules {
        ready_after: Duration::from_millis(300),
        ..StoreRules::default()
    };
    let server = TestStore::start_with(starting, port, |_| Reply::AsReal);
    settle(&agents, 2 * N_REQUESTS);
    requests.extend(server.end().0);
    let [n_taken, n_unsure] = [
        sum(&agents, |figures| &figures.n_taken),
        sum(&agents, |figures| &figures.n_unsure),
    ];
    assert_eq!(n_taken + n_unsure, 4 * N_REQUESTS);
    assert!(n_unsure <= agents.len(), "{n_unsure} were under way");
    let stored = stored_once(&requests);
    assert!((n_taken..=n_taken + n_unsure).contains(&stored.len()));
    let recorded = recorded(&[]);
    assert!(stored.iter().all(|stored| stored.sums["wall"] == recorded));
    agents.into_iter().for_each(Agent::end);
}

/// Check that a profile of which the old storage of Pyroscope takes a part is not sent again, and holds up no other.
#[test]
fn series_limit() {
    let made = made(OSD);
    let rules = StoreRules {
        max_series: Some(4),
        ..StoreRules::default()
    };
    let server = TestStore::start_with(rules, 0, |_| Reply::AsReal);
    let agents = two_agents(&server.url, &made);
    settle(&agents, N_REQUESTS);
    let requests = server.end().0;
    assert_eq!(requests.len(), 2 * N_REQUESTS);
    assert_eq!(sum(&agents, |figures| &figures.n_unsure), 2 * N_REQUESTS);
    // Some of each: sending them again would count that twice.
    let stored = stored_once(&requests);
    assert!(stored.iter().all(|stored| stored.n_samples > 0));
    assert!(
        stored
            .iter()
            .all(|stored| stored.sums["wall"] < recorded(&[]))
    );
    agents.into_iter().for_each(Agent::end);
}

/// Check that what a store's clock, or a proxy's limit, makes it refuse is counted, and that it is not sent again.
#[test]
fn never_taken() {
    let hour = StoreRules {
        clock_ahead: 3700,
        ..StoreRules::default()
    };
    let behind = StoreRules {
        clock_ahead: -700,
        ..StoreRules::default()
    };
    let proxy = StoreRules {
        max_body: Some(1000),
        ..StoreRules::default()
    };
    for rules in [hour, behind, proxy] {
        let server = TestStore::start_with(rules, 0, |_| Reply::AsReal);
        let agent = Agent::start(&server.url, StoreKind::Pyroscope);
        agent.add(pyroscope_request(&[pushed(&made(OSD), Labels::new(), "")]));
        assert_ne!(server.next().status, 200);
        settle(std::slice::from_ref(&agent), 1);
        assert_eq!(agent.count(|figures| &figures.n_refused), 1);
        agent.end();
        assert!(server.end().0.is_empty());
    }
}

/// Check that Parca has a series for each state and pool, which together have the time of the report: it drops labels of samples.
#[test]
fn parca() {
    let profile = profile(OSD);
    let parts = StoreProfiles::new(&profile, false).split(0, StoreLimits::PYROSCOPE);
    let server = TestStore::start(|| Reply::AsReal);
    let agent = Agent::start(&server.url, StoreKind::Parca);
    let n_parts = parts.len();
    for (labels, part) in parts {
        agent.add(parca_request(&[pushed(&part, labels, "")]));
    }
    settle(std::slice::from_ref(&agent), n_parts);
    agent.end();
    let requests = server.end().0;
    let mut by_state: BTreeMap<&str, i64> = BTreeMap::new();
    let mut pools = BTreeSet::new();
    for stored in requests.iter().flat_map(|request| &request.stored) {
        assert!(
            stored
                .pprof
                .sample
                .iter()
                .all(|sample| sample.label.is_empty())
        );
        *by_state.entry(&stored.labels["state"]).or_default() += stored.sums["wall"];
        pools.insert(&stored.labels["pool"]);
    }
    assert!(
        by_state.len() > 2 && pools.len() > 5,
        "{by_state:?} {pools:?}"
    );
    assert_eq!(by_state.values().sum::<i64>(), recorded(&[]));
    assert_eq!(by_state["on-cpu"], recorded(&["--state", "on-cpu"]));
}

/// Check that Pyroscope's endpoint for OTLP takes each type once, with the time of the report; and that a request of which it may
/// have taken a part is not sent again.
#[test]
fn otlp() {
    let server = TestStore::start(|| Reply::AsReal);
    let agent = Agent::start(&server.url, StoreKind::Otlp);
    let labels = vec![("host".to_owned(), "node-1".to_owned())];
    let request = otlp_request(&[pushed(&made(OSD), labels, "")]);
    agent.add(request.clone());
    let got = server.next();
    assert_eq!(got.status, 200);
    agent.end();
    let of = |kind: &str| {
        let mut all = got.stored.iter();
        all.find_map(|stored| stored.sums.get(kind).copied())
    };
    assert_eq!(of("wall"), Some(recorded(&[])));
    assert_eq!(of("cpu"), Some(recorded(&["--state", "on-cpu,guest"])));
    let labels = &got.stored[0].labels;
    assert_eq!(
        (&*labels["service_name"], &*labels["host.name"]),
        ("ceph-osd", "node-1")
    );

    let size = got.stored[0].n_bytes as f64;
    let rules = StoreRules {
        rate: 1.0,
        burst: 1.5 * size,
        ..StoreRules::default()
    };
    let server = TestStore::start_with(rules, 0, |_| Reply::AsReal);
    let agent = Agent::start(&server.url, StoreKind::Otlp);
    agent.add(request);
    let got = server.next();
    assert_eq!((got.status, got.stored.len()), (429, 1));
    settle(std::slice::from_ref(&agent), 1);
    assert_eq!(agent.count(|figures| &figures.n_unsure), 1);
    agent.end();
    assert!(server.end().0.is_empty());
}

/// Check the alert rules by Prometheus's own program.
#[test]
fn alert_rules() {
    let mut promtool = Command::new("promtool");
    let rules = concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/agent/alerts.yml");
    match promtool.args(["check", "rules", rules]).output() {
        Ok(output) => assert!(output.status.success(), "{output:?}"),
        Err(_) => skip(
            "alert_rules",
            "promtool (package prometheus) is not installed",
        ),
    }
}

/// Time of the trace in its report, ns.
fn recorded(flags: &[&str]) -> i64 {
    reported(OSD, flags).values().sum::<u64>() as i64
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
/// time, and time on a CPU. The time of the rarest stacks is `[other]`, half a percent at most.
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
    let pprof = pprof_in_store(OSD);
    for (kind, flags) in [("wall", &[][..]), ("cpu", &["--state", "on-cpu,guest"])] {
        let (mut shown, reported) = (shown(program, &pprof, kind), reported(OSD, flags));
        let other = shown.remove("[other]").expect("rare stacks");
        assert!(shown.len() > 50, "{shown:?}");
        let all: u64 = reported.values().sum();
        assert!(0 < other && other <= all / 200, "{other} of {all}");
        assert_eq!(shown.values().sum::<u64>() + other, all);
        for (name, time) in shown {
            let missing = reported[&name]
                .checked_sub(time)
                .expect("no more than reported");
            assert!(missing <= other, "{name}: {time}");
        }
    }
}
