//! An ELF file to its build-id.

use dwarf_stream::elf::ElfFile;
use wcprof_types::BuildId;

/// The build-id note of a file; `None` without one, or if it is empty or longer than 64 bytes.
pub(crate) fn build_id_of(elf: &ElfFile) -> Option<BuildId> {
    BuildId::new(&elf.build_id()?)
}
