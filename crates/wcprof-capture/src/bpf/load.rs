//! Loading: the object to a [`BpfEngine`] whose iterator has been tried once.

use std::collections::{BTreeMap, HashMap, HashSet};
use std::io;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};

use aya_obj::Object;
use aya_obj::btf::Btf;
use aya_obj::generated::bpf_insn;
use nix::sys::resource::{Resource, getrlimit, setrlimit};
use wcprof_types::Pid;

use super::sys::{Map, MapSpec, ProgramKind, ProgramSpec};
use super::{
    BpfEngine, BpfError, Features, MAX_TARGETS, READ_LEN, TaskRecord, Way, btf, error, pass, sys,
};

/// Built by `cargo xtask bpf` from `bpf/wcprof.bpf.c`. The ELF reader wants its tables aligned.
const OBJECT: &Aligned<[u8]> = &Aligned(*include_bytes!("../../bpf/wcprof.bpf.o"));

#[repr(C, align(8))]
struct Aligned<T: ?Sized>(T);

const KERNEL_BTF: &str = "/sys/kernel/btf/vmlinux";
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

/// A call of a helper, and the source register of a call of a kernel function
/// (`include/uapi/linux/bpf.h`).
const CALL: u8 = 0x85;
const BPF_PSEUDO_KFUNC_CALL: u8 = 2;

const PASS: &str = "wcprof_pass";
const ITERATOR: &str = "wcprof_tasks";
const COPYING_ITERATOR: &str = "wcprof_stacks";
const KERNEL_ITERATOR: &str = "wcprof_tasks_k";
const COPYING_KERNEL_ITERATOR: &str = "wcprof_stacks_k";
const FILTER: &str = "wcprof_filter";

/// The verifier's log, of which the end is shown.
const LOG_LEN: usize = 1 << 20;

/// Which passes.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub(super) enum Want {
    /// Those that cost least here.
    Best,
    /// Those of the task iterator.
    #[cfg(test)]
    Iterator,
    /// With kernel stacks, where the kernel gives them.
    KernelStacks,
}

/// A map from a process id to 1.
type Pids = Map<4, 4>;

/// Loads the programs that make such passes.
pub(super) fn load(targets: &[Pid], want: Want) -> Result<BpfEngine, BpfError> {
    if targets.len() > MAX_TARGETS {
        return Err(BpfError::TooManyTargets(targets.len()));
    }
    let mut object = Loaded::new()?;
    let mut features = Features {
        no_own_passes: None,
        link_filter: true,
        no_perf_filter: None,
        no_stack_copies: None,
        no_kernel_stacks: None,
    };
    let own = match want {
        Want::Best => object.own_passes().map_err(|why| why.to_string()),
        #[cfg(test)]
        Want::Iterator => Err("not asked for".to_owned()),
        Want::KernelStacks => Err("they copy no kernel stacks".to_owned()),
    };
    let mut iterator = None;
    let way = match own {
        Ok(passes) => Way::Own(passes),
        Err(why) => {
            features.no_own_passes = Some(why);
            let program = object.best_iterator(want, &mut features)?;
            let links;
            (links, features.link_filter) = link(program.as_fd(), targets)?;
            iterator = Some(program);
            Way::Iterator(links)
        }
    };
    let (perf_program, no_perf_filter) = match object.filter() {
        Ok(program) => (Some(program), None),
        Err(e) => (None, Some(e.to_string())),
    };
    features.no_perf_filter = no_perf_filter;
    let pids: Pids = object.take_map("targets")?;
    let host_pids: Pids = object.take_map("host_targets")?;
    for pid in targets {
        insert(&pids, pid.0)?;
    }
    let mut engine = BpfEngine {
        targets: targets.to_vec(),
        way,
        perf_program,
        features,
        iterator: None,
        pids,
        host_pids,
        config: object.take_map("config")?,
        wants: object.take_map("wants")?,
        told: None,
        changes_generation: 1,
        buffer: Vec::with_capacity(READ_LEN),
    };
    let mut tasks = Vec::new();
    engine.snapshot(&mut tasks)?;
    if let Some(iterator) = &iterator
        && engine.features.link_filter
        && tasks.iter().any(|task| !targets.contains(&task.pid))
    {
        // Linux 6.0 takes the filter and ignores it.
        engine.way = Way::Iterator(vec![link_all(iterator.as_fd())?]);
        engine.features.link_filter = false;
        engine.told = None;
        engine.snapshot(&mut tasks)?;
    }
    engine.iterator = iterator;
    for (pid, host_pid) in host_pids_of(&tasks, targets) {
        insert(
            &engine.host_pids,
            host_pid.ok_or(BpfError::NoSuchProcess(pid))?,
        )?;
    }
    Ok(engine)
}

