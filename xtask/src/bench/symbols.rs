//! Time and memory that finding names takes: wcprof's `report` on a recorded trace, and other
//! symbolizers on the same addresses.

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use anyhow::{Context, Result, ensure};

use super::table::markdown;
use crate::process::{build_release, capture, cargo, execute, is_installed, target_folder};

/// What to measure.
#[derive(Debug, clap::Args)]
pub struct Options {
    /// Trace without names, as `wcprof attach --raw` writes it
    trace: PathBuf,
    /// Also time `perf script` on this recording of the same process
    #[arg(long, value_name = "FILE")]
    perf_data: Option<PathBuf>,
    /// Also time a program that takes a module's path and reads its addresses, a line each
    #[arg(long, value_name = "PROGRAM")]
    other: Vec<PathBuf>,
    /// Runs of which the median is shown
    #[arg(long, default_value_t = 3, value_parser = clap::value_parser!(u32).range(1..=100))]
    runs: u32,
    /// Without other symbolizers
    #[arg(long)]
    no_peers: bool,
}

/// What a run took.
#[derive(Debug, Clone, Copy, Default)]
struct Usage {
    wall: f64,
    cpu: f64,
    /// Peak resident memory, KiB.
    memory: f64,
}

/// Measures, and prints a table.
///
/// # Errors
/// When a build or a program fails, or GNU time is not installed.
pub fn run(options: &Options) -> Result<()> {
    ensure!(
        is_installed("/usr/bin/time") || is_installed("time"),
        "GNU time is not installed (Debian: package time)"
    );
    let wcprof = build_release()?;
    let folder = target_folder()?.join("bench-symbols");
    fs::create_dir_all(&folder)?;
    let mut rows = Vec::new();
    let report = |flags: &[&str]| {
        let mut command = Command::new(&wcprof);
        command.arg("report").arg(&options.trace).args(flags);
        command.args(["--format", "json", "-o", "/dev/null"]);
        // The cache of this measurement, which is not the user's.
        command.env("XDG_CACHE_HOME", &folder);
        command
    };
    for (what, flags) in [
        ("wcprof, nothing cached", &["--no-cache"][..]),
        ("wcprof, its own cache", &[]),
        ("wcprof, `--no-inline`", &["--no-inline"]),
        (
            "wcprof, `--no-cache --max-memory 64`",
            &["--no-cache", "--max-memory", "64"],
        ),
    ] {
        measure(&mut report(flags), None)?; // page cache, and wcprof's own
        let usage = median(options.runs, || measure(&mut report(flags), None))?;
        rows.push(row(what, usage));
    }
    if !options.no_peers {
        peers(options, &folder, &mut rows)?;
    }
    print!(
        "{}",
        markdown(&["what", "wall s", "CPU s", "peak MB"], &rows)
    );
    Ok(())
}

fn row(what: &str, usage: Usage) -> Vec<String> {
    vec![
        what.to_owned(),
        format!("{:.2}", usage.wall),
        format!("{:.2}", usage.cpu),
        format!("{:.0}", usage.memory / 1024.0),
    ]
}

fn peers(options: &Options, folder: &Path, rows: &mut Vec<Vec<String>>) -> Result<()> {
    let modules = addresses(&options.trace)?;
    let n: usize = modules.values().map(Vec::len).sum();
    println!("{n} addresses in {} modules\n", modules.len());
    let mut tools: Vec<(String, Vec<String>)> = Vec::new();
    for (program, args) in [
        ("llvm-symbolizer", &["--inlines", "--obj"][..]),
        ("llvm-symbolizer-14", &["--inlines", "--obj"]),
        ("eu-addr2line", &["-f", "-i", "-e"]),
    ] {
        let is_second = tools.iter().any(|(tool, _)| tool.starts_with("llvm"));
        if is_installed(program) && !(is_second && program.starts_with("llvm")) {
            let args = args.iter().map(|&arg| arg.to_owned()).collect();
            tools.push((program.to_owned(), args));
        }
    }
    for program in &options.other {
        tools.push((program.display().to_string(), Vec::new()));
    }
    for (program, args) in tools {
        let usage = median(options.runs, || {
            let mut sum = Usage::default();
            for (module, addresses) in &modules {
                let input = folder.join("addresses");
                fs::write(&input, addresses.join("\n") + "\n")?;
                let mut command = Command::new(&program);
                command.args(&args).arg(module);
                let usage = measure(&mut command, Some(&input))?;
                sum.wall += usage.wall;
                sum.cpu += usage.cpu;
                sum.memory = sum.memory.max(usage.memory);
            }
            Ok(sum)
        })?;
        let name = program.rsplit('/').next().unwrap_or(&program);
        rows.push(row(&format!("{name} {}", args.join(" ")), usage));
    }
    if is_installed("gdb") {
        let usage = median(options.runs, || gdb(&modules, folder))?;
        rows.push(row("gdb, `info symbol` and `info line`", usage));
    }
    if let Some(data) = &options.perf_data {
        let usage = median(options.runs, || {
            let mut command = Command::new("perf");
            command.args(["script", "--inline", "-F", "ip,sym,srcline", "-i"]);
            measure(command.arg(data), None)
        })?;
        rows.push(row("perf script --inline -F ip,sym,srcline", usage));
    }
    Ok(())
}

