//! The file format: wire types, apart from the model. `docs/trace-format.md` is its description. Version 2 is
//! written and read, version 1 is read; they differ in the headers of file and blocks, in that version 2
//! puts a length before each entry, and in what the differences of spans begin at.

pub(crate) mod block;
pub(crate) mod block_v1;
pub(crate) mod codec;
pub(crate) mod counters;
pub(crate) mod entries;
pub(crate) mod facts;
mod features;
mod file_header;
pub(crate) mod index;
pub(crate) mod locks;
pub(crate) mod section;
pub(crate) mod span_reader;
pub(crate) mod spans;
pub(crate) mod symbols;
pub(crate) mod wire;

pub(crate) use features::FileHeader;
pub use file_header::{FILE_HEADER_BYTES, FORMAT_MINOR, FORMAT_VERSION};
pub(crate) use file_header::{MAGIC, SHORT_HEADER_BYTES};
pub(crate) use section::{OPTIONAL_SECTIONS, put_section};
