//! Opens files, on servers that may never answer, in a child process: a request in, a descriptor out.
//!
//! A FUSE server that took a request makes its caller wait for the answer, also when that is killed
//! (`request_wait_answer`, `fs/fuse/dev.c`), and a process ends only when all of its threads do. So a
//! child does the look-up, and is left behind if nobody answers. Closing such a file waits as well
//! (`fuse_flush`): what is found on FUSE or 9p is therefore copied, and wcprof gets the copy. Other
//! network file systems let a killed process go.

use std::ffi::CStr;
use std::io::{self, IoSlice, IoSliceMut};
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};
use std::os::unix::ffi::OsStrExt;
use std::path::Path;
use std::time::{Duration, Instant};

use nix::unistd::ForkResult;
use rustix::cmsg_space;
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::fs::{FileType, MemfdFlags, OFlags, fstat, fstatfs, memfd_create, statvfs};
use rustix::io::{Errno, pread, pwrite};
use rustix::net::{
    AddressFamily, RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, SendAncillaryBuffer,
    SendAncillaryMessage, SendFlags, SocketFlags, SocketType, recvmsg, sendmsg, socketpair,
};
use rustix::process::setsid;
use wcprof_types::Pid;

use crate::deadline::{is_unwanted, wait_for};
use crate::left;
use crate::procfs::is_runnable;

use super::reason::NoFile;
use super::regular::{FileIdentity, handle_below, nameless_in, open_handle};

/// A message of the child must follow the one before within this.
const ANSWER_TIMEOUT: Duration = Duration::from_secs(2);
/// A copy that takes longer is given up.
const COPY_TIMEOUT: Duration = Duration::from_secs(30);
/// The child reports progress after each piece of this size.
const PIECE: u64 = 1 << 20;
/// Files beyond this are not copied.
const MAX_COPIED: u64 = 2 << 30;
/// A child that is killed has ended by then, or waits for a server.
const ENDING_TIMEOUT: Duration = Duration::from_millis(100);
/// Copies up to this are kept in memory.
const IN_MEMORY: u64 = 32 << 20;
/// Left free on the file system that holds a copy.
const LEFT_FREE: u64 = 512 << 20;
const BUFFER: usize = 1 << 16;
/// `PATH_MAX`, with its NUL.
const MAX_PATH: usize = 4096;
/// `FUSE_SUPER_MAGIC` (virtiofs, too) and `V9FS_MAGIC`, `include/uapi/linux/magic.h`.
pub(super) const COPIED: [u64; 2] = [0x6573_5546, 0x0102_1997];