/// gdb has no inline frames without a process: this is the least that it takes.
fn gdb(modules: &BTreeMap<String, Vec<String>>, folder: &Path) -> Result<Usage> {
    let mut sum = Usage::default();
    for (module, addresses) in modules {
        let script = folder.join("addresses.gdb");
        let lines: Vec<String> = addresses
            .iter()
            .map(|address| format!("info symbol {address}\ninfo line *{address}\n"))
            .collect();
        fs::write(&script, lines.concat())?;
        let mut command = Command::new("gdb");
        command
            .args(["-nx", "-batch", "-x"])
            .arg(&script)
            .arg(module);
        let usage = measure(&mut command, None)?;
        sum.wall += usage.wall;
        sum.cpu += usage.cpu;
        sum.memory = sum.memory.max(usage.memory);
    }
    Ok(sum)
}

/// Addresses of the trace by module.
fn addresses(trace: &Path) -> Result<BTreeMap<String, Vec<String>>> {
    let example = |command: &mut Command, verb: &str| {
        command.args([verb, "--release", "--locked", "--quiet"]);
        command.args(["--package", "wcprof-symbols", "--example", "truth"]);
    };
    let mut build = cargo()?;
    example(&mut build, "build");
    execute(&mut build)?;
    let mut list = cargo()?;
    example(&mut list, "run");
    list.args(["--", "--list"]).arg(std::path::absolute(trace)?);
    let mut modules: BTreeMap<String, Vec<String>> = BTreeMap::new();
    for line in capture(&mut list)?.lines() {
        if let Some((module, address)) = line.rsplit_once(' ') {
            let addresses = modules.entry(module.to_owned()).or_default();
            addresses.push(address.to_owned());
        }
    }
    Ok(modules)
}

/// Runs a program to its end under GNU time.
fn measure(command: &mut Command, input: Option<&Path>) -> Result<Usage> {
    let mut timed = Command::new("/usr/bin/time");
    timed.args(["-f", "wcprof-bench %e %U %S %M"]);
    timed.arg(command.get_program()).args(command.get_args());
    for (name, value) in command.get_envs() {
        match value {
            Some(value) => timed.env(name, value),
            None => timed.env_remove(name),
        };
    }
    // What is measured is this machine, not the network.
    timed.env_remove("DEBUGINFOD_URLS");
    let input = match input {
        Some(path) => Stdio::from(fs::File::open(path)?),
        None => Stdio::null(),
    };
    let output = timed
        .stdin(input)
        .stdout(Stdio::null())
        .stderr(Stdio::piped())
        .output()
        .context("failed to run `/usr/bin/time`")?;
    let text = String::from_utf8_lossy(&output.stderr);
    let line = text
        .lines()
        .rev()
        .find_map(|line| line.strip_prefix("wcprof-bench "))
        .with_context(|| format!("`{command:?}` was not measured: {text}"))?;
    let fields: Vec<f64> = line.split(' ').filter_map(|f| f.parse().ok()).collect();
    match fields[..] {
        [wall, user, system, memory] => Ok(Usage {
            wall,
            cpu: user + system,
            memory,
        }),
        _ => anyhow::bail!("`{command:?}` failed: {text}"),
    }
}

/// The run whose wall-clock time is the median.
fn median(runs: u32, mut run: impl FnMut() -> Result<Usage>) -> Result<Usage> {
    let mut usages = Vec::new();
    for _ in 0..runs {
        usages.push(run()?);
    }
    usages.sort_by(|a, b| a.wall.total_cmp(&b.wall));
    let middle = usages.get(usages.len() / 2);
    middle.copied().context("no run was asked for")
}
