//! Encrypting or decrypting to the tables of its costs.

use std::collections::BTreeMap;

use msgr_crypto_ffi::CallError;

use super::super::costs::{BLOCK, DENSE, DirectionCosts, PERIOD, PERIOD_BEGIN};
use super::super::curve::Curve;
use super::cases::{CaseSet, REPEAT, Work, in_place, out_of_place, repeated};
use crate::measure::{Case, MeasureError, median};

/// Bytes of partial blocks that are measured; others lie between.
const PARTIAL: [usize; 7] = [1, 3, 6, 8, 10, 13, 15];
/// Sizes beyond the dense part of the table. Twice a power of two keeps lines short.
const LARGE: [usize; 11] = [
    3072, 4096, 6144, 8192, 12288, 16384, 32768, 65536, 131_072, 262_144, 524_288,
];
const SHIFTED: [usize; 4] = [256, 1024, 4096, 16384];
const OUT_OF_PLACE: [usize; 8] = [16, 64, 256, 1024, 4096, 16384, 65536, 131_072];

/// Units without calls. All other figures are differences to these, so there are several, far apart.
const N_UNITS: usize = 3;
const BLOCK_BYTES: usize = BLOCK as usize;

/// Calls of this many bytes in a case. Fewer of long calls: the unit around them matters less.
fn n_calls(len: usize) -> usize {
    match len {
        0..=1024 => REPEAT,
        1025..=4096 => 2,
        _ => 1,
    }
}

/// Adds all that [`costs`] needs.
pub(super) fn add_cases(set: &mut CaseSet<'_>, l2_bytes: u64) -> Result<(), MeasureError> {
    set.add_unit(Work::Unit(0), vec![])?;
    add_setup(set)?;
    let dense = (BLOCK..=DENSE).step_by(BLOCK_BYTES);
    let period = (PERIOD_BEGIN..=PERIOD_BEGIN + PERIOD).step_by(BLOCK_BYTES);
    let near = dense.chain(period).map(|len| len as usize);
    // Larger ones would be measured beyond the cache.
    let fits = |len: &usize| 2 * *len as u64 <= l2_bytes;
    for len in near.chain(LARGE.into_iter().filter(fits)) {
        set.add_unit(Work::Update(len), repeated(&[len], n_calls(len)))?;
    }
    set.add_unit(Work::Unit(1), vec![])?;
    set.add_unit(Work::Empty, repeated(&[0], REPEAT))?;
    for n in PARTIAL {
        let rest = BLOCK_BYTES - n;
        set.add_unit(Work::Small(n), in_place(&[n]))?;
        set.add_unit(Work::Tail(n), in_place(&[256 + n]))?;
        set.add_unit(Work::Fill(n), repeated(&[256 + n, rest], 4))?;
        set.add_unit(Work::Head(n), repeated(&[256 + n, 256 + rest], 4))?;
    }
    for len in SHIFTED {
        set.add_unit(Work::Shifted(len), repeated(&[4, len, 12], 2))?;
    }
    for len in OUT_OF_PLACE.into_iter().filter(|len| fits(&(2 * len))) {
        set.add_unit(Work::InPlace(len), in_place(&[len]))?;
        set.add_unit(Work::OutOfPlace(len), vec![out_of_place(len, false)])?;
    }
    set.add_unit(Work::Unit(2), vec![])
}

/// What is done before a message.
fn add_setup(set: &mut CaseSet<'_>) -> Result<(), CallError> {
    const KEY: [u8; 16] = [1; 16];
    const NONCE: [u8; 12] = [2; 12];
    let library = set.library;
    let direction = set.side.direction();
    let mut context = library.context(direction, &KEY)?;
    let nonce = Case::new(move |n| (0..n).try_for_each(|_| context.restart(&NONCE)));
    set.add(Work::Nonce, nonce);
    let mut context = library.context(direction, &KEY)?;
    let rekey = Case::new(move |n| (0..n).try_for_each(|_| context.rekey(&KEY, &NONCE)));
    set.add(Work::Rekey, rekey);
    let make = move |_| library.context(direction, &KEY).map(drop);
    set.add(Work::Context, Case::new(move |n| (0..n).try_for_each(make)));
    Ok(())
}

