//! A question to a UNIX socket of a live process to its answer, within limits of size and time.

use std::io::{self, Read, Write};
use std::os::fd::{AsRawFd, OwnedFd};
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::time::{Duration, Instant};

use rustix::fs::{Access, access};
use rustix::net::sockopt::socket_peercred;
use rustix::net::{AddressFamily, SocketAddrUnix, SocketFlags, SocketType, connect, socket_with};
use thiserror::Error;
use wcprof_types::Pid;

use crate::deadline::{Awaited, with_deadline};
use crate::open::{OpenError, Root};

/// Bytes of an answer that are read.
pub const MAX_ANSWER: usize = 4 << 20;
/// What answers does within milliseconds; it may wait for a CPU or a lock of its own.
const ANSWER_TIME: Duration = Duration::from_secs(2);

/// Why a process did not say what it was asked.
#[derive(Debug, Error)]
pub enum NoAnswer {
    /// Its descriptors may not be read.
    #[error("failed to list its sockets: {0}; root can")]
    Unlisted(io::Error),
    /// It listens on no socket that may be the one.
    #[error("it listens on no admin socket (`admin socket` in its ceph.conf)")]
    NoSocket,
    /// What has the socket's path now.
    #[error("{0}")]
    Path(OpenError),
    /// Not permitted, or its queue is full.
    #[error("failed to connect to `{path}`: {source}{}", advice(source))]
    Connect {
        /// In the process's mount namespace.
        path: String,
        /// Why.
        source: io::Error,
    },
    /// Its path leads to the socket of another process by now.
    #[error("`{path}` is served by pid {peer}, not by it")]
    Other {
        /// In the process's mount namespace.
        path: String,
        /// The process that listens; 0 where it is not visible here.
        peer: i32,
    },
    /// It took longer than that.
    #[error("its admin socket did not answer within {} s", ANSWER_TIME.as_secs())]
    Late,
    /// More than is read.
    #[error("its admin socket answered with {0} bytes; at most {MAX_ANSWER} are read")]
    TooLong(u32),
    /// The connection ended before the answer did.
    #[error("its admin socket ended the connection without an answer: {0}")]
    Cut(io::Error),
    /// Something else than the question asks for.
    #[error("its admin socket answered with something else: {0}")]
    Nonsense(String),
}

fn advice(error: &io::Error) -> &'static str {
    match error.kind() {
        io::ErrorKind::PermissionDenied => {
            "; only root (CAP_DAC_OVERRIDE) and the daemon's user may write to it"
        }
        io::ErrorKind::WouldBlock => "; it has too many questions to answer",
        _ => "",
    }
}

/// Sends a question to the socket that has `path` in a process's mount namespace, and reads an answer that its
/// length precedes, 4 bytes big-endian.
pub(super) fn ask(pid: Pid, path: &str, question: &[u8]) -> Result<Vec<u8>, NoAnswer> {
    let until = Instant::now() + ANSWER_TIME;
    let stream = in_time(pid, path, connect_to)?;
    let mut stream = Timed { stream, until };
    stream.write_all(question).map_err(failed)?;
    let mut length = [0; 4];
    stream.read_exact(&mut length).map_err(failed)?;
    let length = u32::from_be_bytes(length);
    if length as usize > MAX_ANSWER {
        return Err(NoAnswer::TooLong(length));
    }
    let mut answer = Vec::new();
    let read = Read::take(&mut stream, length.into()).read_to_end(&mut answer);
    match read.map_err(failed)? {
        n if n == length as usize => Ok(answer),
        _ => Err(failed(io::ErrorKind::UnexpectedEof.into())),
    }
}

fn failed(error: io::Error) -> NoAnswer {
    match error.kind() {
        io::ErrorKind::TimedOut | io::ErrorKind::WouldBlock => NoAnswer::Late,
        _ => NoAnswer::Cut(error),
    }
}

fn refused(path: &str) -> impl Fn(io::Error) -> NoAnswer {
    move |source| NoAnswer::Connect {
        path: path.to_owned(),
        source,
    }
}

/// The process chose the path: it may lead to a server that never answers.
fn in_time<T: Send + 'static>(
    pid: Pid,
    path: &str,
    call: fn(Pid, &str) -> Result<T, NoAnswer>,
) -> Result<T, NoAnswer> {
    let path = path.to_owned();
    let called = with_deadline(Awaited::Facts(pid), move || call(pid, &path));
    called.unwrap_or(Err(NoAnswer::Late))
}

/// The socket at a path of a process, not connected to.
fn handle(pid: Pid, path: &str) -> Result<OwnedFd, NoAnswer> {
    let root = Root::of_process(pid).map_err(refused(path))?;
    root.socket(Path::new(path)).map_err(NoAnswer::Path)
}

/// Whether wcprof may connect to it.
pub(super) fn try_access(pid: Pid, path: &str) -> Result<(), NoAnswer> {
    in_time(pid, path, access_now)
}

fn access_now(pid: Pid, path: &str) -> Result<(), NoAnswer> {
    let handle = handle(pid, path)?;
    let link = format!("/proc/self/fd/{}", handle.as_raw_fd());
    access(link, Access::WRITE_OK).map_err(|error| refused(path)(error.into()))
}

/// Connects to the socket of exactly this process. Never waits: a queue that is full refuses.
fn connect_to(pid: Pid, path: &str) -> Result<UnixStream, NoAnswer> {
    let refused = refused(path);
    let handle = handle(pid, path)?;
    let socket = connected(&handle).map_err(&refused)?;
    let peer = socket_peercred(&socket).map_err(|e| refused(e.into()))?;
    let peer = peer.pid.as_raw_pid();
    if peer != pid.0 {
        let path = path.to_owned();
        return Err(NoAnswer::Other { path, peer });
    }
    Ok(UnixStream::from(socket))
}

fn connected(handle: &OwnedFd) -> io::Result<OwnedFd> {
    let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
    let socket = socket_with(AddressFamily::UNIX, SocketType::STREAM, flags, None)?;
    let address = SocketAddrUnix::new(format!("/proc/self/fd/{}", handle.as_raw_fd()))?;
    connect(&socket, &address)?;
    Ok(socket)
}

/// A connection whose every byte must have come by a time, however slowly they trickle.
struct Timed {
    stream: UnixStream,
    until: Instant,
}

impl Timed {
    fn rest(&self) -> io::Result<Duration> {
        let rest = self.until.saturating_duration_since(Instant::now());
        match rest.is_zero() {
            true => Err(io::ErrorKind::TimedOut.into()),
            false => Ok(rest),
        }
    }
}

impl Read for Timed {
    fn read(&mut self, bytes: &mut [u8]) -> io::Result<usize> {
        self.stream.set_nonblocking(false)?;
        self.stream.set_read_timeout(Some(self.rest()?))?;
        self.stream.read(bytes)
    }
}

impl Write for Timed {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.stream.set_nonblocking(false)?;
        self.stream.set_write_timeout(Some(self.rest()?))?;
        self.stream.write(bytes)
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}
