//! What the caller may choose about symbolization.

use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::AtomicUsize;

use dwarf_stream::Cancel;
use serde::{Deserialize, Serialize};

use crate::debuginfod::Debuginfod;

/// How much of DWARF is read.
#[derive(Copy, Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub enum Inlines {
    /// None of it: names come from symbol tables alone, which is much faster where debug files are installed.
    No,
    /// What the cache has of a large file, if that is at least half of the addresses; the others are counted in
    /// [`ModuleReport::n_pending`](crate::ModuleReport::n_pending). Else all of that file.
    Quick,
    /// Inline frames, source files and lines.
    All,
}

/// How to symbolize.
#[derive(Clone, Debug)]
pub struct SymbolOptions {
    /// Inline frames, source files and lines. Default: all.
    pub inlines: Inlines,
    /// Folders of separate debug files, searched in this order. Default: `/usr/lib/debug`.
    pub debug_dirs: Vec<PathBuf>,
    /// Memory that the process should stay below, bytes. Half of it may be taken for DWARF, over
    /// all modules; the rest is for symbol tables, names, and what the caller has. A module's
    /// addresses whose debug information needs more keep their function names without inline
    /// frames, and the report says so. Default: 256 MiB.
    pub max_memory: u64,
    /// Folder where what DWARF says about addresses is kept for later runs; it is made when it is
    /// needed, takes at most 256 MiB, and can be deleted at any time. Default: none.
    pub cache: Option<PathBuf>,
    /// Servers asked for what is not on this machine. Default: none.
    pub debuginfod: Option<Arc<Debuginfod>>,
    /// Modules symbolized at the same time. Default: the CPUs available.
    pub threads: usize,
    /// Told how far it is. Default: none.
    pub progress: Option<Arc<Naming>>,
    /// Ends the search for names early: files are no longer read, servers no longer waited for. Names
    /// that were found are kept. Default: nobody asks for it.
    pub cancel: Cancel,
}

/// How far symbolizing is. Any thread may look.
#[derive(Debug, Default)]
pub struct Naming {
    /// Modules whose addresses have their names.
    pub n_done: AtomicUsize,
    /// Modules with addresses.
    pub n_modules: AtomicUsize,
}

impl Default for SymbolOptions {
    fn default() -> Self {
        Self {
            inlines: Inlines::All,
            debug_dirs: vec![PathBuf::from("/usr/lib/debug")],
            max_memory: 256 << 20,
            cache: None,
            debuginfod: None,
            progress: None,
            cancel: Cancel::default(),
            threads: std::thread::available_parallelism().map_or(1, usize::from),
        }
    }
}
