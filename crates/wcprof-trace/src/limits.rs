//! Largest sizes that a trace may have. The writer keeps to them, the reader refuses what passes
//! them, so that a hostile file cannot make it use unbounded memory.

/// Bytes of a block after decompression.
pub const MAX_BLOCK_BYTES: usize = 64 << 20;
/// Bytes of a string; the writer cuts longer ones.
pub const MAX_STRING_BYTES: usize = 64 << 10;
/// Bytes of the name of a process, thread or host: the kernel's have 16, 16 and 64. Longer ones are cut.
pub const MAX_NAME_BYTES: usize = 256;
/// Processes.
pub const MAX_PROCESSES: usize = 1 << 16;
/// Recordings that a trace was merged from.
pub const MAX_SOURCES: usize = 1 << 12;
/// Sources of processes beyond the first one of each.
pub const MAX_RECORDED_AGAIN: usize = 1 << 20;
/// Modules.
pub const MAX_MODULES: usize = 1 << 20;
/// Threads.
pub const MAX_THREADS: usize = 1 << 22;
/// Names of a thread. Of one that renames itself all the time the writer keeps the first ones and the last.
pub const MAX_THREAD_NAMES: usize = 64;
/// Interned frames.
pub const MAX_FRAMES: usize = 1 << 22;
/// Interned stack nodes.
pub const MAX_NODES: usize = 1 << 24;
/// Interned stacks.
pub const MAX_STACKS: usize = 1 << 23;
/// Interned waits.
pub const MAX_WAITS: usize = 1 << 20;
/// Entries of a list inside an entry: arguments of a command line, notes, rate changes. The
/// writer cuts longer lists.
pub const MAX_LIST: usize = 4096;
/// Functions of one frame: the inline functions and the one they are inlined into. The writer
/// keeps the outermost ones of a longer list.
pub const MAX_INLINE: usize = 256;
/// Looks at locks; later ones are counted alone.
pub const MAX_LOOKS: usize = 1 << 20;
/// Threads that may hold one lock.
pub const MAX_OWNERS: usize = 8;
/// Names of counters.
pub const MAX_COUNTERS: usize = 1 << 14;
/// Values of counters that changed, and readings; later ones are left out.
pub const MAX_COUNTER_VALUES: usize = 1 << 22;
/// Later names of frames.
pub const MAX_LATER_NAMES: usize = 1 << 20;
/// Bytes that a string in a list takes in memory beside its own.
pub const STRING_BYTES: usize = 32;
/// Bytes of all table entries after decompression, with [`STRING_BYTES`]; and in memory of all names of frames.
pub const MAX_TABLE_BYTES: usize = 1 << 30;
/// Spans that are read into memory at once; reading one by one has no limit.
pub const MAX_SPANS_IN_MEMORY: usize = 1 << 26;
/// Times, nanoseconds since the recording began (146 years).
pub const MAX_TIME_NS: u64 = 1 << 62;
/// Readings of the kernel's accounts: one a second for twelve days. The writer leaves out later ones.
pub const MAX_ACCOUNTS: usize = 1 << 20;
/// Bytes of the description of how a process and its host are set up, and of a reading of the kernel's accounts.
pub const MAX_SETUP_BYTES: usize = 4 << 20;
/// Entries of tables that were in damaged blocks.
pub const MAX_LOST_ENTRIES: usize = 1 << 20;
/// Most of them for each byte that could not be read, beside the first [`FEW_LOST_ENTRIES`]: about one is usual.
pub const LOST_ENTRIES_PER_BYTE: usize = 64;
/// So many entries are placed whatever was damaged.
pub const FEW_LOST_ENTRIES: usize = 1 << 12;
