//! What a blocked thread waits in: its system call and the file behind the descriptor.

use std::collections::HashMap;
use std::fs;

use rustix::fs::{AtFlags, CWD, FileType, StatxFlags, statx};
use wcprof_types::lock::is_wait;
use wcprof_types::{Avma, FdKind, FdTarget, Pid, Tid, Wait};

use crate::procfs::{live_task, read_text};

/// Descriptors whose files' types are remembered, and bytes of their names; beyond that the memory is emptied.
const MAX_REMEMBERED: usize = 4096;
const MAX_NAMES: usize = 1 << 20;
/// Longer paths are cut.
const MAX_PATH: usize = 4096;

/// Waits of one process. A descriptor can be closed and given to another file at any time: what it
/// refers to is read for each wait, and holds only for a thread that proves not to have run since
/// it was seen in that wait. The caller asks for the proof ([`needs_proof`], [`unname`]).
#[derive(Debug, Default)]
pub struct FdCache {
    /// Types of files, which cost another system call.
    files: HashMap<i32, FdTarget>,
    /// Of those that are remembered, or were.
    n_name_bytes: usize,
}

impl FdCache {
    /// The wait of a thread blocked in system call `number` with `args`.
    pub fn wait(&mut self, tid: Tid, number: Option<u32>, args: [u64; 3]) -> Wait {
        let Some(number) = number else {
            return Wait::default();
        };
        let number = match i64::from(number) {
            libc::SYS_restart_syscall => restarted(tid).unwrap_or(number),
            _ => number,
        };
        let call = i64::from(number);
        let fd = match takes_fd(call) {
            Takes::Nothing => None,
            Takes::Epoll => Some(FdTarget {
                kind: FdKind::Anon,
                path: EPOLL.into(),
            }),
            Takes::Any => Some(self.target(tid, args[0] as i32)),
        };
        Wait {
            syscall: Some(number),
            op: match call {
                // The clock flag and the private flag stay: they tell the kind of wait.
                libc::SYS_futex | libc::SYS_ioctl => args[1] as u32,
                _ => 0,
            },
            fd,
            futex: (call == libc::SYS_futex && is_wait(args[1] as u32)).then_some(Avma(args[0])),
            kernel: String::new(),
            stop: None,
        }
    }

    fn target(&mut self, tid: Tid, fd: i32) -> FdTarget {
        let link = read_link(tid, fd);
        if let (Some(known), Some(link)) = (self.files.get(&fd), &link)
            && known.path == *link
        {
            return known.clone();
        }
        if self.files.len() >= MAX_REMEMBERED || self.n_name_bytes >= MAX_NAMES {
            self.files.clear();
            self.n_name_bytes = 0;
        }
        let target = target_of(tid, fd, link);
        self.n_name_bytes += target.path.len();
        let before = self.files.insert(fd, target.clone());
        self.n_name_bytes -= before.map_or(0, |before| before.path.len());
        target
    }
}

/// What every epoll descriptor's link names.
const EPOLL: &str = "[eventpoll]";

/// Whether the descriptor was read, which may be another file's by now, or closed.
pub fn needs_proof(wait: &Wait) -> bool {
    wait.fd.as_ref().is_some_and(|fd| fd.path != EPOLL)
}

/// Takes the name away. The type of the file stays, for the state of the wait: calls that block on
/// one descriptor number by turns for files of several types are rare.
pub fn unname(wait: &mut Wait) {
    if let Some(fd) = &mut wait.fd {
        fd.path.clear();
    }
}

/// Whether a wait in this call names nothing that has to be read while the thread waits: no file,
/// no word in memory (`futex`), and no call that goes on.
pub fn is_quiet(call: i64) -> bool {
    call != libc::SYS_futex && call != libc::SYS_restart_syscall && takes_fd(call) != Takes::Any
}

/// The call with a time limit that a thread goes on with in `restart_syscall`, since a stop or a tracer interrupted
/// it: by the function of the kernel that it waits in (`wchan`). Its arguments are still those of the call.
fn restarted(tid: Tid) -> Option<u32> {
    let place = read_text(Pid(tid.0), "wchan").ok()?;
    Some(restarted_by(&place)? as u32)
}

