//! `wcprof attach -- COMMAND`: a command that is started for a recording, and recorded from its beginning on.
//!
//! A process of wcprof stops itself, becomes the command when it is let go on, and is recorded from then on. It is not reaped before
//! the recording has ended, so that its number is its own: it is the only process that wcprof ever sends a signal to.

use std::ffi::{CString, OsString};
use std::io;
use std::os::unix::process::{CommandExt, ExitStatusExt};
use std::process::{Child, Command};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context, anyhow};
use clap::Args;
use nix::sys::prctl::set_pdeathsig;
use nix::sys::signal::{SigSet, Signal, kill, raise};
use nix::sys::wait::{WaitPidFlag, WaitStatus, waitpid};
use nix::unistd::{Pid, Uid, User, initgroups, setgid, setuid};
use tokio::signal::unix::SignalKind;
use wcprof_capture::Arrivals;
use wcprof_host::procfs::read_file;
use wcprof_host::{Liveness, Target};

use crate::failure::{Exit, Failure};
use crate::session::named;
use crate::signals::{ENDING, Ending, SignalWatch, at_signals};

/// How often the command is looked at, whether it has ended or runs another program: often while it begins, then seldom.
const LOOK_SOON: Duration = Duration::from_millis(1);
const LOOK_LATER: Duration = Duration::from_millis(20);
/// A process that stops itself does so within this, also on a machine that has no CPU for it.
const START_TIMEOUT: Duration = Duration::from_secs(30);
/// Exit codes of shells for a command that cannot be executed, and that is not there.
const NOT_EXECUTABLE: u8 = 126;
const NOT_FOUND: u8 = 127;
/// What a shell adds to the number of a signal that ended a command.
const BY_SIGNAL: u8 = 128;

/// Whether an exit code is that of a command that could not be run.
pub(crate) fn could_not_run(code: u8) -> bool {
    matches!(code, NOT_EXECUTABLE | NOT_FOUND)
}

/// What the process that becomes a command is told.
#[derive(Args, Debug)]
pub(crate) struct BecomeArgs {
    /// The user whose rights it takes
    #[arg(long)]
    user: Option<String>,
    /// The command and its arguments
    #[arg(last = true, required = true)]
    command: Vec<OsString>,
}

/// Waits to be let go on, and becomes the command. Returns only when that fails.
pub(crate) fn become_command(args: &BecomeArgs) -> Result<(), Failure> {
    // If wcprof ends first, there is nothing to record it.
    set_pdeathsig(Signal::SIGKILL).map_err(io::Error::from)?;
    raise(Signal::SIGSTOP).map_err(io::Error::from)?;
    set_pdeathsig(None).map_err(io::Error::from)?;
    // Those that the front process hands on are blocked in this one.
    SigSet::empty().thread_set_mask().map_err(io::Error::from)?;
    if let Some(name) = &args.user {
        become_user(name)?;
    }
    let (program, rest) = args.command.split_first().context("no command is given")?;
    let error = Command::new(program).args(rest).exec();
    message!("wcprof: failed to run `{}`: {error}", program.display());
    let code = match error.kind() {
        io::ErrorKind::NotFound => NOT_FOUND,
        _ => NOT_EXECUTABLE,
    };
    std::process::exit(i32::from(code))
}

/// Takes a user's rights, groups and no others.
fn become_user(name: &str) -> Result<(), Failure> {
    let failed = || format!("failed to take the rights of user `{name}`");
    let user = User::from_name(name).with_context(failed)?;
    let user = user.with_context(|| format!("there is no user `{name}`"))?;
    let c_name = CString::new(name).with_context(failed)?;
    initgroups(&c_name, user.gid).with_context(failed)?;
    setgid(user.gid).with_context(failed)?;
    Ok(setuid(user.uid).with_context(failed)?)
}

/// A command that waits to begin, or runs.
#[derive(Debug)]
pub(crate) struct StartedCommand {
    child: Child,
    has_begun: AtomicBool,
    /// What is to record it.
    pub(crate) arrivals: Arrivals,
}

