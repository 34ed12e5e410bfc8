//! pprof's messages, what they are made of, and the file.

mod file;
pub(crate) mod proto;
pub(crate) mod tables;

pub use self::file::pprof;
