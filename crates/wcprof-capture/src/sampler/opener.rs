//! Opens processes that targets start, on a thread of its own: one can hold for ever what is read of it for that.

use std::collections::BTreeSet;
use std::io;
use std::sync::mpsc::{Receiver, Sender, channel};
use std::thread;
use std::time::{Duration, Instant};

use wcprof_host::{Target, TargetError};
use wcprof_types::Pid;

use super::arrivals::Entry;

/// So long a tick waits for the processes that it found: each takes a tenth of a millisecond.
const PATIENCE: Duration = Duration::from_millis(3);

type Open = fn(Pid) -> Result<Target, TargetError>;

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
    wanted: Sender<(Pid, Entry)>,
    opened: Receiver<Opened>,
    pending: BTreeSet<Pid>,
    /// Some are wanted since the last call of [`Self::take`].
    has_new: bool,
}

impl Opener {
    pub(super) fn start() -> io::Result<Self> {
        Self::by(Target::open)
    }

    fn by(open: Open) -> io::Result<Self> {
        let (wanted, orders) = channel::<(Pid, Entry)>();
        let (to, opened) = channel();
        let run = move || {
            for (pid, entry) in orders {
                let target = open(pid);
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
    pub(super) fn want(&mut self, pid: Pid, entry: Entry) {
        if self.wanted.send((pid, entry)).is_ok() {
            self.has_new = true;
            self.pending.insert(pid);
        }
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

    /// Check that a process which cannot be opened for a while is not waited for, and that it and those behind it come when
    /// it can.
    #[test]
    fn one_hangs() {
        let own = Pid(std::process::id().cast_signed());
        let mut opener = Opener::by(hangs).unwrap();
        let taken = |opener: &mut Opener| {
            let taken = opener.take().into_iter();
            let all = taken.map(|opened| (opened.pid, opened.target.is_ok()));
            all.collect::<Vec<_>>()
        };
        opener.want(Pid(1), Entry::Born);
        assert_eq!(taken(&mut opener), []);
        opener.want(own, Entry::Exec);
        assert_eq!(taken(&mut opener), []);
        assert!(opener.awaits(Pid(1)) && opener.awaits(own));
        *IS_HELD.lock().unwrap() = false;
        RELEASED.notify_all();
        let mut all = Vec::new();
        while all.len() < 2 {
            all.extend(taken(&mut opener));
        }
        assert_eq!((all[0].0, all[1]), (Pid(1), (own, true)));
        assert!(!opener.awaits(own) && !opener.is_behind());
    }
}
