//! Who held the locks that threads waited for: spans of waiting threads and looks at locks to
//! shares of lost time by holder.
//!
//! The time between two looks goes to what the later one found, as the time between two ticks
//! goes to the stack seen at its end. What the words of a lock mean is decided by the functions
//! that the waiting thread was in: glibc's `nptl/pthread_mutex_lock.c` and `nptl/lowlevellock.c`
//! set and wait for mutexes, `nptl/pthread_rwlock_common.c` says at which of its words a rwlock
//! is waited for and when `__cur_writer` is set.

use std::collections::{BTreeMap, HashMap};

use wcprof_trace::model::{
    LockLook, LockOwner, OwnerState, ProcessId, Span, Tables, ThreadId, WaitId,
};
use wcprof_types::lock::{FutexWords, is_pi_lock};
use wcprof_types::{Avma, ThreadState, TimeNs, Wait};

use crate::functions::Functions;
use crate::model::{Function, LockKind, ProfileStack, UnknownHolder};

/// Frames next to the leaf that tell the kind of lock.
const LEAF_FRAMES: usize = 12;
/// Looks that one span is shared out to; the time of more goes to the first ones.
const MAX_SHARES: usize = 4096;
/// A part of a span is not given to a look whose own time touches it only since ticks and
/// observations are not at the same instant: one that covers less than 1/8 of a tick.
const TOUCH: u64 = 8;

/// `PTHREAD_MUTEX_KIND_MASK_NP` and `PTHREAD_MUTEX_RECURSIVE_NP` of `__kind`
/// (`nptl/pthreadP.h`), and the bits of robust and of priority-inheriting mutexes.
const KIND_MASK: u32 = 3;
const RECURSIVE: u32 = 1;
const ROBUST_OR_PI: u32 = 0x10 | 0x20;

/// What a look found, without its time.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub(crate) struct Found {
    pub(crate) words: FutexWords,
    pub(crate) owners: Vec<LockOwner>,
}

/// A share of a span's time: what was found, and whether the waiter was gone by then.
#[derive(Copy, Clone, PartialEq, Eq, PartialOrd, Ord, Debug, Default)]
pub(crate) struct Share {
    /// Index of a [`Found`]; `None` where nobody looked.
    pub(crate) found: Option<u32>,
    pub(crate) moved: bool,
}

/// Looks at locks by time. Known only when a whole trace was read.
#[derive(Clone, PartialEq, Debug, Default)]
pub struct LockTimes {
    processes: Vec<ProcessId>,
    /// By wait: the futex.
    of_wait: Vec<Option<Avma>>,
    looks: HashMap<(ProcessId, Avma), Vec<Look>>,
    found: Vec<Found>,
    moved: HashMap<ThreadId, Vec<TimeNs>>,
    tick_ns: u64,
}

#[derive(Copy, Clone, PartialEq, Eq, Debug)]
struct Look {
    since: u64,
    until: u64,
    found: u32,
}

impl LockTimes {
    /// Those of a trace; many have none.
    pub fn from_tables(tables: &Tables) -> Self {
        let mut times = Self::default();
        if tables.locks.looks.is_empty() {
            return times;
        }
        times.processes = tables.threads.iter().map(|t| t.process).collect();
        times.of_wait = tables.waits.iter().map(|wait| wait.futex).collect();
        let mut known = HashMap::new();
        for look in &tables.locks.looks {
            let at = (look.process, look.address);
            let look = times.look(look, &mut known);
            times.looks.entry(at).or_default().push(look);
        }
        for looks in times.looks.values_mut() {
            looks.sort_by_key(|look| (look.until, look.since));
        }
        for &(thread, time) in &tables.locks.moved {
            times.moved.entry(thread).or_default().push(time);
        }
        for moved in times.moved.values_mut() {
            moved.sort_unstable();
        }
        let rates = tables.stats.rate_changes.iter().map(|(_, hz)| *hz);
        let slowest = rates.chain([tables.header.rate_hz]).min().unwrap_or(1);
        times.tick_ns = 1_000_000_000 / u64::from(slowest.max(1));
        times
    }

