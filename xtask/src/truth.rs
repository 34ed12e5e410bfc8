//! `cargo xtask truth`: names, inline chains and lines of recorded addresses, compared with
//! `llvm-symbolizer`.

use std::path::PathBuf;

use anyhow::Result;

use crate::process::{cargo_example, execute, root};

/// Compare function names, inline chains and lines with llvm-symbolizer.
#[derive(Debug, clap::Args)]
pub struct Args {
    /// Traces whose addresses are looked up, in addition to the recorded fixtures
    traces: Vec<PathBuf>,
    /// Further addresses of each module, evenly over its code
    #[arg(long, value_name = "N", default_value_t = 0)]
    spread: u32,
}

/// Runs the command.
///
/// # Errors
/// When the build fails, or a symbolizer is not installed.
pub fn run(args: &Args) -> Result<()> {
    let line = format!("truth --show 1 --spread {}", args.spread);
    let mut truth = cargo_example("wcprof-symbols", &line);
    for trace in &args.traces {
        // Cargo runs in the root of the repository.
        truth.arg(std::path::absolute(trace)?);
    }
    for entry in fs_err::read_dir(root().join("fixtures/traces"))? {
        let path = entry?.path();
        if path.extension().is_some_and(|e| e == "wct") {
            truth.arg(path);
        }
    }
    execute(truth)
}
