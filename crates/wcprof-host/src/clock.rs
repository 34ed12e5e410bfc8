//! Clocks of the kernel to nanoseconds. A clock that cannot be read shows 0.

use std::io;

use nix::sys::resource::{UsageWho, getrusage};
use nix::sys::time::{TimeSpec, TimeVal, TimeValLike};
use nix::time::{ClockId, clock_getcpuclockid, clock_gettime};
use wcprof_types::Pid;

/// `CLOCK_MONOTONIC`, ns: the clock of `bpf_ktime_get_ns` and of wcprof's perf samples.
pub fn monotonic_ns() -> u64 {
    read(ClockId::CLOCK_MONOTONIC)
}

/// The time of day, ns since 1970 (UTC).
pub fn unix_ns() -> u64 {
    read(ClockId::CLOCK_REALTIME)
}

/// CPU time of wcprof itself (all threads), ns.
pub fn own_cpu_ns() -> u64 {
    read(ClockId::CLOCK_PROCESS_CPUTIME_ID)
}

/// CPU time of processes that wcprof started and waited for, ns.
pub fn children_cpu_ns() -> u64 {
    let usage = getrusage(UsageWho::RUSAGE_CHILDREN);
    usage.map_or(0, |usage| {
        let ns = |time: TimeVal| u64::try_from(time.num_nanoseconds()).unwrap_or(0);
        ns(usage.user_time()) + ns(usage.system_time())
    })
}

/// CPU time of the calling thread, ns.
pub fn thread_cpu_ns() -> u64 {
    read(ClockId::CLOCK_THREAD_CPUTIME_ID)
}

/// CPU time of all threads of a process, exited ones included, ns.
///
/// # Errors
/// When there is no such process.
pub fn process_cpu_ns(pid: Pid) -> io::Result<u64> {
    let clock = clock_getcpuclockid(nix::unistd::Pid::from_raw(pid.0))?;
    Ok(to_ns(clock_gettime(clock)?))
}

/// `CLOCK_BOOTTIME` − `CLOCK_MONOTONIC`, ns: how long the machine was suspended.
pub fn boot_offset_ns() -> u64 {
    let (monotonic, boot) = at_once(monotonic_ns, || read(ClockId::CLOCK_BOOTTIME));
    boot.saturating_sub(monotonic)
}

/// One moment by two clocks.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub struct Moment {
    /// `CLOCK_MONOTONIC`, ns.
    pub monotonic: u64,
    /// The time of day, ns since 1970 (UTC).
    pub unix: u64,
}

/// Now. Seconds can pass between two readings on a machine without a free CPU: these are close together.
pub fn moment() -> Moment {
    let (monotonic, unix) = at_once(monotonic_ns, unix_ns);
    Moment { monotonic, unix }
}

impl Moment {
    /// Another moment of `CLOCK_MONOTONIC`, ns, as time of day, if that clock is not set in between.
    pub fn unix_of(self, monotonic: u64) -> u64 {
        let unix = i128::from(self.unix) + i128::from(monotonic) - i128::from(self.monotonic);
        u64::try_from(unix.max(0)).unwrap_or(u64::MAX)
    }
}

/// Readings of two clocks that are this close are of one moment, ns.
const CLOSE_NS: u64 = 20_000;
/// So often they are read at most; the closest readings count.
const MAX_READINGS: usize = 10;

/// A moment by both clocks: the second is read between two readings of the first.
fn at_once(first: impl Fn() -> u64, second: impl Fn() -> u64) -> (u64, u64) {
    let mut closest = (u64::MAX, 0, 0);
    for _ in 0..MAX_READINGS {
        let (before, other) = (first(), second());
        let gap = first().saturating_sub(before);
        if gap < closest.0 {
            closest = (gap, before + gap / 2, other);
        }
        if gap < CLOSE_NS {
            break;
        }
    }
    (closest.1, closest.2)
}

fn read(clock: ClockId) -> u64 {
    clock_gettime(clock).map_or(0, to_ns)
}

fn to_ns(time: TimeSpec) -> u64 {
    let seconds = u64::try_from(time.tv_sec()).unwrap_or(0);
    seconds * 1_000_000_000 + u64::try_from(time.tv_nsec()).unwrap_or(0)
}

#[cfg(test)]
mod tests {
    use std::cell::{Cell, RefCell};

    use super::*;

    /// Check that of readings between which time passes the closest ones count, and that two close ones suffice.
    #[test]
    fn closest_readings() {
        let (now, n_read) = (Cell::new(0), Cell::new(0));
        // How long each reading is held up before it is made.
        let held_up =
            RefCell::new(vec![0, 4_000_000_000, 0, 0, 90_000, 0, 0, 1000, 1000].into_iter());
        let read = |offset: u64| {
            n_read.set(n_read.get() + 1);
            now.set(now.get() + held_up.borrow_mut().next().unwrap());
            now.get() + offset
        };
        let day = 1_700_000_000_000_000_000;
        let (monotonic, unix) = at_once(|| read(0), || read(day));
        assert_eq!(n_read.get(), 9);
        assert_eq!((unix - monotonic).abs_diff(day), 0);
        assert_eq!(monotonic, 4_000_091_000);
    }

    /// Check that a machine whose readings are never close gives the closest of them.
    #[test]
    fn never_close() {
        let now = Cell::new(0);
        let read = |offset: u64| {
            now.set(now.get() + 30_000);
            now.get() + offset
        };
        let (monotonic, unix) = at_once(|| read(0), || read(7_000_000_000));
        assert_eq!(unix - monotonic, 7_000_000_000);
        assert_eq!(now.get(), 30_000 * 3 * MAX_READINGS as u64);
    }

    /// Check that a moment before and one after is so much earlier and later by the clock of the day.
    #[test]
    fn other_moments() {
        let moment = Moment {
            monotonic: 1000,
            unix: 5000,
        };
        assert_eq!(
            [900, 1000, 1300].map(|at| moment.unix_of(at)),
            [4900, 5000, 5300]
        );
    }
}
