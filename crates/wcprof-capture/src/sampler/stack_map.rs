//! Where stacks end: the mapping that a stack pointer points into.

use std::ops::Range;
use std::sync::Arc;

use wcprof_types::{Avma, Mapping};

use wcprof_host::Target;

use super::pulse::Pulse;

/// The mappings are read again at most this often for stack pointers that none of them holds.
const REFRESH_NS: u64 = 20_000_000;
/// And this often in any case: a mapping may have grown, shrunk or been replaced.
const TRUST_NS: u64 = 2_000_000_000;

/// A mapping that a stack pointer points into.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct StackRange {
    pub(crate) range: Range<Avma>,
    /// No file backs it. Only such memory is copied by the engine, which holds the lock of the target's mappings
    /// until the page is there.
    pub(crate) is_anonymous: bool,
}

/// Readable mappings of the target, by address.
#[derive(Debug)]
pub(crate) struct StackMap {
    pulse: Arc<Pulse>,
    ranges: Vec<StackRange>,
    read_at: Option<u64>,
}

impl StackMap {
    pub(crate) fn new(pulse: Arc<Pulse>) -> Self {
        Self {
            pulse,
            ranges: Vec::new(),
            read_at: None,
        }
    }

    /// First address after the mapping that holds `sp`; reads the mappings again where needed.
    pub(crate) fn limit(&mut self, target: &Target, sp: Avma, now: u64) -> Option<Avma> {
        self.range(target, sp, now).map(|found| found.range.end)
    }

    /// The mapping that holds `sp`; reads the mappings again where needed.
    pub(crate) fn range(&mut self, target: &Target, sp: Avma, now: u64) -> Option<StackRange> {
        let age = self.read_at.map_or(u64::MAX, |t| now.saturating_sub(t));
        let known = self.find(sp).filter(|_| age < TRUST_NS);
        if known.is_some() || age < REFRESH_NS {
            return known;
        }
        self.read_at = Some(now);
        if let Ok(mappings) = self.pulse.mappings(target) {
            let readable = mappings.iter().filter(|m| m.readable);
            let range = |m: &Mapping| StackRange {
                range: m.start..m.end,
                is_anonymous: m.is_anonymous(),
            };
            self.ranges = readable.map(range).collect();
        }
        self.find(sp)
    }

    fn find(&self, sp: Avma) -> Option<StackRange> {
        let after = self.ranges.partition_point(|r| r.range.start <= sp);
        let found = self.ranges.get(after.checked_sub(1)?)?;
        found.range.contains(&sp).then(|| found.clone())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn stack_range(range: Range<u64>) -> StackRange {
        StackRange {
            range: Avma(range.start)..Avma(range.end),
            is_anonymous: true,
        }
    }

    /// Check addresses in, between, before and after mappings.
    #[test]
    fn find() {
        let map = StackMap {
            ranges: [0x1000..0x2000, 0x3000..0x4000].map(stack_range).into(),
            ..StackMap::new(Arc::default())
        };
        assert_eq!(map.find(Avma(0x1000)), Some(stack_range(0x1000..0x2000)));
        assert_eq!(map.find(Avma(0x3fff)), Some(stack_range(0x3000..0x4000)));
        for outside in [0, 0xfff, 0x2000, 0x4000, u64::MAX] {
            assert_eq!(map.find(Avma(outside)), None);
        }
    }
}
