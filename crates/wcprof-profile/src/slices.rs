//! Weights over time: each row's weight by slice of the recording, for what is said of its
//! precision.
//!
//! A recording is cut into at most [`MAX_SLICES`] slices of equal length. The length is not known
//! while spans come in: it starts short and doubles whenever the recording passes the last slice.

use wcprof_types::TimeNs;

use crate::window::share;

/// Most slices of a recording.
pub const MAX_SLICES: usize = 64;
/// The first length of a slice is two to this power, ns: about 1 ms, less than a tick.
const FIRST_SHIFT: u32 = 20;

/// The part of a recording that a profile is about, and how it is cut into slices.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct TimeAxis {
    /// Its begin, since the recording began.
    pub start: TimeNs,
    /// Its end, since the recording began.
    pub end: TimeNs,
    /// Length of a slice, ns; the last one may be cut short by the end. 0 when there is none.
    pub slice_ns: u64,
    /// The profile is about a part of the recording only.
    pub is_window: bool,
    /// Length of the whole recording, ns; of a merged trace, of all its recordings together.
    pub recorded_ns: u64,
    /// Parts of it in which nothing was recorded, as begin and end since the axis begins, ns; in order. Only
    /// merged traces have such.
    pub gaps: Vec<(u64, u64)>,
    /// Length of all such parts of the whole recording, also of those outside the axis, ns.
    pub all_gaps_ns: u64,
}

impl TimeAxis {
    /// Length with its gaps, ns.
    pub fn duration_ns(&self) -> u64 {
        self.end.0.saturating_sub(self.start.0)
    }

    /// How much of it was recorded, ns.
    pub fn covered_ns(&self) -> u64 {
        self.covered_until(self.duration_ns())
    }

    /// How much was recorded from its begin until a time (since it begins), ns.
    pub fn covered_until(&self, time: u64) -> u64 {
        time - overlap(&self.gaps, 0, time)
    }

    /// Begin and end of the part, ns since the recording began; `None` for all of the recording.
    pub fn window_ns(&self) -> Option<(u64, u64)> {
        self.is_window.then_some((self.start.0, self.end.0))
    }

    /// Slices, at most [`MAX_SLICES`].
    pub fn n_slices(&self) -> usize {
        match self.slice_ns {
            0 => 0,
            ns => (self.duration_ns().div_ceil(ns) as usize).min(MAX_SLICES),
        }
    }
}

/// How much of `start..end` lies in parts that do not overlap.
pub(crate) fn overlap(parts: &[(u64, u64)], start: u64, end: u64) -> u64 {
    let common = |(from, to): &(u64, u64)| end.min(*to).saturating_sub(start.max(*from));
    parts.iter().map(common).fold(0, u64::saturating_add)
}

/// Times in order that do not overlap, for many questions about them: none goes through all of them.
#[derive(Clone, Debug)]
pub(crate) struct Parts {
    /// Begin, end, and the length of all parts before.
    parts: Vec<(u64, u64, u64)>,
}

impl Parts {
    /// Of parts in order of their begin; where two overlap, the later one begins at the end of the other.
    pub(crate) fn new(parts: impl Iterator<Item = (u64, u64)>) -> Self {
        let (mut covered, mut before) = (0, 0);
        let part = |(from, to): (u64, u64)| {
            let from = from.max(covered);
            covered = to.max(from);
            let part = (from, covered, before);
            before += covered - from;
            part
        };
        Self {
            parts: parts.map(part).collect(),
        }
    }

    pub(crate) fn len(&self) -> usize {
        self.parts.len()
    }

    /// How much of `start..end` lies in them.
    pub(crate) fn overlap(&self, start: u64, end: u64) -> u64 {
        self.until(end).saturating_sub(self.until(start))
    }

    /// How much of them lies before a time.
    fn until(&self, time: u64) -> u64 {
        let n = self.parts.partition_point(|(from, ..)| *from < time);
        let last = n.checked_sub(1).map(|at| self.parts[at]);
        last.map_or(0, |(from, to, before)| before + (to.min(time) - from))
    }
}

/// A weight in ns by slice; slices without weight are absent.
#[derive(Clone, PartialEq, Debug, Default)]
pub struct Slices(Vec<(u8, f32)>);

