//! Files to what several processes know of them: opened and read once.

use std::collections::HashMap;
use std::sync::{Arc, Weak};

use wcprof_capture::MAX_MODULE_FILES;
use wcprof_host::open::{FileIdentity, LiveFiles, TargetFile};
use wcprof_types::Mapping;
use wcprof_unwind::{ModuleCode, SharedModules};

use crate::files::Handle;
use crate::folds::Folds;

/// Files that no process maps any more are kept up to so many: the next one often runs the same program.
const MAX_IDLE: usize = 64;
/// Bytes of their call frame information. A ceph-osd with its libraries has 10 MB, Chromium 30.
const MAX_CODE_BYTES: usize = 160 << 20;

/// Longest wait at once for all files that are not on a local disk, ns. After it they may take one part in [`REST`] of the
/// time.
const MAX_WAIT_NS: u64 = 20_000_000_000;
const REST: u64 = 10;
/// A file that is there at once takes less, ns.
const QUICK_NS: u64 = 30_000_000;

/// How long files that may come from a server are waited for.
#[derive(Debug, Default)]
pub(crate) struct Patience {
    /// When it will be whole again, `CLOCK_MONOTONIC` ns.
    whole_at: u64,
}

impl Patience {
    pub(crate) fn is_left(&self, now: u64) -> bool {
        self.whole_at.saturating_sub(now) < MAX_WAIT_NS * REST
    }

    /// One of them was waited for.
    pub(crate) fn spend(&mut self, now: u64, took: u64) {
        let rest = took.saturating_sub(QUICK_NS).saturating_mul(REST);
        self.whole_at = self.whole_at.max(now).saturating_add(rest);
    }
}

/// How `maps` shows a file. That two processes see the same file needs the same root, too: containers have subvolumes,
/// whose files share device and inode there.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct Place {
    pub(crate) device: (u32, u32),
    pub(crate) inode: u64,
    pub(crate) path: String,
    /// Device and inode of the root.
    pub(crate) root: (u64, u64),
}

impl Place {
    /// Where a file is; `None` when the process's root is not known.
    pub(crate) fn of(files: &LiveFiles, mapping: &Mapping) -> Option<Self> {
        Some(Self {
            device: mapping.device,
            inode: mapping.inode,
            path: mapping.path.clone(),
            root: files.root_id()?,
        })
    }
}

#[derive(Debug)]
struct Known {
    code: Arc<ModuleCode>,
    handle: Arc<Handle>,
    place: Option<Place>,
    /// It is on a server, which is held, or is a copy, which takes room.
    is_remote: bool,
}

impl Known {
    /// Another file with the same content has the same code.
    fn is_idle(&self) -> bool {
        Arc::strong_count(&self.handle) == 1
    }
}

/// Files that several processes map: opened and read once. And processes that are one in the trace.
#[derive(Debug)]
pub(crate) struct SharedFiles {
    pub(crate) modules: SharedModules,
    known: HashMap<FileIdentity, Known>,
    /// Files that were read, some of which are held no more, by the user of the process that mapped them first.
    read: HashMap<u32, Vec<Weak<Handle>>>,
    /// More is not held.
    pub(crate) max_files: usize,
    pub(crate) max_code_bytes: usize,
    /// Files for which there was no more room than this.
    refused: HashMap<FileIdentity, usize>,
    pub(crate) folds: Folds,
    pub(crate) patience: Patience,
}

impl Default for SharedFiles {
    fn default() -> Self {
        Self {
            modules: SharedModules::default(),
            known: HashMap::new(),
            read: HashMap::new(),
            max_files: MAX_MODULE_FILES,
            max_code_bytes: MAX_CODE_BYTES,
            refused: HashMap::new(),
            folds: Folds::default(),
            patience: Patience::default(),
        }
    }
}

impl SharedFiles {
    pub(crate) fn find(&self, file: FileIdentity) -> Option<(Arc<ModuleCode>, Arc<Handle>)> {
        let known = self.known.get(&file)?;
        Some((Arc::clone(&known.code), Arc::clone(&known.handle)))
    }

    /// A file that was there when it was opened.
    pub(crate) fn at(&self, place: &Place) -> Option<Arc<Handle>> {
        let mut known = self.known.values();
        let known = known.find(|known| known.place.as_ref() == Some(place))?;
        Some(Arc::clone(&known.handle))
    }

