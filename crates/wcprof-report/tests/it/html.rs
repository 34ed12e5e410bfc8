//! The page: its data against a golden file (`WCPROF_BLESS=1` writes it anew), hostile names, its
//! size, and that no time is lost in its map. How it looks and works is tested in a browser
//! (`crates/wcprof/tests/html.rs`, `cargo xtask viewers`).

use crate::support;

use std::collections::BTreeMap;
use std::path::PathBuf;

use serde_json::Value;
use support::{MS, Maker, syscall};
use wcprof_findings::{
    Base, Basis, Evidence, EvidenceLine, Finding, Hotspots, Scope, Severity, Source, TimeShare,
};
use wcprof_profile::model::{Profile, State};
use wcprof_profile::{GroupBy, ProfileBuilder, RowSpan, Rules, View};
use wcprof_report::{HtmlOptions, HtmlPage, MAX_HTML_BYTES};
use wcprof_testkit::HOSTILE_NAMES;
use wcprof_types::{Pid, StackEnd, ThreadState, Tid};

/// Two messengers that decrypt and wait, a thread with a lock, one that was only idle, a truncated
/// stack, and time without a stack; spans lie where they belong in time.
fn osd() -> Maker {
    let mut m = Maker::new();
    for (i, tid) in [101, 102].into_iter().enumerate() {
        let thread = m.thread(tid, &format!("msgr-worker-{i}"));
        m.on_cpu(
            thread,
            &["libc:clone3", "AsyncConnection::process()", "?1a2b40"],
            300 * MS,
        );
        m.blocked(
            thread,
            syscall("epoll_wait"),
            &["libc:clone3", "libc:epoll_wait"],
            700 * MS,
        );
        m.move_last(300 * MS, 1000 * MS);
    }
    let worker = m.thread(103, "tp_osd_tp");
    let stack = m.stack(
        &[
            "ShardedOpWQ::_process()",
            "PG::lock()",
            "libc:__lll_lock_wait",
        ],
        StackEnd::NoUnwindInfo,
    );
    let wait = m.wait(syscall("futex"));
    let blocked = ThreadState::Blocked;
    m.span(worker, blocked, Some(wait), Some(stack), 250 * MS);
    m.span(worker, ThreadState::OnCpu, None, None, 750 * MS);
    m.move_last(250 * MS, 1000 * MS);
    let idle = m.thread(104, "idle");
    m.blocked(idle, syscall("epoll_wait"), &["libc:epoll_wait"], 1000 * MS);
    m
}

fn profile_of(m: &Maker) -> (Profile, Vec<RowSpan>) {
    let rules = Rules::builtin().expect("the built-in rules are valid");
    let mut builder = ProfileBuilder::new();
    m.spans.iter().for_each(|span| builder.add_span(span));
    let (profile, rows) = builder.finish_indexed(&m.tables, None, &rules, false);
    let spans = m.spans.iter().filter_map(|span| rows.find(span));
    (profile, spans.collect())
}

fn view() -> View {
    View {
        by: GroupBy::Pool,
        ..View::default()
    }
}

fn page(profile: &Profile, spans: &[RowSpan], view: &View, options: HtmlOptions<'_>) -> String {
    let mut page = HtmlPage::new(profile, view, options);
    spans.iter().for_each(|span| page.add_span(span));
    let mut out = Vec::new();
    page.write(&mut out).expect("a page can be written");
    String::from_utf8(out).expect("a page is text")
}

/// The data as a browser reads it: up to the first end of a script.
fn data(page: &str) -> Value {
    let (_, rest) = page.split_once("id=\"data\">").expect("there is data");
    let (json, _) = rest.split_once("</script>").expect("the data ends");
    serde_json::from_str(json).expect("the data is JSON")
}

