//! The file format: wire types, apart from the model. `docs/trace-format.md` is its description.

pub(crate) mod block;
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
pub(crate) use file_header::MAGIC;
pub use file_header::{FILE_HEADER_BYTES, FORMAT_MINOR, FORMAT_VERSION};
pub(crate) use section::put_section;
