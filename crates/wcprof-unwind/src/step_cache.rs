//! Addresses of frames to what is to be done there: a table as large as the stacks of its process need it. Of a thousand
//! idle processes each has a few frames.

/// Slots at first and at most, 32 bytes each; powers of two.
const FIRST_SLOTS: usize = 64;
const MAX_SLOTS: usize = 8192;

#[derive(Copy, Clone)]
struct CachedStep<T> {
    address: u64,
    is_return: bool,
    step: T,
}

/// The cache. An entry may take the place of another one.
pub(crate) struct StepCache<T> {
    slots: Vec<Option<CachedStep<T>>>,
    /// Entries that were added since it has this size.
    n_added: usize,
}

impl<T> Default for StepCache<T> {
    fn default() -> Self {
        Self {
            slots: Vec::new(),
            n_added: 0,
        }
    }
}

impl<T: Copy> StepCache<T> {
    fn at(&self, lookup: u64) -> usize {
        let hash = lookup.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 51;
        hash as usize & self.slots.len().wrapping_sub(1)
    }

    /// What was added for a frame at a lookup address.
    #[inline]
    pub(crate) fn get(&self, lookup: u64, is_return: bool) -> Option<T> {
        let slot = self.slots.get(self.at(lookup))?.as_ref()?;
        let is_it = slot.address == lookup && slot.is_return == is_return;
        is_it.then_some(slot.step)
    }

    pub(crate) fn add(&mut self, lookup: u64, is_return: bool, step: T) {
        if self.n_added >= self.slots.len() / 2 && self.slots.len() < MAX_SLOTS {
            self.grow();
        }
        self.n_added += 1;
        let at = self.at(lookup);
        self.slots[at] = Some(CachedStep {
            address: lookup,
            is_return,
            step,
        });
    }

    fn grow(&mut self) {
        let n_slots = (self.slots.len() * 4).clamp(FIRST_SLOTS, MAX_SLOTS);
        let before = std::mem::replace(&mut self.slots, vec![None; n_slots]);
        self.n_added = 0;
        for slot in before.into_iter().flatten() {
            let at = self.at(slot.address);
            self.slots[at] = Some(slot);
            self.n_added += 1;
        }
    }

    pub(crate) fn clear(&mut self) {
        // Thousands of modules may come one after another.
        if std::mem::take(&mut self.n_added) > 0 {
            self.slots.fill(None);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Check that a process with few frames takes few bytes, one with many has all of them, and none is there after a change.
    #[test]
    fn grows() {
        let mut cache = StepCache::default();
        let step = 7;
        let is_there = |cache: &StepCache<u8>, address| cache.get(address, true).is_some();
        let frames = |n: u64| (1..=n).map(|frame| frame * 0x1357);
        assert!(!is_there(&cache, 1));
        for address in frames(30) {
            cache.add(address, true, step);
        }
        assert_eq!(cache.slots.len(), FIRST_SLOTS);
        for address in frames(2000) {
            if !is_there(&cache, address) {
                cache.add(address, true, step);
            }
        }
        let n_there = frames(2000).filter(|&address| is_there(&cache, address));
        assert!(n_there.count() > 1000 && cache.slots.len() >= 4096);
        assert!(cache.get(0x1357, false).is_none());
        cache.clear();
        assert!(!frames(2000).any(|address| is_there(&cache, address)));
    }
}
