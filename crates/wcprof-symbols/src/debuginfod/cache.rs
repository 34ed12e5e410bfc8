//! Build-id and kind of file to the place in the cache of debuginfod clients, as elfutils lays it
//! out: `CACHE/HEX/debuginfo`, and an empty file for what no server has.
//!
//! Cleaning is left to elfutils: the times of use and the folder's settings are its own.

use std::fs::{self, DirBuilder, File, FileTimes, OpenOptions, Permissions};
use std::io;
use std::os::unix::fs::{DirBuilderExt, MetadataExt, OpenOptionsExt, PermissionsExt};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::{Duration, SystemTime};

use super::options::CachePath;
use crate::files::{nameless_file, open_regular};

/// How long a missing file is remembered, if the folder's `cache_miss_s` does not say.
const CACHE_MISS: Duration = Duration::from_secs(600);
/// Bytes of `cache_miss_s` that are looked at.
const MAX_SETTING: u64 = 64;

/// The folder that all clients share.
#[derive(Debug)]
pub(super) struct Cache(CachePath);

/// A file's place in the cache.
#[derive(Debug)]
pub(super) struct Slot {
    root: PathBuf,
    is_named: bool,
    dir: PathBuf,
    path: PathBuf,
}

/// What the cache says of a file.
#[derive(Debug)]
pub(super) enum Cached {
    File(File, PathBuf),
    /// No server had it a short time ago.
    Missing,
    Absent,
}

impl Cache {
    pub(super) fn new(path: CachePath) -> Self {
        Self(path)
    }

    /// `build_id` is hexadecimal, `name` one of the protocol's.
    pub(super) fn slot(&self, build_id: &str, name: &str) -> Slot {
        let dir = self.0.path.join(build_id);
        Slot {
            root: self.0.path.clone(),
            is_named: self.0.is_named,
            path: dir.join(name),
            dir,
        }
    }
}

impl Slot {
    pub(super) fn look_up(&self) -> Cached {
        let Some((file, metadata)) = self.open() else {
            return Cached::Absent;
        };
        if metadata.len() > 0 {
            // Its cleaner removes what was not accessed for long. It may be on a read-only system.
            let _ = file.set_times(FileTimes::new().set_accessed(SystemTime::now()));
            return Cached::File(file, self.path.clone());
        }
        let age = metadata.modified().ok().and_then(|m| m.elapsed().ok());
        match age.is_some_and(|age| age <= self.remembered()) {
            true => Cached::Missing,
            false => {
                // Or else no other client would ask again, either.
                let _ = fs::remove_file(&self.path);
                Cached::Absent
            }
        }
    }

    fn open(&self) -> Option<(File, fs::Metadata)> {
        let file = open_regular(&self.path).ok()?;
        let metadata = file.metadata().ok()?;
        let is_own = metadata.uid() == own_uid() && metadata.mode() & 0o022 == 0;
        (self.is_named || is_own).then_some((file, metadata))
    }

    fn remembered(&self) -> Duration {
        use std::io::Read;
        let mut text = String::new();
        let read = open_regular(&self.root.join("cache_miss_s"))
            .ok()
            .and_then(|file| file.take(MAX_SETTING).read_to_string(&mut text).ok());
        let seconds = read.and_then(|_| text.trim().parse().ok());
        seconds.map_or(CACHE_MISS, Duration::from_secs)
    }

    /// Notes that no server has it.
    pub(super) fn remember_missing(&self) {
        // Without the note it is asked for again.
        let _ = self.make_dir().and_then(|()| {
            OpenOptions::new()
                .write(true)
                .create_new(true)
                .mode(0o600)
                .open(&self.path)
        });
    }

    fn make_dir(&self) -> io::Result<()> {
        if !self.is_named {
            check_owner(&self.dir)?;
        }
        DirBuilder::new()
            .recursive(true)
            .mode(0o700)
            .create(&self.dir)
    }
}

/// Refuses to write below a folder of somebody else.
fn check_owner(dir: &Path) -> io::Result<()> {
    let refused = || io::Error::from(io::ErrorKind::PermissionDenied);
    let existing = dir.ancestors().find(|d| d.exists()).ok_or_else(refused)?;
    let metadata = fs::metadata(existing)?;
    match metadata.uid() == own_uid() && metadata.mode() & 0o022 == 0 {
        true => Ok(()),
        false => Err(refused()),
    }
}

fn own_uid() -> u32 {
    nix::unistd::geteuid().as_raw()
}

/// A file that a download goes to: beside its place in the cache, or without a name where there is
/// no cache. It goes away unless it is kept.
#[derive(Debug)]
pub(super) struct Place<'s> {
    file: File,
    named: Option<(&'s Slot, PathBuf)>,
}

