//! Opens files, on servers that may never answer, in a child process: a request in, a descriptor out.
//!
//! A FUSE server that took a request makes its caller wait for the answer, also when that is killed
//! (`request_wait_answer`, `fs/fuse/dev.c`), and a process ends only when all of its threads do. So a
//! child does the look-up, and is left behind if nobody answers. Closing such a file waits as well
//! (`fuse_flush`): what is found on FUSE or 9p is therefore copied, and wcprof gets the copy. Other
//! network file systems let a killed process go.

use std::ffi::{CStr, CString};
use std::io::{self, Write};
use std::os::fd::{AsRawFd, BorrowedFd, FromRawFd, OwnedFd, RawFd};
use std::os::unix::ffi::OsStrExt;
use std::path::Path;
use std::time::{Duration, Instant};

use nix::errno::Errno;
use nix::fcntl::{OFlag, OpenHow, ResolveFlag, open, openat2};
use nix::sys::stat::{FileStat, Mode, SFlag, fstat};

/// A message of the child must follow the one before within this.
pub(crate) const ANSWER_TIMEOUT: Duration = Duration::from_secs(2);
/// A copy that takes longer is done without.
const COPY_TIMEOUT: Duration = Duration::from_secs(30);
/// The child says that it goes on after each piece of this size.
const PIECE: u64 = 1 << 20;
/// Files beyond this are not copied.
const MAX_COPIED: u64 = 2 << 30;
/// Copies up to this are kept in memory.
const IN_MEMORY: u64 = 32 << 20;
/// Left free on the file system that holds a copy.
const LEFT_FREE: u64 = 512 << 20;
const BUFFER: usize = 1 << 16;
/// `PATH_MAX`, with its NUL.
const MAX_PATH: usize = 4096;
/// `FUSE_SUPER_MAGIC` (virtiofs, too) and `V9FS_MAGIC`, `include/uapi/linux/magic.h`.
const COPIED: [i64; 2] = [0x6573_5546, 0x0102_1997];

/// What is to be opened. Only regular files are.
#[derive(Copy, Clone, Debug)]
pub(crate) enum Request<'a> {
    /// What a descriptor made with `O_PATH` refers to.
    Handle(BorrowedFd<'a>),
    /// A path below the root; no link leads out of it.
    Path {
        path: &'a Path,
        /// Whether its last part may be a symbolic link.
        follow: bool,
        /// It must belong to this user or to root.
        owner: Option<u32>,
    },
}

impl<'a> Request<'a> {
    /// Whatever the path leads to, whoever owns it.
    pub(crate) fn path(path: &'a Path) -> Self {
        Self::Path {
            path,
            follow: true,
            owner: None,
        }
    }
}

/// Why there is no file.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub(crate) enum Refusal {
    /// FIFO, device, socket or directory.
    NotRegular,
    /// It belongs to this user.
    Owner(u32),
    /// Larger than what is copied, or no space for it.
    NoCopy,
    /// The child must be left behind.
    NoAnswer,
    Errno(Errno),
}

impl From<Errno> for Refusal {
    fn from(errno: Errno) -> Self {
        Self::Errno(errno)
    }
}

/// A file that was opened, or its copy.
#[derive(Debug)]
pub(crate) struct Opened {
    pub(crate) file: OwnedFd,
    /// Inode and device (major, minor) of the file itself.
    pub(crate) inode: u64,
    pub(crate) device: (u32, u32),
}

/// The child.
#[derive(Debug)]
pub(crate) struct Opener {
    socket: OwnedFd,
    child: nix::unistd::Pid,
}

impl Opener {
    /// Starts a child that opens paths below `root`, an `O_PATH` descriptor.
    pub(crate) fn start(root: Option<BorrowedFd<'_>>) -> io::Result<Self> {
        let mut sockets = [-1; 2];
        let kind = libc::SOCK_SEQPACKET | libc::SOCK_CLOEXEC;
        // SAFETY: the call writes two descriptors.
        Errno::result(unsafe { libc::socketpair(libc::AF_UNIX, kind, 0, sockets.as_mut_ptr()) })?;
        // SAFETY: they are new, and nobody else's.
        let [ours, theirs] = sockets.map(|fd| unsafe { OwnedFd::from_raw_fd(fd) });
        let root = root.map_or(-1, |fd| fd.as_raw_fd());
        // SAFETY: the child makes system calls alone: it neither allocates nor takes a lock, which
        // another thread may have held, and never returns.
        match unsafe { libc::fork() } {
            -1 => Err(io::Error::last_os_error()),
            0 => serve(theirs.as_raw_fd(), root),
            child => Ok(Self {
                socket: ours,
                child: nix::unistd::Pid::from_raw(child),
            }),
        }
    }