impl StartedCommand {
    /// Starts a process that waits.
    pub(crate) fn new(command: &[OsString], user: Option<&str>) -> Result<Self, Failure> {
        if let Some(name) = user
            && !Uid::effective().is_root()
        {
            let error = anyhow!("only root can run a command as another user (`{name}`)");
            return Err(Failure::new(Exit::NotPermitted, error));
        }
        let mut waiting = Command::new("/proc/self/exe");
        waiting.arg("become-command");
        if let Some(user) = user {
            waiting.arg("--user").arg(user);
        }
        let child = waiting.arg("--").args(command).spawn();
        let child = child.context("failed to start a process for the command")?;
        let started = Self {
            child,
            has_begun: AtomicBool::new(false),
            arrivals: Arrivals::expecting(),
        };
        started.wait_until_stopped()?;
        Ok(started)
    }

    /// Its number, from before it begins until its exit code was asked for.
    pub(crate) fn pid(&self) -> wcprof_types::Pid {
        wcprof_types::Pid(self.child.id().cast_signed())
    }

    fn raw_pid(&self) -> Pid {
        Pid::from_raw(self.pid().0)
    }

    fn wait_until_stopped(&self) -> Result<(), Failure> {
        let began = Instant::now();
        loop {
            let flags = WaitPidFlag::WUNTRACED | WaitPidFlag::WNOHANG;
            match waitpid(self.raw_pid(), Some(flags)).context("failed to wait for the command")? {
                WaitStatus::Stopped(..) => return Ok(()),
                WaitStatus::StillAlive if began.elapsed() < START_TIMEOUT => {
                    thread::sleep(Duration::from_millis(1));
                }
                other => return Err(anyhow!("the command did not start: {other:?}").into()),
            }
        }
    }

    /// Lets it begin, and hands it to the recording as soon as it runs its own program, and each that it becomes later.
    pub(crate) fn begin(&self) -> anyhow::Result<()> {
        let pid = self.pid();
        let mut seen = Arc::new(Target::open(pid)?);
        kill(self.raw_pid(), Signal::SIGCONT)?;
        self.has_begun.store(true, Ordering::Relaxed);
        let arrivals = self.arrivals.clone();
        let began = Instant::now();
        let follow = move || {
            loop {
                match seen.liveness() {
                    Liveness::Same => {
                        let pause = (began.elapsed() / 20).clamp(LOOK_SOON, LOOK_LATER);
                        thread::sleep(pause);
                    }
                    Liveness::Exec => match Target::open(pid) {
                        Ok(target) => {
                            seen = Arc::new(target);
                            arrivals.push(Arc::clone(&seen));
                        }
                        Err(_) if seen.has_exited() => break,
                        Err(_) => thread::sleep(LOOK_SOON),
                    },
                    Liveness::Exited => break,
                }
            }
            arrivals.no_more();
        };
        named("wcprof-command").spawn(follow)?;
        Ok(())
    }

    /// Hands on the user's signals to the command; a second one ends the recording as that of other processes.
    pub(crate) fn at_signals(&self, ending: &Ending) -> io::Result<SignalWatch> {
        let (pid, ending) = (self.raw_pid(), ending.clone());
        let mut is_told = false;
        at_signals(&ENDING, move |kind| {
            if is_told {
                ending.signal(kind);
            }
            is_told = true;
            if !is_sent_by_terminal(kind)
                && let Ok(signal) = Signal::try_from(kind.as_raw_value())
            {
                let _ = kill(pid, signal);
            }
        })
    }

    /// Waits for the end of the command, and gives its exit code, as a shell does. One that has not begun never does.
    pub(crate) fn exit_code(mut self) -> Result<u8, Failure> {
        if !self.has_begun.load(Ordering::Relaxed) {
            self.child.kill()?;
        }
        let status = self
            .child
            .wait()
            .context("failed to wait for the command")?;
        let by_signal = status.signal().map(|signal| BY_SIGNAL + signal as u8);
        let code = status.code().map(|code| code as u8);
        Ok(code.or(by_signal).unwrap_or(1))
    }
}

/// Whether a terminal sends this signal to the command, too: it is in the process group of wcprof.
fn is_sent_by_terminal(kind: SignalKind) -> bool {
    let of_terminal = [SignalKind::interrupt(), SignalKind::quit()];
    of_terminal.contains(&kind) && is_in_foreground().unwrap_or(false)
}

/// Whether the process group of wcprof is that of the foreground of its terminal: the fifth and the eighth field of
/// `/proc/PID/stat` (proc_pid_stat(5)).
fn is_in_foreground() -> Option<bool> {
    let stat = read_file("/proc/self/stat").ok()?;
    let mut fields = stat.rsplit_once(')')?.1.split_whitespace().skip(2);
    let group = fields.next()?;
    Some(fields.nth(2)? == group)
}
