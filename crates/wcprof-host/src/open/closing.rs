//! Open files of targets, which nobody waits for to be closed.
//!
//! A FUSE server is asked when a descriptor is closed, also through overlayfs, and nothing ends the wait for it (`fuse_flush`,
//! `fs/fuse/file.c`; `ovl_flush`, `fs/overlayfs/file.c`). An NFS server may be asked when the last one is (`nfs4_close_sync`).

use std::borrow::Borrow;
use std::collections::BTreeMap;
use std::fs::File;
use std::mem::ManuallyDrop;
use std::ops::Deref;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc::{Receiver, Sender, channel};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, OnceLock, PoisonError};
use std::thread;
use std::time::Duration;

use super::reason::NoFile;
use crate::deadline::note_unclosed;
use crate::procfs::read_file;
use crate::sys::keep_capabilities;

/// Files of one mount that may wait to be closed: beyond this no more are opened there.
const MAX_WAITING: usize = 256;
/// Mounts with such files, each of which has a thread: beyond this none are opened on any.
const MAX_MOUNTS: usize = 64;
/// What is only slow makes room within this.
const PATIENCE: Duration = Duration::from_secs(1);
const STACK_SIZE: usize = 64 << 10;

/// Files that are to be closed, by mount.
static CLOSING: Mutex<BTreeMap<u64, Waiting>> = Mutex::new(BTreeMap::new());
/// One of them is closed.
static CLOSED: Condvar = Condvar::new();

#[derive(Debug, Default)]
struct Waiting {
    files: Vec<File>,
    has_thread: bool,
}

fn closing() -> MutexGuard<'static, BTreeMap<u64, Waiting>> {
    CLOSING.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Bytes that a copy takes until it is closed.
#[derive(Debug)]
pub(super) struct Room {
    of: &'static AtomicU64,
    bytes: u64,
}

impl Room {
    /// `None` where the copies would take more than `most`.
    pub(super) fn take(of: &'static AtomicU64, most: u64, bytes: u64) -> Option<Self> {
        let more = |taken: u64| taken.checked_add(bytes).filter(|all| *all <= most);
        let taken = of.fetch_update(Ordering::Relaxed, Ordering::Relaxed, more);
        taken.ok().map(|_| Self { of, bytes })
    }
}

impl Drop for Room {
    fn drop(&mut self) {
        self.of.fetch_sub(self.bytes, Ordering::Relaxed);
    }
}

/// An open file of a target, or a handle. Another thread closes it: its server may be asked, and with the last file on a mount
/// that is gone the kernel writes back all that was written there. A clone is the same descriptor.
#[derive(Clone, Debug)]
pub struct TargetFile(Arc<Inner>);

#[derive(Debug)]
struct Inner {
    file: ManuallyDrop<File>,
    /// `None` for a file of wcprof's own, which asks nobody.
    mount: Option<u64>,
    _room: Option<Room>,
}

impl TargetFile {
    /// A file of wcprof's own.
    pub fn own(file: impl Into<File>) -> Self {
        Self::new(file.into(), None, None)
    }

    /// A copy of a file.
    pub(super) fn copy(file: File, room: Room) -> Self {
        Self::new(file, None, Some(room))
    }

    fn new(file: File, mount: Option<u64>, room: Option<Room>) -> Self {
        Self(Arc::new(Inner {
            file: ManuallyDrop::new(file),
            mount,
            _room: room,
        }))
    }

    /// Which mount it is on, if it is not wcprof's own. Where that is not known, it has one of its own.
    pub(super) fn mount(&self) -> Option<u64> {
        self.0.mount
    }
}

impl<F: Into<File>> From<F> for TargetFile {
    fn from(file: F) -> Self {
        static UNKNOWN: AtomicU64 = AtomicU64::new(u64::MAX);
        let file = file.into();
        let mount = mount_id(&file);
        let mount = mount.unwrap_or_else(|| UNKNOWN.fetch_sub(1, Ordering::Relaxed));
        Self::new(file, Some(mount), None)
    }
}

impl Deref for TargetFile {
    type Target = File;

