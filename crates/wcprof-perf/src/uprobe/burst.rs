//! Opens probes on threads, reads their rings for a short while, takes them away and looks whether
//! they are gone.

use std::collections::{BTreeMap, BTreeSet};
use std::os::fd::AsRawFd;
use std::time::{Duration, Instant};

use wcprof_host::clock::monotonic_ns;
use wcprof_host::procfs::list_threads;
use wcprof_host::{Target, read_memory};
use wcprof_types::{Avma, Pid, Tid};

use super::error::UprobeError;
use super::pmu::UprobePmu;
use super::probe::{Place, Probe};
use super::record::{BurstEvent, Parsed, UpdateFunction, parse};
use super::site::CryptoModule;
use crate::event::{Event, PerfError};
use crate::ring::Ring;

/// Time between two reads of the rings: each holds 8000 calls, a thread makes at most 700 000 a
/// second with a probe on them.
const LOOK: Duration = Duration::from_millis(1);
/// Bytes of each function that are compared before and after.
const TEXT: usize = 16;
/// How long a breakpoint may take to vanish after the last descriptor is closed.
const PATIENCE: Duration = Duration::from_secs(2);

/// Limits of a burst.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub struct BurstOptions {
    /// How long it lasts.
    pub length: Duration,
    /// Calls that are kept; the burst ends when there are more.
    pub max_calls: usize,
    /// Threads that are observed; each holds half a megabyte while it lasts.
    pub max_threads: usize,
}

impl Default for BurstOptions {
    fn default() -> Self {
        Self {
            length: Duration::from_millis(200),
            max_calls: 1 << 20,
            max_threads: 64,
        }
    }
}

/// Why a burst ended.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub enum BurstEnd {
    /// Its time was over.
    Time,
    /// As many calls as are kept.
    Full,
    /// The target exited.
    Exited,
}

/// Whether the breakpoints are gone.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Removal {
    /// The bytes of each function are what they were before.
    Verified,
    /// The target has exited, and its memory with it.
    Exited,
    /// Its memory cannot be read, before or after.
    Unknown,
    /// The bytes at this address still differ.
    Differs(Avma),
}

/// What a thread did.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub struct ThreadCounts {
    /// The thread.
    pub tid: Tid,
    /// Hits, as the kernel counts them: those that gave a sample and those that were lost.
    pub n_hits: u64,
    /// Samples among the events.
    pub n_samples: u64,
    /// Samples that the kernel says it dropped.
    pub n_lost: u64,
}

/// A burst that is over.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct BurstReport {
    /// Calls and gaps; those of one thread are in order.
    pub events: Vec<BurstEvent>,
    /// Each observed thread.
    pub threads: Vec<ThreadCounts>,
    /// Threads of the process that were not observed: of other names, or beyond the limit.
    pub n_not_observed: usize,
    /// Threads that were born meanwhile; their calls are not in the events.
    pub n_born: usize,
    /// Records that could not be understood.
    pub n_malformed: u64,
    /// Calls that were thrown away, because there were more than are kept.
    pub n_dropped: u64,
    /// When all probes were enabled, ns of `CLOCK_MONOTONIC`.
    pub begin_ns: u64,
    /// When they were disabled.
    pub end_ns: u64,
    /// From the first probe's opening to the last one's end: how long calls trapped, ns.
    pub trapped_ns: u64,
    /// Why it ended.
    pub end: BurstEnd,
    /// Whether the probes are gone.
    pub removal: Removal,
}

impl BurstReport {
    /// Hits of all observed threads.
    pub fn n_hits(&self) -> u64 {
        self.threads.iter().map(|thread| thread.n_hits).sum()
    }

    /// Hits without a sample.
    pub fn n_missing(&self) -> u64 {
        let missing = |t: &ThreadCounts| t.n_hits.saturating_sub(t.n_samples);
        self.threads.iter().map(missing).sum()
    }
}

/// A burst that is prepared; nothing is in the target yet.
#[derive(Debug)]
pub struct Burst<'a> {
    target: &'a Target,
    pmu: UprobePmu,
    modules: &'a [CryptoModule],
    tids: Vec<Tid>,
    n_not_observed: usize,
    options: BurstOptions,
}

