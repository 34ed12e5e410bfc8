//! Timer samples of running threads: `cpu-clock` software events with user registers and a copy
//! of the top of the user stack.
//!
//! One event a CPU where that is permitted (it costs the target 0.2 us a context switch), one
//! event per thread and CPU otherwise (2.2-2.7 us), on CPUs where the targets may run. Hardware
//! counters are never used: many virtual machines have none.

use std::collections::{BTreeMap, BTreeSet};
use std::ops::Bound;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, TryLockError, Weak};

use wcprof_types::Tid;

use crate::cpus::{CpuPolicy, affinity, allowed, of_thread};
use crate::event::{Event, PerfError, Timer};
use crate::record::{PerfSample, Record, parse_record};
use crate::ring::Ring;

/// Threads that are followed to other CPUs at once: each takes some microseconds, and the next tick waits.
const MAX_FOLLOWED: usize = 256;

/// How running threads are sampled.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub enum PerfMode {
    /// One event a CPU, filtered in the kernel by a BPF program.
    PerCpuFiltered,
    /// One event a CPU; samples of other processes are dropped in user space.
    PerCpu,
    /// One event per thread and CPU: permitted without privileges for one's own processes.
    PerThread,
}

/// What to sample.
#[derive(Copy, Clone, Debug)]
pub struct PerfOptions<'a> {
    /// CPU time between two samples, ns.
    pub period_ns: u64,
    /// Bytes of stack copied with each sample.
    pub dump_bytes: u32,
    /// The kernel's part of the call chain, too.
    pub kernel_stacks: bool,
    /// Program that drops samples of other processes.
    pub filter: Option<BorrowedFd<'a>>,
    /// Descriptors that events of single threads may take; threads beyond it are not sampled.
    pub max_events: usize,
    /// Where timers may be.
    pub policy: CpuPolicy,
}

/// The timer of a CPU.
#[derive(Debug)]
struct CpuTimer {
    event: Event,
    /// For how long it had been enabled when that was last asked, ns.
    enabled_ns: u64,
}

impl CpuTimer {
    /// Whether it ran since this was last asked. The kernel takes it away for ever when its CPU goes offline, also if
    /// that comes back.
    fn is_alive(&mut self) -> bool {
        let Ok(enabled_ns) = self.event.enabled_ns() else {
            return true;
        };
        std::mem::replace(&mut self.enabled_ns, enabled_ns) < enabled_ns
    }
}

/// Open events.
#[derive(Debug, Default)]
struct Events {
    /// Of whole CPUs, by CPU.
    of_cpus: BTreeMap<u32, CpuTimer>,
    /// Of single threads, by thread and CPU.
    of_threads: BTreeMap<(Tid, u32), Event>,
    /// Those of threads that are watched no more, into whose rings others write.
    of_rings: Vec<Event>,
}

impl Events {
    fn iter(&self) -> impl Iterator<Item = &Event> {
        let of_cpus = self.of_cpus.values().map(|timer| &timer.event);
        of_cpus.chain(self.of_threads.values())
    }
}

/// The timers of a [`PerfSampler`], for a thread that ends them where the one that has the sampler does not get on.
#[derive(Debug, Default)]
pub struct Timers(Weak<Mutex<Events>>);

impl Timers {
    /// No more samples from now on. Nothing is done where the sampler hangs in a call about them.
    pub fn stop(&self) {
        let Some(events) = self.0.upgrade() else {
            return;
        };
        let events = match events.try_lock() {
            Ok(events) => events,
            Err(TryLockError::Poisoned(poisoned)) => poisoned.into_inner(),
            Err(TryLockError::WouldBlock) => return,
        };
        for event in events.iter() {
            // Fails only for what is none.
            let _ = event.disable();
        }
    }
}

fn lock(events: &Mutex<Events>) -> MutexGuard<'_, Events> {
    events.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Open events and their rings.
#[derive(Debug)]
pub struct PerfSampler {
    mode: PerfMode,
    /// Events opened from now on sample at once.
    started: bool,
    /// By CPU.
    rings: BTreeMap<u32, Ring>,
    /// Threads with events of their own.
    threads: BTreeSet<Tid>,
    /// The last of them that was followed to other CPUs.
    followed: Tid,
    events: Arc<Mutex<Events>>,
    timer: Timer,
    policy: CpuPolicy,
    /// Drops samples of other processes.
    filter: Option<OwnedFd>,
    max_events: usize,
    n_unwatched: usize,
    buffer: Vec<u8>,
}