    fn look(&mut self, look: &LockLook, known: &mut HashMap<Found, u32>) -> Look {
        let mut found = Found {
            words: look.words,
            owners: look.owners.clone(),
        };
        // These change while a lock is held, and must not make equal finds differ.
        found.words.0[1] = found.words.0[1].min(2);
        found.words.0[5] = 0;
        let next = self.found.len() as u32;
        let id = *known.entry(found.clone()).or_insert(next);
        if id == next {
            self.found.push(found);
        }
        Look {
            since: look.since.0,
            until: look.until.0,
            found: id,
        }
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.looks.is_empty()
    }

    pub(crate) fn found(&self, id: u32) -> Option<&Found> {
        self.found.get(id as usize)
    }

    fn address(&self, wait: WaitId) -> Option<Avma> {
        *self.of_wait.get(wait.0 as usize)?
    }

    /// Whether a span is a wait for a futex.
    #[inline]
    pub(crate) fn is_wait(&self, span: &Span) -> bool {
        span.state == ThreadState::Blocked && span.wait.is_some_and(|id| self.address(id).is_some())
    }

    /// Shares the time of a span out, if it is such a wait; finds from `n_found` on are as if nobody had looked.
    pub(crate) fn shares(&self, span: &Span, n_found: u32, out: &mut BTreeMap<Share, u64>) {
        let Some(address) = span.wait.and_then(|id| self.address(id)) else {
            return;
        };
        let process = self.processes.get(span.thread.0 as usize);
        let looks = process.and_then(|process| self.looks.get(&(*process, address)));
        let looks = looks.map_or(&[][..], Vec::as_slice);
        let (start, end) = (span.start.0, span.end.0);
        let moved = self.moved.get(&span.thread).is_some_and(|times| {
            let first = times.partition_point(|t| t.0 <= start);
            times.get(first).is_some_and(|t| t.0 <= end)
        });
        let first = looks.partition_point(|look| look.until <= start);
        let least = (end - start).min(self.tick_ns) / TOUCH;
        let near = looks[first..].iter().take_while(|look| look.since < end);
        // What was found, and how much of the span it covers.
        let parts = near.take(MAX_SHARES).map(|look| {
            let covered = look.until.min(end) - look.since.max(start);
            (look.found, covered)
        });
        let parts: Vec<(u32, u64)> = parts.filter(|part| part.1 > least).collect();
        let sum: u128 = parts.iter().map(|part| u128::from(part.1)).sum();
        let mut add = |found: Option<u32>, weight: u64| {
            let share = match found {
                Some(id) if id >= n_found => Share::default(),
                _ => Share { found, moved },
            };
            let lost = out.entry(share).or_default();
            *lost = lost.saturating_add(weight);
        };
        if sum == 0 {
            add(self.nearest(looks, first, (start, end)), span.weight);
            return;
        }
        let mut left = span.weight;
        for &(found, covered) in &parts {
            let part = u128::from(span.weight) * u128::from(covered) / sum;
            let part = (part as u64).min(left);
            left -= part;
            add(Some(found), part);
        }
        // What rounding left over.
        if let Some(&(found, _)) = parts.first() {
            add(Some(found), left);
        }
    }

    /// The look next to a span that no look covers: a wait that was over by the next tick.
    fn nearest(&self, looks: &[Look], next: usize, (start, end): (u64, u64)) -> Option<u32> {
        let before = next.checked_sub(1).and_then(|i| looks.get(i));
        let near = self.tick_ns * 3 / 2;
        // One that named nobody may have been the last because of that.
        let is_blank = |look: &Look| self.found(look.found).is_some_and(|f| f.owners.is_empty());
        let before = before.filter(|look| start - look.until <= near || is_blank(look));
        let after = looks.get(next);
        let after = after.filter(|look| look.since.saturating_sub(end) <= near);
        before.or(after).map(|look| look.found)
    }
}

/// The kind of lock that a thread waits for, by the functions next to its leaf.
pub(crate) fn kind_of(stack: &ProfileStack, functions: &Functions<'_>, wait: &Wait) -> LockKind {
    if is_pi_lock(wait.op) {
        return LockKind::Mutex;
    }
    let mut frames = stack.frames.iter().rev().take(LEAF_FRAMES);
    let kind = frames.find_map(|id| kind_by_name(functions.get(*id)?, wait));
    kind.unwrap_or(LockKind::Other)
}

