//! A multi-threaded workload shaped like a Ceph OSD, for `wcprof attach --demo` to profile.
//!
//! Messenger threads decrypt AES-128-GCM frames through libcrypto and hand operations to an op
//! pool, whose threads build and drop many small objects under a contended lock; what they
//! produce is written and flushed by one thread, and a finisher completes it. Further pools only
//! wait. Functions carry the names of their models, so that hotspot rules see what they would
//! see in an OSD. The load is bounded by the process's CPU clock; waits for the disk, and for the
//! lock that is held meanwhile, have a known length on every machine.
#![forbid(unsafe_code)]

mod disk;
mod event;
mod idle;
mod kv;
mod msgr;
mod ops;
mod pace;
mod queue;
mod wire;

use std::os::unix::process::parent_id;
use std::path::Path;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, anyhow};

use slow_disk::{LOG, OBJECTS};

use crate::disk::DiskFile;
use crate::idle::{Body, Idle};
use crate::kv::Transaction;
use crate::msgr::Worker;
use crate::ops::{Op, OpPool};
use crate::pace::{Pace, parent_hung_up};
use crate::queue::Queue;

/// Threads of the op pool.
const N_OP_THREADS: usize = 8;
/// Messenger threads, as many as `ms_async_op_threads` has by default.
const N_MSGR_THREADS: usize = 3;
/// How often the main thread reads the clock and lets the next messages arrive.
const ARRIVAL_INTERVAL: Duration = Duration::from_millis(4);
/// How long after an error the parent's end may show.
const PARENT_END: Duration = Duration::from_secs(1);

/// Run the workload in this process for `seconds`, or until its parent is gone.
///
/// The parent is gone when this process is given another one, or, if standard input is a pipe,
/// when nobody can write to it any more. Meant for a process of its own: the calling thread is
/// renamed and the process's CPU clock paces the load.
///
/// `disk` is the folder of a [`SlowDisk`](slow_disk::SlowDisk) that another process serves; without it real files are written.
///
/// # Errors
/// When a thread cannot be started, a file cannot be written, or libcrypto refuses to decrypt. All
/// threads have ended by then. Nothing is an error any more once the parent is gone, which may have
/// served the disk.
pub fn run(seconds: f64, disk: Option<&Path>) -> Result<()> {
    let parent = parent_id();
    nix::sys::prctl::set_name(c"demo-osd").context("failed to name the main thread")?;
    let begin = Instant::now();
    let is_over = || begin.elapsed().as_secs_f64() >= seconds || parent_id() != parent;
    let ended = Osd::new(disk).and_then(|osd| osd.run(disk, is_over));
    if ended.is_err() && (parent_hung_up(PARENT_END)? || parent_id() != parent) {
        return Ok(());
    }
    ended.context("the demo workload failed")
}

/// What the threads share.
struct Osd {
    workers: Vec<Worker>,
    ops: Queue<Op>,
    pool: OpPool,
    transactions: Queue<Transaction>,
    completions: Queue<u64>,
    n_completed: AtomicU64,
    idle: Idle,
    /// A thread ended with an error.
    failed: AtomicBool,
}

impl Osd {
    fn new(disk: Option<&Path>) -> Result<Self> {
        Ok(Self {
            workers: (0..N_MSGR_THREADS)
                .map(Worker::new)
                .collect::<Result<_>>()?,
            ops: Queue::new(),
            pool: OpPool::new(DiskFile::open(disk, OBJECTS)?),
            transactions: Queue::new(),
            completions: Queue::new(),
            n_completed: AtomicU64::new(0),
            idle: Idle::new()?,
            failed: AtomicBool::new(false),
        })
    }

    /// Runs all threads until it is over or one of them fails. Returns the first error.
    fn run(&self, disk: Option<&Path>, is_over: impl Fn() -> bool) -> Result<()> {
        let log = DiskFile::open(disk, LOG)?;
        thread::scope(|scope| {
            let mut threads = Vec::new();
            for (name, body) in self.threads(log) {
                let work = || body().inspect_err(|_| self.failed.store(true, Ordering::Relaxed));
                let thread = thread::Builder::new().name(name).spawn_scoped(scope, work);
                self.failed.fetch_or(thread.is_err(), Ordering::Relaxed);
                threads.push(thread);
            }
            let mut result = self.messages_arrive(is_over).and(self.stop());
            for thread in threads {
                let thread = thread.context("failed to start a thread");
                let panicked = |_| Err(anyhow!("a thread panicked"));
                result = result.and(thread.and_then(|t| t.join().unwrap_or_else(panicked)));
            }
            result
        })
    }

    /// All threads: name and what to run.
    fn threads(&self, log: DiskFile) -> Vec<(String, Body<'_>)> {
        let mut threads: Vec<(String, Body<'_>)> = Vec::new();
        for (i, worker) in self.workers.iter().enumerate() {
            let body = Box::new(|| msgr::entry(worker, &self.ops));
            threads.push((format!("msgr-worker-{i}"), body));
        }
        for _ in 0..N_OP_THREADS {
            let body = Box::new(|| ops::entry(&self.pool, &self.ops, &self.transactions));
            threads.push(("tp_osd_tp".to_owned(), body));
        }
        let body = Box::new(|| kv::kv_sync_thread(log, &self.transactions, &self.completions));
        threads.push(("bstore_kv_sync".to_owned(), body));
        let body = Box::new(|| kv::finisher_thread(&self.completions, &self.n_completed));
        threads.push(("finisher".to_owned(), body));
        threads.extend(self.idle.threads());
        threads
    }

    fn messages_arrive(&self, is_over: impl Fn() -> bool) -> Result<()> {
        let mut pace = Pace::new()?;
        let has_failed = || self.failed.load(Ordering::Relaxed);
        while !is_over() && !has_failed() && !parent_hung_up(ARRIVAL_INTERVAL)? {
            if pace.may_work()? {
                self.workers.iter().try_for_each(Worker::messages_arrive)?;
            }
        }
        Ok(())
    }

    /// Lets every thread end.
    fn stop(&self) -> Result<()> {
        self.ops.close();
        self.transactions.close();
        self.completions.close();
        let workers = self.workers.iter().try_for_each(Worker::stop);
        workers.and(self.idle.stop())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Check that the whole workload starts, works through all its stages and ends by itself.
    #[test]
    fn runs_and_ends() {
        let osd = Osd::new(None).unwrap();
        osd.run(None, || osd.n_completed.load(Ordering::Relaxed) >= 100)
            .unwrap();
        assert!(osd.n_completed.load(Ordering::Relaxed) >= 100);
        run(0.0, None).unwrap();
    }
}
