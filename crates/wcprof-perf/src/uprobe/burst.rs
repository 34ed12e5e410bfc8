//! Opens probes on threads, reads their rings for a short while, takes them away and looks whether
//! they are gone.

use std::collections::BTreeSet;
use std::os::fd::AsRawFd;
use std::path::Path;
use std::time::{Duration, Instant};

use nix::sys::signal::{SigHandler, Signal, signal};
use wcprof_host::procfs::list_threads;
use wcprof_host::{Target, read_memory};
use wcprof_types::{Avma, Pid, Tid};

use super::error::UprobeError;
use super::pmu::UprobePmu;
use super::probe::Probe;
use super::record::{BurstEvent, Parsed, UpdateFunction, parse};
use super::site::CryptoModule;
use crate::event::{Event, PerfError};
use crate::ring::Ring;

/// Time between two reads of the rings: each holds 8000 calls, a thread makes at most 700 000 a
/// second with a probe on them.
const READ_INTERVAL: Duration = Duration::from_millis(1);
/// Bytes of each function that are compared before and after.
const CODE_BYTES: usize = 16;
/// Calls that are kept; the burst ends when there are more.
const MAX_CALLS: usize = 1 << 20;
/// Threads that are observed; each holds half a megabyte while it lasts.
const MAX_THREADS: usize = 64;
/// How long a breakpoint may take to vanish after the last descriptor is closed.
const REMOVAL_TIMEOUT: Duration = Duration::from_secs(2);

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

/// A burst that is over.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct BurstReport {
    /// Calls and gaps; those of one thread are in order.
    pub events: Vec<BurstEvent>,
    /// Threads that were observed.
    pub n_threads: usize,
    /// Threads of the process that were not observed: of other names, or beyond the limit.
    pub n_not_observed: usize,
    /// Threads that were born meanwhile; their calls are not in the events.
    pub n_born: usize,
    /// Hits of the observed threads, as the kernel counts them: those that gave a sample and those that
    /// were lost.
    pub n_hits: u64,
    /// Hits without a sample.
    pub n_missing: u64,
    /// Records that could not be understood.
    pub n_malformed: u64,
    /// How long all probes were enabled, ns.
    pub enabled_ns: u64,
    /// From the first probe's opening to the last one's end: how long calls trapped, ns.
    pub trapped_ns: u64,
    /// Why it ended.
    pub end: BurstEnd,
    /// Whether the probes are gone.
    pub removal: Removal,
}

/// A burst that is prepared; nothing is in the target yet.
#[derive(Debug)]
pub struct Burst<'a> {
    target: &'a Target,
    pmu: UprobePmu,
    modules: &'a [CryptoModule],
    tids: Vec<Tid>,
    n_not_observed: usize,
    length: Duration,
}

struct Thread {
    tid: Tid,
    /// Dropped before the probes, one of which owns it.
    ring: Ring,
    probes: Vec<(Probe, UpdateFunction)>,
    n_samples: u64,
}

impl<'a> Burst<'a> {
    /// Prepares a burst of this length on the threads that `choose` takes.
    ///
    /// # Errors
    /// When the target is gone or no thread is chosen.
    pub fn new(
        target: &'a Target,
        pmu: UprobePmu,
        modules: &'a [CryptoModule],
        length: Duration,
        choose: impl FnMut(&Tid) -> bool,
    ) -> Result<Self, UprobeError> {
        let mut tids = threads(target);
        let n_all = tids.len();
        tids.retain(choose);
        tids.truncate(MAX_THREADS);
        if tids.is_empty() {
            return Err(UprobeError::NoThreads(target.pid().0));
        }
        Ok(Self {
            target,
            pmu,
            modules,
            n_not_observed: n_all - tids.len(),
            tids,
            length,
        })
    }

