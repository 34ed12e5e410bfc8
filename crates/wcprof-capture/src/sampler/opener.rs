//! Opens processes that targets start, on a thread of its own: one can hold for ever what is read of it for that.

use std::collections::BTreeSet;
use std::io;
use std::sync::mpsc::{Receiver, Sender, channel};
use std::thread;
use std::time::{Duration, Instant};

use wcprof_host::work_cpu_ns;
use wcprof_host::{Target, TargetError};
use wcprof_types::Pid;

use super::arrivals::Entry;
use crate::sys::add_recording_cpu;

/// Longest wait of a tick for the processes that it found. To open one takes 0.1 ms.
const PATIENCE: Duration = Duration::from_millis(3);

/// With so many, those that are started later are looked for later.
const MAX_PENDING: usize = 10_000;

type Open = fn(Pid) -> Result<Target, TargetError>;

/// A process that is to be opened.
#[derive(Copy, Clone, Debug)]
pub(super) struct Wanted {
    pub(super) pid: Pid,
    /// In clock ticks since boot: another process may have its number by then.
    pub(super) started: u64,
    pub(super) entry: Entry,
}

/// A process that was to be opened.
#[derive(Debug)]
pub(super) struct Opened {
    pub(super) pid: Pid,
    pub(super) entry: Entry,
    pub(super) target: Result<Target, TargetError>,
}

/// The thread, and what it has not opened yet.
#[derive(Debug)]
pub(super) struct Opener {
    wanted: Sender<Wanted>,
    opened: Receiver<Opened>,
    pending: BTreeSet<Pid>,
    /// Some are wanted since the last call of [`Self::take`].
    has_new: bool,
}

impl Opener {
    pub(super) fn start() -> io::Result<Self> {
        Self::by(Target::open_found)
    }

    fn by(open: Open) -> io::Result<Self> {
        let (wanted, orders) = channel::<Wanted>();
        let (to, opened) = channel();
        let run = move || {
            let mut cpu = work_cpu_ns();
            for Wanted {
                pid,
                started,
                entry,
            } in orders
            {
                let target = open(pid).and_then(|target| match target.started() == started {
                    true => Ok(target),
                    false => Err(TargetError::NoSuchProcess(pid)),
                });
                let now = work_cpu_ns();
                add_recording_cpu(now - std::mem::replace(&mut cpu, now));
                let opened = Opened { pid, entry, target };
                if to.send(opened).is_err() {
                    return;
                }
            }
        };
        let thread = thread::Builder::new().name("wcprof-opener".to_owned());
        thread.spawn(run)?;
        Ok(Self {
            wanted,
            opened,
            pending: BTreeSet::new(),
            has_new: false,
        })
    }

    /// Has a process opened.
    pub(super) fn want(&mut self, wanted: Wanted) {
        if self.wanted.send(wanted).is_ok() {
            self.has_new = true;
            self.pending.insert(wanted.pid);
        }
    }

    /// Whether so many are not open yet that no more are to be looked for.
    pub(super) fn is_full(&self) -> bool {
        self.pending.len() >= MAX_PENDING
    }

    /// Whether a process is not open yet.
    pub(super) fn awaits(&self, pid: Pid) -> bool {
        self.pending.contains(&pid)
    }

    /// Whether there are such.
    pub(super) fn is_behind(&self) -> bool {
        !self.pending.is_empty()
    }

    /// Those that are open by now, in the order in which they were wanted. For new ones it waits a moment.
    pub(super) fn take(&mut self) -> Vec<Opened> {
        let until = Instant::now() + PATIENCE;
        let waits = std::mem::take(&mut self.has_new);
        let mut all = Vec::new();
        while !self.pending.is_empty() {
            let left = until.saturating_duration_since(Instant::now());
            let next = match waits {
                true => self.opened.recv_timeout(left).ok(),
                false => self.opened.try_recv().ok(),
            };
            let Some(next) = next else { break };
            self.pending.remove(&next.pid);
            all.push(next);
        }
        all
    }
}

#[cfg(test)]
mod tests {
    use std::sync::{Condvar, Mutex};

    use super::*;

    static IS_HELD: Mutex<bool> = Mutex::new(true);
    static RELEASED: Condvar = Condvar::new();

    /// One process holds its lock.
    fn hangs(pid: Pid) -> Result<Target, TargetError> {
        let is_held = IS_HELD.lock().unwrap();
        drop(RELEASED.wait_while(is_held, |is_held| *is_held && pid == Pid(1)));
        Target::open(pid)
    }

    /// Check that a process which cannot be opened for a while is not waited for, that it and those behind it come when
    /// it can, and that another one with the same number does not.
    #[test]
    fn one_hangs() {
        let own = Pid(std::process::id().cast_signed());
        let mut opener = Opener::by(hangs).unwrap();
        let taken = |opener: &mut Opener| {
            let taken = opener.take().into_iter();
            let all = taken.map(|opened| (opened.pid, opened.target.is_ok()));
            all.collect::<Vec<_>>()
        };
        let want = |opener: &mut Opener, pid: Pid, started: u64| {
            let entry = Entry::Born;
            opener.want(Wanted {
                pid,
                started,
                entry,
            });
        };
        let started = Target::open(own).unwrap().started();
        want(&mut opener, Pid(1), 0);
        assert_eq!(taken(&mut opener), []);
        want(&mut opener, own, started);
        assert_eq!(taken(&mut opener), []);
        assert!(opener.awaits(Pid(1)) && opener.awaits(own));
        *IS_HELD.lock().unwrap() = false;
        RELEASED.notify_all();
        let all = |opener: &mut Opener| {
            let mut all = Vec::new();
            while opener.is_behind() {
                all.extend(taken(opener));
            }
            all
        };
        let both = all(&mut opener);
        assert_eq!((both[0].0, both[1]), (Pid(1), (own, true)));
        want(&mut opener, own, started + 1);
        assert_eq!(all(&mut opener), [(own, false)]);
        assert!(!opener.awaits(own) && !opener.is_behind());
        *IS_HELD.lock().unwrap() = true;
        assert!(!opener.is_full());
        (1..=MAX_PENDING as i32).for_each(|pid| want(&mut opener, Pid(pid), 0));
        assert!(opener.is_full());
        *IS_HELD.lock().unwrap() = false;
        RELEASED.notify_all();
    }
}
