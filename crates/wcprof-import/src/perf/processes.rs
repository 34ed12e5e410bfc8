//! Mappings and samples of processes to frames and stacks.

use std::collections::HashMap;
use std::collections::hash_map::Entry;
use std::sync::Arc;

use linux_perf_data::linux_perf_event_reader::{CpuMode, SampleRecord};
use linux_perf_data::{DsoInfo, DsoKey};
use wcprof_symbols::TargetFile;
use wcprof_symbols::elf::ElfFile;
use wcprof_trace::model::{Frame, FrameId, ProcessId, StackId};
use wcprof_types::{Avma, BuildId, Pid, StackEnd, VDSO};

use super::dwarf::StackCopies;
use super::jit::{JitFrames, is_anonymous};
use super::maps::{Files, Map, Maps};
use crate::builder::Builder;
use crate::code::{CodeFiles, SeenFile, WantedFile};
use crate::error::{Result, within};
use crate::limits;

/// Context markers of call chains (`include/uapi/linux/perf_event.h`).
const CONTEXT_MAX: u64 = -4095_i64 as u64;
const CONTEXT_KERNEL: u64 = -128_i64 as u64;
const CONTEXT_USER: u64 = -512_i64 as u64;
/// Before the number of a record that has the user stack, and comes later; since Linux 6.19.
const CONTEXT_USER_DEFERRED: u64 = -640_i64 as u64;

/// Files that are looked at on this machine since the recording has no build-id of them.
const MAX_IDENTIFIED: usize = 4096;

struct Process {
    id: ProcessId,
    maps: Maps,
}

/// The processes of a recording.
pub(super) struct Processes<'c> {
    by_pid: HashMap<i32, Process>,
    build_ids: HashMap<String, BuildId>,
    files: Files,
    n_maps: usize,
    jit: JitFrames,
    /// Build-ids of files that have none in the recording.
    identified: HashMap<(Arc<str>, SeenFile), Option<BuildId>>,
    /// The build-id of this kernel's vdso, once it was asked for.
    vdso_id: Option<Option<BuildId>>,
    /// Which file was seen first at a path whose build-id perf saved.
    first_seen: HashMap<Arc<str>, SeenFile>,
    /// Mappings of other files at such a path.
    pub(super) n_ambiguous: u64,
    pub(super) copies: StackCopies<'c>,
}

/// An address of a call chain.
#[derive(Copy, Clone)]
struct ChainAddress {
    address: u64,
    is_kernel: bool,
    /// Execution was there; otherwise a call returns there.
    is_exact: bool,
}

impl ChainAddress {
    fn new(address: u64, is_kernel: bool, is_exact: bool) -> Self {
        Self {
            address,
            is_kernel,
            is_exact,
        }
    }
}

impl<'c> Processes<'c> {
    pub(super) fn new(build_ids: HashMap<DsoKey, DsoInfo>, code: &'c mut dyn CodeFiles) -> Self {
        let build_ids = build_ids.into_iter().filter_map(|(key, info)| {
            let path = match key {
                DsoKey::Vdso64 => VDSO.to_owned(),
                _ => String::from_utf8_lossy(&info.path).into_owned(),
            };
            Some((path, BuildId::new(&info.build_id)?))
        });
        Self {
            by_pid: HashMap::new(),
            build_ids: build_ids.collect(),
            files: Files::default(),
            n_maps: 0,
            jit: JitFrames::default(),
            identified: HashMap::new(),
            vdso_id: None,
            first_seen: HashMap::new(),
            n_ambiguous: 0,
            copies: StackCopies::new(code),
        }
    }

    /// The id of a process, which is added if it is new.
    pub(super) fn id(&mut self, pid: i32, builder: &mut Builder) -> Result<ProcessId> {
        Ok(process(&mut self.by_pid, pid, builder)?.id)
    }

    /// A process that executes another program has none of its mappings.
    pub(super) fn exec(&mut self, pid: i32, builder: &mut Builder) -> Result<()> {
        process(&mut self.by_pid, pid, builder)?.maps = Maps::default();
        self.copies.forget(pid);
        Ok(())
    }

