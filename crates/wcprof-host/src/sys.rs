//! System calls that no crate wraps safely, one function each, and wcprof's own capabilities.

use std::ffi::CStr;
use std::io;
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};
use std::ptr::NonNull;

use wcprof_types::Pid;

use crate::procfs::parse_status;

/// A descriptor of a process: becomes readable when the whole thread group has exited.
pub(crate) fn pidfd_open(pid: Pid) -> io::Result<OwnedFd> {
    // SAFETY: no memory arguments.
    let fd = unsafe { libc::syscall(libc::SYS_pidfd_open, pid.0, 0) };
    if fd < 0 {
        return Err(io::Error::last_os_error());
    }
    // SAFETY: the call returned a new descriptor (it fits an int) that nobody else owns.
    Ok(unsafe { OwnedFd::from_raw_fd(fd as i32) })
}

/// Maps the first `len` bytes of a file where the kernel likes. `protection` and `flags` are those of
/// `mmap(2)`, without `MAP_FIXED`. The caller unmaps them.
///
/// # Errors
/// Those of `mmap(2)`.
pub fn map(
    file: &impl AsRawFd,
    len: usize,
    protection: libc::c_int,
    flags: libc::c_int,
) -> io::Result<NonNull<u8>> {
    debug_assert_eq!(flags & libc::MAP_FIXED, 0);
    let fd = file.as_raw_fd();
    // SAFETY: a new mapping at an address of the kernel's choice.
    let start = unsafe { libc::mmap(std::ptr::null_mut(), len, protection, flags, fd, 0) };
    match NonNull::new(start.cast::<u8>()) {
        Some(start) if start.as_ptr().cast() != libc::MAP_FAILED => Ok(start),
        _ => Err(io::Error::last_os_error()),
    }
}

/// Type bits of what a path leads to, from what the kernel knows already: a network file system is
/// not asked (`AT_STATX_DONT_SYNC`).
pub(crate) fn file_type(path: &CStr) -> Option<libc::mode_t> {
    let mut stat = std::mem::MaybeUninit::<libc::statx>::zeroed();
    // SAFETY: `path` ends with NUL, `stat` is large enough for the kernel to write a statx into.
    let done = unsafe {
        libc::statx(
            libc::AT_FDCWD,
            path.as_ptr(),
            libc::AT_STATX_DONT_SYNC,
            libc::STATX_TYPE,
            stat.as_mut_ptr(),
        )
    };
    // SAFETY: zeroed bytes are a valid statx, and the call has overwritten some of them at most.
    let stat = unsafe { stat.assume_init() };
    (done == 0).then(|| libc::mode_t::from(stat.stx_mode) & libc::S_IFMT)
}

/// Numbers of capabilities (`include/uapi/linux/capability.h`).
pub const CAP_SYS_PTRACE: u32 = 19;
/// Likewise.
pub const CAP_SYS_ADMIN: u32 = 21;
/// Likewise.
pub const CAP_PERFMON: u32 = 38;
/// Likewise.
pub const CAP_BPF: u32 = 39;

/// Whether wcprof holds a capability in its own user namespace.
pub fn has_capability(number: u32) -> bool {
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    parse_status(&status).cap_eff >> number & 1 == 1
}
