//! Who may hold what threads wait for: reads, at each tick, the memory of the locks that threads
//! are blocked on in `futex`.
//!
//! Costs nothing while no thread waits with a word that can be a lock's ([`can_be_lock`]). Locks whose memory names no thread of the target are left alone after
//! a few looks.

use std::collections::HashMap;
use std::sync::Arc;

use nix::errno::Errno;
use wcprof_types::lock::{FutexWords, OWNER_WORDS, WORD_BYTES, can_be_lock};
use wcprof_types::{Avma, Pid, Sched, Tid};

use super::pulse::Pulse;
use super::slot::Slot;
use crate::batch::{LockGlance, OwnerGlance, TargetId, TickBatch};
use crate::engine::{InSyscall, Snapshots, ThreadSnapshot};
use wcprof_host::procfs::{parse_status, read_text};

/// Locks of a process looked at in one tick; the others have their turn in the next.
const MAX_LOOKS: usize = 64;
/// Looks in a row at a lock that names no thread, after which it is left alone.
const MAX_BLANK: u32 = 3;
/// Locks remembered of a process; threads beyond wait for locks that nobody looks at.
const MAX_LOCKS: usize = 4096;

/// The locks that threads of one process wait for.
#[derive(Debug, Default)]
pub(super) struct LockWatch {
    locks: HashMap<u64, Watched>,
    /// Those that are looked at, in turn.
    turn: Vec<u64>,
    /// Waiters that were not there at the tick before: whose, its count of runs, the lock.
    fresh: Vec<(Tid, u64, u64)>,
    /// Threads by their numbers in the target's own pid namespace; `None` where both are the same.
    by_own: Option<HashMap<Tid, Tid>>,
    /// And the other way round.
    own_of: HashMap<Tid, Tid>,
    n_skipped: u64,
    /// The target's memory cannot be read.
    refused: bool,
    pulse: Arc<Pulse>,
}

#[derive(Copy, Clone, Debug, Default)]
struct Watched {
    n_waiters: u32,
    n_blank: u32,
}

/// The address of the word, if the thread waits on one that can be a lock's.
pub(super) fn lock_of(sched: Sched, call: Option<InSyscall>) -> Option<u64> {
    let call = call.filter(|_| sched == Sched::Blocked)?;
    let is_lock = call.number == Some(libc::SYS_futex as u32)
        && can_be_lock(call.args[1] as u32, call.args[2] as u32);
    Some(call.args[0]).filter(|address| is_lock && address % 4 == 0)
}

impl LockWatch {
    pub(super) fn new(pid: Pid, pulse: Arc<Pulse>) -> Self {
        let own = own_tid(pid, Tid(pid.0));
        Self {
            by_own: own.is_some_and(|own| own.0 != pid.0).then(HashMap::default),
            pulse,
            ..Self::default()
        }
    }

    /// Notes a thread not seen before; its number in its own namespace, if that is another one.
    pub(super) fn born(&mut self, pid: Pid, tid: Tid) -> Option<Tid> {
        let by_own = self.by_own.as_mut()?;
        let own = own_tid(pid, tid)?;
        by_own.insert(own, tid);
        self.own_of.insert(tid, own);
        Some(own)
    }

    /// Forgets a thread that has exited.
    pub(super) fn exited(&mut self, tid: Tid, slot: &Slot) {
        self.leave(slot.lock);
        if let (Some(by_own), Some(own)) = (&mut self.by_own, self.own_of.remove(&tid))
            // Another thread may have the number by now.
            && by_own.get(&own) == Some(&tid)
        {
            by_own.remove(&own);
        }
    }

    /// A thread that was seen in another place than before waits for `lock` now.
    pub(super) fn waits(&mut self, slot: &mut Slot, now: &ThreadSnapshot) {
        let call = now.syscall.filter(|_| now.stop.is_none());
        let lock = lock_of(now.sched, call);
        self.change(slot, lock);
        if let Some(address) = lock {
            self.fresh.push((now.tid, now.n_runs, address));
        }
    }

