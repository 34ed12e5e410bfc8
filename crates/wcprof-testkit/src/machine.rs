//! Whether the machine stood still during a recording, found out before any share is checked.
//!
//! A hypervisor that takes CPUs away makes sleeps longer and ticks late, so shares of such a recording say
//! little about wcprof. Load beside the test is different: threads then wait for a CPU, which the kernel
//! counts.

use std::fmt;
use std::fs;
use std::sync::{LazyLock, Mutex, MutexGuard, PoisonError};
use std::thread;
use std::time::Duration;

use crate::build::{Variant, fixture};
use crate::remote::RemoteProcess;
use crate::share::tolerance;

/// How far a short recording may be off beyond its samples, on a machine with other work.
const WIDE: f64 = 0.03;
/// How far a machine may make a share be off in all: a check that allows more can hardly fail.
const EXCUSED: f64 = 0.08;
/// Shares of a recording are not checked when its CPUs stood still, or were stolen, for more of it than this.
const STOOD_STILL: f64 = EXCUSED - WIDE;
/// ... and when it stood still for this much and so many ticks were missed,
const SHAKEN: f64 = 0.02;
const MANY_MISSED: f64 = 0.3;
/// or so few samples of equal weight are left.
const FEW_SAMPLES: u64 = 200;

/// Whether the machine stood still during a recording, with the figures.
#[derive(Clone, Copy, PartialEq, Debug, Default)]
pub struct Verdict {
    /// Time in which CPUs stood still, summed over the CPUs, nanoseconds.
    pub stalled_ns: u64,
    /// Mean share of the recording for which a CPU stood still: how far a share can be off.
    pub stalled: f64,
    /// Share of CPU time that the hypervisor reports as stolen.
    stolen: f64,
    /// Share of ticks that were missed.
    missed: f64,
    /// Samples of equal weight, where a test counts them.
    n_effective: Option<u64>,
}

impl Verdict {
    /// The verdict on the time from `begin` to `end`, nanoseconds since 1970; `missed` is the share of ticks that
    /// were missed.
    #[track_caller]
    pub(crate) fn on(begin: u64, end: u64, missed: f64) -> Self {
        let mut machine = MACHINE.lock();
        machine.look();
        let (from, to) = (machine.before(begin), machine.after(end));
        let cpu_ns = (end - begin).max(1) as f64 * machine.n_cpus.max(1) as f64;
        let stalled_ns = to.stalled.saturating_sub(from.stalled);
        let total = to.cpu_time.saturating_sub(from.cpu_time).max(1) as f64;
        Self {
            stalled_ns,
            stalled: stalled_ns as f64 / cpu_ns,
            stolen: to.stolen.saturating_sub(from.stolen) as f64 / total,
            missed,
            n_effective: None,
        }
    }

    /// Tolerance of a share measured live on `n_samples`: the bound of the samples, the effect of other work on a
    /// short recording, and the share of time for which CPUs stood still.
    pub fn tolerance(&self, truth: f64, n_samples: u64) -> f64 {
        tolerance(truth, n_samples) + WIDE + self.stalled.min(STOOD_STILL)
    }

    /// Adds the number of samples of equal weight that a share was measured on.
    pub fn with_samples(self, n_effective: u64) -> Self {
        Self {
            n_effective: Some(n_effective),
            ..self
        }
    }

    /// Whether no share of this recording can be checked.
    pub fn stood_still(&self) -> bool {
        let gone = self.stalled.max(self.stolen);
        let few = self.n_effective.is_some_and(|n| n < FEW_SAMPLES);
        gone > STOOD_STILL || gone > SHAKEN && (self.missed > MANY_MISSED || few)
    }
}

impl fmt::Display for Verdict {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let percent = |share: f64| share * 100.0;
        write!(
            f,
            "machine stood still: CPUs {:.1} % of the time, {:.1} % stolen, {:.1} % of ticks missed",
            percent(self.stalled),
            percent(self.stolen),
            percent(self.missed)
        )?;
        match self.n_effective {
            Some(n) => write!(f, ", {n} effective samples"),
            None => Ok(()),
        }
    }
}

/// Start to watch the machine. Only recordings that start later have a verdict.
pub(crate) fn watch() {
    LazyLock::force(&MACHINE);
}