/// The initial namespace's number of each target; `None` without a record.
fn host_pids_of(tasks: &[TaskRecord], targets: &[Pid]) -> BTreeMap<Pid, Option<i32>> {
    let mut out: BTreeMap<Pid, Option<i32>> = targets.iter().map(|pid| (*pid, None)).collect();
    for task in tasks {
        if let Some(host_pid) = out.get_mut(&task.pid) {
            *host_pid = Some(task.host_pid);
        }
    }
    out
}

/// The object with its maps created and its programs relocated.
struct Loaded {
    object: Object,
    maps: HashMap<String, (OwnedFd, MapSpec)>,
    /// Type id of [`ITERATOR_FUNCTION`].
    function: Option<u32>,
    /// Type ids of [`KERNEL_FUNCTIONS`].
    kernel_functions: Vec<Option<u32>>,
}

impl Loaded {
    fn new() -> Result<Self, BpfError> {
        let mut object = Object::parse(&OBJECT.0).map_err(|e| BpfError::from_object("read", &e))?;
        let own_types = object.btf.as_ref().map(Btf::to_bytes).unwrap_or_default();
        let no_btf = |e: &dyn std::error::Error| BpfError::NoBtf(error::chain(e));
        let kernel = sys::KernelBtf::open(KERNEL_BTF).map_err(|e| no_btf(&e))?;
        let kernel = btf::struct_names(&own_types)
            .and_then(|names| {
                let functions = [&[ITERATOR_FUNCTION], KERNEL_FUNCTIONS.as_slice()].concat();
                btf::reduce(kernel.bytes(), &names, &functions)
            })
            .map_err(|e| no_btf(&e))?;
        let (function, kernel_functions) = match kernel.functions.split_first() {
            Some((function, others)) => (*function, others.to_vec()),
            None => (None, Vec::new()),
        };
        let types = Btf::parse(&kernel.btf, object.endianness).map_err(|e| no_btf(&e))?;
        object
            .relocate_btf(&types)
            .map_err(|e| BpfError::from_object("relocate the types of", &e))?;
        let mut maps = HashMap::new();
        for (name, map) in &object.maps {
            let spec = MapSpec {
                map_type: map.map_type(),
                key_size: map.key_size(),
                value_size: map.value_size(),
                max_entries: map.max_entries(),
                flags: map.map_flags(),
            };
            maps.insert(name.clone(), (create_map(&spec)?, spec));
        }
        let text: HashSet<usize> = object
            .functions
            .keys()
            .map(|(section, _)| *section)
            .collect();
        let definitions = object.maps.clone();
        let fds = definitions.iter().filter_map(|(name, map)| {
            let (fd, _) = maps.get(name)?;
            Some((name.as_str(), fd.as_raw_fd(), map))
        });
        object
            .relocate_maps(fds, &text)
            .map_err(|e| BpfError::from_object("relocate the maps of", &e))?;
        Ok(Self {
            object,
            maps,
            function,
            kernel_functions,
        })
    }

    /// The program that wcprof runs itself, with the memory it shares.
    fn own_passes(&mut self) -> Result<pass::Passes, BpfError> {
        if !pass::in_initial_namespace() {
            return Err(BpfError::Load {
                action: "make passes without the task iterator",
                cause: "wcprof is not in the initial pid namespace".to_owned(),
            });
        }
        let program = self.program(PASS, ProgramKind::Syscall)?;
        let (fd, spec) = self.map("pass", pass::SHARED_LEN)?;
        let shared = sys::Shared::new(&fd, &spec)
            .map_err(|e| BpfError::from_io("map memory of the BPF program", &e))?;
        Ok(pass::Passes::new(program, shared))
    }

    /// The iterator for such passes that does most here, and what it does not do.
    fn best_iterator(&self, want: Want, features: &mut Features) -> Result<OwnedFd, BpfError> {
        if want == Want::KernelStacks {
            match self.iterator_of([COPYING_KERNEL_ITERATOR, KERNEL_ITERATOR]) {
                Ok((program, no_stack_copies)) => {
                    features.no_stack_copies = no_stack_copies;
                    return Ok(program);
                }
                Err(why) => features.no_kernel_stacks = Some(why.to_string()),
            }
        }
        let program;
        (program, features.no_stack_copies) = self.iterator_of([COPYING_ITERATOR, ITERATOR])?;
        Ok(program)
    }

