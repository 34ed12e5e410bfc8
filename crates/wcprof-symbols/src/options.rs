//! What the caller may choose about symbolization.

use std::path::PathBuf;

/// How to symbolize.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct SymbolOptions {
    /// Read DWARF: inline frames, source files and lines. Default: true. Without it, names come
    /// from symbol tables alone, which is much faster where debug files are installed.
    pub inlines: bool,
    /// Folders of separate debug files, searched in this order. Default: `/usr/lib/debug`.
    pub debug_dirs: Vec<PathBuf>,
    /// Bytes that expanded DWARF sections may take at one time, over all modules. A module that
    /// needs more by itself gets function names without inline frames, and the report says so.
    /// Default: 1 GiB. Symbol tables and parsed units come on top.
    pub max_memory: u64,
    /// Modules symbolized at the same time. Default: the CPUs available.
    pub threads: usize,
}

impl Default for SymbolOptions {
    fn default() -> Self {
        Self {
            inlines: true,
            debug_dirs: vec![PathBuf::from("/usr/lib/debug")],
            max_memory: 1 << 30,
            threads: std::thread::available_parallelism().map_or(1, usize::from),
        }
    }
}
