//! `wcprof demo`: starts the built-in workload in a child process, serves its disk and attaches to it.

use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use anyhow::Context;
use wcprof_demo::{FLUSH_TIME, SlowDisk};

use crate::args::{AttachArgs, DemoArgs, KeepArgs, SamplingArgs, TargetArgs, defaults};
use crate::attach;
use crate::failure::{Exit, Failure};

/// The workload has threads of this name once it runs.
const LAST_THREAD: &str = "finisher";
const START_TIMEOUT: Duration = Duration::from_secs(30);

/// The child, which ends by itself when its standard input does.
struct Workload(Child);

impl Drop for Workload {
    fn drop(&mut self) {
        drop(self.0.stdin.take());
        // It notices the closed pipe within milliseconds.
        let _ = self.0.wait();
    }
}

pub(crate) fn run(args: &DemoArgs) -> Result<(), Failure> {
    let program = std::env::current_exe().context("failed to find wcprof's own program")?;
    // Long enough for the recording and its start; the closed pipe ends it sooner.
    let seconds = args.duration + 60.0;
    let disk = SlowDisk::start();
    let mut command = Command::new(program);
    command.arg("demo-workload").arg(seconds.to_string());
    if let Ok(disk) = &disk {
        command.arg("--disk").arg(disk.folder());
    }
    let child = command
        .stdin(Stdio::piped())
        .spawn()
        .context("failed to start the workload")?;
    let mut workload = Workload(child);
    let pid = workload.0.id() as i32;
    wait_until_running(&mut workload)?;
    message!(
        "wcprof: workload runs as pid {pid}: 3 msgr-workers, 8 tp_osd_tp, bstore_kv_sync and idle pools"
    );
    print_disk(disk);
    attach::run(&AttachArgs {
        keep: KeepArgs::default(),
        targets: TargetArgs {
            pids: vec![pid],
            ..TargetArgs::default()
        },
        children: false,
        duration: args.duration,
        output: Some("wcprof-demo.wct".into()),
        flamegraph: Some("wcprof-demo.svg".into()),
        sampling: SamplingArgs {
            engine: args.engine,
            ..defaults()
        },
        kernel: false,
        analysis: defaults(),
        tree: false,
        raw: false,
    })
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

pub(crate) fn workload(seconds: f64, disk: Option<PathBuf>) -> Result<(), Failure> {
    wcprof_demo::run(seconds, disk.as_deref()).map_err(|e| Failure::new(Exit::Failure, e))
}
