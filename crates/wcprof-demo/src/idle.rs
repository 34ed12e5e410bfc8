//! Pools that only wait, as most threads of an OSD do.

use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use anyhow::Result;

use crate::event::Event;

/// Names of threads that wait on a condition variable for work that never comes.
const WAITERS: [&str; 7] = [
    "ms_dispatch",
    "ms_local",
    "rocksdb:low0",
    "rocksdb:high0",
    "tp_fstore_op",
    "osd_srv_agent",
    "log",
];
/// Threads that wait in `epoll_wait`.
const N_IO_CONTEXT: usize = 2;
/// How often the timer thread looks at its clock.
const TIMER_PERIOD: Duration = Duration::from_millis(700);

/// What a thread runs.
pub(crate) type Body<'a> = Box<dyn FnOnce() -> Result<()> + Send + 'a>;

/// What the idle threads wait for.
pub(crate) struct Idle {
    stop: Mutex<bool>,
    stopped: Condvar,
    io_context: Event,
}

impl Idle {
    pub(crate) fn new() -> Result<Self> {
        Ok(Self {
            stop: Mutex::new(false),
            stopped: Condvar::new(),
            io_context: Event::new()?,
        })
    }

    /// The threads to start: name and what to run.
    pub(crate) fn threads(&self) -> Vec<(String, Body<'_>)> {
        let mut threads: Vec<(String, Body<'_>)> = Vec::new();
        for name in WAITERS {
            threads.push((name.to_owned(), Box::new(|| self.wait_for_work())));
        }
        threads.push(("safe_timer".to_owned(), Box::new(|| self.timer_thread())));
        for _ in 0..N_IO_CONTEXT {
            // Nobody resets it: it lets every thread go.
            let body = Box::new(|| self.io_context.event_wait());
            threads.push(("io_context_pool".to_owned(), body));
        }
        threads
    }

    pub(crate) fn stop(&self) -> Result<()> {
        *self.lock() = true;
        self.stopped.notify_all();
        self.io_context.set()
    }

    fn lock(&self) -> MutexGuard<'_, bool> {
        self.stop.lock().unwrap_or_else(PoisonError::into_inner)
    }

    #[inline(never)]
    fn wait_for_work(&self) -> Result<()> {
        drop(self.stopped.wait_while(self.lock(), |stop| !*stop));
        Ok(())
    }

    #[inline(never)]
    fn timer_thread(&self) -> Result<()> {
        let mut stop = self.lock();
        while !*stop {
            let waited = self.stopped.wait_timeout(stop, TIMER_PERIOD);
            stop = waited.unwrap_or_else(PoisonError::into_inner).0;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Check that every idle thread ends when told, whether it waits already or not yet.
    #[test]
    fn all_end() {
        let idle = Idle::new().unwrap();
        let threads = idle.threads();
        assert_eq!(threads.len(), WAITERS.len() + 1 + N_IO_CONTEXT);
        std::thread::scope(|scope| {
            let threads = threads.into_iter().map(|(_, body)| scope.spawn(body));
            let threads: Vec<_> = threads.collect();
            idle.stop().unwrap();
            for thread in threads {
                thread.join().unwrap().unwrap();
            }
        });
    }
}
