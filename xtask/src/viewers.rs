//! `cargo xtask viewers`: opens each export of a saved trace in the viewer that it is for, and compares
//! what that shows with what wcprof says.
//!
//! Needs `go tool pprof` (or `pprof`), and Node with npm for the packages speedscope, playwright-core and
//! `@firefox-devtools/profiler-cli`, which is the Firefox Profiler's own code without its page; and
//! Chromium. `cargo xtask setup --viewers` installs what Debian has. What is missing is printed as
//! skipped. Pages reach loopback alone.

mod page;

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result, bail, ensure};
use fs_err as fs;
use serde_json::Value;

use crate::process::{
    build_release, capture, capture_json, command, execute, find_chromium, is_installed, root,
    target_folder,
};

/// Packages and versions that were tried.
const PACKAGES: &[&str] = &[
    "speedscope@1.25.0",
    "playwright-core@1.65.1",
    "@firefox-devtools/profiler-cli@0.10.0",
];

/// Exports and their formats.
const EXPORTS: &[(&str, &str)] = &[
    ("pprof.pb.gz", "pprof"),
    ("speedscope.json", "speedscope"),
    ("firefox.json", "firefox"),
    ("folded.txt", "folded"),
    ("report.json", "json --invert"),
    ("svg.svg", "svg"),
    ("icicle.svg", "icicle"),
    ("inverted.svg", "svg --invert"),
    ("page.html", "html"),
];

/// Open the exports of a trace in their viewers.
#[derive(Debug, clap::Args)]
pub struct Args {
    /// Trace to export
    #[arg(long, default_value = "fixtures/traces/ceph-osd-secure-randread.wct")]
    trace: PathBuf,
    /// Folder for exports, screenshots and npm packages [default: viewers, in cargo's target folder]
    #[arg(long)]
    folder: Option<PathBuf>,
    /// wcprof to run; built when not given
    #[arg(long)]
    program: Option<PathBuf>,
    /// Open the HTML page alone
    #[arg(long)]
    page: bool,
}

/// Runs the command.
///
/// # Errors
/// When an export fails, a viewer refuses it, or shows something else than wcprof does.
pub fn run(args: &Args) -> Result<()> {
    let program = match &args.program {
        Some(program) => program.clone(),
        None => build_release()?,
    };
    let folder = match &args.folder {
        Some(folder) => root().join(folder),
        None => target_folder().join("viewers"),
    };
    fs::create_dir_all(&folder)?;
    let trace = root().join(&args.trace);
    for (name, format) in EXPORTS {
        let mut report = Command::new(&program);
        report.arg("report").arg(&trace).arg("--format");
        execute(
            report
                .args(format.split(' '))
                .arg("-o")
                .arg(folder.join(name)),
        )?;
    }
    let own = OwnTimes::read(&folder.join("report.json"))?;
    if !args.page {
        pprof(&folder, &own)?;
    }
    if !is_installed("npm") || !is_installed("node") {
        println!("SKIPPED pages and the Firefox Profiler: npm or node is not installed");
        return Ok(());
    }
    let modules = folder.join("node_modules");
    let is_fetched = |package: &&str| {
        let name = package.rsplit_once('@').map_or("", |(name, _)| name);
        modules.join(name).exists()
    };
    if !PACKAGES.iter().all(is_fetched) {
        let mut npm = command("npm install --ignore-scripts --no-audit --no-fund --prefix");
        execute(npm.arg(&folder).args(PACKAGES))?;
    }
    if !args.page {
        firefox(&folder, &own)?;
    }
    let Some(chromium) = find_chromium() else {
        println!("SKIPPED pages: chromium is not installed");
        return Ok(());
    };
    if !args.page {
        pages(&folder, &chromium, &own)?;
    }
    page::check(&folder, &chromium, &program, &trace)
}

/// Self time by function, ns, as the JSON report has it: the roots of inverted trees.
#[derive(Debug, Default)]
struct OwnTimes {
    /// By thread (`comm/tid`), most time first.
    threads: Vec<(String, BTreeMap<String, u64>)>,
}

impl OwnTimes {
    fn read(path: &Path) -> Result<Self> {
        let report: Value = serde_json::from_reader(fs::File::open(path)?)?;
        let mut threads = Vec::new();
        for group in list(&report, "groups") {
            let mut times = BTreeMap::new();
            for node in list(group, "nodes") {
                if node.get("parent").is_some_and(Value::is_null) {
                    let ns = node["weight_ns"].as_u64().unwrap_or_default();
                    *times.entry(text_of(node, "name")).or_default() += ns;
                }
            }
            if !times.is_empty() {
                threads.push((text_of(group, "name"), times));
            }
        }
        ensure!(!threads.is_empty(), "the trace shows no time");
        Ok(Self { threads })
    }

    /// Of functions with this name up to arguments and template arguments, in all threads.
    fn of_function(&self, name: &str) -> u64 {
        let times = self.threads.iter().flat_map(|(_, times)| times);
        let alike = times.filter(|(own, _)| short(own) == short(name));
        alike.map(|(_, ns)| ns).sum()
    }
}

fn list<'a>(value: &'a Value, key: &str) -> impl Iterator<Item = &'a Value> {
    value[key].as_array().into_iter().flatten()
}

fn text_of(value: &Value, key: &str) -> String {
    value[key].as_str().unwrap_or_default().to_owned()
}

