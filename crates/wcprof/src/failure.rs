//! How a command fails: exit code, message, hint.

use std::fmt;
use std::io;

use wcprof_capture::StartError;
use wcprof_host::TargetError;
use wcprof_trace::TraceError;
use wcprof_types::Pid;

/// Exit codes, as `wcprof --help` states them.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub enum Exit {
    /// Anything else.
    Failure = 1,
    /// Wrong usage.
    Usage = 2,
    /// No such target.
    NoTarget = 3,
    /// Not permitted.
    NotPermitted = 4,
    /// Unreadable trace.
    BadTrace = 5,
}

/// A failed command.
#[derive(Debug)]
pub struct Failure {
    /// The exit code.
    pub exit: Exit,
    /// What failed, on what, and why.
    pub error: anyhow::Error,
    /// What to do next.
    pub hint: Option<String>,
}

impl Failure {
    /// Without a hint.
    pub fn new(exit: Exit, error: impl Into<anyhow::Error>) -> Self {
        Self {
            exit,
            error: error.into(),
            hint: None,
        }
    }

    /// A failure that is the user's to mend.
    pub fn usage(error: impl Into<anyhow::Error>) -> Self {
        Self::new(Exit::Usage, error)
    }

    /// Says what was being done.
    pub fn context(mut self, text: impl fmt::Display + Send + Sync + 'static) -> Self {
        self.error = self.error.context(text);
        self
    }

    /// Says what to do next.
    pub fn hint(mut self, hint: impl Into<String>) -> Self {
        self.hint = Some(hint.into());
        self
    }

    /// The reader of our output has gone (`wcprof report | head`): no failure.
    pub fn is_broken_pipe(&self) -> bool {
        let mut causes = self
            .error
            .chain()
            .filter_map(|c| c.downcast_ref::<io::Error>());
        causes.any(|e| e.kind() == io::ErrorKind::BrokenPipe)
    }
}

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        // Some errors tell their cause in their own text: it is not said twice.
        let mut text = String::new();
        for cause in self.error.chain().map(ToString::to_string) {
            if !text.contains(&cause) {
                let separator = if text.is_empty() { "" } else { ": " };
                text = format!("{text}{separator}{cause}");
            }
        }
        write!(f, "wcprof: {text}")?;
        if let Some(hint) = &self.hint {
            write!(f, "\nhint: {hint}")?;
        }
        Ok(())
    }
}

impl From<anyhow::Error> for Failure {
    fn from(error: anyhow::Error) -> Self {
        Self::new(Exit::Failure, error)
    }
}

impl From<io::Error> for Failure {
    fn from(error: io::Error) -> Self {
        Self::new(Exit::Failure, error)
    }
}

impl From<TargetError> for Failure {
    fn from(error: TargetError) -> Self {
        let exit = match error {
            TargetError::NotPermitted { .. } | TargetError::Hidden(_) => Exit::NotPermitted,
            TargetError::Io { .. } => Exit::Failure,
            _ => Exit::NoTarget,
        };
        let try_pid = |pid: &Pid, more: &str| format!("try `wcprof attach {pid}`{more}");
        let hint = match &error {
            TargetError::NoSuchProcess(_) => {
                "`pgrep -a NAME` lists pids; wcprof takes the pid that this shell sees".into()
            }
            TargetError::OtherPidNamespace { hosts, .. } => {
                let hint = hosts.first().map(|pid| try_pid(pid, ""));
                hint.unwrap_or_default()
            }
            TargetError::IsThread { pid, .. } => {
                try_pid(pid, ", with --threads to keep only threads of one name")
            }
            TargetError::KernelThread(_) => {
                "kernel threads are seen by `perf record -g -p PID`".into()
            }
            TargetError::NotPermitted { .. } => {
                "`wcprof check PID` says which engines work with the present privileges".into()
            }
            TargetError::Hidden(_) => {
                "run as root or with CAP_SYS_PTRACE, or join the group of the mount option gid="
                    .into()
            }
            _ => String::new(),
        };
        Self {
            hint: Some(hint).filter(|hint| !hint.is_empty()),
            ..Self::new(exit, error)
        }
    }
}

impl From<StartError> for Failure {
    fn from(error: StartError) -> Self {
        if matches!(error, StartError::Ended(_)) {
            return Self::new(Exit::NoTarget, error);
        }
        Self::new(Exit::NotPermitted, error)
            .hint("`wcprof check PID` says what works here and what to do about the rest")
    }
}

impl From<TraceError> for Failure {
    fn from(error: TraceError) -> Self {
        let exit = match error {
            TraceError::Foreign { .. }
            | TraceError::Version { .. }
            | TraceError::Features { .. }
            | TraceError::Empty
            | TraceError::DamagedAtBeginning { .. }
            | TraceError::Malformed { .. } => Exit::BadTrace,
            _ => Exit::Failure,
        };
        Self::new(exit, error)
    }
}
