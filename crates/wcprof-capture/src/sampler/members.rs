//! Processes that join and leave a recording while it runs.

use std::sync::Arc;

use wcprof_types::{Pid, Tid};

use super::arrivals::{Arrivals, Entry};
use super::children::birth_of;
use super::links::SamplingEnd;
use super::opener::{Opened, Opener, Wanted};
use super::state::Sampler;
use super::targets::Observed;
use crate::batch::{CpuClock, TargetEnd, TargetId};
use wcprof_host::clock::monotonic_ns;
use wcprof_host::{Liveness, Target, TargetError};

/// The targets' identity (exec, exit, pid reuse) is checked this often.
const IDENTITY_NS: u64 = 100_000_000;

impl Sampler {
    /// Finds processes that have exited or run another program; an error when none is left.
    pub(super) fn check_members(&mut self, now: u64) -> Result<(), SamplingEnd> {
        for target in std::mem::take(&mut self.set.gone) {
            self.end_target(target, TargetEnd::Exited, now);
        }
        let is_due = self.is_check_due(now);
        if is_due {
            self.targets.checked = now;
        }
        self.check_exits(is_due, now);
        self.check_identities(is_due, now);
        // What runs another program now.
        self.admit_opened();
        let is_behind = self.targets.opener.as_ref().is_some_and(Opener::is_behind);
        let is_expecting = self
            .targets
            .arrivals
            .as_ref()
            .is_some_and(Arrivals::is_expecting);
        match (self.targets.n_alive(), self.targets.last_end) {
            (0, _) if is_behind || is_expecting => Ok(()),
            (0, Some(TargetEnd::Exec)) => Err(SamplingEnd::TargetExec),
            (0, _) => Err(SamplingEnd::TargetExited),
            _ => Ok(()),
        }
    }

    /// Whether the next tick has to ask for exits.
    pub(super) fn is_check_due(&self, now: u64) -> bool {
        now.saturating_sub(self.targets.checked) >= IDENTITY_NS
    }

    /// Asks now and then, since it costs system calls, and when no thread is left.
    fn check_exits(&mut self, is_due: bool, now: u64) {
        let is_empty = self.set.threads.is_empty() && self.set.n_unlisted() == 0;
        if !is_empty && !is_due {
            return;
        }
        let exited =
            |(id, observed): (TargetId, &Observed)| observed.target.has_exited().then_some(id);
        let exited: Vec<TargetId> = self.targets.iter().filter_map(exited).collect();
        for target in exited {
            self.end_target(target, TargetEnd::Exited, now);
        }
    }

    fn check_identities(&mut self, is_due: bool, now: u64) {
        let mut ended: Vec<(TargetId, TargetEnd)> = Vec::new();
        for thread in self.set.threads.iter().filter(|t| t.info.exec_id != 0) {
            let exec_id = thread.info.exec_id;
            if let Some(observed) = self.targets.get_mut(thread.target)
                && *observed.exec_id.get_or_insert(exec_id) != exec_id
            {
                ended.push((thread.target, TargetEnd::Exec));
            }
        }
        if is_due {
            // An engine that shows an exec needs nothing else.
            for (id, observed) in self.targets.iter().filter(|(_, o)| o.exec_id.is_none()) {
                match observed.target.liveness() {
                    Liveness::Same => {}
                    Liveness::Exec => ended.push((id, TargetEnd::Exec)),
                    Liveness::Exited => ended.push((id, TargetEnd::Exited)),
                }
            }
        }
        for (target, end) in ended {
            self.end_target(target, end, now);
        }
    }

    /// Ends the part of one process. With children of targets recorded, the program that it runs
    /// now is one of them.
    fn end_target(&mut self, id: TargetId, end: TargetEnd, now: u64) {
        let Some(target) = self.targets.get(id).map(|o| Arc::clone(&o.target)) else {
            return;
        };
        let pid = target.pid();
        // Samples of it that are waiting are still its own.
        self.drain_timer_samples();
        if let Some(observed) = self.targets.remove(id)
            && end == TargetEnd::Exited
        {
            // After an exec the clock has run on for another program.
            let clock = observed.target.cpu_ns().map(|cpu| clock(id, cpu));
            self.add_cpu_clocks(clock);
        }
        self.snapshots.remove_target(id, pid);
        self.threads.newcomers.forget_target(id);
        let slots = self.threads.slots.iter();
        let threads = slots.filter_map(|(&tid, slot)| (slot.target == id).then_some(tid));
        for tid in threads.collect::<Vec<Tid>>() {
            self.forget_thread(tid);
        }
        self.outbox.batch.ended.push((id, end, now));
        self.targets.last_end = Some(end);
        if self.targets.births.is_none() {
            return;
        }
        match end {
            TargetEnd::Exec => self.open(Wanted {
                pid,
                started: target.started(),
                entry: Entry::Exec,
            }),
            // One that got its number meanwhile was taken for it.
            _ if birth_of(pid).is_some_and(|(_, started)| started != target.started()) => {
                self.admit_child(pid);
            }
            _ => {}
        }
    }