    /// Opens a file. After `NoAnswer` the child is of no use.
    pub(crate) fn open(&self, request: Request<'_>) -> Result<Opened, Refusal> {
        let (head, path, handle) = match request {
            Request::Handle(handle) => (Head::default(), CString::default(), Some(handle)),
            Request::Path {
                path,
                follow,
                owner,
            } => {
                let path = CString::new(path.as_os_str().as_bytes()).map_err(|_| Errno::EINVAL)?;
                let head = Head {
                    kind: if follow { FOLLOW } else { NO_FOLLOW },
                    has_owner: owner.is_some().into(),
                    owner: owner.unwrap_or(0),
                };
                (head, path, None)
            }
        };
        let mut message = head.to_bytes().to_vec();
        message.extend(path.as_bytes_with_nul());
        if message.len() > HEAD + MAX_PATH {
            return Err(Errno::ENAMETOOLONG.into());
        }
        let handle = handle.map(|fd| fd.as_raw_fd());
        send(self.socket.as_raw_fd(), &message, handle)?;
        let until = Instant::now() + COPY_TIMEOUT;
        while Instant::now() < until {
            let mut poll = [nix::poll::PollFd::new(
                std::os::fd::AsFd::as_fd(&self.socket),
                nix::poll::PollFlags::POLLIN,
            )];
            match nix::poll::poll(&mut poll, ANSWER_TIMEOUT.as_millis() as u16) {
                Ok(0) => break,
                Err(Errno::EINTR) => continue,
                Err(errno) => return Err(errno.into()),
                Ok(_) => {}
            }
            let mut bytes = [0; ANSWER];
            let (n, file) = receive(self.socket.as_raw_fd(), &mut bytes)?;
            if n != ANSWER {
                break;
            }
            let answer = Answer::from_bytes(&bytes);
            return match (answer.status, file) {
                (GOES_ON, _) => continue,
                (OPENED, Some(file)) => Ok(Opened {
                    file,
                    inode: answer.inode,
                    device: (answer.major, answer.minor),
                }),
                (NOT_REGULAR, _) => Err(Refusal::NotRegular),
                (OTHER_OWNER, _) => Err(Refusal::Owner(answer.value)),
                (NO_COPY, _) => Err(Refusal::NoCopy),
                _ => Err(Errno::from_raw(answer.value as i32).into()),
            };
        }
        Err(Refusal::NoAnswer)
    }
}

impl Drop for Opener {
    /// A child that waits for a server can not be waited for.
    fn drop(&mut self) {
        let _ = nix::sys::signal::kill(self.child, nix::sys::signal::Signal::SIGKILL);
        let until = Instant::now() + Duration::from_millis(100);
        while nix::sys::wait::waitpid(self.child, Some(nix::sys::wait::WaitPidFlag::WNOHANG))
            == Ok(nix::sys::wait::WaitStatus::StillAlive)
            && Instant::now() < until
        {
            std::thread::sleep(Duration::from_millis(1));
        }
    }
}

const HANDLE: u32 = 0;
const FOLLOW: u32 = 1;
const NO_FOLLOW: u32 = 2;
const HEAD: usize = 12;

/// A request without its path.
#[derive(Copy, Clone, Default)]
struct Head {
    kind: u32,
    has_owner: u32,
    owner: u32,
}

impl Head {
    fn to_bytes(self) -> [u8; HEAD] {
        words([self.kind, self.has_owner, self.owner])
    }

    fn from_bytes(bytes: &[u8]) -> Self {
        Self {
            kind: word(bytes, 0),
            has_owner: word(bytes, 4),
            owner: word(bytes, 8),
        }
    }
}

