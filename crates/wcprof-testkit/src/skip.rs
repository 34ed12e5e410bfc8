//! Skipped tests, and the capability that many depend on.

use std::fs;
use std::io::{self, Write};

/// `CAP_SYS_ADMIN` of `capability.h`.
const CAP_SYS_ADMIN: u32 = 21;

/// Print that a test was not run; the test runner does not capture this.
pub fn skip(test: &str, reason: &str) {
    // Fails when standard error is closed.
    let _ = writeln!(io::stderr(), "SKIPPED {test}: {reason}");
}

/// Whether this process has all privileges (`CAP_SYS_ADMIN` in its effective set).
pub fn has_capability() -> bool {
    let status = fs::read_to_string("/proc/self/status").unwrap_or_default();
    status
        .lines()
        .find_map(|line| line.strip_prefix("CapEff:"))
        .and_then(|hex| u64::from_str_radix(hex.trim(), 16).ok())
        .is_some_and(|set| set >> CAP_SYS_ADMIN & 1 == 1)
}
