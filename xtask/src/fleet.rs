//! `cargo xtask fleet`: a cluster's profiles in one store on this machine, whatever the store does.

use anyhow::Result;

use crate::process::{cargo_example, execute, root};

/// Push the profiles of a cluster to one store, which refuses, hangs and restarts.
#[derive(Debug, clap::Args)]
pub struct Args {
    /// Daemons, twelve a host
    #[arg(long, value_name = "N", default_value_t = 600)]
    daemons: u32,
    /// Intervals of each
    #[arg(long, value_name = "N", default_value_t = 2)]
    intervals: u32,
}

/// Runs the command.
///
/// # Errors
/// When the build fails, or a request is neither taken nor counted.
pub fn run(args: &Args) -> Result<()> {
    let mut fleet = cargo_example("wcprof", "fleet");
    fleet.arg(root().join("fixtures/traces/story-1-cache-osd.wct"));
    execute(fleet.args([args.daemons, args.intervals].map(|n| n.to_string())))
}
