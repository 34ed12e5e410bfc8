//! Tracepoints of the kernel to how often threads pass them. They are counted in the kernel, for the threads alone that are asked
//! about, and nothing is sampled.

use std::collections::{BTreeMap, BTreeSet};
use std::ffi::CString;
use std::io;
use std::thread::sleep;
use std::time::{Duration, Instant};

use wcprof_host::procfs::read_file;
use wcprof_types::Tid;

use crate::event::{Event, PerfError};

/// Where the kernel describes its tracepoints (tracefs), by mount.
const FOLDERS: [&str; 2] = [
    "/sys/kernel/tracing/events",
    "/sys/kernel/debug/tracing/events",
];

/// A tracepoint, or the part of its hits that a filter lets through.
#[derive(Clone, Debug)]
pub struct Tracepoint {
    id: u64,
    filter: Option<CString>,
}

impl Tracepoint {
    /// A tracepoint by its system and name, such as `kvm` and `kvm_exit`. The filter is in the kernel's language
    /// (`Documentation/trace/events.rst`); empty: every hit.
    ///
    /// # Errors
    /// Why the kernel's description cannot be read.
    pub fn find(system: &str, name: &str, filter: &str) -> io::Result<Self> {
        let ids = FOLDERS.map(|folder| read_file(format!("{folder}/{system}/{name}/id")));
        let [first, second] = ids;
        let text = first.or_else(|error| second.map_err(|_| error))?;
        let id = text.trim().parse().map_err(io::Error::other)?;
        let filter = Some(filter).filter(|filter| !filter.is_empty());
        let filter = filter.map(CString::new).transpose()?;
        Ok(Self { id, filter })
    }
}

/// Tracepoints that are counted for some threads, in bursts: in between they cost the threads nothing.
#[derive(Debug)]
pub struct TracepointCounts {
    tracepoints: Vec<Tracepoint>,
    /// By thread: an event for each tracepoint. The first one's end and begin are those of all of them.
    events: BTreeMap<Tid, Vec<Event>>,
}

/// What was counted in a burst.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct TracepointBurst {
    /// By tracepoint, of all threads.
    pub counts: Vec<u64>,
    /// How long it was counted for, ns.
    pub length_ns: u64,
}

impl TracepointCounts {
    /// Counts nothing yet.
    pub fn new(tracepoints: Vec<Tracepoint>) -> Self {
        Self {
            tracepoints,
            events: BTreeMap::new(),
        }
    }

    /// Counts for these threads from now on, and no others.
    ///
    /// # Errors
    /// Why the kernel refuses it for a thread that lives.
    pub fn follow(&mut self, threads: &BTreeSet<Tid>) -> Result<(), PerfError> {
        self.events.retain(|tid, _| threads.contains(tid));
        for &tid in threads {
            if self.events.contains_key(&tid) {
                continue;
            }
            match self.open(tid) {
                Ok(events) => drop(self.events.insert(tid, events)),
                Err(PerfError::NoSuchThread) => {}
                Err(error) => return Err(error),
            }
        }
        Ok(())
    }

    /// Threads that are counted.
    pub fn n_threads(&self) -> usize {
        self.events.len()
    }

    fn open(&self, tid: Tid) -> Result<Vec<Event>, PerfError> {
        let mut events: Vec<Event> = Vec::with_capacity(self.tracepoints.len());
        for tracepoint in &self.tracepoints {
            let event = Event::open_tracepoint(tracepoint.id, tid.0, events.first())?;
            if let Some(filter) = &tracepoint.filter {
                event.set_text_filter(filter)?;
            }
            events.push(event);
        }
        Ok(events)
    }

    /// Counts for this long.
    pub fn burst(&self, length: Duration) -> TracepointBurst {
        let leaders = || self.events.values().filter_map(|events| events.first());
        let before = self.counts();
        // One that fails is of a thread that has ended.
        let began = Instant::now();
        leaders().for_each(|leader| drop(leader.enable()));
        let enabled = Instant::now();
        sleep(length);
        let slept = Instant::now();
        leaders().for_each(|leader| drop(leader.disable()));
        let length = middle(slept, Instant::now()) - middle(began, enabled);
        let counts = self.counts().into_iter().zip(before);
        TracepointBurst {
            counts: counts.map(|(now, before)| now - before.min(now)).collect(),
            length_ns: u64::try_from(length.as_nanos()).unwrap_or(u64::MAX),
        }
    }

    /// What all events have counted so far, by tracepoint.
    fn counts(&self) -> Vec<u64> {
        let mut counts = vec![0_u64; self.tracepoints.len()];
        for events in self.events.values() {
            for (sum, event) in counts.iter_mut().zip(events) {
                *sum = sum.saturating_add(event.count().unwrap_or(0));
            }
        }
        counts
    }
}

fn middle(a: Instant, b: Instant) -> Instant {
    a + (b - a) / 2
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

    use super::*;

    /// Check the calls of another thread in a burst, of which every third passes the filter, and that nothing is counted in
    /// between and of a thread that is not followed any more.
    #[test]
    fn calls() {
        let find = |filter| Tracepoint::find("syscalls", "sys_enter_getpriority", filter);
        let tracepoints = match find("") {
            Ok(all) => vec![all, find("which == 2").unwrap()],
            Err(error) => {
                println!("SKIPPED calls: tracepoints cannot be read: {error}");
                return;
            }
        };
        let n_calls = AtomicU64::new(0);
        let is_over = AtomicBool::new(false);
        let (tell, told) = std::sync::mpsc::channel();
        std::thread::scope(|scope| {
            let (n_calls, is_over) = (&n_calls, &is_over);
            scope.spawn(move || {
                tell.send(nix::unistd::gettid().as_raw()).unwrap();
                while !is_over.load(Ordering::SeqCst) {
                    let n = n_calls.fetch_add(1, Ordering::SeqCst);
                    let which = if n.is_multiple_of(3) { 2 } else { 0 };
                    // SAFETY: the call takes numbers and changes nothing.
                    unsafe { libc::syscall(libc::SYS_getpriority, which, 0) };
                }
            });
            let tid = Tid(told.recv().unwrap());
            let mut counts = TracepointCounts::new(tracepoints);
            let followed = counts.follow(&[tid].into());
            let begun = n_calls.load(Ordering::SeqCst);
            let burst = counts.burst(Duration::from_millis(50));
            let made = n_calls.load(Ordering::SeqCst) - begun + 1;
            let (counted, made_then) = (counts.counts(), n_calls.load(Ordering::SeqCst));
            while n_calls.load(Ordering::SeqCst) < made_then + 9 {
                std::thread::yield_now();
            }
            let later = counts.counts();
            counts.follow(&BTreeSet::new()).unwrap();
            let n_left = counts.n_threads();
            is_over.store(true, Ordering::SeqCst);
            if let Err(error) = followed {
                println!("SKIPPED calls: {error}");
                return;
            }
            let [all, filtered] = burst.counts[..] else {
                panic!("two tracepoints: {burst:?}");
            };
            assert!(all <= made, "{burst:?}, {made} calls");
            assert!(all.abs_diff(3 * filtered) <= 3, "{burst:?}");
            assert_eq!(counted, later, "between bursts");
            assert!(burst.length_ns >= 50_000_000, "{burst:?}");
            assert_eq!(n_left, 0);
        });
    }
}
