//! Opens the files that a live target maps, through the mapping and not by name: containers and
//! deleted or replaced files are right, and no path leads out of the target's root.

use std::collections::HashMap;
use std::fs;
use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::fs::{FileExt, MetadataExt};
use std::path::{Path, PathBuf};
use std::sync::{Condvar, Mutex, OnceLock, PoisonError};
use std::time::Duration;

use rustix::fs::{fstat, major, minor};
use wcprof_types::{Avma, Mapping, Pid};

use super::closing::{TargetFile, mount_id, wait_for_room};
use super::copy::copy;
use super::file_system::{FileSystem, is_local_name};
use super::in_time::do_in_time;
use super::reason::{NoFile, OpenError};
use super::regular::{FileIdentity, Root, handle, open_handle};
use crate::deadline::{Awaited, with_deadline};
use crate::memory::read_memory;
use crate::procfs::{live_folder, read_bytes};

/// The first bytes of a file and of its mapping are compared: ELF header, program headers and, in
/// practice, the build-id note.
const COMPARED: usize = 4096;
/// A vdso has two pages; more than this is not one.
const MAX_VDSO: u64 = 1 << 20;
/// Bytes read of the list of mounts; a file on one beyond it is opened like one on a network.
const MAX_MOUNTS: u64 = 4 << 20;
/// Longest wait for somebody else's look-up.
const TURN: Duration = Duration::from_secs(2);

/// Whom the files of a file system are asked for.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
enum Mount {
    /// The kernel.
    Local,
    /// Other file systems, of any kind.
    Overlay,
    /// A server, as far as is known.
    Remote,
}

/// Opens files of one target.
#[derive(Debug)]
pub struct LiveFiles {
    pid: Pid,
    root: Option<Root>,
    /// Where that is in the mount namespace, as wcprof sees it; `None` at its top. Paths of mappings begin with it.
    root_path: Option<PathBuf>,
    root_id: OnceLock<Option<(u64, u64)>>,
    /// By device, the file systems that it has mounted. One that is not known may be of any kind: it is newer, or gone.
    mounts: HashMap<(u32, u32), Mount>,
    /// One look-up at a time: what does not answer holds one thread.
    looks_up: Mutex<bool>,
    is_free: Condvar,
}

/// A mapped file that is opened later: what is written to it until then is seen, also if it has been
/// deleted.
#[derive(Debug)]
pub struct HeldFile {
    held: Held,
    /// In the target.
    path: String,
}

#[derive(Debug)]
enum Held {
    File(TargetFile),
    /// Made with `O_PATH`: neither the file's server nor its end is waited for.
    Handle(TargetFile),
}

/// A file that was opened, or its copy.
#[derive(Debug)]
struct Opened {
    file: TargetFile,
    /// Of the file itself.
    identity: FileIdentity,
}

impl LiveFiles {
    /// Looks at the target's root and mounts; what cannot be read narrows what can be opened.
    pub fn new(pid: Pid) -> Self {
        let mounts =
            read_bytes(format!("{}/mountinfo", live_folder(pid)), MAX_MOUNTS).unwrap_or_default();
        Self {
            pid,
            // A root on a file server may be asked for.
            root: with_deadline(Awaited::Root(pid), move || Root::of_process(pid).ok()).flatten(),
            root_path: root_path(pid),
            root_id: OnceLock::new(),
            mounts: mounted_devices(&String::from_utf8_lossy(&mounts)),
            looks_up: Mutex::new(false),
            is_free: Condvar::new(),
        }
    }

    /// Whether the target's root could be opened: not when it had exited by then.
    pub fn has_root(&self) -> bool {
        self.root.is_some()
    }

    /// Device and inode of its root, if that is another folder than wcprof's: that of a container.
    pub fn own_root(&self) -> Option<(u64, u64)> {
        let own = fs::metadata("/").ok()?;
        self.root_id()
            .filter(|root| *root != (own.dev(), own.ino()))
    }