    fn deref(&self) -> &File {
        &self.0.file
    }
}

impl AsFd for TargetFile {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.0.file.as_fd()
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
        if let Some(mount) = self.mount {
            close(mount, file);
        }
    }
}

fn is_full(closing: &BTreeMap<u64, Waiting>, mount: Option<u64>) -> bool {
    let waiting = mount.and_then(|mount| closing.get(&mount));
    waiting.is_some_and(|w| w.files.len() >= MAX_WAITING) || closing.len() >= MAX_MOUNTS
}

/// Waits a moment until files on this mount, and on others, come to their end, so that one more can be opened.
pub(super) fn wait_for_room(mount: Option<u64>) -> Result<(), NoFile> {
    let is_full = |closing: &mut BTreeMap<u64, Waiting>| is_full(closing, mount);
    let waited = CLOSED.wait_timeout_while(closing(), PATIENCE, is_full);
    let (_closing, result) = waited.unwrap_or_else(PoisonError::into_inner);
    if result.timed_out() {
        note_unclosed();
        return Err(NoFile::NotClosed);
    }
    Ok(())
}

/// Whether a file of this mount is being closed.
pub(super) fn is_closing(mount: u64) -> bool {
    closing().contains_key(&mount)
}

/// Starts the thread that starts the others. It gives way to nobody, as those that look up names do, and has no privilege that is
/// given up later.
pub(crate) fn prepare() -> Option<&'static Sender<()>> {
    static STARTER: OnceLock<Option<Sender<()>>> = OnceLock::new();
    let start = || {
        let (to, wanted) = channel();
        let thread = thread::Builder::new().name("wcprof-closes".to_owned());
        let thread = thread.stack_size(STACK_SIZE);
        thread.spawn(move || start_all(&wanted)).ok()?;
        Some(to)
    };
    STARTER.get_or_init(start).as_ref()
}

fn start_all(wanted: &Receiver<()>) -> ! {
    let _ = keep_capabilities(0);
    let mut is_behind = false;
    loop {
        let _ = match is_behind {
            // There could be no more threads.
            true => wanted.recv_timeout(PATIENCE).ok(),
            false => wanted.recv().ok(),
        };
        is_behind = !start_threads();
    }
}

/// Starts a thread for each mount that needs one. Gives whether that was possible.
fn start_threads() -> bool {
    let mut closing = closing();
    for (&mount, waiting) in closing.iter_mut().filter(|(_, w)| !w.has_thread) {
        let thread = thread::Builder::new().name("wcprof-closes".to_owned());
        let thread = thread.stack_size(STACK_SIZE);
        waiting.has_thread = thread.spawn(move || close_all(mount)).is_ok();
    }
    closing.values().all(|waiting| waiting.has_thread)
}

fn close(mount: u64, file: File) {
    let mut closing = closing();
    let waiting = closing.entry(mount).or_default();
    waiting.files.push(file);
    if waiting.has_thread {
        return;
    }
    drop(closing);
    if prepare().is_none_or(|starter| starter.send(()).is_err()) {
        start_threads();
    }
}

fn close_all(mount: u64) {
    loop {
        let mut closing = closing();
        let file = closing.get_mut(&mount).and_then(|w| w.files.pop());
        if file.is_none() {
            closing.remove(&mount);
        }
        drop(closing);
        CLOSED.notify_all();
        let Some(file) = file else { return };
        drop(file);
    }
}

/// Which mount a file is on. Its file system is not asked.
pub(super) fn mount_id(file: &impl AsFd) -> Option<u64> {
    let file = file.as_fd();
    let info = read_file(format!("/proc/self/fdinfo/{}", file.as_raw_fd())).ok()?;
    let id = info.lines().find_map(|line| line.strip_prefix("mnt_id:"))?;
    id.trim().parse().ok()
}

#[cfg(test)]
mod tests {
    use std::io::{self, Read, Write};
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
        assert!(is_full(&closing(), Some(mount)));
        close_all(mount);
        wait_for_room(Some(mount)).unwrap();
        assert!(!is_closing(mount));
    }
}
