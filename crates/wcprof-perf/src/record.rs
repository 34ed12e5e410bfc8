//! Bytes of one perf record -> a sample. Pure.

use perf_event_open_sys::bindings;
use wcprof_host::counters::KVM_RUN;
use wcprof_types::{Avma, Pid, ScratchRegs, Tid, UserRegs};

/// One timer sample; borrows the stack bytes.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub struct PerfSample<'a> {
    /// The CPU that it ran on.
    pub cpu: u32,
    /// Process.
    pub pid: Pid,
    /// Thread.
    pub tid: Tid,
    /// `CLOCK_MONOTONIC`, ns.
    pub time: u64,
    /// Registers at the last entry into the kernel; `None` for a thread without user registers.
    pub regs: Option<UserRegs>,
    /// The thread is inside `ioctl(KVM_RUN)`.
    pub in_kvm_run: bool,
    /// The timer came while a guest's code ran.
    pub in_guest: bool,
    /// Stack memory from `regs.sp` upward.
    pub stack: &'a [u8],
    /// The kernel's part of the call chain, leaf first, 8 bytes an address: where the timer came,
    /// then return addresses. Empty when it came in user code, or was not asked for.
    pub kernel: &'a [u8],
}

/// A record of the ring.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub enum Record<'a> {
    /// `PERF_RECORD_SAMPLE`.
    Sample(PerfSample<'a>),
    /// `PERF_RECORD_LOST` or `PERF_RECORD_LOST_SAMPLES`: how many were dropped.
    Lost(u64),
    /// Any other.
    Other,
}

/// The entry code stores -ENOSYS in `ax` before it calls the handler
/// (`arch/x86/entry/entry_64.S`): so `ax` tells a system call from an interrupt.
const IN_SYSCALL_AX: u64 = -(libc::ENOSYS as i64) as u64;

/// Parses a record of a CPU's ring, with its header; `callchain`: samples were asked for with call chains. `None` when it
/// is malformed.
pub fn parse_record(bytes: &[u8], cpu: u32, callchain: bool) -> Option<Record<'_>> {
    match parse_raw(bytes)? {
        Raw::Sample(misc, mut reader) => {
            sample(&mut reader, (misc, cpu), callchain).map(Record::Sample)
        }
        Raw::Lost(n) => Some(Record::Lost(n)),
        Raw::Other => Some(Record::Other),
    }
}

/// A record whose sample, with the `misc` of its header, is not parsed yet.
pub(crate) enum Raw<'a> {
    Sample(u16, Reader<'a>),
    Lost(u64),
    Other,
}

/// Parses the header of a record. `None` when it is malformed.
pub(crate) fn parse_raw(bytes: &[u8]) -> Option<Raw<'_>> {
    let mut reader = Reader(bytes);
    let kind = reader.u32()?;
    let misc = reader.u16()?;
    let _size = reader.u16()?;
    Some(match kind {
        bindings::PERF_RECORD_SAMPLE => Raw::Sample(misc, reader),
        bindings::PERF_RECORD_LOST => {
            let _id = reader.u64()?;
            Raw::Lost(reader.u64()?)
        }
        bindings::PERF_RECORD_LOST_SAMPLES => Raw::Lost(reader.u64()?),
        _ => Raw::Other,
    })
}

