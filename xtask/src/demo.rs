//! `cargo xtask demo`: from a fresh checkout to a first profile.

use anyhow::Result;

use crate::process::{build_wcprof, command, execute};
use crate::setup::{self, install};

/// Install what the build needs, build wcprof and run `wcprof attach --demo`.
#[derive(Debug, clap::Args)]
pub struct Args {
    /// Further arguments for `wcprof attach`
    #[arg(trailing_var_arg = true, allow_hyphen_values = true)]
    arguments: Vec<String>,
}

/// Runs the command.
///
/// # Errors
/// When a package cannot be installed, the build fails or the demo does.
pub fn run(args: &Args) -> Result<()> {
    install(&[setup::BUILD])?;
    let wcprof = build_wcprof("demo")?;
    println!("Built {wcprof}");
    let attach = "attach --demo -d 5s -o wcprof-demo.wct --flamegraph wcprof-demo.svg --force";
    execute(command(&format!("{wcprof} {attach}")).args(&args.arguments))
}
