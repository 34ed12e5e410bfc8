//! Processes that join and leave a recording while it runs.

use std::sync::Arc;

use wcprof_types::{Pid, Tid};

use super::batch::{TargetEnd, TargetId};
use super::children::parent_of;
use super::targets::Observed;
use super::{IDENTITY_NS, Run, Sampler, SamplingEnd};
use crate::bpf::MAX_TARGETS;
use wcprof_host::{Liveness, Target, TargetError};

/// Processes of a recording, those that have left among them.
const MAX_PROCESSES: usize = 1 << 16;

impl Sampler {
    /// Finds processes that have exited or run another program; an error when none is left.
    pub(super) fn check_members(&mut self, run: &mut Run<'_>, now: u64) -> Result<(), SamplingEnd> {
        for target in std::mem::take(&mut run.set.gone) {
            self.end_target(run, target, TargetEnd::Exited, now);
        }
        self.check_exits(run, now);
        self.check_identities(run, now);
        match (self.targets.n_alive(), run.last_end) {
            (0, Some(TargetEnd::Exec)) => Err(SamplingEnd::TargetExec),
            (0, _) => Err(SamplingEnd::TargetExited),
            _ => Ok(()),
        }
    }

    /// Asks now and then, since it costs system calls, and when no thread is left.
    fn check_exits(&mut self, run: &mut Run<'_>, now: u64) {
        let n_unlisted = run.set.unlisted.map_or(0, |(n, _)| n);
        let empty = run.set.full.is_empty() && run.set.unchanged.is_empty() && n_unlisted == 0;
        if !empty && now.saturating_sub(run.last_exit_check) < IDENTITY_NS {
            return;
        }
        run.last_exit_check = now;
        let exited =
            |(id, observed): (TargetId, &Observed)| observed.target.has_exited().then_some(id);
        let exited: Vec<TargetId> = self.targets.iter().filter_map(exited).collect();
        for target in exited {
            self.end_target(run, target, TargetEnd::Exited, now);
        }
    }

    fn check_identities(&mut self, run: &mut Run<'_>, now: u64) {
        let mut ended: Vec<(TargetId, TargetEnd)> = Vec::new();
        for thread in run.set.full.iter().filter(|t| t.exec_id != 0) {
            if let Some(observed) = self.targets.get_mut(thread.target)
                && *observed.exec_id.get_or_insert(thread.exec_id) != thread.exec_id
            {
                ended.push((thread.target, TargetEnd::Exec));
            }
        }
        if now.saturating_sub(run.last_identity) >= IDENTITY_NS {
            run.last_identity = now;
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
            self.end_target(run, target, end, now);
        }
    }

    /// Ends the part of one process. With children of targets recorded, the program that it runs
    /// now is one of them.
    fn end_target(&mut self, run: &mut Run<'_>, id: TargetId, end: TargetEnd, now: u64) {
        let Some(pid) = self.targets.get(id).map(Observed::pid) else {
            return;
        };
        // Samples of it that are waiting are still its own.
        self.drain_timer_samples(run);
        if let Some(observed) = self.targets.remove(id)
            && end == TargetEnd::Exited
        {
            // After an exec the clock has run on for another program.
            let cpu = observed.target.cpu_ns().map(|cpu| (id, cpu));
            self.tell_cpu_clocks(run, cpu);
        }
        self.snapshots.remove_target(id, pid);
        let threads = run.slots.iter().filter(|(_, slot)| slot.target == id);
        let threads: Vec<Tid> = threads.map(|(&tid, _)| tid).collect();
        for tid in threads {
            self.forget_thread(run, tid);
        }
        run.batch.ended.push((id, end, now));
        run.last_end = Some(end);
        if end == TargetEnd::Exec && self.births.is_some() {
            self.join(run, pid, true);
        }
    }

    /// Hands on what is known of a thread and forgets it.
    pub(super) fn forget_thread(&mut self, run: &mut Run<'_>, tid: Tid) {
        let Some(mut slot) = run.slots.remove(&tid) else {
            return;
        };
        if slot.keep {
            slot.catch_up(run.unlisted.0, run.unlisted.1);
            run.batch.threads.extend(slot.take_deferred());
        }
        run.batch.exited.push((slot.target, tid));
        if let Some(observed) = self.targets.get_mut(slot.target) {
            observed.locks.exited(tid, &slot);
        }
        self.snapshots.forget(tid);
        if let Some(perf) = &mut self.perf {
            perf.remove_thread(tid);
        }
    }

    /// Takes in what targets have started since the tick before, if that was asked for.
    pub(super) fn admit_children(&mut self, run: &mut Run<'_>, now: u64) {
        let Some(births) = &mut self.births else {
            return;
        };
        // Ascending: a child comes before its own children.
        for pid in births.candidates(now) {
            let is_known = self.targets.of_pid(Pid(pid)).is_some();
            let parent = parent_of(pid).filter(|_| !is_known);
            if parent.is_some_and(|parent| self.targets.of_pid(parent).is_some()) {
                self.join(run, Pid(pid), false);
            }
        }
    }

    /// Begins to sample one more process.
    fn join(&mut self, run: &mut Run<'_>, pid: Pid, rejoined: bool) {
        let target = match Target::open(pid) {
            Ok(target) => Arc::new(target),
            // Numbers of threads are candidates, too; and what has exited is not missed.
            Err(
                TargetError::IsThread { .. }
                | TargetError::NoSuchProcess(_)
                | TargetError::Zombie(_),
            ) => return,
            Err(_) => {
                run.counts.n_left_out += 1;
                return;
            }
        };
        let next = u32::try_from(self.targets.n_all()).unwrap_or(u32::MAX);
        let is_room = self.targets.n_alive() < MAX_TARGETS && self.targets.n_all() < MAX_PROCESSES;
        if !is_room || self.snapshots.add_target(TargetId(next), pid).is_err() {
            run.counts.n_left_out += 1;
            return;
        }
        let id = self.targets.add(Arc::clone(&target));
        // What the process had used when its part began.
        let mut cpu = Some(0);
        if rejoined {
            cpu = target.cpu_ns();
            if let Some(observed) = self.targets.get_mut(id) {
                observed.rejoined = true;
            }
            self.snapshots.want_full();
        }
        self.tell_cpu_clocks(run, cpu.map(|cpu| (id, cpu)));
        run.batch.joined.push((id, target));
    }

    pub(super) fn read_cpu_clocks(&mut self, run: &mut Run<'_>) {
        let clocks = self.targets.iter();
        let clocks = clocks.filter_map(|(id, observed)| Some((id, observed.target.cpu_ns()?)));
        self.tell_cpu_clocks(run, clocks);
        run.clocks_read = true;
    }

    /// Whole processes' clocks tell what threads used that came and went unseen, but not where others are
    /// left out on purpose.
    fn tell_cpu_clocks(
        &self,
        run: &mut Run<'_>,
        clocks: impl IntoIterator<Item = (TargetId, u64)>,
    ) {
        if self.keep_thread.is_none() {
            run.batch.process_cpu_ns.extend(clocks);
        }
    }
}
