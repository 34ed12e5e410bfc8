//! Lengths of segments to units, bytes on the wire and the update calls of either end.

use super::{
    BLOCK_BYTES, EPILOGUE_BYTES, INLINE_BYTES, MAX_SEGMENTS, PREAMBLE_BYTES, Revision, TAG_BYTES,
};

/// How a frame with segments of given lengths is laid out.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Layout {
    revision: Revision,
    lens: Vec<usize>,
}

impl Layout {
    /// `lens` are those of the segments, without padding; empty ones at the end are dropped, and more
    /// than four are not looked at.
    pub fn new(revision: Revision, lens: &[usize]) -> Self {
        let n = lens.iter().take(MAX_SEGMENTS).rposition(|len| *len > 0);
        let n = n.map_or(1, |last| last + 1);
        let mut lens = lens.iter().take(n).copied().collect::<Vec<_>>();
        lens.resize(n, 0);
        Self { revision, lens }
    }

    /// Lengths with padding.
    pub fn padded(&self) -> Vec<usize> {
        let padded = self.lens.iter();
        padded
            .map(|len| len.next_multiple_of(BLOCK_BYTES))
            .collect()
    }

    /// Plaintext bytes of each unit.
    pub fn units(&self) -> Vec<usize> {
        let padded = self.padded();
        let first = padded.first().copied().unwrap_or(0);
        let others: usize = padded.iter().skip(1).sum();
        match self.revision {
            Revision::V20 => vec![PREAMBLE_BYTES + first + others + EPILOGUE_BYTES],
            Revision::V21 => {
                let mut units = vec![PREAMBLE_BYTES + INLINE_BYTES];
                if first > INLINE_BYTES {
                    units.push(first - INLINE_BYTES);
                }
                if padded.len() > 1 {
                    units.push(others + EPILOGUE_BYTES);
                }
                units
            }
        }
    }

    /// Bytes of the frame on the wire.
    pub fn wire_len(&self) -> usize {
        let units = self.units();
        units.iter().sum::<usize>() + units.len() * TAG_BYTES
    }

    /// Update calls of a receiver, unit by unit. It makes an empty call for the node from which the
    /// tag was cut off (Ceph 15.2.5 and later).
    pub fn rx_calls(&self) -> Vec<Vec<usize>> {
        let padded = self.padded();
        let segments = |from: usize| {
            let rest = padded.iter().skip(from).copied();
            rest.filter(|len| *len > 0).collect::<Vec<_>>()
        };
        let end = [EPILOGUE_BYTES, 0];
        match self.revision {
            Revision::V20 => {
                let mut calls = vec![PREAMBLE_BYTES];
                calls.extend(segments(0));
                calls.extend(end);
                vec![calls]
            }
            Revision::V21 => {
                let mut units = vec![vec![PREAMBLE_BYTES + INLINE_BYTES, 0]];
                if let Some(rest) = padded.first().and_then(|len| len.checked_sub(INLINE_BYTES))
                    && rest > 0
                {
                    units.push(vec![rest, 0]);
                }
                if padded.len() > 1 {
                    let mut calls = segments(1);
                    calls.extend(end);
                    units.push(calls);
                }
                units
            }
        }
    }

    /// Update calls of a sender whose segments consist of buffers of these lengths. Padding is a
    /// buffer of its own, but for segment 0, whose buffer has room for it.
    pub fn tx_calls(&self, buffers: &[Vec<usize>]) -> Vec<Vec<usize>> {
        let mut segments: Vec<Vec<usize>> = Vec::new();
        for (index, (len, padded)) in self.lens.iter().zip(self.padded()).enumerate() {
            let given = buffers.get(index).cloned().unwrap_or_default();
            let mut calls = match given.iter().sum::<usize>() == *len {
                true => given,
                false => vec![*len],
            };
            calls.retain(|len| *len > 0);
            match (padded - len, calls.last_mut()) {
                (0, _) => {}
                (pad, Some(last)) if index == 0 => *last += pad,
                (pad, _) => calls.push(pad),
            }
            segments.push(calls);
        }
        let rest = segments.split_off(segments.len().min(1));
        let first = segments.pop().unwrap_or_default();
        let others = || rest.iter().flatten().copied().chain([EPILOGUE_BYTES]);
        match self.revision {
            Revision::V20 => {
                let calls = [PREAMBLE_BYTES].into_iter().chain(first).chain(others());
                vec![calls.collect()]
            }
            Revision::V21 => {
                let (mut inline, after) = split(&first, INLINE_BYTES);
                let missing = INLINE_BYTES - inline.iter().sum::<usize>();
                match (missing, inline.last_mut()) {
                    (0, _) => {}
                    (_, Some(last)) => *last += missing,
                    (_, None) => inline.push(missing),
                }
                inline.insert(0, PREAMBLE_BYTES);
                let mut units = vec![inline];
                if !after.is_empty() {
                    units.push(after);
                }
                if !rest.is_empty() {
                    units.push(others().collect());
                }
                units
            }
        }
    }
}

/// Buffers cut after `at` bytes.
fn split(buffers: &[usize], at: usize) -> (Vec<usize>, Vec<usize>) {
    let (mut before, mut after, mut left) = (Vec::new(), Vec::new(), at);
    for len in buffers {
        let here = (*len).min(left);
        left -= here;
        if here > 0 {
            before.push(here);
        }
        if len - here > 0 {
            after.push(len - here);
        }
    }
    (before, after)
}
