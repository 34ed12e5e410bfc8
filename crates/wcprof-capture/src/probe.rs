//! What works on this machine and for one process, for `wcprof check`: every line is the result of
//! trying, none is derived from a version. Events are opened and closed again, never enabled.

mod bpf;
mod engines;
mod kernel;
mod limits;
mod line;
mod privileges;
mod process;
#[cfg(test)]
mod tests;

pub use line::{ProbeLine, Subject, Verdict};
pub use privileges::kept_while_recording;
use wcprof_types::Pid;

use crate::engine::EngineKind;
use wcprof_host::{Target, TargetError};

/// Everything that was tried.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Probe {
    /// The process; wcprof itself when none was asked for.
    pub pid: Pid,
    /// Its name; empty when it may not be looked at.
    pub title: String,
    /// Whether a process was asked for.
    pub asked: bool,
    /// Each engine, privilege, kernel feature, part of the process and limit.
    pub lines: Vec<ProbeLine>,
    /// The engine that `attach` would choose.
    pub choice: Option<EngineKind>,
    /// Why that one, or why none.
    pub reason: String,
}

/// Tries everything, for process `pid` or else for wcprof itself.
///
/// # Errors
/// When `pid` cannot be a target at all. That its files may not be read is no error here but a
/// line of the result.
pub fn probe(pid: Option<Pid>) -> Result<Probe, TargetError> {
    let own = Pid(i32::try_from(std::process::id()).unwrap_or_default());
    let tried = pid.unwrap_or(own);
    let target = match Target::open(tried) {
        Err(error @ (TargetError::NotPermitted { .. } | TargetError::Hidden(_))) => Err(error),
        Err(error) => return Err(error),
        Ok(target) => Ok(target),
    };
    // Before the engines, which raise a limit.
    let machine = kernel::Machine::read();
    let title = target.as_ref().map_or("", Target::title).to_owned();
    let process = process::lines(tried, &target);
    let (mut lines, choice, reason) = engines::lines(tried, target);
    lines.extend(privileges::lines(&machine));
    lines.extend(kernel::lines(tried, &machine));
    lines.extend(process);
    lines.extend(limits::lines(pid, &machine));
    Ok(Probe {
        pid: tried,
        title,
        asked: pid.is_some(),
        lines,
        choice,
        reason,
    })
}
