//! A command to a child process that can be left behind, so that what the user started always ends.
//!
//! A thread that reads memory or a file whose server (FUSE) took the request and never answers waits for that
//! server, also when it is killed (`request_wait_answer`, `fs/fuse/dev.c`), and a process ends only when all
//! of its threads do. So the process that the user started only hands on signals, waits for the result of its
//! child, and ends with it. The child does everything else.
//!
//! Signals of the user reach the child as real-time signals and from nobody else: a terminal sends Ctrl-C to
//! both processes, `kill` to one, and each must count once.

use std::io::{self, PipeReader, PipeWriter, Read, Write};
use std::os::fd::AsFd;
use std::os::unix::process::ExitStatusExt;
use std::process::ExitStatus;
use std::sync::atomic::{AtomicI32, Ordering};
use std::time::{Duration, Instant};

use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use nix::sys::signal::{SigSet, Signal, raise};
use nix::sys::signalfd::{SfdFlags, SignalFd};
use nix::unistd::{ForkResult, fork};
use rustix::process::{Pid, getpid, getppid};

use crate::apart;
use crate::left;
use crate::open;
use crate::procfs::{has_runnable_thread, own_status, task_state};

/// What is handed on.
const SIGNALS: [Signal; 5] = [
    Signal::SIGHUP,
    Signal::SIGINT,
    Signal::SIGQUIT,
    Signal::SIGUSR1,
    Signal::SIGTERM,
];
/// These end what the child does, one part after the other.
const ENDS: [i32; 2] = [libc::SIGINT, libc::SIGTERM];
/// How long the child has after two of them. Then it hangs, and one more ends it.
const PATIENCE: Duration = Duration::from_secs(2);
/// A child with its result ends within this, unless one of its threads cannot.
const END_TIMEOUT: Duration = Duration::from_millis(500);

/// In the child: the process that the user started. 0 elsewhere.
static FRONT: AtomicI32 = AtomicI32::new(0);

/// The process that the user started: signals go to it.
pub fn pid() -> i32 {
    match FRONT.load(Ordering::Relaxed) {
        0 => getpid().as_raw_pid(),
        front => front,
    }
}

/// The number under which a signal of the user reaches this process.
pub fn delivered_as(signal: i32) -> i32 {
    let is_handed_on = SIGNALS.iter().any(|&of_user| of_user as i32 == signal);
    match FRONT.load(Ordering::Relaxed) {
        0 => signal,
        _ if !is_handed_on => signal,
        _ => libc::SIGRTMIN() + signal,
    }
}

/// Whether the program was started with this signal ignored.
pub fn is_ignored(signal: i32) -> bool {
    own_status().ignored >> (signal - 1) & 1 == 1
}

/// Does `work` in a child process, and gives the exit code that it gave. Must be called while the program has
/// one thread. Where no child can be started, this process does it.
pub fn run(work: impl FnOnce() -> u8) -> u8 {
    let work = || {
        apart::prepare();
        open::prepare();
        work()
    };
    let mut handed_on = SigSet::empty();
    for signal in SIGNALS {
        // `nohup`: it is to outlive its session.
        if signal != Signal::SIGHUP || !is_ignored(signal as i32) {
            handed_on.add(signal);
        }
    }
    let mut awaited = handed_on;
    awaited.add(Signal::SIGCHLD);
    let front = getpid();
    let (Ok((reader, writer)), Ok(before)) = (io::pipe(), SigSet::thread_get_mask()) else {
        return work();
    };
    let Ok(signals) =
        SignalFd::with_flags(&awaited, SfdFlags::SFD_CLOEXEC | SfdFlags::SFD_NONBLOCK)
    else {
        return work();
    };
    if awaited.thread_block().is_err() {
        return work();
    }
    // SAFETY: the program has one thread, so that the child finds no lock taken.
    match unsafe { fork() } {
        Ok(ForkResult::Child) => {
            drop((reader, signals));
            let mut mask = before;
            mask.extend(&handed_on);
            let _ = mask.thread_set_mask();
            in_child(front, writer, work)
        }
        Ok(ForkResult::Parent { child }) => {
            drop(writer);
            Pid::from_raw(child.as_raw()).map_or(1, |child| wait(child, reader, &signals))
        }
        Err(_) => {
            let _ = before.thread_set_mask();
            work()
        }
    }
}

