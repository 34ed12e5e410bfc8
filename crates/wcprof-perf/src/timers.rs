//! Timer samples of running threads: `cpu-clock` software events with user registers and a copy
//! of the top of the user stack.
//!
//! One event a CPU where that is permitted (it costs the target 0.2 us a context switch), one
//! event per thread and CPU otherwise (2.2-2.7 us). Hardware counters are never used: many
//! virtual machines have none.

use std::os::fd::{AsRawFd, OwnedFd};

use wcprof_types::Tid;

use crate::event::{self, EventSpec, PerfError, PerfOptions, online_cpus};
use crate::record::{PerfSample, Record, parse_record_with};
use crate::ring::Ring;

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

/// What the kernel said while samples were read.
#[derive(Copy, Clone, PartialEq, Eq, Debug, Default)]
pub struct DrainCounts {
    /// Samples that the kernel dropped since the last time.
    pub n_lost: u64,
    /// Records that could not be parsed.
    pub n_malformed: u64,
}

/// Open events and their rings.
#[derive(Debug)]
pub struct PerfSampler {
    mode: PerfMode,
    /// Events opened from now on sample at once.
    started: bool,
    rings: Vec<Ring>,
    /// Events by the thread they watch (`None`: a whole CPU).
    events: Vec<(Option<Tid>, OwnedFd)>,
    spec: EventSpec,
    max_events: usize,
    n_unwatched: usize,
    buffer: Vec<u8>,
}

impl PerfSampler {
    /// One event a CPU, silent until [`Self::start`]. Needs `CAP_PERFMON` (or `CAP_SYS_ADMIN`), or
    /// `perf_event_paranoid` < 0.
    pub fn per_cpu(options: &PerfOptions<'_>) -> Result<Self, PerfError> {
        let spec = EventSpec::new(options, true);
        let mut events = Vec::new();
        let mut rings = Vec::new();
        for cpu in online_cpus()? {
            let fd = match event::open(&spec, -1, cpu) {
                // The CPU went away between the listing and the call.
                Err(PerfError::NoSuchCpu) => continue,
                fd => fd?,
            };
            if let Some(program) = options.filter {
                event::set_filter(&fd, program)?;
            }
            rings.push(Ring::new(&fd)?);
            events.push((None, fd));
        }
        Ok(Self {
            mode: match options.filter {
                Some(_) => PerfMode::PerCpuFiltered,
                None => PerfMode::PerCpu,
            },
            started: false,
            rings,
            events,
            spec,
            max_events: options.max_events,
            n_unwatched: 0,
            buffer: Vec::new(),
        })
    }

    /// Events of single threads, all of a CPU writing into one ring, silent until
    /// [`Self::start`]. Threads born later are added with [`Self::add_thread`].
    pub fn per_thread(options: &PerfOptions<'_>, tids: &[Tid]) -> Result<Self, PerfError> {
        let mut sampler = Self {
            mode: PerfMode::PerThread,
            started: false,
            rings: Vec::new(),
            events: Vec::new(),
            spec: EventSpec::new(options, true),
            max_events: options.max_events,
            n_unwatched: 0,
            buffer: Vec::new(),
        };
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
            Some(error) if sampler.events.is_empty() => Err(error),
            _ => Ok(sampler),
        }
    }

    /// Begins to sample.
    pub fn start(&mut self) -> Result<(), PerfError> {
        self.started = true;
        self.events.iter().try_for_each(|(_, fd)| event::enable(fd))
    }

    /// Watches one more thread; nothing to do when whole CPUs are watched.
    pub fn add_thread(&mut self, tid: Tid) -> Result<(), PerfError> {
        if self.mode != PerfMode::PerThread {
            return Ok(());
        }
        let cpus = online_cpus()?;
        if self.events.len() + cpus.len() > self.max_events {
            return Err(PerfError::TooManyFiles);
        }
        for (i, cpu) in cpus.into_iter().enumerate() {
            let fd = match event::open(&self.spec, tid.0, cpu) {
                // Kernel samples are not for everyone: user mode only is better than nothing.
                Err(PerfError::NotPermitted { .. }) if self.spec.kernel => {
                    self.spec.kernel = false;
                    event::open(&self.spec, tid.0, cpu)?
                }
                fd => fd?,
            };
            match self.rings.get(i) {
                Some(ring) => event::set_output(&fd, ring.event_fd())?,
                None => self.rings.push(Ring::new(&fd)?),
            }
            if self.started {
                event::enable(&fd)?;
            }
            self.events.push((Some(tid), fd));
        }
        Ok(())
    }

    /// Stops watching a thread that has exited. The event that owns a ring stays open.
    pub fn remove_thread(&mut self, tid: Tid) {
        let rings = &self.rings;
        self.events.retain(|(watched, fd)| {
            *watched != Some(tid) || rings.iter().any(|r| r.event_fd() == fd.as_raw_fd())
        });
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
        self.spec.kernel
    }

    /// Changes the CPU time between two samples, ns.
    pub fn set_period(&mut self, period_ns: u64) -> Result<(), PerfError> {
        self.spec.period_ns = period_ns;
        self.events
            .iter()
            .try_for_each(|(_, fd)| event::set_period(fd, period_ns))
    }

    /// Hands every waiting sample to `sink`, ring by ring, oldest first in each.
    pub fn drain(&mut self, mut sink: impl FnMut(&PerfSample<'_>)) -> DrainCounts {
        let mut counts = DrainCounts::default();
        let kernel_stacks = self.spec.kernel_stacks;
        for ring in &mut self.rings {
            let mut take = |record: &[u8]| match parse_record_with(record, kernel_stacks) {
                Some(Record::Sample(sample)) => sink(&sample),
                Some(Record::Lost(n)) => counts.n_lost += n,
                Some(Record::Other) => {}
                None => counts.n_malformed += 1,
            };
            while ring.with_record(&mut self.buffer, &mut take) {}
        }
        counts
    }
}
