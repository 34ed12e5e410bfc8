//! Files and folders that nobody but the user can have written: whether one is, and how one is made.

use std::env;
use std::fs::{self, DirBuilder, File, Metadata};
use std::io;
use std::os::fd::AsFd;
use std::os::unix::fs::{DirBuilderExt, MetadataExt, OpenOptionsExt};
use std::path::Path;

use nix::fcntl::OFlag;
use nix::sys::statvfs::fstatvfs;
use nix::unistd::geteuid;

use crate::sys::has_users_of_host;

/// `DEFAULT_OVERFLOWUID`, `include/linux/highuid.h`.
const UNMAPPED: u32 = 65534;
/// Bytes that are left free on a file system.
const KEEP_FREE: u64 = 512 << 20;

/// Whether a file belongs to the user, and nobody else can write it.
pub fn is_own(metadata: &Metadata) -> bool {
    metadata.uid() == geteuid().as_raw() && metadata.mode() & 0o022 == 0
}

/// Refuses a folder that is in one of somebody else, or that a link of somebody else leads to: `sudo` may leave another
/// user's home.
///
/// # Errors
/// When it is refused, or its place cannot be looked up.
pub fn check_place(dir: &Path) -> io::Result<()> {
    let refused = || io::Error::from(io::ErrorKind::PermissionDenied);
    let existing = dir.ancestors().find(|d| d.exists()).ok_or_else(refused)?;
    for on_the_way in existing.ancestors() {
        if !is_trusted(fs::symlink_metadata(on_the_way)?.uid()) {
            return Err(refused());
        }
    }
    match is_own(&fs::metadata(existing)?) {
        true => Ok(()),
        false => Err(refused()),
    }
}

/// Whether nobody but the user and root acts with this number.
pub fn is_trusted(uid: u32) -> bool {
    // In a user namespace all others have this one.
    let is_nobody = uid == UNMAPPED && !has_users_of_host();
    uid == 0 || uid == geteuid().as_raw() || is_nobody
}

/// Makes a folder that only the user can enter.
///
/// # Errors
/// When it is not there and cannot be made.
pub fn make_dir(dir: &Path) -> io::Result<()> {
    DirBuilder::new().recursive(true).mode(0o700).create(dir)
}

/// Makes such a folder if nothing is there, and opens it. Others can neither exchange what is opened nor put anything
/// into it.
///
/// # Errors
/// When it cannot be made, or when a link, a folder of somebody else, or one that others can write is in its place.
pub fn open_dir(dir: &Path) -> io::Result<File> {
    make_dir(dir)?;
    let flags = OFlag::O_DIRECTORY | OFlag::O_NOFOLLOW;
    let opened = File::options()
        .read(true)
        .custom_flags(flags.bits())
        .open(dir)?;
    if is_own(&opened.metadata()?) {
        return Ok(opened);
    }
    let text = "it belongs to another user, or others can write to it";
    Err(io::Error::new(io::ErrorKind::PermissionDenied, text))
}

/// A file that no path leads to, for this many bytes. `/tmp` comes last, since it is often in memory.
///
/// # Errors
/// When neither folder takes one.
pub fn unnamed_file(size: u64) -> io::Result<File> {
    let in_folder = |folder: &Path| {
        let file = tempfile::tempfile_in(folder)?;
        if size > 0 {
            check_free(&file, size)?;
        }
        Ok(file)
    };
    in_folder(Path::new("/var/tmp")).or_else(|_| in_folder(&env::temp_dir()))
}

/// Leaves room for others on the file system of a file that so many bytes are to be written to.
///
/// # Errors
/// When there would be too little.
pub fn check_free(file: &File, size: u64) -> io::Result<()> {
    // A file system that does not state its size is not guarded.
    let Ok(stat) = fstatvfs(file.as_fd()) else {
        return Ok(());
    };
    let free = stat.blocks_available().saturating_mul(stat.fragment_size());
    if size.saturating_add(KEEP_FREE) <= free {
        return Ok(());
    }
    let text = format!(
        "its file system has {} MiB free, of which {} are left to others",
        free >> 20,
        KEEP_FREE >> 20
    );
    Err(io::Error::new(io::ErrorKind::StorageFull, text))
}

#[cfg(test)]
mod tests {
    use std::fs::Permissions;
    use std::os::unix::fs::{PermissionsExt, chown, symlink};
    use std::path::PathBuf;

    use super::*;

    /// Check that a folder is refused whose owner, or the owner of one above it or of a link to it, is somebody else.
    #[test]
    fn place() {
        let folder = tempfile::tempdir().unwrap();
        let [own, home] = ["own", "home"].map(|name| folder.path().join(name));
        fs::create_dir_all(own.join("cache")).unwrap();
        fs::create_dir(&home).unwrap();
        symlink(&own, home.join("link")).unwrap();
        let ways = || {
            [
                own.join("cache/new"),
                home.join("link/cache"),
                home.join("link/new"),
            ]
        };
        assert!(ways().iter().all(|way| check_place(way).is_ok()));
        fs::create_dir(home.join("made")).unwrap();
        let given = std::os::unix::fs::lchown(home.join("link"), Some(1), None);
        if given.is_err() {
            return eprintln!("SKIPPED place: only root can give files away");
        }
        let is_refused = |way: PathBuf| check_place(&way).is_err();
        assert_eq!(ways().map(is_refused), [false, true, true]);
        chown(&home, Some(1), None).unwrap();
        assert!(is_refused(home.join("made/new")));
    }

    /// Check that a folder is made private, and that a link, or a folder that others can write, is not opened.
    #[test]
    fn opened_dir() {
        let folder = tempfile::tempdir().unwrap();
        let dir = folder.path().join("made/here");
        assert_eq!(
            open_dir(&dir).unwrap().metadata().unwrap().mode() & 0o777,
            0o700
        );
        let link = folder.path().join("link");
        symlink(&dir, &link).unwrap();
        assert!(open_dir(&link).is_err());
        fs::set_permissions(&dir, Permissions::from_mode(0o777)).unwrap();
        let error = open_dir(&dir).unwrap_err();
        assert!(error.to_string().contains("others can write"), "{error}");
        fs::set_permissions(&dir, Permissions::from_mode(0o755)).unwrap();
        assert!(open_dir(&dir).is_ok());
        match geteuid().is_root() {
            true => {
                chown(&dir, Some(65534), None).unwrap();
                assert!(open_dir(&dir).is_err());
            }
            false => eprintln!("SKIPPED opened_dir: only root can give folders away"),
        }
    }
}
