//! Bytes read from the task iterator to records; layouts as in `bpf/wcprof.h`.
//!
//! The bytes come from our own program in the kernel, but a short or unknown record is an error
//! all the same, never a panic.

use std::ops::Range;

use thiserror::Error;
use wcprof_types::{Avma, Pid, Tid};

use super::record::{Counters, Queue, Syscall, TaskFlags, TaskRecord, TaskRegs, TaskState};

/// Bytes of a full record.
pub(super) const TASK_LEN: usize = 200;
/// Most bytes of a stack that follow one.
pub(super) const MAX_STACK: usize = 16 << 10;
/// Most bytes of a kernel stack that follow.
const MAX_KERNEL: usize = 512;
const UNCHANGED_LEN: usize = 8;
const END_LEN: usize = 24;

const KIND_TASK: u8 = 1;
const KIND_UNCHANGED: u8 = 2;
const KIND_END: u8 = 3;

const STATUS_ON_CPU: u8 = 1;
const STATUS_IS_USER: u8 = 2;
const STATUS_HAS_REGS: u8 = 4;
const STATUS_HAS_QUEUE_TIME: u8 = 8;
const STATUS_TORN: u8 = 16;

/// Bytes that are no sequence of records.
#[derive(Copy, Clone, PartialEq, Eq, Debug, Error)]
#[error("unknown record of kind {kind:#x} at byte {offset} of the task iterator's output")]
pub struct WireError {
    /// The record's first byte.
    pub kind: u8,
    /// Where it is.
    pub offset: usize,
}

/// The record after the last thread.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub(super) struct End {
    /// Thread records of the pass.
    pub n_records: u32,
    /// Threads in the last record's process, by the kernel's own count.
    pub n_threads: u32,
    /// Unchanged threads without a record.
    pub n_unmentioned: u32,
    /// `CLOCK_MONOTONIC`, ns.
    pub time_ns: u64,
}

/// One record.
#[derive(PartialEq, Debug)]
#[expect(
    clippy::large_enum_variant,
    reason = "handed on at once, one at a time; a box for each would cost more"
)]
pub(super) enum Record {
    /// A thread in full, and where in the bytes is what was copied of its stack, from its stack
    /// pointer upward. [`TaskRecord::kernel_len`] bytes of its kernel stack follow.
    Task(TaskRecord, Range<usize>),
    /// A blocked thread that has not run since its last full record.
    Unchanged(Tid),
    /// The pass is over.
    End(End),
}

/// Calls `sink` for each whole record of `bytes` after offset `from` and returns where they end;
/// the rest is the beginning of a record whose other part was not read yet.
pub(super) fn parse(
    bytes: &[u8],
    from: usize,
    mut sink: impl FnMut(Record),
) -> Result<usize, WireError> {
    let mut offset = from;
    while let Some(rest) = bytes.get(offset..) {
        let Some(&kind) = rest.first() else { break };
        let len = match kind {
            KIND_TASK => TASK_LEN,
            KIND_UNCHANGED => UNCHANGED_LEN,
            KIND_END => END_LEN,
            _ => return Err(WireError { kind, offset }),
        };
        let Some(record) = rest.get(..len) else { break };
        let fields = Fields(record);
        let (stack_len, kernel_len) = match kind {
            KIND_TASK => (fields.u32(192) as usize, fields.u32(196) as usize),
            _ => (0, 0),
        };
        if stack_len > MAX_STACK || kernel_len > MAX_KERNEL {
            return Err(WireError { kind, offset });
        }
        if rest.len() < len + stack_len + kernel_len {
            break;
        }
        let stack = offset + len..offset + len + stack_len;
        sink(match kind {
            KIND_TASK => Record::Task(task(fields), stack),
            KIND_UNCHANGED => Record::Unchanged(Tid(fields.i32(4))),
            _ => Record::End(End {
                n_records: fields.u32(4),
                n_threads: fields.u32(8),
                n_unmentioned: fields.u32(12),
                time_ns: fields.u64(16),
            }),
        });
        offset += len + stack_len + kernel_len;
    }
    Ok(offset)
}

/// A record whose length was checked; a field outside of it reads as 0.
#[derive(Copy, Clone)]
struct Fields<'a>(&'a [u8]);

