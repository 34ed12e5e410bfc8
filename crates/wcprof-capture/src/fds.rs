//! What a blocked thread waits in: its system call and the file behind the descriptor.

use std::collections::HashMap;
use std::ffi::CString;
use std::fs;

use wcprof_types::lock::is_wait;
use wcprof_types::{Avma, FdKind, FdTarget, Pid, Wait};

use crate::sys::file_type;

/// Descriptors remembered; beyond that the memory is emptied.
const MAX_REMEMBERED: usize = 4096;
/// A descriptor can be closed and reused: what it refers to is read again after this long, and a
/// file's name at each wait.
const TRUST_NS: u64 = 1_000_000_000;
/// Longer paths are cut.
const MAX_PATH: usize = 4096;

/// Cache of descriptor -> file for one process.
#[derive(Debug)]
pub(crate) struct FdCache {
    pid: Pid,
    files: HashMap<i32, (u64, FdTarget)>,
}

impl FdCache {
    pub(crate) fn new(pid: Pid) -> Self {
        Self {
            pid,
            files: HashMap::new(),
        }
    }

    /// The wait of a thread blocked in system call `number` with `args`, at time `now` (ns).
    pub(crate) fn wait(&mut self, number: Option<u32>, args: [u64; 3], now: u64) -> Wait {
        let Some(number) = number else {
            return Wait::default();
        };
        let call = i64::from(number);
        Wait {
            syscall: Some(number),
            op: match call {
                // The clock flag and the private flag stay: they tell the kind of wait.
                libc::SYS_futex | libc::SYS_ioctl => args[1] as u32,
                _ => 0,
            },
            fd: takes_fd(call).then(|| self.target(args[0] as i32, now)),
            futex: (call == libc::SYS_futex && is_wait(args[1] as u32)).then_some(Avma(args[0])),
            kernel: String::new(),
        }
    }

    fn target(&mut self, fd: i32, now: u64) -> FdTarget {
        let known = self.files.get(&fd);
        let is_new = known.is_some_and(|(at, _)| now.saturating_sub(*at) < TRUST_NS);
        // Files are opened and closed quickly, and waits for them are few: of these each is asked
        // for by its link, which costs a system call. Waits for sockets and events are many.
        let is_file = |kind| !matches!(kind, FdKind::Socket | FdKind::Pipe | FdKind::Anon);
        match known {
            Some((_, target)) if is_new && !is_file(target.kind) => return target.clone(),
            Some((_, target)) if is_new => {
                let link = read_link(self.pid, fd);
                if link.is_some_and(|link| cut(&link) == target.path) {
                    return target.clone();
                }
            }
            _ => {}
        }
        if self.files.len() >= MAX_REMEMBERED {
            self.files.clear();
        }
        let target = read_target(self.pid, fd);
        self.files.insert(fd, (now, target.clone()));
        target
    }
}

/// Calls that can block and whose first argument is a descriptor.
fn takes_fd(call: i64) -> bool {
    matches!(
        call,
        libc::SYS_read
            | libc::SYS_write
            | libc::SYS_pread64
            | libc::SYS_pwrite64
            | libc::SYS_readv
            | libc::SYS_writev
            | libc::SYS_preadv
            | libc::SYS_pwritev
            | libc::SYS_preadv2
            | libc::SYS_pwritev2
            | libc::SYS_fsync
            | libc::SYS_fdatasync
            | libc::SYS_sync_file_range
            | libc::SYS_fallocate
            | libc::SYS_ftruncate
            | libc::SYS_flock
            | libc::SYS_fcntl
            | libc::SYS_ioctl
            | libc::SYS_getdents64
            | libc::SYS_recvfrom
            | libc::SYS_recvmsg
            | libc::SYS_recvmmsg
            | libc::SYS_sendto
            | libc::SYS_sendmsg
            | libc::SYS_sendmmsg
            | libc::SYS_sendfile
            | libc::SYS_splice
            | libc::SYS_copy_file_range
            | libc::SYS_syncfs
            | libc::SYS_epoll_pwait2
            | libc::SYS_accept
            | libc::SYS_accept4
            | libc::SYS_connect
            | libc::SYS_epoll_wait
            | libc::SYS_epoll_pwait
            | libc::SYS_io_uring_enter
    )
}

