//! StackCopies of user stacks (`perf record --call-graph dwarf`) to frames, by the call frame information
//! of the files of this machine that have the recorded build-ids, and of this kernel's vdso if it is
//! the recorded one.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::sync::Arc;

use linux_perf_data::linux_perf_event_reader::{RawData, Regs};
use wcprof_types::{Avma, BuildId, LoadBias, ScratchRegs, StackEnd, UserRegs, VDSO};
use wcprof_unwind::{StackCopy, TextMemory, Unwinder, UnwoundStack};

use super::jit::is_anonymous;
use super::maps::{Map, Maps};
use crate::code::CodeFiles;
use crate::identified_file::IdentifiedFile;

/// Numbers of registers in perf's samples (`arch/x86/include/uapi/asm/perf_regs.h`).
mod reg {
    pub(super) const BX: u64 = 1;
    pub(super) const BP: u64 = 6;
    pub(super) const SP: u64 = 7;
    pub(super) const IP: u64 = 8;
    /// `rax`, `rdx`, `rdi`, `r8` to `r11`, with their DWARF numbers.
    pub(super) const SCRATCH: [(u16, u64); 7] =
        [(0, 0), (1, 3), (5, 5), (8, 16), (9, 17), (10, 18), (11, 19)];
}

/// An unwinder takes almost 1 MB: of more processes those that were met last have one.
const MAX_UNWINDERS: usize = 32;
/// Files that are held open, with their call frame information, and bytes of the latter.
const MAX_FILES: usize = 512;
const MAX_FILE_BYTES: usize = 512 << 20;
/// Most mappings of one unwinder; perf records only those of code.
const MAX_MODULES: usize = 1 << 14;
/// The same of all unwinders: each mapping makes one forget what it knew.
const MAX_GIVEN: usize = 1 << 18;

/// The unwinder of one process.
#[derive(Default)]
struct ProcessUnwinder {
    unwinder: Unwinder,
    /// By begin: end, load bias, file.
    texts: BTreeMap<u64, (u64, LoadBias, Arc<IdentifiedFile>)>,
    /// Mappings that it was given.
    n_given: usize,
    /// When it was last used.
    used: u64,
}

/// Unwinds the copies of all processes.
pub(super) struct StackCopies<'c> {
    pub(super) code: &'c mut dyn CodeFiles,
    files: HashMap<(String, BuildId), Option<Arc<IdentifiedFile>>>,
    file_bytes: usize,
    processes: HashMap<i32, ProcessUnwinder>,
    n_given: usize,
    n_used: u64,
    stack: UnwoundStack,
    /// StackCopies by why their stacks ended.
    pub(super) ends: BTreeMap<StackEnd, u64>,
    /// Paths of modules that were not found here with their build-id, and whether that is known.
    missing: BTreeSet<(String, bool)>,
}

/// Lookup addresses of frames, leaf first, and why there are no more.
pub(super) type Unwound = (Vec<u64>, StackEnd);

impl<'c> StackCopies<'c> {
    /// None yet; `code` opens the files of mappings.
    pub(super) fn new(code: &'c mut dyn CodeFiles) -> Self {
        Self {
            code,
            files: HashMap::new(),
            file_bytes: 0,
            processes: HashMap::new(),
            n_given: 0,
            n_used: 0,
            stack: UnwoundStack::default(),
            ends: BTreeMap::new(),
            missing: BTreeSet::new(),
        }
    }