/// A name up to its arguments or templates, which pprof shortens.
fn short(name: &str) -> &str {
    name.split(['(', '<']).next().unwrap_or(name).trim()
}

/// Compares `pprof -top` with the tree.
fn pprof(folder: &Path, own: &OwnTimes) -> Result<()> {
    let program = match (is_installed("pprof"), is_installed("go")) {
        (true, _) => "pprof",
        (_, true) => "go tool pprof",
        _ => {
            println!("SKIPPED pprof: neither `go` nor `pprof` is installed");
            return Ok(());
        }
    };
    let words = format!("{program} -top -unit=ns -nodecount=30 -symbolize=none");
    let top = capture(command(&words).arg(folder.join("pprof.pb.gz")))?;
    let mut n = 0;
    for line in top.lines() {
        // flat flat% sum% cum cum% name
        let words: Vec<&str> = line.split_whitespace().collect();
        let flat = words.first().and_then(|word| word.strip_suffix("ns"));
        let (Some(Ok(flat)), Some([_, ..])) = (flat.map(str::parse::<u64>), words.get(5..)) else {
            continue;
        };
        let name = words[5..].join(" ");
        let ns = own.of_function(&name);
        ensure!(
            ns == flat,
            "pprof says {flat} ns of `{name}`, wcprof {ns} ns"
        );
        n += 1;
    }
    ensure!(n >= 10, "pprof showed {n} functions:\n{top}");
    println!("pprof: self time of the {n} functions on top is that of the tree");
    Ok(())
}

/// Loads the profile by the Firefox Profiler's own code and compares what it says of the threads with
/// the most time.
fn firefox(folder: &Path, own: &OwnTimes) -> Result<()> {
    const N_THREADS: usize = 5;
    let cli = folder.join("node_modules/.bin/profiler-cli");
    let ask = |words: &str| {
        let words = words.split(' ');
        capture_json(Command::new(&cli).args(words).arg("--json"))
    };
    let mut load = Command::new(&cli);
    execute(load.arg("load").arg(folder.join("firefox.json")))?;
    let compare = || -> Result<()> {
        let n_threads = list(&ask("thread list")?, "threads").count();
        ensure!(
            n_threads == own.threads.len(),
            "the Firefox Profiler shows {n_threads} threads, wcprof {}",
            own.threads.len()
        );
        let (mut n, mut n_markers) = (0, 0);
        for (at, (thread, times)) in own.threads.iter().take(N_THREADS).enumerate() {
            let shown = ask(&format!("thread functions --thread t-{at} --limit 0"))?;
            // Functions of one name in several modules are apart there.
            let mut shown_ms: BTreeMap<String, f64> = BTreeMap::new();
            for function in list(&shown, "functions") {
                let ms = function["selfSamples"].as_f64().unwrap_or_default();
                *shown_ms.entry(text_of(function, "name")).or_default() += ms;
                n += 1;
            }
            for (name, ms) in &shown_ms {
                let ns = times.get(name).copied().unwrap_or_default();
                ensure!(
                    (ns as f64 / 1e6 - ms).abs() < 1e-3,
                    "the Firefox Profiler says {ms} ms of `{name}` in {thread}, wcprof {ns} ns"
                );
            }
            let absent = times.keys().find(|name| !shown_ms.contains_key(*name));
            ensure!(
                absent.is_none(),
                "the Firefox Profiler does not show {absent:?}"
            );
            let markers = ask(&format!("thread markers --thread t-{at}"))?;
            n_markers += markers["totalMarkerCount"].as_u64().unwrap_or(0);
        }
        ensure!(n_markers > 0, "the Firefox Profiler shows no markers");
        println!(
            "firefox: {} threads; self time of all {n} functions of the first {N_THREADS} is that of \
             the trees; they have {n_markers} markers",
            own.threads.len()
        );
        Ok(())
    };
    let result = compare();
    execute(Command::new(&cli).arg("stop"))?;
    result
}

/// Opens pages in Chromium.
fn pages(folder: &Path, chromium: &Path, own: &OwnTimes) -> Result<()> {
    let mut node = command("node xtask/viewers/open.mjs");
    node.current_dir(root());
    let found = capture_json(node.arg(chromium).arg(folder).arg(folder))?;
    let pages = found.as_object().context("nothing was shown")?;
    for (name, page) in pages {
        if list(page, "errors").next().is_some() {
            bail!("{name} shows errors: {page}");
        }
        println!("{name}: {page}");
    }
    let first = &own.threads[0].0;
    let shown = text_of(&found["speedscope.json"], "shown");
    let n = own.threads.len();
    ensure!(
        shown.contains(first) && shown.contains(&format!("(1/{n})")),
        "speedscope shows {shown:?} and not {first} as the first of {n}"
    );
    for (name, root) in [
        ("svg.svg", "bottom"),
        ("icicle.svg", "top"),
        ("inverted.svg", "top"),
    ] {
        let page = &found[name];
        ensure!(
            page["all"] == page[root],
            "the root of {name} is not at the {root}: {page}"
        );
        let frames = page["frames"].as_u64().unwrap_or(0);
        ensure!(frames > 50, "{name} shows {frames} frames");
        ensure!(
            page["matched"].as_f64() > Some(0.0),
            "the search of {name} finds nothing: {page}"
        );
    }
    println!(
        "pages: speedscope and the graphs show what they should; see the screenshots in `{}`",
        folder.display()
    );
    Ok(())
}
