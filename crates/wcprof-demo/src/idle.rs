//! Pools that only wait, as most threads of an OSD do.

use std::sync::{Arc, Condvar, Mutex, PoisonError};
use std::time::Duration;

use nix::errno::Errno;
use nix::sys::epoll::{Epoll, EpollCreateFlags, EpollEvent, EpollFlags, EpollTimeout};
use nix::sys::eventfd::EventFd;

use crate::error::DemoError;

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

type ThreadBody = Box<dyn FnOnce() -> Result<(), DemoError> + Send>;

/// What the idle threads wait for.
pub(crate) struct IdlePools {
    door: Arc<Door>,
    io_context: Arc<IoContext>,
}

#[derive(Default)]
struct Door {
    stop: Mutex<bool>,
    opened: Condvar,
}

struct IoContext {
    epoll: Epoll,
    stop: EventFd,
}

impl IdlePools {
    pub(crate) fn new() -> Result<Self, DemoError> {
        let stop = EventFd::new().map_err(DemoError::sys("create an eventfd"))?;
        let epoll = Epoll::new(EpollCreateFlags::EPOLL_CLOEXEC)
            .map_err(DemoError::sys("create an epoll instance"))?;
        epoll
            .add(&stop, EpollEvent::new(EpollFlags::EPOLLIN, 0))
            .map_err(DemoError::sys("add to an epoll instance"))?;
        Ok(Self {
            door: Arc::default(),
            io_context: Arc::new(IoContext { epoll, stop }),
        })
    }

    /// The threads to start: name and what to run.
    pub(crate) fn threads(&self) -> Vec<(&'static str, ThreadBody)> {
        let mut threads: Vec<(&'static str, ThreadBody)> = Vec::new();
        for name in WAITERS {
            let door = Arc::clone(&self.door);
            threads.push((
                name,
                Box::new(move || {
                    door.wait_for_work();
                    Ok(())
                }),
            ));
        }
        let door = Arc::clone(&self.door);
        threads.push((
            "safe_timer",
            Box::new(move || {
                door.timer_thread();
                Ok(())
            }),
        ));
        for _ in 0..N_IO_CONTEXT {
            let io_context = Arc::clone(&self.io_context);
            threads.push(("io_context_pool", Box::new(move || io_context.run())));
        }
        threads
    }

    pub(crate) fn stop(&self) -> Result<(), DemoError> {
        *self
            .door
            .stop
            .lock()
            .unwrap_or_else(PoisonError::into_inner) = true;
        self.door.opened.notify_all();
        self.io_context
            .stop
            .write(1)
            .map(|_| ())
            .map_err(DemoError::sys("write to an eventfd"))
    }
}

impl Door {
    #[inline(never)]
    fn wait_for_work(&self) {
        let mut stop = self.stop.lock().unwrap_or_else(PoisonError::into_inner);
        while !*stop {
            stop = self
                .opened
                .wait(stop)
                .unwrap_or_else(PoisonError::into_inner);
        }
    }

    #[inline(never)]
    fn timer_thread(&self) {
        let mut stop = self.stop.lock().unwrap_or_else(PoisonError::into_inner);
        while !*stop {
            stop = self
                .opened
                .wait_timeout(stop, TIMER_PERIOD)
                .unwrap_or_else(PoisonError::into_inner)
                .0;
        }
    }
}

impl IoContext {
    #[inline(never)]
    fn run(&self) -> Result<(), DemoError> {
        // Level-triggered and never read: one write lets every thread go.
        loop {
            match self
                .epoll
                .wait(&mut [EpollEvent::empty()], EpollTimeout::NONE)
            {
                Ok(_) => return Ok(()),
                Err(Errno::EINTR) => {}
                Err(source) => return Err(DemoError::sys("wait for events")(source)),
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Check that every idle thread ends when told, whether it waits already or not yet.
    #[test]
    fn all_end() {
        let pools = IdlePools::new().unwrap();
        let threads: Vec<_> = pools
            .threads()
            .into_iter()
            .map(|(_, body)| std::thread::spawn(body))
            .collect();
        assert_eq!(threads.len(), WAITERS.len() + 1 + N_IO_CONTEXT);
        pools.stop().unwrap();
        for thread in threads {
            thread.join().unwrap().unwrap();
        }
    }
}
