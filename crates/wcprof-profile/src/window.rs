//! What of a span lies in the part of a recording that is wanted.

use wcprof_trace::model::Span;
use wcprof_types::TimeNs;

/// Begin and end of what is wanted; `None` for all of the recording.
pub(crate) type Window = Option<(TimeNs, TimeNs)>;

/// A span's part in the window.
#[derive(Copy, Clone, Debug)]
pub(crate) struct Part {
    /// Since the window begins, ns.
    pub(crate) start: u64,
    pub(crate) end: u64,
    pub(crate) weight: u64,
    pub(crate) n_samples: u64,
}

/// What of a span lies in the window; `None` for nothing. Parts of adjacent windows add up.
#[inline]
pub(crate) fn part(span: &Span, window: Window) -> Option<Part> {
    let (start, end) = (span.start.0, span.end.0.max(span.start.0));
    let n_samples = u64::from(span.n_samples);
    match window {
        Some(window) => part_of_window(span, window),
        None => Some(Part {
            start,
            end,
            weight: span.weight,
            n_samples,
        }),
    }
}

fn part_of_window(span: &Span, (from, to): (TimeNs, TimeNs)) -> Option<Part> {
    let (start, end) = (span.start.0, span.end.0.max(span.start.0));
    let n_samples = u64::from(span.n_samples);
    // A moment belongs to the window that it ends, so that the last moment has one.
    if start == end && !(from.0 < end && end <= to.0 || (end == 0 && from.0 == 0)) {
        return None;
    }
    if start != end && (end <= from.0 || to.0 <= start) {
        return None;
    }
    let (a, b) = (start.max(from.0), end.min(to.0));
    let until = |whole: u64, time: u64| match end - start {
        0 => whole,
        length => (u128::from(whole) * u128::from(time - start) / u128::from(length)) as u64,
    };
    let share = |whole| match start == end {
        true => whole,
        false => until(whole, b) - until(whole, a),
    };
    Some(Part {
        start: a - from.0.min(a),
        end: b - from.0.min(b),
        weight: share(span.weight),
        n_samples: share(n_samples),
    })
}

/// The end of what of a span lies in the window, since the window begins.
pub(crate) fn end_in(span: &Span, window: Window) -> Option<u64> {
    match window {
        None => Some(span.end.0.max(span.start.0)),
        Some(_) => part(span, window).map(|part| part.end),
    }
}

/// No span of these ends later in the window than this, since the window begins.
pub(crate) fn latest_in(spans: &[Span], window: Window) -> u64 {
    let ends = spans.iter().map(|span| span.end.0.max(span.start.0));
    let latest = ends.max().unwrap_or(0);
    match window {
        None => latest,
        Some((from, to)) => latest.min(to.0).saturating_sub(from.0),
    }
}
