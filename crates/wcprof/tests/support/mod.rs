//! The program under test, run with nothing of the user's surroundings.

use std::process::{Command, Output};

pub fn command(args: &[&str]) -> Command {
    let mut command = wcprof_testkit::wcprof();
    command.args(args).env("NO_COLOR", "1");
    command
}

/// What a run that succeeded printed.
#[track_caller]
pub fn printed(args: &[&str], output: Output) -> String {
    let errors = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{args:?}: {errors}");
    String::from_utf8(output.stdout).expect("output is text")
}
