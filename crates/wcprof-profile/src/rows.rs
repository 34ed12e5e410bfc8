//! Sums of spans to the rows of a profile: stacks named, states by rules, holders of locks.

use std::borrow::Cow;
use std::collections::{BTreeMap, HashMap};

use indexmap::{IndexMap, IndexSet};
use rayon::prelude::{IntoParallelIterator, ParallelIterator};
use wcprof_trace::FastState;
use wcprof_trace::model::{LockOwner, Tables, WaitId};
use wcprof_types::{ThreadState, Tid, TimeNs, Wait};

use crate::classify::{Classifier, Subject};
use crate::deadlocks::deadlocks;
use crate::index::Key;
use crate::locks::{LockTimes, Share, is_recursive, kind_of, owner, raw_state};
use crate::model::{
    FunctionId, Holder, LockKind, LockRow, LockRows, Pool, Profile, ProfileStackId, ProfileThread,
    Reason, Row, State, UnknownHolder,
};
use crate::places::{Place, Seen, is_runtime, places};
use crate::rules::Rules;
use crate::slices::{Slices, TimeAxis};
use crate::stacks::Stacks;
use crate::sums::Sums;

/// What rows are told apart by: thread, state, stack and wait.
type RowKey = (usize, State, Option<ProfileStackId>, Option<u32>);

/// The rows so far, and all that they refer to.
pub(crate) struct Rows<'a> {
    tables: &'a Tables,
    threads: Vec<ProfileThread>,
    pools: Vec<Pool>,
    stacks: Stacks<'a>,
    classifier: Classifier<'a>,
    waits: IndexSet<Wait>,
    /// Indices into `waits`.
    wait_ids: HashMap<WaitId, u32, FastState>,
    rows: IndexMap<RowKey, Row, FastState>,
    /// Lost time by what lock rows are told apart by, each with weight 0.
    locks: IndexMap<LockRow, u64>,
}

impl<'a> Rows<'a> {
    /// No rows yet.
    pub(crate) fn new(
        tables: &'a Tables,
        (threads, pools): (Vec<ProfileThread>, Vec<Pool>),
        stacks: Stacks<'a>,
        rules: &'a Rules,
    ) -> Self {
        Self {
            tables,
            threads,
            pools,
            stacks,
            classifier: Classifier::new(rules),
            waits: IndexSet::new(),
            wait_ids: HashMap::default(),
            rows: IndexMap::default(),
            locks: IndexMap::new(),
        }
    }

    /// Adds the sum at an index. Gives the index of its row; `None` for a thread that the tables lack.
    pub(crate) fn add(&mut self, sums: &Sums, at: usize, locks: &LockTimes) -> Option<usize> {
        let (key, sum) = sums.index.get(at)?;
        let thread = key.thread().0 as usize;
        self.threads.get(thread)?;
        let tables = self.tables;
        let wait = key
            .wait()
            .and_then(|id| Some((id, tables.waits.get(id.0 as usize)?)));
        let mut stack = self.stack(key);
        if let Some((_, wait)) = wait
            && !wait.kernel.is_empty()
            && stack.is_none_or(|id| self.stacks.get(id).is_none_or(|s| s.frames.is_empty()))
        {
            stack = Some(self.stacks.of_kernel_place(&wait.kernel));
        }
        let wait_of = wait.map(|(_, wait)| wait);
        let (state, reason) = self.state(key.state(), wait_of, stack, thread);
        let kind = self.lock_kind(state, stack, wait_of);
        if state == State::Lock || kind == LockKind::Join {
            let shares = sums.held.of_sum(at, sum.weight);
            self.add_lock(key, shares, (kind, stack, wait_of), locks);
        }
        // Waits for several locks at one place are one row.
        let wait = wait.map(|(id, wait)| {
            *self.wait_ids.entry(id).or_insert_with(|| {
                let wait = Wait {
                    futex: None,
                    ..wait.clone()
                };
                self.waits.insert_full(wait).0 as u32
            })
        });
        if !self.rows.contains_key(&(thread, state, stack, wait)) {
            stack = stack.map(|id| self.stacks.of_row(id));
        }
        let entry = self.rows.entry((thread, state, stack, wait));
        let index = entry.index();
        let row = entry.or_insert_with(|| Row {
            thread,
            state,
            reason,
            stack,
            wait,
            weight: 0,
            n_samples: 0,
            slices: Slices::default(),
        });
        row.slices.merge(&sum.slices, &sums.blocks);
        row.weight = row.weight.saturating_add(sum.weight);
        row.n_samples = row.n_samples.saturating_add(sum.n_samples);
        Some(index)
    }