    pub(crate) fn add(
        &mut self,
        file: FileIdentity,
        place: Option<Place>,
        (code, handle): (&Arc<ModuleCode>, &Arc<Handle>),
        is_remote: bool,
    ) {
        let known = Known {
            code: Arc::clone(code),
            handle: Arc::clone(handle),
            place,
            is_remote,
        };
        self.known.insert(file, known);
    }

    /// Bytes that the call frame information of one more file may take, or why it may not be held, for a process of a user whose
    /// modules take `own` bytes: they may take half of what the others leave. 0 for a file that was refused as much.
    pub(crate) fn room(
        &mut self,
        own: usize,
        uid: u32,
        file: FileIdentity,
    ) -> Result<usize, &'static str> {
        if !self.may_hold(uid) {
            for files in self.read.values_mut() {
                files.retain(|file| file.strong_count() > 0);
            }
            self.read.retain(|_, files| !files.is_empty());
        }
        if !self.may_hold(uid) {
            return Err("too many other files are mapped");
        }
        let room = |shared: &mut Self| {
            let taken = shared.modules.heap_bytes() + own;
            shared.max_code_bytes.saturating_sub(taken) / 2
        };
        let mut left = room(self);
        if left < self.max_code_bytes / 4 {
            // Code that nobody maps.
            self.known
                .retain(|_, known| Arc::strong_count(&known.code) > 1);
            left = room(self);
        }
        let before = self.refused.get(&file);
        let is_refused = before.is_some_and(|before| left <= *before);
        Ok(if is_refused { 0 } else { left })
    }

    /// Whether one more file may be held open for a user's processes: they may have three quarters of what those of others leave.
    fn may_hold(&self, uid: u32) -> bool {
        let n_all: usize = self.read.values().map(Vec::len).sum();
        let n_own = self.read.get(&uid).map_or(0, Vec::len);
        let left = self.max_files.saturating_sub(n_all - n_own);
        n_own < left - left / 4
    }

    /// Notes that there was too little room for a file: it is not read again for as much.
    pub(crate) fn refuse(&mut self, file: FileIdentity, room: usize) {
        if self.refused.len() >= self.max_files {
            self.refused.clear();
        }
        let before = self.refused.entry(file).or_default();
        *before = room.max(*before);
    }

    /// Notes that a file was read, and is held open from now on.
    pub(crate) fn hold(&mut self, file: TargetFile, uid: u32) -> Arc<Handle> {
        let handle = Arc::new(Handle::File(file));
        let read = self.read.entry(uid).or_default();
        read.push(Arc::downgrade(&handle));
        handle
    }

    /// Closes files that nobody maps: all of servers, the others when there are many of them.
    pub(crate) fn close_idle(&mut self) {
        let n_idle = self.known.values().filter(|known| known.is_idle()).count();
        let closes = |known: &Known| known.is_remote || n_idle > MAX_IDLE;
        self.known
            .retain(|_, known| !(known.is_idle() && closes(known)));
    }
}

#[cfg(test)]
mod tests {
    use std::fs::File;

    use super::*;

    fn identity(inode: u64) -> FileIdentity {
        FileIdentity {
            device: 1,
            inode,
            size: 4096,
            changed: (0, 0),
            is_copy: false,
        }
    }

    /// Check that files which nobody maps are closed, also those whose content others have, too; those of servers at once.
    #[test]
    fn idle() {
        let program = Arc::new(File::open(std::env::current_exe().unwrap()).unwrap());
        let mut shared = SharedFiles::default();
        let code = shared
            .modules
            .intern(ModuleCode::read(Arc::clone(&program), usize::MAX).unwrap());
        let mut handles = Vec::new();
        for inode in 0..200 {
            let identity = identity(inode);
            let handle = Arc::new(Handle::Bytes(Vec::new()));
            shared.add(identity, None, (&code, &handle), inode == 7);
            handles.push(handle);
        }
        shared.close_idle();
        assert_eq!(shared.known.len(), 200);
        handles.drain(..50);
        shared.close_idle();
        assert_eq!(shared.known.len(), 199);
        handles.truncate(1);
        drop(code);
        shared.close_idle();
        assert_eq!(shared.known.len(), 1);
        assert!(shared.modules.heap_bytes() > 0);
        handles.clear();
        shared.known.clear();
        assert_eq!(shared.modules.heap_bytes(), 0);
    }

