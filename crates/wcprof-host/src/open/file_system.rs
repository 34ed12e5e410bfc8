//! Which file systems the kernel reads without asking anybody else, by their numbers and names.

use std::os::fd::AsFd;

use rustix::fs::fstatfs;
use rustix::io::Errno;

/// `FUSE_SUPER_MAGIC` (virtiofs, too) and `V9FS_MAGIC`, `include/uapi/linux/magic.h`. The servers of others outlive their clients.
const COPIED: [u64; 2] = [0x6573_5546, 0x0102_1997];
/// Those that ask nobody: names in `/proc/PID/mountinfo`, and magic numbers (`include/uapi/linux/magic.h`, the file systems' own
/// folders below `fs/`, OpenZFS).
const LOCAL: [(&str, u64); 24] = [
    ("ext2", 0xef53),
    ("ext3", 0xef53),
    ("ext4", 0xef53),
    ("xfs", 0x5846_5342),
    ("btrfs", 0x9123_683e),
    ("zfs", 0x2fc1_2fc1),
    ("bcachefs", 0xca45_1a4e),
    ("f2fs", 0xf2f5_2010),
    ("jfs", 0x3153_464a),
    ("nilfs2", 0x3434),
    ("reiserfs", 0x5265_4973),
    ("ntfs3", 0x7366_746e),
    ("udf", 0x1501_3346),
    ("tmpfs", 0x0102_1994),
    ("devtmpfs", 0x0102_1994),
    ("ramfs", 0x8584_58f6),
    ("rootfs", 0x8584_58f6),
    ("squashfs", 0x7371_7368),
    ("erofs", 0xe0f5_e1e2),
    ("iso9660", 0x9660),
    ("vfat", 0x4d44),
    ("exfat", 0x2011_bab0),
    ("hugetlbfs", 0x9584_58f6),
    ("proc", 0x9fa0),
];

/// Whether a file system of this name asks nobody.
pub(super) fn is_local_name(name: &str) -> bool {
    LOCAL.iter().any(|(local, _)| *local == name)
}

/// What a file system is, by its magic number.
#[derive(Copy, Clone, Debug)]
pub(super) struct FileSystem(u64);

impl FileSystem {
    /// That of an open file, which is asked.
    pub(super) fn of(file: impl AsFd) -> Result<Self, Errno> {
        Ok(Self(fstatfs(file)?.f_type as u64))
    }

    pub(super) fn is_copied(self) -> bool {
        COPIED.contains(&self.0)
    }

    /// Whether it asks nobody.
    pub(super) fn is_local(self) -> bool {
        LOCAL.iter().any(|(_, magic)| *magic == self.0)
    }
}
