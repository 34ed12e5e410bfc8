//! `cargo xtask fuzz`: time in, inputs that break a parser out.
//!
//! The programs are in `fuzz/`, what they do in `crates/wcprof-fuzz`. New inputs go to the folder of
//! build results; only `--minimize` changes the corpus in the repository.

use std::io::{BufRead, BufReader};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::Duration;

use anyhow::{Context, Result, bail, ensure};
use fs_err as fs;

use crate::cpu_time::children_cpu_time;
use crate::markdown::table;
use crate::process::{
    Background, command, execute, is_installed, result_folder, root, target_folder,
};

/// Inputs with names that begin so once broke a parser: they stay in the corpus whatever code they
/// reach now.
const BUG: &str = "bug-";
/// Largest input that stays in the corpus otherwise, bytes.
const MAX_INPUT: u64 = 24 << 10;

/// Look for inputs that break a parser.
#[derive(Debug, clap::Args)]
pub struct Args {
    /// Targets, as in `fuzz/fuzz_targets`; all without it
    targets: Vec<String>,
    /// How long to look, each target; on a busy machine it gets less CPU time than this
    #[arg(long, default_value_t = 60)]
    seconds: u32,
    /// End a target earlier when this many seconds found no new edge
    #[arg(long)]
    idle: Option<u32>,
    /// Afterwards leave the smallest inputs that reach all that was reached, in the repository
    #[arg(long)]
    minimize: bool,
}

/// Runs the command.
///
/// # Errors
/// When cargo-fuzz or a nightly compiler is missing, a build fails, or a parser was broken.
pub fn run(args: &Args) -> Result<()> {
    ensure!(
        is_installed("cargo-fuzz"),
        "cargo-fuzz is not installed; run `cargo install cargo-fuzz --locked`, and \
         `rustup toolchain install nightly`"
    );
    let programs = files(&root().join("fuzz/fuzz_targets"))?;
    let stem = |path: &PathBuf| path.file_stem().unwrap_or_default().display().to_string();
    let mut targets: Vec<String> = programs.iter().map(stem).collect();
    if let Some(name) = args.targets.iter().find(|name| !targets.contains(name)) {
        bail!("no fuzz target `{name}`; there are {}", targets.join(", "));
    }
    targets.retain(|name| args.targets.is_empty() || args.targets.contains(name));
    // The time of builds is not that of the fuzzers.
    execute(cargo_fuzz("build"))?;
    let (mut broken, mut rows) = (Vec::new(), Vec::new());
    for target in &targets {
        println!("==== {target}");
        match look(target, args) {
            Err(error) => {
                println!("{error:#}");
                broken.push(target.as_str());
            }
            Ok(run) => {
                rows.push(run.row(target));
                if args.minimize {
                    minimize(target)?;
                }
            }
        }
    }
    println!("{}", table(HEAD, &rows));
    ensure!(
        broken.is_empty(),
        "broken: {}; the inputs are in `fuzz/artifacts`: fix the parser, then put them as \
         `fuzz/corpus/TARGET/{BUG}WHAT`",
        broken.join(", ")
    );
    Ok(())
}

fn corpus(target: &str) -> PathBuf {
    root().join("fuzz/corpus").join(target)
}

/// What the fuzzer found in runs on this machine.
fn found(target: &str) -> Result<PathBuf> {
    result_folder(&format!("fuzz-found/{target}"))
}

const HEAD: &[&str] = &["target", "core-seconds", "executions", "a second", "edges"];

/// What runs of the fuzzer did.
#[derive(Copy, Clone, PartialEq, Eq, Debug, Default)]
struct Run {
    cpu: Duration,
    n_executions: u64,
    /// Reached by all inputs that are known.
    n_edges: u64,
}

impl Run {
    /// From the last lines of libFuzzer.
    fn parse(cpu: Duration, output: &str) -> Self {
        let after = |key: &str| {
            let (_, rest) = output.rsplit_once(key)?;
            rest.split_whitespace().next()?.parse().ok()
        };
        Self {
            cpu,
            n_executions: after("stat::number_of_executed_units:").unwrap_or(0),
            n_edges: after(" cov: ").unwrap_or(0),
        }
    }

    fn row(self, target: &str) -> Vec<String> {
        let seconds = self.cpu.as_secs().max(1);
        let rate = self.n_executions / seconds;
        let numbers = [seconds, self.n_executions, rate, self.n_edges];
        let cells = numbers.map(|number| number.to_string());
        [target.to_owned()].into_iter().chain(cells).collect()
    }
}

