//! The `bpf(2)` commands that the engine needs: maps, one of them in our memory, programs, running
//! one, iterator links with a process filter, and one iterator file after the other from the same
//! link.

use std::ffi::CStr;
use std::fs::File;
use std::io;
use std::mem::size_of;
use std::ops::Range;
use std::os::fd::{AsRawFd, BorrowedFd, FromRawFd, OwnedFd};
use std::ptr::NonNull;

use aya_obj::generated::bpf_insn;
use wcprof_types::Pid;

use crate::sys::{system_call, word};
use wcprof_host::sys::map;

const BPF_MAP_CREATE: libc::c_long = 0;
const BPF_MAP_UPDATE_ELEM: libc::c_long = 2;
const BPF_MAP_DELETE_ELEM: libc::c_long = 3;
const BPF_PROG_LOAD: libc::c_long = 5;
const BPF_PROG_TEST_RUN: libc::c_long = 10;
const BPF_LINK_CREATE: libc::c_long = 28;
const BPF_ITER_CREATE: libc::c_long = 33;
const BPF_TRACE_ITER: u32 = 28;
const BPF_PROG_TYPE_PERF_EVENT: u32 = 7;
const BPF_PROG_TYPE_TRACING: u32 = 26;
const BPF_PROG_TYPE_SYSCALL: u32 = 31;

/// The program may sleep, for instance to read a page of another process.
const BPF_F_SLEEPABLE: u32 = 1 << 4;

/// A map to create.
#[repr(C)]
#[derive(Debug)]
pub(super) struct MapSpec {
    pub(super) map_type: u32,
    pub(super) key_size: u32,
    pub(super) value_size: u32,
    pub(super) max_entries: u32,
    pub(super) flags: u32,
}

/// `bpf_attr` of `BPF_MAP_UPDATE_ELEM` and `BPF_MAP_DELETE_ELEM`.
#[repr(C)]
struct MapUpdate {
    map_fd: u32,
    pad: u32,
    key: u64,
    value: u64,
    flags: u64,
}

/// A program to load.
#[derive(Debug)]
pub(super) struct ProgramSpec<'a> {
    pub(super) kind: ProgramKind,
    pub(super) instructions: &'a [bpf_insn],
    pub(super) license: &'a CStr,
}

/// Where a program runs.
#[derive(Copy, Clone, Debug)]
pub(super) enum ProgramKind {
    /// An iterator; the type id of its function in the kernel's BTF.
    Iterator { function: u32, sleepable: bool },
    /// On samples of perf events.
    PerfEvent,
    /// When told to, by [`run_program`].
    Syscall,
}

/// `bpf_attr` of `BPF_PROG_LOAD`, to `attach_btf_id`.
#[repr(C)]
#[derive(Default)]
struct ProgLoad {
    prog_type: u32,
    insn_cnt: u32,
    insns: u64,
    license: u64,
    log_level: u32,
    log_size: u32,
    log_buf: u64,
    kern_version: u32,
    prog_flags: u32,
    prog_name: [u8; 16],
    prog_ifindex: u32,
    expected_attach_type: u32,
    prog_btf_fd: u32,
    func_info_rec_size: u32,
    func_info: u64,
    func_info_cnt: u32,
    line_info_rec_size: u32,
    line_info: u64,
    line_info_cnt: u32,
    attach_btf_id: u32,
    attach_prog_fd: u32,
    pad: u32,
}

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

/// Creates an empty map.
pub(super) fn create_map(spec: &MapSpec) -> io::Result<OwnedFd> {
    // SAFETY: `spec` is the beginning of what BPF_MAP_CREATE reads and holds no addresses.
    unsafe { bpf(BPF_MAP_CREATE, spec) }
}

/// Sets one entry of a map whose keys and values have these lengths.
///
/// # Errors
/// Those of the call. `EINVAL` for lengths that are not the map's.
pub(super) fn update_map<const K: usize, const V: usize>(
    map: &Map<K, V>,
    key: &[u8; K],
    value: &[u8; V],
) -> io::Result<()> {
    let attr = MapUpdate {
        map_fd: map.0.as_raw_fd().cast_unsigned(),
        pad: 0,
        key: key.as_ptr() as u64,
        value: value.as_ptr() as u64,
        flags: 0,
    };
    // SAFETY: the kernel reads as many bytes as the map's keys and values have, which `Map::new`
    // compared with `K` and `V`; both outlive the call.
    unsafe { call(BPF_MAP_UPDATE_ELEM, &attr) }.map(drop)
}