struct Thread {
    tid: Tid,
    /// Dropped before the probes, one of which owns it.
    ring: Ring,
    probes: Vec<(Probe, UpdateFunction)>,
    n_samples: u64,
    n_lost: u64,
}

impl<'a> Burst<'a> {
    /// Prepares a burst on the threads that `choose` takes.
    ///
    /// # Errors
    /// When the target is gone or no thread is chosen.
    pub fn new(
        target: &'a Target,
        pmu: UprobePmu,
        modules: &'a [CryptoModule],
        options: BurstOptions,
        mut choose: impl FnMut(Tid) -> bool,
    ) -> Result<Self, UprobeError> {
        let all = threads(target);
        let mut tids: Vec<Tid> = all.iter().copied().filter(|tid| choose(*tid)).collect();
        tids.truncate(options.max_threads);
        if tids.is_empty() {
            return Err(UprobeError::NoThreads(target.pid().0));
        }
        Ok(Self {
            target,
            pmu,
            modules,
            n_not_observed: all.len() - tids.len(),
            tids,
            options,
        })
    }

    /// Threads that will be observed.
    pub fn n_threads(&self) -> usize {
        self.tids.len()
    }

    /// Puts the probes in, reads, takes them out; calls `watching` once every call is seen.
    ///
    /// # Errors
    /// When the kernel refuses a probe; none is left then.
    pub fn run(self, watching: impl FnOnce()) -> Result<BurstReport, UprobeError> {
        let pid = self.target.pid();
        let before = text(pid, self.modules);
        let opened = Instant::now();
        let result = self.observe(watching);
        let trapped_ns = nanos(opened.elapsed());
        let removal = removal(self.target, self.modules, before.as_ref());
        let mut report = result?;
        report.trapped_ns = trapped_ns;
        report.removal = removal;
        Ok(report)
    }

    fn observe(&self, watching: impl FnOnce()) -> Result<BurstReport, UprobeError> {
        let known: BTreeSet<Tid> = threads(self.target).into_iter().collect();
        let mut open = Vec::with_capacity(self.tids.len());
        for tid in &self.tids {
            // A thread may end at any time.
            if let Some(thread) = self.open(*tid)? {
                open.push(thread);
            }
        }
        if open.is_empty() {
            return Err(UprobeError::NoThreads(self.target.pid().0));
        }
        let each = |open: &[Thread], change: fn(&Event) -> Result<(), PerfError>| {
            let mut all = open.iter().flat_map(|thread| &thread.probes);
            all.try_for_each(|(probe, _)| change(&probe.event))
        };
        each(&open, Event::enable)?;
        let begin_ns = monotonic_ns();
        watching();
        let begin = Instant::now();
        let mut log = Log {
            max: self.options.max_calls,
            ..Log::default()
        };
        let end = loop {
            std::thread::sleep(LOOK.min(self.options.length));
            open.iter_mut().for_each(|thread| thread.drain(&mut log));
            if log.n_dropped > 0 {
                break BurstEnd::Full;
            }
            if begin.elapsed() >= self.options.length {
                break BurstEnd::Time;
            }
            if self.target.has_exited() {
                break BurstEnd::Exited;
            }
        };
        each(&open, Event::disable)?;
        let end_ns = monotonic_ns();
        let born = threads(self.target)
            .into_iter()
            .filter(|t| !known.contains(t));
        let n_born = born.count();
        let mut counts = Vec::with_capacity(open.len());
        for thread in &mut open {
            thread.drain(&mut log);
            let hits = thread.probes.iter().map(|(probe, _)| probe.event.count());
            counts.push(ThreadCounts {
                tid: thread.tid,
                n_hits: hits.map(|n| n.unwrap_or(0)).sum(),
                n_samples: thread.n_samples,
                n_lost: thread.n_lost,
            });
        }
        Ok(BurstReport {
            events: log.events,
            threads: counts,
            n_not_observed: self.n_not_observed,
            n_born,
            n_malformed: log.n_malformed,
            n_dropped: log.n_dropped,
            begin_ns,
            end_ns,
            trapped_ns: 0,
            end,
            removal: Removal::Unknown,
        })
    }

