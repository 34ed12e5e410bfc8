//! `cargo xtask fuzz`: time in, inputs that break a parser out.
//!
//! The programs are in `fuzz/`, what they do in `crates/wcprof-fuzz`. New inputs go to the folder of
//! build results; only `--minimize` changes the corpus in the repository.

use std::path::{Path, PathBuf};

use anyhow::{Result, bail, ensure};
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
    let stem = |path: &PathBuf| path.file_stem().unwrap_or_default().display().to_string();
    let mut targets: Vec<String> = programs.iter().map(stem).collect();
    if let Some(name) = args.targets.iter().find(|name| !targets.contains(name)) {
        bail!("no fuzz target `{name}`; there are {}", targets.join(", "));
    }
    targets.retain(|name| args.targets.is_empty() || args.targets.contains(name));
    let mut broken = Vec::new();
    for target in &targets {
        println!("==== {target}");
        if let Err(error) = look(target, args.seconds) {
            println!("{error:#}");
            broken.push(target.as_str());
        } else if args.minimize {
            minimize(target)?;
        }
    }
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

/// Runs the fuzzer on inputs in these folders; new ones go into the first.
fn fuzz(target: &str, folders: &[&Path], flags: &str) -> Result<()> {
    let mut command = command(&format!("cargo +nightly fuzz run {target}"));
    command.current_dir(root().join("fuzz")).args(folders);
    // The programs are built apart: with another compiler, and instrumented.
    command.env("CARGO_TARGET_DIR", target_folder().join("fuzz"));
    // A thread of the standard library may still free its memory when its result is there.
    let flags = format!("-- -timeout=20 -rss_limit_mb=1536 -detect_leaks=0 {flags}");
    execute(command.args(flags.split(' ')))
}

fn look(target: &str, seconds: u32) -> Result<()> {
    let flags = format!("-max_total_time={seconds} -malloc_limit_mb=512 -print_final_stats=1");
    fuzz(target, &[&found(target)?, &corpus(target)], &flags)
}

/// Replaces the corpus by the smallest inputs that reach as much as it and all that was found.
fn minimize(target: &str) -> Result<()> {
    let corpus = corpus(target);
    let minimal = found(target)?.with_extension("minimal");
    if minimal.exists() {
        fs::remove_dir_all(&minimal)?;
    }
    fs::create_dir_all(&minimal)?;
    fuzz(target, &[&minimal, &found(target)?, &corpus], "-merge=1")?;
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
