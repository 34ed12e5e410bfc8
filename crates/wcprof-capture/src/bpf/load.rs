//! Loading: the object to a [`BpfEngine`] whose iterator has been tried once.

use std::collections::BTreeMap;
use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

use aya::maps::{Array, HashMap, Map, MapData};
use aya::programs::{Iter, PerfEvent, ProgramError};
use aya::{Btf, Ebpf, EbpfError, EbpfLoader};
use nix::sys::resource::{Resource, getrlimit, setrlimit};
use wcprof_types::Pid;

use super::{BpfEngine, BpfError, Features, MAX_TARGETS, READ_LEN, TaskRecord, error, sys};

/// Built by `cargo xtask bpf` from `bpf/wcprof.bpf.c`.
const OBJECT: &[u8] = aya::include_bytes_aligned!("../../bpf/wcprof.bpf.o");

const ITERATOR: &str = "wcprof_tasks";
const FILTER: &str = "wcprof_filter";

pub(super) fn load(targets: &[Pid]) -> Result<BpfEngine, BpfError> {
    if targets.len() > MAX_TARGETS {
        return Err(BpfError::TooManyTargets(targets.len()));
    }
    let btf = Btf::from_sys_fs().map_err(|e| BpfError::NoBtf(error::chain(&e)))?;
    let mut ebpf = load_object(&btf)?;
    let iterator = load_iterator(&mut ebpf, &btf)?;
    let (perf_program, no_perf_filter) = match load_filter(&mut ebpf) {
        Ok(program) => (Some(program), None),
        Err(e) => (None, Some(e.to_string())),
    };
    let config = Array::try_from(take_map(&mut ebpf, "config")?).map_err(map_error)?;
    let mut pids = HashMap::try_from(take_map(&mut ebpf, "targets")?).map_err(map_error)?;
    let mut host_pids =
        HashMap::try_from(take_map(&mut ebpf, "host_targets")?).map_err(map_error)?;
    for pid in targets {
        insert(&mut pids, pid.0)?;
    }
    let (links, link_filter) = link(iterator.as_fd(), targets)?;
    let mut engine = BpfEngine {
        targets: targets.to_vec(),
        links,
        perf_program,
        features: Features {
            link_filter,
            no_perf_filter,
        },
        #[cfg(test)]
        iterator: iterator
            .try_clone()
            .map_err(|e| BpfError::from_io("copy a descriptor", &e))?,
        config,
        generation: None,
        changes_generation: 1,
        buffer: Vec::with_capacity(READ_LEN),
    };
    let mut tasks = Vec::new();
    engine.snapshot(&mut tasks)?;
    if link_filter && tasks.iter().any(|task| !targets.contains(&task.pid)) {
        // Linux 6.0 takes the filter and ignores it.
        engine.links = vec![link_all(iterator.as_fd())?];
        engine.features.link_filter = false;
        engine.generation = None;
        engine.snapshot(&mut tasks)?;
    }
    for (pid, host_pid) in host_pids_of(&tasks, targets) {
        insert(
            &mut host_pids,
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

/// Creates the maps and relocates the programs.
fn load_object(btf: &Btf) -> Result<Ebpf, BpfError> {
    let load = || EbpfLoader::new().btf(Some(btf)).load(OBJECT);
    let result = match load() {
        // Before Linux 5.11 maps count against RLIMIT_MEMLOCK.
        Err(EbpfError::MapError(_)) if raise_memlock() => load(),
        result => result,
    };
    result.map_err(|e| BpfError::from_load("create the BPF maps", &e))
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

fn load_iterator(ebpf: &mut Ebpf, btf: &Btf) -> Result<OwnedFd, BpfError> {
    let load = |ebpf: &mut Ebpf| -> Result<OwnedFd, ProgramError> {
        let program: &mut Iter = find_program(ebpf, ITERATOR)?;
        program.load("task", btf)?;
        Ok(program.fd()?.as_fd().try_clone_to_owned()?)
    };
    load(ebpf).map_err(|e| BpfError::from_program(ITERATOR, e))
}

fn load_filter(ebpf: &mut Ebpf) -> Result<OwnedFd, BpfError> {
    let load = |ebpf: &mut Ebpf| -> Result<OwnedFd, ProgramError> {
        let program: &mut PerfEvent = find_program(ebpf, FILTER)?;
        program.load()?;
        Ok(program.fd()?.as_fd().try_clone_to_owned()?)
    };
    load(ebpf).map_err(|e| BpfError::from_program(FILTER, e))
}

fn find_program<'a, P>(ebpf: &'a mut Ebpf, name: &str) -> Result<&'a mut P, ProgramError>
where
    &'a mut P: TryFrom<&'a mut aya::programs::Program, Error = ProgramError>,
{
    ebpf.program_mut(name)
        .ok_or(ProgramError::UnexpectedProgramType)?
        .try_into()
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

fn take_map(ebpf: &mut Ebpf, name: &str) -> Result<Map, BpfError> {
    ebpf.take_map(name).ok_or_else(|| BpfError::Load {
        action: "find a map in the BPF object",
        cause: name.to_owned(),
    })
}

fn insert(map: &mut HashMap<MapData, u32, u32>, pid: i32) -> Result<(), BpfError> {
    map.insert(pid.cast_unsigned(), 1, 0).map_err(map_error)
}

fn map_error(e: aya::maps::MapError) -> BpfError {
    BpfError::from_load("set up the BPF maps", &EbpfError::MapError(e))
}
