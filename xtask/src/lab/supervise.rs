//! Runs what brings the lab up in a process of its own, so that the lab is taken down however that ends.

use std::os::unix::process::CommandExt;
use std::process::{Child, Command};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail, ensure};
use nix::sys::signal::{SigSet, Signal, killpg};
use nix::sys::signalfd::{SfdFlags, SignalFd};
use nix::unistd::Pid;

use super::ceph;
use super::daemon::{Daemon, lock_starting};
use super::place::Lab;

/// How often is asked whether the steps have ended.
const PAUSE: Duration = Duration::from_millis(200);

/// Runs this program once more with `--steps-only`, which then calls `steps`, and takes the lab down
/// afterwards: when the steps are over, fail, or a signal asks to end.
///
/// # Errors
/// When a cluster runs already, the steps fail or are interrupted, or the lab can not be taken down.
pub fn supervised(lab: &Lab, steps_only: bool, steps: impl FnOnce() -> Result<()>) -> Result<()> {
    if steps_only {
        // Signals are blocked in whom started this, and what is started here would inherit that.
        SigSet::empty().thread_set_mask()?;
        return steps();
    }
    ensure!(
        Daemon::all(&lab.cluster())?.is_empty(),
        "a cluster runs already; `cargo xtask lab down` first"
    );
    let done = supervise(lab);
    // Signals stay blocked: nothing may end this.
    let down = ceph::down(lab, done.is_ok()).context("the lab could not be taken down");
    done.and(down)
}

fn supervise(lab: &Lab) -> Result<()> {
    let set: SigSet = [Signal::SIGINT, Signal::SIGTERM, Signal::SIGHUP]
        .into_iter()
        .collect();
    set.thread_block()?;
    let signals = SignalFd::with_flags(&set, SfdFlags::SFD_NONBLOCK | SfdFlags::SFD_CLOEXEC)?;
    let program = std::env::current_exe().context("failed to find this program")?;
    let mut steps = Command::new(program)
        .args(std::env::args_os().skip(1))
        .arg("--steps-only")
        .process_group(0)
        .spawn()
        .context("failed to run the steps")?;
    loop {
        if let Some(status) = steps.try_wait()? {
            ensure!(status.success(), "the steps failed: {status}");
            return Ok(());
        }
        if let Some(signal) = signals.read_signal()? {
            println!("ended by signal {}; taking the lab down", signal.ssi_signo);
            end(lab, &mut steps)?;
            bail!("interrupted");
        }
        std::thread::sleep(PAUSE);
    }
}

/// Ends the steps with the programs that they wait for. Daemons are in groups of their own, and
/// recorded.
fn end(lab: &Lab, steps: &mut Child) -> Result<()> {
    // Without a cluster's folder there is none that could be started.
    let _starting = lock_starting(&lab.cluster()).ok();
    let group = Pid::from_raw(steps.id().cast_signed());
    // They may be gone already.
    let _ = killpg(group, Signal::SIGTERM);
    let patience = Instant::now() + Duration::from_secs(10);
    while Instant::now() < patience && steps.try_wait()?.is_none() {
        std::thread::sleep(PAUSE);
    }
    // Also of programs that the steps ran and that take their time.
    let _ = killpg(group, Signal::SIGKILL);
    steps.wait().context("failed to wait for the steps")?;
    Ok(())
}