    /// Device and inode of its root; `None` when it had exited before that was opened, or its server did not answer.
    pub fn root_id(&self) -> Option<(u64, u64)> {
        *self.root_id.get_or_init(|| {
            let root = self.root.clone()?;
            let root = with_deadline(Awaited::Root(self.pid), move || fstat(root))?.ok()?;
            Some((root.st_dev, root.st_ino))
        })
    }

    /// Whether the file is on a network file system or FUSE, or on one of which nothing is known.
    pub fn may_hang(&self, mapping: &Mapping) -> bool {
        self.mount(mapping) == Some(Mount::Remote)
    }

    /// Whether the kernel reads it without asking anybody, as far as is known.
    pub fn is_local(&self, mapping: &Mapping) -> bool {
        mapping.is_anonymous() || self.mount(mapping) == Some(Mount::Local)
    }

    fn mount(&self, mapping: &Mapping) -> Option<Mount> {
        self.mounts.get(&mapping.device).copied()
    }

    /// Reads the file of a mapping on another thread. Of a file that is on a disk the answer may lack, too.
    ///
    /// # Errors
    /// When nobody does.
    pub fn read_in_time<T: Send + 'static>(
        &self,
        mapping: &Mapping,
        file: &TargetFile,
        read: impl FnOnce(TargetFile) -> T + Send + 'static,
    ) -> Result<T, OpenError> {
        let read = do_in_time(self.awaited(mapping), file, read);
        read.map_err(|reason| reason.at(&mapping.path))
    }

    /// What the open file of a mapping is now.
    ///
    /// # Errors
    /// When its file system does not answer, or [`fstat(2)`](fstat) fails.
    pub fn identify(
        &self,
        mapping: &Mapping,
        file: &TargetFile,
    ) -> Result<FileIdentity, OpenError> {
        let stat = self.read_in_time(mapping, file, |file| fstat(&*file))?;
        stat.map(|stat| FileIdentity::of(&stat, false))
            .map_err(|error| NoFile::from(error).at(&mapping.path))
    }

    fn awaited(&self, mapping: &Mapping) -> Awaited {
        match self.mount(mapping) {
            Some(Mount::Local) => Awaited::Disk(mapping.device, self.pid),
            _ => Awaited::Files(self.pid, mapping.device),
        }
    }

    /// Opens the file of a mapping. What is on FUSE or 9p is copied.
    ///
    /// # Errors
    /// When it is no regular file, may not be opened, or its server does not answer.
    pub fn open_mapping(&self, mapping: &Mapping) -> Result<TargetFile, OpenError> {
        self.open_identified(mapping).map(|(file, _)| file)
    }

    /// The same, and what file that is, or was copied.
    ///
    /// # Errors
    /// As [`Self::open_mapping`].
    pub fn open_identified(
        &self,
        mapping: &Mapping,
    ) -> Result<(TargetFile, FileIdentity), OpenError> {
        let opened = match self.handle(mapping) {
            Some(handle) => self.open_handle(handle, mapping),
            None => self.open_by_name(mapping),
        };
        let opened = opened.map_err(|reason| reason.at(&mapping.path))?;
        Ok((opened.file, opened.identity))
    }

    /// Holds the file of a mapping, to open it later.
    ///
    /// # Errors
    /// Without the privilege for `map_files`, those of [`Self::open_mapping`].
    pub fn hold(&self, mapping: &Mapping) -> Result<HeldFile, OpenError> {
        let path = mapping.path.clone();
        if let Some(handle) = self.handle(mapping) {
            let held = Held::Handle(TargetFile::handle(handle));
            return Ok(HeldFile { held, path });
        }
        let opened = self.open_by_name(mapping).map_err(|e| e.at(&path))?;
        let held = Held::File(opened.file);
        Ok(HeldFile { held, path })
    }

    /// Opens a file that was held.
    ///
    /// # Errors
    /// As [`Self::open_mapping`].
    pub fn open_held(&self, file: &HeldFile) -> Result<TargetFile, OpenError> {
        let opened = match &file.held {
            Held::File(held) => held.duplicate(),
            Held::Handle(handle) => {
                let handle = handle.clone();
                let opened = self.look_up(move || Ok(handle));
                opened.map(|opened| opened.file)
            }
        };
        opened.map_err(|reason| reason.at(&file.path))
    }

    /// Opens a regular file by its absolute path in the target's mount namespace, or one that begins like
    /// those of mappings; symbolic links cannot lead out of its root.
    ///
    /// # Errors
    /// As [`Self::open_mapping`].
    pub fn open_regular(&self, path: &Path) -> Result<TargetFile, OpenError> {
        let own = self.below_root(path).to_owned();
        let opened = self.look_up_below(move |root| Ok(root.handle(&own)?));
        opened
            .map_err(|reason| reason.at(path))
            .map(|opened| opened.file)
    }

    /// Opens a regular file that belongs to `uid` or root, by its absolute path in the target's mount
    /// namespace; it must not be a symbolic link itself.
    ///
    /// # Errors
    /// As [`Self::open_mapping`], or when it belongs to somebody else.
    pub fn open_owned(&self, path: &Path, uid: u32) -> Result<TargetFile, OpenError> {
        let own = path.to_owned();
        let opened = self.look_up_below(move |root| root.owned_handle(&own, uid));
        opened
            .map_err(|reason| reason.at(path))
            .map(|opened| opened.file)
    }

    /// A copy of the vdso.
    pub fn vdso(&self, mapping: &Mapping) -> Option<Vec<u8>> {
        let size = mapping.end.0.checked_sub(mapping.start.0)?;
        let mut bytes = vec![0; usize::try_from(size.min(MAX_VDSO)).ok()?];
        let n = read_memory(self.pid, mapping.start, &mut bytes).ok()?;
        bytes.truncate(n);
        Some(bytes)
    }

    /// The file of a mapping, whatever its name leads to now; `None` without the privilege.
    fn handle(&self, mapping: &Mapping) -> Option<OwnedFd> {
        mapped_file(self.pid, mapping).ok()
    }

    fn open_handle(&self, handle: OwnedFd, mapping: &Mapping) -> Result<Opened, NoFile> {
        match self.mount(mapping) {
            Some(Mount::Local | Mount::Overlay) => open(self.awaited(mapping), || Ok(handle)),
            _ => self.look_up(|| Ok(handle)),
        }
    }

    fn open_by_name(&self, mapping: &Mapping) -> Result<Opened, NoFile> {
        let exe = format!("{}/exe", live_folder(self.pid));
        match fs::read_link(&exe) {
            Ok(path) if path.to_string_lossy() == mapping.path => {
                let found = with_deadline(self.awaited(mapping), move || handle(exe));
                if let Ok(handle) = found.ok_or(NoFile::NoAnswer)? {
                    return self.open_handle(handle, mapping);
                }
            }
            Err(error) if has_exited(&error) => return Err(NoFile::NotMapped),
            _ => {}
        }
        if mapping.path.ends_with(" (deleted)") {
            return Err(NoFile::Deleted);
        }
        // The kernel writes a newline in a path as `\012` (`seq_file_path`, `fs/seq_file.c`).
        let path = PathBuf::from(mapping.path.replace("\\012", "\n"));
        let path = self.below_root(&path).to_owned();
        let opened = self.look_up_below(move |root| Ok(root.handle(path)?))?;
        // Btrfs and overlay show another device in `maps` than in `stat`: the first bytes are
        // compared with the target's memory in any case.
        let FileIdentity { device, inode, .. } = opened.identity;
        if inode != mapping.inode && (major(device), minor(device)) == mapping.device {
            return Err(NoFile::Replaced);
        }
        let begin = |file: TargetFile| {
            let mut bytes = [0; COMPARED];
            let n = file.read_at(&mut bytes, 0).unwrap_or(0);
            (bytes, n)
        };
        let (bytes, n) = do_in_time(self.awaited(mapping), &opened.file, begin)?;
        match self.has_bytes(&bytes[..n], mapping.start) {
            _ if mapping.offset.0 != 0 => Ok(opened),
            Some(true) => Ok(opened),
            Some(false) => Err(NoFile::Replaced),
            None => Err(NoFile::NotMapped),
        }
    }

    /// A path of a mapping as the target sees it: the kernel writes those in `maps` as the reader sees them
    /// (`seq_file_path`, `fs/seq_file.c`), from above the root that the target has changed to (chroot).
    fn below_root<'p>(&self, path: &'p Path) -> &'p Path {
        let below = self.root_path.as_ref().map(|root| path.strip_prefix(root));
        below.and_then(Result::ok).unwrap_or(path)
    }

    /// Opens what is below its root.
    fn look_up_below(
        &self,
        find: impl FnOnce(&Root) -> Result<OwnedFd, NoFile> + Send + 'static,
    ) -> Result<Opened, NoFile> {
        let root = self.root.clone();
        let root = root.ok_or_else(|| io::Error::from(io::ErrorKind::PermissionDenied))?;
        self.look_up(move || find(&root))
    }

    /// Opens what may be on any file system.
    fn look_up<H: AsFd + Send + 'static>(
        &self,
        find: impl FnOnce() -> Result<H, NoFile> + Send + 'static,
    ) -> Result<Opened, NoFile> {
        let lock = || self.looks_up.lock().unwrap_or_else(PoisonError::into_inner);
        let turn = self.is_free.wait_timeout_while(lock(), TURN, |busy| *busy);
        let (mut busy, waited) = turn.unwrap_or_else(PoisonError::into_inner);
        if waited.timed_out() {
            return Err(NoFile::NoAnswer);
        }
        *busy = true;
        drop(busy);
        let opened = open(Awaited::Lookups(self.pid), find);
        *lock() = false;
        self.is_free.notify_one();
        opened
    }

    /// Whether the target's memory from `start` on has the bytes of a page of a file; `None` when it cannot be read any more.
    pub fn has_bytes(&self, on_disk: &[u8], start: Avma) -> Option<bool> {
        let mut in_memory = [0; COMPARED];
        let mapped = read_memory(self.pid, start, &mut in_memory).ok()?;
        let n = on_disk.len().min(mapped);
        Some(n >= 64 && on_disk[..n] == in_memory[..n])
    }
}

