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
use std::time::{Duration, Instant};

use rustix::fs::{AtFlags, StatxFlags, statx};

use super::reason::NoFile;
use super::room::Room;
use crate::clock::thread_cpu_ns;
use crate::deadline::note_unclosed;
use crate::procfs::read_file;
use crate::sys::keep_capabilities;

/// Files of one mount that may wait to be closed: beyond this no more are opened there.
const MAX_WAITING: usize = 256;
/// Mounts with such files: beyond this none are opened on any that may ask a server.
const MAX_MOUNTS: usize = 64;
/// What is only slow closes a file within this. A thread without work stays as long, if there are few.
const PATIENCE: Duration = Duration::from_secs(1);
const FEW: usize = 16;
/// After a wait in vain, nobody waits for room again for this long.
const PAUSE: Duration = Duration::from_secs(10);
const STACK_SIZE: usize = 64 << 10;

/// What waits for each other when it is closed: files of a mount, or handles on it (`O_PATH`), for which no server is asked.
#[derive(Copy, Clone, PartialEq, Eq, PartialOrd, Ord, Debug)]
struct Queue {
    mount: u64,
    is_of_handles: bool,
}

impl Queue {
    fn of_files(mount: u64) -> Self {
        Self {
            mount,
            is_of_handles: false,
        }
    }
}

#[derive(Debug, Default)]
struct Waiting {
    files: Vec<File>,
    /// When the thread began to close one of them.
    since: Option<Instant>,
    has_thread: bool,
    has_more: Arc<Condvar>,
}

impl Waiting {
    fn len(&self) -> usize {
        self.files.len() + usize::from(self.since.is_some())
    }
}

#[derive(Debug)]
struct Closing {
    queues: BTreeMap<Queue, Waiting>,
    /// When somebody waited for room in vain.
    was_full: Option<Instant>,
}

static CLOSING: Mutex<Closing> = Mutex::new(Closing {
    queues: BTreeMap::new(),
    was_full: None,
});
/// One more is closed.
static CLOSED: Condvar = Condvar::new();
/// CPU time of the threads that close, ns.
static CPU_NS: AtomicU64 = AtomicU64::new(0);

fn closing() -> MutexGuard<'static, Closing> {
    CLOSING.lock().unwrap_or_else(PoisonError::into_inner)
}

/// An open file of a target, or a handle. Another thread closes it: its server may be asked, and with the last file on a mount
/// that is gone the kernel writes back all that was written there. A clone is the same descriptor.
#[derive(Clone, Debug)]
pub struct TargetFile(Arc<Inner>);

#[derive(Debug)]
struct Inner {
    file: ManuallyDrop<File>,
    /// `None` for a file of wcprof's own, which asks nobody.
    queue: Option<Queue>,
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

    /// A file on this mount.
    pub(super) fn on(mount: u64, file: impl Into<File>) -> Self {
        Self::new(file.into(), Some(Queue::of_files(mount)), None)
    }

    /// What stands for a file or a folder.
    pub(super) fn handle(handle: impl Into<File>) -> Self {
        let handle = handle.into();
        let queue = Queue {
            mount: mount_id(&handle),
            is_of_handles: true,
        };
        Self::new(handle, Some(queue), None)
    }

    fn new(file: File, queue: Option<Queue>, room: Option<Room>) -> Self {
        Self(Arc::new(Inner {
            file: ManuallyDrop::new(file),
            queue,
            _room: room,
        }))
    }

    /// Another descriptor of it, which is closed by itself.
    ///
    /// # Errors
    /// Those of `dup(2)`, and when too many files on its mount are not closed.
    pub fn duplicate(&self) -> Result<Self, NoFile> {
        if self
            .mount()
            .is_some_and(|mount| closing().is_full(mount, true))
        {
            note_unclosed();
            return Err(NoFile::NotClosed);
        }
        Ok(Self::new(self.try_clone()?, self.0.queue, None))
    }

    /// Which mount it is on, if it is not wcprof's own.
    pub(super) fn mount(&self) -> Option<u64> {
        self.0.queue.map(|queue| queue.mount)
    }
}

impl<F: Into<File>> From<F> for TargetFile {
    fn from(file: F) -> Self {
        let file = file.into();
        Self::on(mount_id(&file), file)
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
        if let Some(queue) = self.queue {
            close(queue, file);
        }
    }
}

impl Closing {
    /// Whether no more files of a mount are to be opened: too many of it are not closed, or, where it may ask a server, of too
    /// many others.
    fn is_full(&self, mount: u64, is_local: bool) -> bool {
        let waiting = self.queues.get(&Queue::of_files(mount));
        let waiting = waiting.map_or(0, Waiting::len);
        let of_files = self.queues.iter().filter(|(queue, _)| !queue.is_of_handles);
        let busy = of_files.filter(|(_, waiting)| waiting.len() > 0);
        waiting >= MAX_WAITING || (!is_local && busy.count() >= MAX_MOUNTS)
    }
}

/// Waits a moment until files on this mount, and on others, come to their end, so that one more can be opened.
pub(super) fn wait_for_room(mount: u64, is_local: bool) -> Result<(), NoFile> {
    let closing = closing();
    let patience = match closing.was_full {
        Some(when) if when.elapsed() < PAUSE => Duration::ZERO,
        _ => PATIENCE,
    };
    let is_full = |closing: &mut Closing| closing.is_full(mount, is_local);
    let waited = CLOSED.wait_timeout_while(closing, patience, is_full);
    let (mut closing, waited) = waited.unwrap_or_else(PoisonError::into_inner);
    if waited.timed_out() {
        if !patience.is_zero() {
            closing.was_full = Some(Instant::now());
        }
        note_unclosed();
        return Err(NoFile::NotClosed);
    }
    Ok(())
}

