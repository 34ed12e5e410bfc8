//! Other symbolizers on the addresses of a trace, to rows with the time and memory that they take.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use anyhow::Result;
use fs_err as fs;

use super::measure::measure;
use crate::process::{
    capture, cargo, cargo_example, execute, is_installed, quoted, root, target_folder,
};

/// Addresses by module.
type Modules = BTreeMap<String, Vec<String>>;

/// Most seconds for one run.
pub const LIMIT: u32 = 60;

/// Has no inline frames without a process: this is the least that it takes.
const GDB: &str = "gdb -nx -batch -x /dev/stdin";

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
}

/// Runs each that is installed. `folder` is for their input.
pub fn rows(options: &SymbolizerOptions, folder: &Path) -> Result<Vec<Vec<String>>> {
    let modules = addresses(&options.trace)?;
    let n: usize = modules.values().map(Vec::len).sum();
    println!("{n} addresses in {} modules\n", modules.len());
    let mut rows = Vec::new();
    for program in programs(options) {
        // One module after the other. Some programs fail when one of the addresses has no name.
        let mut script = String::new();
        for (number, (module, addresses)) in modules.iter().enumerate() {
            let lines = addresses.iter().map(|address| match program == GDB {
                true => format!("info symbol {address}\ninfo line *{address}\n"),
                false => format!("{address}\n"),
            });
            let input = folder.join(format!("addresses-{number}"));
            fs::write(&input, lines.collect::<String>())?;
            script += &format!("{program} {} < {} || :\n", quoted(module), quoted(input));
        }
        let file = folder.join("symbolize.sh");
        fs::write(&file, script)?;
        let outcome = measure(LIMIT, &format!("sh {}", quoted(file)))?;
        rows.push(outcome.row(&[&program]));
    }
    let mut others = Vec::new();
    if let Some(data) = options.perf_data.as_ref().map(quoted) {
        others.push(format!("perf script --inline -F ip,sym,srcline -i {data}"));
        others.push(format!("perf script --no-inline -F ip,sym -i {data}"));
    }
    if let Some(pid) = options.pid {
        others.push(format!("eu-stack -i -s -p {pid}"));
        others.push(format!("gdb -nx -batch -p {pid} -ex 'thread apply all bt'"));
    }
    for line in others {
        rows.push(measure(LIMIT, &line)?.row(&[&line]));
    }
    Ok(rows)
}

/// Each program that takes a module's path and reads addresses.
fn programs(options: &SymbolizerOptions) -> Vec<String> {
    let lines = [
        "llvm-symbolizer --inlines --obj",
        "llvm-symbolizer-14 --inlines --obj",
        "eu-addr2line -f -i -e",
        GDB,
    ];
    let lines = lines
        .into_iter()
        .filter(|line| line.split(' ').next().is_some_and(is_installed));
    let mut programs: Vec<String> = lines.map(str::to_owned).collect();
    match build_blazesym() {
        Ok(program) => programs.push(quoted(program)),
        Err(error) => println!("without blazesym: {error:#}\n"),
    }
    programs.extend(options.other.iter().map(quoted));
    programs
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
    let list = format!("truth --list {}", quoted(std::path::absolute(trace)?));
    let mut modules = Modules::new();
    for line in capture(cargo_example("wcprof-symbols", &list))?.lines() {
        if let Some((module, address)) = line.rsplit_once(' ') {
            let addresses = modules.entry(module.to_owned()).or_default();
            addresses.push(address.to_owned());
        }
    }
    Ok(modules)
}