const OPENED: u32 = 0;
const GOES_ON: u32 = 1;
const NOT_REGULAR: u32 = 2;
const OTHER_OWNER: u32 = 3;
const NO_COPY: u32 = 4;
const FAILED: u32 = 5;
const ANSWER: usize = 24;

#[derive(Copy, Clone, Default)]
struct Answer {
    status: u32,
    /// Owner or errno.
    value: u32,
    major: u32,
    minor: u32,
    inode: u64,
}

impl Answer {
    fn refusal(refusal: Refusal) -> Self {
        let (status, value) = match refusal {
            Refusal::NotRegular => (NOT_REGULAR, 0),
            Refusal::Owner(uid) => (OTHER_OWNER, uid),
            Refusal::NoCopy | Refusal::NoAnswer => (NO_COPY, 0),
            Refusal::Errno(errno) => (FAILED, errno as u32),
        };
        Self {
            status,
            value,
            ..Self::default()
        }
    }

    fn to_bytes(self) -> [u8; ANSWER] {
        let inode = self.inode;
        words([
            self.status,
            self.value,
            self.major,
            self.minor,
            inode as u32,
            (inode >> 32) as u32,
        ])
    }

    fn from_bytes(bytes: &[u8; ANSWER]) -> Self {
        Self {
            status: word(bytes, 0),
            value: word(bytes, 4),
            major: word(bytes, 8),
            minor: word(bytes, 12),
            inode: u64::from(word(bytes, 16)) | u64::from(word(bytes, 20)) << 32,
        }
    }
}

fn word(bytes: &[u8], at: usize) -> u32 {
    let rest = bytes.get(at..);
    rest.and_then(<[u8]>::first_chunk)
        .map_or(0, |b| u32::from_ne_bytes(*b))
}

fn words<const WORDS: usize, const BYTES: usize>(words: [u32; WORDS]) -> [u8; BYTES] {
    let mut bytes = [0; BYTES];
    for (to, word) in bytes.chunks_exact_mut(4).zip(words) {
        to.copy_from_slice(&word.to_ne_bytes());
    }
    bytes
}

/// The child: opens what it is asked for until the parent has gone. It keeps nothing else of the parent
/// open, so that nobody waits for the end of a pipe that it holds, and has a session of its own, so
/// that no key reaches it.
fn serve(socket: RawFd, root: RawFd) -> ! {
    // SAFETY: descriptors alone; the process's own are known and stay.
    unsafe {
        libc::setsid();
        let (low, high) = (socket.min(root), socket.max(root));
        close_range(0, i64::from(low) - 1);
        close_range(i64::from(low) + 1, i64::from(high) - 1);
        close_range(i64::from(high) + 1, i64::from(u32::MAX));
    }
    let mut message = [0; HEAD + MAX_PATH];
    loop {
        let (n, handle) = match receive(socket, &mut message) {
            Err(Errno::EINTR) => continue,
            Ok((n, handle)) if n > HEAD => (n, handle),
            // SAFETY: runs no code of the process.
            _ => unsafe { libc::_exit(0) },
        };
        let message = message.get(..n).unwrap_or_default();
        let mut copied = None;
        let (answer, file) = match answer(socket, root, message, handle, &mut copied) {
            Ok((answer, file)) => (answer, Some(file)),
            Err(refusal) => (Answer::refusal(refusal), None),
        };
        let fd = file.as_ref().map(AsRawFd::as_raw_fd);
        if send(socket, &answer.to_bytes(), fd).is_err() {
            // SAFETY: as above.
            unsafe { libc::_exit(0) };
        }
        // Its server may not answer to the closing.
        drop(copied);
    }
}

/// # Safety
///
/// Nobody uses the descriptors.
unsafe fn close_range(first: i64, last: i64) {
    if first <= last && first >= 0 {
        // SAFETY: by the caller.
        unsafe { libc::syscall(libc::SYS_close_range, first, last, 0) };
    }
}

