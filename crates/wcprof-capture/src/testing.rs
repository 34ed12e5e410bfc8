//! What tests of this crate share.

use std::process::Command;
use std::{env, thread};

use wcprof_types::Pid;

/// Names the test that has this process for itself.
pub(crate) const ALONE: &str = "WCPROF_TEST_ALONE";

pub(crate) fn own_pid() -> Pid {
    Pid(nix::unistd::getpid().as_raw())
}

/// Print that a test is not run.
pub(crate) fn skip(reason: &str) {
    let thread = thread::current();
    let test = env::var(ALONE).ok();
    let test = test.as_deref().or(thread.name()).unwrap_or_default();
    println!("SKIPPED {test}: {reason}");
}

/// Whether the calling test has its process for itself. If not, runs it in such a one: threads of other tests
/// come and go, and they open files.
///
/// # Panics
/// When the test fails there.
pub(crate) fn is_alone(test: &str) -> bool {
    if env::var_os(ALONE).is_some() {
        return true;
    }
    let output = Command::new(env::current_exe().unwrap())
        .args(["--exact", test, "--nocapture"])
        .env(ALONE, test)
        .output()
        .unwrap();
    let said = String::from_utf8_lossy(&output.stdout);
    let errors = String::from_utf8_lossy(&output.stderr);
    let is_run = output.status.success() && said.contains("test result: ok. 1 passed");
    assert!(is_run, "{said}{errors}");
    // A skip may follow the name of its test on the same line.
    let skips = said
        .lines()
        .filter_map(|line| line.find("SKIPPED ").map(|at| &line[at..]));
    skips.for_each(|skip| println!("{skip}"));
    false
}