/// Three kinds of calls set `restart_block.fn` (include/linux/restart_block.h).
fn restarted_by(place: &str) -> Option<i64> {
    match place {
        "" | "0" => None,
        _ if place.contains("futex") => Some(libc::SYS_futex),
        _ if place.contains("poll") => Some(libc::SYS_poll),
        // `hrtimer_nanosleep`, `alarmtimer_do_nsleep`, and what calls these where they belong to the scheduler.
        _ => Some(libc::SYS_clock_nanosleep),
    }
}

/// What a call's first argument is.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
enum Takes {
    Nothing,
    /// A descriptor of epoll: any other makes the call fail at once.
    Epoll,
    /// Any descriptor.
    Any,
}

/// What the first argument of a call that can block is.
#[expect(non_upper_case_globals, reason = "names of libc")]
fn takes_fd(call: i64) -> Takes {
    use libc::{
        SYS_accept, SYS_accept4, SYS_connect, SYS_copy_file_range, SYS_epoll_pwait,
        SYS_epoll_pwait2, SYS_epoll_wait, SYS_fallocate, SYS_fcntl, SYS_fdatasync, SYS_flock,
        SYS_fsync, SYS_ftruncate, SYS_getdents64, SYS_io_uring_enter, SYS_ioctl, SYS_pread64,
        SYS_preadv, SYS_preadv2, SYS_pwrite64, SYS_pwritev, SYS_pwritev2, SYS_read, SYS_readv,
        SYS_recvfrom, SYS_recvmmsg, SYS_recvmsg, SYS_sendfile, SYS_sendmmsg, SYS_sendmsg,
        SYS_sendto, SYS_splice, SYS_sync_file_range, SYS_syncfs, SYS_write, SYS_writev,
    };

    match call {
        SYS_epoll_wait | SYS_epoll_pwait | SYS_epoll_pwait2 => Takes::Epoll,
        SYS_read | SYS_write | SYS_pread64 | SYS_pwrite64 | SYS_readv | SYS_writev | SYS_preadv
        | SYS_pwritev | SYS_preadv2 | SYS_pwritev2 | SYS_fsync | SYS_fdatasync
        | SYS_sync_file_range | SYS_fallocate | SYS_ftruncate | SYS_flock | SYS_fcntl
        | SYS_ioctl | SYS_getdents64 | SYS_recvfrom | SYS_recvmsg | SYS_recvmmsg | SYS_sendto
        | SYS_sendmsg | SYS_sendmmsg | SYS_sendfile | SYS_splice | SYS_copy_file_range
        | SYS_syncfs | SYS_accept | SYS_accept4 | SYS_connect | SYS_io_uring_enter => Takes::Any,
        _ => Takes::Nothing,
    }
}

/// What a descriptor's link names, and the file's type; nothing of the target is opened.
fn target_of(tid: Tid, fd: i32, link: Option<String>) -> FdTarget {
    let name = link.unwrap_or_default();
    let (kind, path) = match name.split_once(':') {
        Some(("socket", _)) => (FdKind::Socket, name.as_str()),
        Some(("pipe", _)) => (FdKind::Pipe, name.as_str()),
        // `[eventpoll]`, `[eventfd]`, `kvm-vcpu:0`
        Some(("anon_inode", what)) => (FdKind::Anon, what),
        _ if name.is_empty() => (FdKind::Unknown, ""),
        _ => {
            // What the kernel knows already: a network file system is not asked.
            let flags = AtFlags::STATX_DONT_SYNC;
            let stat = statx(CWD, link_of(tid, fd), flags, StatxFlags::TYPE);
            let kind = stat.map_or(FdKind::Unknown, |stat| kind_of(stat.stx_mode));
            (kind, name.as_str())
        }
    };
    FdTarget {
        kind,
        path: path.chars().take(MAX_PATH).collect(),
    }
}

/// By the thread's own folder: that of a process has no files once its main thread has ended.
fn link_of(tid: Tid, fd: i32) -> String {
    format!("/proc/{tid}/fd/{fd}")
}

fn read_link(tid: Tid, fd: i32) -> Option<String> {
    let name = fs::read_link(link_of(tid, fd)).ok()?;
    Some(name.to_string_lossy().into_owned())
}

/// How the link of a virtual machine's descriptor begins (`kvm_dev_ioctl_create_vm`).
pub(crate) const VM_LINK: &str = "anon_inode:kvm-vm";

/// Whether a process has a file for which the kernel makes threads in it: of io_uring, vhost or a virtual machine.
pub fn may_have_workers(pid: Pid) -> bool {
    has_file(pid, &["anon_inode:[io_uring]", VM_LINK, "/dev/vhost-"])
}