fn finding(name: &str) -> Finding {
    Finding {
        rule: "test".to_owned(),
        title: format!("Title {name}"),
        severity: Severity::High,
        action: format!("do {name}"),
        remedy: Default::default(),
        returns: 1.0,
        gain: None,
        pid: Pid(100),
        process: name.to_owned(),
        host: String::new(),
        pools: vec!["msgr-worker-N".to_owned()],
        basis: Basis::Time(TimeShare {
            matched_ns: 600 * MS,
            low_ns: 500 * MS,
            high_ns: 600 * MS,
            n_samples: 60,
            states: vec![State::OnCpu],
            base: Base::OnCpu,
            scope: Scope::Pool,
            on_cpu_ns: 600 * MS,
            non_idle_ns: 600 * MS,
            wall_ns: 2000 * MS,
            n_threads: 2,
            tids: vec![Tid(101)],
            duration_ns: 1000 * MS,
        }),
        evidence: vec![Evidence {
            heading: format!("leaf first {name}"),
            lines: vec![EvidenceLine {
                depth: 0,
                percent: Some(100.0),
                weight_ns: 600 * MS,
                name: name.to_owned(),
                module: "libc.so.6".to_owned(),
            }],
            n_cut: 1,
        }],
        explanation: format!("Why {name}"),
        advice: format!("Do `this` {name}. Then that."),
        sources: vec![Source {
            report: name.to_owned(),
            figure: "12 %".to_owned(),
        }],
        verify: "look again".to_owned(),
    }
}

fn found(findings: impl IntoIterator<Item = Finding>) -> Hotspots {
    Hotspots {
        findings: findings.into_iter().collect(),
        ..Hotspots::default()
    }
}

/// Check all data of a page.
#[test]
fn golden() {
    let (profile, spans) = profile_of(&osd());
    let found = found([finding("EVP_DecryptUpdate")]);
    let flags = ["--from 0s".to_owned()];
    let options = HtmlOptions {
        title: "ceph-osd (pid 100)",
        hotspots: Some(&found),
        first: None,
        cores: None,
        flags: &flags,
    };
    let mut data = data(&page(&profile, &spans, &view(), options));
    data.sort_all_objects();
    let got = serde_json::to_string_pretty(&data).expect("JSON") + "\n";
    let folder = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("tests/golden");
    wcprof_testkit::golden(folder.join("html.json"), got);
}

/// Check that names in every place of a page stay text: its elements are those of the template,
/// whatever they are.
#[test]
fn hostile_names() {
    let elements = |page: &str| page.matches('<').count();
    let build = |names: &[&str]| {
        let mut m = Maker::new();
        m.tables.processes[0].comm = names[0].to_owned();
        m.tables.processes[0].cgroup = names[1].to_owned();
        m.tables.header.host = names[2].to_owned();
        m.tables.header.kernel = names[3].to_owned();
        m.tables.header.engine = names[4].to_owned();
        m.tables.header.notes = names.iter().map(|n| (*n).to_owned()).collect();
        m.tables.stats.complete = false;
        m.tables.stats.end_reason = names[5].to_owned();
        m.tables.modules[0].path = format!("/x/{}", names[6]);
        for (i, name) in names.iter().enumerate() {
            // `+` means an inline frame to the maker.
            let thread = m.thread(200 + i as i32, name);
            m.on_cpu(thread, &["main", name], 10 * MS);
        }
        let (profile, spans) = profile_of(&m);
        let found = found(names.iter().map(|name| finding(name)));
        let flags: Vec<String> = names.iter().map(|n| (*n).to_owned()).collect();
        let options = HtmlOptions {
            title: names[7],
            hotspots: Some(&found),
            first: None,
            cores: None,
            flags: &flags,
        };
        page(&profile, &spans, &view(), options)
    };
    let plain = vec!["plain"; HOSTILE_NAMES.len()];
    let (nasty, plain) = (build(&HOSTILE_NAMES), build(&plain));
    assert_eq!(elements(&nasty), elements(&plain));
    let text = data(&nasty).to_string();
    for name in [
        "</script><script>alert(1)</script>",
        "<img src=x onerror=alert(1)>",
        "__proto__",
    ] {
        let quoted = serde_json::to_string(name).expect("JSON");
        assert!(
            text.contains(quoted.trim_matches('"')),
            "{name} is in the data"
        );
    }
    for c in ['\u{2028}', '\u{202e}', '\u{feff}', '\0', '\u{1b}'] {
        assert!(!nasty.contains(c), "{c:?}");
    }
}

