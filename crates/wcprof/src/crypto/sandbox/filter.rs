//! The system calls that a confined library may make: those of reading files and of computing. All
//! others fail with EPERM.

use std::collections::BTreeMap;
use std::fs::{self, OpenOptions};

use anyhow::{Context, ensure};
use nix::libc;
use seccompiler::{
    BpfProgram, SeccompAction, SeccompCmpArgLen, SeccompCmpOp, SeccompCondition, SeccompFilter,
    SeccompRule, TargetArch, apply_filter,
};

/// Without conditions.
const ALLOWED: &[i64] = &[
    libc::SYS_read,
    libc::SYS_pread64,
    libc::SYS_close,
    libc::SYS_fstat,
    libc::SYS_newfstatat,
    libc::SYS_statx,
    libc::SYS_lseek,
    libc::SYS_readlink,
    libc::SYS_readlinkat,
    libc::SYS_getcwd,
    libc::SYS_getdents64,
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
    libc::SYS_clock_nanosleep,
    libc::SYS_nanosleep,
    libc::SYS_sched_yield,
    libc::SYS_sched_getaffinity,
    libc::SYS_sched_setaffinity,
    libc::SYS_getcpu,
    libc::SYS_getrusage,
    libc::SYS_getpid,
    libc::SYS_gettid,
    libc::SYS_getuid,
    libc::SYS_geteuid,
    libc::SYS_getgid,
    libc::SYS_getegid,
    libc::SYS_uname,
    libc::SYS_sysinfo,
    libc::SYS_rt_sigaction,
    libc::SYS_rt_sigprocmask,
    libc::SYS_rt_sigreturn,
    libc::SYS_sigaltstack,
    libc::SYS_rseq,
    libc::SYS_exit,
    libc::SYS_exit_group,
];

/// Opening for anything but reading.
const WRITING: u64 = (libc::O_WRONLY | libc::O_RDWR | libc::O_CREAT | libc::O_TRUNC) as u64;

/// Sets the filter for the rest of this process.
pub(super) fn apply() -> anyhow::Result<()> {
    let program = program().context("failed to build the filter")?;
    apply_filter(&program).context("failed to set the filter")
}

fn program() -> Result<BpfProgram, seccompiler::BackendError> {
    let mut rules: BTreeMap<i64, Vec<SeccompRule>> =
        ALLOWED.iter().map(|call| (*call, Vec::new())).collect();
    let only = |index, op, value| {
        SeccompCondition::new(index, SeccompCmpArgLen::Dword, op, value)
            .and_then(|condition| SeccompRule::new(vec![condition]))
    };
    let reading = SeccompCmpOp::MaskedEq(WRITING);
    rules.insert(libc::SYS_openat, vec![only(2, reading.clone(), 0)?]);
    rules.insert(libc::SYS_open, vec![only(1, reading, 0)?]);
    // The pipe to wcprof.
    rules.insert(libc::SYS_write, vec![only(0, SeccompCmpOp::Eq, 1)?]);
    let filter = SeccompFilter::new(
        rules,
        SeccompAction::Errno(libc::EPERM as u32),
        SeccompAction::Allow,
        TargetArch::x86_64,
    )?;
    filter.try_into()
}

/// Tries what must fail: a filter that is set but lets everything through is none.
pub(super) fn prove() -> anyhow::Result<()> {
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
