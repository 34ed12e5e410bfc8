//! `--demo`: starts the built-in workload in a child process, and serves its disk.

use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use anyhow::Context;
use slow_disk::{FLUSH_TIME, SlowDisk};
use wcprof_types::Pid;

use crate::crypto_program;
use crate::failure::{Exit, Failure};

/// The workload has threads of this name once it runs.
const LAST_THREAD: &str = "finisher";
const START_TIMEOUT: Duration = Duration::from_secs(30);
/// Longer than the longest recording; the closed pipe ends it sooner.
const SECONDS: &str = "100000";

/// The child, which ends by itself when its standard input does.
#[derive(Debug)]
pub(crate) struct Workload(Child);

impl Drop for Workload {
    fn drop(&mut self) {
        drop(self.0.stdin.take());
        // It notices the closed pipe within milliseconds.
        let _ = self.0.wait();
    }
}

impl Workload {
    /// Starts it, and waits until it runs.
    pub(crate) fn start() -> Result<Self, Failure> {
        let program = crypto_program::path()?;
        let disk = SlowDisk::start();
        let mut command = Command::new(program);
        command.args(["demo-workload", SECONDS]);
        if let Ok(disk) = &disk {
            command.arg("--disk").arg(disk.folder());
        }
        let child = command
            .stdin(Stdio::piped())
            .spawn()
            .context("failed to start the workload")?;
        let mut workload = Self(child);
        wait_until_running(&mut workload)?;
        message!(
            "wcprof: workload runs as pid {}: 3 msgr-workers, 8 tp_osd_tp, bstore_kv_sync and idle pools",
            workload.pid()
        );
        print_disk(disk);
        Ok(workload)
    }

    pub(crate) fn pid(&self) -> Pid {
        Pid(self.0.id().cast_signed())
    }
}

/// Closes the folder, too: the workload has inherited it.
fn print_disk(disk: anyhow::Result<SlowDisk>) {
    let ms = FLUSH_TIME.as_millis();
    match disk {
        Ok(_) => message!(
            "wcprof: wcprof provides its disk (FUSE): a flush takes {ms} ms on every machine"
        ),
        Err(error) => message!(
            "wcprof: it uses this machine's disk, flushed repeatedly for {ms} ms: there may be no finding on flushes ({error:#})"
        ),
    }
}

fn wait_until_running(workload: &mut Workload) -> Result<(), Failure> {
    let pid = workload.0.id();
    let begin = Instant::now();
    loop {
        if let Some(status) = workload.0.try_wait()? {
            let error = anyhow::anyhow!("the workload ended at once: {status}");
            return Err(Failure::new(Exit::Failure, error));
        }
        let names = std::fs::read_dir(format!("/proc/{pid}/task"))?
            .flatten()
            .filter_map(|task| std::fs::read_to_string(task.path().join("comm")).ok());
        if names.into_iter().any(|name| name.trim() == LAST_THREAD) {
            return Ok(());
        }
        if begin.elapsed() > START_TIMEOUT {
            let error = anyhow::anyhow!("the workload did not start within 30 s");
            return Err(Failure::new(Exit::Failure, error));
        }
        std::thread::sleep(Duration::from_millis(5));
    }
}
