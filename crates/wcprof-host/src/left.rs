//! Child processes that do not end when they are killed, since they wait for a file system that does not answer.

use std::io;
use std::os::unix::process::ExitStatusExt;
use std::process::ExitStatus;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

use rustix::process::{Pid as Raw, Signal, WaitOptions, kill_process, waitpid};
use wcprof_types::Pid;

/// Children that may be left behind: beyond this nobody else is made to wait.
const MAX_LEFT: usize = 8;

/// Children of this process that were left behind.
static LEFT: Left = Left(Mutex::new(Vec::new()));

/// Children that were killed and had not ended by then.
struct Left(Mutex<Vec<Pid>>);

impl Left {
    fn lock(&self) -> MutexGuard<'_, Vec<Pid>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Those that have not ended by now. Each is a process with the memory that it had.
    fn waiting(&self) -> MutexGuard<'_, Vec<Pid>> {
        let mut left = self.lock();
        left.retain(|&pid| matches!(ended(pid), Ok(None)));
        left
    }

    fn has_room(&self) -> bool {
        self.waiting().len() < MAX_LEFT
    }
}

/// Whether another child may be started that waits for file systems.
pub fn has_room() -> bool {
    LEFT.has_room()
}

/// Whether this child was left behind, and has not ended by now.
pub(crate) fn has(pid: Pid) -> bool {
    LEFT.waiting().contains(&pid)
}

/// Kills a child, which is no zombie then; `None` when it has not ended after `patience`, and is left behind.
///
/// # Errors
/// When it is not a child, or somebody else has waited for it.
pub fn end(pid: Pid, patience: Duration) -> io::Result<Option<ExitStatus>> {
    // It may have ended by itself.
    let _ = kill_process(raw(pid)?, Signal::KILL);
    let status = wait(pid, patience)?;
    if status.is_none() {
        LEFT.lock().push(pid);
    }
    Ok(status)
}

/// How a child ended, if it does within `patience`; it is no zombie then.
///
/// # Errors
/// When it is not a child, or somebody else has waited for it.
pub(crate) fn wait(pid: Pid, patience: Duration) -> io::Result<Option<ExitStatus>> {
    let until = Instant::now() + patience;
    loop {
        let status = ended(pid)?;
        if status.is_some() || Instant::now() >= until {
            return Ok(status);
        }
        thread::sleep(Duration::from_millis(1));
    }
}

/// From now on this child is left behind.
#[cfg(test)]
pub(crate) fn leave(pid: Pid) {
    LEFT.lock().push(pid);
}

/// Kills a child, and waits until it has ended without reaping it.
#[cfg(test)]
pub(crate) fn kill_unreaped(pid: Pid) {
    use rustix::process::{WaitId, WaitIdOptions, waitid};

    let pid = raw(pid).unwrap();
    kill_process(pid, Signal::KILL).unwrap();
    let options = WaitIdOptions::EXITED | WaitIdOptions::NOWAIT;
    waitid(WaitId::Pid(pid), options).unwrap();
}

fn raw(pid: Pid) -> io::Result<Raw> {
    Raw::from_raw(pid.0).ok_or_else(|| io::ErrorKind::InvalidInput.into())
}

/// How a child has ended; it is no zombie then.
fn ended(pid: Pid) -> io::Result<Option<ExitStatus>> {
    let ended = waitpid(Some(raw(pid)?), WaitOptions::NOHANG)?;
    Ok(ended.map(|(_, status)| ExitStatus::from_raw(status.as_raw())))
}

#[cfg(test)]
mod tests {
    use std::process::{Child, Command, Stdio};

    use super::*;

    fn cat() -> Child {
        Command::new("cat").stdin(Stdio::piped()).spawn().unwrap()
    }

    fn pid_of(child: &Child) -> Pid {
        Pid(child.id().cast_signed())
    }

    /// Check that children which do not end are counted up to a limit, and that one which has ended is reaped and counts no
    /// more.
    #[test]
    fn left_behind() {
        let left = Left(Mutex::default());
        let children: Vec<_> = (0..MAX_LEFT).map(|_| cat()).collect();
        for child in &children {
            assert!(left.has_room());
            left.lock().push(pid_of(child));
        }
        assert!(!left.has_room());
        for child in &children {
            let pid = pid_of(child);
            kill_unreaped(pid);
            assert!(left.has_room());
            assert!(!left.lock().contains(&pid));
            assert!(ended(pid).is_err(), "it was reaped");
        }
        assert!(left.lock().is_empty());
    }

    /// Check that a child is ended, that how is told, and that one which was waited for is an error.
    #[test]
    fn ended_child() {
        let pid = pid_of(&cat());
        let status = end(pid, Duration::from_secs(60)).unwrap().unwrap();
        assert_eq!(status.signal(), Some(Signal::KILL.as_raw()));
        assert!(end(pid, Duration::ZERO).is_err());
    }
}
