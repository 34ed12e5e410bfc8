//! The process that reads what others wrote, symbols and DWARF (`wcprof-symbols/src/confined`) or a file to import
//! (`wcprof-import/src/confined`): it gives up all rights, and reads what it is given on its standard input, a socket.
//!
//! Each step is taken as far as it can be: root becomes nobody in an empty root folder; another user has
//! no right to that, or only in a user namespace. What could be done is told to the parent.

use std::ffi::OsStr;
use std::fs::File;
use std::io;
use std::os::fd::AsFd;
use std::os::unix::net::UnixStream;
use std::os::unix::process::{CommandExt, ExitStatusExt};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Mutex, Once, PoisonError};
use std::time::{Duration, Instant};

use anyhow::Context;
use clap::Args;
use nix::libc;
use nix::sched::{CloneFlags, unshare};
use nix::sys::prctl::{set_no_new_privs, set_pdeathsig};
use nix::sys::resource::{Resource, getrlimit, setrlimit};
use nix::sys::signal::{Signal, kill};
use nix::unistd::{Pid, Uid, chdir, chroot, fchdir};
use seccompiler::SeccompCmpOp;
use wcprof_capture::give_way;
use wcprof_host::clock::process_cpu_ns;
use wcprof_host::procfs::has_runnable_thread;
use wcprof_host::sys::{has_users_of_host, keep_capabilities};
use wcprof_host::{apart, left};
use wcprof_import::run_confined_import;
use wcprof_symbols::{ConfinedProcess, Confinement, Ended, SymbolOptions, run_confined};

use super::filter::{Filter, hide, prove};
use super::process;
use super::rights::{self, NOBODY};
use crate::failure::Failure;

/// Memory beside what the user permits: symbol tables, a decoder, stacks, the names themselves.
const BASE_MEMORY: u64 = 512 << 20;
const MEMORY_PER_THREAD: u64 = 64 << 20;
/// Addresses that each thread's allocator reserves without using them.
const RESERVED_PER_THREAD: u64 = 256 << 20;
/// A file gives as much again as it has bytes, twice, for tables that are held whole; but no more than this.
const MAX_MEMORY_PER_FILE: u64 = 2 << 30;
/// CPU time before any file, for each file, and for each MiB of it, seconds. Real ones take some hundredths.
const BASE_SECONDS: u64 = 60;
const SECONDS_PER_FILE: u64 = 5;
/// CPU time of an import, seconds: a packed file says nothing of how much is in it, and 128 GiB are read.
const IMPORT_SECONDS: u64 = 1200;
const SECONDS_PER_MIB: u64 = 4;
/// However large a file is, it gives no more CPU time than this: enough for some tens of GiB.
const MAX_SECONDS_PER_FILE: u64 = 1200;
/// A process that takes no CPU time for this long, and waits neither for a CPU nor for wcprof, waits for a file system.
const MAX_REST: Duration = Duration::from_secs(10);
/// A killed process has ended by then, or waits for such a file system.
const MAX_ENDING: Duration = Duration::from_secs(2);
const OPEN_FILES: u64 = 1024;
/// Tables that do not fit into memory go into files that the parent makes.
const MAX_FILE: u64 = 8 << 30;

/// What it calls beyond computing: its socket, its threads, files of the parent.
const CALLS: &[i64] = &[
    libc::SYS_recvmsg,
    libc::SYS_recvfrom,
    libc::SYS_sendmsg,
    libc::SYS_sendto,
    libc::SYS_shutdown,
    libc::SYS_write,
    libc::SYS_fcntl,
    libc::SYS_set_robust_list,
];

/// What the process may use.
#[derive(Args, Debug)]
pub struct ReaderArgs {
    /// Bytes that `--max-memory` permits
    max_memory: u64,
    /// Threads
    n_threads: u64,
}

/// Runs in the process that reads symbols and DWARF.
pub fn run_namer(args: &ReaderArgs) -> Result<(), Failure> {
    let (socket, limits) = (own_socket()?, Limits::new(args, BASE_SECONDS));
    let confinement = confine(&limits);
    let on_file = Box::new(move |size| limits.grow(size));
    run_confined(socket, &confinement, on_file).map_err(Failure::from)
}

