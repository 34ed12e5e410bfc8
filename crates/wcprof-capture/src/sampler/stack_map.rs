//! Where stacks end: the mapping that a stack pointer points into.

use std::ops::Range;

use wcprof_types::Avma;

use wcprof_host::Target;

/// The mappings are read again at most this often for stack pointers that none of them holds.
const REFRESH_NS: u64 = 20_000_000;
/// And this often in any case: a mapping may have grown, shrunk or been replaced.
const TRUST_NS: u64 = 2_000_000_000;

/// Readable mappings of the target, by address.
#[derive(Debug, Default)]
pub(crate) struct StackMap {
    ranges: Vec<Range<Avma>>,
    read_at: Option<u64>,
}

impl StackMap {
    /// First address after the mapping that holds `sp`; reads the mappings again where needed.
    pub(crate) fn limit(&mut self, target: &Target, sp: Avma, now: u64) -> Option<Avma> {
        self.range(target, sp, now).map(|range| range.end)
    }

    /// The mapping that holds `sp`; reads the mappings again where needed.
    pub(crate) fn range(&mut self, target: &Target, sp: Avma, now: u64) -> Option<Range<Avma>> {
        let age = self.read_at.map_or(u64::MAX, |t| now.saturating_sub(t));
        let known = self.find(sp).filter(|_| age < TRUST_NS);
        if known.is_some() || age < REFRESH_NS {
            return known;
        }
        self.read_at = Some(now);
        if let Ok(mappings) = target.mappings() {
            let readable = mappings.iter().filter(|m| m.readable);
            self.ranges = readable.map(|m| m.start..m.end).collect();
        }
        self.find(sp)
    }

    fn find(&self, sp: Avma) -> Option<Range<Avma>> {
        let after = self.ranges.partition_point(|range| range.start <= sp);
        let range = self.ranges.get(after.checked_sub(1)?)?;
        range.contains(&sp).then(|| range.clone())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Check addresses in, between, before and after mappings.
    #[test]
    fn find() {
        let map = StackMap {
            ranges: vec![Avma(0x1000)..Avma(0x2000), Avma(0x3000)..Avma(0x4000)],
            read_at: None,
        };
        assert_eq!(map.find(Avma(0x1000)), Some(Avma(0x1000)..Avma(0x2000)));
        assert_eq!(map.find(Avma(0x3fff)), Some(Avma(0x3000)..Avma(0x4000)));
        for outside in [0, 0xfff, 0x2000, 0x4000, u64::MAX] {
            assert_eq!(map.find(Avma(outside)), None);
        }
    }
}