impl Slices {
    /// Slices in order, each with its weight in ns. (Single precision: exact sums are kept apart.)
    pub fn iter(&self) -> impl Iterator<Item = (usize, f32)> + '_ {
        self.0.iter().map(|&(at, weight)| (usize::from(at), weight))
    }

    /// Adds what is spread evenly over `start..end`, ns since the axis begins.
    pub(crate) fn spread(&mut self, axis: &TimeAxis, (start, end): (u64, u64), weight: f64) {
        let slice_ns = axis.slice_ns.max(1);
        let last = axis.n_slices().saturating_sub(1) as u64;
        let slices = (start / slice_ns).min(last)..=((end.max(1) - 1) / slice_ns).min(last);
        for slice in slices {
            let from = start.max(slice * slice_ns);
            let to = match slice == last {
                true => end,
                false => end.min((slice + 1) * slice_ns),
            };
            let share = to.saturating_sub(from) as f64 / (end - start).max(1) as f64;
            // There are at most as many as fit.
            self.add(slice as u8, (weight * share) as f32);
        }
    }

    /// Adds another's, so many times.
    pub(crate) fn add_all(&mut self, other: &Self, factor: f64) {
        for &(slice, weight) in &other.0 {
            self.add(slice, (f64::from(weight) * factor) as f32);
        }
    }

    /// Adds to one slice.
    fn add(&mut self, slice: u8, weight: f32) {
        // Spans come nearly in order of time.
        match self.0.iter().rposition(|&(at, _)| at <= slice) {
            Some(at) if self.0[at].0 == slice => self.0[at].1 += weight,
            Some(at) => self.0.insert(at + 1, (slice, weight)),
            None => self.0.insert(0, (slice, weight)),
        }
    }

    /// Adds those of a sum.
    pub(crate) fn merge(&mut self, other: &GrowingSlices, blocks: &Blocks) {
        self.0.reserve_exact(match self.0.is_empty() {
            true => other.len() + 1,
            false => 0,
        });
        for (slice, weight) in blocks.weights_of(other) {
            self.add(slice, weight as f32);
        }
    }
}

/// Slices that spans are added to, nearly in order of time: the slice that is added to now is kept
/// apart, so that most spans touch no memory but their row's. The others are in [`Blocks`].
///
/// Weights are whole nanoseconds: their sums do not depend on the order of the spans.
#[derive(Copy, Clone, PartialEq, Debug, Default)]
pub(crate) struct GrowingSlices {
    /// A bit for each slice that has a weight in the block.
    present: u64,
    /// Where the block begins, if there is a bit.
    block: u32,
    weight: u32,
    slice: u8,
    /// The block has [`SMALLEST`] places, doubled so many times less one; 0: there is none.
    size: u8,
}

impl GrowingSlices {
    fn len(&self) -> usize {
        self.present.count_ones() as usize
    }
}

/// Weights by slice of many [`GrowingSlices`], each list in a block of one list: a list of its own
/// for each row would be two more places of memory for a span to wait for.
#[derive(Clone, Debug, Default)]
pub(crate) struct Blocks {
    weights: Vec<u64>,
    /// By size: blocks that nobody has any more.
    free: [Vec<u32>; N_SIZES],
}

/// Blocks have place for 4, 8, 16, 32 or 64 weights.
const N_SIZES: usize = 5;
const SMALLEST: usize = 4;

impl Blocks {
    #[inline]
    fn add(&mut self, slices: &mut GrowingSlices, slice: u8, weight: u64) {
        let sum = u64::from(slices.weight).saturating_add(weight);
        match u32::try_from(sum) {
            Ok(sum) if slice == slices.slice => slices.weight = sum,
            _ => self.open(slices, slice, weight),
        }
    }

    /// Adds the open slice to the block, and opens another, or the same anew.
    fn open(&mut self, slices: &mut GrowingSlices, slice: u8, weight: u64) {
        self.close(slices, slices.slice, slices.weight.into());
        let (open, whole) = match u32::try_from(weight) {
            Ok(weight) => (weight, 0),
            Err(_) => (0, weight),
        };
        self.close(slices, slice, whole);
        (slices.slice, slices.weight) = (slice, open);
    }

