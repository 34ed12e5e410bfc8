//! Files to what several processes know of them: opened and read once.

use std::collections::HashMap;
use std::fs::File;
use std::os::unix::fs::MetadataExt;
use std::sync::Arc;

use wcprof_unwind::{ModuleCode, SharedModules};

use crate::files::Handle;
use crate::folds::Folds;

/// Files that no process maps any more are kept up to so many: the next one often runs the same program.
const MAX_IDLE: usize = 64;

/// What makes two open files the same file with the same content.
#[derive(Copy, Clone, PartialEq, Eq, Hash, Debug)]
pub(crate) struct FileIdentity {
    device: u64,
    inode: u64,
    size: u64,
    changed: (i64, i64),
}

impl FileIdentity {
    pub(crate) fn of(file: &File) -> Option<Self> {
        let m = file.metadata().ok()?;
        Some(Self {
            device: m.dev(),
            inode: m.ino(),
            size: m.size(),
            changed: (m.ctime(), m.ctime_nsec()),
        })
    }
}

/// Files that several processes map: opened and read once. And processes that are one in the trace.
#[derive(Debug, Default)]
pub(crate) struct SharedFiles {
    pub(crate) modules: SharedModules,
    known: HashMap<FileIdentity, (Arc<ModuleCode>, Arc<Handle>)>,
    pub(crate) folds: Folds,
}

impl SharedFiles {
    pub(crate) fn find(&self, file: FileIdentity) -> Option<(Arc<ModuleCode>, Arc<Handle>)> {
        self.known.get(&file).cloned()
    }

    pub(crate) fn add(&mut self, file: FileIdentity, code: &Arc<ModuleCode>, handle: &Arc<Handle>) {
        let both = (Arc::clone(code), Arc::clone(handle));
        self.known.insert(file, both);
    }

    /// Closes files that nobody maps, when there are many of them.
    pub(crate) fn close_idle(&mut self) {
        let is_idle = |(code, _): &(Arc<ModuleCode>, Arc<Handle>)| Arc::strong_count(code) == 1;
        if self.known.values().filter(|both| is_idle(both)).count() > MAX_IDLE {
            self.known.retain(|_, both| !is_idle(both));
        }
    }
}
