//! `32,48 | 285,3,4096x4,16` to lists of call sizes and back.

use crate::file_error::{FileError, ensure};

/// Most GCM units in a frame: preamble; rest of segment 0; the other segments.
const MAX_UNITS: usize = 3;
/// Most update calls in a frame: a payload of 16 MiB in pages of 4 KiB, and some.
pub(crate) const MAX_CALLS: usize = 8192;
/// Most bytes in a frame.
pub(crate) const MAX_FRAME_BYTES: usize = 64 << 20;

pub(super) fn parse(text: &str) -> Result<Vec<Vec<usize>>, FileError> {
    let mut units = Vec::new();
    let (mut n_calls, mut n_bytes) = (0_usize, 0_usize);
    for (index, unit) in text.split('|').enumerate() {
        ensure(index < MAX_UNITS, || {
            format!(
                "more than {MAX_UNITS} units; a frame has at most preamble, segment 0 and the rest"
            )
        })?;
        let has_calls = !unit.trim().is_empty();
        ensure(has_calls, || format!("unit {} has no calls", index + 1))?;
        let mut calls = Vec::new();
        for call in unit.split(',') {
            let (len, times) = parse_call(call.trim())?;
            n_calls = n_calls.saturating_add(times);
            ensure(n_calls <= MAX_CALLS, || {
                format!("more than {MAX_CALLS} calls")
            })?;
            n_bytes = n_bytes.saturating_add(len.saturating_mul(times));
            let fits = n_bytes <= MAX_FRAME_BYTES;
            ensure(fits, || format!("more than {MAX_FRAME_BYTES} bytes"))?;
            calls.extend(std::iter::repeat_n(len, times));
        }
        units.push(calls);
    }
    ensure(n_bytes > 0, || "no call has any bytes".to_owned())?;
    Ok(units)
}

fn parse_call(text: &str) -> Result<(usize, usize), FileError> {
    let number = |digits: &str| {
        let digits = digits.trim();
        let is_number = digits.bytes().all(|b| b.is_ascii_digit());
        digits.parse().ok().filter(|_| is_number)
    };
    let (len, times) = text.split_once('x').unwrap_or((text, "1"));
    // What is shown of a hostile file is short.
    let shown = || text.chars().take(20).collect::<String>();
    match (number(len), number(times)) {
        (Some(_), Some(0)) => Err(FileError(format!("`{}` makes no call", shown()))),
        (Some(len), Some(times)) => Ok((len, times)),
        _ => Err(FileError(format!(
            "`{}` is no call: write its bytes, as in `4096`, or `4096x4` for four calls",
            shown()
        ))),
    }
}

pub(super) fn write(units: &[Vec<usize>]) -> String {
    let run = |run: &[usize]| match run.len() {
        1 => run[0].to_string(),
        n => format!("{}x{n}", run[0]),
    };
    let unit = |unit: &Vec<usize>| {
        let runs: Vec<String> = unit.chunk_by(|a, b| a == b).map(run).collect();
        runs.join(",")
    };
    units.iter().map(unit).collect::<Vec<_>>().join(" | ")
}
