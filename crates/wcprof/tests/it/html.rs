//! `report --format html` of saved traces: by the data in the page, and in headless Chromium where
//! that is installed.

use std::io::Read;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use serde_json::Value;
use wcprof_testkit::PATIENCE;

use crate::support::{OSD, json, run, text};

const MAX_BYTES: usize = 5_000_000;

/// The data of a page.
fn data(flags: &[&str]) -> Value {
    let page = text(&[&["report", OSD, "--full-names", "--format", "html"], flags].concat());
    assert!(page.len() < MAX_BYTES);
    data_of(&page)
}

fn data_of(page: &str) -> Value {
    let (_, rest) = page.split_once("id=\"data\">").expect("there is data");
    let (json, _) = rest.split_once("</script>").expect("the data ends");
    serde_json::from_str(json).expect("the data is JSON")
}

fn list<'a>(value: &'a Value, key: &str) -> &'a [Value] {
    value[key].as_array().map_or(&[], Vec::as_slice)
}

fn name<'a>(data: &'a Value, of: &Value) -> &'a str {
    let id = of["name"].as_u64().expect("an index");
    data["strings"][id as usize].as_str().expect("a name")
}

/// Check that a page says what the other commands say: the findings, and of each pool shown time,
/// states and the weights of all places that are heavy enough.
#[test]
fn agrees() {
    let data = data(&["--min-percent", "0"]);
    let hotspots = json(&["doctor", OSD, "--json"]);
    let rules = |list: &[Value], rule: &dyn Fn(&Value) -> String| -> Vec<String> {
        list.iter().map(rule).collect()
    };
    let of_page = rules(list(&data, "findings"), &|f| {
        let id = f["rule"].as_u64().expect("an index");
        data["strings"][id as usize]
            .as_str()
            .expect("a rule")
            .to_owned()
    });
    let of_hotspots = rules(list(&hotspots, "findings"), &|f| {
        f["rule"].as_str().expect("a rule").to_owned()
    });
    assert!(!of_page.is_empty());
    assert_eq!(of_page, of_hotspots);
    for (tree, flag) in [("calls", None), ("inverted", Some("--invert"))] {
        let mut args = vec!["report", OSD, "--json", "--by", "pool"];
        args.extend(flag);
        let report = json(&args);
        let (groups, wanted) = (list(&data, "groups"), list(&report, "groups"));
        assert_eq!(groups.len(), wanted.len());
        let mut at = 0;
        for (group, wanted) in groups.iter().zip(wanted) {
            assert_eq!(name(&data, group), wanted["name"]);
            for node in list(wanted, "nodes") {
                let ns = node["weight_ns"].as_u64().expect("a weight");
                assert_eq!(data[tree]["us"][at], (ns + 500) / 1000);
                assert_eq!(data[tree]["depth"][at], node["depth"]);
                let label = data[tree]["label"][at].as_u64().expect("an index") as usize;
                let id = data["labels"]["name"][label].as_u64().expect("an index");
                assert_eq!(data["strings"][id as usize], node["name"]);
                at += 1;
            }
        }
        assert!(at > 500, "{at} places");
        assert_eq!(list(&data[tree], "us").len(), at);
    }
    assert_eq!(list(&data["map"], "rows").len(), 70);
}

/// Check that filters, groups and directions hold for the page, and that it names them.
#[test]
fn filters() {
    let part = data(&[
        "--from", "2s", "--to", "4s", "--pools", "tp_*", "--state", "lock",
    ]);
    let groups = list(&part, "groups");
    assert_eq!(groups.len(), 1);
    assert_eq!(name(&part, &groups[0]), "tp_osd_tp");
    let flags: Vec<&str> = list(&part["view"], "flags")
        .iter()
        .filter_map(Value::as_str)
        .collect();
    assert_eq!(
        flags,
        ["--from 2s", "--to 4s", "--pools 'tp_*'", "--state lock"]
    );
    assert_eq!(part["map"]["begin_us"], 2_000_000);
    assert_eq!(part["map"]["duration_us"], 2_000_000);
    // The only state of what is shown.
    let states: Vec<&Value> = list(&part["calls"], "states").iter().collect();
    assert!(
        !states.is_empty() && states.iter().all(|s| **s == 3),
        "{states:?}"
    );
    let threads = data(&["--by", "thread"]);
    assert!(name(&threads, &threads["groups"][0]).contains('/'));
    let callers = data(&["--callers-of", "futex_wait"]);
    assert_eq!(callers["view"]["around"][0], "futex_wait");
    assert!(callers["inverted"].is_null());
    let nothing = run(&[
        "report",
        OSD,
        "--format",
        "html",
        "--focus",
        "no such function",
    ]);
    assert!(nothing.status.success());
    assert!(String::from_utf8_lossy(&nothing.stderr).contains("no time passes the filters"));
}

