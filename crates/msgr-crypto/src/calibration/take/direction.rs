//! Encrypting or decrypting to the tables of its costs.

use msgr_crypto_ffi::CallError;

use super::super::{BLOCK, Curve, DENSE, DirectionCosts, PERIOD, PERIOD_BEGIN};
use super::cases::{CaseSet, REPEAT, in_place, out_of_place, repeated};
use super::curve;
use crate::measure::{Case, MeasureError, median};

/// Bytes of partial blocks that are measured; others lie between.
const PARTIAL: [usize; 7] = [1, 3, 6, 8, 10, 13, 15];
/// Sizes beyond the dense part of the table. Twice a power of two keeps lines short.
const LARGE: [usize; 11] = [
    3072, 4096, 6144, 8192, 12288, 16384, 32768, 65536, 131_072, 262_144, 524_288,
];
const SHIFTED: [usize; 4] = [256, 1024, 4096, 16384];
const OUT_OF_PLACE: [usize; 8] = [16, 64, 256, 1024, 4096, 16384, 65536, 131_072];

/// Cases of one direction, by their indices.
pub(super) struct DirectionCases {
    /// Units without calls. All other figures are differences to these, so there are several, far apart.
    units: [usize; 3],
    setup: SetupCases,
    updates: Vec<UpdateCase>,
    empty: usize,
    partial: Vec<PartialCases>,
    /// Bytes of an unaligned call, and its case.
    shifted: Vec<(usize, usize)>,
    out_of_place: Vec<PlacementCases>,
}

/// What is done before a message.
struct SetupCases {
    nonce: usize,
    rekey: usize,
    context: usize,
}

/// `n_calls` calls of one size, of whole blocks.
struct UpdateCase {
    len: usize,
    n_calls: usize,
    case: usize,
}

/// Calls that begin or end within a block, `n_bytes` from its border.
struct PartialCases {
    n_bytes: usize,
    small: usize,
    tail: usize,
    fill: usize,
    head: usize,
}

/// One call of a unit, in place and out of place.
struct PlacementCases {
    len: usize,
    in_place: usize,
    out_of_place: usize,
}

impl DirectionCases {
    pub(super) fn add(set: &mut CaseSet<'_>, l2_bytes: u64) -> Result<Self, MeasureError> {
        let first_unit = set.add_plan(vec![vec![]])?;
        let setup = SetupCases::add(set)?;
        let block = BLOCK as usize;
        let dense = (block..=DENSE as usize).step_by(block);
        let period = (PERIOD_BEGIN as usize..=(PERIOD_BEGIN + PERIOD) as usize).step_by(block);
        // Larger ones would be measured beyond the cache.
        let fits = |len: &usize| 2 * *len as u64 <= l2_bytes;
        let mut updates = Vec::new();
        for len in dense.chain(period).chain(LARGE.into_iter().filter(fits)) {
            // Fewer of long calls: the unit around them matters less.
            let n_calls = match len {
                0..=1024 => REPEAT,
                1025..=4096 => 2,
                _ => 1,
            };
            updates.push(UpdateCase {
                len,
                n_calls,
                case: set.add_plan(vec![repeated(&[len], n_calls)])?,
            });
        }
        let second_unit = set.add_plan(vec![vec![]])?;
        let empty = set.add_plan(vec![repeated(&[0], REPEAT)])?;
        let mut partial = Vec::new();
        for n_bytes in PARTIAL {
            let rest = block - n_bytes;
            partial.push(PartialCases {
                n_bytes,
                small: set.add_plan(vec![in_place(&[n_bytes])])?,
                tail: set.add_plan(vec![in_place(&[256 + n_bytes])])?,
                fill: set.add_plan(vec![repeated(&[256 + n_bytes, rest], 4)])?,
                head: set.add_plan(vec![repeated(&[256 + n_bytes, 256 + rest], 4)])?,
            });
        }
        let mut shifted = Vec::new();
        for len in SHIFTED {
            shifted.push((len, set.add_plan(vec![repeated(&[4, len, 12], 2)])?));
        }
        let mut placements = Vec::new();
        for len in OUT_OF_PLACE.into_iter().filter(|len| fits(&(2 * len))) {
            placements.push(PlacementCases {
                len,
                in_place: set.add_plan(vec![in_place(&[len])])?,
                out_of_place: set.add_plan(vec![vec![out_of_place(len)]])?,
            });
        }
        Ok(Self {
            units: [first_unit, second_unit, set.add_plan(vec![vec![]])?],
            setup,
            updates,
            empty,
            partial,
            shifted,
            out_of_place: placements,
        })
    }

