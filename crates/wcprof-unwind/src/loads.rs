//! Where an ELF file wants to lie: its `PT_LOAD` segments, and what follows from them for a mapping of it.

use std::ops::Range;

use dwarf_stream::elf::{ElfFile, Segment};
use wcprof_types::{FileOffset, LoadBias, Mapping, Svma};

use crate::error::CodeError;

/// Most program headers; real files have about 14.
const MAX_SEGMENTS: usize = 256;
/// Addresses of a loadable file lie below this (the lower half of the address space).
const MAX_SVMA: u64 = 1 << 47;
const PAGE: u64 = 4096;
const PT_LOAD: u32 = 1;
const PF_X: u32 = 1;

/// The checked `PT_LOAD` segments of an ELF file, at least one, in the file's order.
#[derive(PartialEq, Eq, Debug)]
pub struct Loads(Vec<Segment>);

impl Loads {
    /// Those of a file.
    ///
    /// # Errors
    /// When there are none or too many, or they lie outside the address space.
    pub fn of(elf: &ElfFile) -> Result<Self, CodeError> {
        Self::check(&elf.segments)
    }

    fn check(segments: &[Segment]) -> Result<Self, CodeError> {
        if segments.len() > MAX_SEGMENTS {
            return Err(CodeError::Malformed("too many program headers"));
        }
        let fits = |from: u64, size: u64, limit: u64| {
            from.checked_add(size).is_some_and(|end| end <= limit)
        };
        let loads = segments.iter().filter(|s| s.kind == PT_LOAD).copied();
        let loads: Vec<Segment> = loads.collect();
        let is_valid = |l: &Segment| {
            fits(l.address, l.memory_size, MAX_SVMA) && fits(l.offset, l.file_size, i64::MAX as u64)
        };
        match loads.as_slice() {
            [] => Err(CodeError::Malformed("no PT_LOAD segment")),
            loads if !loads.iter().all(is_valid) => {
                Err(CodeError::Malformed("PT_LOAD outside the address space"))
            }
            _ => Ok(Self(loads)),
        }
    }

    /// Base that relative addresses count from: the page of the first one.
    pub fn base(&self) -> Svma {
        Svma(self.0.first().map_or(0, |l| l.address) & !(PAGE - 1))
    }

    /// First address after the last one.
    pub(crate) fn end(&self) -> Svma {
        let ends = self.0.iter().map(|l| l.address + l.memory_size);
        Svma(ends.max().unwrap_or(0))
    }

    /// The load bias, when `mapping` is of this file; `None` when no segment has that place in the file.
    pub fn bias(&self, mapping: &Mapping) -> Option<LoadBias> {
        let FileOffset(offset) = mapping.offset;
        // A page of the file may be mapped twice, at the end of one segment and the start of the
        // next: the right one has the mapping's permission and, of several, begins in that page.
        let holds = |l: &&Segment| {
            let end = (l.offset + l.file_size).saturating_add(PAGE - 1) & !(PAGE - 1);
            l.file_size > 0 && ((l.offset & !(PAGE - 1))..end).contains(&offset)
        };
        let differs = |l: &&Segment| {
            let begins_there = l.offset & !(PAGE - 1) == offset;
            (is_executable(l) != mapping.executable, !begins_there)
        };
        let segment = self.0.iter().filter(holds).min_by_key(differs)?;
        let svma = segment.address.wrapping_sub(segment.offset);
        let svma = svma.wrapping_add(offset);
        Some(LoadBias(mapping.start.0.wrapping_sub(svma)))
    }

    /// Whether an address is in an executable one.
    pub(crate) fn is_code(&self, svma: u64) -> bool {
        let is_inside = |l: &Segment| {
            svma.checked_sub(l.address)
                .is_some_and(|o| o < l.memory_size)
        };
        self.0.iter().any(|l| is_executable(l) && is_inside(l))
    }

    /// Addresses of the executable ones.
    pub(crate) fn code(&self) -> impl Iterator<Item = Range<u64>> {
        let executable = self.0.iter().filter(|l| is_executable(l));
        executable.map(|l| l.address..l.address.saturating_add(l.memory_size))
    }

    /// Position in the file of whole pages of an executable segment; `None` for other pages.
    pub(crate) fn code_offset(&self, pages: Range<u64>) -> Option<u64> {
        self.0.iter().filter(|l| is_executable(l)).find_map(|l| {
            let start = l.address & !(PAGE - 1);
            let end = l.address.saturating_add(l.memory_size);
            let end = end.saturating_add(PAGE - 1) & !(PAGE - 1);
            let is_inside = start <= pages.start && pages.end <= end;
            is_inside.then(|| (l.offset & !(PAGE - 1)).saturating_add(pages.start - start))
        })
    }

    /// Where in the file an address is, and how many bytes follow it; `None` outside what is loaded from the
    /// file.
    pub(crate) fn file_range(&self, svma: u64) -> Option<(u64, u64)> {
        self.0.iter().find_map(|l| {
            let into = svma.checked_sub(l.address).filter(|i| *i < l.file_size)?;
            Some((l.offset + into, l.file_size - into))
        })
    }

    pub(crate) fn heap_bytes(&self) -> usize {
        self.0.len() * size_of::<Segment>()
    }
}

fn is_executable(load: &Segment) -> bool {
    load.flags & PF_X != 0
}

#[cfg(test)]
mod tests {
    use super::*;
    use wcprof_types::Avma;

    fn load(flags: u32, offset: u64, address: u64) -> Segment {
        Segment {
            kind: PT_LOAD,
            flags,
            offset,
            address,
            file_size: 0x1140,
            memory_size: 0x1140,
            align: 0x1000,
        }
    }

    /// Check that code that shares a page of the file with what is before it (as LLD lays it out) has its own bias.
    #[test]
    fn shared_page() {
        let loads = Loads::check(&[load(4, 0, 0x3010), load(5, 0x1140, 0x5140)]).expect("loads");
        let mapping = |executable, offset| Mapping {
            start: Avma(0x7000),
            end: Avma(0x9000),
            readable: true,
            mutable: false,
            executable,
            offset: FileOffset(offset),
            device: (0, 0),
            inode: 0,
            path: "".into(),
        };
        let bias = |executable, offset| loads.bias(&mapping(executable, offset));
        assert_eq!(bias(true, 0x1000), Some(LoadBias(0x2000)));
        assert_eq!(bias(false, 0x1000), Some(LoadBias(0x2ff0)));
        assert_eq!(bias(true, 0x3000), None);
        // Two of them may have code, and one may be written to.
        let both = Loads::check(&[load(5, 0, 0x3000), load(7, 0x1140, 0x5140)]).expect("loads");
        assert_eq!(both.bias(&mapping(true, 0)), Some(LoadBias(0x4000)));
        assert_eq!(both.bias(&mapping(true, 0x1000)), Some(LoadBias(0x2000)));
        assert_eq!((loads.base(), loads.end()), (Svma(0x3000), Svma(0x6280)));
    }

    /// Check that segments outside the address space, none, and too many are refused.
    #[test]
    fn refused() {
        for loads in [
            vec![],
            vec![load(5, 0, u64::MAX)],
            vec![load(5, u64::MAX, 0)],
            vec![load(5, 0, 0); MAX_SEGMENTS + 1],
        ] {
            let refused = Loads::check(&loads);
            assert!(
                matches!(refused, Err(CodeError::Malformed(_))),
                "{refused:?}"
            );
        }
    }
}