/// Runs in the process that imports a file.
pub fn run_importer(args: &ReaderArgs) -> Result<(), Failure> {
    let (socket, limits) = (own_socket()?, Limits::new(args, IMPORT_SECONDS));
    let confinement = confine(&limits);
    let on_file = move |size| limits.grow(size);
    run_confined_import(&socket, &confinement, &on_file).map_err(Failure::from)
}

/// Leaves what it has of its parent but the socket.
fn own_socket() -> Result<UnixStream, Failure> {
    rights::leave_parent()?;
    let socket = io::stdin().as_fd().try_clone_to_owned();
    Ok(UnixStream::from(socket?))
}

/// Takes each step, and says which held.
fn confine(limits: &Limits) -> Confinement {
    let mut confinement = Confinement::default();
    let mut step = |name: &str, result: anyhow::Result<()>| match result {
        Ok(()) => confinement.in_force.push(name.to_owned()),
        Err(error) => confinement.missing.push(format!("{name}: {error:#}")),
    };
    let is_root = Uid::effective().is_root();
    step("an empty root folder", empty_root(is_root));
    if is_root {
        step("user nobody", rights::become_user(NOBODY, NOBODY, &[]));
    }
    step("no capabilities", drop_capabilities());
    // Cleared by the change of user, so it is set now.
    let follows = set_pdeathsig(Signal::SIGKILL).context("failed to follow the end of wcprof");
    step("ends with wcprof", follows);
    step("limits of memory and CPU time", limits.set());
    let no_more = set_no_new_privs().context("failed to give up new privileges");
    step("no new privileges", no_more);
    let calls = filter().and_then(Filter::apply).and_then(|()| prove());
    step("system calls (seccomp)", calls);
    confinement
}

/// Makes an empty folder, which has no name any more, its root. Who is not root may do that in a user
/// namespace of its own.
fn empty_root(is_root: bool) -> anyhow::Result<()> {
    let folder = tempfile::tempdir().context("failed to make a folder")?;
    let handle = File::open(folder.path()).context("failed to open a folder")?;
    folder.close().context("failed to remove a folder")?;
    if !is_root {
        unshare(CloneFlags::CLONE_NEWUSER).context("failed to make a user namespace")?;
    }
    fchdir(&handle).context("failed to enter a folder")?;
    chroot(".").context("failed to change the root")?;
    chdir("/").context("failed to enter the root")
}

fn drop_capabilities() -> anyhow::Result<()> {
    keep_capabilities(0).context("failed to give up capabilities")
}

fn filter() -> anyhow::Result<Filter> {
    // Its flags are in memory, where no filter sees them: the C library falls back to `clone`.
    hide(libc::SYS_clone3)?;
    let eq = || SeccompCmpOp::Eq;
    let thread = libc::CLONE_THREAD as u64;
    let abort = Signal::SIGABRT as u64;
    Filter::computing()
        .permit(CALLS)
        .permit(&[libc::SYS_clone3])
        .permit_if(
            libc::SYS_clone,
            &[(0, SeccompCmpOp::MaskedEq(thread), thread)],
        )?
        .permit_if(libc::SYS_prctl, &[(0, eq(), libc::PR_SET_NAME as u64)])?
        // Its own limits, up to the hard ones.
        .permit_if(libc::SYS_prlimit64, &[(0, eq(), 0)])?
        .permit_if(
            libc::SYS_tgkill,
            &[(0, eq(), u64::from(std::process::id())), (2, eq(), abort)],
        )
}

/// Limits that grow with the files.
struct Limits {
    n_threads: u64,
    /// Memory, bytes, and CPU time, seconds.
    now: Mutex<(u64, u64)>,
}

impl Limits {
    fn new(args: &ReaderArgs, seconds: u64) -> Self {
        let of_threads = args.n_threads.saturating_mul(MEMORY_PER_THREAD);
        let memory = args.max_memory.saturating_mul(2);
        let memory = memory.saturating_add(of_threads + BASE_MEMORY);
        Self {
            n_threads: args.n_threads,
            now: Mutex::new((memory, seconds)),
        }
    }

    fn set(&self) -> anyhow::Result<()> {
        rights::limit(&[
            (Resource::RLIMIT_NOFILE, OPEN_FILES, OPEN_FILES),
            (Resource::RLIMIT_FSIZE, MAX_FILE, MAX_FILE),
            (Resource::RLIMIT_CORE, 0, 0),
        ])?;
        self.apply(*self.now.lock().unwrap_or_else(PoisonError::into_inner))
    }

