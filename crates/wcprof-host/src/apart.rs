//! Child processes that inherit no file of a target.
//!
//! A child closes all that it inherits before the program that it executes begins (`do_close_on_exec`, `fs/file.c`), and a file
//! server may be asked for it (`fuse_flush`, `fs/fuse/file.c`): one that does not answer would hold the child, and whoever
//! waits for its beginning. So a thread starts them whose table of descriptors is from before any such file was opened.

use std::cell::Cell;
use std::io;
use std::os::fd::{AsRawFd, BorrowedFd, OwnedFd};
use std::sync::OnceLock;
use std::sync::mpsc::{Sender, channel};
use std::thread;

use rustix::io::fcntl_dupfd_cloexec;
use rustix::process::{PidfdFlags, PidfdGetfdFlags, getpid, pidfd_getfd, pidfd_open};

/// `include/uapi/linux/close_range.h`
const CLOSE_RANGE_UNSHARE: u32 = 2;
/// After input, output and messages.
const FIRST: i32 = 3;

type Work = Box<dyn FnOnce() + Send>;

thread_local! {
    /// Whether this thread has a table of its own.
    static IS_APART: Cell<bool> = const { Cell::new(false) };
}

/// Starts the thread. Later, files that are open already are inherited.
pub(crate) fn prepare() -> Option<&'static Sender<Work>> {
    static STARTER: OnceLock<Option<Sender<Work>>> = OnceLock::new();
    let start = || {
        let (to, work) = channel::<Work>();
        let (ready, waits) = channel::<()>();
        let thread = thread::Builder::new().name("wcprof-starts".to_owned());
        let run = move || {
            block_signals();
            IS_APART.set(leave_table());
            drop(ready);
            work.iter().for_each(|work| work());
        };
        thread.spawn(run).ok()?;
        let _ = waits.recv();
        Some(to)
    };
    STARTER.get_or_init(start).as_ref()
}

/// Does work on a thread that has a table of descriptors of its own, where the kernel has that (Linux 5.9) and permits it. The
/// work may use no descriptor of this process but the one that it is given, none of its own leaves it, and it waits for nothing.
/// Its children are those of that thread, which does not end before the process; they have to unblock SIGXCPU.
///
/// # Errors
/// When there is no such thread.
pub fn apart<T: Send + 'static>(
    given: Option<BorrowedFd<'_>>,
    work: impl FnOnce(Option<OwnedFd>) -> T + Send + 'static,
) -> io::Result<T> {
    let number = given.map(|given| given.as_raw_fd());
    let (to, done) = channel();
    let work: Work = Box::new(move || {
        let _ = to.send(work(number.and_then(take)));
    });
    let starter = prepare().ok_or_else(|| io::Error::other("there can be no more threads"))?;
    let sent = starter.send(work);
    sent.map_err(|_| io::ErrorKind::BrokenPipe)?;
    done.recv().map_err(io::Error::other)
}

/// A copy of a descriptor of this process in the table of this thread.
fn take(number: i32) -> Option<OwnedFd> {
    if IS_APART.get() {
        return of_process(number);
    }
    // SAFETY: its owner waits until it has been taken.
    let shared = unsafe { BorrowedFd::borrow_raw(number) };
    fcntl_dupfd_cloexec(shared, FIRST).ok()
}

fn of_process(number: i32) -> Option<OwnedFd> {
    // Its first thread has the table of the process.
    let process = pidfd_open(getpid(), PidfdFlags::empty()).ok()?;
    pidfd_getfd(process, number, PidfdGetfdFlags::empty()).ok()
}

/// A handler would write to a descriptor that this thread does not have. Children have the same mask.
fn block_signals() {
    let of_front = libc::SIGRTMIN()..=libc::SIGRTMAX();
    // SAFETY: a set of signals is numbers, and is this function's.
    unsafe {
        let mut set = std::mem::zeroed();
        libc::sigemptyset(&mut set);
        for signal in of_front.chain([libc::SIGXCPU]) {
            libc::sigaddset(&mut set, signal);
        }
        libc::pthread_sigmask(libc::SIG_BLOCK, &set, std::ptr::null_mut());
    }
}

/// Gives this thread a table with nothing but input, output and messages, if it can take others into it.
fn leave_table() -> bool {
    let is_possible = || {
        let process = pidfd_open(getpid(), PidfdFlags::empty()).ok()?;
        of_process(process.as_raw_fd())
    };
    // SAFETY: other threads keep theirs, and this one has no descriptor yet. Refused, it shares theirs.
    let leave =
        || unsafe { libc::syscall(libc::SYS_close_range, FIRST, u32::MAX, CLOSE_RANGE_UNSHARE) };
    is_possible().is_some() && leave() == 0
}

#[cfg(test)]
mod tests {
    use std::fs::{File, read_link};
    use std::io::Read;
    use std::os::fd::AsFd;

    use super::*;

    /// Check that the work has the descriptor that it is given, and no other one.
    #[test]
    fn table() {
        prepare();
        let others = tempfile::tempfile().unwrap();
        let (mut reader, writer) = io::pipe().unwrap();
        let number = others.as_raw_fd();
        let work = move |given: Option<OwnedFd>| {
            let mut given = File::from(given.unwrap());
            io::Write::write_all(&mut given, b"given").unwrap();
            read_link(format!("/proc/thread-self/fd/{number}")).ok()
        };
        let before = read_link(format!("/proc/thread-self/fd/{number}")).unwrap();
        let seen = apart(Some(writer.as_fd()), work).unwrap();
        drop(writer);
        let mut text = String::new();
        reader.read_to_string(&mut text).unwrap();
        assert_eq!(text, "given");
        // SAFETY: changes nothing.
        let is_known = unsafe { libc::syscall(libc::SYS_close_range, u32::MAX, u32::MAX, 0) } == 0;
        assert_eq!(seen.as_ref() != Some(&before), is_known, "{seen:?}");
        assert!(apart(None, |given| given.is_none()).unwrap());
    }
}