impl PerfSampler {
    fn new(mode: PerfMode, options: &PerfOptions<'_>) -> Self {
        Self {
            mode,
            started: false,
            rings: BTreeMap::new(),
            threads: BTreeSet::new(),
            followed: Tid(0),
            events: Arc::default(),
            timer: Timer {
                period_ns: options.period_ns,
                dump_bytes: options.dump_bytes,
                kernel: true,
                kernel_stacks: options.kernel_stacks,
            },
            policy: options.policy,
            filter: None,
            max_events: options.max_events,
            n_unwatched: 0,
            buffer: Vec::new(),
        }
    }

    /// One event on each of these CPUs, silent until [`Self::start`]. Needs `CAP_PERFMON` (or `CAP_SYS_ADMIN`), or
    /// `perf_event_paranoid` < 0.
    pub fn per_cpu(options: &PerfOptions<'_>, cpus: &BTreeSet<u32>) -> Result<Self, PerfError> {
        let mode = match options.filter {
            Some(_) => PerfMode::PerCpuFiltered,
            None => PerfMode::PerCpu,
        };
        let mut sampler = Self::new(mode, options);
        let filter = options.filter.map(|fd| fd.try_clone_to_owned()).transpose();
        sampler.filter = filter.map_err(|source| PerfError::Other {
            call: "dup of a program's descriptor",
            source,
        })?;
        sampler.set_cpus(cpus)?;
        Ok(sampler)
    }

    /// From now on these CPUs are watched, also those that were offline meanwhile. Samples that wait on
    /// others are lost: drain them before.
    ///
    /// # Errors
    /// When an event cannot be opened; where threads are watched, for the first of them.
    pub fn set_cpus(&mut self, cpus: &BTreeSet<u32>) -> Result<(), PerfError> {
        if self.mode == PerfMode::PerThread {
            return self.follow_threads(cpus);
        }
        let started = self.started;
        let mut events = lock(&self.events);
        let of_cpus = &mut events.of_cpus;
        of_cpus.retain(|cpu, timer| cpus.contains(cpu) && (!started || timer.is_alive()));
        self.rings.retain(|cpu, _| of_cpus.contains_key(cpu));
        for &cpu in cpus {
            if of_cpus.contains_key(&cpu) {
                continue;
            }
            let event = match Event::open_timer(&self.timer, -1, cpu) {
                // It went away between the listing and the call.
                Err(PerfError::NoSuchCpu) => continue,
                event => event?,
            };
            if let Some(program) = &self.filter {
                event.set_filter(program.as_fd())?;
            }
            self.rings.insert(cpu, Ring::new(&event)?);
            if self.started {
                event.enable()?;
            }
            let enabled_ns = 0;
            of_cpus.insert(cpu, CpuTimer { event, enabled_ns });
        }
        Ok(())
    }

    /// Follows some of the watched threads to those of these CPUs where they may run; the next ones at the next call.
    fn follow_threads(&mut self, cpus: &BTreeSet<u32>) -> Result<(), PerfError> {
        let after = self
            .threads
            .range((Bound::Excluded(self.followed), Bound::Unbounded));
        let tids: Vec<Tid> = after.take(MAX_FOLLOWED).copied().collect();
        self.followed = match tids.last() {
            Some(&last) if tids.len() == MAX_FOLLOWED => last,
            _ => Tid(0),
        };
        let mut followed = Ok(());
        for tid in tids {
            match affinity(tid) {
                // Its number may be that of another process's thread later.
                None => self.remove_thread(tid),
                own => followed = followed.and(self.watch(tid, &allowed(cpus, own))),
            }
        }
        followed
    }

    /// Where timers may be.
    pub fn policy(&self) -> CpuPolicy {
        self.policy
    }

    /// CPUs with timers.
    pub fn cpus(&self) -> BTreeSet<u32> {
        self.rings.keys().copied().collect()
    }

