//! Mapping of a file into wcprof's memory, and wcprof's own capabilities.

use std::io;
use std::os::fd::AsRawFd;
use std::ptr::NonNull;

use rustix::thread::{
    CapabilitySet, CapabilitySets, capabilities, set_capabilities, set_no_new_privs,
};

use crate::deadline::end_caller;
use crate::procfs::{own_status, read_file};

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

/// May read memory and maps of other users' processes (`include/uapi/linux/capability.h`).
pub const CAP_SYS_PTRACE: u32 = 19;
/// Includes the two below.
pub const CAP_SYS_ADMIN: u32 = 21;
/// May open perf events on other users' processes and on CPUs.
pub const CAP_PERFMON: u32 = 38;
/// May load BPF programs.
pub const CAP_BPF: u32 = 39;

/// Whether user numbers here are those of the host: not in a user namespace, whose root has few rights.
pub fn has_users_of_host() -> bool {
    are_of_host(&read_file("/proc/self/uid_map").unwrap_or_default())
}

/// Whether the numbers of a `/proc/PID/uid_map` (`user_namespaces(7)`) are, or it has none.
pub fn are_of_host(uid_map: &str) -> bool {
    let ids: Vec<&str> = uid_map.split_whitespace().collect();
    ids.is_empty() || ids == ["0", "0", "4294967295"]
}

/// Returns memory that was freed to the kernel. glibc keeps it, in an arena for each thread, for as long as anything behind it is in
/// use; other libraries need no such call.
pub fn return_freed_memory() {
    #[cfg(target_env = "gnu")]
    // SAFETY: it takes no pointers, and locks each arena that it goes through.
    unsafe {
        libc::malloc_trim(0);
    }
}

/// Drops all capabilities of the calling thread but those of the mask (bit 0: `CAP_CHOWN`), and of the thread that
/// reads memory for it, for good: no program that they run gets one back.
///
/// # Errors
/// Those of `capset(2)` and `prctl(2)`; to drop is always permitted.
pub fn keep_capabilities(mask: u64) -> io::Result<()> {
    end_caller();
    let mask = CapabilitySet::from_bits_retain(mask);
    let held = capabilities(None)?;
    set_no_new_privs(true)?;
    let kept = CapabilitySets {
        effective: held.effective & mask,
        permitted: held.permitted & mask,
        inheritable: CapabilitySet::empty(),
    };
    Ok(set_capabilities(None, kept)?)
}

/// Whether wcprof holds a capability in its own user namespace.
pub fn has_capability(number: u32) -> bool {
    own_status().cap_eff >> number & 1 == 1
}
