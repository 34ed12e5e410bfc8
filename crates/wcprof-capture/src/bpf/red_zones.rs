//! The memory below the stack pointers of timer samples. perf copies a stack from its pointer upward; functions without
//! calls may keep what unwinding needs below it. The program that filters samples puts it into memory of this.

use std::collections::HashMap;
use std::io;
use std::mem::offset_of;
use std::os::fd::OwnedFd;
use std::ptr::NonNull;
use std::sync::atomic::{Ordering, fence};

use wcprof_host::sys::map;
use wcprof_types::{RED_ZONE, UserRegs};

/// Samples of a CPU that are kept.
const RED_ZONES: usize = 32;

/// Below the stack pointer of one sample; the struct of `bpf/wcprof.h`.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
#[repr(C)]
pub(super) struct RedZone {
    pub(super) ip: u64,
    /// 0 where it could not be read.
    pub(super) sp: u64,
    pub(super) host_tid: i32,
    pub(super) pad: u32,
    pub(super) bytes: [u8; RED_ZONE],
}

/// The last samples of a CPU; the struct of `bpf/wcprof.h`.
#[derive(Debug)]
#[repr(C)]
pub(super) struct CpuRedZones {
    /// Samples so far.
    pub(super) n: u64,
    /// Each at its number modulo [`RED_ZONES`].
    pub(super) zones: [RedZone; RED_ZONES],
}

/// The values of the map `red_zones`, in our memory: one a CPU, which programs write at any time.
#[derive(Debug)]
pub(super) struct RedZones {
    start: NonNull<CpuRedZones>,
    n_cpus: usize,
    /// Samples of each CPU that come before those that were not asked for yet.
    taken: HashMap<u32, u64>,
}

// SAFETY: the memory is not bound to a thread.
unsafe impl Send for RedZones {}

impl RedZones {
    /// Maps the values of a map that was created with `BPF_F_MMAPABLE` and has so many of them.
    pub(super) fn new(fd: &OwnedFd, n_cpus: usize) -> io::Result<Self> {
        let len = n_cpus * size_of::<CpuRedZones>();
        Ok(Self {
            start: map(fd, len, libc::PROT_READ, libc::MAP_SHARED)?.cast(),
            n_cpus,
            taken: HashMap::new(),
        })
    }

    /// That of the next sample of a CPU with this thread and these registers. Samples are asked for in order, but not
    /// each: those before it are passed over.
    pub(super) fn find(
        &mut self,
        cpu: u32,
        host_tid: i32,
        regs: &UserRegs,
    ) -> Option<[u8; RED_ZONE]> {
        let n = self.count(cpu)?;
        let taken = self.taken.get(&cpu).copied().unwrap_or_default();
        let oldest = n.saturating_sub(RED_ZONES as u64 - 1);
        let is_of =
            |zone: &RedZone| (zone.host_tid, zone.ip, zone.sp) == (host_tid, regs.ip.0, regs.sp.0);
        let mut numbered = (taken.max(oldest)..n).map(|at| (at, self.zone(cpu, at)));
        let (at, zone) = numbered.find(|(_, zone)| is_of(zone))?;
        fence(Ordering::Acquire);
        // Else it was written again meanwhile.
        let is_whole = self.count(cpu)? < at + RED_ZONES as u64;
        self.taken.insert(cpu, at + 1);
        is_whole.then_some(zone.bytes)
    }

    /// Samples of a CPU so far.
    fn count(&self, cpu: u32) -> Option<u64> {
        let cpu = usize::try_from(cpu).ok().filter(|&cpu| cpu < self.n_cpus)?;
        // SAFETY: the CPU has a value in the mapping, which lives as long as `self`; the field is aligned, and any bytes
        // are a number.
        let n = unsafe {
            let value = self.start.as_ptr().add(cpu).cast::<u8>();
            value
                .add(offset_of!(CpuRedZones, n))
                .cast::<u64>()
                .read_volatile()
        };
        fence(Ordering::Acquire);
        Some(n)
    }

    /// A copy of a sample's entry, which may be written meanwhile.
    fn zone(&self, cpu: u32, at: u64) -> RedZone {
        let cpu = (cpu as usize).min(self.n_cpus - 1);
        // SAFETY: as above; the index is one of the value's array, and any bytes are a `RedZone`.
        unsafe {
            let value = self.start.as_ptr().add(cpu).cast::<u8>();
            let zones = value.add(offset_of!(CpuRedZones, zones)).cast::<RedZone>();
            zones.add(at as usize % RED_ZONES).read_volatile()
        }
    }
}

impl Drop for RedZones {
    fn drop(&mut self) {
        let len = self.n_cpus * size_of::<CpuRedZones>();
        // SAFETY: the mapping is ours, and nothing borrows it any more.
        unsafe { libc::munmap(self.start.as_ptr().cast(), len) };
    }
}