    /// Events of single threads, all of a CPU writing into one ring, silent until
    /// [`Self::start`]. Threads born later are added with [`Self::add_thread`].
    pub fn per_thread(options: &PerfOptions<'_>, tids: &[Tid]) -> Result<Self, PerfError> {
        let mut sampler = Self::new(PerfMode::PerThread, options);
        let mut first_error = None;
        for tid in tids {
            match sampler.add_thread(*tid) {
                Ok(()) | Err(PerfError::NoSuchThread) => {}
                Err(error) => {
                    sampler.n_unwatched += 1;
                    first_error.get_or_insert(error);
                }
            }
        }
        match first_error {
            Some(error) if lock(&sampler.events).of_threads.is_empty() => Err(error),
            _ => Ok(sampler),
        }
    }

    /// Begins to sample.
    pub fn start(&mut self) -> Result<(), PerfError> {
        self.started = true;
        lock(&self.events).iter().try_for_each(Event::enable)
    }

    /// Watches one more thread; nothing to do when whole CPUs are watched.
    pub fn add_thread(&mut self, tid: Tid) -> Result<(), PerfError> {
        if self.mode != PerfMode::PerThread {
            return Ok(());
        }
        self.threads.insert(tid);
        self.watch(tid, &of_thread(&self.policy.usable(), tid))
    }

    /// Watches a thread on these CPUs, and on no others.
    fn watch(&mut self, tid: Tid, cpus: &BTreeSet<u32>) -> Result<(), PerfError> {
        let mut events = lock(&self.events);
        let Events {
            of_threads,
            of_rings,
            ..
        } = &mut *events;
        let before = of_threads.range((tid, 0)..=(tid, u32::MAX));
        let before: BTreeSet<u32> = before.map(|((_, cpu), _)| *cpu).collect();
        for cpu in &before - cpus {
            let Some(event) = of_threads.remove(&(tid, cpu)) else {
                continue;
            };
            let ring = self.rings.get(&cpu);
            if ring.is_some_and(|ring| ring.event_fd() == event.as_raw_fd()) {
                event.disable()?;
                of_rings.push(event);
            }
        }
        let new = cpus - &before;
        if of_threads.len() + of_rings.len() + new.len() > self.max_events {
            return Err(PerfError::TooManyFiles);
        }
        for cpu in new {
            let event = match Event::open_timer(&self.timer, tid.0, cpu) {
                // Kernel samples are not for everyone: user mode only is better than nothing.
                Err(PerfError::NotPermitted { .. }) if self.timer.kernel => {
                    let user_only = Timer {
                        kernel: false,
                        ..self.timer
                    };
                    let event = Event::open_timer(&user_only, tid.0, cpu)?;
                    self.timer = user_only;
                    event
                }
                event => event?,
            };
            match self.rings.get(&cpu) {
                Some(ring) => event.set_output(ring.event_fd())?,
                None => {
                    self.rings.insert(cpu, Ring::new(&event)?);
                }
            }
            if self.started {
                event.enable()?;
            }
            of_threads.insert((tid, cpu), event);
        }
        Ok(())
    }

    /// Stops watching a thread that has exited. The event that owns a ring stays open.
    pub fn remove_thread(&mut self, tid: Tid) {
        if self.threads.remove(&tid) {
            // Fails only for what is no event.
            let _ = self.watch(tid, &BTreeSet::new());
        }
    }

    /// Its timers, now and later, as long as there is the sampler.
    pub fn timers(&self) -> Timers {
        Timers(Arc::downgrade(&self.events))
    }

    /// Threads given to [`Self::per_thread`] that got no event.
    pub fn n_unwatched(&self) -> usize {
        self.n_unwatched
    }

    /// How running threads are sampled.
    pub fn mode(&self) -> PerfMode {
        self.mode
    }

    /// Whether a BPF program sees, and counts, each sample before it is written.
    pub fn is_filtered(&self) -> bool {
        self.mode == PerfMode::PerCpuFiltered
    }

    /// Whether time in the kernel is sampled too.
    pub fn sees_kernel(&self) -> bool {
        self.timer.kernel
    }

    /// Changes the CPU time between two samples, ns.
    pub fn set_period(&mut self, period_ns: u64) -> Result<(), PerfError> {
        self.timer.period_ns = period_ns;
        let events = lock(&self.events);
        events
            .iter()
            .try_for_each(|event| event.set_period(period_ns))
    }

