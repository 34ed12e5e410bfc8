//! Largest sizes that are read, so that a hostile file cannot use unbounded memory.

/// Bytes that a format is recognized by.
pub const HEAD_BYTES: usize = 64 << 10;
/// Bytes of a text, of any format but perf.data.
pub const MAX_TEXT_BYTES: usize = 256 << 20;
/// Frames of a stack; the rest on the leaf side is cut, and counted.
pub const MAX_FRAMES: usize = wcprof_unwind::MAX_FRAMES;
/// Bytes of a name; the rest is cut.
pub const MAX_NAME_BYTES: usize = 8 << 10;
/// Threads.
pub const MAX_THREADS: usize = 1 << 18;
/// Samples.
pub const MAX_SPANS: usize = 1 << 24;
/// Functions of which only the name is known; those beyond are [`OTHER`]. Programs have tens of thousands in their stacks.
pub const MAX_NAMES: usize = 1 << 18;
/// Bytes of all names; those beyond are [`OTHER`], too.
pub const MAX_NAMES_BYTES: usize = 64 << 20;
/// Stands for functions beyond these limits.
pub const OTHER: &str = "[other]";
/// Distinct places in stacks; stacks with places beyond are cut there.
pub const MAX_NODES: usize = 1 << 21;
/// Mappings of `perf.data`.
pub const MAX_MAPPINGS: usize = 1 << 20;
/// Total time, ns (about 18 years).
pub const MAX_TIME_NS: u64 = 1 << 59;