/// Reads the link and the file's type; nothing of the target is opened.
fn read_target(pid: Pid, fd: i32) -> FdTarget {
    let unknown = FdTarget {
        kind: FdKind::Unknown,
        path: String::new(),
    };
    let Some(name) = read_link(pid, fd) else {
        return unknown;
    };
    let (kind, path) = match name.split_once(':') {
        Some(("socket", _)) => (FdKind::Socket, name.as_str()),
        Some(("pipe", _)) => (FdKind::Pipe, name.as_str()),
        // `[eventpoll]`, `[eventfd]`, `kvm-vcpu:0`
        Some(("anon_inode", what)) => (FdKind::Anon, what),
        _ => {
            let link = CString::new(link_of(pid, fd)).ok();
            let file_type = link.and_then(|link| file_type(&link));
            (file_type.map_or(FdKind::Unknown, kind_of), name.as_str())
        }
    };
    FdTarget {
        kind,
        path: cut(path),
    }
}

fn link_of(pid: Pid, fd: i32) -> String {
    format!("/proc/{pid}/fd/{fd}")
}

fn read_link(pid: Pid, fd: i32) -> Option<String> {
    let name = fs::read_link(link_of(pid, fd)).ok()?;
    Some(name.to_string_lossy().into_owned())
}

fn kind_of(file_type: libc::mode_t) -> FdKind {
    match file_type {
        libc::S_IFREG => FdKind::Regular,
        libc::S_IFBLK => FdKind::Block,
        libc::S_IFCHR => FdKind::Char,
        libc::S_IFDIR => FdKind::Directory,
        libc::S_IFSOCK => FdKind::Socket,
        libc::S_IFIFO => FdKind::Pipe,
        _ => FdKind::Unknown,
    }
}

fn cut(path: &str) -> String {
    path.chars().take(MAX_PATH).collect()
}

#[cfg(test)]
mod tests {
    use std::os::fd::AsRawFd;

    use super::*;

    /// Check files of several kinds that this process has open.
    #[test]
    fn kinds() {
        let me = Pid(std::process::id() as i32);
        let file = tempfile::NamedTempFile::new().unwrap();
        let null = fs::File::open("/dev/null").unwrap();
        let (socket, _peer) = std::os::unix::net::UnixStream::pair().unwrap();
        let regular = read_target(me, file.as_raw_fd());
        assert_eq!(regular.kind, FdKind::Regular);
        assert_eq!(regular.path, file.path().to_string_lossy());
        assert_eq!(read_target(me, null.as_raw_fd()).kind, FdKind::Char);
        assert_eq!(read_target(me, socket.as_raw_fd()).kind, FdKind::Socket);
        assert_eq!(read_target(me, -1).kind, FdKind::Unknown);
        assert!(
            read_target(me, socket.as_raw_fd())
                .path
                .starts_with("socket:[")
        );
    }

    /// Check that a descriptor which is given to another file is noticed at once.
    #[test]
    fn reused() {
        let me = Pid(std::process::id() as i32);
        let mut cache = FdCache::new(me);
        let first = tempfile::NamedTempFile::new().unwrap();
        let fd = first.as_raw_fd();
        assert_eq!(cache.target(fd, 0).path, first.path().to_string_lossy());
        let moved = first.path().with_extension("moved");
        fs::rename(first.path(), &moved).unwrap();
        assert_eq!(cache.target(fd, 1).path, moved.to_string_lossy());
        fs::rename(&moved, first.path()).unwrap();
    }

    /// Check that calls without a descriptor have none, and that futex and ioctl keep their
    /// operation.
    #[test]
    fn waits() {
        let mut cache = FdCache::new(Pid(std::process::id() as i32));
        let futex = cache.wait(Some(libc::SYS_futex as u32), [0x7f00, 137, 2], 0);
        assert_eq!((futex.op, &futex.fd), (137, &None));
        assert_eq!(futex.futex, Some(Avma(0x7f00)));
        assert_eq!(cache.wait(None, [0; 3], 0), Wait::default());
        let sleep = cache.wait(Some(libc::SYS_clock_nanosleep as u32), [0; 3], 0);
        assert_eq!(sleep.fd, None);
    }
}