fn sample<'a>(
    reader: &mut Reader<'a>,
    (misc, cpu): (u16, u32),
    callchain: bool,
) -> Option<PerfSample<'a>> {
    let pid = Pid(reader.u32()? as i32);
    let tid = Tid(reader.u32()? as i32);
    let time = reader.u64()?;
    let mode = u32::from(misc) & bindings::PERF_RECORD_MISC_CPUMODE_MASK;
    let in_kernel = !matches!(
        mode,
        bindings::PERF_RECORD_MISC_USER | bindings::PERF_RECORD_MISC_CPUMODE_UNKNOWN
    );
    // Set by KVM's callbacks (`perf_guest_state`): the registers are those of the host's entry all the same.
    let in_guest = matches!(
        mode,
        bindings::PERF_RECORD_MISC_GUEST_KERNEL | bindings::PERF_RECORD_MISC_GUEST_USER
    );
    let mut kernel: &[u8] = &[];
    if callchain {
        let len = usize::try_from(reader.u64()?).ok()?.checked_mul(8)?;
        kernel = kernel_part(reader.take(len)?);
    }
    let mut regs = None;
    let mut in_kvm_run = false;
    if u64::from(bindings::PERF_SAMPLE_REGS_ABI_NONE) != reader.u64()? {
        let (ax, bx, si) = (reader.u64()?, reader.u64()?, reader.u64()?);
        let (bp, sp, ip) = (reader.u64()?, reader.u64()?, reader.u64()?);
        let mut scratch = [(0, None), (8, None), (9, None), (10, None), (11, None)];
        for (_, register) in scratch.iter_mut().skip(1) {
            *register = Some(reader.u64()?);
        }
        // The kernel has overwritten it in a system call.
        scratch[0].1 = Some(ax).filter(|&ax| !in_kernel || ax != IN_SYSCALL_AX);
        in_kvm_run = in_kernel && ax == IN_SYSCALL_AX && si == KVM_RUN;
        regs = Some(UserRegs {
            ip: Avma(ip),
            sp: Avma(sp),
            bp: Some(bp),
            bx: Some(bx),
            scratch: ScratchRegs::new(scratch),
        });
    }
    let room = usize::try_from(reader.u64()?).ok()?;
    let mut stack: &[u8] = &[];
    if room > 0 {
        stack = reader.take(room)?;
        // What the kernel could really read.
        let used = usize::try_from(reader.u64()?).ok()?;
        stack = stack.get(..used)?;
    }
    Some(PerfSample {
        cpu,
        pid,
        tid,
        time,
        regs,
        in_kvm_run,
        in_guest,
        stack,
        kernel,
    })
}

/// What follows the mark of the kernel's part, until the next mark.
fn kernel_part(chain: &[u8]) -> &[u8] {
    /// Marks are the last 4095 addresses (`PERF_CONTEXT_MAX`).
    const FIRST_MARK: u64 = 0u64.wrapping_sub(4095);
    const KERNEL: u64 = bindings::PERF_CONTEXT_KERNEL;
    let mut words = chain
        .chunks_exact(8)
        .map(|word| u64::from_ne_bytes(word.try_into().unwrap_or_default()));
    let Some(begin) = words.position(|word| word == KERNEL) else {
        return &[];
    };
    let rest = chain.get((begin + 1) * 8..).unwrap_or_default();
    let n = words.take_while(|&word| word < FIRST_MARK).count();
    rest.get(..n * 8).unwrap_or_default()
}

/// Bytes of a record that are not read yet.
pub(crate) struct Reader<'a>(&'a [u8]);