/// Check that a page stays below its limit whatever the profile has, and says what it left out.
#[test]
fn size() {
    let mut m = Maker::new();
    let long = "<&>x".repeat(1000);
    for t in 0..1500 {
        let thread = m.thread(
            1000 + t,
            &format!("{}{long}", char::from(b'a' + (t % 26) as u8)),
        );
        for s in 0..4 {
            let (leaf, root) = (format!("{t} {s} {long}"), format!("{t} {long}"));
            m.on_cpu(thread, &["main", &root, &leaf], (s as u64 + 1) * MS);
            m.move_last(s as u64 * 100 * MS, (s as u64 + 1) * 100 * MS);
        }
    }
    let (profile, spans) = profile_of(&m);
    let found = found((0..200).map(|i| finding(&format!("{i}{long}"))));
    let options = HtmlOptions {
        title: &long,
        hotspots: Some(&found),
        ..HtmlOptions::default()
    };
    let page = page(&profile, &spans, &view(), options);
    assert!(page.len() <= MAX_HTML_BYTES, "{}", page.len());
    let omitted = data(&page)["omitted"].to_string();
    for what in [
        "call trees",
        "more findings",
        "long names are cut",
        "common rows",
    ] {
        assert!(omitted.contains(what), "{what} in {omitted}");
    }
}

/// Nanoseconds by state in the map of a page.
fn map_ns(data: &Value) -> BTreeMap<String, f64> {
    let map = &data["map"];
    let bin_ns = map["bin_us"].as_f64().expect("a number") * 1000.0;
    let mut sums = BTreeMap::new();
    for row in map["rows"].as_array().expect("rows") {
        let n_threads = row["n_threads"].as_f64().expect("a number");
        for state in row["states"].as_array().expect("states") {
            let name = data["states"][state[0].as_u64().expect("an index") as usize].clone();
            let (mut parts, mut last) = (0.0, 0.0);
            for run in state[1].as_array().expect("runs") {
                match run.as_f64().expect("a number") {
                    n if n < 0.0 => parts += -n * last,
                    n => {
                        parts += n;
                        last = n;
                    }
                }
            }
            *sums
                .entry(name.as_str().unwrap_or_default().to_owned())
                .or_default() += parts / 1000.0 * bin_ns * n_threads;
        }
    }
    sums
}

/// Check that the map holds all time of each state, also where intervals overlap, and that filters
/// take what they leave out to a kind of its own.
#[test]
fn map() {
    let (profile, spans) = profile_of(&osd());
    let whole = data(&page(&profile, &spans, &view(), HtmlOptions::default()));
    let close = |sums: &BTreeMap<String, f64>, name: &str, ms: u64| {
        let ns = sums.get(name).copied().unwrap_or_default();
        assert!(
            (ns - (ms * MS) as f64).abs() < 1e6,
            "{name}: {ns} ns, not {ms} ms"
        );
    };
    let sums = map_ns(&whole);
    close(&sums, "on-cpu", 1350);
    close(&sums, "lock", 250);
    close(&sums, "idle", 0);
    close(&sums, "place-unknown", 2400);
    let view = View {
        states: Some(vec![State::Lock]),
        ..view()
    };
    let sums = map_ns(&data(&page(
        &profile,
        &spans,
        &view,
        HtmlOptions::default(),
    )));
    close(&sums, "on-cpu", 0);
    close(&sums, "left out by the filters", 1350);
    close(&sums, "lock", 250);
    close(&sums, "idle", 0);
    close(&sums, "place-unknown", 2400);
}

/// Check that spans which overlap fill no bin beyond its length and lose no time.
#[test]
fn overlap() {
    let mut m = Maker::new();
    let thread = m.thread(1, "late");
    m.on_cpu(thread, &["main", "f"], 400 * MS);
    m.move_last(0, 1000 * MS);
    m.on_cpu(thread, &["main", "g"], 600 * MS);
    m.move_last(300 * MS, 900 * MS);
    let (profile, spans) = profile_of(&m);
    let data = data(&page(&profile, &spans, &view(), HtmlOptions::default()));
    let sums = map_ns(&data);
    assert_eq!(sums.len(), 1);
    assert!((sums["on-cpu"] - 1e9).abs() < 1e6, "{sums:?}");
}

/// Check that what has no axis of time has no map, and that its page says so.
#[test]
fn no_time() {
    let mut m = osd();
    m.tables.header.rate_hz = 0;
    let (profile, spans) = profile_of(&m);
    let data = data(&page(&profile, &spans, &view(), HtmlOptions::default()));
    assert!(data["map"].is_null());
    assert!(data["omitted"].to_string().contains("no axis of time"));
}
