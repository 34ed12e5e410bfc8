//! `cargo xtask viewers`: opens each export of a saved trace in the viewer that it is for, and compares
//! what that shows with what wcprof says.
//!
//! Needs `go tool pprof` (or `pprof`), and Node with npm for the packages speedscope, playwright-core and
//! `@firefox-devtools/profiler-cli`, which is the Firefox Profiler's own code without its page; and
//! Chromium. `cargo xtask setup --viewers` installs what Debian has. What is missing is printed as
//! skipped. Pages reach loopback alone.

mod page;
mod pprof;

use std::collections::BTreeMap;
use std::path::Path;

use anyhow::{Result, ensure};
use fs_err as fs;
use serde_json::Value;

use crate::process::{
    build_release, capture_json, command, execute, find_chromium, is_installed, list, number,
    quoted, result_folder, root, text,
};

/// What is exported.
const TRACE: &str = "fixtures/traces/ceph-osd-secure-randread.wct";

/// Packages and versions that were tried.
const PACKAGES: &[&str] = &[
    "speedscope@1.25.0",
    "playwright-core@1.65.1",
    "@firefox-devtools/profiler-cli@0.10.0",
];

/// Functions of the trace with known lines, and their source files.
const LISTED: &[(&str, &str)] = &[
    ("__futex_abstimed_wait_common64", "./nptl/futex-internal.c"),
    ("start_thread", "./nptl/pthread_create.c"),
];

/// Exports and their formats.
const EXPORTS: &[(&str, &str)] = &[
    ("pprof.pb.gz", "pprof"),
    ("speedscope.json", "speedscope"),
    ("firefox.json", "firefox"),
    ("folded.txt", "folded"),
    ("report.json", "json --invert --by thread"),
    ("tree.json", "json"),
    ("lines.json", "json --lines"),
    ("svg.svg", "svg"),
    ("icicle.svg", "icicle"),
    ("inverted.svg", "svg --invert"),
    ("page.html", "html"),
];

/// Open the exports of a trace in their viewers.
#[derive(Debug, clap::Args)]
pub struct Args {
    /// Open the HTML page alone
    #[arg(long)]
    page: bool,
}

/// Runs the command.
///
/// # Errors
/// When an export fails, a viewer refuses it, or shows something else than wcprof does.
pub fn run(args: &Args) -> Result<()> {
    let wcprof = build_release()?;
    let folder = result_folder("viewers")?;
    let quoted_folder = quoted(&folder);
    let trace = quoted(root().join(TRACE));
    for (name, format) in EXPORTS {
        let to = quoted(folder.join(name));
        let report = format!("{wcprof} report {trace} --format {format} -o {to}");
        execute(command(&report))?;
    }
    let own = OwnTimes::read(&folder.join("report.json"))?;
    if !args.page {
        pprof::check(&folder, &own)?;
    }
    if !is_installed("npm") || !is_installed("node") {
        println!("SKIPPED pages and the Firefox Profiler: npm or node is not installed");
        return Ok(());
    }
    let npm = format!(
        "npm install --prefer-offline --ignore-scripts --no-audit --no-fund --prefix {quoted_folder}"
    );
    execute(command(&npm).args(PACKAGES))?;
    if !args.page {
        firefox(&folder, &own)?;
    }
    let Some(chromium) = find_chromium() else {
        println!("SKIPPED pages: chromium is not installed");
        return Ok(());
    };
    let node = |script: &str| {
        let script = quoted(root().join("xtask/viewers").join(script));
        command(&format!(
            "node {script} {chromium} {quoted_folder} {quoted_folder}"
        ))
    };
    if !args.page {
        pages(&capture_json(node("open.mjs"))?, &own)?;
    }
    let names = page::make(&folder, &wcprof, &trace)?;
    page::check(&folder, &capture_json(node("page.mjs").args(&names))?)?;
    println!("screenshots: {}", folder.display());
    Ok(())
}

/// Self time by function, ns, as the JSON report has it: the roots of inverted trees.
#[derive(Debug, Default)]
struct OwnTimes {
    /// By thread (`comm/tid`), most time first.
    threads: Vec<(String, BTreeMap<String, f64>)>,
}

