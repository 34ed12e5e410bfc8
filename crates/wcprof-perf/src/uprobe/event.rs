//! Uprobe events by `perf_event_open(2)`: one function a system call, errno mapped to meaning.

use std::ffi::CStr;
use std::fs::File;
use std::io::{self, Read};
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};

use perf_event_open_sys::{bindings, ioctls};

use super::record::REGS;
use crate::event::PerfError;

/// A probe on one thread.
#[derive(Debug)]
pub(super) struct Event {
    fd: OwnedFd,
    /// In its samples.
    pub(super) id: u64,
}

/// What to probe.
#[derive(Copy, Clone, Debug)]
pub(super) struct Spec<'a> {
    /// `type` of the event source.
    pub(super) kind: u32,
    /// A path that the kernel opens in wcprof's own namespace.
    pub(super) path: &'a CStr,
    /// Offset in that file.
    pub(super) offset: u64,
}

impl Event {
    /// Opens a disabled event on a thread; the breakpoint is in the target from now on.
    pub(super) fn open(spec: Spec<'_>, tid: i32) -> io::Result<Self> {
        let mut attr = bindings::perf_event_attr {
            type_: spec.kind,
            size: size_of::<bindings::perf_event_attr>() as u32,
            config: 0,
            sample_type: u64::from(
                bindings::PERF_SAMPLE_IDENTIFIER
                    | bindings::PERF_SAMPLE_TID
                    | bindings::PERF_SAMPLE_TIME
                    | bindings::PERF_SAMPLE_REGS_USER,
            ),
            sample_regs_user: REGS,
            clockid: libc::CLOCK_MONOTONIC,
            ..Default::default()
        };
        attr.__bindgen_anon_1.sample_period = 1;
        attr.__bindgen_anon_3.uprobe_path = spec.path.as_ptr() as u64;
        attr.__bindgen_anon_4.probe_offset = spec.offset;
        attr.set_disabled(1);
        attr.set_use_clockid(1);
        // SAFETY: `attr` is a live perf_event_attr whose `size` says how large it is, `path` a C
        // string that lives across the call; the kernel only reads them (and may write `size`).
        let fd = unsafe {
            perf_event_open_sys::perf_event_open(
                &mut attr,
                tid,
                -1,
                -1,
                u64::from(bindings::PERF_FLAG_FD_CLOEXEC),
            )
        };
        if fd < 0 {
            return Err(io::Error::last_os_error());
        }
        // SAFETY: the call returned a new descriptor that nobody else owns.
        let fd = unsafe { OwnedFd::from_raw_fd(fd) };
        let mut id = 0;
        // SAFETY: the kernel writes one u64, which lives across the call.
        if unsafe { ioctls::ID(fd.as_raw_fd(), &mut id) } < 0 {
            return Err(io::Error::last_os_error());
        }
        Ok(Self { fd, id })
    }

    pub(super) fn fd(&self) -> &OwnedFd {
        &self.fd
    }

    /// Samples go to the ring of another event of the same thread.
    pub(super) fn share_ring(&self, owner: &Self) -> Result<(), PerfError> {
        // SAFETY: an ioctl that takes a descriptor number by value; the ring's event is open.
        check("PERF_EVENT_IOC_SET_OUTPUT", unsafe {
            ioctls::SET_OUTPUT(self.fd.as_raw_fd(), owner.fd.as_raw_fd())
        })
    }

    pub(super) fn enable(&self) -> Result<(), PerfError> {
        // SAFETY: an ioctl without memory arguments on a descriptor we own.
        check("PERF_EVENT_IOC_ENABLE", unsafe {
            ioctls::ENABLE(self.fd.as_raw_fd(), 0)
        })
    }

    pub(super) fn disable(&self) -> Result<(), PerfError> {
        // SAFETY: an ioctl without memory arguments on a descriptor we own.
        check("PERF_EVENT_IOC_DISABLE", unsafe {
            ioctls::DISABLE(self.fd.as_raw_fd(), 0)
        })
    }

    /// Hits while it was enabled, whether they gave a sample or not.
    pub(super) fn count(&self) -> io::Result<u64> {
        let mut bytes = [0; 8];
        File::from(self.fd.try_clone()?).read_exact(&mut bytes)?;
        Ok(u64::from_ne_bytes(bytes))
    }
}

fn check(call: &'static str, result: i32) -> Result<(), PerfError> {
    if result < 0 {
        let source = io::Error::last_os_error();
        return Err(PerfError::Other { call, source });
    }
    Ok(())
}