    /// Check that a file is found at its place alone, not at one that differs in any part.
    #[test]
    fn places() {
        let program = Arc::new(File::open(std::env::current_exe().unwrap()).unwrap());
        let mut shared = SharedFiles::default();
        let code = shared
            .modules
            .intern(ModuleCode::read(program, usize::MAX).unwrap());
        let handle = Arc::new(Handle::Bytes(Vec::new()));
        let place = |device, inode, path: &str, root| Place {
            device: (0, device),
            inode,
            path: path.to_owned(),
            root: (1, root),
        };
        let known = place(1, 2, "/x", 3);
        shared.add(identity(1), Some(known.clone()), (&code, &handle), false);
        assert!(shared.at(&known).is_some());
        for other in [
            place(9, 2, "/x", 3),
            place(1, 9, "/x", 3),
            place(1, 2, "/y", 3),
            place(1, 2, "/x", 9),
        ] {
            assert!(shared.at(&other).is_none(), "{other:?}");
        }
    }

    /// Check that files which are slow each hold up a recording for a while, and then for a tenth of the time, and those
    /// that are there at once for as long as they are many.
    #[test]
    fn patience() {
        const S: u64 = 1_000_000_000;
        let mut patience = Patience::default();
        let mut now = 500 * S;
        let mut n_read = |took: u64, until: u64| {
            let before = now;
            let mut n = 0;
            while now < before + until {
                if patience.is_left(now) {
                    patience.spend(now, took);
                    (n, now) = (n + 1, now + took);
                } else {
                    now += S;
                }
            }
            n
        };
        assert_eq!(n_read(QUICK_NS, 60 * S), 60 * S / QUICK_NS);
        let n_at_once = n_read(10 * S + QUICK_NS, 30 * S);
        assert_eq!(n_at_once, 3);
        let n_later = n_read(10 * S + QUICK_NS, 1000 * S);
        assert!((9..=11).contains(&n_later), "{n_later}");
    }

    /// Check that a process may take half of what the others leave, and that code which nobody maps makes room.
    #[test]
    fn room() {
        let program = Arc::new(File::open(std::env::current_exe().unwrap()).unwrap());
        let mut shared = SharedFiles::default();
        let code = ModuleCode::read(Arc::clone(&program), usize::MAX).unwrap();
        let code = shared.modules.intern(code);
        let bytes = code.heap_bytes();
        shared.max_code_bytes = 4 * bytes;
        let (file, other) = (identity(1), identity(2));
        assert_eq!(shared.room(0, 0, file), Ok(3 * bytes / 2));
        assert_eq!(shared.room(bytes, 0, file), Ok(bytes));
        assert_eq!(shared.room(3 * bytes, 0, other), Ok(0));
        shared.refuse(file, bytes);
        assert_eq!(shared.room(bytes, 0, file), Ok(0));
        assert_eq!(shared.room(bytes, 0, other), Ok(bytes));
        assert_eq!(shared.room(0, 0, file), Ok(3 * bytes / 2));
        assert!(ModuleCode::read(Arc::clone(&program), 2 * bytes).is_ok());
        assert!(ModuleCode::read(Arc::clone(&program), bytes - 1).is_err());
        let handle = Arc::new(Handle::Bytes(Vec::new()));
        shared.add(file, None, (&code, &handle), false);
        assert_eq!(shared.room(3 * bytes, 0, other), Ok(0));
        drop(code);
        assert_eq!(shared.room(3 * bytes, 0, other), Ok(bytes / 2));
    }

    /// Check that the processes of one user leave files to those of others, and that files which are held no more make room.
    #[test]
    fn users() {
        let file = || TargetFile::own(tempfile::tempfile().unwrap());
        let mut shared = SharedFiles {
            max_files: 100,
            ..SharedFiles::default()
        };
        let mut held = Vec::new();
        let mut take = |shared: &mut SharedFiles, uid| {
            let before = held.len();
            while shared.room(0, uid, identity(1)).is_ok() {
                held.push(shared.hold(file(), uid));
            }
            held.len() - before
        };
        assert_eq!(take(&mut shared, 1000), 75);
        assert_eq!(take(&mut shared, 1000), 0);
        assert_eq!(take(&mut shared, 64045), 19);
        held.truncate(75);
        assert!(shared.room(0, 64045, identity(1)).is_ok());
    }
}
