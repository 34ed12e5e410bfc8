//! The `bpf(2)` commands that the engine needs: maps, one of them in our memory, programs, running
//! one, iterator links with a process filter, and one iterator file after the other from the same
//! link.

use std::ffi::CStr;
use std::fs::File;
use std::io::{self, ErrorKind, Read};
use std::marker::PhantomData;
use std::ops::{Deref, DerefMut};
use std::os::fd::{AsRawFd, BorrowedFd, FromRawFd, OwnedFd};
use std::ptr::NonNull;

use aya_obj::Map as MapDefinition;
use aya_obj::generated::{
    BPF_F_SLEEPABLE, bpf_attach_type, bpf_attr,
    bpf_attr__bindgen_ty_14__bindgen_ty_3__bindgen_ty_1 as iterator_info, bpf_cmd, bpf_insn,
    bpf_prog_type,
};
use wcprof_types::Pid;
use zerocopy::{Immutable, IntoBytes};

use super::shared::Shared;
use wcprof_host::sys::map;

/// Where a program runs.
#[derive(Copy, Clone, Debug)]
pub(super) enum ProgramKind {
    /// In an iterator; the type id of its function in the kernel's BTF.
    Iterator { function: u32, sleepable: bool },
    /// On samples of perf events.
    PerfEvent,
    /// When told to, by [`run_program`].
    Syscall,
}

/// Creates an empty map.
pub(super) fn create_map(map: &MapDefinition) -> io::Result<OwnedFd> {
    let mut attr = no_attr();
    attr.__bindgen_anon_1.map_type = map.map_type();
    attr.__bindgen_anon_1.key_size = map.key_size();
    attr.__bindgen_anon_1.value_size = map.value_size();
    attr.__bindgen_anon_1.max_entries = map.max_entries();
    attr.__bindgen_anon_1.map_flags = map.map_flags();
    // SAFETY: `attr` holds what BPF_MAP_CREATE reads, and no addresses.
    unsafe { open(bpf_cmd::BPF_MAP_CREATE, &mut attr) }
}

/// A map whose keys are 4 bytes and whose values are of type `V`.
#[derive(Debug)]
pub(super) struct Map<V>(OwnedFd, PhantomData<fn(V)>);

impl<V: IntoBytes + Immutable> Map<V> {
    /// `None` when the map was created with other sizes.
    pub(super) fn new(fd: OwnedFd, map: &MapDefinition) -> Option<Self> {
        let fits = map.key_size() == 4 && map.value_size() as usize == size_of::<V>();
        fits.then_some(Self(fd, PhantomData))
    }

    /// Sets one entry.
    pub(super) fn set(&self, key: i32, value: &V) -> io::Result<()> {
        let mut attr = self.element(&key);
        attr.__bindgen_anon_2.__bindgen_anon_1.value = std::ptr::from_ref(value) as u64;
        // SAFETY: the kernel reads as many bytes as the map's keys and values have, which `new` compared
        // with those of `key` and `V`; both outlive the call.
        unsafe { bpf(bpf_cmd::BPF_MAP_UPDATE_ELEM, &mut attr) }.map(drop)
    }

    /// Removes an entry; `ENOENT` when there is none.
    pub(super) fn remove(&self, key: i32) -> io::Result<()> {
        // SAFETY: the kernel reads the 4 bytes of `key`, which outlives the call.
        unsafe { bpf(bpf_cmd::BPF_MAP_DELETE_ELEM, &mut self.element(&key)) }.map(drop)
    }

    fn element(&self, key: &i32) -> bpf_attr {
        let mut attr = no_attr();
        attr.__bindgen_anon_2.map_fd = self.0.as_raw_fd().cast_unsigned();
        attr.__bindgen_anon_2.key = std::ptr::from_ref(key) as u64;
        attr
    }
}

/// Has the kernel verify and load a program. What its verifier says goes to `log`, when given.
pub(super) fn load_program(
    kind: ProgramKind,
    instructions: &[bpf_insn],
    license: &CStr,
    log: Option<&mut [u8]>,
) -> io::Result<OwnedFd> {
    let (prog_type, sleepable) = match kind {
        ProgramKind::Iterator { sleepable, .. } => {
            (bpf_prog_type::BPF_PROG_TYPE_TRACING, sleepable)
        }
        ProgramKind::PerfEvent => (bpf_prog_type::BPF_PROG_TYPE_PERF_EVENT, false),
        ProgramKind::Syscall => (bpf_prog_type::BPF_PROG_TYPE_SYSCALL, true),
    };
    let mut attr = no_attr();
    attr.__bindgen_anon_3.prog_type = prog_type as u32;
    attr.__bindgen_anon_3.prog_flags = u32::from(sleepable) * BPF_F_SLEEPABLE;
    attr.__bindgen_anon_3.insn_cnt = instructions.len() as u32;
    attr.__bindgen_anon_3.insns = instructions.as_ptr() as u64;
    attr.__bindgen_anon_3.license = license.as_ptr() as u64;
    if let ProgramKind::Iterator { function, .. } = kind {
        attr.__bindgen_anon_3.expected_attach_type = bpf_attach_type::BPF_TRACE_ITER as u32;
        attr.__bindgen_anon_3.attach_btf_id = function;
    }
    if let Some(log) = log {
        attr.__bindgen_anon_3.log_level = 1;
        attr.__bindgen_anon_3.log_size = log.len() as u32;
        attr.__bindgen_anon_3.log_buf = log.as_mut_ptr() as u64;
    }
    // SAFETY: the instructions, the license and the log are of the lengths given and outlive the call.
    unsafe { open(bpf_cmd::BPF_PROG_LOAD, &mut attr) }
}

