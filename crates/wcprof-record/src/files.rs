//! A process to its files that are held open for names.

use std::collections::{HashMap, HashSet};
use std::fs::File;
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::sync::Arc;

use wcprof_host::Target;
use wcprof_host::open::{HeldFile, LiveFiles, OpenError, TargetFile};
use wcprof_host::procfs::read_status;
use wcprof_trace::model::{Module, ProcessId};
use wcprof_types::jit_files::perf_map;
use wcprof_types::{Avma, BuildId, Mapping, Pid};

/// Jitdumps of one process; runtimes write one. The names of each may take memory.
const MAX_JITDUMPS: usize = 4;

/// The files of a process's modules, held open: names can be read after it has exited. A clone has
/// the same open files.
#[derive(Clone, Debug)]
pub struct TargetFiles {
    /// Whose they are, in the trace.
    pub process: ProcessId,
    pub(crate) pid: Pid,
    pub(crate) files: Arc<LiveFiles>,
    /// By first address and build-id: of several processes that are one in the trace, two can have the same address.
    pub(crate) handles: HashMap<(Avma, Option<BuildId>), Arc<Handle>>,
    /// Its numbers, as processes in its pid namespaces see it, the innermost first.
    pids: Vec<i32>,
    pub(crate) uid: u32,
    jitdumps: Vec<Arc<HeldFile>>,
    /// Device and inode of these.
    known_dumps: HashSet<((u32, u32), u64)>,
}

/// What a module was read from.
#[derive(Debug)]
pub enum Handle {
    /// Its file.
    File(TargetFile),
    /// A copy of the vdso.
    Bytes(Vec<u8>),
}

impl Handle {
    /// Whether the first page of a copy, which has the build-id, is that of this one.
    pub(crate) fn begins_like(&self, copy: &File) -> bool {
        let page = |file: &File| {
            let mut bytes = [0; 4096];
            let n = file.read_at(&mut bytes, 0).ok()?;
            Some((bytes, n))
        };
        match self {
            Self::File(file) => page(file) == page(copy),
            Self::Bytes(_) => false,
        }
    }
}

impl TargetFiles {
    /// Looks at the process; holds nothing yet.
    pub(crate) fn new(process: ProcessId, target: &Target) -> Self {
        let status = read_status(target.pid()).unwrap_or_default();
        let mut pids: Vec<i32> = status.ns_pids.into_iter().rev().collect();
        pids.push(target.pid().0);
        pids.dedup();
        Self {
            process,
            pid: target.pid(),
            files: Arc::new(LiveFiles::new(target.pid())),
            handles: HashMap::new(),
            pids,
            uid: status.uids.map_or(0, |(_, effective)| effective),
            jitdumps: Vec::new(),
            known_dumps: HashSet::new(),
        }
    }

    /// The process.
    pub fn pid(&self) -> Pid {
        self.pid
    }

    /// What the module with this first address and build-id was read from.
    pub fn module(&self, start: Avma, build_id: Option<&BuildId>) -> Option<&Handle> {
        let handle = self.handles.get(&(start, build_id.cloned()));
        handle.map(AsRef::as_ref)
    }

    /// Takes over the jitdumps that it has under another name in the trace.
    pub(crate) fn take_jitdumps(&mut self, of: &Self) {
        self.jitdumps.clone_from(&of.jitdumps);
    }

    /// The jitdumps that it has mapped (`jit-PID.dump`).
    pub fn jitdumps(&self) -> impl Iterator<Item = Result<TargetFile, OpenError>> {
        self.jitdumps.iter().map(|file| self.files.open_held(file))
    }

    /// Its perf maps: `/tmp/perf-PID.map` in its mount namespace, if they belong to it or to root. A
    /// file that is not there is left out.
    pub fn perf_maps(&self) -> Vec<Result<TargetFile, OpenError>> {
        let open = |pid: &i32| self.files.open_owned(Path::new(&perf_map(*pid)), self.uid);
        let is_there = |opened: &Result<TargetFile, OpenError>| match opened {
            Err(error) => !error.is_not_found(),
            Ok(_) => true,
        };
        let pids = self.pids.iter().filter(|_| self.files.has_root());
        pids.map(open).filter(is_there).collect()
    }

    /// Holds a mapped jitdump open: it may be unlinked before the recording ends.
    pub(crate) fn hold_jitdump(&mut self, mapping: &Mapping) {
        let id = (mapping.device, mapping.inode);
        if self.known_dumps.len() < MAX_JITDUMPS
            && self.known_dumps.insert(id)
            && let Ok(file) = self.files.hold(mapping)
        {
            self.jitdumps.push(Arc::new(file));
        }
    }

    /// Device and inode of the target's root, if it is another one than wcprof's: that of a container.
    pub fn own_root(&self) -> Option<(u64, u64)> {
        self.files.own_root()
    }

    /// Opens another regular file of the target's mount namespace.
    pub fn open(&self, path: &Path) -> Result<TargetFile, OpenError> {
        self.files.open_regular(path)
    }
}

/// A module that was not known.
pub(crate) struct NewModule<'a> {
    pub(crate) module: Module,
    /// Its first mapping.
    pub(crate) mapping: &'a Mapping,
    pub(crate) handle: Option<&'a Arc<Handle>>,
}

#[cfg(test)]
mod tests {
    use std::io::Write;

    use super::*;

    /// Check that a copy is compared with the file that it is said to be.
    #[test]
    fn copies() {
        let file = |content: &[u8]| {
            let mut file = tempfile::tempfile().unwrap();
            file.write_all(content).unwrap();
            file
        };
        let known = Handle::File(TargetFile::own(file(&[1; 5000])));
        assert!(known.begins_like(&file(&[1; 5000])));
        assert!(!known.begins_like(&file(&[2; 5000])));
        assert!(!known.begins_like(&file(&[1; 4000])));
        assert!(!Handle::Bytes(vec![1; 5000]).begins_like(&file(&[1; 5000])));
    }
}
