//! Starts this program again as a process that will confine itself.

use std::ffi::OsStr;
use std::process::{Command, Stdio};

/// This program with another command line, without an environment.
pub fn command(args: &[&OsStr]) -> Command {
    let mut command = Command::new("/proc/self/exe");
    command
        .args(args)
        .env_clear()
        .current_dir("/")
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .stderr(Stdio::null());
    command
}