    /// Permits what a file of this size needs.
    fn grow(&self, size: u64) {
        let mut now = self.now.lock().unwrap_or_else(PoisonError::into_inner);
        let (memory, seconds) = needs(size);
        now.0 = now.0.saturating_add(memory);
        now.1 = now.1.saturating_add(seconds);
        // Without more it ends earlier, and the parent says why.
        let _ = self.apply(*now);
    }

    fn apply(&self, (memory, seconds): (u64, u64)) -> anyhow::Result<()> {
        let reserved = self.n_threads.saturating_mul(RESERVED_PER_THREAD);
        for (resource, soft) in [
            (Resource::RLIMIT_DATA, memory),
            (
                Resource::RLIMIT_AS,
                memory.saturating_add(reserved).saturating_mul(2),
            ),
            (Resource::RLIMIT_CPU, seconds),
        ] {
            let (_, hard) = getrlimit(resource).context("failed to read a limit")?;
            setrlimit(resource, soft.min(hard), hard).context("failed to set a limit")?;
        }
        Ok(())
    }
}

/// Memory, bytes, and CPU time, seconds, that a file of this size may need.
fn needs(size: u64) -> (u64, u64) {
    let memory = size.saturating_mul(2).min(MAX_MEMORY_PER_FILE);
    let seconds = SECONDS_PER_FILE + (size >> 20) * SECONDS_PER_MIB;
    (memory, seconds.min(MAX_SECONDS_PER_FILE))
}

/// What a confined process is for.
#[derive(Copy, Clone, Debug)]
pub(crate) enum ConfinedWork {
    /// It tells names; with a pace, as one that others do not notice.
    Names(Option<Pace>),
    /// It imports a file.
    Import,
}

/// Starts a confined process that talks on `socket`.
pub(crate) fn start(
    socket: UnixStream,
    options: &SymbolOptions,
    work: ConfinedWork,
) -> io::Result<Box<dyn ConfinedProcess>> {
    let (name, pace, n_threads) = match work {
        ConfinedWork::Names(pace) => ("confined-names", pace, options.threads),
        ConfinedWork::Import => ("confined-import", None, 1),
    };
    let (memory, threads) = (options.max_memory.to_string(), n_threads.to_string());
    if !left::has_room() {
        return Err(io::Error::new(
            io::ErrorKind::ResourceBusy,
            "too many others wait for file systems that do not answer",
        ));
    }
    let child = apart(Some(socket.as_fd()), move |socket| {
        let args = [name, &memory, &threads].map(OsStr::new);
        let mut command = process::command(&args);
        // Signals of the terminal are for wcprof: the first Ctrl-C ends the recording alone.
        command.process_group(0);
        let child = socket.ok_or_else(|| io::Error::from(io::ErrorKind::InvalidInput));
        child.and_then(|socket| command.stdin(socket).spawn())
    })??;
    let pid = Pid::from_raw(child.id().cast_signed());
    if pace.is_some() {
        // Before it is told what to do. Without that it has its pace.
        give_way(pid);
    }
    Ok(Box::new(ReaderProcess {
        pid,
        pace,
        rest: Mutex::new(Rest::new()),
        is_silent: AtomicBool::new(false),
    }))
}

/// What confines that process here.
pub(crate) fn confinement() -> io::Result<Confinement> {
    let options = SymbolOptions::default();
    wcprof_symbols::confinement(&|socket| start(socket, &options, ConfinedWork::Names(None)))
}

/// How much CPU time a process may take, as a line over time.
#[derive(Copy, Clone, Debug)]
pub(crate) struct Pace {
    /// When it had none yet.
    pub(crate) since: Instant,
    /// CPUs at a time.
    pub(crate) share: f64,
}

impl Pace {
    fn permits(self, taken: Duration) -> bool {
        taken <= self.since.elapsed().mul_f64(self.share)
    }
}

/// Since when a process has not moved on.
struct Rest {
    since: Instant,
    /// CPU time that it had taken by then.
    taken: Duration,
}

impl Rest {
    fn new() -> Self {
        Self {
            since: Instant::now(),
            taken: Duration::ZERO,
        }
    }

    /// Whether it has lasted too long. With `may_rest` the process waits for nobody but wcprof.
    fn is_too_long(&mut self, taken: Duration, may_rest: bool) -> bool {
        if may_rest || taken != self.taken {
            (self.since, self.taken) = (Instant::now(), taken);
        }
        self.since.elapsed() >= MAX_REST
    }
}

