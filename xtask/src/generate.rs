//! `cargo xtask generate`: man pages and completions of shells, by the command line's definition.
//! The tests of the crate `wcprof` check them.

use anyhow::Result;

use crate::process::{cargo, execute};

/// Write man pages and completions of shells anew, or check them.
#[derive(Debug, clap::Args)]
pub struct Args {
    /// Write nothing; fail when a file is not what it would be
    #[arg(long)]
    check: bool,
}

/// Runs the command.
///
/// # Errors
/// When the build fails or, with `--check`, a file is not up to date.
pub fn run(args: &Args) -> Result<()> {
    let mut command =
        cargo("test --quiet --locked --package wcprof --bin wcprof tests::checked_in");
    match args.check {
        true => command.env_remove("WCPROF_BLESS"),
        false => command.env("WCPROF_BLESS", "1"),
    };
    execute(&mut command)
}
