//! The same target under other profilers, when they are installed.

use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;

use super::target::Target;
use crate::lab::fio::children_cpu_time;
use crate::process::{is_installed, target_folder};

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

/// A peer that records until it is told to stop; it is killed when dropped early.
#[derive(Debug)]
pub struct RunningPeer(Child);

impl RunningPeer {
    /// `perf record` with DWARF stacks of a process; `arguments` choose the event.
    ///
    /// # Errors
    /// When perf is not installed or does not start.
    pub fn perf_record(pid: i32, arguments: &[&str]) -> Result<Self> {
        ensure!(is_installed("perf"), "perf is not installed");
        let child = Command::new("perf")
            .args(["record", "-q", "--call-graph", "dwarf"])
            .args(arguments)
            .args(["-p", &pid.to_string(), "-o"])
            .arg(target_folder()?.join("bench/perf.data"))
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .spawn()
            .context("failed to run `perf`")?;
        Ok(Self(child))
    }

    /// Ends the recording as Ctrl-C does.
    ///
    /// # Errors
    /// When it had ended before.
    pub fn stop(mut self) -> Result<()> {
        let has_ended = self.0.try_wait().context("failed to wait for `perf`")?;
        ensure!(has_ended.is_none(), "perf ended too early");
        let pid = i32::try_from(self.0.id()).context("process id out of range")?;
        kill(Pid::from_raw(pid), Signal::SIGINT).context("failed to interrupt `perf`")?;
        self.0.wait().context("failed to wait for `perf`")?;
        Ok(())
    }
}

impl Drop for RunningPeer {
    fn drop(&mut self) {
        if self.0.try_wait().is_ok_and(|status| status.is_none()) {
            let _ = self.0.kill();
            let _ = self.0.wait();
        }
    }
}
