//! ELF files to sections, each read only when asked for, whole or as a stream.

mod bytes;
mod dynamic;
mod error;
mod file;
mod notes;
mod parse;
mod stream;
mod table;

pub use bytes::{AsFile, Source};
pub use dynamic::{DynamicSymbols, read_table};
pub use error::ElfError;
pub use file::ElfFile;
pub use notes::{AltLink, DebugLink};
pub use parse::{Kind, Section, Segment};
pub use stream::SectionStream;
pub use table::{c_string, entries};

#[cfg(test)]
mod tests;
