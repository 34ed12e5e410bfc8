//! `cargo xtask test`: every check, one after the other, with the time of each and one summary at the end.
//!
//! A failed check does not stop the others. Tests that could not run here print a line that starts
//! with `SKIPPED`; these lines are repeated in the summary.

mod binaries;
mod parts;
mod proof;
mod summary;

use anyhow::{Result, ensure};

use self::parts::{LONG_PARTS, PARTS, run_parts};

/// Run the checks: format, lints, tests, documentation, invariants, generated files.
#[derive(Debug, clap::Args)]
pub struct Args {
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
    if args.proof {
        return proof::run();
    }
    let n_long = if args.full || args.only.is_some() || args.list {
        LONG_PARTS.len()
    } else {
        0
    };
    let mut parts = [PARTS, &LONG_PARTS[..n_long]].concat();
    if args.list {
        for (name, about) in parts {
            println!("{name:<14} {about}");
        }
        return Ok(());
    }
    if let Some(only) = &args.only {
        parts.retain(|(name, _)| name == only);
        ensure!(
            !parts.is_empty(),
            "no part {only:?}; `cargo xtask test --list` shows their names"
        );
    }
    let summary = run_parts(&parts);
    summary.print();
    summary.require_success()
}