/// In the child. `copied` is what a copy was made of.
fn answer(
    socket: RawFd,
    root: RawFd,
    message: &[u8],
    handle: Option<OwnedFd>,
    copied: &mut Option<OwnedFd>,
) -> Result<(Answer, OwnedFd), Refusal> {
    let head = Head::from_bytes(message);
    let handle = match (head.kind, handle) {
        (HANDLE, Some(handle)) => handle,
        (FOLLOW | NO_FOLLOW, None) if root >= 0 => {
            let path = message.get(HEAD..).unwrap_or_default();
            let path = CStr::from_bytes_until_nul(path).map_err(|_| Errno::EINVAL)?;
            let last = match head.kind {
                FOLLOW => OFlag::empty(),
                _ => OFlag::O_NOFOLLOW,
            };
            // SAFETY: it is open as long as the child lives.
            let root = unsafe { BorrowedFd::borrow_raw(root) };
            let how = OpenHow::new()
                .flags(OFlag::O_PATH | OFlag::O_CLOEXEC | last)
                .resolve(ResolveFlag::RESOLVE_IN_ROOT | ResolveFlag::RESOLVE_NO_MAGICLINKS);
            openat2(root, path, how)?
        }
        _ => return Err(Errno::EINVAL.into()),
    };
    let stat = fstat(&handle)?;
    if head.has_owner != 0 && stat.st_uid != head.owner && stat.st_uid != 0 {
        return Err(Refusal::Owner(stat.st_uid));
    }
    if !is_regular(&stat) {
        return Err(Refusal::NotRegular);
    }
    let file = reopen(&handle)?;
    let answer = Answer {
        status: OPENED,
        major: nix::sys::stat::major(stat.st_dev) as u32,
        minor: nix::sys::stat::minor(stat.st_dev) as u32,
        inode: stat.st_ino,
        ..Answer::default()
    };
    let kind = nix::sys::statfs::fstatfs(&file)?.filesystem_type().0;
    if COPIED.contains(&kind) {
        let size = u64::try_from(stat.st_size).unwrap_or(0);
        return Ok((answer, copy(socket, copied.insert(file), size)?));
    }
    // Whether it answers at all: wcprof waits for what answers now.
    let _ = nix::sys::uio::pread(&file, &mut [0], 0);
    Ok((answer, file))
}

/// Neither FIFO, device, socket nor directory.
pub(crate) fn is_regular(stat: &FileStat) -> bool {
    SFlag::from_bits_truncate(stat.st_mode) & SFlag::S_IFMT == SFlag::S_IFREG
}

/// Opens what a handle refers to for reading.
pub(crate) fn reopen(handle: &OwnedFd) -> Result<OwnedFd, Errno> {
    let mut path = [0; 32];
    // An integer is written without allocating.
    write!(&mut path[..], "/proc/self/fd/{}\0", handle.as_raw_fd()).map_err(|_| Errno::EINVAL)?;
    let path = CStr::from_bytes_until_nul(&path).map_err(|_| Errno::EINVAL)?;
    let flags = OFlag::O_RDONLY | OFlag::O_CLOEXEC | OFlag::O_NONBLOCK | OFlag::O_NOCTTY;
    open(path, flags, Mode::empty())
}

/// A copy that begins at its begin.
fn copy(socket: RawFd, file: &OwnedFd, size: u64) -> Result<OwnedFd, Refusal> {
    let mut last = Err(Refusal::NoCopy);
    // A file that grows is copied as far as it was.
    if size <= IN_MEMORY {
        // SAFETY: the name ends in NUL.
        let fd = unsafe { libc::memfd_create(c"wcprof-copy".as_ptr(), libc::MFD_CLOEXEC) };
        if fd >= 0 {
            // SAFETY: it is new, and nobody else's.
            last = Ok(unsafe { OwnedFd::from_raw_fd(fd) });
        }
    } else if size <= MAX_COPIED {
        // `/tmp` comes last, since it is often in memory.
        for folder in [c"/var/tmp", c"/tmp"] {
            let flags = OFlag::O_TMPFILE | OFlag::O_RDWR | OFlag::O_CLOEXEC;
            let space = nix::sys::statvfs::statvfs(folder).map_or(0, |s| {
                s.fragment_size().saturating_mul(s.blocks_available())
            });
            if last.is_err() && space >= size + LEFT_FREE {
                last = open(folder, flags, Mode::S_IRUSR | Mode::S_IWUSR).map_err(Into::into);
            }
        }
    }
    let to = last?;
    let (mut at, mut said, mut buffer) = (0, 0, [0; BUFFER]);
    while at < size {
        let n = match nix::sys::uio::pread(file, &mut buffer, at as i64) {
            Err(Errno::EINTR) => continue,
            n => n?,
        };
        let wanted = usize::try_from(size - at).unwrap_or(usize::MAX);
        let piece = buffer.get(..n.min(wanted)).unwrap_or_default();
        if piece.is_empty() {
            break;
        }
        if nix::sys::uio::pwrite(&to, piece, at as i64)? != piece.len() {
            return Err(Refusal::NoCopy);
        }
        at += piece.len() as u64;
        if at - said >= PIECE {
            said = at;
            let goes_on = Answer {
                status: GOES_ON,
                ..Answer::default()
            };
            send(socket, &goes_on.to_bytes(), None)?;
        }
    }
    Ok(to)
}

