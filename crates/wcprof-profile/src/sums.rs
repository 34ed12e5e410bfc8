//! Spans to sums by thread, state, wait and stack, in shards of threads that are added up side by side.

use std::collections::{BTreeMap, HashMap};

use wcprof_trace::model::{Span, ThreadId};
use wcprof_types::TimeNs;

use crate::by_thread::ByThread;
use crate::index::{Hint, Index, Key};
use crate::locks::{LockTimes, Share};
use crate::renamed::RenamedStacks;
use crate::slices::{Blocks, Cutter, GrowingSlices};
use crate::window::{Part, Window, end_in, latest_in, part};

/// Shards of the threads. Decoding takes about as long as adding up one of two.
pub(crate) const N_SHARDS: usize = 2;

/// The shard that a thread is in.
#[inline]
pub(crate) fn shard_of(thread: ThreadId) -> usize {
    thread.0 as usize % N_SHARDS
}

/// Which time counts, and what spans are told apart by.
#[derive(Debug, Default)]
pub(crate) struct Wanted {
    /// Times outside are left out.
    pub(crate) window: Window,
    pub(crate) renamed: RenamedStacks,
    pub(crate) locks: LockTimes,
}

/// The sums of one shard.
#[derive(Debug, Default)]
pub(crate) struct Sums {
    pub(crate) index: Index<Sum>,
    /// By sum: the place of its first span among those of all shards.
    pub(crate) firsts: Vec<u64>,
    pub(crate) blocks: Blocks,
    /// Of all shards.
    n_spans: u64,
    by_thread: ByThread,
    pub(crate) cutter: Cutter,
    /// The latest end of a span, since the window begins.
    pub(crate) latest: u64,
    /// By sum: what its lock's memory showed.
    held: HashMap<usize, BTreeMap<Share, u64>>,
}

impl Sums {
    /// What a sum's lock showed; without looks, that nobody looked.
    pub(crate) fn shares_of(&self, sum: usize, weight: u64) -> Vec<(Share, u64)> {
        match self.held.get(&sum) {
            Some(held) if !held.is_empty() => held.iter().map(|(s, w)| (*s, *w)).collect(),
            _ => vec![(Share::NOT_LOOKED, weight)],
        }
    }
}

#[derive(Clone, Debug, Default)]
pub(crate) struct Sum {
    pub(crate) weight: u64,
    pub(crate) n_samples: u64,
    pub(crate) slices: GrowingSlices,
}

impl Sum {
    #[inline]
    fn add(&mut self, part: &Part, cutter: Cutter, blocks: &mut Blocks) {
        self.weight = self.weight.saturating_add(part.weight);
        self.n_samples = self.n_samples.saturating_add(part.n_samples);
        if part.weight > 0 {
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

/// Adds up the spans of one shard's threads.
#[derive(Debug)]
pub struct Adder<'b> {
    shard: usize,
    wanted: &'b Wanted,
    sums: &'b mut Sums,
}

impl<'b> Adder<'b> {
    pub(crate) fn new(shard: usize, wanted: &'b Wanted, sums: &'b mut Sums) -> Self {
        Self {
            shard,
            wanted,
            sums,
        }
    }

    /// Adds one span.
    pub fn add_span(&mut self, span: &Span) {
        self.widen_for(span);
        if shard_of(span.thread) == self.shard
            && let Some(ahead) = self.look_for(span)
        {
            self.add(&ahead, span, 0);
        }
        self.sums.n_spans += 1;
    }

    /// Adds many spans (at most 2^32), as [`add_span`](Self::add_span) would one after another, but thread
    /// by thread: what one thread did fits the processor's caches.
    pub fn add_spans(&mut self, spans: &[Span]) {
        let latest = latest_in(spans, self.wanted.window);
        if self.sums.cutter.is_beyond(latest) {
            // Slices become longer somewhere in between.
            spans.iter().for_each(|span| self.add_span(span));
            return;
        }
        let mut by_thread = std::mem::take(&mut self.sums.by_thread);
        let (sorted, order) = by_thread.sort(spans, |thread| shard_of(thread) == self.shard);
        let mut ahead = Vec::with_capacity(N_AHEAD);
        for (spans, order) in sorted.chunks(N_AHEAD).zip(order.chunks(N_AHEAD)) {
            ahead.clear();
            ahead.extend(spans.iter().map(|span| self.look_for(span)));
            for ahead in ahead.iter_mut().flatten() {
                self.sums.index.confirm(&ahead.key, &mut ahead.hint);
            }
            for ((ahead, span), &at) in ahead.iter().zip(spans).zip(order) {
                if let Some(ahead) = ahead {
                    self.add(ahead, span, at);
                }
            }
        }
        self.sums.by_thread = by_thread;
        self.sums.n_spans += spans.len() as u64;
    }

    /// `None` for a span outside the window.
    #[inline]
    fn look_for(&self, span: &Span) -> Option<Ahead> {
        let part = part(span, self.wanted.window)?;
        let key = Key::of(span, &self.wanted.renamed);
        let hint = self.sums.index.hint(&key);
        Some(Ahead { key, hint, part })
    }

    /// Makes slices long enough for a span, be it of this shard or not: all shards have the same.
    fn widen_for(&mut self, span: &Span) {
        let Some(end) = end_in(span, self.wanted.window) else {
            return;
        };
        let sums = &mut *self.sums;
        while sums.cutter.is_beyond(end) {
            let all = sums.index.values_mut().map(|sum| &mut sum.slices);
            sums.cutter.widen(all, &mut sums.blocks);
        }
    }

    /// Adds the span that comes so many after those of before.
    #[inline]
    fn add(&mut self, ahead: &Ahead, span: &Span, at_span: u32) {
        let Ahead { key, hint, part } = ahead;
        let sums = &mut *self.sums;
        sums.latest = sums.latest.max(part.end);
        let (at, sum) = sums.index.get_or_insert(key, *hint, Sum::default);
        sum.add(part, sums.cutter, &mut sums.blocks);
        if at == sums.firsts.len() {
            sums.firsts.push(sums.n_spans + u64::from(at_span));
        }
        let Wanted { window, locks, .. } = self.wanted;
        if !locks.is_empty() && locks.is_wait(span) {
            let begin = window.map_or(0, |(from, _)| from.0);
            let span = Span {
                start: TimeNs(part.start + begin),
                end: TimeNs(part.end + begin),
                weight: part.weight,
                ..span.clone()
            };
            let held = sums.held.entry(at).or_default();
            locks.shares(&span, held);
        }
    }
}
