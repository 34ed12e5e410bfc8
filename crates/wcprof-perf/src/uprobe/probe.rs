//! A uprobe event on one thread: opened, enabled, counted.

use std::ffi::CString;
use std::fs::File;
use std::os::fd::AsRawFd;

use perf_event_open_sys::bindings::{self, perf_event_attr};
use wcprof_types::Tid;

use super::error::UprobeError;
use super::pmu::UprobePmu;
use super::record::REGS;
use crate::event::{Event, PerfError};

/// A probe on one thread.
pub(super) struct Probe {
    pub(super) event: Event,
    /// In its samples.
    pub(super) id: u64,
}

impl Probe {
    /// Opens a disabled event on a thread, at this offset of an instruction in a file; the breakpoint is in
    /// the target from now on. `None` when the thread has ended. The path is for errors.
    pub(super) fn open(
        pmu: UprobePmu,
        (file, path): (&File, &str),
        offset: u64,
        tid: Tid,
    ) -> Result<Option<Self>, UprobeError> {
        // The kernel follows the link, whatever namespace the file is in or whether it has a name at all.
        let link = format!("/proc/self/fd/{}", file.as_raw_fd());
        let link = CString::new(link).unwrap_or_default();
        let mut attr = perf_event_attr {
            type_: pmu.kind,
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
        attr.__bindgen_anon_3.uprobe_path = link.as_ptr() as u64;
        attr.__bindgen_anon_4.probe_offset = offset;
        attr.set_disabled(1);
        attr.set_use_clockid(1);
        let opened = Event::open(&mut attr, tid.0, -1);
        let source = match opened.and_then(|event| Ok((event.id()?, event))) {
            Ok((id, event)) => return Ok(Some(Self { event, id })),
            Err(source) => source,
        };
        match source.raw_os_error() {
            Some(libc::ESRCH) => Ok(None),
            Some(libc::EACCES | libc::EPERM) => Err(UprobeError::NotPermitted),
            Some(libc::EMFILE | libc::ENFILE) => Err(PerfError::TooManyFiles.into()),
            _ => Err(UprobeError::Refused {
                path: path.to_owned(),
                offset,
                source,
            }),
        }
    }
}
