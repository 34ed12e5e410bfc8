//! A multi-threaded workload shaped like a Ceph OSD, for `wcprof demo` to profile.
//!
//! Messenger threads decrypt AES-128-GCM frames through libcrypto and hand operations to an op
//! pool, whose threads build and drop many small objects under a contended lock; what they
//! produce is written and flushed by one thread, and a finisher completes it. Further pools only
//! wait. Functions carry the names of their models, so that hotspot rules see what they would
//! see in an OSD. The load is bounded by the process's CPU clock; waits for the disk, and for the
//! lock that is held meanwhile, have a known length on every machine.
#![forbid(unsafe_code)]

mod disk;
mod error;
mod idle;
mod kv;
mod msgr;
mod ops;
mod pace;
mod queue;
mod slow_disk;
mod wire;

use std::os::unix::process::parent_id;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

pub use disk::FLUSH_TIME;
pub use error::DemoError;
pub use slow_disk::SlowDisk;

use crate::disk::{DiskFile, LOG, OBJECTS};
use crate::idle::IdlePools;
use crate::kv::Transaction;
use crate::msgr::Messenger;
use crate::ops::{Op, OpPool};
use crate::pace::{Pace, parent_hung_up};
use crate::queue::Queue;

/// Threads of the op pool.
const N_OP_THREADS: usize = 8;
/// Messenger threads, as many as `ms_async_op_threads` has by default.
const N_MSGR_THREADS: usize = 3;
/// How often the main thread looks at the clock and lets the next messages arrive.
const ARRIVAL_INTERVAL: Duration = Duration::from_millis(4);
/// How long after an error the parent's end may show.
const PARENT_END: Duration = Duration::from_secs(1);

/// What to run.
#[derive(Clone, Debug, Default)]
pub struct DemoOptions {
    /// Length of the run; `None` runs until the parent process is gone.
    pub seconds: Option<f64>,
    /// The folder of a [`SlowDisk`] that another process serves; `None` writes real files.
    pub disk: Option<PathBuf>,
}

/// Run the workload in this process until its time is over or its parent is gone.
///
/// The parent is gone when this process is given another one, or, if standard input is a pipe,
/// when nobody can write to it any more. Meant for a process of its own: the calling thread is
/// renamed and the process's CPU clock paces the load.
///
/// # Errors
/// When a thread can not be started, a file can not be written, or libcrypto refuses to decrypt. All
/// threads have ended by then. Nothing is an error any more once the parent is gone, who may have
/// served the disk.
pub fn run(options: &DemoOptions) -> Result<(), DemoError> {
    let parent = parent_id();
    nix::sys::prctl::set_name(c"demo-osd").map_err(DemoError::sys("name the main thread"))?;
    let ended = work(options, || parent_id() != parent);
    if ended.is_err() && (parent_hung_up(PARENT_END)? || parent_id() != parent) {
        return Ok(());
    }
    ended
}

fn work(options: &DemoOptions, is_orphan: impl Fn() -> bool) -> Result<(), DemoError> {
    let osd = Osd::start(options.disk.as_deref())?;
    let begin = Instant::now();
    let length = options.seconds.filter(|s| *s >= 0.0);
    let over = || {
        length.is_some_and(|s| begin.elapsed().as_secs_f64() >= s)
            || is_orphan()
            || osd.failed.load(Ordering::Relaxed)
    };
    let mut pace = Pace::new();
    while !over() {
        if parent_hung_up(ARRIVAL_INTERVAL)? {
            break;
        }
        if pace.may_work()? {
            osd.messenger.messages_arrive()?;
        }
    }
    osd.stop()
}

/// The running workload.
struct Osd {
    messenger: Messenger,
    ops: Queue<Op>,
    transactions: Queue<Transaction>,
    completions: Queue<u64>,
    n_completed: Arc<AtomicU64>,
    idle: IdlePools,
    /// A thread ended with an error.
    failed: Arc<AtomicBool>,
    threads: Vec<JoinHandle<Result<(), DemoError>>>,
}

impl Osd {
    fn start(disk: Option<&Path>) -> Result<Self, DemoError> {
        let log = DiskFile::open(disk, LOG)?;
        let objects = DiskFile::open(disk, OBJECTS)?;
        let mut osd = Self {
            messenger: Messenger::new(N_MSGR_THREADS)?,
            ops: Queue::new(),
            transactions: Queue::new(),
            completions: Queue::new(),
            n_completed: Arc::default(),
            idle: IdlePools::new()?,
            failed: Arc::default(),
            threads: Vec::new(),
        };
        match osd.spawn_all(log, objects) {
            Ok(()) => Ok(osd),
            Err(error) => {
                osd.stop()?;
                Err(error)
            }
        }
    }

    fn spawn_all(&mut self, log: DiskFile, objects: DiskFile) -> Result<(), DemoError> {
        for worker in self.messenger.workers() {
            let ops = self.ops.clone();
            let name = format!("msgr-worker-{}", worker.index());
            self.spawn(&name, move || msgr::entry(&worker, &ops))?;
        }
        let pool = OpPool::new(objects);
        for _ in 0..N_OP_THREADS {
            let (pool, ops) = (pool.clone(), self.ops.clone());
            let transactions = self.transactions.clone();
            self.spawn("tp_osd_tp", move || ops::entry(&pool, &ops, &transactions))?;
        }
        let (transactions, completions) = (self.transactions.clone(), self.completions.clone());
        self.spawn("bstore_kv_sync", move || {
            kv::kv_sync_thread(log, &transactions, &completions)
        })?;
        let completions = self.completions.clone();
        let n_completed = Arc::clone(&self.n_completed);
        self.spawn("finisher", move || {
            kv::finisher_thread(&completions, &n_completed);
            Ok(())
        })?;
        for (name, wait) in self.idle.threads() {
            self.spawn(name, wait)?;
        }
        Ok(())
    }

    fn spawn<F>(&mut self, name: &str, work: F) -> Result<(), DemoError>
    where
        F: FnOnce() -> Result<(), DemoError> + Send + 'static,
    {
        let failed = Arc::clone(&self.failed);
        let thread = thread::Builder::new()
            .name(name.to_owned())
            .spawn(move || {
                let result = work();
                if result.is_err() {
                    failed.store(true, Ordering::Relaxed);
                }
                result
            })
            .map_err(|source| DemoError::Io {
                action: "start a thread",
                source,
            })?;
        self.threads.push(thread);
        Ok(())
    }

    /// Wake every thread, wait for all of them, and return the first error.
    fn stop(self) -> Result<(), DemoError> {
        let mut result = self.messenger.stop().and(self.idle.stop());
        self.ops.close();
        self.transactions.close();
        self.completions.close();
        for thread in self.threads {
            let ended = thread.join().unwrap_or(Err(DemoError::Panicked));
            result = result.and(ended);
        }
        result
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Check that the whole workload starts, works through all its stages and ends by itself.
    #[test]
    fn runs_and_ends() {
        let osd = Osd::start(None).unwrap();
        let n_threads = N_MSGR_THREADS + N_OP_THREADS + 2 + osd.idle.threads().len();
        assert_eq!(osd.threads.len(), n_threads);
        while osd.n_completed.load(Ordering::Relaxed) < 100 {
            assert!(!osd.failed.load(Ordering::Relaxed));
            osd.messenger.messages_arrive().unwrap();
            thread::yield_now();
        }
        osd.stop().unwrap();
        run(&DemoOptions {
            seconds: Some(0.0),
            disk: None,
        })
        .unwrap();
    }
}
