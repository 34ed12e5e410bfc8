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
    let (from, to) = window.map_or((0, u64::MAX), |(from, to)| (from.0, to.0));
    let (start, end) = (span.start.0, span.end.0.max(span.start.0));
    let is_inside = match start == end {
        // A moment belongs to the window that it ends, so that the last moment has one.
        true => from < end && end <= to || end == 0 && from == 0,
        false => from < end && start < to,
    };
    if !is_inside {
        return None;
    }
    let inside = (start.max(from), end.min(to));
    let share = |whole: u64| share(whole, (start, end), inside);
    Some(Part {
        start: inside.0 - from,
        end: inside.1 - from,
        weight: share(span.weight),
        n_samples: share(u64::from(span.n_samples)),
    })
}

/// What of a whole that lies evenly in an interval is in a part of it. Adjacent parts add up.
pub(crate) fn share(whole: u64, (start, end): (u64, u64), (from, to): (u64, u64)) -> u64 {
    let until = |time: u64| match whole.checked_mul(time - start) {
        Some(product) => product / (end - start),
        None => (u128::from(whole) * u128::from(time - start) / u128::from(end - start)) as u64,
    };
    match (from, to) == (start, end) {
        true => whole,
        false => until(to) - until(from),
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