impl Fields<'_> {
    fn array<const N: usize>(self, at: usize) -> [u8; N] {
        self.0
            .get(at..at + N)
            .and_then(|bytes| bytes.try_into().ok())
            .unwrap_or([0; N])
    }

    fn u16(self, at: usize) -> u16 {
        u16::from_ne_bytes(self.array(at))
    }

    fn u32(self, at: usize) -> u32 {
        u32::from_ne_bytes(self.array(at))
    }

    fn i32(self, at: usize) -> i32 {
        i32::from_ne_bytes(self.array(at))
    }

    fn u64(self, at: usize) -> u64 {
        u64::from_ne_bytes(self.array(at))
    }
}

fn task(f: Fields<'_>) -> TaskRecord {
    let [_, status, _, _] = f.array::<4>(0);
    let has = |bit: u8| status & bit != 0;
    TaskRecord {
        tid: Tid(f.i32(4)),
        pid: Pid(f.i32(8)),
        host_tid: f.i32(12),
        host_pid: f.i32(16),
        time_ns: f.u64(32),
        start_boottime_ns: f.u64(96),
        exec_id: f.u32(28),
        state: TaskState {
            state: f.u32(20),
            exit_state: f.u16(2),
            flags: TaskFlags(f.u32(24)),
            on_cpu: has(STATUS_ON_CPU),
            is_user: has(STATUS_IS_USER),
        },
        counters: Counters {
            nvcsw: f.u64(40),
            nivcsw: f.u64(48),
            run_time_ns: f.u64(56),
        },
        queue: has(STATUS_HAS_QUEUE_TIME).then(|| Queue {
            run_delay_ns: f.u64(64),
            n_runs: f.u64(72),
            last_queued: f.u64(80),
            reader_arrival: f.u64(88),
        }),
        regs: has(STATUS_HAS_REGS).then(|| TaskRegs {
            ip: Avma(f.u64(104)),
            sp: Avma(f.u64(112)),
            bp: f.u64(120),
            syscall: Syscall {
                orig_ax: f.u64(128) as i64,
                ax: f.u64(136) as i64,
                args: [f.u64(144), f.u64(152), f.u64(160), f.u64(168)],
            },
        }),
        comm: f.array(176),
        torn: has(STATUS_TORN),
        kernel_len: f.u32(196) as usize,
    }
}

#[cfg(test)]
pub(super) mod tests {
    use super::*;
    use proptest::prelude::*;

    /// A full record whose 8-byte words from offset 32 on hold their own offset.
    pub fn numbered(status: u8) -> Vec<u8> {
        let mut b = vec![KIND_TASK, status];
        b.extend(0x20u16.to_ne_bytes());
        for v in [7i32, 6, 1007, 1006, 1, 0x10, 3] {
            b.extend(v.to_ne_bytes());
        }
        for at in (32..176u64).step_by(8) {
            b.extend(at.to_ne_bytes());
        }
        b.extend(*b"msgr-worker-0\0\0\0");
        b.extend([0; 8]);
        assert_eq!(b.len(), TASK_LEN);
        b
    }

    fn records(bytes: &[u8]) -> (Vec<Record>, Result<usize, WireError>) {
        let mut out = Vec::new();
        let used = parse(bytes, 0, |r| out.push(r));
        (out, used)
    }

    /// Check that each field is read from its own offset.
    #[test]
    fn fields() {
        let bytes = numbered(0xf);
        let (mut out, used) = records(&bytes);
        assert_eq!(used, Ok(TASK_LEN));
        let Some(Record::Task(t, stack)) = out.pop() else {
            panic!("no task record");
        };
        assert!(stack.is_empty() && !t.torn);
        assert_eq!((t.tid, t.pid), (Tid(7), Pid(6)));
        assert_eq!((t.host_tid, t.host_pid), (1007, 1006));
        assert_eq!((t.time_ns, t.start_boottime_ns, t.exec_id), (32, 96, 3));
        assert_eq!((t.state.state, t.state.exit_state), (1, 0x20));
        assert_eq!(t.state.flags, TaskFlags(0x10));
        assert!(t.state.on_cpu && t.state.is_user);
        assert_eq!(t.counters.switches(), 40 + 48);
        assert_eq!(t.counters.run_time_ns, 56);
        let q = t.queue.unwrap();
        assert_eq!((q.run_delay_ns, q.n_runs), (64, 72));
        assert_eq!((q.last_queued, q.reader_arrival), (80, 88));
        let regs = t.regs.unwrap();
        assert_eq!((regs.ip, regs.sp, regs.bp), (Avma(104), Avma(112), 120));
        assert_eq!(regs.syscall.orig_ax, 128);
        assert_eq!(regs.syscall.args, [144, 152, 160, 168]);
        assert_eq!(t.name(), "msgr-worker-0");
    }

