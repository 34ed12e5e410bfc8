//! Weights over time: each row's weight by slice of the recording, for what is said of its
//! precision.
//!
//! A recording is cut into at most [`MAX_SLICES`] slices of equal length. The length is not known
//! while spans come in: it starts short and doubles whenever the recording passes the last slice.

use wcprof_types::TimeNs;

/// Most slices of a recording.
pub const MAX_SLICES: usize = 64;
/// The first length of a slice is two to this power, ns: about 1 ms, less than a tick.
const FIRST_SHIFT: u32 = 20;

/// The part of a recording that a profile is about, and how it is cut into slices.
#[derive(Copy, Clone, PartialEq, Eq, Debug, Default)]
pub struct TimeAxis {
    /// Its begin, since the recording began.
    pub start: TimeNs,
    /// Its end, since the recording began.
    pub end: TimeNs,
    /// Length of a slice, ns; the last one may be cut short by the end. 0 when there is none.
    pub slice_ns: u64,
    /// The profile is about a part of the recording only.
    pub is_window: bool,
}

impl TimeAxis {
    /// Length, ns.
    pub fn duration_ns(&self) -> u64 {
        self.end.0.saturating_sub(self.start.0)
    }

    /// Slices, at most [`MAX_SLICES`].
    pub fn n_slices(&self) -> usize {
        match self.slice_ns {
            0 => 0,
            ns => (self.duration_ns().div_ceil(ns) as usize).min(MAX_SLICES),
        }
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

    /// Adds to one slice.
    fn add(&mut self, slice: u8, weight: f32) {
        // Spans come nearly in order of time.
        match self.0.iter().rposition(|&(at, _)| at <= slice) {
            Some(at) if self.0[at].0 == slice => self.0[at].1 += weight,
            Some(at) => self.0.insert(at + 1, (slice, weight)),
            None => self.0.insert(0, (slice, weight)),
        }
    }

    /// Adds another row's, whose slices are to become twice as long `n_halvings` times.
    pub(crate) fn merge(&mut self, other: &GrowingSlices, n_halvings: u32) {
        self.0
            .reserve_exact(match self.0.is_empty() && n_halvings == 0 {
                true => other.full().len() + 1,
                false => 0,
            });
        let open = (other.weight != 0.0).then_some((other.slice, other.weight));
        for (slice, weight) in other.full().iter().copied().chain(open) {
            self.add(slice.checked_shr(n_halvings).unwrap_or(0), weight);
        }
    }

    /// Makes slices twice as long.
    fn halve(&mut self) {
        self.0.iter_mut().for_each(|(slice, _)| *slice >>= 1);
        self.0.dedup_by(|next, kept| {
            let same = next.0 == kept.0;
            if same {
                kept.1 += next.1;
            }
            same
        });
    }
}

/// Slices that spans are added to, nearly in order of time: the slice that is added to now is kept
/// apart, so that most spans touch no memory but their row's.
#[derive(Clone, PartialEq, Debug, Default)]
pub(crate) struct GrowingSlices {
    slice: u8,
    weight: f32,
    /// Boxed: most spans do not touch it.
    slices: Option<Box<Slices>>,
}

impl GrowingSlices {
    /// All but the one that is added to.
    fn full(&self) -> &[(u8, f32)] {
        self.slices.as_ref().map_or(&[], |slices| &slices.0)
    }

    #[inline]
    fn add(&mut self, slice: u8, weight: f32) {
        if slice == self.slice {
            self.weight += weight;
            return;
        }
        if self.weight != 0.0 {
            let slices = self.slices.get_or_insert_default();
            slices.add(self.slice, self.weight);
        }
        (self.slice, self.weight) = (slice, weight);
    }

    /// Makes slices twice as long.
    fn halve(&mut self) {
        self.slice >>= 1;
        if let Some(slices) = &mut self.slices {
            slices.halve();
        }
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
    pub(crate) fn widen<'s>(&mut self, all: impl Iterator<Item = &'s mut GrowingSlices>) {
        self.shift += 1;
        all.for_each(GrowingSlices::halve);
    }

    /// Adds a weight that lies evenly in `start..end` (since the axis begins).
    #[inline]
    pub(crate) fn add(self, slices: &mut GrowingSlices, start: u64, end: u64, weight: u64) {
        let last = (end.saturating_sub(1) >> self.shift).min(MAX_SLICES as u64 - 1);
        let first = (start >> self.shift).min(last);
        if first == last {
            slices.add(last as u8, weight as f32);
            return;
        }
        let per_ns = weight as f64 / (end - start) as f64;
        for slice in first..=last {
            let begin = (slice << self.shift).max(start);
            let until = ((slice + 1) << self.shift).min(end);
            slices.add(slice as u8, (per_ns * (until - begin) as f64) as f32);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Check that a weight is spread evenly over its interval, also after slices became longer,
    /// and that spans out of order come into order.
    #[test]
    fn spread() {
        let mut cutter = Cutter::default();
        let mut slices = GrowingSlices::default();
        let found = |slices: &GrowingSlices| {
            let mut merged = Slices::default();
            merged.merge(slices, 0);
            merged.iter().collect::<Vec<_>>()
        };
        let unit = cutter.slice_ns();
        cutter.add(&mut slices, unit * 5 / 2, unit * 5, 10_000);
        cutter.add(&mut slices, 0, unit, 100);
        assert_eq!(
            found(&slices),
            [(0, 100.0), (2, 2000.0), (3, 4000.0), (4, 4000.0)]
        );
        cutter.widen(std::iter::once(&mut slices));
        assert_eq!(found(&slices), [(0, 100.0), (1, 6000.0), (2, 4000.0)]);
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
