//! Spans to sums by thread, state, wait and stack. Each shard of the threads is added up by itself.

use std::collections::{BTreeMap, HashMap};

use wcprof_trace::model::{Span, ThreadId};
use wcprof_types::TimeNs;

use crate::by_thread::ByThread;
use crate::index::{Hint, Index, Key};
use crate::locks::{LockTimes, Share};
use crate::renamed::RenamedStacks;
use crate::slices::{Blocks, Cutter, GrowingSlices};
use crate::window::{Part, Window, end_in, latest_in, part};

/// Most shards. Adding up takes about twice as long as decoding, which one thread does.
const MAX_SHARDS: usize = 8;

/// Which time counts, and what spans are told apart by.
#[derive(Debug, Default)]
pub(crate) struct Wanted {
    /// Times outside are left out.
    pub(crate) window: Window,
    pub(crate) renamed: RenamedStacks,
    pub(crate) locks: LockTimes,
}

/// The sums of one shard: of the threads whose id modulo the number of shards is its own.
#[derive(Debug)]
pub(crate) struct Sums {
    shard: u32,
    n_shards: u32,
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

/// Empty sums for each shard.
pub(crate) fn shards() -> Vec<Sums> {
    let n_shards = rayon::current_num_threads().clamp(1, MAX_SHARDS) as u32;
    let empty = |shard| Sums {
        shard,
        n_shards,
        index: Index::default(),
        firsts: Vec::new(),
        blocks: Blocks::default(),
        n_spans: 0,
        by_thread: ByThread::default(),
        cutter: Cutter::default(),
        latest: 0,
        held: HashMap::new(),
    };
    (0..n_shards).map(empty).collect()
}

impl Sums {
    fn has(&self, thread: ThreadId) -> bool {
        thread.0 % self.n_shards == self.shard
    }

    /// What a sum's lock showed; without looks, that nobody looked.
    pub(crate) fn shares_of(&self, sum: usize, weight: u64) -> Vec<(Share, u64)> {
        match self.held.get(&sum) {
            Some(held) if !held.is_empty() => held.iter().map(|(s, w)| (*s, *w)).collect(),
            _ => vec![(Share::default(), weight)],
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

impl Sums {
    /// Counts one span, and adds it if it is of this shard.
    pub(crate) fn add_span(&mut self, span: &Span, wanted: &Wanted) {
        self.widen_for(span, wanted.window);
        if self.has(span.thread)
            && let Some(ahead) = self.look_for(span, wanted)
        {
            self.add(&ahead, span, wanted, 0);
        }
        self.n_spans += 1;
    }

    /// Adds many spans (at most 2^32), as [`add_span`](Self::add_span) would one after another, but thread
    /// by thread: what one thread did fits the processor's caches.
    pub(crate) fn add_spans(&mut self, spans: &[Span], wanted: &Wanted) {
        let latest = latest_in(spans, wanted.window);
        if self.cutter.is_beyond(latest) {
            // Slices become longer somewhere in between.
            spans.iter().for_each(|span| self.add_span(span, wanted));
            return;
        }
        let mut by_thread = std::mem::take(&mut self.by_thread);
        let (sorted, order) = by_thread.sort(spans, |thread| self.has(thread));
        let mut ahead = Vec::with_capacity(N_AHEAD);
        for (spans, order) in sorted.chunks(N_AHEAD).zip(order.chunks(N_AHEAD)) {
            ahead.clear();
            ahead.extend(spans.iter().map(|span| self.look_for(span, wanted)));
            for ahead in ahead.iter_mut().flatten() {
                self.index.confirm(&ahead.key, &mut ahead.hint);
            }
            for ((ahead, span), &at) in ahead.iter().zip(spans).zip(order) {
                if let Some(ahead) = ahead {
                    self.add(ahead, span, wanted, at);
                }
            }
        }
        self.by_thread = by_thread;
        self.n_spans += spans.len() as u64;
    }

    /// `None` for a span outside the window.
    #[inline]
    fn look_for(&self, span: &Span, wanted: &Wanted) -> Option<Ahead> {
        let part = part(span, wanted.window)?;
        let key = Key::from_span(span, &wanted.renamed);
        let hint = self.index.hint(&key);
        Some(Ahead { key, hint, part })
    }

    /// Makes slices long enough for a span of any shard: all shards have slices of one length.
    fn widen_for(&mut self, span: &Span, window: Window) {
        let Some(end) = end_in(span, window) else {
            return;
        };
        while self.cutter.is_beyond(end) {
            let all = self.index.values_mut().map(|sum| &mut sum.slices);
            self.cutter.widen(all, &mut self.blocks);
        }
    }

    /// Adds the span at offset `at_span` from the spans counted so far.
    #[inline]
    fn add(&mut self, ahead: &Ahead, span: &Span, wanted: &Wanted, at_span: u32) {
        let Ahead { key, hint, part } = ahead;
        self.latest = self.latest.max(part.end);
        let (at, sum) = self.index.get_or_insert(key, *hint, Sum::default);
        sum.add(part, self.cutter, &mut self.blocks);
        if at == self.firsts.len() {
            self.firsts.push(self.n_spans + u64::from(at_span));
        }
        let Wanted { window, locks, .. } = wanted;
        if !locks.is_empty() && locks.is_wait(span) {
            let begin = window.map_or(0, |(from, _)| from.0);
            let span = Span {
                start: TimeNs(part.start + begin),
                end: TimeNs(part.end + begin),
                weight: part.weight,
                ..span.clone()
            };
            locks.shares(&span, self.held.entry(at).or_default());
        }
    }
}