    /// Takes in what targets have started since the tick before, if that was asked for.
    pub(super) fn admit_children(&mut self, now: u64) {
        let is_full = self.targets.opener.as_ref().is_some_and(Opener::is_full);
        let births = self.targets.births.as_mut().filter(|_| !is_full);
        let candidates = births.map(|births| births.candidates(now));
        // Ascending: a child comes before its own children.
        for pid in candidates.unwrap_or_default() {
            self.admit_child(Pid(pid));
        }
        self.admit_opened();
    }

    /// Takes in the process with this number, if a target has started it and it is not known.
    fn admit_child(&mut self, pid: Pid) {
        let born = birth_of(pid).filter(|_| !self.targets.is_known(pid));
        if let Some((parent, started)) = born
            && self.targets.is_known(parent)
        {
            self.open(Wanted {
                pid,
                started,
                entry: Entry::Born,
            });
        }
    }

    fn admit_opened(&mut self) {
        let opener = self.targets.opener.as_mut();
        for Opened { target, entry, .. } in opener.map(Opener::take).unwrap_or_default() {
            match target {
                Ok(target) => self.join(Arc::new(target), entry),
                // Numbers of threads are candidates, too; and what has exited is not missed.
                Err(
                    TargetError::IsThread { .. }
                    | TargetError::NoSuchProcess(_)
                    | TargetError::Zombie(_),
                ) => {}
                Err(_) => self.outbox.batch.counts.n_left_out += 1,
            }
        }
    }

    /// Takes in what another thread has found.
    pub(super) fn admit_arrivals(&mut self, now: u64) {
        let arrivals = self.targets.arrivals.as_ref();
        let arrived = arrivals.map(Arrivals::take).unwrap_or_default();
        if !arrived.is_empty() && self.targets.n_alive() >= self.targets.room.max_alive {
            // What has ended makes room.
            self.check_exits(true, now);
        }
        for target in arrived {
            if let Some(id) = self.targets.of_pid(target.pid()) {
                let known = self.targets.get(id);
                if known.is_some_and(|known| known.target == target) {
                    continue;
                }
                // Another program by now, which was found sooner than the end of the one before.
                self.end_target(id, TargetEnd::Exec, now);
            }
            self.join(target, Entry::Found(now));
        }
    }

    /// Has a process opened, to sample it from then on.
    fn open(&mut self, wanted: Wanted) {
        if self.targets.opener.is_none() {
            self.targets.opener = Opener::start().ok();
        }
        match &mut self.targets.opener {
            Some(opener) => opener.want(wanted),
            None => self.outbox.batch.counts.n_left_out += 1,
        }
    }

    /// Begins to sample one more process.
    fn join(&mut self, target: Arc<Target>, entry: Entry) {
        let pid = target.pid();
        let is_room = self.targets.n_alive() < self.targets.room.max_alive;
        let next = self.targets.next();
        if !is_room || self.snapshots.add_target(next, pid).is_err() {
            self.outbox.batch.counts.n_left_out += 1;
            return;
        }
        let id = self.targets.add(Arc::clone(&target));
        if entry == Entry::Born {
            self.add_cpu_clocks([clock(id, 0)]);
        } else {
            if let Some(observed) = self.targets.get_mut(id) {
                observed.entry = entry;
            }
            self.snapshots.want_full();
            self.outbox.without_clock.push(id);
        }
        self.outbox.batch.joined.push((id, target));
    }

    /// Reads what processes had used when their threads were first looked at: what these ran before is in neither account.
    pub(super) fn read_first_clocks(&mut self) {
        for id in std::mem::take(&mut self.outbox.without_clock) {
            let observed = self.targets.get(id);
            let cpu = observed.and_then(|observed| observed.target.cpu_ns());
            self.add_cpu_clocks(cpu.map(|cpu| clock(id, cpu)));
        }
    }

    pub(super) fn read_cpu_clocks(&mut self) {
        let clocks = self.targets.iter();
        let clocks = clocks.filter_map(|(id, observed)| Some(clock(id, observed.target.cpu_ns()?)));
        let mut clocks: Vec<CpuClock> = clocks.collect();
        let unseen_ns = monotonic_ns().saturating_sub(self.threads.seen.time);
        for clock in &mut clocks {
            clock.unseen_ns = unseen_ns;
        }
        self.add_cpu_clocks(clocks);
        // Threads that wait are handed on in the same batch.
        self.outbox.is_urgent = true;
    }

    /// Whole processes' clocks tell what threads used that came and went unseen, but not where others are
    /// left out on purpose.
    fn add_cpu_clocks(&mut self, clocks: impl IntoIterator<Item = CpuClock>) {
        if self.threads.keep_thread.is_none() {
            self.outbox.batch.cpu_clocks.extend(clocks);
        }
    }
}

fn clock(target: TargetId, cpu_ns: u64) -> CpuClock {
    CpuClock {
        target,
        cpu_ns,
        unseen_ns: 0,
    }
}
