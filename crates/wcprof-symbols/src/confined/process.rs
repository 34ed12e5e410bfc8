//! A process that reads hostile files for this one: how it is started, watched, and how it ended.

use std::fmt;
use std::io;
use std::os::unix::net::UnixStream;
use std::sync::mpsc::{RecvTimeoutError, channel};
use std::thread;
use std::time::Duration;

use dwarf_stream::Cancel;
use wcprof_types::Pid;

use super::messages::Confinement;
use super::wire::expect;

/// How often the caller's cancel flag is checked.
const CANCEL_INTERVAL: Duration = Duration::from_millis(50);
/// Largest description of what confines the process, bytes.
const MAX_CONFINEMENT: u64 = 64 << 10;

/// A confined process: it talks on a socket, and opens no file itself.
pub trait ConfinedProcess: Sync {
    /// Ends it, without waiting for that.
    fn kill(&self);

    /// Ends it, and says how it ended; one that does not end is left behind.
    fn end(self: Box<Self>) -> Ended;

    /// What confines it, as it says.
    fn note(&self, _confinement: &Confinement) {}

    /// Called many times a second while it runs; returns whether it may go on. It may wait for an answer.
    fn tick(&self, _is_answered: bool) -> bool {
        true
    }
}

/// How a process ended.
#[derive(Clone, Debug)]
pub struct Ended {
    /// As in "it `took too long`".
    pub how: String,
    /// It waited for a file system that does not answer, or could not be started because others do.
    pub is_silent: bool,
    /// The process, if it waited so, or did not end when it was killed.
    pub child: Option<Pid>,
}

impl Ended {
    /// An end that no file system that does not answer is the cause of.
    pub(crate) fn of(how: String) -> Self {
        Self {
            how,
            is_silent: false,
            child: None,
        }
    }
}

/// Starts a process that talks on a socket.
pub type StartProcess<'s> = dyn Fn(UnixStream) -> io::Result<Box<dyn ConfinedProcess>> + 's;

/// What confines the process.
///
/// # Errors
/// When it cannot be started, or cannot be confined at all.
pub fn confinement(start: &StartProcess<'_>) -> io::Result<Confinement> {
    let (socket, other) = UnixStream::pair()?;
    let process = start(other)?;
    let told = expect::<Confinement>(&socket, MAX_CONFINEMENT);
    let ended = process.end();
    told.map(|(confinement, _)| confinement)
        .map_err(|_| io::Error::other(ended.how))
}

/// Starts a process; the socket is this side's end.
///
/// # Errors
/// How it "ended", when it could not be started.
pub fn begin(start: &StartProcess<'_>) -> Result<(UnixStream, Box<dyn ConfinedProcess>), Ended> {
    let begin = || {
        let (socket, other) = UnixStream::pair()?;
        let process = start(other)?;
        Ok((socket, process))
    };
    begin().map_err(|error: io::Error| Ended {
        is_silent: error.kind() == io::ErrorKind::ResourceBusy,
        ..Ended::of(format!("could not be started: {error}"))
    })
}

/// A process that is watched while this one waits for it.
#[derive(Copy, Clone)]
pub struct ProcessWatch<'w> {
    /// The process.
    pub process: &'w dyn ConfinedProcess,
    /// Whether this process makes an answer for it at present.
    pub is_answering: &'w (dyn Fn() -> bool + Sync),
    /// The caller's cancel flag.
    pub cancel: &'w Cancel,
}

impl fmt::Debug for ProcessWatch<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ProcessWatch").finish_non_exhaustive()
    }
}

impl ProcessWatch<'_> {
    /// Receives what confines the process, and notes that.
    ///
    /// # Errors
    /// When it ends before it has said so.
    pub fn confinement(self, socket: &UnixStream, end: &(dyn Fn() + Sync)) -> io::Result<()> {
        let told = self.run(end, || expect::<Confinement>(socket, MAX_CONFINEMENT));
        self.process.note(&told??.0);
        Ok(())
    }

    /// Does what waits for the process, which is ended when the user wants that, or when it may not go on.
    ///
    /// # Errors
    /// When no thread can be started.
    pub fn run<T>(self, end: &(dyn Fn() + Sync), work: impl FnOnce() -> T) -> io::Result<T> {
        thread::scope(|scope| {
            let (done, is_done) = channel::<()>();
            let ticking = move || {
                while let Err(RecvTimeoutError::Timeout) = is_done.recv_timeout(CANCEL_INTERVAL) {
                    let may_go_on = self.process.tick((self.is_answering)());
                    if self.cancel.is_cancelled() || !may_go_on {
                        end();
                    }
                }
            };
            thread::Builder::new().spawn_scoped(scope, ticking)?;
            let result = work();
            drop(done);
            Ok(result)
        })
    }
}