/// Whether a process has a file whose link begins with one of these.
pub(crate) fn has_file(pid: Pid, starts: &[&str]) -> bool {
    /// Descriptors that are looked at.
    const MAX: usize = 1 << 16;
    let fds = live_task(pid).map(|pid| fs::read_dir(format!("/proc/{pid}/fd")));
    let links = fds.into_iter().flatten().flatten().flatten().take(MAX);
    links
        .filter_map(|fd| fs::read_link(fd.path()).ok())
        .any(|link| {
            let link = link.to_string_lossy();
            starts.iter().any(|start| link.starts_with(start))
        })
}

fn kind_of(mode: u16) -> FdKind {
    match FileType::from_raw_mode(mode.into()) {
        FileType::RegularFile => FdKind::Regular,
        FileType::BlockDevice => FdKind::Block,
        FileType::CharacterDevice => FdKind::Char,
        FileType::Directory => FdKind::Directory,
        FileType::Socket => FdKind::Socket,
        FileType::Fifo => FdKind::Pipe,
        _ => FdKind::Unknown,
    }
}

#[cfg(test)]
mod tests {
    use std::os::fd::AsRawFd;

    use super::*;

    /// Check files of several kinds that this process has open.
    #[test]
    fn kinds() {
        let me = Tid(std::process::id() as i32);
        let file = tempfile::NamedTempFile::new().unwrap();
        let null = fs::File::open("/dev/null").unwrap();
        let (socket, _peer) = std::os::unix::net::UnixStream::pair().unwrap();
        let read_target = |tid, fd| target_of(tid, fd, read_link(tid, fd));
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
        let me = Tid(std::process::id() as i32);
        let mut cache = FdCache::default();
        let first = tempfile::NamedTempFile::new().unwrap();
        let fd = first.as_raw_fd();
        assert_eq!(cache.target(me, fd).path, first.path().to_string_lossy());
        let moved = first.path().with_extension("moved");
        fs::rename(first.path(), &moved).unwrap();
        assert_eq!(cache.target(me, fd).path, moved.to_string_lossy());
        fs::rename(&moved, first.path()).unwrap();
    }

    /// Check which call goes on, by `wchan` as Linux 5.10 to 6.18 have it.
    #[test]
    fn goes_on() {
        for (place, call) in [
            ("0", None),
            ("", None),
            ("futex_do_wait", Some(libc::SYS_futex)),
            ("futex_wait_queue_me", Some(libc::SYS_futex)),
            ("poll_schedule_timeout.constprop.0", Some(libc::SYS_poll)),
            ("do_sys_poll", Some(libc::SYS_poll)),
            ("hrtimer_nanosleep", Some(libc::SYS_clock_nanosleep)),
            ("do_syscall_64", Some(libc::SYS_clock_nanosleep)),
        ] {
            assert_eq!(restarted_by(place), call, "{place}");
        }
        assert!(!is_quiet(libc::SYS_restart_syscall) && is_quiet(libc::SYS_poll));
    }

    /// Check that calls without a descriptor have none, and that futex and ioctl keep their
    /// operation.
    #[test]
    fn waits() {
        let me = Tid(std::process::id() as i32);
        let mut cache = FdCache::default();
        let futex = cache.wait(me, Some(libc::SYS_futex as u32), [0x7f00, 137, 2]);
        assert_eq!((futex.op, &futex.fd), (137, &None));
        assert_eq!(futex.futex, Some(Avma(0x7f00)));
        assert_eq!(cache.wait(me, None, [0; 3]), Wait::default());
        let sleep = cache.wait(me, Some(libc::SYS_clock_nanosleep as u32), [0; 3]);
        assert_eq!(sleep.fd, None);
        let epoll = cache.wait(me, Some(libc::SYS_epoll_wait as u32), [u64::MAX; 3]);
        assert_eq!(
            epoll.fd.as_ref().map(|fd| fd.path.as_str()),
            Some("[eventpoll]")
        );
        assert!(!needs_proof(&epoll) && !needs_proof(&sleep));
        let file = fs::File::open("/dev/null").unwrap();
        let mut read = cache.wait(
            me,
            Some(libc::SYS_read as u32),
            [file.as_raw_fd() as u64; 3],
        );
        assert!(needs_proof(&read));
        unname(&mut read);
        let fd = read.fd.unwrap();
        assert_eq!((fd.kind, fd.path.as_str()), (FdKind::Char, ""));
    }
}