    /// The same, when its count of runs is checked by the caller.
    pub(super) fn change(&mut self, slot: &mut Slot, lock: Option<u64>) {
        if slot.lock == lock {
            return;
        }
        self.leave(slot.lock);
        slot.lock = None;
        let Some(address) = lock else { return };
        if self.locks.len() >= MAX_LOCKS && !self.locks.contains_key(&address) {
            return;
        }
        let watched = self.locks.entry(address).or_default();
        if watched.n_waiters == 0 || watched.n_blank == MAX_BLANK {
            // Another wait is another chance, if a smaller one.
            watched.n_blank = watched.n_blank.saturating_sub(1);
            self.turn.push(address);
        }
        watched.n_waiters += 1;
        slot.lock = lock;
    }

    fn leave(&mut self, lock: Option<u64>) {
        let Some(address) = lock else { return };
        if let Some(watched) = self.locks.get_mut(&address) {
            watched.n_waiters = watched.n_waiters.saturating_sub(1);
            if watched.n_waiters == 0 {
                self.locks.remove(&address);
                self.turn.retain(|&a| a != address);
            }
        }
    }

    /// Whether there is a lock to look at.
    pub(super) fn is_looking(&self) -> bool {
        !self.turn.is_empty() && !self.refused
    }

    /// The locks whose turn it is.
    fn next_looks(&mut self) -> Vec<u64> {
        let n = self.turn.len().min(MAX_LOOKS);
        self.n_skipped += (self.turn.len() - n) as u64;
        let looks = self.turn[..n].to_vec();
        if n < self.turn.len() {
            self.turn.rotate_left(n);
        }
        looks
    }

    /// Looks at the locks that threads wait for, when everything else of a tick was read. Whether
    /// waiters and owners are still where they were seen is asked after that. `since`: begin of the
    /// tick before.
    pub(super) fn look(
        &mut self,
        (target, pid): (TargetId, Pid),
        since: u64,
        slots: &HashMap<Tid, Slot>,
        snapshots: &mut dyn Snapshots,
        batch: &mut TickBatch,
    ) {
        let fresh = std::mem::take(&mut self.fresh);
        if !self.is_looking() {
            return;
        }
        for address in self.next_looks() {
            let Some(words) = self.words(pid, address) else {
                continue;
            };
            let look = Look {
                target,
                tick: (since, batch.time),
                address: Avma(address),
                words,
                fresh: &fresh,
            };
            self.note(&look, slots, snapshots, batch);
        }
        batch.counts.n_locks_skipped += std::mem::take(&mut self.n_skipped);
    }

    /// The memory of a lock.
    fn words(&mut self, pid: Pid, address: u64) -> Option<FutexWords> {
        let mut bytes = [0; WORD_BYTES];
        if self.refused {
            return None;
        }
        match self.pulse.read((pid, Tid(0)), Avma(address), &mut bytes) {
            Ok(n) => Some(FutexWords::from_bytes(&bytes[..n]).unwrap_or_default()),
            // Other memory took too long at this tick.
            Err(Errno::EAGAIN) => {
                self.n_skipped += 1;
                None
            }
            // Not permitted, or gone: the next tick says which.
            Err(_) => {
                self.refused = true;
                None
            }
        }
    }

    fn thread(&self, own: i32) -> Option<Tid> {
        match &self.by_own {
            None => Some(Tid(own)),
            Some(by_own) => by_own.get(&Tid(own)).copied(),
        }
    }

    /// Counts looks that found no thread, one after the other; at the last one the lock is left
    /// alone.
    fn looked(&mut self, address: u64, found: bool) {
        let Some(watched) = self.locks.get_mut(&address) else {
            return;
        };
        watched.n_blank = if found { 0 } else { watched.n_blank + 1 };
        if watched.n_blank == MAX_BLANK {
            self.turn.retain(|&a| a != address);
        }
    }
}

/// A thread's number in its innermost pid namespace (`NSpid`).
fn own_tid(pid: Pid, tid: Tid) -> Option<Tid> {
    let status = read_text(pid, &format!("task/{tid}/status")).ok()?;
    let status = parse_status(&status);
    status.ns_pids.last().copied().map(Tid)
}

/// What was read of one lock.
struct Look<'a> {
    target: TargetId,
    /// Begin of the tick before and of this one.
    tick: (u64, u64),
    address: Avma,
    words: FutexWords,
    /// See [`LockWatch::fresh`].
    fresh: &'a [(Tid, u64, u64)],
}