    /// The frames of a copy, leaf first.
    pub(super) fn unwind(
        &mut self,
        pid: i32,
        maps: &mut Maps,
        regs: &Regs<'_>,
        (copy, len): &(RawData<'_>, u64),
    ) -> Unwound {
        let (Some(ip), Some(sp)) = (regs.get(reg::IP), regs.get(reg::SP)) else {
            return self.ended(Vec::new(), StackEnd::NoUserStack);
        };
        let regs = UserRegs {
            ip: Avma(ip),
            sp: Avma(sp),
            bp: regs.get(reg::BP),
            bx: regs.get(reg::BX),
            scratch: ScratchRegs::new(reg::SCRATCH.map(|(dwarf, perf)| (dwarf, regs.get(perf)))),
        };
        let bytes = copy.as_slice();
        // The rest of the space that was reserved for the copy says nothing.
        let len = usize::try_from(*len).unwrap_or(usize::MAX);
        let bytes = bytes.get(..len).unwrap_or(&bytes);
        self.add_new_mappings(pid, maps);
        let Some(known) = self.processes.get_mut(&pid) else {
            return self.ended(vec![ip], StackEnd::NoUnwindInfo);
        };
        let mut memory = StackCopy::new(regs.sp, bytes, Avma(u64::MAX));
        let mut text = Text(&known.texts);
        known
            .unwinder
            .unwind(&regs, &mut memory, &mut text, &mut self.stack);
        let frames = self.stack.frames.iter();
        let frames = frames.map(|frame| frame.address.for_lookup().0);
        let frames = frames.collect();
        self.ended(frames, self.stack.end)
    }

    /// The process has other mappings now.
    pub(super) fn forget(&mut self, pid: i32) {
        self.processes.remove(&pid);
    }

    fn ended(&mut self, frames: Vec<u64>, end: StackEnd) -> Unwound {
        *self.ends.entry(end).or_default() += 1;
        (frames, end)
    }

    /// Tells a process's unwinder of the mappings that are new to it.
    fn add_new_mappings(&mut self, pid: i32, maps: &mut Maps) {
        self.n_used += 1;
        let is_new = !self.processes.contains_key(&pid);
        if is_new && self.processes.len() >= MAX_UNWINDERS {
            let oldest = self.processes.iter().min_by_key(|(_, known)| known.used);
            let oldest = oldest.map(|(&pid, _)| pid);
            oldest.map(|pid| self.processes.remove(&pid));
        }
        if self.n_given >= MAX_GIVEN {
            return;
        }
        let mut changes = std::mem::take(&mut maps.changes);
        if is_new {
            changes = maps.by_start.keys().copied().collect();
        }
        let mut added = Vec::new();
        for start in changes.into_iter().take(MAX_MODULES) {
            if let Some(map) = maps.by_start.get(&start) {
                let code = if has_code(map) { self.code(map) } else { None };
                let bias = |code: Arc<IdentifiedFile>| {
                    Some((code.code.load_bias(&map.mapping(start))?, code))
                };
                let code = code.and_then(bias);
                added.push((start, map.end, has_code(map), code));
            }
        }
        let known = self.processes.entry(pid).or_default();
        known.used = self.n_used;
        for (start, end, has_code, code) in added {
            if known.n_given >= MAX_MODULES {
                break;
            }
            known.n_given += 1;
            self.n_given += 1;
            known.add(start, end, has_code, code);
        }
    }

    /// The file of a mapping, if it is here and the one that was recorded.
    fn code(&mut self, map: &Map) -> Option<Arc<IdentifiedFile>> {
        let Some(build_id) = &map.build_id else {
            self.note_missing(map, false);
            return None;
        };
        let key = (map.path.to_string(), build_id.clone());
        let known = match self.files.get(&key) {
            Some(known) => known.clone(),
            None => {
                let has_room = self.files.len() < MAX_FILES && self.file_bytes < MAX_FILE_BYTES;
                let find = || IdentifiedFile::find(self.code, &map.path, build_id, usize::MAX);
                let code = has_room.then(find).flatten();
                let code = code.map(Arc::new);
                self.file_bytes += code.as_ref().map_or(0, |code| code.code.heap_bytes());
                if has_room {
                    self.files.insert(key, code.clone());
                }
                code
            }
        };
        if known.is_none() {
            self.note_missing(map, true);
        }
        known
    }

    fn note_missing(&mut self, map: &Map, has_id: bool) {
        if self.missing.len() < MAX_FILES {
            self.missing.insert((map.path.to_string(), has_id));
        }
    }

    /// What is to be said of them.
    pub(super) fn notes(&self) -> Vec<String> {
        let mut notes = Vec::new();
        let n: u64 = self.ends.values().sum();
        if n == 0 {
            return notes;
        }
        let cut = self.ends.iter().filter(|(end, _)| end.is_truncated());
        let cut: Vec<String> = cut
            .map(|(end, n)| format!("{n} {}", end.reason()))
            .collect();
        let ends = match cut.is_empty() {
            true => ", all of them to their roots".to_owned(),
            false => format!("; some are truncated: {}", cut.join(", ")),
        };
        notes.push(format!("{n} copies of user stacks were unwound{ends}"));
        for (has_id, what) in [
            (true, "are not on this machine with the recorded build-id"),
            (
                false,
                "have no recorded build-id (record with --buildid-all)",
            ),
        ] {
            let missing = self.missing.iter().filter(|(_, id)| *id == has_id);
            let paths: Vec<&str> = missing.map(|(path, _)| path.as_str()).collect();
            if let [first, ..] = paths.as_slice() {
                notes.push(format!(
                    "stacks are not followed through {} modules that {what}: {first}{}",
                    paths.len(),
                    if paths.len() > 1 { ", ..." } else { "" }
                ));
            }
        }
        notes
    }
}

/// Whether a mapping has code of a file, or of the kernel's vdso.
fn has_code(map: &Map) -> bool {
    &*map.path == VDSO || !is_anonymous(&map.path)
}

impl ProcessUnwinder {
    /// Adds a mapping in the place of what it covers.
    fn add(
        &mut self,
        start: u64,
        end: u64,
        has_code: bool,
        code: Option<(LoadBias, Arc<IdentifiedFile>)>,
    ) {
        let covered: Vec<u64> = self.texts.range(start..end).map(|(&at, _)| at).collect();
        for at in covered {
            self.texts.remove(&at);
        }
        let bias = code.as_ref().map_or(LoadBias(0), |(bias, _)| *bias);
        let of_unwinder = code.as_ref().map(|(_, code)| Arc::clone(&code.code));
        let of_unwinder = of_unwinder.ok_or(StackEnd::ModuleUnreadable);
        let unwinder = &mut self.unwinder;
        let added = unwinder.add_module(Avma(start), Avma(end), bias, of_unwinder);
        if !has_code {
            unwinder.remove_module(Avma(start));
        }
        if let (Some(_), Some((bias, code))) = (added, code) {
            self.texts.insert(start, (end, bias, code));
        }
    }
}

/// Code bytes from the files.
struct Text<'a>(&'a BTreeMap<u64, (u64, LoadBias, Arc<IdentifiedFile>)>);

impl TextMemory for Text<'_> {
    fn read_text(&mut self, address: Avma, bytes: &mut [u8]) -> bool {
        let Some((_, (end, bias, code))) = self.0.range(..=address.0).next_back() else {
            return false;
        };
        let until = address.0.checked_add(bytes.len() as u64);
        let fits = until.is_some_and(|until| until <= *end);
        fits && code.read_text(*bias, address, bytes)
    }
}