/// Takes the entry of `key` out of the map.
///
/// # Errors
/// Those of the call; `ENOENT` when there is none.
pub(super) fn delete_from_map<const K: usize, const V: usize>(
    map: &Map<K, V>,
    key: &[u8; K],
) -> io::Result<()> {
    let attr = MapUpdate {
        map_fd: map.0.as_raw_fd().cast_unsigned(),
        pad: 0,
        key: key.as_ptr() as u64,
        value: 0,
        flags: 0,
    };
    // SAFETY: the kernel reads as many bytes as the map's keys have, which `Map::new` compared with
    // `K`; the key outlives the call.
    unsafe { call(BPF_MAP_DELETE_ELEM, &attr) }.map(drop)
}

/// A map whose keys have `K` bytes and whose values have `V`.
#[derive(Debug)]
pub(super) struct Map<const K: usize, const V: usize>(OwnedFd);

impl<const K: usize, const V: usize> Map<K, V> {
    /// `None` when the map was created with other lengths.
    pub(super) fn new(fd: OwnedFd, spec: &MapSpec) -> Option<Self> {
        let fits = spec.key_size as usize == K && spec.value_size as usize == V;
        fits.then_some(Self(fd))
    }
}

/// Has the kernel verify and load a program. What its verifier says goes to `log`, when given.
pub(super) fn load_program(spec: &ProgramSpec<'_>, log: Option<&mut [u8]>) -> io::Result<OwnedFd> {
    let (prog_type, prog_flags, expected_attach_type, attach_btf_id) = match spec.kind {
        ProgramKind::Iterator {
            function,
            sleepable,
        } => (
            BPF_PROG_TYPE_TRACING,
            if sleepable { BPF_F_SLEEPABLE } else { 0 },
            BPF_TRACE_ITER,
            function,
        ),
        ProgramKind::PerfEvent => (BPF_PROG_TYPE_PERF_EVENT, 0, 0, 0),
        ProgramKind::Syscall => (BPF_PROG_TYPE_SYSCALL, BPF_F_SLEEPABLE, 0, 0),
    };
    let (log_level, log_size, log_buf) = match log {
        Some(log) => (1, log.len() as u32, log.as_mut_ptr() as u64),
        None => (0, 0, 0),
    };
    let attr = ProgLoad {
        prog_type,
        insn_cnt: spec.instructions.len() as u32,
        insns: spec.instructions.as_ptr() as u64,
        license: spec.license.as_ptr() as u64,
        log_level,
        log_size,
        log_buf,
        prog_flags,
        expected_attach_type,
        attach_btf_id,
        ..ProgLoad::default()
    };
    // SAFETY: `attr` has the layout that BPF_PROG_LOAD reads; the instructions, the license and
    // the log are of the lengths given and outlive the call.
    unsafe { bpf(BPF_PROG_LOAD, &attr) }
}

/// `bpf_attr.test`; of it, `BPF_PROG_TYPE_SYSCALL` takes the program and the context alone.
#[repr(C)]
#[derive(Default)]
struct TestRun {
    prog_fd: u32,
    /// What the program returned.
    retval: u32,
    data_size_in: u32,
    data_size_out: u32,
    data_in: u64,
    data_out: u64,
    repeat: u32,
    duration: u32,
    ctx_size_in: u32,
    ctx_size_out: u32,
    ctx_in: u64,
    ctx_out: u64,
    flags: u32,
    cpu: u32,
    batch_size: u32,
    pad: u32,
}

/// Runs a program of [`ProgramKind::Syscall`] once, to its end.
pub(super) fn run_program(program: BorrowedFd<'_>) -> io::Result<()> {
    let mut attr = TestRun {
        prog_fd: program.as_raw_fd().cast_unsigned(),
        ..TestRun::default()
    };
    // SAFETY: `attr` has the layout that BPF_PROG_TEST_RUN reads and writes, and holds no
    // addresses; what the program does to its own maps, `Shared` knows.
    unsafe {
        system_call(
            libc::SYS_bpf,
            [
                BPF_PROG_TEST_RUN as usize,
                std::ptr::from_mut(&mut attr) as usize,
                size_of::<TestRun>(),
                0,
            ],
        )
    }
    .map(drop)
}

/// The one value of an array map, in our memory. Programs write it only while [`run_program`] runs
/// them; who holds this runs none meanwhile.
#[derive(Debug)]
pub(super) struct Shared {
    start: NonNull<u8>,
    len: usize,
}

impl Shared {
    /// Maps the value of a map with one entry, created with `BPF_F_MMAPABLE`.
    pub(super) fn new(fd: &OwnedFd, spec: &MapSpec) -> io::Result<Self> {
        let len = spec.value_size as usize;
        let protection = libc::PROT_READ | libc::PROT_WRITE;
        let start = map(fd, len, protection, libc::MAP_SHARED)?;
        Ok(Self { start, len })
    }