/// Opens what is found, or copies it.
fn open<H: AsFd>(
    awaited: Awaited,
    find: impl FnOnce() -> Result<H, NoFile> + Send + 'static,
) -> Result<Opened, NoFile> {
    let open = || {
        let handle = find()?;
        // What it is now: a device can be another one's since the mounts were read.
        let system = FileSystem::of(&handle)?;
        let mount = mount_id(&handle);
        wait_for_room(mount, system.is_local())?;
        let (file, stat) = open_handle(handle)?;
        let identity = FileIdentity::of(&stat, system.is_copied());
        Ok::<_, NoFile>((TargetFile::on(mount, file), identity))
    };
    let (file, identity) = with_deadline(awaited, open).ok_or(NoFile::NoAnswer)??;
    let file = match identity.is_copy {
        true => do_in_time(awaited, &file, |file| copy(&file))??,
        false => file,
    };
    Ok(Opened { file, identity })
}

/// The file of a mapping of a process, not opened.
///
/// # Errors
/// Those of `openat(2)`, without the privilege among them, and `TimedOut` when there is no answer.
pub fn mapped_file(pid: Pid, mapping: &Mapping) -> io::Result<OwnedFd> {
    let (start, end) = (mapping.start.0, mapping.end.0);
    let path = format!("{}/map_files/{start:x}-{end:x}", live_folder(pid));
    // The kernel looks it up with the lock of the mappings (`map_files_lookup`, `fs/proc/base.c`).
    let found = with_deadline(Awaited::Lock(pid), move || handle(path));
    Ok(found.ok_or(io::ErrorKind::TimedOut)??)
}

