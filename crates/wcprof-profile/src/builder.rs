//! A stream of spans to a [`Profile`].
//!
//! Memory grows with distinct (thread, state, wait, stack), not with spans.

use std::sync::{Mutex, MutexGuard, PoisonError};

use wcprof_trace::model::{Span, SymbolTable, Tables};
use wcprof_types::TimeNs;

use crate::by_thread::ByThread;
use crate::functions::Functions;
use crate::held::Held;
use crate::index::{Index, Key, place_of};
use crate::locks::LockTimes;
use crate::model::{Detail, Profile, TimeAxis};
use crate::pools::pools;
use crate::processes::{gaps, modules, processes, recorded_ns, threads};
use crate::renamed::RenamedStacks;
use crate::rows::Rows;
use crate::rules::Rules;
use crate::slices::overlap;
use crate::span_rows::SpanRows;
use crate::stacks::Stacks;
use crate::sums::{Sums, Wanted};

/// Most shards.
const MAX_SHARDS: usize = 32;

/// Adds up spans, then names, classifies and groups them. Spans may come in any order, on several threads at a time.
#[derive(Debug)]
pub struct ProfileBuilder {
    /// Each has the threads whose id modulo the number of shards is its index.
    shards: Vec<Mutex<Sums>>,
    /// For who adds spans now; memory is taken once.
    unused: Mutex<Vec<ByThread>>,
    wanted: Wanted,
    detail: Detail,
}

impl Default for ProfileBuilder {
    fn default() -> Self {
        // Who finds one in use goes on with another.
        let n_shards = (4 * rayon::current_num_threads()).clamp(1, MAX_SHARDS);
        Self {
            shards: (0..n_shards).map(|_| Mutex::default()).collect(),
            unused: Mutex::default(),
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

    /// For a trace whose observations came at this rate a second; 0 when none is known.
    pub fn with_rate(mut self, rate_hz: u32) -> Self {
        self.wanted.has_rate = rate_hz > 0;
        self
    }

    /// Adds one span.
    pub fn add_span(&mut self, span: &Span) {
        let shard = place_of(span.thread) % self.shards.len();
        let sums = self.shards[shard].get_mut();
        let sums = sums.unwrap_or_else(PoisonError::into_inner);
        sums.add_span(span, &self.wanted);
    }

    /// Adds many spans (at most 2^32); some thousands at a time are fast.
    pub fn add_spans(&self, spans: &[Span]) {
        let mut by_thread = locked(&self.unused).pop().unwrap_or_default();
        let mut parts: Vec<_> = by_thread
            .sort(spans, self.shards.len())
            .zip(&self.shards)
            .filter(|(part, _)| !part.is_empty())
            .collect();
        // Those that nobody uses now, as long as there are such.
        parts.retain(|(part, shard)| match shard.try_lock() {
            Ok(mut sums) => {
                sums.add_spans(part, &self.wanted);
                false
            }
            Err(_) => true,
        });
        for (part, shard) in parts {
            locked(shard).add_spans(part, &self.wanted);
        }
        locked(&self.unused).push(by_thread);
    }

    /// The part of the recording that the spans are about; all shards have its slices from then on.
    fn axis(&self, tables: &Tables, shards: &mut [MutexGuard<'_, Sums>]) -> TimeAxis {
        let duration = tables.stats.duration.0;
        let latest = shards.iter().map(|sums| sums.latest).max().unwrap_or(0);
        let window = self.wanted.window;
        let (TimeNs(start), to) = window.unwrap_or((TimeNs(0), TimeNs(u64::MAX)));
        let end = to.0.min(duration.max(start.saturating_add(latest)));
        let end = end.max(start);
        // The recording may go on long after its last span.
        shards
            .iter_mut()
            .for_each(|sums| sums.widen_for(end - start));
        TimeAxis {
            start: TimeNs(start),
            end: TimeNs(end),
            // All shards have slices of one length.
            slice_ns: shards.first().map_or(0, |sums| sums.cutter.slice_ns()),
            is_window: window.is_some(),
            recorded_ns: recorded_ns(tables),
            gaps: gaps(tables, start, end),
            all_gaps_ns: overlap(&gaps(tables, 0, duration), 0, duration),
        }
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
        let mut shards: Vec<_> = self.shards.iter().map(locked).collect();
        let time = self.axis(tables, &mut shards);
        Held::settle(shards.iter_mut().map(|sums| &mut sums.held));
        let mut threads = threads(tables, &time);
        let processes = processes(tables, &time, rules);
        let pools = pools(&mut threads, &processes, rules);
        let symbols = symbols.or(tables.names.symbols.as_ref());
        let functions = Functions::new(tables, symbols, self.detail);
        let stacks = Stacks::new(functions, without_kernel);
        let mut rows = Rows::new(tables, (threads, pools), stacks, rules);
        // In an order that does not depend on that of the spans.
        let all = shards
            .iter()
            .flat_map(|sums| sums.index.keys().map(move |(at, key)| (*key, sums, at)));
        let mut all: Vec<_> = all.collect();
        all.sort_unstable_by_key(|(key, ..)| *key);
        for (key, sums, at) in all {
            if let Some(row) = rows.add(sums, at, &self.wanted.locks) {
                each(key, row);
            }
        }
        let profile = rows.into_profile(&time);
        Profile {
            header: tables.header.clone(),
            stats: tables.stats.clone(),
            processes,
            modules: modules(tables),
            time,
            ..profile
        }
    }
}

/// What another thread left when it panicked is not used: its panic is passed on.
fn locked<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
