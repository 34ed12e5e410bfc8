//! Resource limits of wcprof, against what the process needs, and the sampler's priority.

use wcprof_types::Pid;

use super::kernel::Machine;
use super::{ProbeLine, Subject};
use crate::sampler::OWN_FILES;
use crate::sys::{Punctuality, become_punctual};
use wcprof_host::procfs::list_threads;
use wcprof_perf::RING_BYTES;

const CAP_IPC_LOCK: u32 = 14;

/// Fewest descriptors with timers per CPU, and those that timers of all `n` threads take: the
/// sampler leaves them two thirds of the limit.
fn files_needed(n: u64, n_cpus: u64) -> (u64, u64) {
    let least = OWN_FILES as u64 + n_cpus;
    let events = n.saturating_mul(n_cpus);
    (least, least.saturating_add(events + events.div_ceil(2)))
}

/// The limits, against what the threads of `pid` need.
pub(super) fn lines(pid: Option<Pid>, machine: &Machine) -> Vec<ProbeLine> {
    let n_threads = pid.and_then(|pid| list_threads(pid).ok());
    let n_threads = n_threads.map(|tids| tids.len() as u64);
    vec![
        open_files(n_threads, machine),
        locked_memory(machine),
        priority(),
    ]
}

fn line(id: &'static str, name: &'static str, detail: String) -> ProbeLine {
    ProbeLine::ok(Subject::Limit, id, name, detail)
}

fn open_files(n_threads: Option<u64>, machine: &Machine) -> ProbeLine {
    let line = |detail: String| line("open-files", "RLIMIT_NOFILE", detail);
    let n_cpus = machine.n_cpus as u64;
    let (soft, hard) = machine.open_files;
    let limit = match soft == hard {
        true => count(hard),
        false => format!("{} (raised to {} by attach)", count(soft), count(hard)),
    };
    let Some(n) = n_threads else {
        let (least, one) = files_needed(1, n_cpus);
        let most = hard.saturating_sub(least) / (one - least).max(1);
        return line(format!(
            "{limit}: enough for timers of {most} threads, or for timers per CPU"
        ));
    };
    let (least, most) = files_needed(n, n_cpus);
    let detail = format!(
        "{limit}; {n} threads take {most} with timers per thread, {least} with timers per CPU, \
         and one for each binary"
    );
    let advice = "raise it: `ulimit -Hn` as root, LimitNOFILE= of a service";
    if hard >= most {
        line(detail)
    } else if hard >= least {
        line(detail).limited(format!(
            "with timers per thread some threads have none, so no stacks while they run; \
             CAP_PERFMON needs the fewer ones; else {advice}"
        ))
    } else {
        line(detail).missing(format!("no engine works; {advice}"))
    }
}

fn locked_memory(machine: &Machine) -> ProbeLine {
    let line = |detail: String| line("locked-memory", "RLIMIT_MEMLOCK", detail);
    let n_cpus = machine.n_cpus as u64;
    let need_kb = RING_BYTES as u64 / 1024 * n_cpus;
    let free_kb = machine
        .mlock_kb
        .as_deref()
        .and_then(|kb| kb.parse::<u64>().ok())
        .unwrap_or(0)
        .saturating_mul(n_cpus);
    let soft = machine.locked_memory.0;
    let limit_kb = soft / 1024;
    let limit = match soft {
        u64::MAX => "unlimited".to_owned(),
        _ => format!("{limit_kb} KiB"),
    };
    let detail = format!(
        "{limit}, and {free_kb} KiB a user for perf; the rings of {n_cpus} CPUs need {need_kb} KiB"
    );
    if machine.has(CAP_IPC_LOCK) || need_kb <= free_kb.saturating_add(limit_kb) {
        return line(detail);
    }
    line(detail).missing(
        "no timers, so only procfs-only works; raise `ulimit -l` or kernel.perf_event_mlock_kb, \
         or give wcprof CAP_IPC_LOCK",
    )
}

/// Tried on a thread that ends at once: nothing else of wcprof gets the priority.
fn priority() -> ProbeLine {
    let line = |detail: String| line("priority", "real-time priority", detail);
    let tried = std::thread::Builder::new().spawn(become_punctual);
    match tried.map(std::thread::JoinHandle::join) {
        Ok(Ok(Punctuality::RealTime)) => line("SCHED_FIFO 1 is permitted".into()),
        Ok(Ok(Punctuality::Nice(nice))) => line(format!(
            "nice {nice} is permitted, SCHED_FIFO not"
        ))
        .limited("ticks can be late when all CPUs are busy; CAP_SYS_NICE permits SCHED_FIFO"),
        _ => line("neither SCHED_FIFO nor a negative nice value is permitted".into()).limited(
            "ticks are late when all CPUs are busy; run as root, give wcprof CAP_SYS_NICE, or \
             raise RLIMIT_RTPRIO (`ulimit -r 1`)",
        ),
    }
}

fn count(limit: u64) -> String {
    match limit {
        u64::MAX => "unlimited".to_owned(),
        n => n.to_string(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::probe::Verdict;

    fn machine(hard: u64) -> Machine {
        Machine {
            n_cpus: 4,
            open_files: (hard.min(1024), hard),
            ..Machine::default()
        }
    }

    /// Check the verdict at both bounds of what 1000 threads need.
    #[test]
    fn open_files_at_bounds() {
        let verdict = |hard| open_files(Some(1000), &machine(hard)).verdict;
        let (least, most) = files_needed(1000, 4);
        assert_eq!(verdict(most), Verdict::Ok);
        assert_eq!(verdict(most - 1), Verdict::Limited);
        assert_eq!(verdict(least), Verdict::Limited);
        assert_eq!(verdict(least - 1), Verdict::Missing);
        assert_eq!(verdict(u64::MAX), Verdict::Ok);
    }

    /// Check that the rings are held against both allowances, and that the capability passes them.
    #[test]
    fn rings() {
        let mut machine = machine(1024);
        assert_eq!(locked_memory(&machine).verdict, Verdict::Missing);
        machine.mlock_kb = Some("516".to_owned());
        assert_eq!(locked_memory(&machine).verdict, Verdict::Ok);
        machine.mlock_kb = Some("0".to_owned());
        machine.locked_memory = (8 << 20, 8 << 20);
        assert_eq!(locked_memory(&machine).verdict, Verdict::Ok);
        machine.locked_memory = (0, 0);
        machine.status.cap_eff = 1 << CAP_IPC_LOCK;
        assert_eq!(locked_memory(&machine).verdict, Verdict::Ok);
    }
}
