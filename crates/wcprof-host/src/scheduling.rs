//! A thread to what the scheduler permits it: its CPUs, and its budget under `SCHED_DEADLINE`. Neither call needs
//! rights over the thread.

use std::collections::BTreeSet;
use std::mem::{size_of, zeroed};

use wcprof_types::Tid;
use wcprof_types::accounts::DeadlineBudget;

/// 64-bit words of a set of CPUs: enough for 8192, the most that Linux knows on x86-64.
const CPU_WORDS: usize = 128;
/// The number of the policy (sched(7)).
const SCHED_DEADLINE: u32 = 6;

/// CPUs that a thread may run on: its affinity within its cpuset. `None` when it has exited.
pub(crate) fn allowed_cpus(tid: Tid) -> Option<BTreeSet<u32>> {
    let mut words = [0_u64; CPU_WORDS];
    // SAFETY: the kernel writes at most as many bytes as it is told, into memory of that size. (glibc's function takes
    // a `cpu_set_t` of 1024 CPUs.)
    let n = unsafe {
        libc::syscall(
            libc::SYS_sched_getaffinity,
            tid.0,
            size_of::<[u64; CPU_WORDS]>(),
            words.as_mut_ptr(),
        )
    };
    let n_words = usize::try_from(n).ok()? / size_of::<u64>();
    let bits = (0..)
        .zip(words.iter().take(n_words))
        .flat_map(|(at, word)| {
            let bits = (0..u64::BITS).filter(move |bit| word >> bit & 1 == 1);
            bits.map(move |bit| at * u64::BITS + bit)
        });
    Some(bits.collect())
}

/// The budget of a thread under `SCHED_DEADLINE`; `None` under another policy.
pub(crate) fn deadline_budget(tid: Tid) -> Option<DeadlineBudget> {
    // SAFETY: the structure is plain numbers.
    let mut attributes: libc::sched_attr = unsafe { zeroed() };
    let size = size_of::<libc::sched_attr>() as u32;
    // SAFETY: the kernel writes at most `size` bytes, which the structure has.
    let failed = unsafe {
        libc::syscall(
            libc::SYS_sched_getattr,
            tid.0,
            &raw mut attributes,
            size,
            0_u32,
        )
    };
    (failed == 0 && attributes.sched_policy == SCHED_DEADLINE).then_some(DeadlineBudget {
        runtime_ns: attributes.sched_runtime,
        // 0: as long as the deadline.
        period_ns: match attributes.sched_period {
            0 => attributes.sched_deadline,
            period => period,
        },
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::procfs::read_file;
    use wcprof_types::parse_cpus;

    /// Check the CPUs of this thread against `status`, and that a thread which is not there has none.
    #[test]
    fn of_this_thread() {
        let status = read_file("/proc/thread-self/status").unwrap();
        let mut lines = status.lines();
        let allowed = lines.find_map(|line| line.strip_prefix("Cpus_allowed_list:"));
        let tid = Tid(nix::unistd::gettid().as_raw());
        assert_eq!(allowed_cpus(tid), Some(parse_cpus(allowed.unwrap())));
        assert_eq!(deadline_budget(tid), None);
        assert_eq!(allowed_cpus(Tid(i32::MAX)), None);
        assert_eq!(deadline_budget(Tid(i32::MAX)), None);
    }
}
