//! The program under test, run on saved traces with nothing of the user's surroundings.

use std::process::{Command, Output};

use serde_json::Value;

pub const OSD: &str = "ceph-osd-secure-randread.wct";
pub const QEMU: &str = "qemu-librbd-writeback.wct";

/// The path of a file of the repository.
pub fn at_root(path: &str) -> String {
    format!("{}/../../{path}", env!("CARGO_MANIFEST_DIR"))
}

/// The path of a saved trace, or of a file beside it.
pub fn fixture(name: &str) -> String {
    at_root(&format!("fixtures/traces/{name}"))
}

/// Runs in the folder of the saved traces, so that outputs name them without a path.
pub fn command(args: &[&str]) -> Command {
    let mut command = wcprof_testkit::wcprof();
    command.args(args).env("NO_COLOR", "1");
    command.current_dir(fixture(""));
    command
}

pub fn run(args: &[&str]) -> Output {
    command(args).output().expect("the program runs")
}

/// What a run that succeeds prints.
#[track_caller]
pub fn text(args: &[&str]) -> String {
    let output = run(args);
    let errors = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{args:?}: {errors}");
    String::from_utf8(output.stdout).expect("output is text")
}

#[track_caller]
pub fn json(args: &[&str]) -> Value {
    serde_json::from_str(&text(args)).expect("valid JSON")
}

/// Asserts that a golden file, named as a fixture, holds this.
#[track_caller]
pub fn golden(name: &str, actual: &str) {
    wcprof_testkit::golden(fixture(name), actual);
}
