//! Spans to sums by thread, state, wait and stack. The order of the spans does not matter.

use wcprof_trace::model::Span;
use wcprof_types::{ThreadState, TimeNs};

use crate::held::Held;
use crate::index::{Hint, Index, Key};
use crate::locks::LockTimes;
use crate::renamed::RenamedStacks;
use crate::slices::{Blocks, Cutter, GrowingSlices};
use crate::window::{Part, Window, latest_in, part};

/// Which time counts, and what spans are told apart by.
#[derive(Debug)]
pub(crate) struct Wanted {
    /// Times outside are left out.
    pub(crate) window: Window,
    pub(crate) renamed: RenamedStacks,
    pub(crate) locks: LockTimes,
    /// Observations came at a known rate: without one nothing is said of the precision of time in an unknown state, and its
    /// slices are not kept.
    pub(crate) has_rate: bool,
}

impl Default for Wanted {
    fn default() -> Self {
        Self {
            window: Window::default(),
            renamed: RenamedStacks::default(),
            locks: LockTimes::default(),
            has_rate: true,
        }
    }
}

/// The sums of some threads.
#[derive(Debug, Default)]
pub(crate) struct Sums {
    pub(crate) index: Index<Sum>,
    pub(crate) blocks: Blocks,
    pub(crate) cutter: Cutter,
    /// The latest end of a span, since the window begins.
    pub(crate) latest: u64,
    pub(crate) held: Held,
}

#[derive(Clone, Debug, Default)]
pub(crate) struct Sum {
    pub(crate) weight: u64,
    pub(crate) n_samples: u64,
    pub(crate) slices: GrowingSlices,
}

impl Sum {
    #[inline]
    fn add(&mut self, part: &Part, slices: Option<Cutter>, blocks: &mut Blocks) {
        self.weight = self.weight.saturating_add(part.weight);
        self.n_samples = self.n_samples.saturating_add(part.n_samples);
        if let Some(cutter) = slices
            && part.weight > 0
        {
            let interval = (part.start, part.end);
            cutter.add(&mut self.slices, blocks, interval, part.weight);
        }
    }
}

/// Spans that are looked for before the first of them is added.
const N_AHEAD: usize = 32;

/// Where a span's sum probably is, and what of the span counts.
#[derive(Copy, Clone)]
struct Ahead {
    key: Key,
    hint: Hint,
    part: Part,
}

impl Sums {
    /// Adds one span.
    pub(crate) fn add_span(&mut self, span: &Span, wanted: &Wanted) {
        self.widen_for(latest_in(std::slice::from_ref(span), wanted.window));
        if let Some(ahead) = self.look_for(span, wanted) {
            self.add(&ahead, span, wanted);
        }
    }

    /// Adds spans; those of one thread together fit the processor's caches.
    pub(crate) fn add_spans(&mut self, spans: &[Span], wanted: &Wanted) {
        self.widen_for(latest_in(spans, wanted.window));
        let mut ahead = Vec::with_capacity(N_AHEAD);
        for spans in spans.chunks(N_AHEAD) {
            ahead.clear();
            ahead.extend(spans.iter().map(|span| self.look_for(span, wanted)));
            for ahead in ahead.iter_mut().flatten() {
                self.index.confirm(&ahead.key, &mut ahead.hint);
            }
            for (ahead, span) in ahead.iter().zip(spans) {
                if let Some(ahead) = ahead {
                    self.add(ahead, span, wanted);
                }
            }
        }
    }

    /// `None` for a span outside the window.
    #[inline]
    fn look_for(&self, span: &Span, wanted: &Wanted) -> Option<Ahead> {
        let part = part(span, wanted.window)?;
        let key = Key::from_span(span, &wanted.renamed);
        let hint = self.index.hint(&key);
        Some(Ahead { key, hint, part })
    }

    /// Makes slices long enough for a time since the window begins.
    pub(crate) fn widen_for(&mut self, end: u64) {
        while self.cutter.is_beyond(end) {
            let all = self.index.values_mut().map(|sum| &mut sum.slices);
            self.cutter.widen(all, &mut self.blocks);
        }
    }

    #[inline]
    fn add(&mut self, ahead: &Ahead, span: &Span, wanted: &Wanted) {
        let Ahead { key, hint, part } = ahead;
        self.latest = self.latest.max(part.end);
        let (at, sum) = self.index.get_or_insert(key, *hint, Sum::default);
        let has_slices = wanted.has_rate || span.state != ThreadState::Unknown;
        let slices = has_slices.then_some(self.cutter);
        sum.add(part, slices, &mut self.blocks);
        let Wanted { window, locks, .. } = wanted;
        if !locks.is_empty() && locks.is_wait(span) {
            let begin = window.map_or(0, |(from, _)| from.0);
            let span = Span {
                start: TimeNs(part.start + begin),
                end: TimeNs(part.end + begin),
                weight: part.weight,
                ..span.clone()
            };
            self.held.add(at, &span, locks);
        }
    }
}
