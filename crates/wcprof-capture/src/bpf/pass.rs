//! Passes by a program that wcprof runs itself: no file to open, and the records are put into
//! memory that the program shares with wcprof. A pass over threads that did not run costs a fourth
//! of what the iterator's does.
//!
//! Needs Linux 6.10 (functions of the kernel in programs of this type), and the initial pid
//! namespace, because the kernel finds a thread by its number there.

use std::fs;
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::fs::MetadataExt;

use wcprof_types::Pid;

use super::BpfError;
use super::sys::{Shared, run_program};
use super::wire::{self, End, Record};

/// Inode of the initial pid namespace: `PROC_PID_INIT_INO`, `include/linux/proc_ns.h`.
const INITIAL_NAMESPACE: u64 = 0xefff_fffc;

// `struct pass` of `bpf/wcprof.h`.
const HOST_TGID: usize = 0;
const FIRST: usize = 4;
const N_CHANGED: usize = 8;
const NEXT: usize = 12;
const N_RECORDS: usize = 16;
const N_UNMENTIONED: usize = 20;
const N_OVERFLOW: usize = 24;
const LEN: usize = 28;
const TIME: usize = 32;
const RECORDS: usize = 48 + 4 * 65536;

/// Length of the whole.
pub(super) const SHARED_LEN: u32 = RECORDS as u32 + (1 << 20);

/// The loaded program and the memory it writes to.
#[derive(Debug)]
pub(super) struct Passes {
    program: OwnedFd,
    shared: Shared,
}

/// Whether ids of wcprof's pid namespace are those of the initial one; not when it is not known.
pub(super) fn in_initial_namespace() -> bool {
    fs::metadata("/proc/self/ns/pid").is_ok_and(|ns| ns.ino() == INITIAL_NAMESPACE)
}

impl Passes {
    pub(super) fn new(program: OwnedFd, shared: Shared) -> Self {
        Self { program, shared }
    }

    /// One pass over the threads of `pid`. What is read is appended to `bytes`, and `sink` called
    /// for each record in it and for the end. Whether there were more threads than fit.
    pub(super) fn pass(
        &mut self,
        pid: Pid,
        bytes: &mut Vec<u8>,
        sink: &mut impl FnMut(Record),
    ) -> Result<(End, bool), BpfError> {
        self.shared.set(HOST_TGID, pid.0.cast_unsigned());
        let mut first = 0;
        loop {
            self.shared.set(FIRST, first);
            run_program(self.program.as_fd()).map_err(|cause| BpfError::Iterate {
                action: "run",
                cause,
            })?;
            let len = self.shared.word(LEN) as usize;
            let parsed = bytes.len();
            bytes.extend_from_slice(self.shared.bytes(RECORDS..RECORDS.saturating_add(len)));
            let end = wire::parse(bytes, parsed, &mut *sink)?;
            if end != parsed + len {
                return Err(BpfError::Truncated(parsed.saturating_add(len) - end));
            }
            let next = self.shared.word(NEXT);
            if next >= self.shared.word(N_CHANGED) {
                break;
            }
            if next <= first {
                // A record always fits into the empty memory.
                return Err(BpfError::Truncated(0));
            }
            first = next;
        }
        let end = self.end();
        sink(Record::End(end));
        Ok((end, self.shared.word(N_OVERFLOW) > 0))
    }

    fn end(&self) -> End {
        let n_records = self.shared.word(N_RECORDS);
        let n_unmentioned = self.shared.word(N_UNMENTIONED);
        let time = self.shared.bytes(TIME..TIME + 8);
        End {
            n_records,
            // The list of threads was walked as a whole: who is not in it has gone.
            n_threads: n_records + n_unmentioned,
            n_unmentioned,
            time_ns: time.first_chunk().map_or(0, |b| u64::from_ne_bytes(*b)),
        }
    }
}
