//! Which file systems the kernel reads without asking anybody else, by their numbers and names.

use std::os::fd::AsFd;

use rustix::fs::fstatfs;
use rustix::io::Errno;

/// `FUSE_SUPER_MAGIC` (virtiofs, too) and `V9FS_MAGIC`, `include/uapi/linux/magic.h`. The servers of others outlive their clients.
const COPIED: [u64; 2] = [0x6573_5546, 0x0102_1997];
/// Magic numbers (`include/uapi/linux/magic.h`, `fs/xfs`, `fs/bcachefs`, OpenZFS) of those that ask nobody: ext, XFS, Btrfs, ZFS,
/// bcachefs, F2FS, JFS, NILFS2, ReiserFS, NTFS, UDF, tmpfs, ramfs, squashfs, EROFS, ISO 9660, FAT, exFAT, hugetlbfs, proc.
const LOCAL: [u64; 20] = [
    0xef53,
    0x5846_5342,
    0x9123_683e,
    0x2fc1_2fc1,
    0xca45_1a4e,
    0xf2f5_2010,
    0x3153_464a,
    0x3434,
    0x5265_4973,
    0x7366_746e,
    0x1501_3346,
    0x0102_1994,
    0x8584_58f6,
    0x7371_7368,
    0xe0f5_e1e2,
    0x9660,
    0x4d44,
    0x2011_bab0,
    0x9584_58f6,
    0x9fa0,
];
/// The names of such in `/proc/PID/mountinfo`.
const LOCAL_NAMES: [&str; 24] = [
    "ext2",
    "ext3",
    "ext4",
    "xfs",
    "btrfs",
    "zfs",
    "bcachefs",
    "f2fs",
    "jfs",
    "nilfs2",
    "reiserfs",
    "ntfs3",
    "udf",
    "tmpfs",
    "devtmpfs",
    "ramfs",
    "rootfs",
    "squashfs",
    "erofs",
    "iso9660",
    "vfat",
    "exfat",
    "hugetlbfs",
    "proc",
];

/// Whether a file system of this name asks nobody.
pub(super) fn is_local_name(name: &str) -> bool {
    LOCAL_NAMES.contains(&name)
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
        LOCAL.contains(&self.0)
    }
}
