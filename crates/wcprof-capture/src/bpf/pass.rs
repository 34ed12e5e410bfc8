//! Passes by a program that wcprof runs itself: no file to open, and the records are put into
//! memory that the program shares with wcprof. A pass over threads that did not run costs a fourth
//! of what the iterator's does.
//!
//! Needs Linux 6.10 (functions of the kernel in programs of this type), and the initial pid
//! namespace, because the kernel finds a thread by its number there.

use std::collections::VecDeque;
use std::fs;
use std::ops::Range;
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::fs::MetadataExt;

use wcprof_types::Pid;

use super::BpfError;
use super::sys::{Shared, run_program};
use super::wire::{self, End, Record};
use wcprof_host::fds::is_quiet;

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
const BEGIN: usize = 40;
const BASE: usize = 52;
const N_URGENT: usize = 56;
const N_KEPT: usize = 60;
const QUIET_CALLS: usize = 64;
const N_CALLS: usize = 512;
const RECORDS: usize = 128 + 4 * 65536;
const RECORDS_LEN: usize = 1 << 20;
/// With more than this in it the memory is emptied before the next pass.
const MAX_HELD: usize = RECORDS_LEN / 2;

/// Length of the whole.
pub(super) const SHARED_LEN: u32 = (RECORDS + RECORDS_LEN) as u32;

/// The loaded program and the memory it writes to.
#[derive(Debug)]
pub(super) struct Passes {
    program: OwnedFd,
    shared: Shared,
    /// Passes whose records are still in the shared memory, oldest first.
    held: VecDeque<Held>,
}

/// A pass that was made and not yet read.
#[derive(Debug)]
struct Held {
    /// Its records in the shared memory, from [`RECORDS`] on.
    records: Range<usize>,
    end: End,
}

/// What is known of a held pass without its records.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub(crate) struct HeldPass {
    /// When it began, `CLOCK_MONOTONIC` ns.
    pub(crate) time_ns: u64,
    /// Threads seen.
    pub(crate) n_threads: u32,
    /// Threads among them that are to be looked at at once.
    pub(crate) n_urgent: u32,
    /// Timer samples that the filter had kept by then.
    pub(crate) n_kept: u32,
}

/// Whether ids of wcprof's pid namespace are those of the initial one; not when it is not known.
pub(super) fn in_initial_namespace() -> bool {
    fs::metadata("/proc/self/ns/pid").is_ok_and(|ns| ns.ino() == INITIAL_NAMESPACE)
}

impl Passes {
    pub(super) fn new(program: OwnedFd, shared: Shared) -> Self {
        let mut passes = Self {
            program,
            shared,
            held: VecDeque::new(),
        };
        passes.set_quiet(is_quiet);
        passes
    }

    /// Tells the program in which system calls a blocked thread can be looked at later.
    pub(super) fn set_quiet(&mut self, is_quiet: impl Fn(i64) -> bool) {
        for at in 0..N_CALLS / 32 {
            let calls = (0..32).filter(|bit| is_quiet((at * 32 + bit) as i64));
            let word = calls.fold(0, |word, bit| word | 1 << bit);
            self.shared.set(QUIET_CALLS + 4 * at, word);
        }
    }

    /// One pass over the threads of `pid`. What is read is appended to `bytes`, and `sink` called
    /// for each record in it and for the end. Whether there were more threads than fit.
    pub(super) fn pass(
        &mut self,
        pid: Pid,
        bytes: &mut Vec<u8>,
        sink: &mut impl FnMut(Record),
    ) -> Result<(End, bool), BpfError> {
        let mut first = 0;
        self.held.clear();
        loop {
            self.run(pid, first, 0)?;
            self.read(0..self.shared.word(LEN) as usize, bytes, sink)?;
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

    /// One pass over the threads of `pid`, whose records [`Self::take_held`] gives later. `None` when there
    /// is no room for them; they may have been lost then.
    pub(super) fn hold(&mut self, pid: Pid) -> Result<Option<HeldPass>, BpfError> {
        let base = self.held.back().map_or(0, |held| held.records.end);
        if base > MAX_HELD {
            return Ok(None);
        }
        self.run(pid, 0, base as u32)?;
        let is_whole = self.shared.word(NEXT) >= self.shared.word(N_CHANGED);
        if !is_whole || self.shared.word(N_OVERFLOW) > 0 {
            return Ok(None);
        }
        let end = self.end();
        self.held.push_back(Held {
            records: base..self.shared.word(LEN) as usize,
            end,
        });
        Ok(Some(HeldPass {
            time_ns: self.time(BEGIN),
            n_threads: end.n_threads,
            n_urgent: self.shared.word(N_URGENT),
            n_kept: self.shared.word(N_KEPT),
        }))
    }

    /// The oldest pass that is held: as [`Self::pass`] gives it. `None` when none is.
    pub(super) fn take_held(
        &mut self,
        bytes: &mut Vec<u8>,
        sink: &mut impl FnMut(Record),
    ) -> Result<Option<End>, BpfError> {
        let Some(Held { records, end }) = self.held.pop_front() else {
            return Ok(None);
        };
        self.read(records, bytes, sink)?;
        sink(Record::End(end));
        Ok(Some(end))
    }

    /// Appends some of the records, by their place among them, to `bytes`, and calls `sink` for each.
    fn read(
        &self,
        records: Range<usize>,
        bytes: &mut Vec<u8>,
        sink: &mut impl FnMut(Record),
    ) -> Result<(), BpfError> {
        let begin = bytes.len();
        let (from, to) = (RECORDS + records.start, RECORDS.saturating_add(records.end));
        bytes.extend_from_slice(self.shared.bytes(from..to));
        let used = wire::parse(bytes, begin, sink)?;
        match used == begin + records.len() {
            true => Ok(()),
            false => Err(BpfError::Truncated((begin + records.len()).abs_diff(used))),
        }
    }

    /// Has the program go on with the pass from a changed thread on, 0 for a new pass, and put its
    /// records behind `base`.
    fn run(&mut self, pid: Pid, first: u32, base: u32) -> Result<(), BpfError> {
        self.shared.set(HOST_TGID, pid.0.cast_unsigned());
        self.shared.set(FIRST, first);
        self.shared.set(BASE, base);
        run_program(self.program.as_fd()).map_err(|cause| BpfError::Iterate {
            action: "run",
            cause,
        })
    }

    /// Timer samples that the filter had kept by the last pass.
    pub(super) fn n_kept(&self) -> u32 {
        self.shared.word(N_KEPT)
    }

    fn time(&self, at: usize) -> u64 {
        let bytes = self.shared.bytes(at..at + 8);
        bytes.first_chunk().map_or(0, |b| u64::from_ne_bytes(*b))
    }

    fn end(&self) -> End {
        let n_records = self.shared.word(N_RECORDS);
        let n_unmentioned = self.shared.word(N_UNMENTIONED);
        End {
            n_records,
            // The list of threads was walked as a whole: who is not in it has gone.
            n_threads: n_records + n_unmentioned,
            n_unmentioned,
            time_ns: self.time(TIME),
        }
    }
}