    /// Adds to a slice of the block.
    fn close(&mut self, slices: &mut GrowingSlices, slice: u8, weight: u64) {
        if weight == 0 {
            return;
        }
        let bit = 1_u64 << (slice & 63);
        let rank = (slices.present & (bit - 1)).count_ones() as usize;
        if slices.present & bit == 0 {
            self.make_room(slices);
            let begin = slices.block as usize;
            let len = slices.len();
            self.weights
                .copy_within(begin + rank..begin + len, begin + rank + 1);
            self.weights[begin + rank] = weight;
            slices.present |= bit;
        } else {
            let sum = &mut self.weights[slices.block as usize + rank];
            *sum = sum.saturating_add(weight);
        }
    }

    /// Makes sure that a block has place for one weight more.
    fn make_room(&mut self, slices: &mut GrowingSlices) {
        let (len, size) = (slices.len(), usize::from(slices.size));
        if size > 0 && len < SMALLEST << (size - 1) {
            return;
        }
        let block = self.free.get_mut(size).and_then(Vec::pop);
        let block = block.unwrap_or_else(|| {
            let block = self.weights.len();
            self.weights.resize(block + (SMALLEST << size), 0);
            block as u32
        });
        if size > 0 {
            let old = slices.block as usize;
            self.weights.copy_within(old..old + len, block as usize);
            self.free[size - 1].push(slices.block);
        }
        slices.block = block;
        slices.size += 1;
    }

    /// Slices that have a weight, once each.
    fn weights_of(&self, slices: &GrowingSlices) -> impl Iterator<Item = (u8, u64)> + '_ {
        let begin = slices.block as usize;
        let weights = self.weights.get(begin..begin + slices.len());
        let open = (slices.slice, u64::from(slices.weight));
        let has_block = slices.present >> (open.0 & 63) & 1 != 0;
        let mut left = slices.present;
        let in_block = weights.unwrap_or_default().iter().map(move |&weight| {
            let slice = left.trailing_zeros() as u8;
            left &= left.wrapping_sub(1);
            let more = if slice == open.0 { open.1 } else { 0 };
            (slice, weight.saturating_add(more))
        });
        in_block.chain((open.1 != 0 && !has_block).then_some(open))
    }

    /// Makes slices twice as long.
    fn halve(&mut self, slices: &mut GrowingSlices) {
        slices.slice >>= 1;
        let begin = slices.block as usize;
        let mut present = 0_u64;
        let mut n = 0;
        let mut left = slices.present;
        for at in begin..begin + slices.len() {
            let bit = 1_u64 << (left.trailing_zeros() >> 1);
            left &= left.wrapping_sub(1);
            let weight = self.weights[at];
            if present & bit == 0 {
                present |= bit;
                self.weights[begin + n] = weight;
                n += 1;
            } else {
                let sum = &mut self.weights[begin + n - 1];
                *sum = sum.saturating_add(weight);
            }
        }
        slices.present = present;
    }
}

/// Length of a slice so far.
#[derive(Copy, Clone, Debug)]
pub(crate) struct Cutter {
    shift: u32,
}

impl Default for Cutter {
    fn default() -> Self {
        Self { shift: FIRST_SHIFT }
    }
}

impl Cutter {
    /// Length of a slice, ns.
    pub(crate) fn slice_ns(self) -> u64 {
        1 << self.shift
    }

    /// Whether a time (since the axis begins) lies beyond the last slice; then
    /// [`widen`](Self::widen) all slices there are, until it does not.
    pub(crate) fn is_beyond(self, end: u64) -> bool {
        end.saturating_sub(1) >> self.shift >= MAX_SLICES as u64
    }