fn in_child(front: Pid, mut result: PipeWriter, work: impl FnOnce() -> u8) -> ! {
    FRONT.store(front.as_raw_pid(), Ordering::Relaxed);
    let end = delivered_as(libc::SIGTERM);
    // SAFETY: takes a number. A front process that is killed ends the recording as SIGTERM does.
    unsafe { libc::prctl(libc::PR_SET_PDEATHSIG, end) };
    if getppid() != Some(front) {
        // It has ended before that.
        std::process::exit(1);
    }
    let code = work();
    let _ = io::stdout().flush();
    // Nobody waits for the end of a pipe that a thread without end holds open.
    for fd in 0..=2 {
        // SAFETY: nothing writes after this.
        unsafe { libc::close(fd) };
    }
    let _ = result.write_all(&[code]);
    // SAFETY: runs no code of the process; all that must be dropped was.
    unsafe { libc::_exit(i32::from(code)) }
}

/// In the front process.
fn wait(child: Pid, mut result: PipeReader, signals: &SignalFd) -> u8 {
    let (mut n_ends, mut last_end) = (0, Instant::now());
    loop {
        let mut ready = [
            PollFd::new(signals.as_fd(), PollFlags::POLLIN),
            PollFd::new(result.as_fd(), PollFlags::POLLIN),
        ];
        let _ = poll(&mut ready, PollTimeout::NONE);
        let has_result = ready[1].any().unwrap_or(false);
        let mut code = [0];
        if has_result && result.read_exact(&mut code).is_ok() {
            leave(child);
            return code[0];
        }
        let mut is_signaled = false;
        while let Ok(Some(signal)) = signals.read_signal() {
            let signal = signal.ssi_signo.cast_signed();
            if ENDS.contains(&signal) {
                if n_ends == 2 && last_end.elapsed() >= PATIENCE {
                    // SAFETY: as below.
                    unsafe { libc::kill(child.as_raw_pid(), libc::SIGKILL) };
                    leave(child);
                    return 128 + signal as u8;
                }
                if n_ends < 2 {
                    (n_ends, last_end) = (n_ends + 1, Instant::now());
                }
            }
            if signal != libc::SIGCHLD {
                is_signaled = true;
                // SAFETY: takes numbers. The child is not waited for yet: its number is its own.
                unsafe { libc::kill(child.as_raw_pid(), libc::SIGRTMIN() + signal) };
            }
        }
        if let Some(status) = ended(child, Duration::ZERO) {
            return exit_code(status);
        }
        // Somebody killed a child that cannot end.
        if is_signaled && is_zombie(child) {
            return ended(child, END_TIMEOUT).map_or(128 + libc::SIGKILL as u8, exit_code);
        }
    }
}

/// Waits for the child's end, but for no other's.
fn leave(child: Pid) {
    while ended(child, END_TIMEOUT).is_none() {
        // It only has no CPU, or much memory.
        if has_runnable_thread(wcprof_types::Pid(child.as_raw_pid())) {
            continue;
        }
        let _ = writeln!(
            io::stderr(),
            "wcprof: process {child} is left behind: it ends when the file server that it waits for answers or ends"
        );
        return;
    }
}

/// How the child ended, if it does within this.
fn ended(child: Pid, timeout: Duration) -> Option<ExitStatus> {
    left::wait(wcprof_types::Pid(child.as_raw_pid()), timeout).ok()?
}

/// Its first thread has ended.
fn is_zombie(child: Pid) -> bool {
    task_state(&child.as_raw_pid().to_string()) == Some('Z')
}

/// Ends as the child did, if by a signal of the user.
fn exit_code(status: ExitStatus) -> u8 {
    let Some(signal) = status.signal() else {
        return status.code().unwrap_or(1) as u8;
    };
    let of_user = signal - libc::SIGRTMIN();
    match SIGNALS.into_iter().find(|s| *s as i32 == of_user) {
        Some(signal) => {
            let _ = SigSet::from(signal).thread_unblock();
            let _ = raise(signal);
            128 + of_user as u8
        }
        None => {
            let _ = writeln!(
                io::stderr(),
                "wcprof: ended by signal {signal}, which nobody sent through it; please report this if it is not the kernel's doing (out of memory)"
            );
            128 + signal as u8
        }
    }
}
