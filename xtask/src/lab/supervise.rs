//! Runs what brings the lab up in a process of its own, so that the lab is taken down however that ends.

use std::os::unix::process::CommandExt;
use std::process::{Child, Command};
use std::time::Duration;

use anyhow::{Context, Result, bail, ensure};
use nix::sys::signal::{SigSet, Signal, killpg};
use nix::sys::signalfd::{SfdFlags, SignalFd};
use nix::unistd::Pid;

use super::ceph;
use super::daemon::lock_starting;
use super::place::Lab;
use crate::process::wait_until;

/// Set in the process of the steps.
const IS_STEPS: &str = "WCPROF_LAB_STEPS";

/// Runs this program once more, which then calls `steps`, and takes the lab down afterwards: when the steps
/// are over, fail, or a signal asks to end.
///
/// # Errors
/// When a cluster runs already, the steps fail or are interrupted, or the lab cannot be taken down.
pub fn supervised(lab: &Lab, steps: impl FnOnce() -> Result<()>) -> Result<()> {
    if std::env::var_os(IS_STEPS).is_some() {
        // Signals are blocked in the parent process, and children would inherit that.
        SigSet::empty().thread_set_mask()?;
        return steps();
    }
    lab.require_none()?;
    let done = supervise(lab);
    // Signals stay blocked: nothing may end this.
    let down = ceph::down(lab, done.is_ok()).context("the lab could not be taken down");
    done.and(down)
}

fn supervise(lab: &Lab) -> Result<()> {
    let set = SigSet::from_iter([Signal::SIGINT, Signal::SIGTERM, Signal::SIGHUP]);
    set.thread_block()?;
    let signals = SignalFd::with_flags(&set, SfdFlags::SFD_NONBLOCK | SfdFlags::SFD_CLOEXEC)?;
    let mut steps = Command::new(std::env::current_exe()?)
        .args(std::env::args_os().skip(1))
        .env(IS_STEPS, "1")
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
        std::thread::sleep(Duration::from_millis(200));
    }
}

/// Ends the steps with the programs that they wait for. Daemons are in groups of their own, and
/// recorded.
fn end(lab: &Lab, steps: &mut Child) -> Result<()> {
    // Without a cluster's folder there is none that could be started.
    let _starting = lock_starting(&lab.file("")).ok();
    let group = Pid::from_raw(steps.id().cast_signed());
    // Each fails when they are gone already.
    let _ = killpg(group, Signal::SIGTERM);
    let _ = wait_until("the steps end", 10, || Ok(steps.try_wait()?.is_some()));
    // Also of programs that the steps ran and that take their time.
    let _ = killpg(group, Signal::SIGKILL);
    steps.wait().context("failed to wait for the steps")?;
    Ok(())
}