/// From the nanoseconds of all cases.
pub(super) fn costs(ns: &BTreeMap<Work, f64>) -> DirectionCosts {
    let time = |work: Work| ns.get(&work).copied().unwrap_or_default();
    let units: Vec<f64> = (0..N_UNITS).map(|index| time(Work::Unit(index))).collect();
    let unit_ns = median(&units);
    let each = |work: Work, n_calls: usize| (time(work) - unit_ns) / n_calls as f64;
    let updates = ns.keys().filter_map(|work| match work {
        // Noise must not make a call take less than no time.
        Work::Update(len) => Some((*len, each(*work, n_calls(*len)).max(0.1))),
        _ => None,
    });
    let empty = (0, each(Work::Empty, REPEAT).max(0.0));
    let small = PARTIAL.map(|n| (n, each(Work::Small(n), 1)));
    let mut costs = DirectionCosts {
        unit_ns,
        nonce_ns: time(Work::Nonce),
        rekey_ns: time(Work::Rekey),
        context_ns: time(Work::Context),
        update: Curve::by_size(updates),
        small: Curve::by_size(std::iter::once(empty).chain(small)),
        ..DirectionCosts::default()
    };
    let placed: Vec<usize> = OUT_OF_PLACE
        .into_iter()
        .filter(|len| ns.contains_key(&Work::InPlace(*len)))
        .collect();
    costs.first = first_costs(placed.iter().map(|len| {
        let alone = each(Work::InPlace(*len), 1);
        (*len as u64, alone - costs.update_ns(0, *len as u64))
    }));
    // Calls that begin or end within a block.
    let f256 = costs.update.at(256);
    let first_f256 = f256 + costs.first.at(256);
    let (mut tail, mut fill, mut head) = (vec![(0, 0.0)], Vec::new(), Vec::new());
    for n in PARTIAL {
        let rest = BLOCK_BYTES - n;
        let tail_ns = each(Work::Tail(n), 1) - first_f256;
        tail.push((n, tail_ns));
        fill.push((rest, (each(Work::Fill(n), 4) - f256 - tail_ns).max(0.0)));
        head.push((rest, each(Work::Head(n), 4) - 2.0 * f256 - tail_ns));
    }
    costs.tail = Curve::by_size(tail);
    costs.fill = Curve::by_size(fill);
    costs.head = Curve::by_size(head);
    let mut shifted = vec![(0, 0.0)];
    for len in SHIFTED {
        let calls = [(0, 4), (4, len as u64), (4, 12)];
        let expected: f64 = calls.map(|(at, len)| costs.update_ns(at, len)).iter().sum();
        shifted.push((len, each(Work::Shifted(len), 2) - expected));
    }
    costs.shifted = Curve::by_size(shifted);
    let more = |len: &usize| time(Work::OutOfPlace(*len)) - time(Work::InPlace(*len));
    let out_of_place = placed.iter().map(|len| (*len as u64, more(len)));
    costs.out_of_place = Curve::new(without_spikes(&out_of_place.collect::<Vec<_>>()));
    costs
}

/// Each value, or a neighbor's if that lies between: the middle one of three. Addresses that happen to
/// collide in a cache can make a single size slow, for as long as its memory is used.
fn without_spikes(points: &[(u64, f64)]) -> Vec<(u64, f64)> {
    let ns_at = |index: usize| points.get(index).map(|(_, ns)| *ns);
    let smooth = |(index, (len, ns)): (usize, &(u64, f64))| {
        let neighbors = (index.checked_sub(1).and_then(ns_at), ns_at(index + 1));
        let ns = match neighbors {
            (Some(before), Some(after)) => median(&[before, *ns, after]),
            (Some(one), None) | (None, Some(one)) if points.len() > 2 => ns.min(one),
            _ => *ns,
        };
        (*len, ns)
    };
    points.iter().enumerate().map(smooth).collect()
}

/// What the first call of a unit takes more than another, by its bytes; the same for all long ones, where
/// it would drown in noise.
fn first_costs(more: impl Iterator<Item = (u64, f64)>) -> Curve {
    const LONG: u64 = 1024;
    let mut points = without_spikes(&more.filter(|(len, _)| *len <= LONG).collect::<Vec<_>>());
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
        let smooth = |values: &[f64]| without_spikes(&points(values));
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
