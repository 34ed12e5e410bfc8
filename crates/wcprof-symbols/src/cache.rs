//! A cache on disk of what DWARF says about addresses.
//!
//! It has one file per debug file, named by build-id. A file is taken only if it was made from just this
//! debug file (size, time of change, inode); all that is in it is still checked, and its strings are
//! escaped like those of any other file.

mod format;

use std::os::unix::fs::MetadataExt;
use std::path::Path;

use dwarf_stream::elf::ElfFile;
use dwarf_stream::{Budget, DwarfError, DwarfFiles, DwarfFrame, DwarfFrames, look_up};
use wcprof_host::cache::{CacheFile, CacheKind};
use wcprof_types::BuildId;

/// Expanded DWARF that is looked up as fast as the cache is read, bytes.
const MIN_DWARF: u64 = 1 << 20;
/// The files of this cache.
const NAMES: CacheKind = CacheKind {
    suffix: "wcprof-names",
    version: 3,
    max_file: 64 << 20,
    max_total: 256 << 20,
};
/// Most addresses kept of one debug file. Beyond it, only those of the last run are kept.
const MAX_ADDRESSES: usize = 200_000;

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
        (Some(dir), Some(id), Ok(size)) if size >= MIN_DWARF => slot(dir, id, files),
        _ => None,
    };
    let Some(slot) = slot else {
        return look_up(files, addresses, budget);
    };
    let mut known = slot
        .read()
        .and_then(|bytes| format::decode(&bytes))
        .unwrap_or_default();
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
        let _ = format::encode(&known).and_then(|bytes| slot.write(&bytes));
    }
    Ok(DwarfFrames { frames, ..result })
}

/// The place of one debug file in the cache.
fn slot(dir: &Path, build_id: &BuildId, files: DwarfFiles<'_>) -> Option<CacheFile> {
    let main = stamp(files.main)?;
    let supplementary = match files.supplementary {
        Some(elf) => stamp(elf)?,
        None => String::new(),
    };
    let identity = format!(
        "wcprof {} {build_id} {main} {supplementary}",
        env!("CARGO_PKG_VERSION")
    );
    Some(CacheFile::new(&NAMES, dir, &build_id.to_string(), identity))
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

#[cfg(test)]
mod tests;
