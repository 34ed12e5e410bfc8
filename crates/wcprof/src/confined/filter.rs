//! System calls that a process may make from now on, for seccomp. All others fail with EPERM.

use std::collections::BTreeMap;
use std::fs::{self, OpenOptions};

use anyhow::{Context, ensure};
use nix::libc;
use seccompiler::{
    BpfProgram, SeccompAction, SeccompCmpArgLen, SeccompCmpOp, SeccompCondition, SeccompFilter,
    SeccompRule, TargetArch, apply_filter,
};

/// Reading what is open, computing, ending.
const COMPUTING: &[i64] = &[
    libc::SYS_read,
    libc::SYS_pread64,
    libc::SYS_close,
    libc::SYS_fstat,
    libc::SYS_newfstatat,
    libc::SYS_statx,
    libc::SYS_lseek,
    libc::SYS_mmap,
    libc::SYS_mprotect,
    libc::SYS_munmap,
    libc::SYS_mremap,
    libc::SYS_madvise,
    libc::SYS_brk,
    libc::SYS_futex,
    libc::SYS_getrandom,
    libc::SYS_clock_gettime,
    libc::SYS_clock_getres,
    libc::SYS_gettimeofday,
    libc::SYS_sched_yield,
    libc::SYS_sched_getaffinity,
    libc::SYS_getcpu,
    libc::SYS_getpid,
    libc::SYS_gettid,
    libc::SYS_rt_sigaction,
    libc::SYS_rt_sigprocmask,
    libc::SYS_rt_sigreturn,
    libc::SYS_sigaltstack,
    libc::SYS_rseq,
    libc::SYS_exit,
    libc::SYS_exit_group,
];

/// Permitted calls with the conditions of each; one without conditions is always permitted.
#[derive(Debug, Default)]
pub struct Filter(BTreeMap<i64, Vec<SeccompRule>>);

impl Filter {
    /// Permits what all confined processes do.
    pub fn computing() -> Self {
        Self::default().permit(COMPUTING)
    }

    /// Permits these calls, too.
    pub fn permit(mut self, calls: &[i64]) -> Self {
        self.0.extend(calls.iter().map(|call| (*call, Vec::new())));
        self
    }

    /// Permits a call if each of these arguments, 32 bits of it, is as stated.
    pub fn permit_if(
        mut self,
        call: i64,
        arguments: &[(u8, SeccompCmpOp, u64)],
    ) -> anyhow::Result<Self> {
        let condition = |(index, op, value): &(u8, SeccompCmpOp, u64)| {
            SeccompCondition::new(*index, SeccompCmpArgLen::Dword, op.clone(), *value)
        };
        let conditions: Result<Vec<_>, _> = arguments.iter().map(condition).collect();
        let rule = conditions.and_then(SeccompRule::new);
        let rule = rule.context("failed to build the filter")?;
        self.0.entry(call).or_default().push(rule);
        Ok(self)
    }

    /// Sets the filter for the rest of this process.
    pub fn apply(self) -> anyhow::Result<()> {
        let (refused, permitted) = (errno(libc::EPERM), SeccompAction::Allow);
        set(self.0, refused, permitted)
    }
}

/// Makes a call fail as if the kernel did not have it, whatever a filter permits.
pub fn hide(call: i64) -> anyhow::Result<()> {
    let (refused, permitted) = (errno(libc::ENOSYS), SeccompAction::Allow);
    set(BTreeMap::from([(call, Vec::new())]), permitted, refused)
}

fn errno(errno: i32) -> SeccompAction {
    SeccompAction::Errno(errno.unsigned_abs())
}

/// Sets a filter that does `listed` for these calls, and `others` for all others.
fn set(
    calls: BTreeMap<i64, Vec<SeccompRule>>,
    others: SeccompAction,
    listed: SeccompAction,
) -> anyhow::Result<()> {
    let filter = SeccompFilter::new(calls, others, listed, TargetArch::x86_64);
    let program = filter.and_then(BpfProgram::try_from);
    let program = program.context("failed to build the filter")?;
    apply_filter(&program).context("failed to set the filter")
}

/// Tries what must fail: a filter that is set but lets everything through is none.
pub fn prove() -> anyhow::Result<()> {
    let refused = |result: Result<(), std::io::Error>| {
        result.is_err_and(|error| error.raw_os_error() == Some(libc::EPERM))
    };
    let writing = OpenOptions::new().write(true).open("/dev/null").map(drop);
    let folder = fs::create_dir("/proc/wcprof-must-fail");
    let socket = std::os::unix::net::UnixDatagram::unbound().map(drop);
    let works = refused(writing) && refused(folder) && refused(socket);
    ensure!(works, "the filter of system calls does not work here");
    Ok(())
}
