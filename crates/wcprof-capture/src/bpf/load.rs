//! Loading: the object to a [`BpfEngine`] whose iterator has been tried once.

use std::collections::{BTreeMap, HashMap, HashSet};
use std::fs;
use std::io;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};

use aya_obj::Object;
use aya_obj::btf::Btf;
use nix::sys::resource::{Resource, getrlimit, setrlimit};
use wcprof_types::Pid;

use super::sys::{Map, MapSpec, ProgramKind, ProgramSpec};
use super::{BpfEngine, BpfError, Features, MAX_TARGETS, READ_LEN, TaskRecord, btf, error, sys};

/// Built by `cargo xtask bpf` from `bpf/wcprof.bpf.c`. The ELF reader wants its tables aligned.
const OBJECT: &Aligned<[u8]> = &Aligned(*include_bytes!("../../bpf/wcprof.bpf.o"));

#[repr(C, align(8))]
struct Aligned<T: ?Sized>(T);

const KERNEL_BTF: &str = "/sys/kernel/btf/vmlinux";
/// The kernel's function behind the iterator over tasks.
const ITERATOR_FUNCTION: &str = "bpf_iter_task";

const ITERATOR: &str = "wcprof_tasks";
const COPYING_ITERATOR: &str = "wcprof_stacks";
const KERNEL_ITERATOR: &str = "wcprof_tasks_k";
const COPYING_KERNEL_ITERATOR: &str = "wcprof_stacks_k";
const FILTER: &str = "wcprof_filter";

/// The verifier's log, of which the end is shown.
const LOG_LEN: usize = 1 << 20;

/// A map from a process id to 1.
type Pids = Map<4, 4>;

pub(super) fn load(targets: &[Pid], kernel: bool) -> Result<BpfEngine, BpfError> {
    if targets.len() > MAX_TARGETS {
        return Err(BpfError::TooManyTargets(targets.len()));
    }
    let mut object = Loaded::new()?;
    let mut no_kernel_stacks = None;
    let mut opened = None;
    if kernel {
        match object.iterator_of([COPYING_KERNEL_ITERATOR, KERNEL_ITERATOR]) {
            Ok(iterator) => opened = Some(iterator),
            Err(why) => no_kernel_stacks = Some(why.to_string()),
        }
    }
    let (iterator, no_stack_copies) = match opened {
        Some(opened) => opened,
        None => object.iterator_of([COPYING_ITERATOR, ITERATOR])?,
    };
    let (perf_program, no_perf_filter) = match object.filter() {
        Ok(program) => (Some(program), None),
        Err(e) => (None, Some(e.to_string())),
    };
    let pids: Pids = object.take_map("targets")?;
    let host_pids: Pids = object.take_map("host_targets")?;
    for pid in targets {
        insert(&pids, pid.0)?;
    }
    let (links, link_filter) = link(iterator.as_fd(), targets)?;
    let mut engine = BpfEngine {
        targets: targets.to_vec(),
        links,
        perf_program,
        features: Features {
            link_filter,
            no_perf_filter,
            no_stack_copies,
            no_kernel_stacks,
        },
        #[cfg(test)]
        iterator: iterator
            .try_clone()
            .map_err(|e| BpfError::from_io("copy a descriptor", &e))?,
        config: object.take_map("config")?,
        wants: object.take_map("wants")?,
        told: None,
        changes_generation: 1,
        buffer: Vec::with_capacity(READ_LEN),
    };
    let mut tasks = Vec::new();
    engine.snapshot(&mut tasks)?;
    if link_filter && tasks.iter().any(|task| !targets.contains(&task.pid)) {
        // Linux 6.0 takes the filter and ignores it.
        engine.links = vec![link_all(iterator.as_fd())?];
        engine.features.link_filter = false;
        engine.told = None;
        engine.snapshot(&mut tasks)?;
    }
    for (pid, host_pid) in host_pids_of(&tasks, targets) {
        insert(&host_pids, host_pid.ok_or(BpfError::NoSuchProcess(pid))?)?;
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
    function: u32,
}

impl Loaded {
    fn new() -> Result<Self, BpfError> {
        let mut object = Object::parse(&OBJECT.0).map_err(|e| BpfError::from_object("read", &e))?;
        let own_types = object.btf.as_ref().map(Btf::to_bytes).unwrap_or_default();
        let no_btf = |e: &dyn std::error::Error| BpfError::NoBtf(error::chain(e));
        let kernel = fs::read(KERNEL_BTF).map_err(|e| no_btf(&e))?;
        let kernel = btf::struct_names(&own_types)
            .and_then(|names| btf::reduce(&kernel, &names, ITERATOR_FUNCTION))
            .map_err(|e| no_btf(&e))?;
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
            function: kernel.function.ok_or_else(|| {
                BpfError::NoTaskIterator(format!(
                    "its type information has no `{ITERATOR_FUNCTION}`"
                ))
            })?,
        })
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
        let function = self.function;
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
        let spec = ProgramSpec {
            kind,
            instructions: &function.instructions,
            license: &program.license,
        };
        sys::load_program(&spec, None).or_else(|_| {
            // Once more, to be told why.
            let mut log = vec![0; LOG_LEN];
            sys::load_program(&spec, Some(&mut log))
                .map_err(|e| BpfError::from_program(name, e, &log))
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

fn insert(map: &Pids, pid: i32) -> Result<(), BpfError> {
    sys::update_map(map, &pid.to_ne_bytes(), &1u32.to_ne_bytes())
        .map_err(|e| BpfError::from_io("set up the BPF maps", &e))
}