fn kind_by_name(function: &Function, wait: &Wait) -> Option<LockKind> {
    let name = function.name.trim_start_matches('_');
    if function.module.contains("musl") {
        return Some(LockKind::Other);
    }
    // glibc waits for the kernel to clear the word that holds the tid, and thus without the private flag.
    let is_join = [
        "pthread_join",
        "pthread_timedjoin",
        "pthread_clockjoin",
        "pthread_tryjoin",
    ];
    if is_join.iter().any(|join| name.starts_with(join)) {
        return (wait.op & 128 == 0).then_some(LockKind::Join);
    }
    // The lock inside of a condition variable, and what waits for woken threads to leave it.
    let is_in_condition = name.starts_with("condvar_")
        || (name.starts_with("pthread_cond_") && !name.contains("wait") && !name.contains("lock"));
    if is_in_condition {
        return Some(LockKind::Other);
    }
    if let Some(call) = name.strip_prefix("pthread_rwlock_") {
        return match call {
            _ if call.contains("rdlock") => Some(LockKind::RwlockRead),
            _ if call.contains("wrlock") => Some(LockKind::RwlockWrite),
            _ => None,
        };
    }
    // A condition variable waits with a bit set: a plain wait below it takes the mutex again.
    let takes_again = name.starts_with("pthread_cond_") && wait.op & !128 == 0;
    let takes = name.starts_with("pthread_mutex_") && !name.contains("unlock");
    (takes || takes_again).then_some(LockKind::Mutex)
}

/// The owner that a look found, for a wait of this kind.
pub(crate) fn owner(
    kind: LockKind,
    wait: &Wait,
    found: &Found,
    waiter: ThreadId,
) -> Result<LockOwner, UnknownHolder> {
    let words = &found.words;
    let at = match kind {
        LockKind::Other => return Err(UnknownHolder::NotRecorded),
        LockKind::Join => 0,
        LockKind::Mutex => {
            if words.owner_died() && (is_pi_lock(wait.op) || is_robust_or_pi(words)) {
                return Err(UnknownHolder::Died);
            }
            let in_lock = is_pi_lock(wait.op) || (words.tid(2) == 0 && is_robust_or_pi(words));
            if in_lock { 0 } else { 2 }
        }
        // The word waited on is `__wrphase_futex`, or else `__readers`.
        LockKind::RwlockRead => match words.tid(4) {
            0 => 6,
            _ => 4,
        },
        // `__writers_futex`; at `__wrphase_futex` it waits for readers.
        LockKind::RwlockWrite => 3,
    };
    let tid = words.tid(at);
    if tid == 0 {
        return Err(match kind {
            LockKind::Mutex | LockKind::Join => UnknownHolder::Changed,
            _ => UnknownHolder::Readers,
        });
    }
    let mut owners = found.owners.iter();
    match owners.find(|owner| usize::from(owner.word) == at) {
        None => Err(UnknownHolder::NotAThread(tid)),
        Some(owner) if owner.thread == waiter => Err(UnknownHolder::Itself),
        Some(owner) => Ok(*owner),
    }
}

fn is_robust_or_pi(words: &FutexWords) -> bool {
    words.0[4] & ROBUST_OR_PI != 0
}

/// Whether the lock is a recursive mutex.
pub(crate) fn is_recursive(kind: LockKind, words: &FutexWords) -> bool {
    kind == LockKind::Mutex && words.0[4] & KIND_MASK == RECURSIVE
}

