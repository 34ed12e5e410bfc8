//! Threads that wait for each other's locks in a circle: none of them can ever go on.
//!
//! In a core file, which is one moment, one look at each lock tells. Of a live process two looks are not at one instant, so every
//! thread of a circle must have waited for the same lock with the same owner over several looks and a second, and must not have run
//! meanwhile.

use std::collections::{BTreeMap, BTreeSet};

use wcprof_trace::model::{LockLook, LockOwner, OwnerState, ProcessId, Tables, ThreadId};
use wcprof_types::{Avma, TimeNs, Wait};

use crate::locks::{Found, kind_of, owner};
use crate::model::{
    Deadlock, DeadlockedThread, LockKind, ProfileStackId, Row, State, TimeAxis, UnknownHolder,
};
use crate::stacks::Stacks;

/// Looks, and time that they span, ns, in which nothing changed. In its first quarter, at least a tick, the thread may have run: it
/// began to wait then.
const MIN_LOOKS: u32 = 3;
const MIN_TIME: u64 = 4_000_000_000 / 3;

/// A thread that waits for a lock which another one, or it itself, holds.
struct Edge {
    to: ThreadId,
    address: Avma,
    kind: LockKind,
    stack: Option<ProfileStackId>,
    /// Since when nothing has changed, ns.
    since: u64,
    /// When that was last seen, ns.
    until: u64,
}

/// The circles of threads of all processes; each begins with its first thread.
pub(crate) fn deadlocks(
    tables: &Tables,
    rows: &[Row],
    axis: &TimeAxis,
    stacks: &mut Stacks<'_>,
) -> Vec<Deadlock> {
    let edges = edges(tables, stacks);
    let mut seen: BTreeSet<ThreadId> = BTreeSet::new();
    let mut found = Vec::new();
    for &start in edges.keys() {
        let mut path: Vec<ThreadId> = Vec::new();
        let mut at = start;
        // Until a thread that does not wait, or one that was met.
        while let Some(edge) = edges.get(&at)
            && seen.insert(at)
        {
            path.push(at);
            at = edge.to;
        }
        let Some(begin) = path.iter().position(|thread| *thread == at) else {
            continue;
        };
        let circle = &path[begin..];
        let has_run = |thread: &ThreadId| {
            let Edge { since, until, .. } = edges[thread];
            ran_since(rows, axis, *thread, since + until.saturating_sub(since) / 4)
        };
        if !stood_still(tables) && circle.iter().any(has_run) {
            continue;
        }
        let first = circle.iter().enumerate().min_by_key(|(_, thread)| **thread);
        let first = first.map_or(0, |(at, _)| at);
        let threads = circle[first..].iter().chain(&circle[..first]);
        let threads = threads.map(|thread| {
            let edge = &edges[thread];
            DeadlockedThread {
                thread: thread.0 as usize,
                address: edge.address,
                kind: edge.kind,
                stack: edge.stack,
                seen_ns: edge.until.saturating_sub(edge.since),
            }
        });
        found.push(Deadlock {
            threads: threads.collect(),
        });
    }
    found
}

/// What all looks at a lock found since it last changed.
struct LastLooks<'t> {
    /// Since when, ns.
    since: u64,
    n_looks: u32,
    /// The last one.
    look: &'t LockLook,
}

impl LastLooks<'_> {
    /// Whether it lasts for long enough.
    fn lasts(&self) -> bool {
        let time = self.look.until.0.saturating_sub(self.since);
        self.n_looks >= MIN_LOOKS && time >= MIN_TIME
    }
}

/// By lock. A recording writes down what it has seen of a lock now and then: the next look goes on from there.
fn by_lock(tables: &Tables) -> BTreeMap<(ProcessId, Avma), LastLooks<'_>> {
    let mut last: BTreeMap<(ProcessId, Avma), LastLooks<'_>> = BTreeMap::new();
    for look in &tables.locks.looks {
        let new = || LastLooks {
            since: look.since.0,
            n_looks: look.n_looks,
            look,
        };
        let known = last.entry((look.process, look.address));
        let known = known.and_modify(|known| {
            let goes_on = look.since <= known.look.until && is_same(known.look, look);
            if goes_on {
                known.n_looks = known.n_looks.saturating_add(look.n_looks);
                known.look = look;
            } else if look.until >= known.look.until {
                *known = new();
            }
        });
        known.or_insert_with(new);
    }
    last
}