    /// From the nanoseconds of all cases.
    pub(super) fn costs(&self, ns: &[f64]) -> DirectionCosts {
        let unit_ns = median(&self.units.map(|unit| ns[unit]));
        let each = |case: usize, n_calls: usize| (ns[case] - unit_ns) / n_calls as f64;
        // Noise must not make a call take less than no time.
        let updates = self.updates.iter();
        let update = curve(updates.map(|u| (u.len, each(u.case, u.n_calls).max(0.1))));
        let empty_ns = each(self.empty, REPEAT).max(0.0);
        let small = self.partial.iter().map(|p| (p.n_bytes, each(p.small, 1)));
        let mut costs = DirectionCosts {
            unit_ns,
            nonce_ns: ns[self.setup.nonce],
            rekey_ns: ns[self.setup.rekey],
            context_ns: ns[self.setup.context],
            update,
            small: curve(std::iter::once((0, empty_ns)).chain(small)),
            ..DirectionCosts::default()
        };
        costs.first = first_costs(self.out_of_place.iter().map(|case| {
            let len = case.len as u64;
            (len, each(case.in_place, 1) - costs.update_ns(0, len))
        }));
        self.add_partial_costs(&mut costs, each);
        let shifted = self.shifted.iter().map(|(len, case)| {
            let expected =
                costs.update_ns(0, 4) + costs.update_ns(4, *len as u64) + costs.update_ns(4, 12);
            (*len, each(*case, 2) - expected)
        });
        costs.shifted = curve(std::iter::once((0, 0.0)).chain(shifted.collect::<Vec<_>>()));
        let out_of_place = self.out_of_place.iter();
        costs.out_of_place = Curve::new(without_spikes(
            out_of_place
                .map(|case| (case.len as u64, ns[case.out_of_place] - ns[case.in_place]))
                .collect(),
        ));
        costs
    }

    /// Tables of calls that begin or end within a block.
    fn add_partial_costs(&self, costs: &mut DirectionCosts, each: impl Fn(usize, usize) -> f64) {
        let block = BLOCK as usize;
        let f256 = costs.update.at(256);
        let first_f256 = f256 + costs.first.at(256);
        let (mut tail, mut fill, mut head) = (vec![(0, 0.0)], Vec::new(), Vec::new());
        for cases in &self.partial {
            let rest = block - cases.n_bytes;
            let tail_ns = each(cases.tail, 1) - first_f256;
            tail.push((cases.n_bytes, tail_ns));
            fill.push((rest, (each(cases.fill, 4) - f256 - tail_ns).max(0.0)));
            head.push((rest, each(cases.head, 4) - 2.0 * f256 - tail_ns));
        }
        costs.tail = curve(tail);
        costs.fill = curve(fill);
        costs.head = curve(head);
    }
}

impl SetupCases {
    fn add(set: &mut CaseSet<'_>) -> Result<Self, CallError> {
        const KEY: [u8; 16] = [1; 16];
        const NONCE: [u8; 12] = [2; 12];
        let library = set.library;
        let direction = set.side.direction();
        let mut context = library.context(direction, &KEY)?;
        let nonce = set.add(Case::new(move |n| {
            (0..n).try_for_each(|_| context.restart(&NONCE))
        }));
        let mut context = library.context(direction, &KEY)?;
        let rekey = set.add(Case::new(move |n| {
            (0..n).try_for_each(|_| context.rekey(&KEY, &NONCE))
        }));
        let context = set.add(Case::new(move |n| {
            (0..n).try_for_each(|_| library.context(direction, &KEY).map(drop))
        }));
        Ok(Self {
            nonce,
            rekey,
            context,
        })
    }
}

/// Each value, or a neighbor's if that lies between: the middle one of three. Addresses that happen to
/// collide in a cache can make a single size slow, for as long as its memory is used.
fn without_spikes(points: Vec<(u64, f64)>) -> Vec<(u64, f64)> {
    let at = |index: usize| points.get(index).map(|(_, ns)| *ns);
    points
        .iter()
        .enumerate()
        .map(|(index, (len, ns))| {
            let before = index.checked_sub(1).and_then(at);
            let after = at(index + 1);
            let ns = match (before, after) {
                (Some(before), Some(after)) => median(&[before, *ns, after]),
                (Some(one), None) | (None, Some(one)) if points.len() > 2 => ns.min(one),
                _ => *ns,
            };
            (*len, ns)
        })
        .collect()
}

/// What the first call of a unit takes more than another, by its bytes; the same for all long ones, where
/// it would drown in noise.
fn first_costs(more: impl Iterator<Item = (u64, f64)>) -> Curve {
    const LONG: u64 = 1024;
    let mut points = without_spikes(more.filter(|(len, _)| *len <= LONG).collect());
    if let Some((_, last)) = points.last().copied() {
        points.push((1 << 40, last));
    }
    Curve::new(points)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Check that a single slow size vanishes and a trend stays.
    #[test]
    fn spikes() {
        let points = |values: &[f64]| (0..).zip(values.iter().copied()).collect::<Vec<_>>();
        let smooth = |values: &[f64]| without_spikes(points(values));
        assert_eq!(
            smooth(&[1.0, 2.0, 150.0, 4.0, 9.0]),
            points(&[1.0, 2.0, 4.0, 9.0, 4.0])
        );
        assert_eq!(smooth(&[1.0, 2.0, 3.0]), points(&[1.0, 2.0, 2.0]));
        assert_eq!(smooth(&[5.0]), points(&[5.0]));
    }

    /// Check that all long first calls cost as much as the longest that counts.
    #[test]
    fn first_of_long_calls() {
        let curve = first_costs([(16, 4.0), (64, 3.0), (1024, 3.0), (4096, 90.0)].into_iter());
        assert_eq!((curve.at(16), curve.at(1 << 20)), (3.0, 3.0));
    }
}
