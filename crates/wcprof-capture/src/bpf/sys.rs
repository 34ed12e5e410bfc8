//! The `bpf(2)` commands that aya does not offer: iterator links with a process filter, and one
//! iterator file after the other from the same link.

use std::fs::File;
use std::io;
use std::mem::size_of;
use std::os::fd::{AsRawFd, BorrowedFd, FromRawFd, OwnedFd};

use wcprof_types::Pid;

const BPF_LINK_CREATE: libc::c_long = 28;
const BPF_ITER_CREATE: libc::c_long = 33;
const BPF_TRACE_ITER: u32 = 28;

/// `bpf_attr.link_create` of an iterator (`include/uapi/linux/bpf.h`).
#[repr(C)]
struct LinkCreate {
    prog_fd: u32,
    target_fd: u32,
    attach_type: u32,
    flags: u32,
    /// Address of an [`IterLinkInfo`], or 0.
    iter_info: u64,
    iter_info_len: u32,
    pad: u32,
}

/// `union bpf_iter_link_info`, its member `task`, padded to the union's size.
#[repr(C)]
struct IterLinkInfo {
    tid: u32,
    /// Only the threads of this process, as numbered in the caller's pid namespace.
    pid: u32,
    pid_fd: u32,
    pad: u32,
}

/// `bpf_attr.iter_create`.
#[repr(C)]
struct IterCreate {
    link_fd: u32,
    flags: u32,
}

/// Attaches the iterator program `prog`, to the threads of `pid` alone when given.
///
/// Kernels without the filter answer `E2BIG` or `EINVAL`, or (6.0) ignore it: look at the records.
pub(super) fn create_iter_link(prog: BorrowedFd<'_>, pid: Option<Pid>) -> io::Result<OwnedFd> {
    let info = pid.map(|pid| IterLinkInfo {
        tid: 0,
        pid: pid.0.cast_unsigned(),
        pid_fd: 0,
        pad: 0,
    });
    let attr = LinkCreate {
        prog_fd: prog.as_raw_fd().cast_unsigned(),
        target_fd: 0,
        attach_type: BPF_TRACE_ITER,
        flags: 0,
        iter_info: info
            .as_ref()
            .map_or(0, |info| std::ptr::from_ref(info) as u64),
        iter_info_len: info
            .as_ref()
            .map_or(0, |_| size_of::<IterLinkInfo>() as u32),
        pad: 0,
    };
    // SAFETY: `attr` begins with the fields that BPF_LINK_CREATE reads, and `iter_info` is 0 or
    // the address of `info` with its length; both outlive the call.
    unsafe { bpf(BPF_LINK_CREATE, &attr) }
}

/// Opens a new pass of the iterator behind `link`.
pub(super) fn create_iter(link: BorrowedFd<'_>) -> io::Result<File> {
    let attr = IterCreate {
        link_fd: link.as_raw_fd().cast_unsigned(),
        flags: 0,
    };
    // SAFETY: `attr` is what BPF_ITER_CREATE reads and holds no addresses.
    unsafe { bpf(BPF_ITER_CREATE, &attr) }.map(File::from)
}

/// Calls `bpf(2)` with a command that returns a new descriptor.
///
/// # Safety
///
/// 1. `T` has the layout that `command` reads, without padding bytes.
/// 2. Addresses in `attr` are of memory that the command may access.
/// 3. `command` returns a new descriptor.
unsafe fn bpf<T>(command: libc::c_long, attr: &T) -> io::Result<OwnedFd> {
    // SAFETY: `attr` is valid for its size; the rest is the caller's duty.
    let fd = unsafe {
        libc::syscall(
            libc::SYS_bpf,
            command,
            std::ptr::from_ref(attr),
            size_of::<T>(),
        )
    };
    let fd = i32::try_from(fd).map_err(io::Error::other)?;
    if fd < 0 {
        return Err(io::Error::last_os_error());
    }
    // SAFETY: the command returned this descriptor to us alone.
    Ok(unsafe { OwnedFd::from_raw_fd(fd) })
}
