//! Other symbolizers on the addresses of a trace.

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::Result;

use super::{Options, row};
use crate::bench::measure::{Limit, Outcome};
use crate::process::{capture, cargo, execute, is_installed, root, target_folder};

/// Addresses by module.
type Modules = BTreeMap<String, Vec<String>>;

/// Adds a row for each that is installed.
pub(super) fn measure(
    options: &Options,
    folder: &Path,
    limit: Limit,
    rows: &mut Vec<Vec<String>>,
) -> Result<()> {
    let modules = addresses(&options.trace)?;
    let n: usize = modules.values().map(Vec::len).sum();
    println!("{n} addresses in {} modules\n", modules.len());
    let mut tools: Vec<(String, String, Vec<String>)> = Vec::new();
    let mut tool = |name: &str, program: &str, args: &[&str]| {
        let args = args.iter().map(|&arg| arg.to_owned()).collect();
        tools.push((name.to_owned(), program.to_owned(), args));
    };
    match blazesym() {
        Ok(program) => tool("blazesym", &program.to_string_lossy(), &[]),
        Err(error) => println!("without blazesym: {error:#}\n"),
    }
    let llvm = ["llvm-symbolizer", "llvm-symbolizer-14"];
    if let Some(program) = llvm.into_iter().find(|program| is_installed(program)) {
        tool(
            "llvm-symbolizer --inlines",
            program,
            &["--inlines", "--obj"],
        );
    }
    if is_installed("eu-addr2line") {
        tool("eu-addr2line -f -i", "eu-addr2line", &["-f", "-i", "-e"]);
    }
    for program in &options.other {
        let path = program.display().to_string();
        tool(path.rsplit('/').next().unwrap_or(&path), &path, &[]);
    }
    for (name, program, args) in tools {
        let outcome = each_module(&modules, limit, |module, addresses| {
            let input = folder.join("addresses");
            fs::write(&input, addresses.join("\n") + "\n")?;
            let mut command = Command::new(&program);
            command.args(&args).arg(module);
            Ok((command, Some(input)))
        })?;
        rows.push(row(&name, outcome));
    }
    if is_installed("gdb") {
        let outcome = each_module(&modules, limit, |module, addresses| {
            Ok((gdb(folder, module, addresses)?, None))
        })?;
        rows.push(row("gdb, `info symbol` and `info line`", outcome));
    }
    if let Some(data) = &options.perf_data {
        let mut command = Command::new("perf");
        command.args(["script", "--inline", "-F", "ip,sym,srcline", "-i"]);
        let outcome = limit.measure(command.arg(data), None)?;
        rows.push(row("perf script --inline -F ip,sym,srcline", outcome));
        let mut command = Command::new("perf");
        command.args(["script", "--no-inline", "-F", "ip,sym", "-i"]);
        let outcome = limit.measure(command.arg(data), None)?;
        rows.push(row("perf script --no-inline -F ip,sym", outcome));
    }
    if let Some(pid) = options.pid {
        let pid = pid.to_string();
        let mut command = Command::new("eu-stack");
        let outcome = limit.measure(command.args(["-i", "-s", "-p", &pid]), None)?;
        rows.push(row("eu-stack -i -s, one dump", outcome));
        let mut command = Command::new("gdb");
        command.args(["-nx", "-batch", "-p", &pid, "-ex", "thread apply all bt"]);
        let outcome = limit.measure(&mut command, None)?;
        rows.push(row("gdb, `thread apply all bt`, one dump", outcome));
    }
    Ok(())
}

/// Runs a program for each module. Ends with the first that meets the limit: the others would add
/// nothing to what is known then.
fn each_module(
    modules: &Modules,
    limit: Limit,
    mut command: impl FnMut(&str, &[String]) -> Result<(Command, Option<PathBuf>)>,
) -> Result<Outcome> {
    let mut sum = Outcome::default();
    for (module, addresses) in modules {
        let (mut command, input) = command(module, addresses)?;
        sum = sum.then(limit.measure(&mut command, input.as_deref())?);
        if matches!(sum, Outcome::TooLong(..)) {
            break;
        }
    }
    Ok(sum)
}

/// gdb has no inline frames without a process: this is the least that it takes.
fn gdb(folder: &Path, module: &str, addresses: &[String]) -> Result<Command> {
    let script = folder.join("addresses.gdb");
    let lines: Vec<String> = addresses
        .iter()
        .map(|address| format!("info symbol {address}\ninfo line *{address}\n"))
        .collect();
    fs::write(&script, lines.concat())?;
    let mut command = Command::new("gdb");
    command.args(["-nx", "-batch", "-x"]);
    command.arg(&script).arg(module);
    Ok(command)
}

/// Builds the program that asks blazesym.
fn blazesym() -> Result<PathBuf> {
    let target = target_folder()?.join("blazesym");
    let mut command = cargo()?;
    command.args(["build", "--release", "--locked", "--quiet"]);
    command.current_dir(root()?.join("benches/blazesym"));
    command.env("CARGO_TARGET_DIR", &target);
    execute(&mut command)?;
    Ok(target.join("release/bench-blazesym"))
}

/// Addresses of the trace by module.
fn addresses(trace: &Path) -> Result<Modules> {
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
    let mut modules = Modules::new();
    for line in capture(&mut list)?.lines() {
        if let Some((module, address)) = line.rsplit_once(' ') {
            let addresses = modules.entry(module.to_owned()).or_default();
            addresses.push(address.to_owned());
        }
    }
    Ok(modules)
}
