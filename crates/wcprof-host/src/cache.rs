//! What can be made again, to files in the user's cache folder, and back.
//!
//! A file is a line that names the kind and its version, a line that says what the content was made from,
//! the content, and the CRC-32 of all that, little-endian. It is taken only if it is whole, of this version,
//! made from just that, and if nobody else can have written it. All files can be deleted at any time.

use std::fs;
use std::io::{self, Read, Write};
use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime};

use crate::open::open_regular;
use crate::own_files::{check_place, is_own, make_dir};

/// Age of a temporary file that no running writer has.
const ABANDONED: Duration = Duration::from_secs(3600);

/// What all cache files of one use share.
#[derive(Copy, Clone, Debug)]
pub struct CacheKind {
    /// How their names end.
    pub suffix: &'static str,
    /// Version of the content.
    pub version: u32,
    /// Largest file, bytes.
    pub max_file: u64,
    /// Bytes of all files; the ones that were not used for the longest time go first.
    pub max_total: u64,
}

/// The place of one thing in the cache; there may be no file yet.
#[derive(Debug)]
pub struct CacheFile {
    kind: &'static CacheKind,
    dir: PathBuf,
    path: PathBuf,
    /// Its first two lines.
    head: String,
}

impl CacheFile {
    /// `name` is that of the file without its suffix; `identity` says all that the content was made from.
    pub fn new(kind: &'static CacheKind, dir: &Path, name: &str, identity: String) -> Self {
        let CacheKind {
            suffix, version, ..
        } = kind;
        let identity = identity.replace('\n', " ");
        Self {
            kind,
            dir: dir.to_owned(),
            path: dir.join(format!("{name}.{suffix}")),
            head: format!("{suffix} {version}\n{identity}\n"),
        }
    }

    /// The content; `None` when there is none that can be trusted.
    pub fn read(&self) -> Option<Vec<u8>> {
        let file = open_regular(&self.path).ok()?;
        let metadata = file.metadata().ok()?;
        if !is_own(&metadata) || metadata.len() > self.kind.max_file {
            return None;
        }
        let mut bytes = Vec::new();
        let limit = self.kind.max_file;
        (&file).take(limit).read_to_end(&mut bytes).ok()?;
        let (bytes, checksum) = bytes.split_last_chunk::<4>()?;
        if crc32fast::hash(bytes) != u32::from_le_bytes(*checksum) {
            return None;
        }
        let content = bytes.strip_prefix(self.head.as_bytes())?.to_vec();
        // It was used now.
        let _ = file.set_modified(SystemTime::now());
        Some(content)
    }

    /// Writes a file beside the old one, and then puts it in its place. Content that is too large is
    /// not written.
    ///
    /// # Errors
    /// When the folder belongs to somebody else or others can write it, or the file cannot be written.
    pub fn write(&self, content: &[u8]) -> io::Result<()> {
        let mut bytes = [self.head.as_bytes(), content].concat();
        bytes.extend(crc32fast::hash(&bytes).to_le_bytes());
        if bytes.len() as u64 > self.kind.max_file {
            return Ok(());
        }
        check_place(&self.dir)?;
        make_dir(&self.dir)?;
        let mut file = tempfile::Builder::new()
            .prefix(".")
            .suffix(&format!(".{}", self.kind.suffix))
            .tempfile_in(&self.dir)?;
        file.write_all(&bytes)?;
        file.persist(&self.path)?;
        shrink(&self.dir, self.kind)
    }
}