    /// Hands every waiting sample to `sink`, ring by ring, oldest first in each. Gives how many were lost
    /// since the last time: dropped by the kernel, or malformed.
    pub fn drain(&mut self, mut sink: impl FnMut(&PerfSample<'_>)) -> u64 {
        let mut n_lost = 0;
        let kernel_stacks = self.timer.kernel_stacks;
        for (&cpu, ring) in &mut self.rings {
            let mut take = |record: &[u8]| match parse_record(record, cpu, kernel_stacks) {
                Some(Record::Sample(sample)) => sink(&sample),
                Some(Record::Lost(n)) => n_lost += n,
                Some(Record::Other) => {}
                None => n_lost += 1,
            };
            while ring.with_record(&mut self.buffer, &mut take) {}
        }
        n_lost
    }
}

#[cfg(test)]
mod tests {
    use nix::unistd::gettid;

    use super::*;
    use crate::cpus::{online_cpus, pin};

    const OPTIONS: PerfOptions<'_> = PerfOptions {
        period_ns: 1_000_000,
        dump_bytes: 64,
        kernel_stacks: false,
        filter: None,
        max_events: 64,
        policy: CpuPolicy {
            spare_isolated: false,
        },
    };

    /// One that runs, and watches the calling thread.
    fn of_this_thread() -> Result<PerfSampler, PerfError> {
        let mut sampler = PerfSampler::per_thread(&OPTIONS, &[])?;
        sampler.start()?;
        sampler.add_thread(Tid(gettid().as_raw()))?;
        Ok(sampler)
    }

    /// Check that events of a thread follow it to other CPUs and back, each CPU having one, and that nothing of it is left
    /// when it is watched no more but what holds a ring.
    #[test]
    fn moved() {
        let tid = Tid(gettid().as_raw());
        let cpus = of_thread(&online_cpus(), tid);
        let (&here, &there) = (cpus.first().unwrap(), cpus.last().unwrap());
        if here == there {
            return println!("SKIPPED timers::moved: there is one CPU");
        }
        pin(here);
        let mut sampler = match of_this_thread() {
            Ok(sampler) => sampler,
            Err(error) => return println!("SKIPPED timers::moved: {error}"),
        };
        for cpu in [here, there, here, there] {
            pin(cpu);
            sampler.set_cpus(&cpus).unwrap();
            let events = Arc::clone(&sampler.events);
            let events = lock(&events);
            let of_threads: Vec<_> = events.of_threads.keys().copied().collect();
            assert_eq!(of_threads, [(tid, cpu)]);
            drop(events);
            let mut n_samples = 0;
            sampler.drain(|_| ());
            while n_samples == 0 {
                sampler.drain(|sample| n_samples += u32::from(sample.tid == tid));
            }
        }
        sampler.remove_thread(tid);
        let events = lock(&sampler.events);
        assert!(events.of_threads.is_empty() && events.of_rings.len() == 2);
    }

    /// Check that all of many threads are followed, some at a time, and that one which has exited is watched no more.
    #[test]
    fn many() {
        let mut sampler = PerfSampler::new(PerfMode::PerThread, &OPTIONS);
        let none = BTreeSet::new();
        // Numbers that no thread has.
        let gone = i32::MAX - 3 * MAX_FOLLOWED as i32..i32::MAX;
        sampler.threads.extend(gone.map(Tid));
        sampler.threads.insert(Tid(gettid().as_raw()));
        for n_left in [2 * MAX_FOLLOWED + 2, MAX_FOLLOWED + 2, 2, 1] {
            sampler.set_cpus(&none).unwrap();
            assert_eq!(sampler.threads.len(), n_left);
        }
    }

    /// Check that another thread can end the timers, also those that were added later.
    #[test]
    fn stopped() {
        let sampler = match of_this_thread() {
            Ok(sampler) => sampler,
            Err(error) => return println!("SKIPPED timers::stopped: {error}"),
        };
        let events = Arc::clone(&sampler.events);
        let enabled = || -> u64 {
            let events = lock(&events);
            let each = events.iter().map(|event| event.enabled_ns().unwrap());
            each.sum()
        };
        let before = enabled();
        while enabled() == before {}
        let timers = sampler.timers();
        std::thread::spawn(move || timers.stop()).join().unwrap();
        let after = enabled();
        assert_eq!(enabled(), after);
    }
}
