//! A stream of spans to a [`Profile`].
//!
//! Memory grows with distinct (thread, state, wait, stack), not with spans.

use std::collections::HashMap;

use wcprof_trace::model::{Span, StackId, SymbolTable, Tables, ThreadId, WaitId};
use wcprof_types::{ThreadState, TimeNs};

use crate::classify::{Classifier, Subject};
use crate::functions::{Functions, later_names};
use crate::model::{Profile, ProfileThread, Row};
use crate::pools::pools;
use crate::rules::Rules;
use crate::stacks::Stacks;

/// The name of the thread (tid 0) that holds the CPU time of threads that exited unseen.
const EXITED: &str = "[exited threads, not sampled]";

#[derive(Copy, Clone, PartialEq, Eq, Hash, Debug)]
struct Key {
    thread: ThreadId,
    state: ThreadState,
    wait: Option<WaitId>,
    stack: Option<StackId>,
    /// When the names of its frames began to hold, see [`RenamedStacks`].
    since: TimeNs,
}

#[derive(Copy, Clone, Debug)]
struct Sum {
    key: Key,
    weight: u64,
    n_samples: u64,
}

/// Adds up spans, then names, classifies and groups them.
#[derive(Debug, Default)]
pub struct ProfileBuilder {
    /// In the order of first appearance, so that the profile does not depend on hashing.
    sums: Vec<Sum>,
    index: HashMap<Key, usize>,
    /// The last sum of each thread: most spans of a blocked thread repeat the one before.
    last: Vec<Option<usize>>,
    renamed: RenamedStacks,
}

/// Stacks with code that took the place of other code while it was recorded: when that was, in
/// order. Known only when a whole trace was read.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct RenamedStacks(HashMap<StackId, Vec<TimeNs>>);

impl RenamedStacks {
    /// Those of a trace; most have none.
    pub fn of(tables: &Tables) -> Self {
        let mut stacks = HashMap::new();
        if tables.local_names.later.is_empty() {
            return Self(stacks);
        }
        for (id, stack) in (0..).map(StackId).zip(&tables.stacks) {
            let mut times = Vec::new();
            let mut next = stack.leaf;
            while let Some(node) = next.and_then(|id| tables.nodes.get(id.0 as usize)) {
                times.extend(later_names(tables, node.frame).iter().map(|n| n.since));
                // A caller has a smaller id, so that a forged chain cannot be a ring.
                next = node.caller.filter(|caller| Some(*caller) < next);
            }
            if !times.is_empty() {
                times.sort_unstable();
                times.dedup();
                stacks.insert(id, times);
            }
        }
        Self(stacks)
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// The last change of a stack's names until `time`.
    fn since(&self, stack: Option<StackId>, time: TimeNs) -> TimeNs {
        let times = stack
            .and_then(|id| self.0.get(&id))
            .map_or(&[][..], Vec::as_slice);
        let n = times.partition_point(|&since| since <= time);
        n.checked_sub(1)
            .and_then(|i| times.get(i))
            .copied()
            .unwrap_or_default()
    }
}

impl ProfileBuilder {
    /// An empty builder.
    pub fn new() -> Self {
        Self::default()
    }

    /// An empty builder for a trace that was read before: spans of a stack whose code was replaced
    /// are kept apart by what ran at their time.
    pub fn with_renamed(renamed: RenamedStacks) -> Self {
        Self {
            renamed,
            ..Self::default()
        }
    }

    /// Adds one span.
    pub fn add_span(&mut self, span: &Span) {
        let key = Key {
            thread: span.thread,
            state: span.state,
            wait: span.wait,
            stack: span.stack,
            since: self.renamed.since(span.stack, span.end),
        };
        let thread = span.thread.0 as usize;
        if let Some(&Some(last)) = self.last.get(thread)
            && let Some(sum) = self.sums.get_mut(last)
            && sum.key == key
        {
            sum.weight = sum.weight.saturating_add(span.weight);
            sum.n_samples += u64::from(span.n_samples);
            return;
        }
        let at = *self.index.entry(key).or_insert_with(|| {
            self.sums.push(Sum {
                key,
                weight: 0,
                n_samples: 0,
            });
            self.sums.len() - 1
        });
        self.sums[at].weight = self.sums[at].weight.saturating_add(span.weight);
        self.sums[at].n_samples += u64::from(span.n_samples);
        // Ids are dense; a forged one must not size a table.
        if thread < 1 << 20 {
            if self.last.len() <= thread {
                self.last.resize(thread + 1, None);
            }
            self.last[thread] = Some(at);
        }
    }