    /// Makes slices twice as long.
    pub(crate) fn widen<'s>(
        &mut self,
        all: impl Iterator<Item = &'s mut GrowingSlices>,
        blocks: &mut Blocks,
    ) {
        self.shift += 1;
        all.for_each(|slices| blocks.halve(slices));
    }

    /// Adds a weight that lies evenly in `start..end` (since the axis begins).
    #[inline]
    pub(crate) fn add(
        self,
        slices: &mut GrowingSlices,
        blocks: &mut Blocks,
        (start, end): (u64, u64),
        weight: u64,
    ) {
        let last = (end.saturating_sub(1) >> self.shift).min(MAX_SLICES as u64 - 1);
        let first = (start >> self.shift).min(last);
        if first == last {
            blocks.add(slices, last as u8, weight);
            return;
        }
        for slice in first..=last {
            let begin = (slice << self.shift).max(start);
            let until = match slice == last {
                true => end,
                false => (slice + 1) << self.shift,
            };
            // Parts of longer slices are the sums of those of shorter ones.
            let part = share(weight, (start, end), (begin, until));
            blocks.add(slices, slice as u8, part);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Check that what lies in parts is found without a look at each, also where forged ones overlap.
    #[test]
    fn parts() {
        let apart = [(3, 5), (5, 9), (9, 9), (20, u64::MAX)];
        let parts = Parts::new(apart.into_iter());
        for start in 0..30 {
            for end in (0..30).chain([u64::MAX]) {
                assert_eq!(parts.overlap(start, end), overlap(&apart, start, end));
            }
        }
        let parts = Parts::new([(0, 10), (2, 4), (6, 12), (12, 12), (7, 13)].into_iter());
        assert_eq!([parts.len(), Parts::new([].into_iter()).len()], [5, 0]);
        assert_eq!([parts.overlap(3, 11), parts.overlap(0, 99)], [8, 13]);
    }

    /// Check that a weight is spread evenly over its interval, also after slices became longer,
    /// and that spans out of order come into order.
    #[test]
    fn spread() {
        let mut cutter = Cutter::default();
        let mut slices = GrowingSlices::default();
        let mut blocks = Blocks::default();
        let found = |slices: &GrowingSlices, blocks: &Blocks| {
            let mut merged = Slices::default();
            merged.merge(slices, blocks);
            merged.iter().collect::<Vec<_>>()
        };
        let unit = cutter.slice_ns();
        cutter.add(&mut slices, &mut blocks, (unit * 5 / 2, unit * 5), 10_000);
        cutter.add(&mut slices, &mut blocks, (0, unit), 100);
        assert_eq!(
            found(&slices, &blocks),
            [(0, 100.0), (2, 2000.0), (3, 4000.0), (4, 4000.0)]
        );
        cutter.widen(std::iter::once(&mut slices), &mut blocks);
        assert_eq!(
            found(&slices, &blocks),
            [(0, 100.0), (1, 6000.0), (2, 4000.0)]
        );
    }

    /// Check that lists which grow and shrink in turn keep apart what is theirs, and use the room of
    /// others again.
    #[test]
    fn blocks() {
        let mut cutter = Cutter::default();
        let mut blocks = Blocks::default();
        let mut lists = [GrowingSlices::default(); 8];
        let mut sums = [0; 8];
        let mut numbers = 1_u64;
        for step in 0..20_000_u64 {
            let end = (step + 1) * (cutter.slice_ns() / 4).min(1 << 24);
            while cutter.is_beyond(end) {
                cutter.widen(lists.iter_mut(), &mut blocks);
            }
            numbers = numbers
                .wrapping_mul(6_364_136_223_846_793_005)
                .wrapping_add(1);
            let (which, weight) = ((numbers >> 33) as usize % 8, numbers >> 40 & 0xff);
            let start = end - (numbers >> 50).min(end);
            // Some do not fit the open slice.
            let weight = weight << if step % 100 == 0 { 30 } else { 0 };
            cutter.add(&mut lists[which], &mut blocks, (start, end), weight);
            sums[which] += weight;
        }
        for (list, sum) in lists.iter().zip(sums) {
            let found: u64 = blocks.weights_of(list).map(|(_, weight)| weight).sum();
            assert_eq!(found, sum);
            let mut merged = Slices::default();
            merged.merge(list, &blocks);
            let slices: Vec<usize> = merged.iter().map(|(slice, _)| slice).collect();
            assert!(slices.is_sorted() && slices.len() <= MAX_SLICES);
        }
        // A list that has the largest block had one of each size.
        assert!(blocks.weights.len() <= 8 * 2 * MAX_SLICES);
    }

    /// Check that the end of the last slice is in it, and the next nanosecond is not.
    #[test]
    fn beyond() {
        let cutter = Cutter::default();
        let end = cutter.slice_ns() * MAX_SLICES as u64;
        assert!(!cutter.is_beyond(end));
        assert!(cutter.is_beyond(end + 1));
    }
}
