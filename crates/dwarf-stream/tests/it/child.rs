//! Runs a test again in a process of its own, whose memory the kernel limits.

use std::process::Command;

use nix::sys::resource::{Resource, setrlimit};

/// Names the test that a process is for.
const TEST: &str = "TEST_WITHIN_MEMORY";

/// Runs `body` with at most `limit` bytes of memory. An allocation beyond it aborts the process.
pub fn within_memory(test: &str, limit: u64, body: impl FnOnce()) {
    if std::env::var(TEST).is_ok_and(|name| name == test) {
        setrlimit(Resource::RLIMIT_DATA, limit, limit).unwrap();
        body();
        println!("{test} is done");
        return;
    }
    let output = Command::new(std::env::current_exe().unwrap())
        .args(["--exact", test, "--nocapture", "--test-threads=1"])
        .env(TEST, test)
        .output()
        .unwrap();
    let text = String::from_utf8_lossy(&output.stdout);
    assert!(
        output.status.success() && text.contains(&format!("{test} is done")),
        "{test}: {}\n{text}\n{}",
        output.status,
        String::from_utf8_lossy(&output.stderr)
    );
}