impl OwnTimes {
    fn read(path: &Path) -> Result<Self> {
        let report: Value = serde_json::from_reader(fs::File::open(path)?)?;
        let mut threads = Vec::new();
        for group in list(&report["groups"]) {
            let roots =
                list(&group["nodes"]).filter(|node| node.get("parent") == Some(&Value::Null));
            let times = sums(roots, "weight_ns");
            if !times.is_empty() {
                threads.push((text(&group["name"]).to_owned(), times));
            }
        }
        ensure!(!threads.is_empty(), "the trace shows no time");
        Ok(Self { threads })
    }

    /// Of functions with this name up to arguments and template arguments, in all threads.
    fn of_function(&self, name: &str) -> f64 {
        let times = self.threads.iter().flat_map(|(_, times)| times);
        let same = times.filter(|(own, _)| short(own) == short(name));
        same.map(|(_, ns)| ns).sum()
    }
}

/// The nodes of a JSON report, root first, by group.
#[derive(Debug)]
struct Tree(Vec<Vec<Value>>);

impl Tree {
    fn read(path: &Path) -> Result<Self> {
        let report: Value = serde_json::from_reader(fs::File::open(path)?)?;
        let groups = list(&report["groups"]);
        Ok(Self(
            groups
                .map(|g| list(&g["nodes"]).cloned().collect())
                .collect(),
        ))
    }

    /// Time of the stacks with a wanted node, ns.
    fn of(&self, is_wanted: impl Fn(&Value) -> bool) -> f64 {
        let mut sum = 0.0;
        for nodes in &self.0 {
            // By node: whether it or one above it is wanted.
            let mut found: Vec<bool> = Vec::new();
            for node in nodes {
                let parent = node["parent"].as_u64();
                let is_below = parent.is_some_and(|parent| found[parent as usize]);
                let is_first = !is_below && is_wanted(node);
                sum += if is_first {
                    number(&node["weight_ns"])
                } else {
                    0.0
                };
                found.push(is_below || is_first);
            }
        }
        sum
    }

    /// Time of a function at a line, ns, of a report with lines.
    fn of_line(&self, function: &str, line: u64) -> f64 {
        let end = format!(":{line})");
        self.of(|node| {
            let name = text(&node["name"]);
            name.split_once(" (")
                .is_some_and(|(own, _)| own == function)
                && name.ends_with(&end)
        })
    }
}

/// The sum of the numbers under `key` for each name.
fn sums<'a>(values: impl Iterator<Item = &'a Value>, key: &str) -> BTreeMap<String, f64> {
    let mut sums = BTreeMap::new();
    for value in values {
        *sums.entry(text(&value["name"]).to_owned()).or_default() += number(&value[key]);
    }
    sums
}

/// A name up to its arguments or templates, which pprof shortens.
fn short(name: &str) -> &str {
    name.split(['(', '<']).next().unwrap_or(name).trim()
}

/// Loads the profile by the Firefox Profiler's own code and compares what it says of the threads with
/// the most time.
fn firefox(folder: &Path, own: &OwnTimes) -> Result<()> {
    let cli = quoted(folder.join("node_modules/.bin/profiler-cli"));
    let profile = quoted(folder.join("firefox.json"));
    execute(command(&format!("{cli} load {profile}")))?;
    let lines = Tree::read(&folder.join("lines.json"))?;
    let result = compare_with_firefox(&cli, own).and_then(|()| compare_lines(&cli, &lines));
    execute(command(&format!("{cli} stop")))?;
    result
}

