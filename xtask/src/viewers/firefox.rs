//! The Firefox export in the Firefox Profiler's own code: threads, self times, markers, source lines.

use std::path::Path;

use anyhow::{Context, Result, ensure};

use super::own::{LISTED, OwnTimes, Tree, sums};
use crate::process::{capture, capture_json, command, execute, list, number, quoted, text};

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

/// Compares the source lines of files with [`LISTED`] functions in the first thread that has them.
fn compare_lines(cli: &str, lines: &Tree) -> Result<()> {
    let ask = |words: &str| capture_json(command(&format!("{cli} {words} --json")));
    let thread = lines.0.iter().position(|nodes| {
        let has = |name: &str| nodes.iter().any(|n| text(&n["name"]).starts_with(name));
        LISTED.iter().all(|(name, _)| has(name))
    });
    let thread = thread.context("no thread has the functions")?;
    capture(command(&format!("{cli} thread select t-{thread}")))?;
    let functions = ask("thread functions --limit 0")?;
    for (name, file) in LISTED {
        let mut functions = list(&functions["functions"]);
        let function = functions.find(|f| f["name"] == **name);
        let handle = text(&function.context("no such function")?["functionHandle"]).to_owned();
        let found = &ask(&format!("function annotate {handle}"))?["srcAnnotation"];
        ensure!(text(&found["filename"]) == *file, "`{name}` is in {found}");
        let mut n = 0;
        for line in list(&found["lines"]) {
            let (at, ms) = (&line["lineNumber"], number(&line["totalSamples"]));
            let ns = lines.of_line(thread, file, &at.to_string());
            ensure!(
                (ns / 1e6 - ms).abs() < 1e-3,
                "{file}:{at}: {ms} ms, wcprof {ns} ns"
            );
            n += usize::from(ms > 0.0);
        }
        ensure!(n > 0, "the Firefox Profiler shows no line of `{name}`");
    }
    println!("firefox: times of source lines are those of the tree");
    Ok(())
}