/// A command of cargo-fuzz. Without a sanitizer: the parsers are safe Rust, and run several times as often.
fn cargo_fuzz(what: &str) -> Command {
    let mut command = command(&format!("cargo +nightly fuzz {what} -s none"));
    command.current_dir(root().join("fuzz"));
    // The programs are built apart: with another compiler, and instrumented.
    command.env("CARGO_TARGET_DIR", target_folder().join("fuzz"));
    command
}

/// Runs the fuzzer on inputs in these folders; new ones go into the first. Gives what it printed.
fn fuzz(target: &str, folders: &[&Path], flags: &str) -> Result<String> {
    let mut command = cargo_fuzz("run");
    command.arg(target).args(folders);
    // A thread of the standard library may still free its memory when its result is there.
    let flags = format!("-- -timeout=20 -rss_limit_mb=1536 -detect_leaks=0 {flags}");
    command.args(flags.split(' ')).stderr(Stdio::piped());
    let mut fuzzer = Background::start(&mut command)?;
    let output = fuzzer.child.stderr.take().context("no output")?;
    let mut text = String::new();
    for line in BufReader::new(output).split(b'\n') {
        let line = String::from_utf8_lossy(&line?).into_owned();
        eprintln!("{line}");
        text += &line;
        text.push('\n');
    }
    let status = fuzzer.child.wait()?;
    ensure!(
        status.success(),
        "the fuzzer of {target} ended with {status}"
    );
    Ok(text)
}

/// Looks for as long as is asked for, or until nothing new is found.
fn look(target: &str, args: &Args) -> Result<Run> {
    let slice = args.idle.unwrap_or(args.seconds).max(1);
    let mut all = Run::default();
    for _ in 0..args.seconds.div_ceil(slice) {
        let before = children_cpu_time()?;
        let flags = format!("-max_total_time={slice} -malloc_limit_mb=512 -print_final_stats=1");
        let text = fuzz(target, &[&found(target)?, &corpus(target)], &flags)?;
        let run = Run::parse(children_cpu_time()?.saturating_sub(before), &text);
        let is_new = run.n_edges > all.n_edges;
        all = Run {
            cpu: all.cpu + run.cpu,
            n_executions: all.n_executions + run.n_executions,
            n_edges: run.n_edges.max(all.n_edges),
        };
        if args.idle.is_some() && !is_new {
            break;
        }
    }
    Ok(all)
}

/// Replaces the corpus by the smallest inputs that reach as much as it and all that was found.
fn minimize(target: &str) -> Result<()> {
    let corpus = corpus(target);
    let minimal = found(target)?.with_extension("minimal");
    if minimal.exists() {
        fs::remove_dir_all(&minimal)?;
    }
    fs::create_dir_all(&minimal)?;
    let _ = fuzz(target, &[&minimal, &found(target)?, &corpus], "-merge=1")?;
    let smallest = files(&minimal)?;
    ensure!(
        !smallest.is_empty(),
        "nothing is left of {}",
        corpus.display()
    );
    for path in files(&corpus)? {
        if !file_name(&path).starts_with(BUG) {
            fs::remove_file(path)?;
        }
    }
    for path in smallest {
        if fs::metadata(&path)?.len() <= MAX_INPUT {
            fs::copy(&path, corpus.join(file_name(&path)))?;
        }
    }
    Ok(())
}

fn file_name(path: &Path) -> String {
    path.file_name().unwrap_or_default().display().to_string()
}

/// The files of a folder, by name.
fn files(folder: &Path) -> Result<Vec<PathBuf>> {
    let entries = fs::read_dir(folder)?.map(|entry| Ok(entry?.path()));
    let mut files = entries.collect::<Result<Vec<_>>>()?;
    files.sort();
    Ok(files)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Check the last lines of a run.
    #[test]
    fn last_lines() {
        let text = "#2\tINITED cov: 40 ft: 41\n#9000\tDONE   cov: 123 ft: 456 corp: 7/8b\n\
                    stat::number_of_executed_units: 9000\nstat::average_exec_per_sec:     900\n";
        let run = Run::parse(Duration::from_secs(10), text);
        assert_eq!((run.n_executions, run.n_edges), (9000, 123));
        assert_eq!(run.row("elf"), ["elf", "10", "9000", "900", "123"]);
        assert_eq!(Run::parse(Duration::ZERO, "").n_edges, 0);
    }
}