/// The first Chromium that is installed.
fn chromium() -> Option<PathBuf> {
    let path = std::env::var_os("PATH")?;
    let folders: Vec<PathBuf> = std::env::split_paths(&path).collect();
    ["chromium", "chromium-browser", "google-chrome"]
        .iter()
        .flat_map(|name| folders.iter().map(move |folder| folder.join(name)))
        .find(|file| file.is_file())
}

/// The elements of a page after its script has run, and what the browser's console says.
fn open(chromium: &Path, folder: &Path, page: &Path, fragment: &str) -> (String, String) {
    let mut child = Command::new(chromium)
        .args([
            "--headless",
            "--no-sandbox",
            "--disable-gpu",
            "--no-first-run",
        ])
        .args(["--disable-background-networking", "--disable-dev-shm-usage"])
        .args([
            "--enable-logging=stderr",
            "--window-size=1400,900",
            "--dump-dom",
        ])
        .arg(format!(
            "--user-data-dir={}",
            folder.join("profile").display()
        ))
        // Time of the page's own clock, for what it draws in its first frames.
        .arg("--virtual-time-budget=5000")
        .arg(format!("file://{}{fragment}", page.display()))
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .expect("Chromium runs");
    let (mut out, mut err) = (child.stdout.take(), child.stderr.take());
    let read = |pipe: Option<&mut dyn Read>| {
        let mut text = Vec::new();
        if let Some(pipe) = pipe {
            let _ = pipe.read_to_end(&mut text);
        }
        String::from_utf8_lossy(&text).into_owned()
    };
    let started = Instant::now();
    std::thread::scope(|scope| {
        let dom = scope.spawn(|| read(out.as_mut().map(|p| p as &mut dyn Read)));
        let log = scope.spawn(|| read(err.as_mut().map(|p| p as &mut dyn Read)));
        let ended = loop {
            if let Some(status) = child.try_wait().expect("the child can be waited for") {
                break Some(status);
            }
            if started.elapsed() > PATIENCE {
                child.kill().expect("the child can be ended");
                break None;
            }
            std::thread::sleep(Duration::from_millis(20));
        };
        let texts = (dom.join().expect("read"), log.join().expect("read"));
        assert!(ended.is_some(), "Chromium did not end: {}", texts.1);
        texts
    })
}

/// Check that a browser draws all parts of a page and finds what is searched for, without an error,
/// and that no name runs as script.
#[test]
fn in_chromium() {
    let Some(chromium) = chromium() else {
        return wcprof_testkit::skip("html::in_chromium", "chromium is not installed");
    };
    let folder = tempfile::tempdir().expect("a folder");
    let page = folder.path().join("osd.html");
    let to = page.to_str().expect("the path is text");
    text(&["report", OSD, "--format", "html", "-o", to]);
    let (dom, log) = open(&chromium, folder.path(), &page, "#q=futex&group=tp_osd_tp");
    assert!(!log.contains("CONSOLE"), "{log}");
    for (part, least) in [
        ("data-drawn=", 1),
        ("<details class=\"finding", 4),
        ("id=\"groups\"", 1),
        ("role=\"treeitem\" id=\"f", 40),
        ("class=\"f hit\"", 2),
        ("class=\"row hit\"", 2),
        ("class=\"lane", 5),
        ("<canvas", 5),
        ("id=\"symbols\"", 1),
    ] {
        let n = dom.matches(part).count();
        assert!(n >= least, "{n} times {part}, not {least}, in {dom}");
    }
    let (_, found) = dom
        .split_once("id=\"found\"")
        .expect("the search says what it found");
    let found = found.split('<').next().unwrap_or_default();
    assert!(found.contains("places"), "{found}");

    // A stack and a thread with names that would each mark the page if they ran.
    let mark = "document.documentElement.setAttribute('data-owned',1)";
    let nasty = format!(
        "</script><script>{mark}</script>/1;<img src=x onerror={mark}>;<svg onload={mark}>;'-{mark}-' 100\n\
         x/2;javascript:{mark};--><script>{mark}</script>;\"><iframe srcdoc=<script>{mark}</script>> 50\n"
    );
    let folded = folder.path().join("nasty.folded");
    let trace = folder.path().join("nasty.wct");
    std::fs::write(&folded, nasty).expect("the file can be written");
    let (folded, trace) = (
        folded.to_str().expect("text"),
        trace.to_str().expect("text"),
    );
    text(&["import", folded, "--format", "folded", "-o", trace]);
    text(&["report", trace, "--format", "html", "--force", "-o", to]);
    let (dom, log) = open(&chromium, folder.path(), &page, "#q=script");
    assert!(!log.contains("CONSOLE"), "{log}");
    assert!(dom.contains("data-drawn="), "{dom}");
    let root = dom.split_once('>').map_or("", |(_, rest)| rest);
    let root = root.split('>').next().unwrap_or_default();
    assert!(!root.contains("data-owned"), "{root}");
    for element in ["<img", "<svg", "<iframe"] {
        assert!(!dom.contains(element), "{element} in {dom}");
    }
    assert!(
        dom.contains(">&lt;img src=x"),
        "the name is shown as text: {dom}"
    );
}
