//! Which file systems ask somebody else.

use std::os::fd::AsFd;

use rustix::fs::fstatfs;
use rustix::io::Errno;

/// `FUSE_SUPER_MAGIC` (virtiofs, too) and `V9FS_MAGIC`, `include/uapi/linux/magic.h`. The servers of others outlive their clients.
const COPIED: [u64; 2] = [0x6573_5546, 0x0102_1997];
/// Of magic numbers (`include/uapi/linux/magic.h`, `fs/nfs`, `fs/smb`), those of file systems that may ask a server, beside
/// [`COPIED`]: overlayfs, NFS, SMB (two), Ceph, AFS (two), Lustre.
const MAY_ASK: [u64; 8] = [
    0x794c_7630,
    0x6969,
    0xff53_4d42,
    0xfe53_4d42,
    0x00c3_6400,
    0x5346_414f,
    0x6b41_4653,
    0x0bd0_0bd0,
];

/// What a file system is, by its magic number.
#[derive(Copy, Clone, Debug)]
pub(super) struct FileSystem(u64);

impl FileSystem {
    /// That of a file, which is asked.
    pub(super) fn of(file: impl AsFd) -> Result<Self, Errno> {
        Ok(Self(fstatfs(file)?.f_type as u64))
    }

    pub(super) fn is_copied(self) -> bool {
        COPIED.contains(&self.0)
    }

    /// Whether it asks nobody.
    pub(super) fn is_local(self) -> bool {
        !self.is_copied() && !MAY_ASK.contains(&self.0)
    }
}