impl<'s> Place<'s> {
    pub(super) fn new(slot: Option<&'s Slot>) -> io::Result<Self> {
        if let Some(slot) = slot
            && let Ok((file, path)) = create_beside(slot)
        {
            return Ok(Self {
                file,
                named: Some((slot, path)),
            });
        }
        Ok(Self {
            file: nameless_file()?,
            named: None,
        })
    }

    pub(super) fn file(&mut self) -> &mut File {
        &mut self.file
    }

    /// Puts the file into its place in the cache, at once; where it then is. `None` if it has no
    /// place: it can be read for as long as it is open.
    pub(super) fn keep(mut self, modified: Option<SystemTime>) -> Option<PathBuf> {
        let (slot, path) = self.named.as_ref()?;
        if let Some(modified) = modified {
            // For show only.
            let _ = self.file.set_modified(modified);
        }
        let kept = self
            .file
            .set_permissions(Permissions::from_mode(0o400))
            .and_then(|()| fs::rename(path, &slot.path));
        let place = slot.path.clone();
        if kept.is_ok() {
            self.named = None;
        }
        kept.is_ok().then_some(place)
    }
}

impl Drop for Place<'_> {
    fn drop(&mut self) {
        if let Some((slot, path)) = &self.named {
            // What cannot be removed is left to the cleaner.
            let _ = fs::remove_file(path);
            // Unless it is of use to others.
            let _ = fs::remove_dir(&slot.dir);
        }
    }
}

fn create_beside(slot: &Slot) -> io::Result<(File, PathBuf)> {
    static COUNT: AtomicU32 = AtomicU32::new(0);
    slot.make_dir()?;
    let n = COUNT.fetch_add(1, Ordering::Relaxed);
    let name = slot.path.file_name().and_then(|n| n.to_str()).unwrap_or("");
    let path = slot
        .dir
        .join(format!("{name}.wcprof-{}-{n}", std::process::id()));
    let file = OpenOptions::new()
        .read(true)
        .write(true)
        .create_new(true)
        .mode(0o600)
        .open(&path)?;
    Ok((file, path))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn slot(dir: &Path, is_named: bool) -> Slot {
        let path = dir.join("cache");
        Cache::new(CachePath { path, is_named }).slot("abcd", "debuginfo")
    }

    /// Check that a kept file is found again, and one that is not kept leaves nothing.
    #[test]
    fn keeps() {
        use std::io::Write;
        let dir = tempfile::tempdir().unwrap();
        let slot = slot(dir.path(), false);
        assert!(matches!(slot.look_up(), Cached::Absent));
        let mut place = Place::new(Some(&slot)).unwrap();
        place.file().write_all(b"x").unwrap();
        drop(place);
        assert!(!slot.dir.exists());
        let mut place = Place::new(Some(&slot)).unwrap();
        place.file().write_all(b"x").unwrap();
        let kept = place.keep(Some(SystemTime::UNIX_EPOCH)).unwrap();
        assert_eq!(kept, dir.path().join("cache/abcd/debuginfo"));
        assert!(matches!(slot.look_up(), Cached::File(_, path) if path == kept));
        assert_eq!(fs::read_dir(&slot.dir).unwrap().count(), 1);
    }

    /// Check that a missing file is remembered for as long as the folder says.
    #[test]
    fn remembers_missing() {
        let dir = tempfile::tempdir().unwrap();
        let slot = slot(dir.path(), false);
        slot.remember_missing();
        assert!(matches!(slot.look_up(), Cached::Missing));
        let file = File::options().write(true).open(&slot.path).unwrap();
        let old = SystemTime::now() - Duration::from_secs(100);
        file.set_modified(old).unwrap();
        assert!(matches!(slot.look_up(), Cached::Missing));
        fs::write(slot.root.join("cache_miss_s"), "50\n").unwrap();
        assert!(matches!(slot.look_up(), Cached::Absent));
        assert!(!slot.path.exists());
    }

    /// Check that a folder that others can write is neither read nor written, unless it was named.
    #[test]
    fn of_others() {
        let dir = tempfile::tempdir().unwrap();
        fs::set_permissions(dir.path(), Permissions::from_mode(0o777)).unwrap();
        let private = slot(dir.path(), false);
        let place = Place::new(Some(&private)).unwrap();
        assert_eq!(place.keep(None), None);
        assert!(!private.root.exists());
        let named = slot(dir.path(), true);
        let place = Place::new(Some(&named)).unwrap();
        assert!(place.keep(None).is_some());
        fs::set_permissions(&named.path, Permissions::from_mode(0o666)).unwrap();
        assert!(matches!(private.look_up(), Cached::Absent));
        assert!(matches!(named.look_up(), Cached::Missing));
    }
}
