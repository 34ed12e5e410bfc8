//! A cache on disk of what DWARF says about addresses.
//!
//! It has one file per debug file, named by build-id, and can be deleted at any time. A file is taken only if it is whole (its checksum), of this
//! format, made from just this debug file (size, time of change, inode), and if nobody else can
//! have written it; all that is in it is still checked, and its strings are escaped like those of
//! any other file.

mod format;

use std::fs;
use std::io::{self, Read, Write};
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime};

use dwarf_stream::elf::ElfFile;
use dwarf_stream::{Budget, DwarfError, DwarfFiles, DwarfFrame, DwarfFrames, look_up};
use wcprof_types::BuildId;

use crate::files::open_regular;
use crate::own_files::{check_place, is_own, make_dir};
use format::Entries;

/// Expanded DWARF that is looked up as fast as the cache is read, bytes.
const MIN_DWARF: u64 = 1 << 20;
/// Largest cache file, bytes.
const MAX_FILE: u64 = 64 << 20;
/// Most addresses kept of one debug file. Beyond it, only those of the last run are kept.
const MAX_ADDRESSES: usize = 200_000;
/// Bytes of all cache files; the ones that were not used for the longest time go first.
const MAX_TOTAL: u64 = 256 << 20;
/// Age of a temporary file that no running writer has.
const ABANDONED: Duration = Duration::from_secs(3600);
const SUFFIX: &str = "wcprof-names";

/// Looks up sorted addresses. `dir` is the cache's folder, `build_id` that of the file with the DWARF;
/// without either, nothing is cached.
pub(crate) fn look_up_cached(
    dir: Option<&Path>,
    build_id: Option<&BuildId>,
    files: DwarfFiles<'_>,
    addresses: &[u64],
    budget: &Budget,
) -> Result<DwarfFrames, DwarfError> {
    let slot = match (dir, build_id, files.expanded_size()) {
        (Some(dir), Some(id), Ok(size)) if size >= MIN_DWARF => Slot::new(dir, id, files),
        _ => None,
    };
    let Some(slot) = slot else {
        return look_up(files, addresses, budget);
    };
    let mut known = slot.read().unwrap_or_default();
    let n_read = known.len();
    let mut missing = addresses.to_vec();
    missing.retain(|address| !known.contains_key(address));
    let mut result = DwarfFrames::default();
    if !missing.is_empty() {
        result = look_up(files, &missing, budget)?;
        known.extend(missing.into_iter().zip(result.frames));
    }
    let frames = |address| known.get(address).cloned().unwrap_or_default();
    let frames: Vec<Vec<DwarfFrame>> = addresses.iter().map(frames).collect();
    if result.failed.is_none() && known.len() != n_read {
        if known.len() > MAX_ADDRESSES {
            known = addresses.iter().copied().zip(frames.clone()).collect();
        }
        // Without a cache all is as right, and slower.
        let _ = slot.write(&known);
    }
    Ok(DwarfFrames { frames, ..result })
}

/// The place of one debug file in the cache.
#[derive(Debug)]
struct Slot {
    dir: PathBuf,
    path: PathBuf,
    /// What the cache file must say it was made from.
    identity: String,
}

impl Slot {
    fn new(dir: &Path, build_id: &BuildId, files: DwarfFiles<'_>) -> Option<Self> {
        let main = stamp(files.main)?;
        let supplementary = match files.supplementary {
            Some(elf) => stamp(elf)?,
            None => String::new(),
        };
        Some(Self {
            dir: dir.to_owned(),
            path: dir.join(format!("{build_id}.{SUFFIX}")),
            identity: format!(
                "wcprof {} {build_id} {main} {supplementary}",
                env!("CARGO_PKG_VERSION")
            ),
        })
    }

    /// Reads the entries; `None` when there are none that can be trusted.
    fn read(&self) -> Option<Entries> {
        let file = open_regular(&self.path).ok()?;
        let metadata = file.metadata().ok()?;
        if !is_own(&metadata) || metadata.len() > MAX_FILE {
            return None;
        }
        let mut bytes = Vec::new();
        (&file).take(MAX_FILE).read_to_end(&mut bytes).ok()?;
        let entries = format::decode(&bytes, &self.identity)?;
        // It was used now.
        let _ = file.set_modified(SystemTime::now());
        Some(entries)
    }

    /// Writes the entries to a file beside the old one, and then puts it in its place.
    fn write(&self, entries: &Entries) -> io::Result<()> {
        let bytes = format::encode(entries, &self.identity)?;
        if bytes.len() as u64 > MAX_FILE {
            return Ok(());
        }
        check_place(&self.dir)?;
        make_dir(&self.dir)?;
        let suffix = format!(".{SUFFIX}");
        let mut file = tempfile::Builder::new()
            .prefix(".")
            .suffix(&suffix)
            .tempfile_in(&self.dir)?;
        file.write_all(&bytes)?;
        file.persist(&self.path)?;
        shrink(&self.dir, MAX_TOTAL)
    }
}

/// Size, times of change and inode of a file: after a change it has another stamp. `None` for memory.
fn stamp(elf: &ElfFile) -> Option<String> {
    let metadata = elf.file()?.metadata().ok()?;
    Some(format!(
        "{}:{}.{:09}:{}.{:09}:{}:{}",
        metadata.size(),
        metadata.mtime(),
        metadata.mtime_nsec(),
        metadata.ctime(),
        metadata.ctime_nsec(),
        metadata.dev(),
        metadata.ino()
    ))
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

#[cfg(test)]
mod tests;