    /// A new process has the mappings of its parent.
    pub(super) fn fork(&mut self, pid: i32, parent: i32, builder: &mut Builder) -> Result<()> {
        if pid != parent
            && let Some(parent) = self.by_pid.get(&parent)
        {
            let maps = parent.maps.inherited();
            self.count_maps(maps.by_start.len())?;
            process(&mut self.by_pid, pid, builder)?.maps = maps;
            self.copies.forget(pid);
        }
        Ok(())
    }

    /// Adds a mapping at `start`.
    pub(super) fn map(
        &mut self,
        pid: i32,
        start: u64,
        mut map: Map,
        builder: &mut Builder,
    ) -> Result<()> {
        if pid < 0 {
            return Ok(());
        }
        if map.build_id.is_none() && &*map.path == VDSO {
            map.build_id = self.vdso_id(builder);
        }
        if map.build_id.is_none() && !is_anonymous(&map.path) {
            let seen = map.seen;
            let here = seen.and_then(|seen| self.identified(&map.path, seen));
            map.build_id = here.or_else(|| self.recorded(&map.path, seen));
        }
        self.count_maps(1)?;
        self.jit.mapped(pid, &map.path);
        let process = process(&mut self.by_pid, pid, builder)?;
        process.maps.add(start, map);
        Ok(())
    }

    /// The build-id of a file of this machine, if it is the one that was recorded.
    fn identified(&mut self, path: &Arc<str>, seen: SeenFile) -> Option<BuildId> {
        let n_known = self.identified.len();
        match self.identified.entry((Arc::clone(path), seen)) {
            Entry::Occupied(known) => known.get().clone(),
            Entry::Vacant(_) if n_known >= MAX_IDENTIFIED => None,
            Entry::Vacant(new) => {
                let wanted = WantedFile::Seen(path.to_string(), seen);
                let file = self.copies.code.open(&wanted);
                new.insert(file.and_then(build_id_of)).clone()
            }
        }
    }

    /// The build-id of this kernel's vdso, if the recording is of this kernel: perf does not save that of its own by default.
    fn vdso_id(&mut self, builder: &Builder) -> Option<BuildId> {
        let header = &builder.trace.tables.header;
        let code = &mut *self.copies.code;
        let wanted = || WantedFile::Vdso {
            kernel: header.kernel.clone(),
            host: header.host.clone(),
        };
        let ask = || build_id_of(code.open(&wanted())?);
        self.vdso_id.get_or_insert_with(ask).clone()
    }

    /// The build-id that perf saved for a path. It saves one, whatever files of several mount namespaces have it.
    fn recorded(&mut self, path: &Arc<str>, seen: Option<SeenFile>) -> Option<BuildId> {
        let build_id = self.build_ids.get(&**path)?.clone();
        if let Some(seen) = seen {
            let first = self.first_seen.entry(Arc::clone(path)).or_insert(seen);
            if *first != seen {
                self.n_ambiguous += 1;
                return None;
            }
        }
        Some(build_id)
    }

    fn count_maps(&mut self, n: usize) -> Result<()> {
        self.n_maps += n;
        within(self.n_maps, limits::MAX_MAPPINGS, "the number of mappings")
    }

    /// Gives code that was made at run time its names.
    pub(super) fn name_jit(&mut self, builder: &mut Builder) {
        self.jit.name(self.copies.code, builder);
    }

    /// The stack of addresses with context markers, leaf first.
    pub(super) fn stack_of(
        &mut self,
        pid: i32,
        chain: &[u64],
        builder: &mut Builder,
    ) -> Result<StackId> {
        let chain = with_contexts(chain.iter().copied(), false);
        self.stack_of_chain(pid, chain, StackEnd::Root, builder)
    }