    /// Names frames by `symbols` (else by those saved in the trace), turns waits into states by
    /// `rules` and puts threads into pools.
    ///
    /// Spans of threads that `tables` lack are left out; the trace reader refuses such traces.
    ///
    /// The kernel's functions below user stacks are left out.
    pub fn finish(&self, tables: &Tables, symbols: Option<&SymbolTable>, rules: &Rules) -> Profile {
        self.build(tables, symbols, rules, true)
    }

    /// The same with the kernel's functions where they were recorded. States are the same.
    pub fn finish_with_kernel(
        &self,
        tables: &Tables,
        symbols: Option<&SymbolTable>,
        rules: &Rules,
    ) -> Profile {
        self.build(tables, symbols, rules, false)
    }

    fn build(
        &self,
        tables: &Tables,
        symbols: Option<&SymbolTable>,
        rules: &Rules,
        without_kernel: bool,
    ) -> Profile {
        let symbols = symbols.or(tables.symbols.as_ref());
        let mut threads: Vec<ProfileThread> = tables
            .threads
            .iter()
            .map(|thread| {
                let process = tables.processes.get(thread.process.0 as usize);
                ProfileThread {
                    pid: process.map_or(wcprof_types::Pid(0), |p| p.pid),
                    process_comm: process.map_or_else(String::new, |p| p.comm.clone()),
                    tid: thread.tid,
                    comm: match thread.tid.0 {
                        0 => EXITED.to_owned(),
                        _ => thread.name().to_owned(),
                    },
                    pool: 0,
                    n_ticks: thread.n_ticks,
                    observed_ns: thread.end.0.saturating_sub(thread.start.0),
                }
            })
            .collect();
        let pools = pools(&mut threads, rules);

        let mut functions = Functions::default();
        let mut stacks = Stacks::new(without_kernel);
        let mut classifier = Classifier::new(rules);
        let mut waits = Vec::new();
        let mut wait_ids: HashMap<WaitId, u32> = HashMap::new();
        let mut rows: Vec<Row> = Vec::new();
        let mut row_ids = HashMap::new();
        for sum in &self.sums {
            let at = sum.key.thread.0 as usize;
            let Some(thread) = threads.get(at) else {
                continue;
            };
            let wait = sum
                .key
                .wait
                .and_then(|id| Some((id, tables.waits.get(id.0 as usize)?)));
            let mut stack = sum
                .key
                .stack
                .and_then(|id| stacks.of_trace(id, sum.key.since, &mut functions, tables, symbols));
            if let Some((_, w)) = wait
                && !w.kernel.is_empty()
                && stack.is_none_or(|id| stacks.is_empty(id))
            {
                stack = Some(stacks.of_kernel_place(&w.kernel, &mut functions));
            }
            let state = classifier.state(&Subject {
                raw: sum.key.state,
                wait: wait.map(|(_, w)| w),
                stack,
                stacks: &stacks.list,
                functions: &functions.list,
                comm: &thread.comm,
                pool: pools.get(thread.pool).map_or("", |p| p.name.as_str()),
                process: &thread.process_comm,
            });
            let wait = wait.map(|(id, w)| {
                *wait_ids.entry(id).or_insert_with(|| {
                    waits.push(w.clone());
                    (waits.len() - 1) as u32
                })
            });
            let row = *row_ids.entry((at, state, stack, wait)).or_insert_with(|| {
                rows.push(Row {
                    thread: at,
                    state,
                    stack,
                    wait,
                    weight: 0,
                    n_samples: 0,
                });
                rows.len() - 1
            });
            rows[row].weight = rows[row].weight.saturating_add(sum.weight);
            rows[row].n_samples = rows[row].n_samples.saturating_add(sum.n_samples);
        }
        for row in &rows {
            // The stand-in thread has no lifetime of its own.
            if threads[row.thread].tid.0 == 0 {
                threads[row.thread].observed_ns = 0;
            }
        }
        for row in &rows {
            let thread = &mut threads[row.thread];
            if thread.tid.0 == 0 {
                thread.observed_ns = thread.observed_ns.saturating_add(row.weight);
            }
        }
        Profile {
            header: tables.header.clone(),
            stats: tables.stats.clone(),
            functions: functions.list,
            stacks: stacks.list,
            threads,
            pools,
            waits,
            rows,
        }
    }
}