impl<'a> Reader<'a> {
    fn take(&mut self, n: usize) -> Option<&'a [u8]> {
        let (head, rest) = self.0.split_at_checked(n)?;
        self.0 = rest;
        Some(head)
    }

    fn u16(&mut self) -> Option<u16> {
        Some(u16::from_ne_bytes(self.take(2)?.try_into().ok()?))
    }

    pub(crate) fn u32(&mut self) -> Option<u32> {
        Some(u32::from_ne_bytes(self.take(4)?.try_into().ok()?))
    }

    pub(crate) fn u64(&mut self) -> Option<u64> {
        Some(u64::from_ne_bytes(self.take(8)?.try_into().ok()?))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn record(kind: u32, misc: u16, body: &[u64], stack: &[u8], used: u64) -> Vec<u8> {
        let mut bytes = Vec::new();
        bytes.extend(kind.to_ne_bytes());
        bytes.extend(misc.to_ne_bytes());
        bytes.extend(0_u16.to_ne_bytes());
        body.iter().for_each(|w| bytes.extend(w.to_ne_bytes()));
        if !stack.is_empty() {
            bytes.extend(stack);
            bytes.extend(used.to_ne_bytes());
        }
        let size = bytes.len() as u16;
        bytes[6..8].copy_from_slice(&size.to_ne_bytes());
        bytes
    }

    fn body(ax: u64, si: u64) -> [u64; 14] {
        [
            7 | 9 << 32,
            123,
            2,
            ax,
            0xb,
            si,
            0xb0,
            0x50,
            0x10,
            8,
            9,
            10,
            11,
            16,
        ]
    }

    /// Check a whole sample: ids, time, registers, and that only the dumped part of the stack is
    /// given.
    #[test]
    fn whole_sample() {
        let bytes = record(9, 2, &body(1, 2), &[5; 16], 8);
        let Some(Record::Sample(s)) = parse_record(&bytes, 3, false) else {
            panic!()
        };
        assert_eq!((s.cpu, s.pid, s.tid, s.time), (3, Pid(7), Tid(9), 123));
        let regs = s.regs.unwrap();
        assert_eq!(
            (regs.ip, regs.sp, regs.bp, regs.bx),
            (Avma(0x10), Avma(0x50), Some(0xb0), Some(0xb))
        );
        assert_eq!(
            (regs.scratch.get(0), regs.scratch.get(11)),
            (Some(1), Some(11))
        );
        assert_eq!(s.stack, [5; 8]);
        assert!(!s.in_kvm_run);
    }

    /// Check that KVM_RUN is recognized inside a system call only, and a guest by the CPU's mode.
    #[test]
    fn kvm_run() {
        let in_call = record(9, 1, &body(IN_SYSCALL_AX, KVM_RUN), &[0; 16], 0);
        let in_user = record(9, 2, &body(IN_SYSCALL_AX, KVM_RUN), &[0; 16], 0);
        let other = record(9, 1, &body(0, KVM_RUN), &[0; 16], 0);
        let guest = |misc| record(9, misc, &body(IN_SYSCALL_AX, KVM_RUN), &[0; 16], 0);
        let flags = |bytes: &[u8]| match parse_record(bytes, 3, false) {
            Some(Record::Sample(s)) => (s.in_kvm_run, s.in_guest),
            other => panic!("{other:?}"),
        };
        assert_eq!(flags(&in_call), (true, false));
        assert_eq!(flags(&in_user), (false, false));
        assert_eq!(flags(&other), (false, false));
        for misc in [4, 5] {
            assert_eq!(
                flags(&guest(misc)),
                (true, true),
                "guest's kernel and user mode"
            );
        }
    }

    /// Check that every cut of a sample, and a dump that claims more than there is, is refused.
    #[test]
    fn malformed() {
        let bytes = record(9, 2, &body(1, 2), &[5; 16], 8);
        for n in 0..bytes.len() {
            assert_eq!(parse_record(&bytes[..n], 3, false), None, "cut at {n}");
        }
        assert_eq!(
            parse_record(&record(9, 2, &body(1, 2), &[5; 16], 17), 3, false),
            None
        );
    }

    /// Check that the kernel's part of a call chain is found between its marks, and that a chain which
    /// claims more than there is is refused.
    #[test]
    fn call_chains() {
        let kernel = bindings::PERF_CONTEXT_KERNEL;
        let user = bindings::PERF_CONTEXT_USER;
        let with = |chain: &[u64]| {
            let [ids, time, rest @ ..] = body(1, 2);
            let mut words = vec![ids, time, chain.len() as u64];
            words.extend(chain.iter().chain(&rest));
            record(9, 1, &words, &[5; 16], 8)
        };
        for (chain, expected) in [
            (&[kernel, 7, 8, 9][..], &[7_u64, 8, 9][..]),
            (&[kernel, 7, user, 9], &[7]),
            (&[user, 9, kernel, 7], &[7]),
            (&[user, 9], &[]),
            (&[], &[]),
        ] {
            let bytes = with(chain);
            let Some(Record::Sample(s)) = parse_record(&bytes, 3, true) else {
                panic!("{chain:?}")
            };
            let expected: Vec<u8> = expected.iter().flat_map(|w| w.to_ne_bytes()).collect();
            assert_eq!(s.kernel, expected);
            assert_eq!((s.stack, s.regs.unwrap().ip), (&[5; 8][..], Avma(0x10)));
        }
        let mut cut = with(&[kernel, 7]);
        cut[24..32].copy_from_slice(&u64::MAX.to_ne_bytes());
        assert_eq!(parse_record(&cut, 3, true), None);
    }

    /// Check that lost records are counted and unknown ones passed over.
    #[test]
    fn lost_and_other() {
        assert_eq!(
            parse_record(&record(2, 0, &[1, 42], &[], 0), 3, false),
            Some(Record::Lost(42))
        );
        assert_eq!(
            parse_record(&record(3, 0, &[], &[], 0), 3, false),
            Some(Record::Other)
        );
    }
}
