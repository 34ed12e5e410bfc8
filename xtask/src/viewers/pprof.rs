//! The pprof export in `go tool pprof`: tops, filters by module, label and function, and source lines.

use std::path::Path;

use anyhow::{Context, Result, ensure};
use fs_err as fs;

use super::own::{LISTED, OwnTimes, Tree};
use crate::process::{capture, command, is_installed, number, quoted, text};

/// Lines of each source file that is made up.
const N_LINES: usize = 2000;

/// Compares what pprof shows with the trees.
///
/// # Errors
/// When it refuses the export, or shows something else than wcprof does.
pub(super) fn check(folder: &Path, own: &OwnTimes) -> Result<()> {
    let program = match (is_installed("pprof"), is_installed("go")) {
        (true, _) => "pprof",
        (_, true) => "go tool pprof",
        _ => {
            println!("SKIPPED pprof: neither `go` nor `pprof` is installed");
            return Ok(());
        }
    };
    let profile = folder.join("pprof.pb.gz");
    let ask = |flags: &str| {
        let line = format!("{program} -unit=ns -symbolize=none -nodefraction=0 {flags}");
        capture(command(&line).arg(&profile))
    };
    top(&ask("-top -nodecount=30")?, own)?;
    let tree = Tree::read(&folder.join("tree.json"))?;
    filters(ask, &tree)?;
    let lines = Tree::read(&folder.join("lines.json"))?;
    listed(ask, &lines, &folder.join("source"))
}

fn top(shown: &str, own: &OwnTimes) -> Result<()> {
    let mut n = 0;
    for line in shown.lines() {
        // flat flat% sum% cum cum% name
        let words: Vec<&str> = line.split_whitespace().collect();
        let flat = words.first().and_then(|word| ns(word));
        if let (Some(flat), Some(name)) = (flat, words.get(5..).filter(|name| !name.is_empty())) {
            let name = name.join(" ");
            let own = own.of_function(name.trim_end_matches(" (inline)"));
            ensure!(
                own == flat,
                "pprof says {flat} ns of `{name}`, wcprof {own} ns"
            );
            n += 1;
        }
    }
    ensure!(n >= 10, "pprof showed {n} functions:\n{shown}");
    println!("pprof: self time of the {n} functions on top is that of the tree");
    Ok(())
}

/// By module (a mapping), by label, and from a function on.
fn filters(ask: impl Fn(&str) -> Result<String>, tree: &Tree) -> Result<()> {
    let (module, function) = ("libcrypto", "EventCenter::process_events");
    let of_module = tree.of(|node| text(&node["module"]).starts_with(module));
    let of_function = tree.of(|node| text(&node["name"]).starts_with(function));
    let roots = tree
        .0
        .iter()
        .flatten()
        .filter(|node| node["parent"].is_null());
    let of_lock = roots.map(|root| number(&root["states_ns"]["lock"])).sum();
    for (flag, expected) in [
        (format!("-focus={module}"), of_module),
        ("-tagfocus=state=lock".to_owned(), of_lock),
        (format!("-show_from=^{function}"), of_function),
    ] {
        let shown = ask(&format!("-top {flag}"))?;
        let sum = shown.split_once("accounting for ");
        let sum = sum.and_then(|(_, rest)| ns(rest.split(',').next()?));
        let sum = sum.with_context(|| format!("no sum in:\n{shown}"))?;
        ensure!(
            sum == expected && sum > 0.0,
            "pprof {flag} says {sum} ns, wcprof {expected} ns"
        );
    }
    println!("pprof: times by module, by state and from a function on are those of the tree");
    Ok(())
}

/// By source line, with made-up sources.
fn listed(ask: impl Fn(&str) -> Result<String>, lines: &Tree, sources: &Path) -> Result<()> {
    for (function, file) in LISTED {
        let path = sources.join(file);
        fs::create_dir_all(path.parent().context("the path has a folder")?)?;
        fs::write(&path, "code\n".repeat(N_LINES))?;
        let shown = ask(&format!(
            "-list=^{function}$ -source_path={}",
            quoted(sources)
        ))?;
        let mut n = 0;
        for line in shown.lines().filter(|line| line.ends_with(":code")) {
            // flat cum line:code
            let words: Vec<&str> = line.split_whitespace().collect();
            let [_, total, at] = words[..] else { continue };
            let (Some(total), Some(at)) = (ns(total), at.strip_suffix(":code")) else {
                continue;
            };
            let place = format!(":{at})");
            let own = lines.of(|node| {
                let name = text(&node["name"]);
                name.starts_with(&format!("{function} (")) && name.ends_with(&place)
            });
            ensure!(
                own == total,
                "pprof says {total} ns of {file}:{at}, wcprof {own} ns"
            );
            n += 1;
        }
        ensure!(n > 0, "pprof lists no line of `{function}`:\n{shown}");
    }
    println!("pprof: times of source lines are those of the tree");
    Ok(())
}

/// The nanoseconds of `12ns` and of `12ns total`.
fn ns(word: &str) -> Option<f64> {
    word.trim().strip_suffix("ns")?.parse().ok()
}
