//! The files that hold a module's DWARF.

use std::fmt;
use std::path::PathBuf;

use gimli::SectionId;

use crate::elf::{ElfError, ElfFile, Section};
use crate::error::DwarfError;

/// Assumed size of split DWARF, whose files are found later, bytes.
const SPLIT_SIZE: u64 = 1 << 30;

/// Sections that a lookup may read.
const SECTIONS: [SectionId; 9] = [
    SectionId::DebugAbbrev,
    SectionId::DebugAddr,
    SectionId::DebugInfo,
    SectionId::DebugLine,
    SectionId::DebugLineStr,
    SectionId::DebugRanges,
    SectionId::DebugRngLists,
    SectionId::DebugStr,
    SectionId::DebugStrOffsets,
];

/// A file with units that were split off.
#[derive(Debug)]
pub struct SplitFile {
    /// The file.
    pub elf: ElfFile,
    /// Its path.
    pub path: PathBuf,
    /// It has many units and an index of them (`.dwp`).
    pub is_package: bool,
}

/// Finds the files that units were split off to.
pub trait SplitFiles: fmt::Debug + Sync {
    /// Packages that may have units of the module, best first, and why one cannot be used.
    fn packages(&self) -> Vec<Result<SplitFile, DwarfError>>;

    /// The file that a skeleton names; `comp_dir` is where it was compiled.
    fn object(&self, comp_dir: &str, name: &str) -> Result<SplitFile, DwarfError>;
}

/// The files that hold a module's DWARF.
#[derive(Copy, Clone, Debug)]
pub struct DwarfFiles<'a> {
    /// The file with `.debug_info`.
    pub main: &'a ElfFile,
    /// What `.gnu_debugaltlink` or `.debug_sup` names: strings and entries that several files share (dwz).
    pub supplementary: Option<&'a ElfFile>,
    /// How to find split DWARF.
    pub split: Option<&'a dyn SplitFiles>,
}

impl DwarfFiles<'_> {
    /// Bytes of all sections that a lookup may read, expanded.
    pub fn expanded_size(&self) -> Result<u64, ElfError> {
        let mut sum = 0_u64;
        for elf in [Some(self.main), self.supplementary].into_iter().flatten() {
            sum = sum.saturating_add(expanded_size(elf, section_of)?);
        }
        if self.split.is_some() && section_of(self.main, SectionId::DebugAddr).is_some() {
            sum = sum.saturating_add(SPLIT_SIZE);
        }
        Ok(sum)
    }
}

/// Finds a section of a file.
pub(crate) type FindSection = fn(&ElfFile, SectionId) -> Option<&Section>;

/// Bytes of the sections of a file that a lookup may read, expanded.
pub(crate) fn expanded_size(elf: &ElfFile, find: FindSection) -> Result<u64, ElfError> {
    let mut sections = SECTIONS.iter().filter_map(|id| find(elf, *id));
    sections.try_fold(0_u64, |sum, section| {
        Ok(sum.saturating_add(elf.expanded_size(section)?))
    })
}

/// A section of a linked file.
pub(crate) fn section_of(elf: &ElfFile, id: SectionId) -> Option<&Section> {
    elf.debug_section(id.name().strip_prefix('.')?)
}

/// A section of a split file: its name ends in `.dwo`.
pub(crate) fn split_section_of(elf: &ElfFile, id: SectionId) -> Option<&Section> {
    elf.debug_section(id.dwo_name()?.strip_prefix('.')?)
}