impl LockWatch {
    fn note(
        &mut self,
        look: &Look<'_>,
        slots: &HashMap<Tid, Slot>,
        snapshots: &mut dyn Snapshots,
        batch: &mut TickBatch,
    ) {
        let (since, time) = look.tick;
        let owners: Vec<OwnerGlance> = OWNER_WORDS
            .into_iter()
            .filter_map(|word| {
                let own = look.words.tid(word);
                let tid = self.thread(own).filter(|_| own != 0)?;
                // A number in a lock may be that of another process's thread.
                let slot = slots.get(&tid).filter(|slot| slot.target == look.target)?;
                let moved = slot
                    .blocked_runs(time)
                    .is_some_and(|n| snapshots.n_runs(tid) != Some(n));
                let word = word as u8;
                Some(OwnerGlance { word, tid, moved })
            })
            .collect();
        self.looked(look.address.0, !owners.is_empty());
        if !owners.is_empty() {
            let waiters = look.fresh.iter().filter(|(.., a)| *a == look.address.0);
            for &(tid, n_runs, _) in waiters {
                if snapshots.n_runs(tid) != Some(n_runs) {
                    batch.locks.moved.push((look.target, tid, time));
                }
            }
        }
        batch.locks.glances.push(LockGlance {
            after: batch.threads.len(),
            target: look.target,
            time,
            since,
            address: look.address,
            words: look.words,
            owners,
        });
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn call(op: u64, value: u64) -> Option<InSyscall> {
        Some(InSyscall {
            number: Some(libc::SYS_futex as u32),
            args: [0x7f00_0010, op, value],
        })
    }

    /// Check which waits can be for a lock: not those for 0, nor other calls, nor wakes.
    #[test]
    fn candidates() {
        let of = |op, value| lock_of(Sched::Blocked, call(op, value));
        assert_eq!(of(128, 2), Some(0x7f00_0010), "a mutex");
        assert_eq!(of(137, 3), Some(0x7f00_0010), "a rwlock");
        assert_eq!(of(134, 0), Some(0x7f00_0010), "priority inheritance");
        assert_eq!(of(393, 0), None, "a condition variable");
        assert_eq!(of(129, 1), None, "FUTEX_WAKE");
        assert_eq!(lock_of(Sched::OnCpu, call(128, 2)), None);
        let read = Some(InSyscall {
            number: Some(libc::SYS_read as u32),
            args: [16, 128, 2],
        });
        assert_eq!(lock_of(Sched::Blocked, read), None);
    }

    /// Check that a tick at which other memory was late costs one look, and is counted; a process that may not be read costs
    /// all of them.
    #[test]
    fn unread() {
        let pulse: Arc<Pulse> = Arc::default();
        let own = Pid(std::process::id().cast_signed());
        let mut watch = LockWatch::new(own, Arc::clone(&pulse));
        let word = [7_u64; 8];
        let address = word.as_ptr().addr() as u64;
        pulse.pretend_late();
        assert_eq!(watch.words(own, address), None);
        assert_eq!((watch.n_skipped, watch.refused), (1, false));
        pulse.begin();
        assert!(watch.words(own, address).is_some());
        assert_eq!(watch.words(Pid(i32::MAX), address), None);
        assert!(watch.refused && watch.words(own, address).is_none());
    }

    /// Check that a lock is looked at as long as a thread waits for it, in turn where there are
    /// many, and no more after it named nobody.
    #[test]
    fn turns() {
        let mut watch = LockWatch::default();
        let snapshot = super::super::slot::tests::snapshot();
        let mut slots: Vec<Slot> = (0..100).map(|_| Slot::new(&snapshot, true, 1)).collect();
        for (slot, address) in slots.iter_mut().zip((0_u64..).step_by(64)) {
            watch.change(slot, Some(address));
        }
        let mut seen = std::collections::BTreeSet::new();
        for _ in 0..2 {
            let looks = watch.next_looks();
            assert_eq!(looks.len(), MAX_LOOKS);
            seen.extend(looks);
        }
        assert_eq!((seen.len(), watch.n_skipped), (100, 72));
        for slot in &mut slots[1..] {
            watch.change(slot, None);
        }
        assert_eq!(watch.next_looks(), [0]);
        for found in [false, false, true, false, false] {
            watch.looked(0, found);
        }
        assert_eq!(watch.next_looks(), [0], "only two in a row found nobody");
        watch.looked(0, false);
        assert!(watch.next_looks().is_empty());
        watch.change(&mut slots[0], None);
        watch.change(&mut slots[0], Some(0));
        assert_eq!(watch.next_looks(), [0], "a new wait is a new chance");
    }
}