/// One for each test process: real-time threads on all CPUs.
static MACHINE: LazyLock<Watch> = LazyLock::new(|| {
    let mut machine = Machine::start();
    machine.look();
    thread::spawn(|| {
        loop {
            thread::sleep(Duration::from_millis(20));
            MACHINE.lock().look();
        }
    });
    Watch(Mutex::new(machine))
});

struct Watch(Mutex<Machine>);

impl Watch {
    fn lock(&self) -> MutexGuard<'_, Machine> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

struct Machine {
    fixture: RemoteProcess,
    n_cpus: u64,
    /// Oldest first.
    looks: Vec<Look>,
}

/// Counters at one time.
#[derive(Clone, Copy, Debug)]
struct Look {
    /// Nanoseconds since 1970.
    real: u64,
    /// Nanoseconds, all CPUs together.
    stalled: u64,
    /// Clock ticks of `/proc/stat`, all CPUs together.
    stolen: u64,
    cpu_time: u64,
}

impl Machine {
    fn start() -> Self {
        let fixture = RemoteProcess::start(&fixture("stalls.c", Variant::NoFramePointers));
        Self {
            n_cpus: fixture.keys.get("cpus").copied().unwrap_or(1),
            fixture,
            looks: Vec::new(),
        }
    }

    fn look(&mut self) {
        let mark = self.fixture.mark();
        let (stolen, cpu_time) = cpu_times(&fs::read_to_string("/proc/stat").unwrap_or_default());
        self.looks.push(Look {
            real: mark.get("real"),
            stalled: mark.get("stalled"),
            stolen,
            cpu_time,
        });
    }

    /// The counters at the last reading before a time, or at the first reading.
    fn before(&self, real: u64) -> Look {
        let after = self.looks.partition_point(|look| look.real <= real);
        self.looks[after.saturating_sub(1)]
    }

    /// The counters at the first reading after a time, or at the last reading: a recording can end while the machine
    /// stands still, which is counted later.
    fn after(&self, real: u64) -> Look {
        let after = self.looks.partition_point(|look| look.real < real);
        self.looks[after.min(self.looks.len() - 1)]
    }
}

/// Stolen and whole time of all CPUs, from the first line of `/proc/stat` (proc_stat(5): user, nice, system,
/// idle, iowait, irq, softirq, steal; what follows is a part of the first two).
fn cpu_times(stat: &str) -> (u64, u64) {
    let line = stat.lines().next().unwrap_or_default();
    let times: Vec<u64> = line
        .split_whitespace()
        .skip(1)
        .take(8)
        .filter_map(|n| n.parse().ok())
        .collect();
    (times.get(7).copied().unwrap_or(0), times.iter().sum())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn verdict(stalled: f64, stolen: f64, missed: f64, n: u64) -> bool {
        let verdict = Verdict {
            stalled,
            stolen,
            missed,
            ..Verdict::default()
        };
        verdict.with_samples(n).stood_still()
    }

    /// Check that standing still and stolen time are reasons, and late ticks or few samples alone, as busy
    /// loops beside a test make them, are not; and that no more is allowed than the limit says.
    #[test]
    fn reasons() {
        assert!(verdict(0.3, 0.0, 0.0, 10_000));
        assert!(verdict(0.0, 0.3, 0.0, 10_000));
        assert!(verdict(0.05, 0.0, 0.4, 10_000));
        assert!(verdict(0.05, 0.0, 0.0, 100));
        assert!(verdict(0.06, 0.0, 0.0, 10_000));
        assert!(!verdict(0.04, 0.04, 0.1, 10_000));
        assert!(!verdict(0.0, 0.01, 0.9, 10));
        let shaken = Verdict {
            stalled: 0.2,
            ..Verdict::default()
        };
        let excused = shaken.tolerance(0.3, 400) - tolerance(0.3, 400);
        assert!((excused - EXCUSED).abs() < 1e-9);
    }

    /// Check that stolen and whole time are read from a line as the kernel writes it.
    #[test]
    fn stolen_time() {
        let stat = "cpu  10 1 20 300 4 0 5 60 7 8\ncpu0 1 2 3 4\n";
        assert_eq!(cpu_times(stat), (60, 400));
        assert_eq!(cpu_times(""), (0, 0));
    }
}
