//! What the two processes say to each other.
//!
//! The confined process speaks first ([`Confinement`]), is told what to do ([`Start`]), and then asks
//! ([`Request`]) and is answered ([`Reply`]) until it has told the names of all modules.

use std::path::PathBuf;

use serde::{Deserialize, Serialize};
use wcprof_types::{BuildId, Svma};

use super::names::Names;
use super::wire_path::WirePath;
use crate::cache_key::CacheKey;
use crate::debuginfod::Artifact;
use crate::files::ModuleIdentity;
use crate::options::{Inlines, SymbolOptions};
use crate::query::{AddressQuery, ModuleQuery};

/// What confines a process, and what could not be set up, each in a few words.
#[derive(Clone, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
pub struct Confinement {
    /// What holds.
    pub in_force: Vec<String>,
    /// What does not, and why.
    pub missing: Vec<String>,
}

/// What is to be done.
#[derive(Debug, Serialize, Deserialize)]
pub(super) struct Start {
    pub(super) modules: Vec<WireModule>,
    pub(super) debug_dirs: Vec<WirePath>,
    pub(super) max_memory: u64,
    /// Threads; each has a socket. The others' follow, each with a message of its own.
    pub(super) n_threads: usize,
}

impl Start {
    /// The options of the confined process.
    pub(super) fn options(&self, inlines: Inlines) -> SymbolOptions {
        let dirs = self.debug_dirs.iter().cloned();
        SymbolOptions {
            inlines,
            debug_dirs: dirs.map(PathBuf::from).collect(),
            max_memory: self.max_memory,
            threads: self.n_threads,
            ..SymbolOptions::default()
        }
    }
}

/// A module, and the addresses in it.
#[derive(Debug, Serialize, Deserialize)]
pub(super) struct WireModule {
    /// Index among the caller's queries.
    pub(super) index: usize,
    /// How much of DWARF is read.
    pub(super) inlines: Inlines,
    path: String,
    build_id: Option<Vec<u8>>,
    base: u64,
    /// Each with the start of its function.
    addresses: Vec<(u64, Option<u64>)>,
}

impl WireModule {
    pub(super) fn new(index: usize, query: &ModuleQuery, inlines: Inlines) -> Self {
        let build_id = query.module.build_id.as_ref();
        let addresses = query.addresses.iter();
        let function = |at: &AddressQuery| at.function.map(|start| start.0);
        Self {
            index,
            inlines,
            path: query.module.path.clone(),
            build_id: build_id.map(|id| id.as_bytes().to_vec()),
            base: query.base.0,
            addresses: addresses.map(|at| (at.address.0, function(at))).collect(),
        }
    }

    pub(super) fn query(&self) -> ModuleQuery {
        let addresses = self
            .addresses
            .iter()
            .map(|(address, function)| AddressQuery {
                address: Svma(*address),
                function: function.map(Svma),
            });
        ModuleQuery {
            module: ModuleIdentity {
                path: self.path.clone(),
                build_id: self.build_id.as_deref().and_then(BuildId::new),
                pid: None,
                start: None,
            },
            base: Svma(self.base),
            addresses: addresses.collect(),
        }
    }
}

/// What the confined process asks for, or tells. `module` is an index among the caller's queries.
#[derive(Debug, Serialize, Deserialize)]
pub(super) enum Request {
    /// The module's own file.
    Module {
        module: usize,
    },
    /// A file beside it, where it was loaded.
    Path {
        module: usize,
        path: WirePath,
    },
    /// A file of this machine.
    Host {
        /// For this module.
        module: usize,
        path: WirePath,
    },
    /// A file from a debuginfod server.
    Fetch {
        module: usize,
        build_id: Vec<u8>,
        artifact: Artifact,
    },
    ReadCache(CacheKey),
    WriteCache(CacheKey, String),
    /// An empty file without a name, for this many bytes.
    Spill {
        size: u64,
    },
    /// The names of a module. There is no answer.
    Done {
        module: usize,
        names: Names,
    },
}

/// The answer to a [`Request`].
#[derive(Debug, Serialize, Deserialize)]
pub(super) enum Reply {
    /// The file comes with it.
    File,
    NoFile {
        is_not_found: bool,
        reason: String,
    },
    /// What a server had: its path, if there is a file with this; and what was refused.
    Fetched {
        path: Option<WirePath>,
        problems: Vec<String>,
    },
    Content(Option<String>),
    Noted,
}