/// Room for one descriptor beside a message, aligned as its header.
#[repr(C, align(8))]
struct Control([u8; 24]);

/// Sends a message, and a descriptor with it. Allocates nothing.
fn send(socket: RawFd, bytes: &[u8], fd: Option<RawFd>) -> Result<(), Errno> {
    let mut control = Control([0; 24]);
    let mut data = libc::iovec {
        iov_base: bytes.as_ptr().cast_mut().cast(),
        iov_len: bytes.len(),
    };
    // SAFETY: all zeros is a value of it.
    let mut message: libc::msghdr = unsafe { std::mem::zeroed() };
    message.msg_iov = &mut data;
    message.msg_iovlen = 1;
    if let Some(fd) = fd {
        message.msg_control = control.0.as_mut_ptr().cast();
        message.msg_controllen = control.0.len();
        // SAFETY: the control buffer holds one header and one descriptor, and is aligned.
        unsafe {
            let header = libc::CMSG_FIRSTHDR(&message);
            (*header).cmsg_level = libc::SOL_SOCKET;
            (*header).cmsg_type = libc::SCM_RIGHTS;
            (*header).cmsg_len = libc::CMSG_LEN(size_of::<RawFd>() as u32) as usize;
            libc::CMSG_DATA(header).cast::<RawFd>().write_unaligned(fd);
        }
    }
    // SAFETY: the message refers to what lives until the call returns, and is only read.
    let sent = unsafe { libc::sendmsg(socket, &message, libc::MSG_NOSIGNAL) };
    Errno::result(sent).map(drop)
}

/// Receives a message: its length, 0 when the other side has gone, and the descriptor that came with
/// it. Allocates nothing.
fn receive(socket: RawFd, bytes: &mut [u8]) -> Result<(usize, Option<OwnedFd>), Errno> {
    let mut control = Control([0; 24]);
    let mut data = libc::iovec {
        iov_base: bytes.as_mut_ptr().cast(),
        iov_len: bytes.len(),
    };
    // SAFETY: all zeros is a value of it.
    let mut message: libc::msghdr = unsafe { std::mem::zeroed() };
    message.msg_iov = &mut data;
    message.msg_iovlen = 1;
    message.msg_control = control.0.as_mut_ptr().cast();
    message.msg_controllen = control.0.len();
    // SAFETY: the kernel writes into the two buffers, as far as their lengths say.
    let n = unsafe { libc::recvmsg(socket, &mut message, libc::MSG_CMSG_CLOEXEC) };
    let n = Errno::result(n)?;
    // SAFETY: the header is inside the control buffer as far as the kernel filled it; the descriptor
    // is new, and nobody else's.
    let fd = unsafe {
        let header = libc::CMSG_FIRSTHDR(&message);
        let has_fd = !header.is_null()
            && (*header).cmsg_level == libc::SOL_SOCKET
            && (*header).cmsg_type == libc::SCM_RIGHTS
            && (*header).cmsg_len >= libc::CMSG_LEN(size_of::<RawFd>() as u32) as usize;
        has_fd
            .then(|| OwnedFd::from_raw_fd(libc::CMSG_DATA(header).cast::<RawFd>().read_unaligned()))
    };
    Ok((n.unsigned_abs(), fd))
}
