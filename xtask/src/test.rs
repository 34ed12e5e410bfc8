//! `cargo xtask test`: every check, one after the other, with the time of each and one summary at the end.
//!
//! A failed check does not stop the others. Tests that could not run here print a line that starts
//! with `SKIPPED`; these lines are repeated in the summary.

mod binaries;
mod parts;
mod proof;
mod summary;

use anyhow::{Result, ensure};

use self::parts::{PARTS, run_parts};

/// Run the checks: format, lints, tests, documentation, invariants, generated files.
#[derive(Debug, clap::Args)]
pub struct Args {
    /// Do not install missing packages
    #[arg(long)]
    no_setup: bool,
    /// Also the long parts: every test with every engine, other kernels, the lab, benchmarks' lints
    #[arg(long)]
    full: bool,
    /// Only this part; `--list` shows their names
    #[arg(long, value_name = "NAME")]
    only: Option<String>,
    /// Print the parts and end
    #[arg(long)]
    list: bool,
    /// Run the checks five times: twice alone, twice beside busy loops, once while all CPUs pause at times
    #[arg(long, conflicts_with_all = ["full", "only", "list"])]
    proof: bool,
}

/// Runs the command.
///
/// # Errors
/// When any check failed.
pub fn run(args: &Args) -> Result<()> {
    if args.list {
        for part in PARTS {
            let when = if part.long { "--full" } else { "always" };
            println!("{:<14} {when:<7} {}", part.name, part.about);
        }
        return Ok(());
    }
    if let Some(only) = &args.only {
        ensure!(
            PARTS.iter().any(|part| part.name == only),
            "no part {only:?}; `cargo xtask test --list` shows their names"
        );
    }
    if args.proof {
        return proof::run();
    }
    let summary = run_parts(|part| {
        let is_wanted = match &args.only {
            Some(only) => part.name == only,
            None => args.full || !part.long,
        };
        is_wanted && !(args.no_setup && part.name == "packages")
    });
    summary.print();
    summary.require_success()
}
