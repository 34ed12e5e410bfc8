//! Why update calls cannot be observed.

use thiserror::Error;
use wcprof_host::TargetError;
use wcprof_host::open::OpenError;

use crate::event::PerfError;

/// Why no burst was made.
#[derive(Debug, Error)]
#[non_exhaustive]
pub enum UprobeError {
    /// No such folder in sysfs.
    #[error(
        "this kernel has no uprobe events (no `{0}`): it needs Linux 4.17 with CONFIG_UPROBE_EVENTS"
    )]
    NoPmu(String),
    /// A file of sysfs that is not what the kernel documents.
    #[error("`{file}` says {text:?}, which is not understood")]
    Pmu {
        /// The file.
        file: String,
        /// What it says, cut.
        text: String,
    },
    /// EACCES or EPERM.
    #[error(
        "uprobe events are not permitted: they need CAP_SYS_ADMIN (CAP_PERFMON is enough before Linux 6.16 and its stable updates of 2025), outside of a user namespace"
    )]
    NotPermitted,
    /// No libcrypto, and no such functions in the program itself.
    #[error(
        "process {0} maps no libcrypto and its program has no symbol EVP_DecryptUpdate: it uses no OpenSSL, or one that is linked statically and stripped"
    )]
    NoLibrary(i32),
    /// The functions have the same names, but belong to BoringSSL or AWS-LC.
    #[error("`{0}` is BoringSSL or AWS-LC, not OpenSSL: Ceph's messenger does not use it")]
    NotOpenSsl(String),
    /// A library without the functions, or not a sound ELF file.
    #[error("no update functions in `{path}`: {reason}")]
    Symbols {
        /// Its path in the target.
        path: String,
        /// What is wrong with it.
        reason: String,
    },
    /// On a file system whose server may not answer.
    #[error(
        "`{0}` is on a network file system, FUSE or one that wcprof does not know, which may never answer"
    )]
    MayHang(String),
    /// The target's file cannot be opened.
    #[error(transparent)]
    File(#[from] OpenError),
    /// No thread to observe.
    #[error("process {0} has no thread of a name that is asked for")]
    NoThreads(i32),
    /// What a breakpoint would replace does not answer, or cannot be read.
    #[error(
        "the code of process {0} cannot be read, so that nothing could tell whether it is as it was: no breakpoints are put in"
    )]
    Unreadable(i32),
    /// The kernel refuses the probe.
    #[error("the kernel cannot probe `{path}` at {offset:#x}: {source}")]
    Refused {
        /// Its path in the target.
        path: String,
        /// Offset in the file.
        offset: u64,
        /// Why.
        source: std::io::Error,
    },
    /// Rings or ioctls.
    #[error(transparent)]
    Perf(#[from] PerfError),
    /// The process is gone or cannot be read.
    #[error(transparent)]
    Target(#[from] TargetError),
}

impl UprobeError {
    /// Whether this machine does not allow or support probes.
    pub fn is_circumstance(&self) -> bool {
        matches!(
            self,
            Self::NoPmu(_)
                | Self::Pmu { .. }
                | Self::NotPermitted
                | Self::Target(TargetError::NotPermitted { .. } | TargetError::Hidden(_))
        )
    }
}
