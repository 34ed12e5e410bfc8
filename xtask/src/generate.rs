//! `cargo xtask generate`: man pages and completions of shells, by the command line's definition.
//! The tests of the crate `wcprof` check them.

use anyhow::Result;

use crate::process::{cargo, execute};

/// Runs the command.
///
/// # Errors
/// When the build fails.
pub fn run() -> Result<()> {
    let words = "test --quiet --locked --package wcprof --bin wcprof tests::checked_in";
    execute(cargo(words).env("WCPROF_BLESS", "1"))
}
