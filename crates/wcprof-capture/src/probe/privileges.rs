//! The capabilities that wcprof can use, from `CapEff` (`include/uapi/linux/capability.h`), and
//! what is lost without each.

use wcprof_host::procfs::read_file;

use super::kernel::Machine;
use super::{ProbeLine, Subject};
use wcprof_host::sys::{CAP_BPF, CAP_PERFMON, CAP_SYS_ADMIN, CAP_SYS_PTRACE};

struct Capability {
    bit: u32,
    name: &'static str,
    /// Another capability that the kernel takes in its place.
    covered_by: Option<(u32, &'static str)>,
    gives: &'static str,
    without: &'static str,
    when: When,
}

/// How long a recording needs a capability.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
enum When {
    /// Up to its end: for new processes, threads and mappings.
    Always,
    /// Until everything is open.
    AtStart,
    /// Up to its end where the kernel has no finer ones (before Linux 5.9), or kernel stacks are read from `/proc`.
    IfNothingElse,
}

/// Without a line of their own: `CAP_DAC_OVERRIDE` for outputs in folders of other users, `CAP_SYSLOG` for addresses
/// in `/proc/kallsyms`; and to confine the process that reads symbols, and to end it, `CAP_KILL`, `CAP_SETGID`,
/// `CAP_SETUID` and `CAP_SYS_CHROOT`.
const ALSO_KEPT: u64 = 1 << 1 | 1 << 34 | 1 << 5 | 1 << 6 | 1 << 7 | 1 << 18;

/// What a recording needs when everything is open, as a mask.
pub fn kept_while_recording(reads_kernel_stacks: bool) -> u64 {
    let last = read_file("/proc/sys/kernel/cap_last_cap").ok();
    let last = last.and_then(|text| text.trim().parse::<u32>().ok());
    let needs_admin = reads_kernel_stacks || last.is_none_or(|last| last < 40);
    let kept = CAPABILITIES.iter().filter(|cap| match cap.when {
        When::Always => true,
        When::AtStart => false,
        When::IfNothingElse => needs_admin,
    });
    kept.fold(ALSO_KEPT, |mask, cap| mask | 1 << cap.bit)
}

const ADMIN: Option<(u32, &str)> = Some((CAP_SYS_ADMIN, "CAP_SYS_ADMIN"));

const CAPABILITIES: [Capability; 8] = [
    Capability {
        bit: CAP_BPF,
        name: "CAP_BPF",
        covered_by: ADMIN,
        gives: "loads BPF programs",
        without: "no engine bpf; procfs does the work",
        when: When::Always,
    },
    Capability {
        bit: CAP_PERFMON,
        name: "CAP_PERFMON",
        covered_by: ADMIN,
        gives: "one timer a CPU, samples in the kernel, BPF programs that read kernel memory",
        without: "no engine bpf; timers are per thread (about 2.4 us a context switch of the \
                  process), for processes that this user may trace, and what \
                  kernel.perf_event_paranoid permits",
        when: When::Always,
    },
    Capability {
        bit: CAP_SYS_ADMIN,
        name: "CAP_SYS_ADMIN",
        covered_by: None,
        gives: "opens deleted files through map_files, reads kernel stacks",
        without: "threads without a user stack (io_uring workers) are shown by their wchan \
                  alone; deleted binaries need CAP_CHECKPOINT_RESTORE instead",
        when: When::IfNothingElse,
    },
    Capability {
        bit: CAP_SYS_PTRACE,
        name: "CAP_SYS_PTRACE",
        covered_by: None,
        gives: "reads memory and maps of any process",
        without: "only processes of this user that are dumpable and that Yama permits",
        when: When::Always,
    },
    Capability {
        bit: 2,
        name: "CAP_DAC_READ_SEARCH",
        covered_by: Some((1, "CAP_DAC_OVERRIDE")),
        gives: "opens files in /proc/PID and binaries of other users",
        without: "of another user's process, only the engine bpf works, and binaries that all \
                  may read have names",
        when: When::Always,
    },
    Capability {
        bit: 23,
        name: "CAP_SYS_NICE",
        covered_by: None,
        gives: "real-time priority of the sampler",
        without: "ticks are late when all CPUs are busy",
        when: When::AtStart,
    },
    Capability {
        bit: 40,
        name: "CAP_CHECKPOINT_RESTORE",
        covered_by: ADMIN,
        gives: "opens deleted and replaced binaries through map_files",
        without: "a binary that was deleted or replaced since its start has no names, and stacks \
                  through it are cut",
        when: When::Always,
    },
    Capability {
        bit: 14,
        name: "CAP_IPC_LOCK",
        covered_by: None,
        gives: "timer rings beyond RLIMIT_MEMLOCK",
        without: "rings must fit kernel.perf_event_mlock_kb and RLIMIT_MEMLOCK",
        when: When::Always,
    },
];

pub(super) fn lines(machine: &Machine) -> Vec<ProbeLine> {
    CAPABILITIES
        .iter()
        .map(|cap| line(cap, machine.status.cap_eff, machine.in_nested_user_ns()))
        .collect()
}

fn line(cap: &Capability, effective: u64, nested: bool) -> ProbeLine {
    let has = |bit: u32| effective >> bit & 1 == 1;
    let line = |detail: String| ProbeLine::ok(Subject::Privilege, cap.name, cap.name, detail);
    if has(cap.bit) && nested {
        return line("held inside this user namespace alone".to_owned()).limited(format!(
            "the kernel asks for it outside of it in most cases; without it: {}",
            cap.without
        ));
    }
    if has(cap.bit) {
        let dropped = match cap.when {
            When::Always => "",
            When::AtStart => "; dropped when the recording has begun",
            When::IfNothingElse => {
                "; dropped when the recording has begun, unless kernel stacks come from /proc"
            }
        };
        return line(format!("{}{dropped}", cap.gives));
    }
    match cap.covered_by {
        Some((bit, name)) if has(bit) => line(format!(
            "not held, but {name} takes its place: {}",
            cap.gives
        )),
        _ => line("not held".to_owned()).missing(format!("without it: {}", cap.without)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::probe::Verdict;

    /// Check a capability held, covered by another one, and absent.
    #[test]
    fn held_covered_absent() {
        let bpf = &CAPABILITIES[0];
        assert_eq!(line(bpf, 1 << 39, false).verdict, Verdict::Ok);
        assert_eq!(line(bpf, 1 << 39, true).verdict, Verdict::Limited);
        let covered = line(bpf, 1 << 21, false);
        assert_eq!(covered.verdict, Verdict::Ok);
        assert!(covered.detail.contains("CAP_SYS_ADMIN"));
        let absent = line(bpf, !(1 << 39 | 1 << 21), false);
        assert_eq!(absent.verdict, Verdict::Missing);
        assert!(absent.advice.contains("procfs"), "{}", absent.advice);
    }
}
