//! What a blocked thread waits in: its system call and the file behind the descriptor.

use std::collections::HashMap;
use std::ffi::CString;
use std::fs;

use wcprof_types::{FdKind, FdTarget, Pid, Wait};

use crate::sys::file_type;

/// Descriptors remembered; beyond that the memory is emptied.
const MAX_REMEMBERED: usize = 4096;
/// A descriptor can be closed and reused: what it refers to is read again after this long.
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
            kernel: String::new(),
        }
    }

    fn target(&mut self, fd: i32, now: u64) -> FdTarget {
        if let Some((read_at, target)) = self.files.get(&fd)
            && now.saturating_sub(*read_at) < TRUST_NS
        {
            return target.clone();
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
    let link = format!("/proc/{pid}/fd/{fd}");
    let Ok(name) = fs::read_link(&link) else {
        return unknown;
    };
    let name = name.to_string_lossy();
    let kind = match name.split_once(':') {
        Some(("socket", _)) => FdKind::Socket,
        Some(("pipe", _)) => FdKind::Pipe,
        Some(("anon_inode", _)) => FdKind::Anon,
        _ => {
            let file_type = CString::new(link).ok().and_then(|link| file_type(&link));
            return FdTarget {
                kind: file_type.map_or(FdKind::Unknown, kind_of),
                path: cut(&name),
            };
        }
    };
    FdTarget { kind, ..unknown }
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
    }

    /// Check that calls without a descriptor have none, and that futex and ioctl keep their
    /// operation.
    #[test]
    fn waits() {
        let mut cache = FdCache::new(Pid(std::process::id() as i32));
        let futex = cache.wait(Some(libc::SYS_futex as u32), [0x7f00, 137, 2], 0);
        assert_eq!((futex.op, &futex.fd), (137, &None));
        assert_eq!(cache.wait(None, [0; 3], 0), Wait::default());
        let sleep = cache.wait(Some(libc::SYS_clock_nanosleep as u32), [0; 3], 0);
        assert_eq!(sleep.fd, None);
    }
}