/// What all looks at each lock found since it last changed, as one look.
pub fn last_looks(tables: &Tables) -> Vec<LockLook> {
    let last = by_lock(tables);
    let one = last.values().map(|last| LockLook {
        since: TimeNs(last.since),
        n_looks: last.n_looks,
        ..last.look.clone()
    });
    one.collect()
}

/// Whether all threads were read while none could run: a core file has no ticks.
fn stood_still(tables: &Tables) -> bool {
    tables.header.n_snapshots > 0 && tables.stats.n_ticks == 0
}

/// Whether two looks found the same words, and the same threads in the same waits.
fn is_same(a: &LockLook, b: &LockLook) -> bool {
    let owner = |of: &LockOwner| (of.word, of.thread, of.state, of.wait);
    a.words.lasting() == b.words.lasting()
        && a.owners.iter().map(owner).eq(b.owners.iter().map(owner))
}

/// Whom each thread waits for that is known to hold a lock itself: only such can be in a circle.
fn edges(tables: &Tables, stacks: &mut Stacks<'_>) -> BTreeMap<ThreadId, Edge> {
    let last = by_lock(tables);
    let mut edges = BTreeMap::new();
    for held in last.values() {
        let waiting = held.look.owners.iter();
        let waiting = waiting.filter(|of| of.state == OwnerState::Blocked && !of.moved);
        for waiter in waiting {
            if let Some(edge) = edge(tables, held, waiter, &last, stacks)
                && (stood_still(tables) || held.lasts())
            {
                edges.insert(waiter.thread, edge);
            }
        }
    }
    edges
}

/// What an owner of the lock of `held` waits for itself.
fn edge(
    tables: &Tables,
    held: &LastLooks<'_>,
    waiter: &LockOwner,
    last: &BTreeMap<(ProcessId, Avma), LastLooks<'_>>,
    stacks: &mut Stacks<'_>,
) -> Option<Edge> {
    let wait: &Wait = tables.waits.get(waiter.wait?.0 as usize)?;
    let address = wait.futex?;
    let wanted = last.get(&(held.look.process, address))?;
    let stack = stacks.of_trace(waiter.stack?, held.look.until);
    let kind = kind_of(stacks.get(stack?)?, &stacks.functions, wait);
    let found = Found {
        words: wanted.look.words,
        owners: wanted.look.owners.clone(),
    };
    let to = match owner(kind, wait, &found, waiter.thread) {
        Ok(owner) => owner.thread,
        Err(UnknownHolder::Itself) => waiter.thread,
        Err(_) => return None,
    };
    Some(Edge {
        to,
        address,
        kind,
        stack,
        since: held.since.max(wanted.since),
        until: held.look.until.0.min(wanted.look.until.0),
    })
}

/// Whether a thread had any time on a CPU or on a run queue in the slices that begin after a time.
fn ran_since(rows: &[Row], axis: &TimeAxis, thread: ThreadId, since: u64) -> bool {
    let slice_ns = axis.slice_ns.max(1);
    let first = since.saturating_sub(axis.start.0).div_ceil(slice_ns);
    let rows = rows.iter().filter(|row| row.thread == thread.0 as usize);
    let mut rows = rows.filter(|row| row.state.is_running() || row.state == State::Runnable);
    rows.any(|row| {
        let mut slices = row.slices.iter();
        slices.any(|(slice, weight)| slice as u64 >= first && weight > 0.0)
    })
}

#[cfg(test)]
mod tests {
    use wcprof_trace::model::{
        Frame, FrameId, Header, Module, ModuleId, NodeId, Process, Span, Stack, StackId, StackNode,
        SymbolFrame, SymbolTable, Thread, WaitId,
    };
    use wcprof_types::lock::FutexWords;
    use wcprof_types::{Pid, RelativeAddress, ThreadState, Tid, TimeNs};

    use crate::{ProfileBuilder, Rules};

    use super::*;

    const SECOND: u64 = 1_000_000_000;