/// What an owner did, as the scheduler's state.
pub(crate) fn raw_state(state: OwnerState) -> ThreadState {
    match state {
        OwnerState::Running => ThreadState::OnCpu,
        OwnerState::Queued => ThreadState::Runnable,
        OwnerState::Blocked => ThreadState::Blocked,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::Detail;
    use wcprof_trace::limits::MAX_TIME_NS;
    use wcprof_types::StackEnd;

    fn wait(op: u32) -> Wait {
        Wait {
            syscall: Some(202),
            op,
            futex: Some(Avma(0x1000)),
            ..Wait::default()
        }
    }

    fn kind(leaf_first: &[&str], op: u32) -> LockKind {
        let tables = Tables::default();
        let mut functions = Functions::new(&tables, None, Detail::default());
        let root_first = leaf_first.iter().rev().map(|name| {
            functions.intern(Function {
                name: (*name).into(),
                module: "libc.so.6".into(),
                resolved: true,
                ..Function::default()
            })
        });
        let stack = ProfileStack {
            frames: root_first.collect(),
            end: StackEnd::Root,
        };
        kind_of(&stack, &functions, &wait(op))
    }

    /// Check kinds by names as glibc, libstdc++ and Rust have them, stripped too.
    #[test]
    fn kinds() {
        let mutex = ["__lll_lock_wait", "pthread_mutex_lock@@GLIBC_2.2.5", "f"];
        assert_eq!(kind(&mutex, 128), LockKind::Mutex);
        assert_eq!(
            kind(&["libc.so.6+0x85ea0", "___pthread_mutex_lock"], 128),
            LockKind::Mutex
        );
        let again = [
            "futex_wait",
            "__pthread_mutex_cond_lock",
            "pthread_cond_wait",
        ];
        assert_eq!(kind(&again, 128), LockKind::Mutex);
        let stripped = ["libc.so.6+0x1", "pthread_cond_wait"];
        assert_eq!(kind(&stripped, 128), LockKind::Mutex);
        assert_eq!(kind(&stripped, 393), LockKind::Other);
        let rd = ["__futex_abstimed_wait64", "__pthread_rwlock_rdlock_full64"];
        assert_eq!(kind(&rd, 393), LockKind::RwlockRead);
        assert_eq!(
            kind(&["pthread_rwlock_timedwrlock"], 137),
            LockKind::RwlockWrite
        );
        let rust = ["std::sys::sync::mutex::futex::Mutex::lock_contended", "g"];
        assert_eq!(kind(&rust, 128), LockKind::Other);
        assert_eq!(kind(&["anything"], 134), LockKind::Mutex);
        assert_eq!(kind(&["pthread_mutex_unlock"], 128), LockKind::Other);
        // Inside of a condition variable, with names and without.
        let quiet = ["__condvar_quiesce_and_switch_g1", "pthread_cond_broadcast"];
        assert_eq!(kind(&quiet, 128), LockKind::Other);
        assert_eq!(
            kind(&["libc.so.6+0x1", "pthread_cond_signal"], 128),
            LockKind::Other
        );
        let own = ["__condvar_acquire_lock", "pthread_cond_timedwait"];
        assert_eq!(kind(&own, 128), LockKind::Other);
        // A tid that the kernel clears; musl's word is none.
        let join = ["__futex_abstimed_wait_common", "__pthread_clockjoin_ex"];
        assert_eq!(kind(&join, 265), LockKind::Join);
        assert_eq!(
            kind(&["libc.so.6+0x1", "pthread_join [or 3 others]"], 265),
            LockKind::Join
        );
        assert_eq!(
            kind(&["__timedwait_cp", "pthread_join"], 128),
            LockKind::Other
        );
    }

    fn found(words: [u32; 7], owners: &[(u8, u32)]) -> Found {
        Found {
            words: FutexWords(words),
            owners: owners
                .iter()
                .map(|&(word, thread)| LockOwner {
                    word,
                    thread: ThreadId(thread),
                    state: OwnerState::Blocked,
                    moved: false,
                    stack: None,
                    wait: None,
                })
                .collect(),
        }
    }

    /// Check which word names the owner, and what is said where none does.
    #[test]
    fn owners() {
        let of = |kind, op, found: &Found| {
            owner(kind, &wait(op), found, ThreadId(9)).map(|owner| owner.thread.0)
        };
        // In a pid namespace the main thread is 1, as are __nusers and __kind.
        let mutex = found([2, 1, 50, 1, 1, 0, 0], &[(3, 1), (4, 1), (2, 5)]);
        assert_eq!(of(LockKind::Mutex, 128, &mutex), Ok(5));
        assert!(is_recursive(LockKind::Mutex, &mutex.words));
        let gone = found([2, 0, 50, 1, 0, 0, 0], &[]);
        assert_eq!(
            of(LockKind::Mutex, 128, &gone),
            Err(UnknownHolder::NotAThread(50))
        );
        let free = found([2, 0, 0, 0, 0, 0, 0], &[]);
        assert_eq!(of(LockKind::Mutex, 128, &free), Err(UnknownHolder::Changed));
        let own = found([2, 0, 50, 1, 0, 0, 0], &[(2, 9)]);
        assert_eq!(of(LockKind::Mutex, 128, &own), Err(UnknownHolder::Itself));
        let pi = found([0x8000_0032, 0, 0, 0, 0x20, 0, 0], &[(0, 5)]);
        assert_eq!(of(LockKind::Mutex, 134, &pi), Ok(5));
        let died = found([0xc000_0032, 0, 50, 0, 0x10, 0, 0], &[(2, 5)]);
        assert_eq!(of(LockKind::Mutex, 128, &died), Err(UnknownHolder::Died));
        let join = found([50, 0, 0, 0, 0, 0, 0], &[(0, 5)]);
        assert_eq!(of(LockKind::Join, 265, &join), Ok(5));
        let rd = found([3, 1, 0, 0, 50, 0, 0], &[(4, 5)]);
        assert_eq!(of(LockKind::RwlockRead, 393, &rd), Ok(5));
        let wr = found([3, 0, 0, 50, 0, 0, 0], &[(3, 5)]);
        assert_eq!(of(LockKind::RwlockWrite, 393, &wr), Ok(5));
        let readers = found([2, 1, 0, 0, 0, 0, 0], &[]);
        assert_eq!(
            of(LockKind::RwlockWrite, 393, &readers),
            Err(UnknownHolder::Readers)
        );
        assert_eq!(
            of(LockKind::Other, 128, &mutex),
            Err(UnknownHolder::NotRecorded)
        );
    }

    fn times(looks: &[(u64, u64, u32)]) -> LockTimes {
        LockTimes {
            processes: vec![ProcessId(0)],
            of_wait: vec![Some(Avma(0x1000))],
            looks: HashMap::from([(
                (ProcessId(0), Avma(0x1000)),
                looks
                    .iter()
                    .map(|&(since, until, found)| Look {
                        since,
                        until,
                        found,
                    })
                    .collect(),
            )]),
            found: Vec::new(),
            moved: HashMap::from([(ThreadId(0), vec![TimeNs(95)])]),
            tick_ns: 10,
        }
    }

    fn shares(times: &LockTimes, start: u64, end: u64, weight: u64) -> Vec<(Option<u32>, u64)> {
        let mut out = BTreeMap::new();
        let span = Span {
            thread: ThreadId(0),
            start: TimeNs(start),
            end: TimeNs(end),
            weight,
            n_samples: 1,
            state: ThreadState::Blocked,
            wait: Some(WaitId(0)),
            stack: None,
        };
        times.shares(&span, u32::MAX, &mut out);
        out.into_iter().map(|(s, w)| (s.found, w)).collect()
    }

    /// Check that a long wait is shared out by the looks in it, all of its weight; that one which
    /// only touches a look's time gets nothing of it; and that a wait without a look of its own
    /// takes the one next to it, if that is near.
    #[test]
    fn time_is_shared_out() {
        let t = times(&[(0, 30, 1), (30, 40, 2), (70, 80, 3)]);
        assert_eq!(shares(&t, 0, 40, 7), [(Some(1), 6), (Some(2), 1)]);
        assert_eq!(shares(&t, 29, 39, 10), [(Some(2), 10)]);
        assert_eq!(shares(&t, 41, 51, 4), [(Some(2), 4)]);
        assert_eq!(shares(&t, 56, 60, 4), [(Some(3), 4)]);
        assert_eq!(shares(&t, 200, 210, 4), [(None, 4)]);
    }

    /// Check that forged looks which all last as long as they can get equal parts of a wait as long.
    #[test]
    fn long_looks() {
        let t = times(&[1, 2, 3, 4, 5].map(|found| (0, MAX_TIME_NS, found)));
        let expected = [1, 2, 3, 4, 5].map(|found| (Some(found), MAX_TIME_NS / 5));
        let found = shares(&t, 0, MAX_TIME_NS, MAX_TIME_NS / 5 * 5);
        assert_eq!(found, expected);
    }
}
