//! The BPF object that is built in, to maps and programs in the kernel.

use std::collections::{HashMap, HashSet};
use std::os::fd::{AsRawFd, OwnedFd};

use aya_obj::btf::Btf;
use aya_obj::generated::{BPF_PSEUDO_KFUNC_CALL, bpf_insn};
use aya_obj::{Map as MapDefinition, Object};
use nix::sys::resource::{Resource, getrlimit, setrlimit};
use zerocopy::{Immutable, IntoBytes};

use super::error::{self, BpfError};
use super::red_zones::{CpuRedZones, RedZones};
use super::sys::{self, Map, ProgramKind, SharedMemory};
use super::{btf, shared::Shared};
use wcprof_host::procfs::read_bytes;
use wcprof_perf::online_cpus;

/// Built by `cargo xtask bpf` from `bpf/wcprof.bpf.c`. The ELF reader wants its tables aligned.
const OBJECT: &Aligned<[u8]> = &Aligned(*include_bytes!("../../bpf/wcprof.bpf.o"));

#[repr(C, align(8))]
struct Aligned<T: ?Sized>(T);

const KERNEL_BTF: &str = "/sys/kernel/btf/vmlinux";
/// Ten times that of a kernel of a distribution.
const MAX_BTF: u64 = 64 << 20;
/// The kernel's function behind the iterator over tasks.
const ITERATOR_FUNCTION: &str = "bpf_iter_task";

/// The kernel's functions that programs call by type id, in the order of their numbers in
/// `bpf/kernel.h`.
const KERNEL_FUNCTIONS: [&str; 10] = [
    "bpf_rcu_read_lock",
    "bpf_rcu_read_unlock",
    "bpf_task_from_pid",
    "bpf_task_release",
    "bpf_iter_task_new",
    "bpf_iter_task_next",
    "bpf_iter_task_destroy",
    "bpf_iter_num_new",
    "bpf_iter_num_next",
    "bpf_iter_num_destroy",
];
/// The number of the first.
const FIRST_KERNEL_FUNCTION: i32 = 0x10000;

/// A call of a helper (`include/uapi/linux/bpf.h`).
const CALL: u8 = 0x85;

/// The verifier's log, of which the end is shown.
const LOG_LEN: usize = 1 << 20;

/// The map that has an entry for each CPU.
const RED_ZONES: &str = "red_zones";

/// The object with its maps created and its programs relocated.
pub(super) struct LoadedObject {
    object: Object,
    maps: HashMap<String, (OwnedFd, MapDefinition)>,
    /// Type id of [`ITERATOR_FUNCTION`].
    iterator_function: Option<u32>,
    /// Type ids of [`KERNEL_FUNCTIONS`].
    kernel_functions: Vec<Option<u32>>,
}

impl LoadedObject {
    pub(super) fn new() -> Result<Self, BpfError> {
        let mut object = Object::parse(&OBJECT.0).map_err(|e| BpfError::from_object("read", &e))?;
        let own_types = object.btf.as_ref().map(Btf::to_bytes).unwrap_or_default();
        let no_btf = |e: &dyn std::error::Error| BpfError::NoBtf(error::chain(e));
        let kernel_types = read_bytes(KERNEL_BTF, MAX_BTF).map_err(|e| no_btf(&e))?;
        let functions = [KERNEL_FUNCTIONS.as_slice(), &[ITERATOR_FUNCTION]].concat();
        let mut kernel = btf::struct_names(&own_types)
            .and_then(|names| btf::reduce(&kernel_types, &names, &functions))
            .map_err(|e| no_btf(&e))?;
        let types = Btf::parse(&kernel.btf, object.endianness).map_err(|e| no_btf(&e))?;
        object
            .relocate_btf(&types)
            .map_err(|e| BpfError::from_object("relocate the types of", &e))?;
        let maps = object
            .maps
            .drain()
            .map(|(name, mut map)| {
                if name == RED_ZONES {
                    map.set_max_entries(n_cpus());
                }
                Ok((name, (create_map(&map)?, map)))
            })
            .collect::<Result<HashMap<_, _>, BpfError>>()?;
        let text: HashSet<usize> = object
            .functions
            .keys()
            .map(|(section, _)| *section)
            .collect();
        let fds = maps
            .iter()
            .map(|(name, (fd, map))| (name.as_str(), fd.as_raw_fd(), map));
        object
            .relocate_maps(fds, &text)
            .map_err(|e| BpfError::from_object("relocate the maps of", &e))?;
        Ok(Self {
            object,
            maps,
            iterator_function: kernel.functions.pop().flatten(),
            kernel_functions: kernel.functions,
        })
    }

    /// Loads the program that makes passes when told to.
    pub(super) fn pass_program(&self) -> Result<OwnedFd, BpfError> {
        self.program("wcprof_pass", ProgramKind::Syscall)
    }

    /// Loads the sleepable iterator, which copies stacks, or else the other one; then why not the first.
    pub(super) fn iterator(&self) -> Result<(OwnedFd, Option<String>), BpfError> {
        let function = self.iterator_function.ok_or_else(|| {
            BpfError::NoTaskIterator(format!("its type information has no `{ITERATOR_FUNCTION}`"))
        })?;
        let load = |name, sleepable| {
            self.program(
                name,
                ProgramKind::Iterator {
                    function,
                    sleepable,
                },
            )
        };
        match load("wcprof_stacks", true) {
            Ok(program) => Ok((program, None)),
            // Before Linux 5.18, or with a verifier that refuses it.
            Err(
                why @ (BpfError::NoHelper { .. }
                | BpfError::Rejected { .. }
                | BpfError::Load { .. }),
            ) => Ok((load("wcprof_tasks", false)?, Some(why.to_string()))),
            Err(e) => Err(e),
        }
    }