    /// Puts the probes in, reads, takes them out; calls `watching` once every call is seen.
    ///
    /// # Errors
    /// When the kernel refuses a probe; none is left then.
    pub fn run(self, watching: impl FnOnce()) -> Result<BurstReport, UprobeError> {
        let _unstopped = Unstopped::new();
        let pid = self.target.pid();
        let before = code_bytes(pid, self.modules).ok_or(UprobeError::Unreadable(pid.0))?;
        let opened = Instant::now();
        let result = self.observe(watching);
        let trapped_ns = nanos(opened.elapsed());
        let removal = removal(self.target, self.modules, &before);
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
        // The number of one that had ended may be that of a thread of another process.
        let task = format!("/proc/{}/task", self.target.pid());
        open.retain(|thread| Path::new(&format!("{task}/{}", thread.tid)).exists());
        if open.is_empty() {
            return Err(UprobeError::NoThreads(self.target.pid().0));
        }
        let each = |open: &[Thread], change: fn(&Event) -> Result<(), PerfError>| {
            let mut all = open.iter().flat_map(|thread| &thread.probes);
            all.try_for_each(|(probe, _)| change(&probe.event))
        };
        each(&open, Event::enable)?;
        let begin = Instant::now();
        watching();
        let mut log = Log::default();
        let end = loop {
            std::thread::sleep(READ_INTERVAL.min(self.length));
            open.iter_mut().for_each(|thread| thread.drain(&mut log));
            if log.is_full {
                break BurstEnd::Full;
            }
            if begin.elapsed() >= self.length {
                break BurstEnd::Time;
            }
            if self.target.has_exited() {
                break BurstEnd::Exited;
            }
        };
        each(&open, Event::disable)?;
        let enabled_ns = nanos(begin.elapsed());
        let born = threads(self.target).into_iter();
        let n_born = born.filter(|tid| !known.contains(tid)).count();
        let (mut n_hits, mut n_missing) = (0, 0);
        for thread in &mut open {
            thread.drain(&mut log);
            let hits = thread.probes.iter().map(|(probe, _)| probe.event.count());
            let n: u64 = hits.map(|n| n.unwrap_or(0)).sum();
            n_hits += n;
            n_missing += n.saturating_sub(thread.n_samples);
        }
        Ok(BurstReport {
            events: log.events,
            n_threads: open.len(),
            n_not_observed: self.n_not_observed,
            n_born,
            n_hits,
            n_missing,
            n_malformed: log.n_malformed,
            enabled_ns,
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
                let file = (&*module.file, module.path.as_str());
                let Some(probe) = Probe::open(self.pmu, file, site.offset, tid)? else {
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
        }))
    }
}

/// What was read so far.
#[derive(Default)]
struct Log {
    events: Vec<BurstEvent>,
    /// There were more events than are kept.
    is_full: bool,
    n_malformed: u64,
    buffer: Vec<u8>,
}

impl Thread {
    fn drain(&mut self, log: &mut Log) {
        let function = |id| {
            let probe = self.probes.iter().find(|(probe, _)| probe.id == id);
            Some(probe?.1)
        };
        // A thread that is faster than this loop must not keep it here for ever.
        for _ in 0..MAX_CALLS {
            let mut parsed = None;
            let take = |record: &[u8]| parsed = parse(record, self.tid, function);
            if !self.ring.with_record(&mut log.buffer, take) {
                return;
            }
            match parsed {
                Some(Parsed::Event(event)) => {
                    self.n_samples += u64::from(matches!(event, BurstEvent::Call(_)));
                    log.is_full |= log.events.len() == MAX_CALLS;
                    if !log.is_full {
                        log.events.push(event);
                    }
                }
                Some(Parsed::Other) => {}
                None => log.n_malformed += 1,
            }
        }
    }
}

/// Signals of a terminal that stop a process which reads nothing from it: Ctrl-Z, and writing in the background.
const STOPS: [Signal; 2] = [Signal::SIGTSTP, Signal::SIGTTOU];

/// While it lives, a terminal does not stop this process: the breakpoints would stay in for as long.
struct Unstopped([Option<SigHandler>; 2]);

impl Unstopped {
    fn new() -> Self {
        // SAFETY: ignoring runs no code.
        Self(STOPS.map(|stop| unsafe { signal(stop, SigHandler::SigIgn) }.ok()))
    }
}

impl Drop for Unstopped {
    fn drop(&mut self) {
        for (stop, before) in STOPS.into_iter().zip(self.0) {
            // SAFETY: what it was before.
            let _ = before.map(|before| unsafe { signal(stop, before) });
        }
    }
}

fn threads(target: &Target) -> Vec<Tid> {
    list_threads(target.pid()).unwrap_or_default()
}

fn nanos(duration: Duration) -> u64 {
    u64::try_from(duration.as_nanos()).unwrap_or(u64::MAX)
}

type CodeBytes = Vec<(Avma, [u8; CODE_BYTES])>;

/// The first bytes of each function in the target's memory; `None` when they cannot be read.
fn code_bytes(pid: Pid, modules: &[CryptoModule]) -> Option<CodeBytes> {
    let sites = modules.iter().flat_map(|module| &module.sites);
    let read = |address: &Avma| {
        let mut bytes = [0; CODE_BYTES];
        let is_whole = read_memory(pid, *address, &mut bytes) == Ok(CODE_BYTES);
        is_whole.then_some((*address, bytes))
    };
    sites.flat_map(|site| &site.addresses).map(read).collect()
}

/// Compares until nothing differs: the kernel may put the end of an event off.
fn removal(target: &Target, modules: &[CryptoModule], before: &CodeBytes) -> Removal {
    let begin = Instant::now();
    loop {
        if target.has_exited() {
            return Removal::Exited;
        }
        let after = code_bytes(target.pid(), modules);
        let Some(after) = after else {
            return Removal::Unknown;
        };
        match before.iter().zip(&after).find(|(a, b)| a != b) {
            None => return Removal::Verified,
            Some(((at, _), _)) if begin.elapsed() > REMOVAL_TIMEOUT => {
                return Removal::Differs(*at);
            }
            Some(_) => std::thread::sleep(READ_INTERVAL),
        }
    }
}