    /// Check that what the status says is missing is `None`, whatever the bytes are.
    #[test]
    fn missing_parts() {
        let bytes = numbered(0);
        let (out, _) = records(&bytes);
        let [Record::Task(t, _)] = out.as_slice() else {
            panic!("no task record");
        };
        assert!(t.queue.is_none() && t.regs.is_none());
        assert!(!t.state.on_cpu && !t.state.is_user);
    }

    /// Check that the bytes after a record are its stack, and that a length beyond the program's
    /// limit is refused.
    #[test]
    fn stacks() {
        let with_len = |len: u32, status| {
            let mut b = numbered(status);
            b.splice(192..196, len.to_ne_bytes());
            b
        };
        let mut bytes = with_len(16, 0x17);
        bytes.splice(196..200, 8u32.to_ne_bytes());
        bytes.extend(1..=24);
        let (out, used) = records(&bytes);
        assert_eq!(used, Ok(bytes.len()));
        let [Record::Task(t, stack)] = out.as_slice() else {
            panic!("no task record");
        };
        assert!(t.torn);
        assert_eq!(t.kernel_len, 8);
        assert_eq!(bytes[stack.clone()], (1..=16).collect::<Vec<u8>>());
        // Whole records before are left alone.
        assert_eq!(parse(&bytes, bytes.len(), |_| panic!()), Ok(bytes.len()));
        let too_long = with_len(MAX_STACK as u32 + 1, 0);
        assert!(records(&too_long).1.is_err());
        let mut too_long = with_len(0, 0);
        too_long.splice(196..200, (MAX_KERNEL as u32 + 1).to_ne_bytes());
        assert!(records(&too_long).1.is_err());
    }

    /// Check a stream of all kinds, cut at every byte: whole records only, the rest left over.
    #[test]
    fn cut_anywhere() {
        let mut bytes = numbered(1);
        bytes.splice(192..196, 8u32.to_ne_bytes());
        bytes.extend([7; 8]);
        bytes.extend([KIND_UNCHANGED, 0, 0, 0]);
        bytes.extend(9i32.to_ne_bytes());
        bytes.extend([KIND_END, 0, 0, 0]);
        for v in [2u32, 2, 5, 55, 0] {
            bytes.extend(v.to_ne_bytes());
        }
        let first = TASK_LEN + 8;
        let ends = [first, first + UNCHANGED_LEN, bytes.len()];
        for cut in 0..=bytes.len() {
            let (out, used) = records(&bytes[..cut]);
            let whole = ends.iter().filter(|&&end| end <= cut).count();
            assert_eq!(out.len(), whole);
            assert_eq!(used, Ok(if whole == 0 { 0 } else { ends[whole - 1] }));
        }
        let (out, _) = records(&bytes);
        assert_eq!(out[1], Record::Unchanged(Tid(9)));
        let end = End {
            n_records: 2,
            n_threads: 2,
            n_unmentioned: 5,
            time_ns: 55,
        };
        assert_eq!(out[2], Record::End(end));
    }

    /// Check that an unknown kind is refused with its place, after the records before it.
    #[test]
    fn unknown_kind() {
        let mut bytes = numbered(1);
        bytes.push(0);
        let (out, used) = records(&bytes);
        assert_eq!(out.len(), 1);
        let error = WireError {
            kind: 0,
            offset: TASK_LEN,
        };
        assert_eq!(used, Err(error));
    }

    proptest! {
        /// Check that no bytes make the parser panic or read past what it says it used.
        #[test]
        fn any_bytes(bytes in proptest::collection::vec(prop_oneof![0u8..5, any::<u8>()], 0..600)) {
            if let Ok(used) = parse(&bytes, 0, |_| ()) {
                prop_assert!(used <= bytes.len());
            }
        }
    }
}
