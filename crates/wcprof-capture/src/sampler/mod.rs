//! The sampling loop: at each tick one snapshot of all threads of the targets, copies of the stacks that can
//! have changed, and the timer samples of running threads. Never unwinds, never writes to disk.

mod arrivals;
mod budget;
mod children;
mod clock;
mod links;
mod locks;
mod members;
mod newcomers;
mod observe;
mod opener;
mod outbox;
mod pulse;
mod slot;
mod stack_map;
mod stacks;
mod start;
mod state;
mod targets;
mod threads;

use std::sync::Arc;
use std::sync::atomic::Ordering;

pub use arrivals::Arrivals;
pub use links::{SamplerLinks, SamplerRequest, SamplingEnd, StackRequest};
pub use pulse::{Pulse, Stuck, Watcher};
pub(crate) use start::{DUMP_BYTES, OWN_FILES};
pub use start::{MAX_MODULE_FILES, MAX_MODULES, SamplerOptions, StartError};
pub use state::Sampler;
pub use threads::KeepThread;

use crate::engine::EngineKind;
use crate::sys::{become_ordinary, limited_cpu};
use clock::{DueTick, TickClock};
use outbox::MAX_TICKS;
use wcprof_host::clock::{monotonic_ns, own_cpu_ns, thread_cpu_ns};
use wcprof_perf::{PerfSampler, isolated_cpus};

/// It is asked this often where threads of the targets may run, and which CPUs are online.
const CPUS_NS: u64 = 2_000_000_000;

/// A sample that is deeper than its copy makes the sampler read ticks with samples at once for this long,
/// ns. The rest of such a stack must be read while it is still there.
const DEEP_NS: u64 = 1_000_000_000;

impl Sampler {
    /// Samples until the end. Call it on a thread of its own: it raises that thread's priority.
    pub fn run(mut self, links: &SamplerLinks<'_>) -> SamplingEnd {
        if let Some(perf) = &mut self.perf
            && let Err(error) = perf.start()
        {
            return SamplingEnd::Failed(error.into());
        }
        let begin = monotonic_ns();
        self.clock = TickClock::new(self.budget.interval(), begin);
        let used = limited_cpu();
        self.budget.begin(begin, used, own_cpu_ns());
        self.targets.begin(begin);
        self.threads.mentioned = begin;
        let duration = links.duration.map(|d| d.as_nanos() as u64);
        let (mut now, mut cpu) = (begin, thread_cpu_ns());
        let mut end = loop {
            if links.stop.load(Ordering::Relaxed) {
                break SamplingEnd::Stopped;
            }
            if duration.is_some_and(|duration| now - begin >= duration) {
                break SamplingEnd::Duration;
            }
            self.targets.pulse.rest();
            if !self.clock.wait(now) {
                now = monotonic_ns();
                continue;
            }
            self.targets.pulse.begin();
            match self.tick(links) {
                Ok(time) => now = time,
                Err(end) => break end,
            }
            self.clock.ended(monotonic_ns());
            // With the sleep before it, which takes little.
            let before = std::mem::replace(&mut cpu, thread_cpu_ns());
            if self.clock.is_slow(cpu - before) && become_ordinary() {
                self.targets
                    .pulse
                    .give_up_priority(self.engine == EngineKind::Bpf);
            }
        };
        self.targets.pulse.begin();
        if let Err(last) = self.take_held(links) {
            end = last;
        }
        self.send_last(links);
        self.targets.pulse.rest();
        end
    }

    /// Takes a snapshot and, unless it can wait for later ones, all that follows from it. Gives when it
    /// began.
    fn tick(&mut self, links: &SamplerLinks<'_>) -> Result<u64, SamplingEnd> {
        let pulse = Arc::clone(&self.targets.pulse);
        let _asking = self.targets.only().map(|pid| pulse.tick(pid));
        if self.can_hold()
            && let Some(held) = self.snapshots.hold().map_err(SamplingEnd::Failed)?
        {
            let due = self.clock.due(held.time);
            self.held.ticks.push(due);
            if held.urgent || held.n_samples >= self.held.max_samples(held.time) {
                self.take_held(links)?;
            }
            return Ok(held.time);
        }
        self.take_held(links)?;
        let due = self.clock.due(monotonic_ns());
        self.outbox.begin_tick(&due);
        self.take_requests(links);
        self.admit_children(due.time);
        self.admit_arrivals(due.time);
        self.allow_new();
        self.snapshots
            .snapshot(&mut self.set, &mut self.outbox.batch.stacks)
            .map_err(SamplingEnd::Failed)?;
        self.end_tick(due.time, Some(links))?;
        Ok(due.time)
    }

    /// Whether nothing is to be done at the next tick that cannot be done a few ticks later.
    fn can_hold(&self) -> bool {
        let now = self.clock.deadline();
        self.threads.seen.number > 0
            && self.n_waiting() == 0
            && self.targets.births.is_none()
            && self.outbox.n_ticks + self.held.ticks.len() + 1 < MAX_TICKS
            && !self.is_check_due(now)
            && !self.threads.is_mention_due(now)
            && !self.budget.is_due(now)
            && self.perf.as_ref().is_none_or(PerfSampler::is_filtered)
            && self.targets.iter().all(|(_, o)| !o.locks.is_looking())
    }

