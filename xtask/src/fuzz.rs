//! `cargo xtask fuzz`: time in, inputs that break a parser out.
//!
//! The programs are in `fuzz/`, what they do in `crates/wcprof-fuzz`. New inputs go to the folder of
//! build results; only `--minimize` changes the corpus in the repository. `--resume` adds to what
//! earlier runs did, which `fuzz/runs.json` says, so that a long run may be made in pieces.

use std::collections::BTreeMap;
use std::io::{BufRead, BufReader, Read, Seek, Write};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::Duration;

use anyhow::{Context, Result, bail, ensure};
use fs_err as fs;
use serde::{Deserialize, Serialize};

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
    /// Targets, as in `fuzz/src/bin`; all without it
    targets: Vec<String>,
    /// CPU time of each target, seconds
    #[arg(long, default_value_t = 60)]
    seconds: u64,
    /// End a target earlier when this many seconds of CPU time found no new edge
    #[arg(long)]
    idle: Option<u64>,
    /// Count what earlier runs did, as `fuzz/runs.json` says, and write there what this one does
    #[arg(long)]
    resume: bool,
    /// Afterwards leave few inputs that reach all that was reached, in the repository
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
    let programs = files(&root().join("fuzz/src/bin"))?;
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

const HEAD: &[&str] = &[
    "target",
    "core-seconds",
    "without a new edge",
    "executions",
    "a second",
    "edges",
];

/// Wall-clock time of one process of the fuzzer, seconds: what it did is kept after each.
const SLICE: u64 = 300;

/// What the fuzzer did for a target.
#[derive(Copy, Clone, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
struct Run {
    /// CPU time, seconds.
    seconds: u64,
    /// Of it, since an edge was found last.
    quiet: u64,
    n_executions: u64,
    /// Most edges that a slice of it reached, on one machine. Some edges are reached now and then: hash tables and threads
    /// differ in each run.
    n_edges: u64,
}

impl Run {
    /// From the output of libFuzzer.
    fn parse(cpu: Duration, output: &str) -> Self {
        let number = |rest: &str| rest.split_whitespace().next()?.parse().ok();
        let last = |key: &str| number(output.rsplit_once(key)?.1);
        Self {
            seconds: cpu.as_secs(),
            quiet: 0,
            n_executions: last("stat::number_of_executed_units:").unwrap_or(0),
            n_edges: last(" cov: ").unwrap_or(0),
        }
    }

    /// This, and what was done after it.
    fn and(self, next: Self) -> Self {
        let is_quiet = next.n_edges <= self.n_edges;
        Self {
            seconds: self.seconds + next.seconds,
            quiet: if is_quiet {
                self.quiet + next.seconds
            } else {
                0
            },
            n_executions: self.n_executions + next.n_executions,
            n_edges: self.n_edges.max(next.n_edges),
        }
    }

    fn is_enough(self, args: &Args) -> bool {
        self.seconds >= args.seconds || args.idle.is_some_and(|idle| self.quiet >= idle)
    }

    fn row(self, target: &str) -> Vec<String> {
        let rate = self.n_executions / self.seconds.max(1);
        let numbers = [
            self.seconds,
            self.quiet,
            self.n_executions,
            rate,
            self.n_edges,
        ];
        let cells = numbers.map(|number| number.to_string());
        [target.to_owned()].into_iter().chain(cells).collect()
    }
}

/// What all runs did, by target.
type Runs = BTreeMap<String, Run>;

fn runs_file() -> PathBuf {
    root().join("fuzz/runs.json")
}

fn earlier_runs() -> Result<Runs> {
    let mut file = fs::File::open(runs_file())?;
    file.lock_shared()?;
    parse_runs(&mut file)
}

fn parse_runs(file: &mut fs::File) -> Result<Runs> {
    let mut text = String::new();
    file.read_to_string(&mut text)?;
    serde_json::from_str(&text)
        .with_context(|| format!("{} is not as written", file.path().display()))
}

