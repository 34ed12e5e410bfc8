//! `32,48 | 285,3,4096x4,16` to lists of call sizes and back.

use std::fmt::Write;

/// Most GCM units in a frame: preamble; rest of segment 0; the other segments.
pub const MAX_UNITS: usize = 3;
/// Most update calls in a frame: a payload of 16 MiB in pages of 4 KiB, and some.
pub const MAX_CALLS: usize = 8192;
/// Most bytes in a frame.
pub const MAX_FRAME_BYTES: usize = 64 << 20;

/// Calls that are not in the notation, or too many.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
#[non_exhaustive]
pub enum NotationError {
    /// Not a number of bytes.
    #[error("`{0}` is no call: write its bytes, as in `4096`, or `4096x4` for four calls")]
    Call(String),
    /// `4096x0`.
    #[error("`{0}` makes no call")]
    NoTimes(String),
    /// Nothing between two separators.
    #[error("unit {0} has no calls")]
    EmptyUnit(usize),
    /// More than [`MAX_UNITS`].
    #[error("more than {MAX_UNITS} units; a frame has at most preamble, segment 0 and the rest")]
    Units,
    /// More than [`MAX_CALLS`].
    #[error("more than {MAX_CALLS} calls")]
    Calls,
    /// More than [`MAX_FRAME_BYTES`].
    #[error("more than {MAX_FRAME_BYTES} bytes")]
    Bytes,
    /// Only empty calls.
    #[error("no call has any bytes")]
    NoBytes,
}

pub(super) fn parse(text: &str) -> Result<Vec<Vec<usize>>, NotationError> {
    let mut units = Vec::new();
    let (mut n_calls, mut n_bytes) = (0_usize, 0_usize);
    for (index, unit) in text.split('|').enumerate() {
        if index == MAX_UNITS {
            return Err(NotationError::Units);
        }
        if unit.trim().is_empty() {
            return Err(NotationError::EmptyUnit(index + 1));
        }
        let mut calls = Vec::new();
        for call in unit.split(',') {
            let (len, times) = parse_call(call.trim())?;
            n_calls = n_calls.saturating_add(times);
            if n_calls > MAX_CALLS {
                return Err(NotationError::Calls);
            }
            n_bytes = n_bytes.saturating_add(len.saturating_mul(times));
            if n_bytes > MAX_FRAME_BYTES {
                return Err(NotationError::Bytes);
            }
            calls.extend(std::iter::repeat_n(len, times));
        }
        units.push(calls);
    }
    match n_bytes {
        0 => Err(NotationError::NoBytes),
        _ => Ok(units),
    }
}

fn parse_call(text: &str) -> Result<(usize, usize), NotationError> {
    // What is shown of a hostile file is short.
    let shown = || text.chars().take(20).collect::<String>();
    let number = |digits: &str| {
        let digits = digits.trim();
        match digits.bytes().all(|b| b.is_ascii_digit()) {
            true => digits.parse().ok(),
            false => None,
        }
    };
    let (len, times) = match text.split_once('x') {
        Some((len, times)) => (number(len), number(times)),
        None => (number(text), Some(1)),
    };
    match (len, times) {
        (Some(_), Some(0)) => Err(NotationError::NoTimes(shown())),
        (Some(len), Some(times)) => Ok((len, times)),
        _ => Err(NotationError::Call(shown())),
    }
}

pub(super) fn write(units: &[Vec<usize>]) -> String {
    let mut out = String::new();
    for (index, unit) in units.iter().enumerate() {
        if index > 0 {
            out.push_str(" | ");
        }
        for (index, run) in unit.chunk_by(|a, b| a == b).enumerate() {
            if index > 0 {
                out.push(',');
            }
            // Writing to a string cannot fail.
            let _ = write!(out, "{}", run[0]);
            if run.len() > 1 {
                let _ = write!(out, "x{}", run.len());
            }
        }
    }
    out
}
