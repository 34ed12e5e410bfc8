//! An event that threads wait for in `epoll_wait`.

use anyhow::{Context, Result};
use nix::errno::Errno;
use nix::sys::epoll::{Epoll, EpollCreateFlags, EpollEvent, EpollFlags, EpollTimeout};
use nix::sys::eventfd::EventFd;

/// An event, set or not.
pub(crate) struct Event {
    event: EventFd,
    epoll: Epoll,
}

impl Event {
    pub(crate) fn new() -> Result<Self> {
        let event = EventFd::new().context("failed to create an eventfd")?;
        let epoll = Epoll::new(EpollCreateFlags::EPOLL_CLOEXEC);
        let epoll = epoll.context("failed to create an epoll instance")?;
        epoll
            .add(&event, EpollEvent::new(EpollFlags::EPOLLIN, 0))
            .context("failed to add to an epoll instance")?;
        Ok(Self { event, epoll })
    }

    /// Wakes all that wait, and lets nobody wait until it is reset.
    pub(crate) fn set(&self) -> Result<()> {
        let written = self.event.write(1);
        written.map(drop).context("failed to write to an eventfd")
    }

    pub(crate) fn reset(&self) -> Result<()> {
        let read = self.event.read();
        read.map(drop).context("failed to read an eventfd")
    }

    #[inline(never)]
    pub(crate) fn event_wait(&self) -> Result<()> {
        loop {
            match self
                .epoll
                .wait(&mut [EpollEvent::empty()], EpollTimeout::NONE)
            {
                Err(Errno::EINTR) => {}
                result => return result.map(drop).context("failed to wait for events"),
            }
        }
    }
}