/// Whether an error of a file of `/proc/PID` says that the process has no program any more.
fn has_exited(error: &io::Error) -> bool {
    matches!(error.raw_os_error(), Some(libc::ENOENT | libc::ESRCH))
}

/// The file systems in `/proc/PID/mountinfo` (proc(5)), by device.
fn mounted_devices(mountinfo: &str) -> HashMap<(u32, u32), Mount> {
    mountinfo
        .lines()
        .filter_map(|line| {
            let (mount, super_block) = line.split_once(" - ")?;
            let kind = super_block.split(' ').next()?;
            let (major, minor) = mount.split(' ').nth(2)?.split_once(':')?;
            let device = (major.parse().ok()?, minor.parse().ok()?);
            let mount = match kind {
                "overlay" => Mount::Overlay,
                _ if is_local_name(kind) => Mount::Local,
                _ => Mount::Remote,
            };
            Some((device, mount))
        })
        .collect()
}

/// Where the root of a process is, as wcprof sees it; `None` at the top of its mount namespace, or when that is not known.
fn root_path(pid: Pid) -> Option<PathBuf> {
    let path = fs::read_link(format!("{}/root", live_folder(pid))).ok()?;
    // What wcprof's own root does not lead to is `(unreachable)/...`.
    (path.is_absolute() && path != Path::new("/")).then_some(path)
}