/// Removes the files of a kind that were not used for the longest time until they fit its limit.
fn shrink(dir: &Path, kind: &CacheKind) -> io::Result<()> {
    let now = SystemTime::now();
    let mut files = Vec::new();
    for entry in fs::read_dir(dir)? {
        let entry = entry?;
        let name = entry.file_name();
        let Some(name) = name.to_str().filter(|name| name.ends_with(kind.suffix)) else {
            continue;
        };
        let metadata = entry.metadata()?;
        let used = metadata.modified()?;
        let age = now.duration_since(used).unwrap_or_default();
        match name.starts_with('.') {
            true if age > ABANDONED => fs::remove_file(entry.path())?,
            true => {}
            false => files.push((used, metadata.len(), entry.path())),
        }
    }
    files.sort_unstable();
    let mut total: u64 = files.iter().map(|(_, size, _)| size).sum();
    for (_, size, path) in files {
        if total <= kind.max_total {
            break;
        }
        fs::remove_file(path)?;
        total = total.saturating_sub(size);
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::{PermissionsExt, chown, symlink};

    use proptest::prelude::*;

    use super::*;

    static KIND: CacheKind = CacheKind {
        suffix: "wcprof-test",
        version: 1,
        max_file: 1000,
        max_total: 200,
    };
    static NEXT: CacheKind = CacheKind { version: 2, ..KIND };

    fn cache_file(dir: &Path, kind: &'static CacheKind, identity: &str) -> CacheFile {
        CacheFile::new(kind, dir, "abcd", identity.to_owned())
    }

    fn slot(dir: &Path) -> CacheFile {
        cache_file(dir, &KIND, "this")
    }

    fn set_mode(path: &Path, mode: u32) {
        fs::set_permissions(path, fs::Permissions::from_mode(mode)).unwrap();
    }

    /// Check that what was written is read, by its owner alone, and only for the same thing and version.
    #[test]
    fn written_and_read() {
        let dir = tempfile::tempdir().unwrap();
        let dir = dir.path().join("made/here");
        let slot = slot(&dir);
        assert_eq!(slot.read(), None);
        slot.write(b"con\ntent").unwrap();
        assert_eq!(slot.read().unwrap(), b"con\ntent");
        let mode = fs::metadata(&slot.path).unwrap().permissions().mode();
        assert_eq!(mode & 0o777, 0o600);
        assert_eq!(cache_file(&dir, &KIND, "other").read(), None);
        assert_eq!(cache_file(&dir, &NEXT, "this").read(), None);
        slot.write(&[0; 2000]).unwrap();
        assert_eq!(slot.read().unwrap(), b"con\ntent");
        assert_eq!(fs::read_dir(&dir).unwrap().count(), 1);
    }

    /// Check that a file that another user owns or can write is not taken, nor a folder of others used.
    #[test]
    fn of_others() {
        let dir = tempfile::tempdir().unwrap();
        let slot = slot(dir.path());
        slot.write(b"x").unwrap();
        set_mode(&slot.path, 0o622);
        assert_eq!(slot.read(), None);
        set_mode(&slot.path, 0o600);
        assert!(slot.read().is_some());
        match nix::unistd::geteuid().is_root() {
            true => {
                chown(&slot.path, Some(65534), None).unwrap();
                assert_eq!(slot.read(), None);
            }
            false => eprintln!("SKIPPED of_others: only root can give files away"),
        }
        set_mode(dir.path(), 0o777);
        assert!(slot.write(b"y").is_err());
        set_mode(dir.path(), 0o700);
    }

    /// Check that neither a FIFO nor a link to a device in place of the file is opened.
    #[test]
    fn special_files() {
        let dir = tempfile::tempdir().unwrap();
        let slot = slot(dir.path());
        nix::unistd::mkfifo(&slot.path, nix::sys::stat::Mode::S_IRWXU).unwrap();
        assert_eq!(slot.read(), None);
        fs::remove_file(&slot.path).unwrap();
        symlink("/dev/zero", &slot.path).unwrap();
        assert_eq!(slot.read(), None);
        // It is replaced, not written through.
        slot.write(b"x").unwrap();
        assert_eq!(slot.read().unwrap(), b"x");
        let metadata = fs::symlink_metadata(&slot.path).unwrap();
        assert!(metadata.is_file());
    }

    /// Check that the files that were used last stay, and that other files are left alone.
    #[test]
    fn least_recently_used() {
        let dir = tempfile::tempdir().unwrap();
        let now = SystemTime::now();
        let name = |name: &str| format!("{name}.{}", KIND.suffix);
        for (stem, age) in [("a", 30), ("b", 10), ("c", 20)] {
            let path = dir.path().join(name(stem));
            fs::write(&path, [0; 100]).unwrap();
            let file = fs::File::open(&path).unwrap();
            file.set_modified(now - Duration::from_secs(age)).unwrap();
        }
        fs::write(dir.path().join("mine"), [0; 1000]).unwrap();
        let abandoned = dir.path().join(name(".1-0"));
        fs::write(&abandoned, []).unwrap();
        let file = fs::File::open(&abandoned).unwrap();
        file.set_modified(now - 2 * ABANDONED).unwrap();
        shrink(dir.path(), &KIND).unwrap();
        let mut left: Vec<String> = fs::read_dir(dir.path())
            .unwrap()
            .map(|e| e.unwrap().file_name().into_string().unwrap())
            .collect();
        left.sort_unstable();
        assert_eq!(left, [name("b"), name("c"), "mine".to_owned()]);
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(100))]

        /// Check that a file of which bytes changed or are missing is refused.
        #[test]
        fn damaged(at in any::<prop::sample::Index>(), mask in 1_u8.., cut: bool) {
            let dir = tempfile::tempdir().unwrap();
            let slot = slot(dir.path());
            slot.write(b"content").unwrap();
            let mut bytes = fs::read(&slot.path).unwrap();
            let i = at.index(bytes.len());
            match cut {
                true => bytes.truncate(i),
                false => bytes[i] ^= mask,
            }
            fs::write(&slot.path, bytes).unwrap();
            prop_assert_eq!(slot.read(), None);
        }
    }
}
