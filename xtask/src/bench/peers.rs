//! The same target under other profilers, when they are installed.

use std::path::Path;
use std::process::{Command, Stdio};
use std::time::Duration;

use anyhow::{Context, Result};

use super::target::Target;
use crate::lab::fio::children_cpu_time;
use crate::process::is_installed;

/// What another profiler used.
#[derive(Debug)]
pub struct Peer {
    /// Command line in short.
    pub name: String,
    /// CPU time for one sample of one thread.
    pub per_thread_sample: Duration,
    /// What the figure leaves out.
    pub note: &'static str,
}

/// Runs each installed peer for about `seconds`.
///
/// # Errors
/// When one fails.
pub fn measure(target: &Target, seconds: u32, folder: &Path) -> Result<Vec<Peer>> {
    let mut peers = Vec::new();
    let pid = target.pid()?.to_string();
    if is_installed("perf") {
        let mut command = Command::new("perf");
        command
            .args(["record", "-q", "-e", "cpu-clock", "-F", "99"])
            .args(["--call-graph", "dwarf", "-p", &pid, "-o"])
            .arg(folder.join("perf.data"))
            .args(["--", "sleep", &seconds.to_string()]);
        let cpu = cpu_of(&mut command)?;
        peers.push(Peer {
            name: "perf record -F 99 --call-graph dwarf".to_owned(),
            per_thread_sample: cpu / (target.n_threads * 99 * seconds),
            note: "running threads only, not unwound yet",
        });
    }
    for (program, arguments, n_runs) in [
        ("eu-stack", vec!["-p", &pid], seconds.max(3)),
        (
            "gdb",
            vec!["-nx", "-batch", "-ex", "thread apply all bt", "-p", &pid],
            3,
        ),
    ] {
        if !is_installed(program) {
            continue;
        }
        let mut cpu = Duration::ZERO;
        for _ in 0..n_runs {
            cpu += cpu_of(Command::new(program).args(&arguments))?;
        }
        peers.push(Peer {
            name: format!("{program} in a loop"),
            per_thread_sample: cpu / (target.n_threads * n_runs),
            note: "stops the target",
        });
    }
    Ok(peers)
}

/// CPU time of a program from start to end. Its exit code does not matter: eu-stack fails when a
/// single frame is missing.
fn cpu_of(command: &mut Command) -> Result<Duration> {
    let before = children_cpu_time()?;
    let name = command.get_program().to_string_lossy().into_owned();
    command
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .status()
        .with_context(|| format!("failed to run `{name}`"))?;
    Ok(children_cpu_time()?.saturating_sub(before))
}
