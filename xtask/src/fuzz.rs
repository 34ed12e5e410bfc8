//! `cargo xtask fuzz`: time in, inputs that break a parser out.
//!
//! The programs are in `fuzz/`, what they do in `crates/wcprof-fuzz`. New inputs go to the folder of
//! build results; only `--minimize` changes the corpus in the repository.

use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result, bail, ensure};
use fs_err as fs;

use crate::process::{command, execute, is_installed, result_folder, root, target_folder};

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
    /// How long to look, each target
    #[arg(long, default_value_t = 60)]
    seconds: u32,
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
    let all: Vec<String> = programs
        .iter()
        .map(|path| path.file_stem().unwrap_or_default().display().to_string())
        .collect();
    if let Some(name) = args.targets.iter().find(|name| !all.contains(name)) {
        bail!("no fuzz target `{name}`; there are {}", all.join(", "));
    }
    let targets = match args.targets.is_empty() {
        true => &all,
        false => &args.targets,
    };
    let mut broken = Vec::new();
    for target in targets {
        println!("==== {target}");
        if let Err(error) = look(target, args.seconds) {
            println!("{error:#}");
            broken.push(target.as_str());
            continue;
        }
        if args.minimize {
            minimize(target)?;
        }
    }
    if broken.is_empty() {
        return Ok(());
    }
    bail!(
        "broken: {}; the inputs are in `fuzz/artifacts`: fix the parser, then put them as \
         `fuzz/corpus/TARGET/{BUG}WHAT`",
        broken.join(", ")
    )
}

fn corpus(target: &str) -> PathBuf {
    root().join("fuzz/corpus").join(target)
}

/// What the fuzzer found in runs on this machine.
fn found(target: &str) -> Result<PathBuf> {
    result_folder(&format!("fuzz-found/{target}"))
}

fn cargo_fuzz(target: &str) -> Command {
    let mut command = command(&format!("cargo +nightly fuzz run {target}"));
    command.current_dir(root().join("fuzz"));
    // The programs are built apart: with another compiler, and instrumented.
    command.env("CARGO_TARGET_DIR", target_folder().join("fuzz"));
    command
}

fn look(target: &str, seconds: u32) -> Result<()> {
    let mut fuzz = cargo_fuzz(target);
    fuzz.args([found(target)?, corpus(target)]).arg("--");
    fuzz.arg(format!("-max_total_time={seconds}"));
    fuzz.args(["-timeout=20", "-rss_limit_mb=1536", "-malloc_limit_mb=512"]);
    // A thread of the standard library may still free its memory when its result is there.
    execute(fuzz.args(["-detect_leaks=0", "-print_final_stats=1"]))
}

/// Replaces the corpus by the smallest inputs that reach as much as it and all that was found.
fn minimize(target: &str) -> Result<()> {
    let corpus = corpus(target);
    let minimal = found(target)?.with_extension("minimal");
    if minimal.exists() {
        fs::remove_dir_all(&minimal)?;
    }
    fs::create_dir_all(&minimal)?;
    let mut fuzz = cargo_fuzz(target);
    fuzz.args([&minimal, &found(target)?, &corpus]);
    let flags = "-- -merge=1 -detect_leaks=0 -rss_limit_mb=1536 -timeout=20";
    execute(fuzz.args(flags.split(' ')))?;
    let kept = files(&minimal)?;
    ensure!(!kept.is_empty(), "nothing is left of {}", corpus.display());
    for path in files(&corpus)? {
        let name = path.file_name().unwrap_or_default().to_string_lossy();
        if !name.starts_with(BUG) {
            fs::remove_file(path)?;
        }
    }
    for path in kept {
        let name = path.file_name().context("a file has no name")?;
        if fs::metadata(&path)?.len() <= MAX_INPUT {
            fs::copy(&path, corpus.join(name))?;
        }
    }
    Ok(())
}

fn files(folder: &Path) -> Result<Vec<PathBuf>> {
    let entries = fs::read_dir(folder)?.map(|entry| Ok(entry?.path()));
    let mut files = entries.collect::<Result<Vec<_>>>()?;
    files.sort();
    Ok(files)
}
