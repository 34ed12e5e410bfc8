//! The calls of one context, in order, to frames.

use crate::frame::{
    EPILOGUE_BYTES as EPILOGUE, INLINE_BYTES as INLINE, PREAMBLE_BYTES as PREAMBLE,
};
use crate::shapes::{MAX_CALLS, MAX_FRAME_BYTES, Side};

/// Calls of one context in one direction; `None` is a gap.
#[derive(Debug, Default)]
pub(super) struct Stream {
    calls: Vec<Option<usize>>,
}

/// What is in a stream.
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

impl Stream {
    pub(super) fn push(&mut self, len: usize) {
        self.calls.push(Some(len));
    }

    pub(super) fn gap(&mut self) {
        if self.calls.last().is_some_and(Option::is_some) {
            self.calls.push(None);
        }
    }

    pub(super) fn n_calls(&self) -> usize {
        self.calls.iter().flatten().count()
    }

    pub(super) fn frames(&self, side: Side) -> Frames {
        let mut out = Frames::default();
        for stretch in self.calls.split(Option::is_none) {
            let calls: Vec<usize> = stretch.iter().copied().flatten().collect();
            split_stretch(&calls, side, &mut out);
        }
        out
    }
}

fn split_stretch(calls: &[usize], side: Side, out: &mut Frames) {
    let format = Format::detect(calls, side);
    let begins: Vec<usize> = (0..calls.len())
        .filter(|at| format.begins_at(calls, *at))
        .collect();
    let Some(first) = begins.first() else {
        out.n_edge_calls += calls.len() as u64;
        return;
    };
    out.has_begin = true;
    out.n_edge_calls += *first as u64;
    for (index, begin) in begins.iter().enumerate() {
        let end = begins.get(index + 1).copied();
        let frame = calls
            .get(*begin..end.unwrap_or(calls.len()))
            .unwrap_or_default();
        match format.units(frame) {
            // What follows the last beginning may go on after the end, unless it has its epilogue.
            Some(units) if end.is_some() || format.is_ended(&units) => out.frames.push(units),
            Some(_) => out.n_edge_calls += frame.len() as u64,
            None if end.is_some() => out.n_torn_calls += frame.len() as u64,
            None => out.n_edge_calls += frame.len() as u64,
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
        let units: Vec<Vec<usize>> = match self {
            Self::RxEmpty => {
                let units: Vec<_> = frame.split_inclusive(|len| *len == 0).collect();
                // Calls after the last empty one: a unit that has not ended.
                if units.last().is_some_and(|unit| unit.last() != Some(&0)) {
                    return None;
                }
                units.into_iter().map(<[usize]>::to_vec).collect()
            }
            Self::RxPlain | Self::Tx => {
                let first = match self {
                    Self::RxPlain => 1,
                    _ if frame.get(1) == Some(&INLINE) => 2,
                    _ => 3,
                };
                let (head, rest) = frame.split_at_checked(first)?;
                let mut units = vec![head.to_vec()];
                if !rest.is_empty() {
                    units.push(rest.to_vec());
                }
                units
            }
        };
        // The rest of a long first segment is a unit of one buffer or more; the segments after it are
        // one unit, which the epilogue ends.
        let is_sound = match units.as_slice() {
            [_] | [_, _] => true,
            [_, _, last] => ends_with_epilogue(last),
            _ => false,
        };
        is_sound.then_some(units)
    }

    fn is_ended(self, units: &[Vec<usize>]) -> bool {
        match units {
            [] | [_] => false,
            [.., last] => ends_with_epilogue(last) && last.len() > 1,
        }
    }
}

fn ends_with_epilogue(unit: &[usize]) -> bool {
    let last = unit.iter().rev().find(|len| **len != 0);
    last == Some(&EPILOGUE)
}