    /// Loads the program that drops timer samples of other processes.
    pub(super) fn perf_filter(&self) -> Result<OwnedFd, BpfError> {
        self.program("wcprof_filter", ProgramKind::PerfEvent)
    }

    fn program(&self, name: &'static str, kind: ProgramKind) -> Result<OwnedFd, BpfError> {
        let program = self.object.programs.get(name);
        let function = program.and_then(|p| self.object.functions.get(&p.function_key()));
        let (Some(program), Some(function)) = (program, function) else {
            return Err(not_in_object(name));
        };
        let code = self.with_kernel_functions(&function.instructions)?;
        sys::load_program(kind, &code, &program.license, None).or_else(|_| {
            // Once more, to be told why.
            let mut log = vec![0; LOG_LEN];
            sys::load_program(kind, &code, &program.license, Some(&mut log))
                .map_err(|e| BpfError::from_program(name, e, &log))
        })
    }

    /// The instructions with the kernel's type ids in their calls of [`KERNEL_FUNCTIONS`].
    fn with_kernel_functions(&self, code: &[bpf_insn]) -> Result<Vec<bpf_insn>, BpfError> {
        let mut code = code.to_vec();
        for instruction in &mut code {
            // Other numbers are helpers, or mark code for fields that this kernel lacks.
            let at = instruction.imm.wrapping_sub(FIRST_KERNEL_FUNCTION);
            let function = usize::try_from(at)
                .ok()
                .and_then(|at| Some((KERNEL_FUNCTIONS.get(at)?, self.kernel_functions.get(at)?)));
            let (CALL, 0, Some((name, id))) = (instruction.code, instruction.src_reg(), function)
            else {
                continue;
            };
            instruction.imm = id.map(u32::cast_signed).ok_or_else(|| BpfError::Load {
                action: "find a function of the kernel that a BPF program calls",
                cause: (*name).to_owned(),
            })?;
            instruction.set_src_reg(BPF_PSEUDO_KFUNC_CALL as u8);
        }
        Ok(code)
    }

    /// The map of this name.
    pub(super) fn take_map<V: IntoBytes + Immutable>(
        &mut self,
        name: &'static str,
    ) -> Result<Map<V>, BpfError> {
        self.maps
            .remove(name)
            .and_then(|(fd, map)| Map::new(fd, &map))
            .ok_or_else(|| not_in_object(name))
    }

    /// The memory that the filter of timer samples writes to.
    pub(super) fn red_zones(&mut self) -> Result<RedZones, BpfError> {
        let taken = self.maps.remove(RED_ZONES);
        let (fd, map) = taken.ok_or_else(|| not_in_object(RED_ZONES))?;
        if map.value_size() as usize != size_of::<CpuRedZones>() {
            return Err(not_in_object(RED_ZONES));
        }
        let memory = RedZones::new(&fd, map.max_entries() as usize);
        memory.map_err(|e| BpfError::from_io(MAP_MEMORY, &e))
    }

    /// The memory that programs write their records into.
    pub(super) fn shared_memory(&mut self) -> Result<SharedMemory, BpfError> {
        let name = "shared";
        let (fd, map) = self.maps.remove(name).ok_or_else(|| not_in_object(name))?;
        if map.value_size() as usize != size_of::<Shared>() {
            return Err(not_in_object(name));
        }
        SharedMemory::new(&fd).map_err(|e| BpfError::from_io(MAP_MEMORY, &e))
    }
}

const MAP_MEMORY: &str = "map memory of the BPF programs";

/// Numbers of CPUs up to the highest that is online.
fn n_cpus() -> u32 {
    online_cpus()
        .last()
        .map_or(1, |last| last.saturating_add(1))
}

fn not_in_object(name: &str) -> BpfError {
    BpfError::Load {
        action: "find a part of the BPF object",
        cause: name.to_owned(),
    }
}

fn create_map(map: &MapDefinition) -> Result<OwnedFd, BpfError> {
    match sys::create_map(map) {
        // Before Linux 5.11 maps count against RLIMIT_MEMLOCK.
        Err(_) if raise_memlock() => sys::create_map(map),
        result => result,
    }
    .map_err(|e| BpfError::from_io("create the BPF maps", &e))
}

/// Raises RLIMIT_MEMLOCK as far as possible; whether that changed anything.
fn raise_memlock() -> bool {
    let Ok((soft, hard)) = getrlimit(Resource::RLIMIT_MEMLOCK) else {
        return false;
    };
    let unlimited = libc::RLIM_INFINITY;
    soft != unlimited
        && (setrlimit(Resource::RLIMIT_MEMLOCK, unlimited, unlimited).is_ok()
            || (soft != hard && setrlimit(Resource::RLIMIT_MEMLOCK, hard, hard).is_ok()))
}

/// Size of a struct of the object, and its members with their offsets.
#[cfg(test)]
pub(super) fn own_struct(name: &str) -> Option<(usize, Vec<(String, usize)>)> {
    let object = Object::parse(&OBJECT.0).unwrap();
    btf::members_of(&object.btf?.to_bytes(), name)
}

/// As the loader does.
#[cfg(test)]
pub(super) fn parse_btf(bytes: &[u8]) -> Result<Btf, aya_obj::btf::BtfError> {
    Btf::parse(bytes, Object::parse(&OBJECT.0).unwrap().endianness)
}
