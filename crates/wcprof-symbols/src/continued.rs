//! Functions without a symbol to the named functions that end in a jump to them, x86-64.
//!
//! A function that ends in a call of a local one leaves its own frame first and jumps: `sem_wait` of glibc goes on in
//! `__new_sem_wait_slow64`, and nothing on the stack says `sem_wait`. In a file without the names of local functions,
//! such a local function gets the name of what jumps to it, if nothing else refers to it: then no other way leads there.
//! Instructions are not decoded: each byte may begin one. Bytes that happen to look like a reference cost a name.

use std::collections::{BTreeMap, BTreeSet};

use dwarf_stream::elf::{ElfError, ElfFile, Section};
use object::elf::{EM_X86_64, PT_LOAD, SHF_ALLOC};
use wcprof_types::Svma;

use crate::symtab::SymbolIndex;

/// Largest section looked through, bytes. A file with a larger one gets no such names.
const MAX_SECTION: u64 = 64 << 20;
/// Most functions that may go on in one.
const MAX_NAMES: usize = 8;

/// The functions that go on in others, by the start of these.
#[derive(Debug, Default)]
pub(crate) struct Continued {
    names: BTreeMap<u64, BTreeSet<Vec<u8>>>,
}

impl Continued {
    /// Looks through a file for what refers to functions, each with its start and its end (exclusive).
    pub(crate) fn read(
        elf: &ElfFile,
        symbols: &SymbolIndex,
        functions: &[(Svma, Svma)],
    ) -> Result<Self, ElfError> {
        let loaded = |s: &&Section| s.has_data() && s.flags & SHF_ALLOC.0 != 0;
        let loaded = || elf.sections.iter().filter(loaded);
        let is_small = loaded().all(|section| section.size <= MAX_SECTION);
        if elf.machine != EM_X86_64.0 || functions.is_empty() || !is_small {
            return Ok(Self::default());
        }
        let mut search = Search {
            symbols,
            ends: functions
                .iter()
                .map(|(start, end)| (start.0, end.0))
                .collect(),
            is_fixed: !(elf.segments.iter()).any(|s| s.kind == PT_LOAD.0 && s.address == 0),
            names: BTreeMap::new(),
            others: BTreeSet::new(),
        };
        for section in loaded() {
            let bytes = elf.read(section, MAX_SECTION)?;
            match section.is_executable() {
                true => search.code(&bytes, section.address),
                false => search.data(&bytes),
            }
        }
        let (mut names, others) = (search.names, search.others);
        names.retain(|start, names| !others.contains(start) && names.len() <= MAX_NAMES);
        Ok(Self { names })
    }

    /// The linkage names of what goes on in the function that begins at `start`, the shortest first.
    pub(crate) fn at(&self, start: Svma) -> Vec<&[u8]> {
        let names = self.names.get(&start.0).into_iter().flatten();
        let mut names: Vec<&[u8]> = names.map(Vec::as_slice).collect();
        names.sort_by_key(|name| (name.len(), *name));
        names
    }
}

struct Search<'a> {
    symbols: &'a SymbolIndex,
    /// Ends of the functions, by their starts.
    ends: BTreeMap<u64, u64>,
    /// Addresses in the file are those in memory.
    is_fixed: bool,
    names: BTreeMap<u64, BTreeSet<Vec<u8>>>,
    /// Functions that something else refers to.
    others: BTreeSet<u64>,
}

impl Search<'_> {
    /// Jumps, calls, and instructions that take an address.
    fn code(&mut self, bytes: &[u8], address: u64) {
        let mut starts = self.ends.keys();
        let (Some(&first), last) = (starts.next(), starts.next_back()) else {
            return;
        };
        let functions = first..=last.copied().unwrap_or(first);
        for (at, byte) in bytes.iter().enumerate() {
            let here = address.wrapping_add(at as u64);
            let before = |n: usize| at.checked_sub(n).and_then(|at| bytes.get(at)).copied();
            let to = here
                .wrapping_add(1)
                .wrapping_add_signed((*byte as i8).into());
            if matches!(before(1), Some(0xeb | 0x70..=0x7f)) && functions.contains(&to) {
                self.refer(to, Some(here));
            }
            let Some(near) = bytes[at..].first_chunk() else {
                continue;
            };
            let near = i32::from_le_bytes(*near);
            let to = here.wrapping_add(4).wrapping_add_signed(near.into());
            if functions.contains(&to) {
                match (before(2), before(1)) {
                    (Some(0x0f), Some(0x80..=0x8f)) | (_, Some(0xe9)) => self.refer(to, Some(here)),
                    (_, Some(0xe8)) => self.refer(to, None),
                    // lea offset(%rip), %register
                    (Some(0x8d), Some(modrm)) if modrm & 0xc7 == 0x05 => self.refer(to, None),
                    _ => {}
                }
            }
            // In a program that is loaded where its file says.
            let absolute = u64::from(near as u32);
            if self.is_fixed && functions.contains(&absolute) {
                self.refer(absolute, None);
            }
        }
    }

    /// Addresses in tables, and in relocations (`.rela.dyn`).
    fn data(&mut self, bytes: &[u8]) {
        for word in bytes.as_chunks().0 {
            self.refer(u64::from_le_bytes(*word), None);
        }
    }

    /// Something refers to an address: a jump at `from`, or anything else.
    fn refer(&mut self, to: u64, from: Option<u64>) {
        let Some(end) = self.ends.get(&to) else {
            return;
        };
        if from.is_some_and(|from| (to..*end).contains(&from)) {
            return;
        }
        match from.and_then(|from| self.symbols.at(Svma(from))) {
            Some(name) => {
                self.names.entry(to).or_default().insert(name.to_vec());
            }
            None => {
                self.others.insert(to);
            }
        }
    }
}
