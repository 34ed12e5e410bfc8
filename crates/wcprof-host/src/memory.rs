//! The memory of live processes: `process_vm_readv(2)`, which neither stops nor writes. No other module reads it.
//!
//! The addresses are the target's choice (stack pointer, futex word, mappings), and so is what backs them: a
//! page that is registered with userfaultfd, or a file on FUSE, is read when its server answers, which may be
//! never. [`read_memory`] gives up after 2 s. The sampler, whose copies must be made between two looks at a
//! thread, calls [`read_memory_now`], and somebody watches it.

use std::io::IoSliceMut;

use nix::errno::Errno;
use nix::sys::uio::{RemoteIoVec, process_vm_readv};
use wcprof_types::{Avma, Mapping, Pid};

use crate::deadline::{Awaited, with_deadline};
use crate::procfs::live_task;

/// Where reading can be tried: memory that no file backs. (The first page of `[vvar]` may belong to no process.)
pub fn readable_address(mappings: &[Mapping]) -> Option<Avma> {
    let mut private = mappings
        .iter()
        .filter(|m| m.readable && m.is_anonymous() && !m.path.starts_with("[v"));
    private.next().map(|m| m.start)
}

/// Copies up to `out.len()` bytes from `address`; the number read is a prefix, and less when it meets a page that
/// is not mapped.
///
/// # Errors
/// When the process is gone or reading is not permitted; `ETIMEDOUT` when there is no answer within 2 s, at once
/// for a process whose memory did not answer a while ago.
pub fn read_memory(pid: Pid, address: Avma, out: &mut [u8]) -> Result<usize, Errno> {
    let mut bytes = vec![0; out.len()];
    let read = with_deadline(Awaited::Memory(pid), move || {
        let n = read_memory_now(pid, address, &mut bytes)?;
        bytes.truncate(n);
        Ok(bytes)
    });
    let bytes = read.unwrap_or(Err(Errno::ETIMEDOUT))?;
    out[..bytes.len()].copy_from_slice(&bytes);
    Ok(bytes.len())
}

/// The same on this thread, however long it takes.
///
/// # Errors
/// When the process is gone or reading is not permitted.
pub fn read_memory_now(pid: Pid, address: Avma, out: &mut [u8]) -> Result<usize, Errno> {
    let remote = RemoteIoVec {
        base: address.0 as usize,
        len: out.len(),
    };
    let mut read = |task: Pid| {
        let task = nix::unistd::Pid::from_raw(task.0);
        process_vm_readv(task, &mut [IoSliceMut::new(out)], &[remote])
    };
    match read(pid) {
        // Not even the first byte is mapped.
        Err(Errno::EFAULT) => Ok(0),
        // A main thread that has ended has no memory any more.
        Err(Errno::ESRCH) => match live_task(pid).filter(|&task| task != pid) {
            Some(task) => read(task).or_else(|error| match error {
                Errno::EFAULT => Ok(0),
                error => Err(error),
            }),
            None => Err(Errno::ESRCH),
        },
        read => read,
    }
}

#[cfg(test)]
mod tests {
    use nix::sys::mman::{MapFlags, ProtFlags, mmap_anonymous, munmap};

    use super::*;

    fn me() -> Pid {
        Pid(std::process::id() as i32)
    }

    /// Check reading this process: up to a page that is not mapped, and from there.
    #[test]
    fn own_memory() {
        const PAGE: usize = 4096;
        let two_pages = (2 * PAGE).try_into().unwrap();
        let flags = MapFlags::MAP_PRIVATE;
        let protection = ProtFlags::PROT_READ | ProtFlags::PROT_WRITE;
        // SAFETY: a new mapping, whose second page is unmapped again; nothing refers to it.
        let start = unsafe {
            let start = mmap_anonymous(None, two_pages, protection, flags).unwrap();
            munmap(start.byte_add(PAGE), PAGE).unwrap();
            start.as_ptr() as u64
        };
        let read = |address| {
            let mut out = [1; 16];
            read_memory(me(), Avma(address), &mut out).map(|n| (n, out[..n].to_vec()))
        };
        assert_eq!(read(start), Ok((16, vec![0; 16])));
        assert_eq!(read(start + 4088), Ok((8, vec![0; 8])));
        assert_eq!(read(start + 4096), Ok((0, vec![])));
    }
}
