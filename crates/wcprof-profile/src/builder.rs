//! A stream of spans to a [`Profile`].
//!
//! Memory grows with distinct (thread, state, wait, stack), not with spans.

use rayon::prelude::{IntoParallelRefMutIterator, ParallelIterator};
use wcprof_trace::model::{Span, SymbolTable, Tables};
use wcprof_types::TimeNs;

use crate::functions::Functions;
use crate::index::{Index, Key};
use crate::locks::LockTimes;
use crate::model::{Detail, Profile, TimeAxis};
use crate::pools::pools;
use crate::processes::{gaps, modules, processes, recorded_ns, threads};
use crate::renamed::RenamedStacks;
use crate::rows::Rows;
use crate::rules::Rules;
use crate::slices::{Blocks, overlap};
use crate::span_rows::SpanRows;
use crate::stacks::Stacks;
use crate::sums::{Sums, Wanted, shards};

/// Adds up spans, then names, classifies and groups them.
#[derive(Debug)]
pub struct ProfileBuilder {
    shards: Vec<Sums>,
    wanted: Wanted,
    detail: Detail,
}

impl Default for ProfileBuilder {
    fn default() -> Self {
        Self {
            shards: shards(),
            wanted: Wanted::default(),
            detail: Detail::default(),
        }
    }
}

impl ProfileBuilder {
    /// An empty builder.
    pub fn new() -> Self {
        Self::default()
    }

    /// Takes of each span what lies in `from..to` (since the recording began). Profiles of windows
    /// that follow each other add up to that of the whole.
    pub fn with_window(mut self, from: TimeNs, to: TimeNs) -> Self {
        self.wanted.window = Some((from, to.max(from)));
        self
    }

    /// For a trace that was read before: keeps spans of a stack whose code was replaced apart by
    /// what ran at their time.
    pub fn with_renamed(mut self, renamed: RenamedStacks) -> Self {
        self.wanted.renamed = renamed;
        self
    }

    /// Keeps frames of one function apart. States and their sums stay the same.
    pub fn with_detail(mut self, detail: Detail) -> Self {
        self.detail = detail;
        self
    }

    /// For a trace with looks at locks that was read before.
    pub fn with_locks(mut self, locks: LockTimes) -> Self {
        self.wanted.locks = locks;
        self
    }

    /// Adds one span.
    pub fn add_span(&mut self, span: &Span) {
        for shard in &mut self.shards {
            shard.add_span(span, &self.wanted);
        }
    }

    /// Adds many spans (at most 2^32) on all CPUs; the same as [`add_span`](Self::add_span) for one after the other. Some
    /// thousands at a time are fast.
    pub fn add_spans(&mut self, spans: &[Span]) {
        let (shards, wanted) = (&mut self.shards, &self.wanted);
        shards
            .par_iter_mut()
            .for_each(|shard| shard.add_spans(spans, wanted));
    }

    /// The part of the recording that the spans are about, and how often slices must become twice
    /// as long for it.
    fn axis(&self, tables: &Tables) -> (TimeAxis, u32) {
        let duration = tables.stats.duration.0;
        let latest = self.shards.iter().fold(0, |end, sums| end.max(sums.latest));
        let window = self.wanted.window;
        let (TimeNs(start), to) = window.unwrap_or((TimeNs(0), TimeNs(u64::MAX)));
        let end = to.0.min(duration.max(start.saturating_add(latest)));
        let end = end.max(start);
        // All shards have slices of one length.
        let mut cutter = self.shards[0].cutter;
        let mut n_halvings = 0;
        // The recording may go on long after its last span.
        while cutter.is_beyond(end - start) {
            cutter.widen(std::iter::empty(), &mut Blocks::default());
            n_halvings += 1;
        }
        let axis = TimeAxis {
            start: TimeNs(start),
            end: TimeNs(end),
            slice_ns: cutter.slice_ns(),
            is_window: window.is_some(),
            recorded_ns: recorded_ns(tables),
            gaps: gaps(tables, start, end),
            all_gaps_ns: overlap(&gaps(tables, 0, duration), 0, duration),
        };
        (axis, n_halvings)
    }

    /// Names frames by `symbols` (else by those saved in the trace), turns waits into states by
    /// `rules` and puts threads into pools.
    ///
    /// Spans of threads that `tables` lack are left out; the trace reader refuses such traces.
    ///
    /// The kernel's functions on the leaf side of user stacks are left out.
    pub fn finish(&self, tables: &Tables, symbols: Option<&SymbolTable>, rules: &Rules) -> Profile {
        self.build(tables, symbols, rules, true, |_, _| {})
    }

    /// A profile as [`finish`](Self::finish) makes it, and what finds the row of each span that was added.
    /// The kernel's functions are where they were recorded if asked; states are the same.
    pub fn finish_indexed(
        &self,
        tables: &Tables,
        symbols: Option<&SymbolTable>,
        rules: &Rules,
        with_kernel: bool,
    ) -> (Profile, SpanRows) {
        let mut rows = Index::default();
        let profile = self.build(tables, symbols, rules, !with_kernel, |key, row| {
            rows.get_or_insert(&key, rows.hint(&key), || row);
        });
        let found = SpanRows {
            rows,
            window: self.wanted.window,
            renamed: self.wanted.renamed.clone(),
        };
        (profile, found)
    }

    /// Calls `each` with the key of every sum and the index of its row.
    fn build(
        &self,
        tables: &Tables,
        symbols: Option<&SymbolTable>,
        rules: &Rules,
        without_kernel: bool,
        mut each: impl FnMut(Key, usize),
    ) -> Profile {
        let (time, n_halvings) = self.axis(tables);
        let mut threads = threads(tables, &time);
        let processes = processes(tables, &time, rules);
        let pools = pools(&mut threads, &processes, rules);
        let symbols = symbols.or(tables.names.symbols.as_ref());
        let functions = Functions::new(tables, symbols, self.detail);
        let stacks = Stacks::new(functions, without_kernel);
        let mut rows = Rows::new(tables, (threads, pools), stacks, rules);
        // In the order in which the sums first appeared.
        let mut order = Vec::new();
        for sums in &self.shards {
            let firsts = sums.firsts.iter().enumerate();
            order.extend(firsts.map(|(at, first)| (*first, sums, at)));
        }
        order.sort_unstable_by_key(|(first, ..)| *first);
        for (_, sums, at) in order {
            let row = rows.add(sums, at, n_halvings, &self.wanted.locks);
            if let (Some(row), Some((key, _))) = (row, sums.index.get(at)) {
                each(*key, row);
            }
        }
        Profile {
            header: tables.header.clone(),
            stats: tables.stats.clone(),
            processes,
            modules: modules(tables),
            time,
            ..rows.into_profile()
        }
    }
}