    /// The sleepable iterator that copies stacks, or else the other one and why not the first.
    fn iterator_of(
        &self,
        [copying, other]: [&'static str; 2],
    ) -> Result<(OwnedFd, Option<String>), BpfError> {
        match self.iterator(copying, true) {
            Ok(program) => Ok((program, None)),
            // Before Linux 5.18, or with a verifier that refuses it.
            Err(why @ (BpfError::Rejected { .. } | BpfError::Load { .. })) => {
                Ok((self.iterator(other, false)?, Some(why.to_string())))
            }
            Err(e) => Err(e),
        }
    }

    fn iterator(&self, name: &'static str, sleepable: bool) -> Result<OwnedFd, BpfError> {
        let function = self.function.ok_or_else(|| {
            BpfError::NoTaskIterator(format!("its type information has no `{ITERATOR_FUNCTION}`"))
        })?;
        self.program(
            name,
            ProgramKind::Iterator {
                function,
                sleepable,
            },
        )
    }

    fn filter(&self) -> Result<OwnedFd, BpfError> {
        self.program(FILTER, ProgramKind::PerfEvent)
    }

    fn program(&self, name: &'static str, kind: ProgramKind) -> Result<OwnedFd, BpfError> {
        let program = self.object.programs.get(name);
        let function = program.and_then(|p| self.object.functions.get(&p.function_key()));
        let (Some(program), Some(function)) = (program, function) else {
            return Err(BpfError::Load {
                action: "find a program in the BPF object",
                cause: name.to_owned(),
            });
        };
        let instructions = self.with_kernel_functions(&function.instructions)?;
        let spec = ProgramSpec {
            kind,
            instructions: &instructions,
            license: &program.license,
        };
        sys::load_program(&spec, None).or_else(|_| {
            // Once more, to be told why.
            let mut log = vec![0; LOG_LEN];
            sys::load_program(&spec, Some(&mut log))
                .map_err(|e| BpfError::from_program(name, e, &log))
        })
    }

    /// The instructions with the kernel's type ids in their calls of [`KERNEL_FUNCTIONS`].
    fn with_kernel_functions(&self, code: &[bpf_insn]) -> Result<Vec<bpf_insn>, BpfError> {
        let mut code = code.to_vec();
        for instruction in &mut code {
            if instruction.code != CALL || instruction.src_reg() != 0 {
                continue;
            }
            let at = usize::try_from(instruction.imm.wrapping_sub(FIRST_KERNEL_FUNCTION));
            // Others are helpers, or mark code for fields that this kernel lacks.
            let Some((at, name)) = at.ok().and_then(|at| Some((at, KERNEL_FUNCTIONS.get(at)?)))
            else {
                continue;
            };
            let id = self.kernel_functions.get(at).copied().flatten();
            let Some(id) = id.and_then(|id| i32::try_from(id).ok()) else {
                return Err(BpfError::Load {
                    action: "find a function of the kernel that a BPF program calls",
                    cause: (*name).to_owned(),
                });
            };
            instruction.set_src_reg(BPF_PSEUDO_KFUNC_CALL);
            instruction.imm = id;
        }
        Ok(code)
    }

    /// A map whose value has this length.
    fn map(&mut self, name: &str, value_size: u32) -> Result<(OwnedFd, MapSpec), BpfError> {
        self.maps
            .remove(name)
            .filter(|(_, spec)| spec.value_size == value_size)
            .ok_or_else(|| BpfError::Load {
                action: "find a map in the BPF object",
                cause: name.to_owned(),
            })
    }

    fn take_map<const K: usize, const V: usize>(
        &mut self,
        name: &str,
    ) -> Result<Map<K, V>, BpfError> {
        self.maps
            .remove(name)
            .and_then(|(fd, spec)| Map::new(fd, &spec))
            .ok_or_else(|| BpfError::Load {
                action: "find a map in the BPF object",
                cause: name.to_owned(),
            })
    }
}

/// As the loader does.
#[cfg(test)]
pub(super) fn parse_btf(bytes: &[u8]) -> Result<Btf, aya_obj::btf::BtfError> {
    Btf::parse(bytes, Object::parse(&OBJECT.0).unwrap().endianness)
}

fn create_map(spec: &MapSpec) -> Result<OwnedFd, BpfError> {
    match sys::create_map(spec) {
        // Before Linux 5.11 maps count against RLIMIT_MEMLOCK.
        Err(_) if raise_memlock() => sys::create_map(spec),
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

/// One link per target where the kernel can restrict a link to a process, else one for all.
fn link(iterator: BorrowedFd<'_>, targets: &[Pid]) -> Result<(Vec<OwnedFd>, bool), BpfError> {
    let filtered: io::Result<Vec<OwnedFd>> = targets
        .iter()
        .map(|pid| sys::create_iter_link(iterator, Some(*pid)))
        .collect();
    match filtered {
        Ok(links) => Ok((links, true)),
        Err(e) if matches!(e.raw_os_error(), Some(libc::E2BIG | libc::EINVAL)) => {
            Ok((vec![link_all(iterator)?], false))
        }
        Err(e) => Err(BpfError::from_io("attach the task iterator", &e)),
    }
}

fn link_all(iterator: BorrowedFd<'_>) -> Result<OwnedFd, BpfError> {
    sys::create_iter_link(iterator, None)
        .map_err(|e| BpfError::from_io("attach the task iterator", &e))
}

pub(super) fn insert(map: &Pids, pid: i32) -> Result<(), BpfError> {
    sys::update_map(map, &pid.to_ne_bytes(), &1u32.to_ne_bytes())
        .map_err(|e| BpfError::from_io("set up the BPF maps", &e))
}