    fn stack(&mut self, key: &Key) -> Option<ProfileStackId> {
        self.stacks.of_trace(key.stack()?, key.since)
    }

    /// What a thread did, as [`Classifier::state`]; the index may be one of no thread.
    fn state(
        &mut self,
        raw: ThreadState,
        wait: Option<&Wait>,
        stack: Option<ProfileStackId>,
        thread: usize,
    ) -> (State, Reason) {
        let thread = self.threads.get(thread);
        let pool = thread.and_then(|thread| self.pools.get(thread.pool));
        self.classifier.state(&Subject {
            raw,
            wait,
            stack,
            stacks: &self.stacks,
            comm: thread.map_or("", |thread| &thread.comm),
            pool: pool.map_or("", |pool| &pool.name),
            process: thread.map_or("", |thread| &thread.process_comm),
        })
    }

    /// What is waited for: a kind of lock, or the end of a thread.
    fn lock_kind(
        &self,
        state: State,
        stack: Option<ProfileStackId>,
        wait: Option<&Wait>,
    ) -> LockKind {
        match (stack.and_then(|id| self.stacks.get(id)), wait) {
            (Some(stack), Some(wait)) if state == State::Lock || wait.futex.is_some() => {
                kind_of(stack, &self.stacks.functions, wait)
            }
            _ => LockKind::Other,
        }
    }

    /// Adds time that was lost to a lock, by who held it.
    fn add_lock(
        &mut self,
        key: &Key,
        shares: Vec<(Share, u64)>,
        (kind, stack, wait): (LockKind, Option<ProfileStackId>, Option<&Wait>),
        locks: &LockTimes,
    ) {
        for (share, weight) in shares {
            let found = share.found.and_then(|id| locks.found(id));
            let owner = match (kind, wait, found) {
                (LockKind::Other, ..) => Err(UnknownHolder::NotRecorded),
                (_, Some(wait), Some(found)) => owner(kind, wait, found, key.thread()),
                _ => Err(UnknownHolder::NotLooked),
            };
            let row = LockRow {
                thread: key.thread().0 as usize,
                stack,
                address: wait.and_then(|wait| wait.futex),
                kind,
                recursive: found.is_some_and(|found| is_recursive(kind, &found.words)),
                holder: owner.map(|owner| self.holder(&owner, key.since, share.moved)),
                weight: 0,
            };
            let lost = self.locks.entry(row).or_default();
            *lost = lost.saturating_add(weight);
        }
    }

    fn holder(&mut self, owner: &LockOwner, since: TimeNs, waiter_moved: bool) -> Holder {
        let tables = self.tables;
        let wait = owner.wait.and_then(|id| tables.waits.get(id.0 as usize));
        let stack = owner.stack.and_then(|id| self.stacks.of_trace(id, since));
        let at = owner.thread.0 as usize;
        let (state, _) = self.state(raw_state(owner.state), wait, stack, at);
        let thread = self.threads.get(at);
        Holder {
            tid: thread.map_or(Tid(0), |thread| thread.tid),
            pool: thread.map_or(usize::MAX, |thread| thread.pool),
            state,
            stack,
            uncertain: owner.moved || waiter_moved,
        }
    }