    /// Threads 0 to 2, of which each waits for a mutex; thread N holds that at 0x1000 * (N + 1). `wants`: whose each waits for.
    fn tables(wants: [u32; 3], engine: &str) -> Tables {
        let mut tables = Tables::new(Header {
            engine: engine.to_owned(),
            rate_hz: 100,
            ..Header::default()
        });
        tables.stats.duration = TimeNs(4 * SECOND);
        tables.processes.push(Process {
            pid: Pid(7),
            ..Process::default()
        });
        tables.modules.push(Module::default());
        tables.frames.push(Frame::Native {
            module: ModuleId(0),
            address: RelativeAddress(16),
            function: None,
        });
        tables.nodes.push(StackNode {
            caller: None,
            frame: FrameId(0),
        });
        tables.stacks.push(Stack {
            leaf: Some(NodeId(0)),
            ..Stack::default()
        });
        let function = SymbolFrame {
            name: "pthread_mutex_lock".to_owned(),
            resolved: true,
            ..SymbolFrame::default()
        };
        let names = SymbolTable {
            frames: [(FrameId(0), vec![function])].into(),
        };
        tables.names.symbols = Some(names);
        for at in 0..3_u32 {
            let name = "t".to_owned();
            let tid = Tid(100 + at.cast_signed());
            tables
                .threads
                .push(Thread::new(ProcessId(0), tid, TimeNs(0), name));
            tables.waits.push(Wait {
                syscall: Some(202),
                op: 128,
                futex: Some(lock(wants[at as usize])),
                ..Wait::default()
            });
        }
        for at in 0..3_u32 {
            let owner = LockOwner {
                word: 2,
                thread: ThreadId(at),
                state: OwnerState::Blocked,
                moved: false,
                stack: Some(StackId(0)),
                wait: Some(WaitId(at)),
            };
            tables.locks.looks.push(LockLook {
                process: ProcessId(0),
                address: lock(at),
                since: TimeNs(SECOND),
                until: TimeNs(4 * SECOND),
                n_looks: 300,
                words: FutexWords([2, 1, 100 + at, 1, 0, 0, 0]),
                owners: vec![owner],
            });
        }
        tables
    }

    fn lock(of: u32) -> Avma {
        Avma(0x1000 * (u64::from(of) + 1))
    }

    /// The threads of the circles. `ran`: when thread 1 ran last.
    fn circles(tables: &Tables, ran: u64) -> Vec<Vec<usize>> {
        let mut builder = ProfileBuilder::new();
        let span = |thread, start, end, state| Span {
            thread: ThreadId(thread),
            start: TimeNs(start),
            end: TimeNs(end),
            weight: end - start,
            n_samples: 1,
            state,
            wait: (state == ThreadState::Blocked).then_some(WaitId(thread)),
            stack: Some(StackId(0)),
        };
        for thread in 0..3 {
            builder.add_span(&span(thread, 0, 4 * SECOND, ThreadState::Blocked));
        }
        builder.add_span(&span(1, ran - 1_000_000, ran, ThreadState::OnCpu));
        let profile = builder.finish(tables, None, &Rules::builtin().unwrap());
        let deadlocks = profile.locks.deadlocks.iter();
        deadlocks
            .map(|d| d.threads.iter().map(|one| one.thread).collect())
            .collect()
    }

    /// Check circles of each length, a chain that ends in one and is no part of it, and a chain that ends.
    #[test]
    fn lengths() {
        let of = |wants| circles(&tables(wants, "procfs"), SECOND);
        assert_eq!(of([1, 2, 0]), [vec![0, 1, 2]]);
        assert_eq!(of([1, 0, 0]), [vec![0, 1]]);
        assert_eq!(of([0, 0, 1]), [vec![0]], "it waits for itself");
        assert_eq!(of([0, 1, 2]).len(), 3);
        assert_eq!(of([1, 2, 7]), [[0; 0]; 0]);
    }

    /// Check that of a live process nothing is claimed where a thread ran meanwhile, where looks are few, or where they changed; and that
    /// one look is enough in a core, and not in a look at a live process.
    #[test]
    fn live() {
        let mut tables = tables([1, 2, 0], "bpf");
        assert_eq!(circles(&tables, SECOND).len(), 1);
        assert_eq!(circles(&tables, 3 * SECOND), [[0; 0]; 0]);
        tables.locks.looks[1].n_looks = 2;
        assert_eq!(circles(&tables, SECOND), [[0; 0]; 0]);
        tables.locks.looks[1].n_looks = 300;
        tables.locks.looks[1].since = TimeNs(3 * SECOND);
        assert_eq!(circles(&tables, SECOND), [[0; 0]; 0]);
        for look in &mut tables.locks.looks {
            (look.n_looks, look.since) = (1, TimeNs(0));
        }
        tables.header.n_snapshots = 1;
        assert_eq!(circles(&tables, 3 * SECOND).len(), 1);
        tables.stats.n_ticks = 1;
        assert_eq!(circles(&tables, 3 * SECOND), [[0; 0]; 0]);
        tables.stats.n_ticks = 0;
        tables.locks.looks[2].owners[0].moved = true;
        assert_eq!(circles(&tables, SECOND), [[0; 0]; 0]);
    }
}
