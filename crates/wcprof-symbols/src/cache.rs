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

/// What is known of a debug file before it is read.
pub(crate) struct Cache<'s> {
    pub(crate) surroundings: &'s dyn Surroundings,
    /// Of the file with the DWARF; without it, nothing is cached.
    pub(crate) build_id: Option<BuildId>,
    /// A large file is not read if the cache has at least half of the addresses.
    pub(crate) is_quick: bool,
}

impl Cache<'_> {
    /// Looks up sorted addresses; gives also for how many of them the file was not read.
    pub(crate) fn look_up(
        &self,
        files: DwarfFiles<'_>,
        addresses: &[u64],
        budget: &Budget,
    ) -> Result<(DwarfFrames, usize), DwarfError> {
        let size = files.expanded_size();
        let is_large = size.is_ok_and(|size| size >= MIN_DWARF);
        let key = self.build_id.as_ref().filter(|_| is_large);
        let Some(key) = key.and_then(|id| CacheKey::new(id, files)) else {
            return Ok((look_up(files, addresses, budget)?, 0));
        };
        let mut known = self
            .surroundings
            .read_cache(&key)
            .and_then(|bytes| format::decode(&bytes))
            .unwrap_or_default();
        let n_read = known.len();
        let mut missing = addresses.to_vec();
        missing.retain(|address| !known.contains_key(address));
        let mut result = DwarfFrames::default();
        let n_pending = match self.is_quick && missing.len() * 2 <= addresses.len() {
            true => missing.len(),
            false => 0,
        };
        if !missing.is_empty() && n_pending == 0 {
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
                self.surroundings.write_cache(&key, &content);
            }
        }
        Ok((DwarfFrames { frames, ..result }, n_pending))
    }
}

#[cfg(test)]
mod tests;
