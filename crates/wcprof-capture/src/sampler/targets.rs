//! The processes of a recording, as the sampler sees them, and what they start.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::sync::Arc;

use wcprof_types::{Pid, Tid};

use super::arrivals::{Arrivals, Entry};
use super::children::Births;
use super::locks::LockWatch;
use super::opener::Opener;
use super::pulse::Pulse;
use super::slot::Slot;
use super::stack_map::StackMap;
use crate::batch::{TargetEnd, TargetId, TickBatch};
use crate::engine::Snapshots;
use wcprof_host::Target;
use wcprof_host::fds::FdCache;

/// A process that is sampled.
#[derive(Debug)]
pub(super) struct Observed {
    pub(super) target: Arc<Target>,
    pub(super) fds: FdCache,
    pub(super) locks: LockWatch,
    pub(super) stack_map: StackMap,
    /// Changes when it runs another program; `None` until the engine tells.
    pub(super) exec_id: Option<u64>,
    pub(super) entry: Entry,
}

impl Observed {
    fn new(target: Arc<Target>, pulse: Arc<Pulse>) -> Self {
        Self {
            fds: FdCache::default(),
            locks: LockWatch::new(target.pid(), Arc::clone(&pulse)),
            stack_map: StackMap::new(pulse),
            exec_id: None,
            entry: Entry::Born,
            target,
        }
    }

    pub(super) fn pid(&self) -> Pid {
        self.target.pid()
    }
}

/// Where their threads may run.
#[derive(Debug, Default)]
pub(super) struct TimerCpus {
    /// When that was last asked.
    pub(super) checked: u64,
    /// Which CPUs had timers then.
    pub(super) cpus: BTreeSet<u32>,
}

/// What there may be of them.
#[derive(Copy, Clone, PartialEq, Eq, Debug, Default)]
pub(super) struct TargetRoom {
    /// More are not taken in.
    pub(super) max_alive: usize,
    /// Files of modules that may be held open for them.
    pub(super) module_files: usize,
}

/// Those that have not left.
#[derive(Debug, Default)]
pub(super) struct Targets {
    by_id: BTreeMap<TargetId, Observed>,
    /// The id of the next one.
    next: TargetId,
    by_pid: HashMap<Pid, TargetId>,
    /// Notices children, when they are wanted.
    pub(super) births: Option<Births>,
    /// Opens them; from the first of them on.
    pub(super) opener: Option<Opener>,
    pub(super) room: TargetRoom,
    /// Processes that another thread finds.
    pub(super) arrivals: Option<Arrivals>,
    /// How the last process left.
    pub(super) last_end: Option<TargetEnd>,
    /// When it was last asked whether processes are still there and the same, and when locks were last
    /// looked at.
    pub(super) checked: u64,
    locks_read: u64,
    pub(super) cpus: TimerCpus,
    /// Reads their memory.
    pub(super) pulse: Arc<Pulse>,
}

impl Targets {
    /// Takes one more process.
    pub(super) fn add(&mut self, target: Arc<Target>) -> TargetId {
        let id = self.next;
        self.next = TargetId(id.0.saturating_add(1));
        self.by_pid.insert(target.pid(), id);
        let pulse = Arc::clone(&self.pulse);
        self.by_id.insert(id, Observed::new(target, pulse));
        id
    }

    pub(super) fn remove(&mut self, id: TargetId) -> Option<Observed> {
        let observed = self.by_id.remove(&id)?;
        self.by_pid.remove(&observed.pid());
        Some(observed)
    }

    pub(super) fn get(&self, id: TargetId) -> Option<&Observed> {
        self.by_id.get(&id)
    }

    pub(super) fn get_mut(&mut self, id: TargetId) -> Option<&mut Observed> {
        self.by_id.get_mut(&id)
    }

    /// Whether it is sampled, or will be as soon as it is open.
    pub(super) fn is_known(&self, pid: Pid) -> bool {
        let opener = self.opener.as_ref();
        self.of_pid(pid).is_some() || opener.is_some_and(|opener| opener.awaits(pid))
    }

    /// The one with this pid.
    pub(super) fn of_pid(&self, pid: Pid) -> Option<TargetId> {
        self.by_pid.get(&pid).copied()
    }

    /// Its pid, if there is one process.
    pub(super) fn only(&self) -> Option<Pid> {
        let mut pids = self.by_id.values().map(Observed::pid);
        pids.next().filter(|_| pids.next().is_none())
    }

    pub(super) fn iter(&self) -> impl Iterator<Item = (TargetId, &Observed)> {
        self.by_id.iter().map(|(id, observed)| (*id, observed))
    }

    /// Looks at the locks that threads wait for.
    pub(super) fn look_at_locks(
        &mut self,
        slots: &HashMap<Tid, Slot>,
        snapshots: &mut dyn Snapshots,
        batch: &mut TickBatch,
    ) {
        let since = std::mem::replace(&mut self.locks_read, batch.time);
        for (&id, observed) in &mut self.by_id {
            let process = (id, observed.target.pid());
            observed.locks.look(process, since, slots, snapshots, batch);
        }
    }

    /// Counts from now on.
    pub(super) fn begin(&mut self, now: u64) {
        (self.checked, self.locks_read, self.cpus.checked) = (now, now, now);
        for observed in self.by_id.values_mut() {
            observed.entry = Entry::Found(now);
        }
    }

    pub(super) fn n_alive(&self) -> usize {
        self.by_id.len()
    }

    /// The id of the next one.
    pub(super) fn next(&self) -> TargetId {
        self.next
    }
}
