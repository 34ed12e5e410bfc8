//! Sorted addresses, and those of them that lie in ranges.

/// An address to look up, and its index in the caller's list.
pub(crate) type Wanted = (u64, usize);

/// Those of the sorted `wanted` from `begin` to `end` (exclusive).
pub(crate) fn between(wanted: &[Wanted], begin: u64, end: u64) -> &[Wanted] {
    let from = wanted.partition_point(|(address, _)| *address < begin);
    let to = wanted.partition_point(|(address, _)| *address < end);
    wanted.get(from..to).unwrap_or_default()
}

/// Those of the sorted `wanted` that lie in one of the ranges (end exclusive), in order.
pub(crate) fn among(wanted: &[Wanted], ranges: &[(u64, u64)]) -> Vec<Wanted> {
    let mut found: Vec<Wanted> = Vec::new();
    for (begin, end) in ranges {
        found.extend_from_slice(between(wanted, *begin, *end));
    }
    if ranges.len() > 1 {
        found.sort_unstable();
        found.dedup();
    }
    found
}
