//! Runs what brings the lab up in a process of its own, so that the lab is taken down however that ends.

use std::process::Command;

use anyhow::{Context, Result, ensure};
use nix::sys::signal::{SigSet, Signal};

use super::ceph;
use super::place::Lab;

/// Set in the process of the steps.
const IS_STEPS: &str = "WCPROF_LAB_STEPS";

/// Runs this program once more, which then calls `steps`, and takes the lab down afterwards: when the steps
/// are over, fail, or are interrupted.
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
    // From here on a signal ends only the steps, and what they wait for.
    SigSet::from_iter([Signal::SIGINT, Signal::SIGTERM, Signal::SIGHUP]).thread_block()?;
    let mut command = Command::new(std::env::current_exe()?);
    command.args(std::env::args_os().skip(1)).env(IS_STEPS, "1");
    let status = command.status().context("failed to run the steps")?;
    ceph::down(lab, status.success()).context("the lab could not be taken down")?;
    ensure!(status.success(), "the steps failed: {status}");
    Ok(())
}
