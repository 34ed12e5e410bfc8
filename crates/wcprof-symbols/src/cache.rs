//! What DWARF said about addresses before, kept on disk from one run to the next.
//!
//! One file a debug file, named by build-id. It holds nothing that could not be found again, so
//! that it can be deleted at any time. A file is taken only if it is whole (its checksum), of this
//! format, made from just this debug file (size, time of change, inode), and if nobody else can
//! have written it; all that is in it is still checked, and its strings are escaped like those of
//! any other file.

mod format;

use std::fs::{self, DirBuilder, OpenOptions};
use std::io::{self, Read, Write};
use std::os::unix::fs::{DirBuilderExt, MetadataExt, OpenOptionsExt, PermissionsExt};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::{Duration, SystemTime};

use wcprof_types::{BuildId, Svma};

use crate::budget::Budget;
use crate::dwarf::{self, DwarfError, DwarfFiles, DwarfFrame, DwarfFrames};
use crate::files::open_regular;
use format::Entries;

/// Expanded DWARF that is looked up as fast as the cache is read, bytes.
const MIN_DWARF: u64 = 1 << 20;
/// Largest cache file, bytes.
const MAX_FILE: u64 = 64 << 20;
/// Addresses kept of one debug file. Beyond it those of the last run alone are kept.
const MAX_ADDRESSES: usize = 200_000;
/// Bytes of all cache files; the ones that were not used for the longest time go first.
const MAX_TOTAL: u64 = 256 << 20;
/// What a writer left behind that did not end.
const ABANDONED: Duration = Duration::from_secs(3600);
const SUFFIX: &str = "wcprof-names";

/// Looks up sorted `addresses`, those that are known from before in the folder `dir`.
pub(crate) fn lookup(
    dir: Option<&Path>,
    build_id: Option<&BuildId>,
    files: DwarfFiles<'_>,
    addresses: &[Svma],
    budget: &Budget,
) -> Result<DwarfFrames, DwarfError> {
    let slot = match (dir, build_id, dwarf::expanded_size(files)) {
        (Some(dir), Some(id), Ok(size)) if size >= MIN_DWARF => Slot::of(dir, id, files),
        _ => None,
    };
    let Some(slot) = slot else {
        return dwarf::lookup(files, addresses, budget);
    };
    let mut known = slot.read().unwrap_or_default();
    let missing: Vec<Svma> = addresses
        .iter()
        .copied()
        .filter(|address| !known.contains_key(address))
        .collect();
    let (mut failed, mut split) = (None, Vec::new());
    if !missing.is_empty() {
        let found = dwarf::lookup(files, &missing, budget)?;
        (failed, split) = (found.failed, found.split);
        known.extend(missing.into_iter().zip(found.frames));
    }
    let frames: Vec<Vec<DwarfFrame>> = addresses
        .iter()
        .map(|address| known.get(address).cloned().unwrap_or_default())
        .collect();
    if failed.is_none() && slot.is_new(&known) {
        if known.len() > MAX_ADDRESSES {
            known = addresses.iter().copied().zip(frames.clone()).collect();
        }
        // Without a cache all is as right, and slower.
        let _ = slot.write(&known);
    }
    Ok(DwarfFrames {
        frames,
        failed,
        split,
    })
}

/// The place of one debug file in the cache.
#[derive(Debug)]
struct Slot {
    dir: PathBuf,
    path: PathBuf,
    /// What the cache file must say it was made from.
    identity: String,
    n_read: AtomicU32,
}

impl Slot {
    fn of(dir: &Path, build_id: &BuildId, files: DwarfFiles<'_>) -> Option<Self> {
        let main = files.main.stamp()?;
        let supplementary = match files.supplementary {
            Some(elf) => elf.stamp()?,
            None => String::new(),
        };
        Some(Self {
            dir: dir.to_owned(),
            path: dir.join(format!("{build_id}.{SUFFIX}")),
            identity: format!(
                "wcprof {} {build_id} {main} {supplementary}",
                env!("CARGO_PKG_VERSION")
            ),
            n_read: AtomicU32::new(0),
        })
    }