/// What is to be opened. Only regular files are.
#[derive(Copy, Clone, Debug)]
pub(super) enum Request<'a> {
    /// What a handle refers to.
    Handle(BorrowedFd<'a>),
    /// A path below the root; no link leads out of it.
    Path(&'a Path),
    /// The same, but its last part must not be a symbolic link, and its owner must be this user or root.
    Owned(&'a Path, u32),
}

/// A file that was opened, or its copy.
#[derive(Debug)]
pub(super) struct Opened {
    pub(super) file: OwnedFd,
    /// Of the file itself.
    pub(super) identity: FileIdentity,
}

/// The child process.
#[derive(Debug)]
pub(super) struct Child {
    socket: OwnedFd,
    pid: Pid,
}

impl Child {
    /// Starts a child that opens paths below `root`; none, if too many wait for servers.
    pub(super) fn start(root: Option<BorrowedFd<'_>>) -> Result<Self, NoFile> {
        if !left::has_room() {
            return Err(NoFile::NotAsked);
        }
        let flags = SocketFlags::CLOEXEC;
        let (ours, theirs) = socketpair(AddressFamily::UNIX, SocketType::SEQPACKET, flags, None)?;
        // SAFETY: the child makes system calls alone: it neither allocates nor takes a lock, which
        // another thread may have held, and never returns.
        match unsafe { nix::unistd::fork() }.map_err(io::Error::from)? {
            ForkResult::Child => serve(theirs.as_fd(), root),
            ForkResult::Parent { child } => Ok(Self {
                socket: ours,
                pid: Pid(child.as_raw()),
            }),
        }
    }

    /// Opens a file. After `NoAnswer` the child is of no use.
    pub(super) fn open(&self, request: Request<'_>) -> Result<Opened, NoFile> {
        let (head, path, handle) = match request {
            Request::Handle(handle) => ([HANDLE, 0], Path::new(""), Some(handle)),
            Request::Path(path) => ([PATH, 0], path, None),
            Request::Owned(path, uid) => ([OWNED, uid.into()], path, None),
        };
        let head = head.map(u64::to_ne_bytes);
        let parts = [head.as_flattened(), path.as_os_str().as_bytes(), &[0]];
        send(self.socket.as_fd(), &parts, handle)?;
        let until = Instant::now() + COPY_TIMEOUT;
        while Instant::now() < until {
            let answered = wait_for(ANSWER_TIMEOUT, |time| {
                let time = Timespec::try_from(time).ok();
                match poll(
                    &mut [PollFd::new(&self.socket, PollFlags::IN)],
                    time.as_ref(),
                ) {
                    Ok(0) | Err(Errno::INTR) => None,
                    polled => Some(polled),
                }
            });
            match answered {
                Some(polled) => polled?,
                // It only has no CPU.
                None if self.is_runnable() && !is_unwanted() => continue,
                None => break,
            };
            let mut answer = [[0; 8]; ANSWER];
            let (n, file) = receive(self.socket.as_fd(), answer.as_flattened_mut())?;
            if n != size_of_val(&answer) {
                break;
            }
            let [status, value, device, inode, size, s, ns] = answer.map(u64::from_ne_bytes);
            return match (status, file) {
                (GOES_ON, _) => continue,
                (OPENED, Some(file)) => Ok(Opened {
                    file,
                    identity: FileIdentity {
                        device,
                        inode,
                        size,
                        changed: (s.cast_signed(), ns.cast_signed()),
                    },
                }),
                (NOT_REGULAR, _) => Err(NoFile::NotRegular(FileType::from_raw_mode(value as u32))),
                (OTHER_OWNER, _) => Err(NoFile::Owner(value as u32)),
                (NO_COPY, _) => Err(NoFile::NoCopy),
                _ => Err(io::Error::from_raw_os_error(value as i32).into()),
            };
        }
        Err(NoFile::NoAnswer)
    }

    pub(super) fn pid(&self) -> Pid {
        self.pid
    }

    fn is_runnable(&self) -> bool {
        is_runnable(&self.pid.to_string())
    }
}

impl Drop for Child {
    fn drop(&mut self) {
        // A child that waits for a server can not be waited for.
        let _ = left::end(self.pid, ENDING_TIMEOUT);
    }
}

/// Requests: one of these, a user id, and a path that ends with NUL.
const HANDLE: u64 = 0;
const PATH: u64 = 1;
const OWNED: u64 = 2;
const HEAD: usize = 16;

/// Answers: one of these, what it says (kind of file, owner or errno), and the parts of a [`FileIdentity`].
const ANSWER: usize = 7;
const OPENED: u64 = 0;
const GOES_ON: u64 = 1;
const NOT_REGULAR: u64 = 2;
const OTHER_OWNER: u64 = 3;
const NO_COPY: u64 = 4;
const FAILED: u64 = 5;

/// The child: opens what it is asked for until the parent has gone. It keeps nothing else of the parent
/// open, so that nobody waits for the end of a pipe that it holds, and has a session of its own, so
/// that no key reaches it.
fn serve(socket: BorrowedFd<'_>, root: Option<BorrowedFd<'_>>) -> ! {
    let _ = setsid();
    let (a, b) = (socket.as_raw_fd(), root.map_or(-1, |root| root.as_raw_fd()));
    let kept = [-1, a.min(b), a.max(b), i32::MAX].map(i64::from);
    for gap in kept.windows(2).filter(|gap| gap[0] + 1 < gap[1]) {
        // SAFETY: the child uses none of these descriptors.
        unsafe { libc::syscall(libc::SYS_close_range, gap[0] + 1, gap[1] - 1, 0) };
    }
    let mut message = [0; HEAD + MAX_PATH];
    loop {
        let (n, handle) = match receive(socket, &mut message) {
            Err(Errno::INTR) => continue,
            Ok((n, handle)) if n > HEAD => (n, handle),
            // SAFETY: runs no code of the process.
            _ => unsafe { libc::_exit(0) },
        };
        let mut copied = None;
        let opened = answer(socket, root, &message[..n], handle, &mut copied);
        let (answer, file) = match &opened {
            Ok((answer, file)) => (*answer, Some(file.as_fd())),
            Err(NoFile::NotRegular(kind)) => (failed(NOT_REGULAR, kind.as_raw_mode().into()), None),
            Err(NoFile::Owner(uid)) => (failed(OTHER_OWNER, (*uid).into()), None),
            Err(NoFile::NoCopy) => (failed(NO_COPY, 0), None),
            Err(NoFile::System(error)) => {
                let errno = error.raw_os_error().unwrap_or(libc::EINVAL);
                (failed(FAILED, errno as u64), None)
            }
            Err(_) => (failed(FAILED, libc::ENOENT as u64), None),
        };
        let answer = answer.map(u64::to_ne_bytes);
        if send(socket, &[answer.as_flattened(), &[], &[]], file).is_err() {
            // SAFETY: as above.
            unsafe { libc::_exit(0) };
        }
        // Its server may not answer to the closing.
        drop(copied);
    }
}

/// The answer without a file.
fn failed(status: u64, value: u64) -> [u64; ANSWER] {
    let mut answer = [0; ANSWER];
    [answer[0], answer[1]] = [status, value];
    answer
}

/// In the child. `copied` is what a copy was made of.
fn answer(
    socket: BorrowedFd<'_>,
    root: Option<BorrowedFd<'_>>,
    message: &[u8],
    handle: Option<OwnedFd>,
    copied: &mut Option<OwnedFd>,
) -> Result<([u64; ANSWER], OwnedFd), NoFile> {
    let (head, path) = message.split_first_chunk::<HEAD>().ok_or(Errno::INVAL)?;
    let [kind, owner] = [0, 8].map(|at| u64::from_ne_bytes(std::array::from_fn(|i| head[at + i])));
    let handle = match (kind, handle, root) {
        (HANDLE, Some(handle), _) => handle,
        (PATH | OWNED, None, Some(root)) => {
            let path = CStr::from_bytes_with_nul(path).map_err(|_| Errno::INVAL)?;
            let last = match kind {
                OWNED => OFlags::NOFOLLOW,
                _ => OFlags::empty(),
            };
            handle_below(root, path, last)?
        }
        _ => return Err(Errno::INVAL.into()),
    };
    if kind == OWNED {
        let uid = fstat(&handle)?.st_uid;
        if uid != 0 && u64::from(uid) != owner {
            return Err(NoFile::Owner(uid));
        }
    }
    let (file, stat) = open_handle(&handle)?;
    let FileIdentity {
        device,
        inode,
        size,
        changed: (s, ns),
    } = FileIdentity::of(&stat);
    let changed = [s, ns].map(i64::cast_unsigned);
    let answer = [OPENED, 0, device, inode, size, changed[0], changed[1]];
    if COPIED.contains(&(fstatfs(&file)?.f_type as u64)) {
        return Ok((answer, copy(socket, copied.insert(file), size)?));
    }
    // Whether it answers at all: wcprof waits for what answers now.
    let _ = pread(&file, &mut [0], 0);
    Ok((answer, file))
}

/// In the child: a copy that is read from its beginning.
fn copy(socket: BorrowedFd<'_>, file: &OwnedFd, size: u64) -> Result<OwnedFd, NoFile> {
    let has_room = |folder: &&CStr| {
        let free = statvfs(*folder).map_or(0, |s| s.f_frsize.saturating_mul(s.f_bavail));
        free >= size + LEFT_FREE
    };
    let to = if size <= IN_MEMORY {
        memfd_create(c"wcprof-copy", MemfdFlags::CLOEXEC)?
    } else {
        // `/tmp` comes last, since it is often in memory.
        let folders = [c"/var/tmp", c"/tmp"].into_iter().filter(has_room);
        let mut copies = folders.map(nameless_in).filter_map(Result::ok);
        copies
            .next()
            .filter(|_| size <= MAX_COPIED)
            .ok_or(NoFile::NoCopy)?
    };
    let (mut at, mut reported, mut buffer) = (0, 0, [0; BUFFER]);
    // A file that grows is copied as far as it was.
    while at < size {
        let n = match pread(file, &mut buffer, at) {
            Err(Errno::INTR) => continue,
            n => n?,
        };
        let wanted = usize::try_from(size - at).unwrap_or(usize::MAX);
        let piece = &buffer[..n.min(wanted)];
        if piece.is_empty() {
            break;
        }
        if pwrite(&to, piece, at)? != piece.len() {
            return Err(NoFile::NoCopy);
        }
        at += piece.len() as u64;
        if at - reported >= PIECE {
            reported = at;
            let answer = failed(GOES_ON, 0).map(u64::to_ne_bytes);
            send(socket, &[answer.as_flattened(), &[], &[]], None)?;
        }
    }
    Ok(to)
}

/// Sends a message, and a descriptor with it. Allocates nothing.
fn send(
    socket: BorrowedFd<'_>,
    parts: &[&[u8]; 3],
    fd: Option<BorrowedFd<'_>>,
) -> Result<(), Errno> {
    let mut space = [MaybeUninit::uninit(); cmsg_space!(ScmRights(1))];
    let mut control = SendAncillaryBuffer::new(&mut space);
    if fd.is_some() {
        control.push(SendAncillaryMessage::ScmRights(fd.as_slice()));
    }
    let parts = parts.map(IoSlice::new);
    sendmsg(socket, &parts, &mut control, SendFlags::NOSIGNAL).map(drop)
}

/// Receives a message: its length, 0 when the other side has gone, and the descriptor that came with
/// it. Allocates nothing.
fn receive(socket: BorrowedFd<'_>, bytes: &mut [u8]) -> Result<(usize, Option<OwnedFd>), Errno> {
    let mut space = [MaybeUninit::uninit(); cmsg_space!(ScmRights(1))];
    let mut control = RecvAncillaryBuffer::new(&mut space);
    let parts = &mut [IoSliceMut::new(bytes)];
    let message = recvmsg(socket, parts, &mut control, RecvFlags::CMSG_CLOEXEC)?;
    let fd = control.drain().find_map(|message| match message {
        RecvAncillaryMessage::ScmRights(mut fds) => fds.next(),
        _ => None,
    });
    Ok((message.bytes, fd))
}