/// Whether a file of this mount has been closed for a while.
pub(super) fn is_closing(mount: u64) -> bool {
    let closing = closing();
    let waiting = closing.queues.get(&Queue::of_files(mount));
    let since = waiting.and_then(|w| w.since);
    since.is_some_and(|since| since.elapsed() > PATIENCE)
}

/// CPU time that closing has taken so far, ns.
pub fn closing_cpu_ns() -> u64 {
    CPU_NS.load(Ordering::Relaxed)
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
        wanted.try_iter().for_each(drop);
        is_behind = !start_threads();
    }
}

/// Starts a thread for each queue that needs one. Gives whether that was possible.
fn start_threads() -> bool {
    let mut wanted = Vec::new();
    for (queue, waiting) in &mut closing().queues {
        if !std::mem::replace(&mut waiting.has_thread, true) {
            wanted.push(*queue);
        }
    }
    let mut is_done = true;
    for queue in wanted {
        let thread = thread::Builder::new().name("wcprof-closes".to_owned());
        let thread = thread.stack_size(STACK_SIZE);
        if !is_done || thread.spawn(move || close_all(queue)).is_err() {
            is_done = false;
            let mut closing = closing();
            closing.queues.entry(queue).or_default().has_thread = false;
        }
    }
    is_done
}

fn close(queue: Queue, file: File) {
    let mut closing = closing();
    let waiting = closing.queues.entry(queue).or_default();
    waiting.files.push(file);
    waiting.has_more.notify_one();
    let has_thread = waiting.has_thread;
    drop(closing);
    if !has_thread && prepare().is_none_or(|starter| starter.send(()).is_err()) {
        start_threads();
    }
}

fn close_all(queue: Queue) {
    let mut cpu = 0;
    let mut closing = closing();
    loop {
        let waiting = closing.queues.entry(queue).or_default();
        if let Some(file) = waiting.files.pop() {
            waiting.since = Some(Instant::now());
            drop(closing);
            drop(file);
            let now = thread_cpu_ns();
            CPU_NS.fetch_add(now - std::mem::replace(&mut cpu, now), Ordering::Relaxed);
            closing = self::closing();
            closing.queues.entry(queue).or_default().since = None;
            CLOSED.notify_all();
            continue;
        }
        let has_more = Arc::clone(&waiting.has_more);
        let is_empty = |closing: &mut Closing| closing.queues[&queue].files.is_empty();
        let stay = match closing.queues.len() {
            0..=FEW => PATIENCE,
            _ => Duration::ZERO,
        };
        let waited = has_more.wait_timeout_while(closing, stay, is_empty);
        let (now, waited) = waited.unwrap_or_else(PoisonError::into_inner);
        closing = now;
        if waited.timed_out() {
            closing.queues.remove(&queue);
            return;
        }
    }
}

/// Which mount a file is on; 0 where nothing tells.
pub(super) fn mount_id(file: &impl AsFd) -> u64 {
    let file = file.as_fd();
    let by_proc = || {
        let info = read_file(format!("/proc/self/fdinfo/{}", file.as_raw_fd())).ok()?;
        let id = info.lines().find_map(|line| line.strip_prefix("mnt_id:"))?;
        id.trim().parse().ok()
    };
    // Most file systems answer this without their server, but 9p asks it.
    let by_call = || {
        let flags = AtFlags::EMPTY_PATH | AtFlags::STATX_DONT_SYNC;
        let stat = statx(file, c"", flags, StatxFlags::MNT_ID).ok()?;
        let is_known = StatxFlags::from_bits_retain(stat.stx_mask).contains(StatxFlags::MNT_ID);
        is_known.then_some(stat.stx_mnt_id)
    };
    by_proc().or_else(by_call).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use std::io::{self, Read, Write};
    use std::os::fd::OwnedFd;

    use super::*;

    /// Check that a file is closed when its last owner has gone, and that one beside many which are not is not to be opened.
    #[test]
    fn closed() {
        let (reader, writer) = io::pipe().unwrap();
        let mut reader = File::from(OwnedFd::from(reader));
        let file = TargetFile::from(OwnedFd::from(writer));
        let copy = file.clone();
        drop(file);
        (&*copy).write_all(b"open").unwrap();
        drop(copy);
        let mut text = String::new();
        reader.read_to_string(&mut text).unwrap();
        assert_eq!(text, "open");
        // Counted after that.
        while closing_cpu_ns() == 0 {
            thread::yield_now();
        }
        let files = |n: usize| (0..n).map(|_| reader.try_clone().unwrap()).collect();
        let waiting = |n: usize| Waiting {
            files: files(n),
            has_thread: true,
            ..Waiting::default()
        };
        let mut closing = Closing {
            queues: (0..MAX_MOUNTS as u64 - 1)
                .map(|mount| (Queue::of_files(mount), waiting(1)))
                .collect(),
            was_full: None,
        };
        assert!(!closing.is_full(0, false));
        closing
            .queues
            .insert(Queue::of_files(1), waiting(MAX_WAITING));
        assert!(closing.is_full(1, true) && !closing.is_full(0, true));
        closing.queues.insert(Queue::of_files(99), waiting(1));
        assert!(closing.is_full(0, false) && !closing.is_full(0, true));
    }

    /// Check that both ways lead to the same mount, also where no file can be opened.
    #[test]
    fn mounts() {
        let file = tempfile::tempfile().unwrap();
        let flags = AtFlags::EMPTY_PATH | AtFlags::STATX_DONT_SYNC;
        let stat = statx(&file, c"", flags, StatxFlags::MNT_ID).unwrap();
        assert_eq!(stat.stx_mnt_id, mount_id(&file));
    }
}