struct ReaderProcess {
    /// Its end is waited for by [`ConfinedProcess::end`]: until then the number is its own.
    pid: Pid,
    pace: Option<Pace>,
    rest: Mutex<Rest>,
    /// It did not get on.
    is_silent: AtomicBool,
}

impl ConfinedProcess for ReaderProcess {
    fn kill(&self) {
        // Fails only when it is gone already.
        let _ = kill(self.pid, Signal::SIGKILL);
    }

    fn note(&self, confinement: &Confinement) {
        static ONCE: Once = Once::new();
        let missing = confinement.missing.join("; ");
        // Others have few rights that a hostile file would gain.
        let is_root = Uid::effective().is_root() && has_users_of_host();
        if is_root && !missing.is_empty() {
            ONCE.call_once(|| {
                message!(
                    "wcprof: the process that reads files of others is confined less than it should be (`wcprof check`): {missing}"
                );
            });
        }
    }

    fn tick(&self, is_answered: bool) -> bool {
        let child = wcprof_types::Pid(self.pid.as_raw());
        let Ok(taken) = process_cpu_ns(child).map(Duration::from_nanos) else {
            return true;
        };
        let is_stopped = self.pace.is_some_and(|pace| !pace.permits(taken));
        if self.pace.is_some() {
            let signal = match is_stopped {
                true => Signal::SIGSTOP,
                false => Signal::SIGCONT,
            };
            let _ = kill(self.pid, signal);
        }
        let mut rest = self.rest.lock().unwrap_or_else(PoisonError::into_inner);
        if !rest.is_too_long(taken, is_answered || is_stopped) {
            return true;
        }
        // It may have no CPU.
        let waits = !has_runnable_thread(child);
        rest.is_too_long(taken, !waits);
        self.is_silent.fetch_or(waits, Ordering::Relaxed);
        !waits
    }

    fn end(self: Box<Self>) -> Ended {
        let child = wcprof_types::Pid(self.pid.as_raw());
        let status = left::end(child, MAX_ENDING);
        let signal = match &status {
            Ok(Some(status)) => status.signal(),
            _ => None,
        };
        let is_silent = self.is_silent.load(Ordering::Relaxed);
        // Else it only has no CPU.
        let is_left = matches!(status, Ok(None)) && !has_runnable_thread(child);
        let how = match (
            signal.and_then(|signal| Signal::try_from(signal).ok()),
            status,
        ) {
            _ if is_silent => format!(
                "did not get on for {} s: a file system does not answer",
                MAX_REST.as_secs()
            ),
            (Some(Signal::SIGABRT), _) => {
                "needed more memory than its limit, or found an error in itself (SIGABRT)".into()
            }
            (Some(Signal::SIGXCPU), _) => {
                "took more CPU time than files of this size need (SIGXCPU)".into()
            }
            (_, Ok(Some(status))) => format!("ended early ({status})"),
            (_, Ok(None)) => format!("did not end within {} s", MAX_ENDING.as_secs()),
            (_, Err(error)) => format!("was lost: {error}"),
        };
        Ended {
            how,
            is_silent,
            child: (is_silent || is_left).then_some(child),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Check that a process which takes no CPU time is given up, unless it waits for wcprof.
    #[test]
    fn rest() {
        let mut rest = Rest::new();
        let mut after = |wait, taken, may_rest| {
            rest.since -= wait;
            rest.is_too_long(Duration::from_secs(taken), may_rest)
        };
        assert!(!after(MAX_REST, 1, false));
        assert!(!after(MAX_REST / 2, 1, false));
        assert!(!after(MAX_REST, 1, true));
        assert!(!after(MAX_REST / 2, 1, false));
        assert!(after(MAX_REST / 2, 1, false));
    }

    /// Check that limits grow with the size of a file, and that no size lifts them.
    #[test]
    fn limits_of_a_file() {
        assert_eq!(needs(0), (0, SECONDS_PER_FILE));
        assert_eq!(needs(3 << 20), (6 << 20, SECONDS_PER_FILE + 12));
        let most = (MAX_MEMORY_PER_FILE, MAX_SECONDS_PER_FILE);
        assert_eq!([1 << 43, 1 << 60, u64::MAX].map(needs), [most; 3]);
    }
}