#[cfg(test)]
mod tests {
    use std::io::Read;
    use std::os::unix::fs::MetadataExt;

    use wcprof_types::parse_maps;

    use super::*;

    fn me() -> Pid {
        Pid(std::process::id() as i32)
    }

    fn own_mappings() -> Vec<Mapping> {
        parse_maps(&fs::read_to_string("/proc/self/maps").unwrap()).unwrap()
    }

    /// Check that this process's own program is opened both through its mapping and by name, and
    /// that both are the same file.
    #[test]
    fn own_program() {
        let exe = fs::read_link("/proc/self/exe").unwrap();
        let mappings = own_mappings();
        let first = mappings.iter().find(|m| Path::new(&m.path) == exe).unwrap();
        let files = LiveFiles::new(me());
        let inode = fs::metadata(&exe).unwrap().ino();
        let by_mapping = files.open_mapping(first).unwrap();
        let by_name = files.open_by_name(first).unwrap();
        assert_eq!(by_mapping.metadata().unwrap().ino(), inode);
        assert_eq!(by_name.identity.inode, inode);
        assert!(!files.may_hang(first) || !files.mounts.is_empty());
    }

    /// Check that the vdso is an ELF image.
    #[test]
    fn vdso() {
        let mappings = own_mappings();
        let Some(vdso) = mappings.iter().find(|m| m.path == "[vdso]") else {
            return;
        };
        let bytes = LiveFiles::new(me()).vdso(vdso).unwrap();
        assert_eq!(&bytes[..4], b"\x7fELF");
    }

    /// Check that a FIFO is refused at once, and that a link cannot leave the root.
    #[test]
    fn refuses() {
        let folder = tempfile::tempdir().unwrap();
        let fifo = folder.path().join("fifo");
        nix::unistd::mkfifo(&fifo, nix::sys::stat::Mode::S_IRUSR).unwrap();
        let files = LiveFiles::new(me());
        let error = files.open_regular(&fifo).unwrap_err();
        assert!(matches!(error.reason, NoFile::NotRegular(_)), "{error}");
        let mut files = LiveFiles::new(me());
        // With the folder as root, a link to /etc/passwd is looked for inside it.
        std::os::unix::fs::symlink("/etc/passwd", folder.path().join("link")).unwrap();
        files.root = Some(Root::new(folder.path()).unwrap());
        assert!(files.open_regular(Path::new("/link")).is_err());
        fs::create_dir(folder.path().join("etc")).unwrap();
        fs::write(folder.path().join("etc/passwd"), "inside").unwrap();
        let mut text = String::new();
        let file = files.open_regular(Path::new("/link")).unwrap();
        (&*file).read_to_string(&mut text).unwrap();
        assert_eq!(text, "inside");
    }