/// Runs a program of [`ProgramKind::Syscall`] once, to its end. It writes to its `memory`.
pub(super) fn run_program(program: BorrowedFd<'_>, _memory: &mut SharedMemory) -> io::Result<()> {
    let mut attr = no_attr();
    attr.test.prog_fd = program.as_raw_fd().cast_unsigned();
    // SAFETY: `attr` is what BPF_PROG_TEST_RUN reads and writes, and holds no addresses; nobody reads the
    // memory that the program writes to.
    unsafe { bpf(bpf_cmd::BPF_PROG_TEST_RUN, &mut attr) }.map(drop)
}

/// The one value of the map `shared`, in our memory. Programs write it only while [`run_program`] or
/// [`read_iterator`] runs them.
#[derive(Debug)]
pub(super) struct SharedMemory(NonNull<Shared>);

impl SharedMemory {
    /// Maps the value of a map created with `BPF_F_MMAPABLE` and with one value of this length.
    pub(super) fn new(fd: &OwnedFd) -> io::Result<Self> {
        let protection = libc::PROT_READ | libc::PROT_WRITE;
        let start = map(fd, size_of::<Shared>(), protection, libc::MAP_SHARED)?;
        Ok(Self(start.cast()))
    }
}

impl Deref for SharedMemory {
    type Target = Shared;

    fn deref(&self) -> &Shared {
        // SAFETY: the mapping is as large as a `Shared`, for which any bytes are valid, and aligned to a
        // page; programs that write it need `self` mutably.
        unsafe { self.0.as_ref() }
    }
}

impl DerefMut for SharedMemory {
    fn deref_mut(&mut self) -> &mut Shared {
        // SAFETY: as above.
        unsafe { self.0.as_mut() }
    }
}

impl Drop for SharedMemory {
    fn drop(&mut self) {
        // SAFETY: the mapping is ours, and nothing borrows it any more.
        unsafe { libc::munmap(self.0.as_ptr().cast(), size_of::<Shared>()) };
    }
}

// SAFETY: the memory is not bound to a thread.
unsafe impl Send for SharedMemory {}

/// Attaches the iterator program `program`, to the threads of `pid` alone when given.
///
/// Kernels without the filter answer `E2BIG` or `EINVAL`, or (6.0) ignore it: look at the records.
pub(super) fn create_iterator_link(
    program: BorrowedFd<'_>,
    pid: Option<Pid>,
) -> io::Result<OwnedFd> {
    // `union bpf_iter_link_info`: a thread, a process, a pidfd, and the rest of the union.
    let threads_of: [u32; 4] = [0, pid.map_or(0, |pid| pid.0.cast_unsigned()), 0, 0];
    let mut attr = no_attr();
    attr.link_create.__bindgen_anon_1.prog_fd = program.as_raw_fd().cast_unsigned();
    attr.link_create.attach_type = bpf_attach_type::BPF_TRACE_ITER as u32;
    if pid.is_some() {
        attr.link_create.__bindgen_anon_3.__bindgen_anon_1 = iterator_info {
            iter_info: threads_of.as_ptr() as u64,
            iter_info_len: size_of_val(&threads_of) as u32,
        };
    }
    // SAFETY: the address is 0 or of `threads_of`, with its length, which outlives the call.
    unsafe { open(bpf_cmd::BPF_LINK_CREATE, &mut attr) }
}

/// Opens a new pass of the iterator behind `link`.
pub(super) fn create_iterator(link: BorrowedFd<'_>) -> io::Result<File> {
    let mut attr = no_attr();
    attr.iter_create.link_fd = link.as_raw_fd().cast_unsigned();
    // SAFETY: `attr` is what BPF_ITER_CREATE reads, and holds no addresses.
    unsafe { open(bpf_cmd::BPF_ITER_CREATE, &mut attr) }.map(File::from)
}

/// Lets an iterator go on until its `memory`, which it writes to, is full; false when it is at its end.
pub(super) fn read_iterator(mut iterator: &File, _memory: &mut SharedMemory) -> io::Result<bool> {
    match iterator.read(&mut [0]) {
        Ok(n) => Ok(n > 0),
        // EAGAIN: a million threads of others were visited without a record.
        Err(e) if matches!(e.kind(), ErrorKind::Interrupted | ErrorKind::WouldBlock) => Ok(true),
        Err(e) => Err(e),
    }
}

fn no_attr() -> bpf_attr {
    // SAFETY: a union of plain integers, for which zero bytes are valid.
    unsafe { std::mem::zeroed() }
}

/// Calls `bpf(2)` with a command that returns a new descriptor.
///
/// # Safety
///
/// As for [`bpf`], and `command` returns a new descriptor.
unsafe fn open(command: bpf_cmd, attr: &mut bpf_attr) -> io::Result<OwnedFd> {
    // SAFETY: the caller's duty.
    let fd = unsafe { bpf(command, attr) }?;
    // SAFETY: the command returned this descriptor to us alone.
    Ok(unsafe { OwnedFd::from_raw_fd(fd) })
}

/// Calls `bpf(2)`.
///
/// # Safety
///
/// Addresses in `attr` are of memory that the command may access.
unsafe fn bpf(command: bpf_cmd, attr: &mut bpf_attr) -> io::Result<i32> {
    // SAFETY: `attr` is valid for its size; the rest is the caller's duty.
    let result = unsafe {
        libc::syscall(
            libc::SYS_bpf,
            command as libc::c_long,
            std::ptr::from_mut(attr),
            size_of::<bpf_attr>(),
        )
    };
    match i32::try_from(result) {
        Ok(result) if result >= 0 => Ok(result),
        _ => Err(io::Error::last_os_error()),
    }
}
