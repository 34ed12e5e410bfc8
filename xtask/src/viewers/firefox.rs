//! The Firefox export in the Firefox Profiler's own code: threads, self times, markers, source lines.

use std::collections::BTreeMap;
use std::path::Path;

use anyhow::{Result, ensure};

use super::own::{LISTED, OwnTimes, Tree, sums};
use crate::process::{capture_json, command, execute, list, number, quoted, text};

/// Loads the profile by the Firefox Profiler's own code and compares what it says of the threads with
/// the most time.
///
/// # Errors
/// When it refuses the export, or shows something else than wcprof does.
pub(super) fn check(folder: &Path, own: &OwnTimes) -> Result<()> {
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
