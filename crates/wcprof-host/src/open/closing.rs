//! Open files of targets, which nobody waits for to be closed.
//!
//! A FUSE server is asked when a descriptor is closed, also through overlayfs, and nothing ends the wait for it (`fuse_flush`,
//! `fs/fuse/file.c`; `ovl_flush`, `fs/overlayfs/file.c`). An NFS server may be asked when the last one is (`nfs4_close_sync`).
//! A child closes all that it inherits, and what it runs is not begun before that (`do_close_on_exec`, `fs/file.c`). So
//! files are held by handles, and those whose server hangs leave the table of descriptors.

use std::borrow::Borrow;
use std::collections::BTreeMap;
use std::fs::File;
use std::io;
use std::mem::ManuallyDrop;
use std::ops::Deref;
use std::os::fd::{AsRawFd, OwnedFd};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread;

use super::regular::handle;
use crate::procfs::read_file;

/// Files of one mount that are being closed: beyond this no more are opened there.
const MAX_OF_MOUNT: usize = 64;
/// Files of all mounts. Each has a thread.
const MAX_CLOSING: usize = 100;

/// How many files are being closed, by mount.
static CLOSING: Mutex<BTreeMap<u64, usize>> = Mutex::new(BTreeMap::new());

fn closing() -> MutexGuard<'static, BTreeMap<u64, usize>> {
    CLOSING.lock().unwrap_or_else(PoisonError::into_inner)
}

/// An open file of a target. What may ask a server is closed by another thread. A clone is the same descriptor.
#[derive(Clone, Debug)]
pub struct TargetFile(Arc<Opened>);

#[derive(Debug)]
struct Opened {
    file: ManuallyDrop<File>,
    is_local: bool,
}

impl TargetFile {
    /// A copy, or a file that the kernel closes without asking anybody.
    pub fn local(file: OwnedFd) -> Self {
        Self::new(file.into(), true)
    }

    fn new(file: File, is_local: bool) -> Self {
        let file = ManuallyDrop::new(file);
        Self(Arc::new(Opened { file, is_local }))
    }

    /// Keeps it such that it can be opened again: by a handle, if it may ask a server.
    ///
    /// # Errors
    /// Those of `open(2)`.
    pub fn hold(&self, path: &str) -> io::Result<HeldFile> {
        let held = match self.0.is_local {
            true => Held::File(self.try_clone()?),
            false => Held::Handle(handle(format!("/proc/self/fd/{}", self.as_raw_fd()))?),
        };
        let path = path.to_owned();
        Ok(HeldFile { held, path })
    }

    /// Takes it away from a call that was left behind, so that no child inherits it.
    pub(super) fn take_away(self) {
        if !self.0.is_local {
            in_background(&self.as_raw_fd(), move || {
                let nothing = File::open("/dev/null");
                // SAFETY: takes numbers; both descriptors are open until then.
                nothing.map(|nothing| unsafe {
                    libc::dup3(nothing.as_raw_fd(), self.as_raw_fd(), libc::O_CLOEXEC)
                })
            });
        }
    }
}

impl From<File> for TargetFile {
    fn from(file: File) -> Self {
        Self::new(file, false)
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

impl Drop for Opened {
    fn drop(&mut self) {
        // SAFETY: taken once.
        let file = unsafe { ManuallyDrop::take(&mut self.file) };
        if !self.is_local {
            in_background(&file.as_raw_fd(), move || drop(file));
        }
    }
}

/// A mapped file that can be opened later: what is written to it until then is seen, also if it has been
/// deleted.
#[derive(Debug)]
pub struct HeldFile {
    pub(super) held: Held,
    /// In the target.
    pub(super) path: String,
}

#[derive(Debug)]
pub(super) enum Held {
    /// See [`TargetFile::local`].
    File(File),
    /// Made with `O_PATH`: nobody is asked when it is closed.
    Handle(OwnedFd),
}

impl HeldFile {
    /// The file, if it is open.
    pub fn file(&self) -> Option<&File> {
        match &self.held {
            Held::File(file) => Some(file),
            Held::Handle(_) => None,
        }
    }
}

/// Whether so many files beside this one do not come to their end that it should not be opened.
pub(super) fn is_full(file: &impl AsRawFd) -> bool {
    let closing = closing();
    let of_mount = closing.get(&mount_id(file).unwrap_or_default());
    closing.values().sum::<usize>() >= MAX_CLOSING || of_mount.is_some_and(|n| *n >= MAX_OF_MOUNT)
}

/// A file of this mount that is being closed.
struct Closing(u64);

impl Closing {
    fn new(mount: u64) -> Self {
        *closing().entry(mount).or_default() += 1;
        Self(mount)
    }
}

impl Drop for Closing {
    fn drop(&mut self) {
        let mut closing = closing();
        if let Some(n) = closing.get_mut(&self.0) {
            *n -= 1;
        }
        closing.retain(|_, n| *n > 0);
    }
}

/// Does what closes a file.
fn in_background<T>(file: &impl AsRawFd, close: impl FnOnce() -> T + Send + 'static) {
    let counted = Closing::new(mount_id(file).unwrap_or_default());
    let thread = thread::Builder::new().name("wcprof-closes".to_owned());
    // Where there can be no thread, it is closed here.
    let _ = thread.spawn(move || {
        close();
        drop(counted);
    });
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
    use std::os::unix::fs::FileExt;

    use super::*;

    /// Both ends of a pipe, which has a mount that no other test uses.
    fn pipe() -> (File, File) {
        let (reader, writer) = io::pipe().unwrap();
        (OwnedFd::from(reader).into(), OwnedFd::from(writer).into())
    }

    /// Check that a file is closed when its last owner has gone, or when it is taken away from them; and that one beside many
    /// of these is not to be opened.
    #[test]
    fn closed() {
        let ((mut first, writer), mut text) = (pipe(), String::new());
        let file = TargetFile::from(writer);
        let copy = file.clone();
        drop(file);
        (&*copy).write_all(b"open").unwrap();
        drop(copy);
        first.read_to_string(&mut text).unwrap();
        let (mut second, writer) = pipe();
        let file = TargetFile::from(writer);
        file.clone().take_away();
        second.read_to_string(&mut text).unwrap();
        assert_eq!(text, "open");
        assert!((&*file).write_all(b"to nobody").is_err());
        let mount = mount_id(&first).unwrap();
        let others: Vec<_> = (0..MAX_OF_MOUNT).map(|_| Closing::new(mount)).collect();
        assert!(is_full(&second));
        drop(others);
        while is_full(&second) {
            thread::yield_now();
        }
    }

    /// Check that a file which may ask a server is held without being open, and one that does not as it is.
    #[test]
    fn held() {
        let mut file = tempfile::tempfile().unwrap();
        file.write_all(b"content").unwrap();
        let copy = TargetFile::from(file.try_clone().unwrap());
        assert!(copy.hold("/x").unwrap().file().is_none());
        let local = TargetFile::local(file.into()).hold("/x").unwrap();
        let mut bytes = [0; 7];
        local.file().unwrap().read_exact_at(&mut bytes, 0).unwrap();
        assert_eq!(&bytes, b"content");
    }
}
