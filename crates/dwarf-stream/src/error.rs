//! Why DWARF could not be used.

use thiserror::Error;

use crate::elf::ElfError;

/// Why a file's DWARF, or a part of it, could not be used.
#[derive(Debug, Error)]
pub enum DwarfError {
    /// A unit is larger than what may be in memory at a time.
    #[error(
        "a unit of its debug information takes {need} bytes, and {limit} of the memory limit are \
         for units"
    )]
    Memory {
        /// Bytes of the unit.
        need: u64,
        /// Bytes that units may take.
        limit: u64,
    },
    /// Strings were left out.
    #[error("its names and paths take more than the {limit} bytes of the memory limit for them")]
    Strings {
        /// Bytes that strings may take.
        limit: u64,
    },
    /// Functions were left out.
    #[error("its functions take more than the {limit} bytes of the memory limit for them")]
    Frames {
        /// Bytes that functions may take.
        limit: u64,
    },
    /// It takes far more work than real files of its size.
    #[error(
        "its debug information refers to itself so often that reading it takes more than {limit} \
         steps; it is damaged, or made to take long"
    )]
    Work {
        /// Steps for a file of this size and so many addresses.
        limit: u64,
    },
    /// A table does not fit into memory, and could not be put into a file either.
    #[error("failed to expand section {section} to a file of {size} bytes: {source}")]
    Spill {
        /// The table's section.
        section: String,
        /// Its size in bytes, expanded.
        size: u64,
        /// The system's reason.
        source: std::io::Error,
    },
    /// The system refused a thread.
    #[error("failed to start a thread: {0}")]
    Thread(std::io::Error),
    /// A unit at this offset is longer than the section.
    #[error("the unit at {0:#x} of .debug_info does not end inside the section")]
    UnitLength(u64),
    /// A file of split DWARF is not where it may be.
    #[error("`{0}` (split DWARF) was not found")]
    SplitMissing(String),
    /// A file of split DWARF cannot be read, or is of another build.
    #[error("`{path}` (split DWARF): {reason}")]
    SplitUnusable {
        /// The file.
        path: String,
        /// Why.
        reason: String,
    },
    /// The file cannot be read.
    #[error(transparent)]
    Elf(#[from] ElfError),
    /// The DWARF contradicts itself.
    #[error("malformed DWARF: {0}")]
    Gimli(#[from] gimli::Error),
}

/// Failures during a lookup: the number of addresses, and the first failure.
#[derive(Debug, Default)]
pub(crate) struct Failures(pub(crate) Option<(usize, DwarfError)>);

impl Failures {
    /// Counts `n` addresses that were lost to `error`.
    pub(crate) fn add(&mut self, n: usize, error: DwarfError) {
        if n > 0 {
            self.0.get_or_insert((0, error)).0 += n;
        }
    }
}
