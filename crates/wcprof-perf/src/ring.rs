//! The memory that the kernel writes samples into (`perf_event_mmap_page` and the data pages).

use std::os::fd::{AsRawFd, RawFd};
use std::ptr::NonNull;
use std::slice;
use std::sync::atomic::{AtomicU64, Ordering};

use perf_event_open_sys::bindings::{perf_event_header, perf_event_mmap_page};
use wcprof_host::sys::map;

use crate::event::{Event, PerfError};

/// Data pages: 512 KiB hold 15 samples with 32 KiB of stack, 150 ms of late ticks at 99 Hz. With
/// its header page that is what `kernel.perf_event_mlock_kb` (516) allows everyone.
const DATA_PAGES: usize = 128;
const PAGE: usize = 4096;
const DATA_BYTES: usize = DATA_PAGES * PAGE;
/// Locked memory of one ring.
pub const RING_BYTES: usize = (1 + DATA_PAGES) * PAGE;
const HEADER: usize = size_of::<perf_event_header>();

/// One ring. The kernel writes at `data_head`, we read at `data_tail`; both only grow.
#[derive(Debug)]
pub(crate) struct Ring {
    base: NonNull<u8>,
    event: RawFd,
}

// SAFETY: the mapping belongs to this value alone and is only used through `&mut self`.
unsafe impl Send for Ring {}

impl Ring {
    /// Maps the ring of `event`, which must stay open as long as the ring is used.
    pub(crate) fn new(event: &Event) -> Result<Self, PerfError> {
        let protection = libc::PROT_READ | libc::PROT_WRITE;
        let base = map(event, RING_BYTES, protection, libc::MAP_SHARED);
        let base = base.map_err(|source| match source.raw_os_error() {
            Some(libc::EPERM | libc::ENOMEM) => PerfError::LockedMemory,
            _ => PerfError::Other {
                call: "mmap of a perf ring",
                source,
            },
        })?;
        Ok(Self {
            base,
            event: event.as_raw_fd(),
        })
    }

    pub(super) fn event_fd(&self) -> RawFd {
        self.event
    }

    fn position(&self, offset: usize) -> &AtomicU64 {
        // SAFETY: `offset` is that of data_head or data_tail: aligned, inside the first page of the
        // mapping, which lives as long as `self`; kernel and user space share it by atomic access.
        unsafe { AtomicU64::from_ptr(self.base.as_ptr().add(offset).cast()) }
    }

    /// Calls `sink` for the next record (with its header) where the kernel put it, or in `wrapped` when
    /// it goes over the end of the ring; false when there is none. A sample has room for the largest
    /// stack, of which little is used: it is not worth being read as a whole.
    pub(crate) fn with_record(&mut self, wrapped: &mut Vec<u8>, sink: impl FnOnce(&[u8])) -> bool {
        let head_at = std::mem::offset_of!(perf_event_mmap_page, data_head);
        let tail_at = std::mem::offset_of!(perf_event_mmap_page, data_tail);
        // Acquire: the record's bytes are written before the kernel moves the head.
        let head = self.position(head_at).load(Ordering::Acquire);
        let tail = self.position(tail_at).load(Ordering::Relaxed);
        let waiting = head.wrapping_sub(tail);
        if waiting < HEADER as u64 {
            return false;
        }
        let mut header = [0; HEADER];
        let (a, b) = self.waiting_bytes(tail, HEADER);
        for (to, from) in header.iter_mut().zip(a.iter().chain(b)) {
            *to = *from;
        }
        let size = usize::from(u16::from_ne_bytes([header[6], header[7]]));
        if size < HEADER || size as u64 > waiting {
            // Cannot happen with a sane kernel; give up what is waiting rather than loop.
            self.position(tail_at).store(head, Ordering::Release);
            return false;
        }
        match self.waiting_bytes(tail, size) {
            (whole, []) => sink(whole),
            (a, b) => {
                wrapped.clear();
                wrapped.extend_from_slice(a);
                wrapped.extend_from_slice(b);
                sink(wrapped);
            }
        }
        // Release: the record was read before the kernel may reuse its bytes.
        self.position(tail_at)
            .store(tail.wrapping_add(size as u64), Ordering::Release);
        true
    }

    /// `len` bytes from `tail` on that the kernel has written, at most as many as wait: up to the end of
    /// the data pages, and the rest from their beginning.
    fn waiting_bytes(&self, tail: u64, len: usize) -> (&[u8], &[u8]) {
        let start = (tail % DATA_BYTES as u64) as usize;
        let len = len.min(DATA_BYTES);
        let first = len.min(DATA_BYTES - start);
        // SAFETY: both ranges lie in the data pages (start + first <= data_bytes, and the rest is not
        // longer than they are). The kernel does not write between tail and head until the tail
        // moves, and only `with_record` moves it, with exclusive access.
        unsafe {
            let data = self.base.as_ptr().add(PAGE);
            (
                slice::from_raw_parts(data.add(start), first),
                slice::from_raw_parts(data, len - first),
            )
        }
    }
}

impl Drop for Ring {
    fn drop(&mut self) {
        // SAFETY: the mapping was made in `new` with this length and nothing refers to it any more.
        unsafe { libc::munmap(self.base.as_ptr().cast(), RING_BYTES) };
    }
}