/// Keeps what was done; another fuzzer may do the same for another target at any time.
fn keep(target: &str, run: Run) -> Result<()> {
    let mut file = fs::OpenOptions::new()
        .read(true)
        .write(true)
        .open(runs_file())?;
    file.lock()?;
    let mut runs = parse_runs(&mut file)?;
    runs.insert(target.to_owned(), run);
    file.rewind()?;
    file.set_len(0)?;
    file.write_all((serde_json::to_string_pretty(&runs)? + "\n").as_bytes())?;
    Ok(())
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
    // Wall-clock time: at idle priority an input may wait for a CPU for long.
    let flags = format!("-- -timeout=300 -rss_limit_mb=1536 -detect_leaks=0 {flags}");
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
    let mut all = Run::default();
    if args.resume {
        all = earlier_runs()?.remove(target).unwrap_or_default();
    }
    if !all.is_enough(args) && files(&found(target)?)?.is_empty() {
        // Finds of another machine must be made again before it can be told what is new.
        all.n_edges = 0;
    }
    while !all.is_enough(args) {
        let before = children_cpu_time()?;
        let slice = (args.seconds - all.seconds).min(SLICE);
        let flags = format!("-max_total_time={slice} -malloc_limit_mb=512 -print_final_stats=1");
        let text = fuzz(target, &[&found(target)?, &corpus(target)], &flags)?;
        let cpu = children_cpu_time()?.saturating_sub(before);
        ensure!(cpu.as_secs() > 0, "the fuzzer of {target} got no CPU time");
        all = all.and(Run::parse(cpu, &text));
        if args.resume {
            keep(target, all)?;
        }
    }
    Ok(all)
}

/// Replaces the corpus by few inputs that reach all edges which it and all that was found reach. How often they reach them
/// is left out: that would be ten times as many.
fn minimize(target: &str) -> Result<()> {
    let corpus = corpus(target);
    let minimal = found(target)?.with_extension("minimal");
    if minimal.exists() {
        fs::remove_dir_all(&minimal)?;
    }
    fs::create_dir_all(&minimal)?;
    let flags = "-set_cover_merge=1 -use_counters=0";
    let _ = fuzz(target, &[&minimal, &found(target)?, &corpus], flags)?;
    let kept = files(&minimal)?;
    ensure!(!kept.is_empty(), "nothing is left of {}", corpus.display());
    for path in files(&corpus)? {
        if is_found(&file_name(&path)) {
            fs::remove_file(path)?;
        }
    }
    for path in kept {
        if fs::metadata(&path)?.len() <= MAX_INPUT {
            fs::copy(&path, corpus.join(file_name(&path)))?;
        }
    }
    Ok(())
}

/// Whether a fuzzer named it, by the SHA-1 of its content. What people made has a name that says what it is.
fn is_found(name: &str) -> bool {
    name.len() == 40 && name.bytes().all(|byte| byte.is_ascii_hexdigit())
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

    /// Check the last lines of a run, and that one which reaches no more edges than those before it is quiet, also when
    /// it misses one that is reached now and then.
    #[test]
    fn last_lines() {
        let run = |n_edges: u64, seconds| {
            let text = format!(
                "#2\tINITED cov: 40 ft: 41\n#9000\tDONE   cov: {n_edges} ft: 456 corp: 7/8b\n\
                 stat::number_of_executed_units: 9000\nstat::average_exec_per_sec:     900\n"
            );
            Run::parse(Duration::from_secs(seconds), &text)
        };
        let first = Run::default().and(run(123, 10));
        assert_eq!(first.row("elf"), ["elf", "10", "0", "9000", "900", "123"]);
        let quiet = first.and(run(122, 5)).and(run(123, 5));
        assert_eq!(
            quiet.row("elf"),
            ["elf", "20", "10", "27000", "1350", "123"]
        );
        assert_eq!(quiet.and(run(124, 5)).quiet, 0);
        assert_eq!(Run::parse(Duration::ZERO, "").n_edges, 0);
    }

    /// Check that what the repository says of earlier runs is of targets that there are.
    #[test]
    fn runs_of_targets() {
        let known = |name: &String| root().join(format!("fuzz/src/bin/{name}.rs")).exists();
        let runs = earlier_runs().expect("runs");
        assert!(!runs.is_empty() && runs.keys().all(known));
    }
}
