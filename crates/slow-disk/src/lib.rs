//! A disk made of a FUSE server in this process: a flush of one of its files takes a known time.
//!
//! The kernel passes `fdatasync` to the server, and the caller waits for the answer as for a device. The file
//! system is not mounted anywhere: child processes inherit a descriptor of its folder. Nothing is left behind,
//! whichever process ends first. When this process ends, calls on the files fail.
//!
//! This process itself must not open the files: a process that is killed while one of its threads
//! waits for another one of them never ends.
#![forbid(unsafe_code)]

use std::ffi::OsStr;
use std::fs::File;
use std::os::fd::{AsRawFd, OwnedFd};
use std::path::PathBuf;
use std::thread;
use std::time::{Duration, UNIX_EPOCH};

use anyhow::{Context, Result};
use fuser::{
    Config, Errno, FileAttr, FileHandle, FileType, Filesystem, FopenFlags, Generation, INodeNo,
    LockOwner, OpenFlags, ReplyAttr, ReplyEmpty, ReplyEntry, ReplyOpen, ReplyWrite, Request,
    Session, SessionACL, WriteFlags,
};
use nix::unistd::{getegid, geteuid};
use rustix::mount::{
    FsMountFlags, FsOpenFlags, MountAttrFlags, fsconfig_create, fsconfig_set_string, fsmount,
    fsopen,
};

/// What each flush takes, at least.
pub const FLUSH_TIME: Duration = Duration::from_millis(8);
/// The file for a transaction log.
pub const LOG: &str = "slow-disk.wal";
/// The file for the objects' data.
pub const OBJECTS: &str = "slow-disk.block";
/// The files of a disk.
const FILES: [&str; 2] = [LOG, OBJECTS];

/// How long the kernel may cache an answer.
const TTL: Duration = Duration::from_secs(3600);

/// The folder of the files. The server runs until nobody has the folder or a file of it open.
#[derive(Debug)]
pub struct SlowDisk {
    folder: OwnedFd,
}

impl SlowDisk {
    /// Start the server on threads of this process.
    ///
    /// # Errors
    /// Without `/dev/fuse`, without `CAP_SYS_ADMIN`, or before Linux 5.2.
    pub fn start() -> Result<Self> {
        let device = File::options().read(true).write(true).open("/dev/fuse");
        let device = device.context("failed to open `/dev/fuse`")?;
        let folder = create(&device).context("failed to create a FUSE file system")?;
        let mut config = Config::default();
        // The flush of one file must not hold up writes to another.
        config.n_threads = Some(FILES.len());
        Session::from_fd(Files, device.into(), SessionACL::Owner, config)
            .and_then(Session::spawn)
            .context("failed to serve a FUSE file system")?;
        Ok(Self { folder })
    }

    /// Path of the folder in the child processes that are started while this lives.
    pub fn folder(&self) -> PathBuf {
        format!("/proc/self/fd/{}", self.folder.as_raw_fd()).into()
    }
}

/// The folder of a new file system, to be inherited.
fn create(device: &File) -> rustix::io::Result<OwnedFd> {
    let context = fsopen("fuse", FsOpenFlags::FSOPEN_CLOEXEC)?;
    for (key, value) in [
        ("source", "wcprof-demo".to_owned()),
        ("fd", device.as_raw_fd().to_string()),
        ("rootmode", "40000".to_owned()),
        ("user_id", geteuid().to_string()),
        ("group_id", getegid().to_string()),
    ] {
        fsconfig_set_string(&context, key, value)?;
    }
    fsconfig_create(&context)?;
    let attributes = MountAttrFlags::MOUNT_ATTR_NOSUID
        | MountAttrFlags::MOUNT_ATTR_NODEV
        | MountAttrFlags::MOUNT_ATTR_NOEXEC;
    fsmount(&context, FsMountFlags::empty(), attributes)
}

/// The file system: files that take all writes and keep none.
#[derive(Debug)]
struct Files;

impl Filesystem for Files {
    fn lookup(&self, _request: &Request, _parent: INodeNo, name: &OsStr, reply: ReplyEntry) {
        match FILES.iter().position(|file| name == *file) {
            Some(i) => {
                let ino = INodeNo(INodeNo::ROOT.0 + 1 + i as u64);
                reply.entry(&TTL, &attributes(ino), Generation(0));
            }
            None => reply.error(Errno::ENOENT),
        }
    }

    fn getattr(&self, _: &Request, ino: INodeNo, _: Option<FileHandle>, reply: ReplyAttr) {
        reply.attr(&TTL, &attributes(ino));
    }

    fn open(&self, _request: &Request, _ino: INodeNo, _flags: OpenFlags, reply: ReplyOpen) {
        // What is written goes past the page cache.
        reply.opened(FileHandle(0), FopenFlags::FOPEN_DIRECT_IO);
    }

    fn write(
        &self,
        _request: &Request,
        _ino: INodeNo,
        _handle: FileHandle,
        _offset: u64,
        data: &[u8],
        _write_flags: WriteFlags,
        _flags: OpenFlags,
        _lock_owner: Option<LockOwner>,
        reply: ReplyWrite,
    ) {
        reply.written(data.len() as u32);
    }

    fn fsync(&self, _: &Request, _: INodeNo, _: FileHandle, _data_only: bool, reply: ReplyEmpty) {
        thread::sleep(FLUSH_TIME);
        reply.ok();
    }
}

fn attributes(ino: INodeNo) -> FileAttr {
    FileAttr {
        ino,
        size: 0,
        blocks: 0,
        atime: UNIX_EPOCH,
        mtime: UNIX_EPOCH,
        ctime: UNIX_EPOCH,
        crtime: UNIX_EPOCH,
        kind: match ino {
            INodeNo::ROOT => FileType::Directory,
            _ => FileType::RegularFile,
        },
        perm: 0o700,
        nlink: 1,
        uid: geteuid().as_raw(),
        gid: getegid().as_raw(),
        rdev: 0,
        blksize: 4096,
        flags: 0,
    }
}

#[cfg(test)]
mod tests {
    use std::io::Write;
    use std::process::{Command, Stdio};
    use std::time::Instant;

    use super::*;

    /// Check that a child process can write and flush each file and no other, that a flush takes its
    /// time, and that the file system is mounted nowhere.
    #[test]
    fn child_waits_for_flush() {
        let disk = match SlowDisk::start() {
            Ok(disk) => disk,
            Err(error) => {
                let _ = writeln!(std::io::stderr(), "SKIPPED child_waits_for_flush: {error}");
                return;
            }
        };
        let write = |name: &str| {
            let mut output = std::ffi::OsString::from("of=");
            output.push(disk.folder().join(name));
            Command::new("dd")
                .args(["if=/dev/zero", "bs=4k", "count=3"])
                .arg("conv=nocreat,notrunc,fdatasync")
                .arg(output)
                .stderr(Stdio::null())
                .status()
                .unwrap()
                .success()
        };
        for name in FILES {
            let begin = Instant::now();
            assert!(write(name));
            assert!(begin.elapsed() >= FLUSH_TIME);
        }
        assert!(!write("another"));
        let mounts = std::fs::read_to_string("/proc/self/mountinfo").unwrap();
        assert!(!mounts.contains("wcprof-demo"));
    }
}