    /// Probes on one thread; `None` when it has ended.
    fn open(&self, tid: Tid) -> Result<Option<Thread>, UprobeError> {
        let mut probes: Vec<(Probe, UpdateFunction)> = Vec::new();
        for module in self.modules {
            for site in &module.sites {
                let place = Place {
                    pmu: self.pmu,
                    file: &module.file,
                    path: &module.path,
                    offset: site.offset,
                };
                let Some(probe) = Probe::open(place, tid)? else {
                    return Ok(None);
                };
                probes.push((probe, site.function));
            }
        }
        let Some(((owner, _), others)) = probes.split_first() else {
            return Ok(None);
        };
        let ring = Ring::new(&owner.event)?;
        for (probe, _) in others {
            probe.event.set_output(owner.event.as_raw_fd())?;
        }
        Ok(Some(Thread {
            tid,
            ring,
            probes,
            n_samples: 0,
            n_lost: 0,
        }))
    }
}

/// What was read so far.
#[derive(Default)]
struct Log {
    events: Vec<BurstEvent>,
    max: usize,
    n_dropped: u64,
    n_malformed: u64,
    buffer: Vec<u8>,
}

impl Log {
    fn push(&mut self, event: BurstEvent) {
        if self.events.len() < self.max {
            self.events.push(event);
        } else {
            self.n_dropped += 1;
        }
    }
}

impl Thread {
    fn drain(&mut self, log: &mut Log) {
        // A thread that is faster than this loop must not keep it here for ever.
        for _ in 0..log.max {
            let mut parsed = None;
            let take = |record: &[u8]| parsed = parse(record);
            if !self.ring.with_record(&mut log.buffer, take) {
                return;
            }
            match parsed {
                Some(Parsed::Sample(id, raw)) => {
                    self.n_samples += 1;
                    match self.probes.iter().find(|(probe, _)| probe.id == id) {
                        Some((_, function)) => {
                            log.push(BurstEvent::Call(raw.of_function(*function)))
                        }
                        None => log.n_malformed += 1,
                    }
                }
                Some(Parsed::Lost(n)) => {
                    self.n_lost += n;
                    log.push(BurstEvent::Lost(self.tid, n));
                }
                Some(Parsed::Other) => {}
                None => log.n_malformed += 1,
            }
        }
    }
}

fn threads(target: &Target) -> Vec<Tid> {
    list_threads(target.pid()).unwrap_or_default()
}

fn nanos(duration: Duration) -> u64 {
    u64::try_from(duration.as_nanos()).unwrap_or(u64::MAX)
}

type Text = BTreeMap<u64, [u8; TEXT]>;

/// The first bytes of each function in the target's memory; `None` when they cannot be read.
fn text(pid: Pid, modules: &[CryptoModule]) -> Option<Text> {
    let addresses = modules
        .iter()
        .flat_map(|module| &module.sites)
        .flat_map(|site| &site.addresses);
    let mut text = Text::new();
    for address in addresses {
        let mut bytes = [0; TEXT];
        if read_memory(pid, *address, &mut bytes) != Ok(TEXT) {
            return None;
        }
        text.insert(address.0, bytes);
    }
    Some(text)
}

/// Compares until nothing differs: the kernel may put the end of an event off.
fn removal(target: &Target, modules: &[CryptoModule], before: Option<&Text>) -> Removal {
    let begin = Instant::now();
    loop {
        if target.has_exited() {
            return Removal::Exited;
        }
        let after = text(target.pid(), modules);
        let (Some(before), Some(after)) = (before, after) else {
            return Removal::Unknown;
        };
        match before
            .iter()
            .find(|(at, bytes)| after.get(at) != Some(bytes))
        {
            None => return Removal::Verified,
            Some((at, _)) if begin.elapsed() > PATIENCE => return Removal::Differs(Avma(*at)),
            Some(_) => std::thread::sleep(LOOK),
        }
    }
}