    /// Does what follows from the snapshots that were held, each as at its own tick.
    fn take_held(&mut self, links: &SamplerLinks<'_>) -> Result<(), SamplingEnd> {
        let held: Vec<DueTick> = std::mem::take(&mut self.held.ticks);
        if !held.is_empty() {
            self.take_requests(links);
            self.allow_new();
        }
        for (i, due) in held.iter().enumerate() {
            self.outbox.begin_tick(due);
            self.snapshots
                .take_held(&mut self.set, &mut self.outbox.batch.stacks)
                .map_err(SamplingEnd::Failed)?;
            let is_last = i + 1 == held.len();
            self.end_tick(due.time, is_last.then_some(links))?;
        }
        Ok(())
    }

    /// What follows from a snapshot. `links`: for the last one of all that were taken.
    fn end_tick(&mut self, now: u64, links: Option<&SamplerLinks<'_>>) -> Result<(), SamplingEnd> {
        self.check_members(now)?;
        self.take_snapshot(now);
        self.read_first_clocks();
        let (slots, snapshots) = (&self.threads.slots, self.snapshots.as_mut());
        self.targets
            .look_at_locks(slots, snapshots, &mut self.outbox.batch);
        if links.is_some() && self.drain_timer_samples() {
            self.held.deep_until = now + DEEP_NS;
        }
        let is_account_due = self.budget.tick(monotonic_ns(), limited_cpu());
        if is_account_due {
            self.keep_to_budget(monotonic_ns());
            self.read_cpu_clocks();
        }
        if is_account_due && links.is_some() {
            self.follow_cpus(now);
        }
        // Not before the samples of all ticks in it are there.
        if let Some(links) = links
            && self.outbox.is_due()
        {
            let lost = self.outbox.send(&links.batches)?;
            if !lost.is_empty() {
                // Their stacks are needed again.
                self.snapshots.want_full();
            }
            for tid in lost {
                if let Some(slot) = self.threads.slots.get_mut(&tid) {
                    slot.force = true;
                }
            }
        }
        Ok(())
    }

    /// How many new threads the next snapshot may have: more are left for later ones.
    fn allow_new(&mut self) {
        self.set.max_new = self.budget.n_new(monotonic_ns(), limited_cpu());
    }

    /// Takes account of what the recorder asks for.
    fn take_requests(&mut self, links: &SamplerLinks<'_>) {
        while let Ok(request) = links.requests.try_recv() {
            let SamplerRequest::Stack(request) = request else {
                self.threads.is_mention_wanted = true;
                continue;
            };
            if let Some(slot) = self.threads.slots.get_mut(&request.tid)
                && slot.resize(&request)
            {
                if let Some(want) = slot.grown_want() {
                    self.snapshots.want_stack(want);
                }
                slot.read_again(self.snapshots.as_mut());
            }
        }
    }

    /// Timers on the CPUs where threads may run by now. Where that fails, running threads have no stack there,
    /// which the recorder counts.
    fn follow_cpus(&mut self, now: u64) {
        if now.saturating_sub(self.targets.cpus.checked) < CPUS_NS {
            return;
        }
        self.targets.cpus.checked = now;
        let Some(perf) = &mut self.perf else { return };
        let pids = self.targets.iter().map(|(_, observed)| observed.pid());
        let cpus = perf.policy().of_processes(pids);
        if cpus.is_empty() {
            return;
        }
        self.drain_timer_samples();
        if let Some(perf) = &mut self.perf {
            // At the start it was said already.
            if let Err(error) = perf.set_cpus(&cpus)
                && perf.n_unwatched() == 0
            {
                self.targets.pulse.lacks_timers(&error);
            }
            let now = perf.cpus();
            let new = &now - &std::mem::replace(&mut self.targets.cpus.cpus, now.clone());
            if !new.is_empty() {
                self.targets.pulse.disturb(&(&new & &isolated_cpus()));
            }
        }
    }

    /// Changes the rate when wcprof would use more than its share of a core, or has used less.
    fn keep_to_budget(&mut self, now: u64) {
        if !self.budget.check(now, limited_cpu()) {
            return;
        }
        let rate_hz = self.budget.rate_hz();
        self.clock.set_interval(self.budget.interval(), now);
        if let Some(perf) = &mut self.perf {
            // The old period stays where the kernel refuses: more samples than asked for.
            let _ = perf.set_period(start::timer_period_ns(rate_hz));
        }
        self.outbox.batch.counts.new_rate_hz = Some(rate_hz);
    }

    /// Hands on what was held back, and the samples since the last tick.
    fn send_last(&mut self, links: &SamplerLinks<'_>) {
        self.outbox.batch.time = monotonic_ns();
        self.drain_timer_samples();
        self.threads.flush(&mut self.outbox.batch.threads);
        self.read_cpu_clocks();
        // Waits for room: nothing may be lost at the end. A receiver that is gone needs nothing.
        let _ = links.batches.send(std::mem::take(&mut self.outbox.batch));
    }
}
