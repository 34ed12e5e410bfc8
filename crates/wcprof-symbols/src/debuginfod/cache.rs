//! Build-id and kind of file to the place in the cache that debuginfod clients share, as elfutils lays
//! it out: `CACHE/HEX/debuginfo`, and an empty file for what no server has.
//!
//! Cleaning is left to elfutils: the times of use and the folder's settings are its own.

use std::fs::{self, File, FileTimes, OpenOptions, Permissions};
use std::io::{self, Read};
use std::os::unix::fs::{OpenOptionsExt, PermissionsExt};
use std::path::PathBuf;
use std::time::{Duration, SystemTime};

use tempfile::TempPath;

use super::options::CachePath;
use crate::files::open_regular;
use wcprof_host::own_files::{check_place, is_own, make_dir, unnamed_file};

/// How long a missing file is remembered, if the folder's `cache_miss_s` does not say.
const CACHE_MISS: Duration = Duration::from_secs(600);
/// Largest `cache_miss_s`, bytes.
const MAX_SETTING: u64 = 64;

/// A file's place in the cache.
#[derive(Debug)]
pub(super) struct Slot {
    cache: CachePath,
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

impl Slot {
    /// `build_id` is hexadecimal, `name` one of the protocol's.
    pub(super) fn new(cache: &CachePath, build_id: &str, name: &str) -> Self {
        let dir = cache.path.join(build_id);
        Self {
            cache: cache.clone(),
            path: dir.join(name),
            dir,
        }
    }

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
        (self.cache.is_named || is_own(&metadata)).then_some((file, metadata))
    }

    fn remembered(&self) -> Duration {
        let mut text = String::new();
        let read = open_regular(&self.cache.path.join("cache_miss_s"))
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
        if !self.cache.is_named {
            check_place(&self.dir)?;
        }
        make_dir(&self.dir)
    }

    /// A new file beside this one, which goes away unless it is kept.
    fn create_beside(&self) -> io::Result<(File, TempPath)> {
        self.make_dir()?;
        let name = self.path.file_name().unwrap_or_default().to_string_lossy();
        let file = tempfile::Builder::new()
            .prefix(&format!("{name}.wcprof-"))
            .tempfile_in(&self.dir)?;
        Ok(file.into_parts())
    }
}

/// A file that a download goes to: beside its place in the cache, or unnamed where there is no cache.
/// It goes away unless it is kept.
#[derive(Debug)]
pub(super) struct Place<'s> {
    file: File,
    named: Option<(&'s Slot, TempPath)>,
}

impl<'s> Place<'s> {
    pub(super) fn new(slot: Option<&'s Slot>) -> io::Result<Self> {
        let beside = slot.and_then(|slot| Some((slot, slot.create_beside().ok()?)));
        Ok(match beside {
            Some((slot, (file, path))) => Self {
                file,
                named: Some((slot, path)),
            },
            None => Self {
                file: unnamed_file(0)?,
                named: None,
            },
        })
    }

    pub(super) fn file(&mut self) -> &mut File {
        &mut self.file
    }

    /// Puts the file into its place in the cache, at once; returns where it then is. `None` if it has no
    /// place: it can be read for as long as it is open.
    pub(super) fn keep(mut self, modified: Option<SystemTime>) -> Option<PathBuf> {
        if let Some(modified) = modified {
            // Nothing depends on it.
            let _ = self.file.set_modified(modified);
        }
        let read_only = Permissions::from_mode(0o400);
        self.file.set_permissions(read_only).ok()?;
        let (slot, path) = self.named.take()?;
        path.persist(&slot.path).ok()?;
        Some(slot.path.clone())
    }
}

impl Drop for Place<'_> {
    fn drop(&mut self) {
        if let Some((slot, path)) = self.named.take() {
            drop(path);
            // Unless it is of use to others.
            let _ = fs::remove_dir(&slot.dir);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn slot(dir: &std::path::Path, is_named: bool) -> Slot {
        let path = dir.join("cache");
        Slot::new(&CachePath { path, is_named }, "abcd", "debuginfo")
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
        fs::write(slot.cache.path.join("cache_miss_s"), "50\n").unwrap();
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
        assert!(!private.cache.path.exists());
        let named = slot(dir.path(), true);
        let place = Place::new(Some(&named)).unwrap();
        assert!(place.keep(None).is_some());
        fs::set_permissions(&named.path, Permissions::from_mode(0o666)).unwrap();
        assert!(matches!(private.look_up(), Cached::Absent));
        assert!(matches!(named.look_up(), Cached::Missing));
    }
}
