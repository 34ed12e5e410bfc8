//! Other symbolizers on the addresses of a trace, to rows with the time and memory that they take.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::Result;
use fs_err as fs;

use super::measure::{Outcome, measure};
use crate::process::{
    capture, cargo, cargo_example, command, execute, find_program, is_installed, root,
    target_folder,
};

/// Addresses by module.
type Modules = BTreeMap<String, Vec<String>>;

/// Which symbolizers to run, and on what.
#[derive(Debug, clap::Args)]
pub struct SymbolizerOptions {
    /// Trace without names, as `wcprof attach --raw` writes it
    pub trace: PathBuf,
    /// Also time `perf script` on this recording of the same process
    #[arg(long, value_name = "FILE")]
    perf_data: Option<PathBuf>,
    /// Also time one dump of all stacks of this process by `eu-stack` and gdb, which stop it
    #[arg(long)]
    pid: Option<u32>,
    /// Also time a program that takes a module's path and reads its addresses, a line each
    #[arg(long, value_name = "PROGRAM")]
    other: Vec<PathBuf>,
    /// Most seconds for one run of another program
    #[arg(long, value_name = "SECS", default_value_t = 60)]
    pub limit: u32,
}

/// Runs each that is installed. `folder` is for their input.
pub fn rows(options: &SymbolizerOptions, folder: &Path) -> Result<Vec<Vec<String>>> {
    let modules = addresses(&options.trace)?;
    let n: usize = modules.values().map(Vec::len).sum();
    println!("{n} addresses in {} modules\n", modules.len());
    let limit = options.limit;
    let mut rows = Vec::new();
    for (name, program, flags) in programs(options) {
        let input = folder.join("addresses");
        let outcome = each_module(&modules, |module, addresses| {
            fs::write(&input, addresses.join("\n") + "\n")?;
            let mut command = Command::new(&program);
            command.args(flags.split_whitespace()).arg(module);
            measure(limit, &mut command, Some(&input))
        })?;
        rows.push(outcome.row(&[&name]));
    }
    if is_installed("gdb") {
        // gdb has no inline frames without a process: this is the least that it takes.
        let script = folder.join("addresses.gdb");
        let outcome = each_module(&modules, |module, addresses| {
            let lines = addresses
                .iter()
                .map(|address| format!("info symbol {address}\ninfo line *{address}\n"));
            fs::write(&script, lines.collect::<String>())?;
            let mut gdb = command("gdb -nx -batch -x");
            measure(limit, gdb.arg(&script).arg(module), None)
        })?;
        rows.push(outcome.row(&["gdb, `info symbol` and `info line`"]));
    }
    if let Some(data) = &options.perf_data {
        for words in ["--inline -F ip,sym,srcline", "--no-inline -F ip,sym"] {
            let name = format!("perf script {words}");
            let outcome = measure(limit, command(&name).arg("-i").arg(data), None)?;
            rows.push(outcome.row(&[&name]));
        }
    }
    if let Some(pid) = options.pid {
        let mut stack = command(&format!("eu-stack -i -s -p {pid}"));
        rows.push(measure(limit, &mut stack, None)?.row(&["eu-stack -i -s, one dump"]));
        let mut gdb = command(&format!("gdb -nx -batch -p {pid} -ex"));
        let outcome = measure(limit, gdb.arg("thread apply all bt"), None)?;
        rows.push(outcome.row(&["gdb, `thread apply all bt`, one dump"]));
    }
    Ok(rows)
}

/// Name, path and flags of each program that takes a module's path and reads addresses.
fn programs(options: &SymbolizerOptions) -> Vec<(String, PathBuf, &'static str)> {
    let mut programs = Vec::new();
    match build_blazesym() {
        Ok(program) => programs.push(("blazesym".to_owned(), program, "")),
        Err(error) => println!("without blazesym: {error:#}\n"),
    }
    let llvm = ["llvm-symbolizer", "llvm-symbolizer-14"];
    if let Some(program) = llvm.into_iter().find_map(find_program) {
        let name = "llvm-symbolizer --inlines".to_owned();
        programs.push((name, program, "--inlines --obj"));
    }
    if let Some(program) = find_program("eu-addr2line") {
        programs.push(("eu-addr2line -f -i".to_owned(), program, "-f -i -e"));
    }
    programs.extend(options.other.iter().map(|program| {
        let name = program.file_name().unwrap_or_default();
        (name.display().to_string(), program.clone(), "")
    }));
    programs
}

/// Adds up a measurement for each module. Ends with the first that meets the limit: the others would
/// add nothing to what is known then.
fn each_module(
    modules: &Modules,
    mut measure: impl FnMut(&str, &[String]) -> Result<Outcome>,
) -> Result<Outcome> {
    let mut sum = Outcome::default();
    for (module, addresses) in modules {
        sum = sum + measure(module, addresses)?;
        if sum.is_cut() {
            break;
        }
    }
    Ok(sum)
}

/// Builds the program that asks blazesym.
fn build_blazesym() -> Result<PathBuf> {
    let target = target_folder().join("blazesym");
    let mut build = cargo("build --release --locked --quiet");
    build.current_dir(root().join("benches/blazesym"));
    execute(build.env("CARGO_TARGET_DIR", &target))?;
    Ok(target.join("release/bench-blazesym"))
}

/// Addresses of the trace by module.
fn addresses(trace: &Path) -> Result<Modules> {
    let mut list = cargo_example("wcprof-symbols", "truth");
    list.arg("--list").arg(std::path::absolute(trace)?);
    let mut modules = Modules::new();
    for line in capture(&mut list)?.lines() {
        if let Some((module, address)) = line.rsplit_once(' ') {
            let addresses = modules.entry(module.to_owned()).or_default();
            addresses.push(address.to_owned());
        }
    }
    Ok(modules)
}