fn compare_with_firefox(cli: &str, own: &OwnTimes) -> Result<()> {
    const N_THREADS: usize = 5;
    let ask = |words: &str| capture_json(command(&format!("{cli} {words} --json")));
    let n_threads = list(&ask("thread list")?["threads"]).count();
    let n_own = own.threads.len();
    ensure!(
        n_threads == n_own,
        "the Firefox Profiler shows {n_threads} threads, wcprof {n_own}"
    );
    let mut n_markers = 0.0;
    for (at, (thread, times)) in own.threads.iter().take(N_THREADS).enumerate() {
        let shown = ask(&format!("thread functions --thread t-{at} --limit 0"))?;
        // Functions of one name in several modules are apart there.
        let shown = sums(list(&shown["functions"]), "selfSamples");
        for name in times.keys().chain(shown.keys()) {
            let (ns, ms) = (
                times.get(name).unwrap_or(&0.0),
                shown.get(name).unwrap_or(&-1.0),
            );
            ensure!(
                (ns / 1e6 - ms).abs() < 1e-3,
                "the Firefox Profiler says {ms} ms of `{name}` in {thread}, wcprof {ns} ns"
            );
        }
        let markers = ask(&format!("thread markers --thread t-{at}"))?;
        n_markers += number(&markers["totalMarkerCount"]);
    }
    ensure!(n_markers > 0.0, "the Firefox Profiler shows no markers");
    println!(
        "firefox: {n_threads} threads; self time of all functions of the first {N_THREADS} is that of the \
         trees; they have {n_markers} markers"
    );
    Ok(())
}

/// Compares the source lines of [`LISTED`] functions.
fn compare_lines(cli: &str, lines: &Tree) -> Result<()> {
    for (name, _) in LISTED {
        let mut sums: BTreeMap<u64, f64> = BTreeMap::new();
        let ask = |words: &str| capture_json(command(&format!("{cli} {words} --json")));
        for thread in list(&ask("thread list")?["threads"]) {
            execute(command(&format!(
                "{cli} thread select {}",
                text(&thread["threadHandle"])
            )))?;
            let functions = ask("thread functions --limit 0")?;
            for function in list(&functions["functions"]).filter(|f| f["name"] == **name) {
                let handle = text(&function["functionHandle"]);
                let found = ask(&format!("function annotate {handle}"))?;
                for line in list(&found["srcAnnotation"]["lines"]) {
                    let sum = sums.entry(number(&line["lineNumber"]) as u64).or_default();
                    *sum += number(&line["totalSamples"]);
                }
            }
        }
        let mut n = 0;
        for (line, ms) in sums.into_iter().filter(|(_, ms)| *ms > 0.0) {
            let ns = lines.of_line(name, line);
            ensure!(
                (ns / 1e6 - ms).abs() < 1e-3,
                "`{name}`, line {line}: {ms} ms, wcprof {ns} ns"
            );
            n += 1;
        }
        ensure!(n > 0, "the Firefox Profiler shows no line of `{name}`");
    }
    println!("firefox: times of source lines are those of the tree");
    Ok(())
}

/// Checks what Chromium found in pages.
fn pages(found: &Value, own: &OwnTimes) -> Result<()> {
    for (name, page) in found.as_object().into_iter().flatten() {
        println!("{name}: {page}");
        ensure!(
            list(&page["errors"]).next().is_none(),
            "{name} shows errors"
        );
    }
    let (first, n) = (&own.threads[0].0, own.threads.len());
    let shown = text(&found["speedscope.json"]["shown"]);
    ensure!(
        shown.contains(first) && shown.contains(&format!("(1/{n})")),
        "speedscope shows {shown:?} and not {first} as the first of {n}"
    );
    let (_, file) = LISTED[1];
    let selected = text(&found["speedscope.json"]["selected"]);
    ensure!(
        selected.contains(&format!("{file}:")),
        "speedscope says {selected:?} of a selected frame, without {file}"
    );
    for (name, root) in [
        ("svg.svg", "bottom"),
        ("icicle.svg", "top"),
        ("inverted.svg", "top"),
    ] {
        let page = &found[name];
        ensure!(
            page["all"] == page[root],
            "the root of {name} is not at the {root}"
        );
        ensure!(number(&page["frames"]) > 50.0, "{name} shows few frames");
        ensure!(
            number(&page["matched"]) > 0.0,
            "the search of {name} finds nothing"
        );
    }
    println!("pages: speedscope and the graphs show what they should");
    Ok(())
}