    /// Reads the entries; `None` when there are none that can be trusted.
    fn read(&self) -> Option<Entries> {
        let file = open_regular(&self.path).ok()?;
        let metadata = file.metadata().ok()?;
        let others_write = metadata.permissions().mode() & 0o022 != 0;
        if metadata.uid() != own_uid() || others_write || metadata.len() > MAX_FILE {
            return None;
        }
        let mut bytes = Vec::new();
        (&file).take(MAX_FILE).read_to_end(&mut bytes).ok()?;
        let entries = format::decode(&bytes, &self.identity)?;
        let n = u32::try_from(entries.len()).unwrap_or(u32::MAX);
        self.n_read.store(n, Ordering::Relaxed);
        // It was used now.
        let _ = file.set_modified(SystemTime::now());
        Some(entries)
    }

    fn is_new(&self, entries: &Entries) -> bool {
        usize::try_from(self.n_read.load(Ordering::Relaxed)) != Ok(entries.len())
    }

    /// Writes the entries to a file beside the old one, and then puts it in its place.
    fn write(&self, entries: &Entries) -> io::Result<()> {
        static COUNT: AtomicU32 = AtomicU32::new(0);
        let bytes = format::encode(entries, &self.identity);
        if bytes.len() as u64 > MAX_FILE {
            return Ok(());
        }
        make_dir(&self.dir)?;
        let n = COUNT.fetch_add(1, Ordering::Relaxed);
        let temporary = self
            .dir
            .join(format!(".{}-{n}.{SUFFIX}", std::process::id()));
        let mut file = OpenOptions::new()
            .write(true)
            .create_new(true)
            .mode(0o600)
            .open(&temporary)?;
        let written = file
            .write_all(&bytes)
            .and_then(|()| fs::rename(&temporary, &self.path));
        if written.is_err() {
            let _ = fs::remove_file(&temporary);
        }
        written?;
        shrink(&self.dir, MAX_TOTAL)
    }
}

fn own_uid() -> u32 {
    nix::unistd::geteuid().as_raw()
}

/// Makes the folder, in a place that is the user's own: `sudo` may leave another user's home.
fn make_dir(dir: &Path) -> io::Result<()> {
    let refused = || io::Error::from(io::ErrorKind::PermissionDenied);
    let existing = dir.ancestors().find(|d| d.exists()).ok_or_else(refused)?;
    let metadata = fs::metadata(existing)?;
    if metadata.uid() != own_uid() || metadata.permissions().mode() & 0o022 != 0 {
        return Err(refused());
    }
    DirBuilder::new().recursive(true).mode(0o700).create(dir)
}

/// Removes the files that were not used for the longest time until `limit` bytes are left.
fn shrink(dir: &Path, limit: u64) -> io::Result<()> {
    let now = SystemTime::now();
    let mut files = Vec::new();
    for entry in fs::read_dir(dir)? {
        let entry = entry?;
        let name = entry.file_name();
        let Some(name) = name.to_str().filter(|name| name.ends_with(SUFFIX)) else {
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
        if total <= limit {
            break;
        }
        fs::remove_file(path)?;
        total = total.saturating_sub(size);
    }
    Ok(())
}

/// A cache file behind magic, version and identity, and without its checksum, for the fuzz target:
/// what is read from it is written and read again as it was.
pub(crate) fn fuzz_decode(bytes: &[u8]) {
    let identity = "fuzz";
    let empty = format::encode(&Entries::new(), identity);
    // Two counts and the checksum.
    let mut file = empty.get(..empty.len() - 12).unwrap_or_default().to_vec();
    file.extend(bytes);
    let checksum = crc32fast::hash(&file);
    file.extend(checksum.to_le_bytes());
    if let Some(entries) = format::decode(&file, identity) {
        let again = format::decode(&format::encode(&entries, identity), identity);
        assert!(again.is_some_and(|again| again == entries));
    }
}

#[cfg(test)]
mod tests;