    /// The stack of a sample.
    pub(super) fn stack(
        &mut self,
        pid: i32,
        sample: &SampleRecord<'_>,
        copies_stack: bool,
        builder: &mut Builder,
    ) -> Result<StackId> {
        let mut chain = chain(sample);
        let mut end = StackEnd::Root;
        // The address of a sample in user space is the first one that the copy gives, too.
        let has_callers = chain.iter().any(|at| !at.is_kernel && !at.is_exact);
        if copies_stack
            && !has_callers
            && let (Some(regs), Some(copy)) = (&sample.user_regs, &sample.user_stack)
        {
            let maps = &mut process(&mut self.by_pid, pid, builder)?.maps;
            let (frames, why) = self.copies.unwind(pid, maps, regs, copy);
            if !frames.is_empty() {
                chain.retain(|at| at.is_kernel);
            }
            // As lookup addresses, which are not to be changed again.
            let address = |address| ChainAddress::new(address, false, true);
            chain.extend(frames.into_iter().map(address));
            end = why;
        }
        self.stack_of_chain(pid, chain, end, builder)
    }

    fn stack_of_chain(
        &mut self,
        pid: i32,
        chain: Vec<ChainAddress>,
        mut end: StackEnd,
        builder: &mut Builder,
    ) -> Result<StackId> {
        if chain.iter().all(|at| at.is_kernel) {
            end = StackEnd::NoUserStack;
        }
        let mut root_first: Vec<FrameId> = Vec::with_capacity(chain.len());
        for at in chain.into_iter().rev() {
            let lookup = at.address.wrapping_sub(u64::from(!at.is_exact));
            let frame = if at.is_kernel {
                Frame::KernelCode(Avma(lookup))
            } else {
                let Process { id, maps } = process(&mut self.by_pid, pid, builder)?;
                let (files, code) = (&mut self.files, &mut *self.copies.code);
                maps.frame(lookup, *id, builder, files, code)?
            };
            let is_mapped = !matches!(frame, Frame::Unmapped(_));
            let id = builder.frame(frame)?;
            if !is_mapped {
                self.jit.met(pid, id, Avma(lookup));
            }
            root_first.push(id);
        }
        builder.stack(root_first, end)
    }
}

fn build_id_of(file: TargetFile) -> Option<BuildId> {
    BuildId::new(&ElfFile::from_file(file).ok()?.build_id()?)
}

/// A process, which is added if it is new.
fn process<'a>(
    by_pid: &'a mut HashMap<i32, Process>,
    pid: i32,
    builder: &mut Builder,
) -> Result<&'a mut Process> {
    Ok(match by_pid.entry(pid) {
        Entry::Occupied(known) => known.into_mut(),
        Entry::Vacant(new) => new.insert(Process {
            id: builder.process(Pid(pid), "")?,
            maps: Maps::default(),
        }),
    })
}

/// The call chain of a sample, leaf first; without one, the address of the sample.
fn chain(sample: &SampleRecord<'_>) -> Vec<ChainAddress> {
    let is_kernel = matches!(sample.cpu_mode, CpuMode::Kernel);
    let mut chain = match &sample.callchain {
        Some(of) => with_contexts((0..of.len()).filter_map(|i| of.get(i)), is_kernel),
        None => Vec::new(),
    };
    if chain.is_empty() {
        let address = |address| ChainAddress::new(address, is_kernel, true);
        chain.extend(sample.ip.map(address));
    }
    chain
}

/// Whether the user stack of a sample is in a record that comes later.
pub(super) fn is_deferred(sample: &SampleRecord<'_>) -> bool {
    let chain = sample.callchain.as_ref();
    chain.is_some_and(|of| (0..of.len()).any(|i| of.get(i) == Some(CONTEXT_USER_DEFERRED)))
}

/// Addresses among which markers say whether those behind them are of the kernel.
fn with_contexts(addresses: impl Iterator<Item = u64>, mut is_kernel: bool) -> Vec<ChainAddress> {
    let mut chain = Vec::new();
    let mut is_exact = true;
    let mut addresses = addresses;
    while let Some(address) = addresses.next() {
        if address == CONTEXT_USER_DEFERRED {
            // No address, but which record it is.
            addresses.next();
        } else if address >= CONTEXT_MAX {
            is_kernel = address == CONTEXT_KERNEL || (is_kernel && address != CONTEXT_USER);
            is_exact = true;
        } else if address != 0 && chain.len() <= limits::MAX_FRAMES {
            chain.push(ChainAddress::new(address, is_kernel, is_exact));
            is_exact = false;
        }
    }
    chain
}
