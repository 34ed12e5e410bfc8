//! A cache on disk of what DWARF says about addresses.
//!
//! It has one file per debug file, named by build-id. A file is taken only if it was made from just this
//! debug file (size, time of change, inode); all that is in it is still checked, and its strings are
//! escaped like those of any other file.

mod format;

use dwarf_stream::{Budget, DwarfError, DwarfFiles, DwarfFrame, DwarfFrames, look_up};
use wcprof_types::BuildId;

use crate::cache_key::CacheKey;
use crate::surroundings::Surroundings;

/// Expanded DWARF that is looked up as fast as the cache is read, bytes.
const MIN_DWARF: u64 = 1 << 20;
/// Most addresses kept of one debug file. Beyond it, only those of the last run are kept.
const MAX_ADDRESSES: usize = 200_000;

/// Whether these are bytes that the cache may hold.
pub(crate) fn is_sound(content: &[u8]) -> bool {
    format::decode(content).is_some()
}

/// Looks up sorted addresses. `build_id` is that of the file with the DWARF; without it, nothing is cached.
pub(crate) fn look_up_cached(
    cache: &dyn Surroundings,
    build_id: Option<&BuildId>,
    files: DwarfFiles<'_>,
    addresses: &[u64],
    budget: &Budget,
) -> Result<DwarfFrames, DwarfError> {
    let key = match (build_id, files.expanded_size()) {
        (Some(id), Ok(size)) if size >= MIN_DWARF => CacheKey::new(id, files),
        _ => None,
    };
    let Some(key) = key else {
        return look_up(files, addresses, budget);
    };
    let mut known = cache
        .read_cache(&key)
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
        if let Ok(content) = format::encode(&known) {
            cache.write_cache(&key, &content);
        }
    }
    Ok(DwarfFrames { frames, ..result })
}

#[cfg(test)]
mod tests;
