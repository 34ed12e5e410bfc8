//! What is wrong with a file.

use dwarf_stream::elf::ElfError;
use thiserror::Error;

/// Why a file gives no [`ModuleCode`](crate::ModuleCode).
#[derive(Debug, Error)]
pub enum CodeError {
    /// It cannot be read, or is no ELF file.
    #[error(transparent)]
    Elf(#[from] ElfError),
    /// It is for another machine.
    #[error("not an x86-64 ELF file (machine {0})")]
    NotX86_64(u16),
    /// Its call frame information exceeds what the reader permits.
    #[error("its call frame information takes more memory than is left for it")]
    NoRoom,
    /// A header points outside the address space or is missing.
    #[error("malformed ELF file: {0}")]
    Malformed(&'static str),
}

impl CodeError {
    /// Whether the file is no ELF file: a runtime's image, or shared memory that a JIT compiler writes to.
    pub fn is_no_elf_file(&self) -> bool {
        matches!(self, Self::Elf(ElfError::NotElf))
    }
}