    /// The bytes of a range, none when it lies partly outside.
    pub(super) fn bytes(&self, range: Range<usize>) -> &[u8] {
        if range.start > range.end || range.end > self.len {
            return &[];
        }
        // SAFETY: within the mapping, which lives as long as `self`; nobody writes it while it is
        // borrowed: programs by the duty of who holds it, and we only by `set`, which needs `self`
        // mutably.
        unsafe { std::slice::from_raw_parts(self.start.as_ptr().add(range.start), range.len()) }
    }

    /// The word at an offset; 0 outside.
    pub(super) fn word(&self, at: usize) -> u32 {
        word(self.bytes(at..at.saturating_add(4)), 0)
    }

    /// Sets the word at an offset; outside, nothing is set.
    pub(super) fn set(&mut self, at: usize, word: u32) {
        if at.saturating_add(4) > self.len {
            return;
        }
        // SAFETY: within the mapping, and `self` is borrowed mutably.
        unsafe {
            std::ptr::copy_nonoverlapping(
                word.to_ne_bytes().as_ptr(),
                self.start.as_ptr().add(at),
                4,
            );
        }
    }
}

impl Drop for Shared {
    fn drop(&mut self) {
        // SAFETY: the mapping is ours, and nothing borrows it any more.
        unsafe { libc::munmap(self.start.as_ptr().cast(), self.len) };
    }
}

// SAFETY: the memory is not bound to a thread.
unsafe impl Send for Shared {}

/// The kernel's type information, in its own memory where the kernel lets it be mapped (Linux 6.16,
/// `kernel/bpf/sysfs_btf.c`), else a copy: five megabytes and more.
#[derive(Debug)]
pub(super) enum KernelBtf {
    Mapped { start: NonNull<u8>, len: usize },
    Copied(Vec<u8>),
}

impl KernelBtf {
    pub(super) fn open(path: &str) -> io::Result<Self> {
        let mut file = File::open(path)?;
        let len = usize::try_from(file.metadata()?.len()).unwrap_or(0);
        match map(&file, len, libc::PROT_READ, libc::MAP_PRIVATE) {
            Ok(start) => Ok(Self::Mapped { start, len }),
            Err(_) => {
                let mut bytes = Vec::with_capacity(len);
                io::Read::read_to_end(&mut file, &mut bytes)?;
                Ok(Self::Copied(bytes))
            }
        }
    }

    pub(super) fn bytes(&self) -> &[u8] {
        match self {
            // SAFETY: the mapping has this length and lives as long as `self`. Nobody can write or cut
            // the kernel's image, so its bytes stay.
            Self::Mapped { start, len } => unsafe {
                std::slice::from_raw_parts(start.as_ptr(), *len)
            },
            Self::Copied(bytes) => bytes,
        }
    }
}

impl Drop for KernelBtf {
    fn drop(&mut self) {
        if let Self::Mapped { start, len } = self {
            // SAFETY: the mapping is ours, and nothing borrows it any more.
            unsafe { libc::munmap(start.as_ptr().cast(), *len) };
        }
    }
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

/// Reads into the room that `bytes` has left, and gives how much.
pub(super) fn read_more(file: &File, bytes: &mut Vec<u8>) -> io::Result<usize> {
    let room = bytes.spare_capacity_mut();
    // SAFETY: the kernel writes to `room` alone, at most its length.
    let n = unsafe { libc::read(file.as_raw_fd(), room.as_mut_ptr().cast(), room.len()) };
    let n = usize::try_from(n).map_err(|_| io::Error::last_os_error())?;
    // SAFETY: the kernel has written the `n` bytes after the present end.
    unsafe { bytes.set_len(bytes.len() + n) };
    Ok(n)
}

/// Calls `bpf(2)` with a command that returns a new descriptor.
///
/// # Safety
///
/// As for [`call`], and `command` returns a new descriptor.
unsafe fn bpf<T>(command: libc::c_long, attr: &T) -> io::Result<OwnedFd> {
    // SAFETY: the caller's duty.
    let fd = unsafe { call(command, attr) }?;
    // SAFETY: the command returned this descriptor to us alone.
    Ok(unsafe { OwnedFd::from_raw_fd(fd) })
}

/// Calls `bpf(2)`.
///
/// # Safety
///
/// 1. `T` has the layout that `command` reads, without padding bytes.
/// 2. Addresses in `attr` are of memory that the command may access.
unsafe fn call<T>(command: libc::c_long, attr: &T) -> io::Result<i32> {
    // SAFETY: `attr` is valid for its size; the rest is the caller's duty.
    let result = unsafe {
        libc::syscall(
            libc::SYS_bpf,
            command,
            std::ptr::from_ref(attr),
            size_of::<T>(),
        )
    };
    result_of(result)
}

fn result_of(result: libc::c_long) -> io::Result<i32> {
    if result < 0 {
        return Err(io::Error::last_os_error());
    }
    i32::try_from(result).map_err(io::Error::other)
}