    /// Where the rows whose place is unknown wait, by row, as far as the stacks of their pools show it.
    fn found_places(&self) -> Vec<(usize, Place)> {
        let mut pools: BTreeMap<usize, Vec<usize>> = BTreeMap::new();
        for row in self.rows.values().filter(|row| may_be_idle(row)) {
            pools.entry(self.threads[row.thread].pool).or_default();
        }
        for (at, row) in self.rows.values().enumerate() {
            let shows_nothing = match row.state {
                State::StealIrq | State::Unknown | State::Idle | State::Stopped => true,
                State::PlaceUnknown => !may_be_idle(row),
                _ => false,
            };
            if !shows_nothing && let Some(rows) = pools.get_mut(&self.threads[row.thread].pool) {
                rows.push(at);
            }
        }
        let pools: Vec<Vec<usize>> = pools.into_values().collect();
        let whole = self.stacks.functions.without_detail();
        let whole = whole.as_deref();
        let found = pools.into_par_iter().flat_map_iter(|rows| {
            let seen = rows.into_iter();
            let seen = seen.filter_map(|at| Some((at, self.seen(at, whole)?)));
            let (rows, seen): (Vec<usize>, Vec<Seen<'_>>) = seen.unzip();
            rows.into_iter().zip(places(&seen)).collect::<Vec<_>>()
        });
        found.collect()
    }

    /// A row for the search of its pool's dispatch loop; `None` when its stack's root is unknown. `whole`
    /// are the functions without detail, if there is any.
    fn seen(&self, at: usize, whole: Option<&[FunctionId]>) -> Option<Seen<'_>> {
        let row = &self.rows[at];
        let stack = self.stacks.get(row.stack?)?;
        let functions = &self.stacks.functions;
        let is_program = |id: &FunctionId| !functions.get(*id).is_some_and(is_runtime);
        let n = stack.frames.iter().rposition(is_program)? + 1;
        (!stack.end.is_truncated()).then(|| Seen {
            thread: row.thread,
            path: match whole {
                None => Cow::Borrowed(&stack.frames[..n]),
                Some(whole) => stack.frames[..n]
                    .iter()
                    .map(|f| whole[f.0 as usize])
                    .collect(),
            },
            in_library: n < stack.frames.len(),
            may_be_idle: may_be_idle(row),
            n: row.n_samples,
        })
    }

    /// A profile of the rows; what is known without them is left empty.
    pub(crate) fn into_profile(mut self, axis: &TimeAxis) -> Profile {
        let found = self.found_places();
        let mut threads = self.threads;
        let mut rows: Vec<Row> = self.rows.into_values().collect();
        let mut of_holders = HashMap::new();
        for (row, place) in found {
            let row = &mut rows[row];
            (row.state, row.reason) = match place {
                Place::Loop => (State::Idle, Reason::DispatchLoop),
                Place::InWork => (State::Blocked, Reason::BelowWork),
                Place::Unknown => continue,
            };
            of_holders.insert((threads[row.thread].pool, row.stack), row.state);
        }
        // What stands in for others was observed as long as all of them.
        let mut of_others: BTreeMap<usize, u64> = BTreeMap::new();
        for row in rows
            .iter()
            .filter(|row| threads[row.thread].observed_ns == 0)
        {
            let sum = of_others.entry(row.thread).or_default();
            *sum = sum.saturating_add(row.weight);
        }
        for (thread, observed_ns) in of_others {
            threads[thread].observed_ns = observed_ns;
        }
        let locks = self.locks.into_iter().map(|(mut row, weight)| {
            if let Ok(holder) = &mut row.holder
                && holder.state == State::PlaceUnknown
                && let Some(&state) = of_holders.get(&(holder.pool, holder.stack))
            {
                holder.state = state;
            }
            LockRow { weight, ..row }
        });
        let (joins, held) = locks.partition(|row: &LockRow| row.kind == LockKind::Join);
        let deadlocks = deadlocks(self.tables, &rows, axis, &mut self.stacks);
        let (functions, stacks) = self.stacks.into_lists();
        Profile {
            functions,
            stacks,
            threads,
            pools: self.pools,
            waits: self.waits.into_iter().collect(),
            rows,
            locks: LockRows {
                held,
                joins,
                deadlocks,
            },
            ..Profile::default()
        }
    }
}

/// Whether the stacks of its pool may show that a row is a wait for work.
fn may_be_idle(row: &Row) -> bool {
    row.reason == Reason::NoDispatchLoop
}
