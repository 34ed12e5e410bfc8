//! The calls of one context, in order, to frames.

use crate::frame::{
    EPILOGUE_BYTES as EPILOGUE, INLINE_BYTES as INLINE, PREAMBLE_BYTES as PREAMBLE,
};
use crate::shapes::{MAX_CALLS, MAX_FRAME_BYTES, Side};

/// What is in the calls of a context.
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct Frames {
    /// Units of each whole frame.
    pub(super) frames: Vec<Vec<Vec<usize>>>,
    /// Calls that belong to frames cut off by an end of the observation or a gap.
    pub(super) n_edge_calls: u64,
    /// Calls between beginnings of frames that are no frame.
    pub(super) n_torn_calls: u64,
    /// Whether there was the beginning of a frame at all.
    pub(super) has_begin: bool,
}

/// Frames of the calls of one context in one direction; `None` is a gap.
pub(super) fn frames(calls: &[Option<usize>], side: Side) -> Frames {
    let mut out = Frames::default();
    for stretch in calls.split(Option::is_none) {
        let calls: Vec<usize> = stretch.iter().copied().flatten().collect();
        split_stretch(&calls, side, &mut out);
    }
    out
}

fn split_stretch(calls: &[usize], side: Side, out: &mut Frames) {
    let format = Format::detect(calls, side);
    let begins = (0..calls.len()).filter(|at| format.begins_at(calls, *at));
    let begins: Vec<usize> = begins.collect();
    out.has_begin |= !begins.is_empty();
    out.n_edge_calls += *begins.first().unwrap_or(&calls.len()) as u64;
    for (index, begin) in begins.iter().enumerate() {
        let end = begins.get(index + 1).copied();
        let frame = &calls[*begin..end.unwrap_or(calls.len())];
        match format.units(frame) {
            // What follows the last beginning may go on after the end, unless it has its epilogue.
            Some(units) if end.is_some() || is_ended(&units) => out.frames.push(units),
            None if end.is_some() => out.n_torn_calls += frame.len() as u64,
            _ => out.n_edge_calls += frame.len() as u64,
        }
    }
}

/// How the calls of a stretch are to be read.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
enum Format {
    /// Decrypted, an empty call after each unit.
    RxEmpty,
    /// Decrypted, by a Ceph that makes no empty calls.
    RxPlain,
    /// Encrypted.
    Tx,
}

impl Format {
    fn detect(calls: &[usize], side: Side) -> Self {
        match side {
            Side::Tx => Self::Tx,
            Side::Rx if calls.contains(&0) => Self::RxEmpty,
            Side::Rx => Self::RxPlain,
        }
    }

    fn begins_at(self, calls: &[usize], at: usize) -> bool {
        let is = |at: usize, len: usize| calls.get(at) == Some(&len);
        let before = at.checked_sub(1).and_then(|at| calls.get(at));
        match self {
            // A buffer of 80 bytes elsewhere is followed by the epilogue, or is not behind a unit.
            Self::RxEmpty => {
                is(at, PREAMBLE + INLINE) && is(at + 1, 0) && before.is_none_or(|len| *len == 0)
            }
            Self::RxPlain => {
                is(at, PREAMBLE + INLINE)
                    && before.is_none_or(|len| *len == EPILOGUE || *len == PREAMBLE + INLINE)
            }
            Self::Tx => {
                let [Some(a), Some(b)] = [calls.get(at + 1), calls.get(at + 2)] else {
                    return is(at, PREAMBLE) && is(at + 1, INLINE);
                };
                // The inline part may be a header and its padding; a buffer of 32 bytes before an
                // epilogue and the next preamble also adds up.
                let is_split =
                    a + b == INLINE && *a != EPILOGUE && *a != 0 && *b != 0 && *b < INLINE;
                is(at, PREAMBLE) && (*a == INLINE || is_split)
            }
        }
    }

    /// Units of a frame that begins here and ends here; `None` when they can not be.
    fn units(self, frame: &[usize]) -> Option<Vec<Vec<usize>>> {
        if frame.len() > MAX_CALLS || frame.iter().sum::<usize>() > MAX_FRAME_BYTES {
            return None;
        }
        let parts: Vec<&[usize]> = match self {
            Self::RxEmpty => frame.split_inclusive(|len| *len == 0).collect(),
            Self::RxPlain | Self::Tx => {
                let n_first = match (self, frame.get(1)) {
                    (Self::RxPlain, _) => 1,
                    (_, Some(&INLINE)) => 2,
                    _ => 3,
                };
                let (first, rest) = frame.split_at_checked(n_first)?;
                let parts = [first, rest].into_iter();
                parts.filter(|part| !part.is_empty()).collect()
            }
        };
        let is_sound = match parts.as_slice() {
            // Calls after the last empty one: a unit that has not ended.
            [.., last] if self == Self::RxEmpty && last.last() != Some(&0) => false,
            // The rest of a long first segment is a unit of one buffer or more; the segments after it
            // are one unit, which the epilogue ends.
            [_] | [_, _] => true,
            [_, _, last] => ends_with_epilogue(last),
            _ => false,
        };
        is_sound.then(|| parts.into_iter().map(<[usize]>::to_vec).collect())
    }
}

fn is_ended(units: &[Vec<usize>]) -> bool {
    match units {
        [_, .., last] => ends_with_epilogue(last) && last.len() > 1,
        _ => false,
    }
}

/// Whether the last call that is not empty is an epilogue.
pub(super) fn ends_with_epilogue(unit: &[usize]) -> bool {
    unit.iter().rev().find(|len| **len != 0) == Some(&EPILOGUE)
}
