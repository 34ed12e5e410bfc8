//! Open files of targets, which nobody waits for to be closed.
//!
//! A FUSE server is asked when a descriptor is closed, also through overlayfs, and nothing ends the wait for it (`fuse_flush`,
//! `fs/fuse/file.c`; `ovl_flush`, `fs/overlayfs/file.c`). An NFS server may be asked when the last one is (`nfs4_close_sync`).

use std::borrow::Borrow;
use std::collections::BTreeMap;
use std::fs::File;
use std::io;
use std::mem::ManuallyDrop;
use std::ops::Deref;
use std::os::fd::AsRawFd;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread;

use super::file_system::FileSystem;
use super::reason::NoFile;
use crate::procfs::read_file;

/// Files of one mount that may wait to be closed: beyond this no more are opened there.
const MAX_WAITING: usize = 256;
/// Mounts with such files, each of which has a thread: beyond this none are opened on any.
const MAX_MOUNTS: usize = 64;
const STACK_SIZE: usize = 64 << 10;

/// A file was not opened for these.
static WAS_FULL: AtomicBool = AtomicBool::new(false);

/// Files that are to be closed, by mount.
static CLOSING: Mutex<BTreeMap<u64, Waiting>> = Mutex::new(BTreeMap::new());

#[derive(Debug, Default)]
struct Waiting {
    files: Vec<File>,
    has_thread: bool,
}

fn closing() -> MutexGuard<'static, BTreeMap<u64, Waiting>> {
    CLOSING.lock().unwrap_or_else(PoisonError::into_inner)
}

/// An open file of a target. What may ask a server is closed by another thread. A clone is the same descriptor.
#[derive(Clone, Debug)]
pub struct TargetFile(Arc<Inner>);

#[derive(Debug)]
struct Inner {
    file: ManuallyDrop<File>,
    is_local: bool,
}

impl TargetFile {
    /// A copy, or a file that the kernel closes without asking anybody.
    pub fn local(file: impl Into<File>) -> Self {
        Self::new(file.into(), true)
    }

    fn new(file: File, is_local: bool) -> Self {
        let file = ManuallyDrop::new(file);
        Self(Arc::new(Inner { file, is_local }))
    }

    /// The same where its file system says which. That is asked.
    pub fn of(file: File) -> Self {
        let is_local = FileSystem::of(&file).is_ok_and(FileSystem::is_local);
        Self::new(file, is_local)
    }

    /// Whether nobody is asked when it is closed.
    pub fn is_local(&self) -> bool {
        self.0.is_local
    }

    /// Another descriptor of it, which is closed by itself.
    ///
    /// # Errors
    /// Those of `dup(2)`.
    pub fn duplicate(&self) -> io::Result<Self> {
        Ok(Self::new(self.try_clone()?, self.0.is_local))
    }
}

impl<F: Into<File>> From<F> for TargetFile {
    fn from(file: F) -> Self {
        Self::new(file.into(), false)
    }
}

impl Deref for TargetFile {
    type Target = File;

    fn deref(&self) -> &File {
        &self.0.file
    }
}

impl Borrow<File> for TargetFile {
    fn borrow(&self) -> &File {
        self
    }
}

impl Drop for Inner {
    fn drop(&mut self) {
        // SAFETY: taken once.
        let file = unsafe { ManuallyDrop::take(&mut self.file) };
        if !self.is_local {
            close(file);
        }
    }
}

/// Whether files on the mount of this one, or on many, do not come to their end, so that it should not be opened.
pub(super) fn is_full(file: &impl AsRawFd) -> bool {
    let mount = mount_id(file).unwrap_or_default();
    let closing = closing();
    let waiting = closing.get(&mount).map_or(0, |w| w.files.len());
    waiting >= MAX_WAITING || closing.len() >= MAX_MOUNTS
}

/// Notes that a file is not opened for this.
pub(super) fn not_opened() -> NoFile {
    WAS_FULL.store(true, Ordering::Relaxed);
    NoFile::NotClosed
}

/// Whether one was not.
pub(crate) fn was_full() -> bool {
    WAS_FULL.load(Ordering::Relaxed)
}

/// Whether a file of this mount is being closed.
pub(super) fn is_closing(mount: u64) -> bool {
    closing().contains_key(&mount)
}

fn close(file: File) {
    let mount = mount_id(&file).unwrap_or_default();
    let mut closing = closing();
    let waiting = closing.entry(mount).or_default();
    waiting.files.push(file);
    // Those for which there could be no thread are tried again.
    for (&mount, waiting) in closing.iter_mut().filter(|(_, w)| !w.has_thread) {
        let thread = thread::Builder::new().name("wcprof-closes".to_owned());
        let thread = thread.stack_size(STACK_SIZE);
        waiting.has_thread = thread.spawn(move || close_all(mount)).is_ok();
    }
}

fn close_all(mount: u64) {
    loop {
        let mut closing = closing();
        let Some(file) = closing.get_mut(&mount).and_then(|w| w.files.pop()) else {
            closing.remove(&mount);
            return;
        };
        drop(closing);
        drop(file);
    }
}

/// Which mount a file is on. Its file system is not asked.
pub(super) fn mount_id(file: &impl AsRawFd) -> Option<u64> {
    let info = read_file(format!("/proc/self/fdinfo/{}", file.as_raw_fd())).ok()?;
    let id = info.lines().find_map(|line| line.strip_prefix("mnt_id:"))?;
    id.trim().parse().ok()
}

#[cfg(test)]
mod tests {
    use std::io::{Read, Write};
    use std::os::fd::OwnedFd;

    use super::*;

    /// Check that a file is closed when its last owner has gone, and that one beside many which are not is not to be opened.
    #[test]
    fn closed() {
        // Of a mount that no other test uses.
        let (reader, writer) = io::pipe().unwrap();
        let mut reader = File::from(OwnedFd::from(reader));
        let mount = mount_id(&reader).unwrap();
        let file = TargetFile::from(OwnedFd::from(writer));
        let copy = file.clone();
        drop(file);
        (&*copy).write_all(b"open").unwrap();
        drop(copy);
        let mut text = String::new();
        reader.read_to_string(&mut text).unwrap();
        assert_eq!(text, "open");
        while is_closing(mount) {
            thread::yield_now();
        }
        let files = (0..MAX_WAITING).map(|_| reader.try_clone().unwrap());
        let files = files.collect();
        let has_thread = true;
        closing().insert(mount, Waiting { files, has_thread });
        assert!(is_full(&reader));
        close_all(mount);
        assert!(!is_full(&reader) && !is_closing(mount));
    }
}