    /// Check that a file of another user, a link and a FIFO are no files of the target's own.
    #[test]
    fn owned() {
        let folder = tempfile::tempdir().unwrap();
        let mut files = LiveFiles::new(me());
        files.root = Some(Root::new(folder.path()).unwrap());
        let uid = nix::unistd::geteuid().as_raw();
        let map = folder.path().join("perf-1.map");
        fs::write(&map, "1 1 a\n").unwrap();
        std::os::unix::fs::symlink("/perf-1.map", folder.path().join("link")).unwrap();
        nix::unistd::mkfifo(&folder.path().join("fifo"), nix::sys::stat::Mode::S_IRUSR).unwrap();
        assert!(files.open_owned(Path::new("/perf-1.map"), uid).is_ok());
        for refused in ["/link", "/fifo"] {
            let error = files.open_owned(Path::new(refused), uid).unwrap_err();
            assert!(matches!(error.reason, NoFile::NotRegular(_)), "{error}");
        }
        let error = files.open_owned(Path::new("/perf-2.map"), uid).unwrap_err();
        assert!(error.is_not_found(), "{error}");
        if uid != 0 {
            let error = files
                .open_owned(Path::new("/perf-1.map"), uid + 1)
                .unwrap_err();
            assert!(matches!(error.reason, NoFile::Owner(_)), "{error}");
        } else if nix::unistd::chown(&map, Some(12345.into()), None).is_ok() {
            let error = files
                .open_owned(Path::new("/perf-1.map"), 54321)
                .unwrap_err();
            assert!(matches!(error.reason, NoFile::Owner(12345)), "{error}");
        }
    }

    /// Check that the file of a process that has exited is not taken for a replaced one.
    #[test]
    fn exited() {
        let mut child = std::process::Command::new("cat")
            .stdin(std::process::Stdio::piped())
            .spawn()
            .unwrap();
        let pid = Pid(child.id() as i32);
        let files = LiveFiles::new(pid);
        // The kernel maps the program after the call that starts it has returned.
        let program = loop {
            let mappings = crate::procfs::read_mappings(pid).unwrap();
            if let Some(program) = mappings.iter().find(|m| m.inode != 0) {
                break program.clone();
            }
            std::thread::yield_now();
        };
        drop(child.stdin.take());
        child.wait().unwrap();
        let error = files.open_mapping(&program).unwrap_err();
        assert!(matches!(error.reason, NoFile::NotMapped), "{error}");
    }

    /// Check what kinds mounts are of.
    #[test]
    fn mounts() {
        let text = "22 1 254:0 / / rw - ext4 /dev/vda rw\n\
                    40 22 0:52 / /mnt/a\\040b rw shared:3 - nfs4 srv:/x rw\n\
                    41 22 0:53 / /f rw - fuse.sshfs x rw\nrubbish\n\
                    42 22 0:54 / / rw - overlay overlay rw,lowerdir=/l\n\
                    43 22 0:55 / / rw - not_known x rw\n";
        let expected = [
            ((254, 0), Mount::Local),
            ((0, 52), Mount::Remote),
            ((0, 53), Mount::Remote),
            ((0, 54), Mount::Overlay),
            ((0, 55), Mount::Remote),
        ];
        assert_eq!(mounted_devices(text), HashMap::from(expected));
    }
}
