//! The state of a target in `/proc`, read while wcprof observes it.

use std::collections::BTreeMap;
use std::fmt::Display;
use std::fs;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use nix::time::{ClockId, clock_gettime};
use nix::unistd::Pid;

/// Ids of the threads of `pid`, with their names.
pub fn thread_ids(pid: i32) -> BTreeMap<i32, String> {
    let tasks = fs::read_dir(format!("/proc/{pid}/task")).expect("target lives");
    tasks
        .filter_map(|entry| entry.ok()?.file_name().to_str()?.parse().ok())
        .filter_map(|tid: i32| {
            let name = fs::read_to_string(format!("/proc/{pid}/task/{tid}/comm")).ok()?;
            Some((tid, name.trim_end().to_owned()))
        })
        .collect()
}

/// Wait until as many threads as that are in `epoll_wait`.
#[track_caller]
pub fn wait_for_epoll(pid: i32, n_threads: usize) {
    let in_epoll = |tid: &i32| {
        // epoll_wait and epoll_pwait of x86-64.
        fs::read_to_string(format!("/proc/{pid}/task/{tid}/syscall"))
            .is_ok_and(|call| call.starts_with("232 ") || call.starts_with("281 "))
    };
    wait_until("threads do not reach epoll_wait", || {
        let n = thread_ids(pid).keys().filter(|tid| in_epoll(tid)).count();
        (n >= n_threads).then_some(())
    });
}

/// Wait for a thread of this name; its id.
#[track_caller]
pub fn wait_for_thread(pid: i32, comm: &str) -> i32 {
    wait_until("no thread of this name", || {
        let mut ids = thread_ids(pid).into_iter();
        ids.find(|(_, name)| name == comm).map(|(tid, _)| tid)
    })
}

/// Pids of the children of `pid`.
pub fn children(pid: i32) -> Vec<i32> {
    let tasks = fs::read_dir(format!("/proc/{pid}/task"));
    let lists = tasks.into_iter().flatten().flatten();
    lists
        .flat_map(|task| {
            let list = fs::read_to_string(task.path().join("children")).unwrap_or_default();
            let pids = list.split_whitespace().filter_map(|pid| pid.parse().ok());
            pids.collect::<Vec<_>>()
        })
        .collect()
}

/// Names of the threads of `pid`, with their effective capabilities.
pub fn thread_capabilities(pid: i32) -> Vec<(String, u64)> {
    thread_ids(pid)
        .into_iter()
        .filter_map(|(tid, name)| {
            let status = fs::read_to_string(format!("/proc/{pid}/task/{tid}/status")).ok()?;
            let mask = u64::from_str_radix(field(&status, "CapEff:")?, 16).ok()?;
            Some((name, mask))
        })
        .collect()
}

/// Voluntary context switches of each thread but the main one: a thread that waits and is not
/// woken makes none.
pub fn voluntary_switches(pid: i32) -> BTreeMap<i32, u64> {
    thread_ids(pid)
        .into_keys()
        .filter(|tid| *tid != pid)
        .filter_map(|tid| {
            let status = fs::read_to_string(format!("/proc/{pid}/task/{tid}/status")).ok()?;
            let count = field(&status, "voluntary_ctxt_switches:")?.parse().ok()?;
            Some((tid, count))
        })
        .collect()
}

/// Nanoseconds that a thread has waited on a run queue, up to when it last got a CPU (second field of
/// schedstat).
pub fn run_delay_ns(pid: i32, tid: i32) -> u64 {
    schedstat(pid, tid, 1)
}

/// Wait until a busy thread has run for some time more, ns.
#[track_caller]
pub fn wait_for_run_time(pid: i32, tid: i32, more: u64) {
    let before = schedstat(pid, tid, 0);
    wait_until("thread does not run", || {
        (schedstat(pid, tid, 0) >= before + more).then_some(())
    });
}

/// How long a test waits for what must come. Only a test that fails takes as long: a hypervisor may hold the
/// machine up for a minute.
pub const PATIENCE: Duration = Duration::from_secs(300);

/// Look once a millisecond until something is found; panics with `otherwise` after [`PATIENCE`].
#[track_caller]
pub fn wait_until<T>(otherwise: impl Display, mut look: impl FnMut() -> Option<T>) -> T {
    let begin = Instant::now();
    loop {
        if let Some(found) = look() {
            return found;
        }
        assert!(begin.elapsed() < PATIENCE, "{otherwise}");
        thread::sleep(Duration::from_millis(1));
    }
}

fn schedstat(pid: i32, tid: i32, field: usize) -> u64 {
    fs::read_to_string(format!("/proc/{pid}/task/{tid}/schedstat"))
        .ok()
        .and_then(|text| text.split_whitespace().nth(field)?.parse().ok())
        .expect("kernel has schedstat")
}

fn field<'a>(status: &'a str, name: &str) -> Option<&'a str> {
    status
        .lines()
        .find_map(|line| line.strip_prefix(name))
        .map(str::trim)
}

/// What the kernel counts of a thread's CPU time, in `/proc/PID/task/TID/stat`. It counts in 10 ms.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub enum CpuTime {
    /// User and kernel mode: `utime` and `stime`.
    All,
    /// User mode: `utime`, which has the guest's time, too. It is a part of the exact run time; `guest_time` is not, and
    /// lacks what the hypervisor stole of scheduler ticks.
    User,
    /// In a guest: `guest_time`.
    Guest,
}

impl CpuTime {
    /// What is counted of a thread by now, ns; 0 once it has exited.
    fn of_thread(self, pid: i32, tid: i32) -> u64 {
        let stat = fs::read_to_string(format!("/proc/{pid}/task/{tid}/stat")).unwrap_or_default();
        // The name may hold anything. The first field after it is the third of proc(5).
        let fields = stat.rsplit_once(')').map_or("", |(_, fields)| fields);
        let fields: Vec<&str> = fields.split_whitespace().collect();
        let ticks = |field: usize| -> u64 {
            let text = fields.get(field - 3);
            text.and_then(|text| text.parse().ok()).unwrap_or(0)
        };
        let ticks = match self {
            Self::All => ticks(14) + ticks(15),
            Self::User => ticks(14),
            Self::Guest => ticks(43),
        };
        ticks * 10_000_000
    }
}

/// Logs a counter of CPU time every 5 ms, so that the use of the CPU in any interval is known
/// afterwards.
#[derive(Debug)]
pub struct CpuLog {
    over: Arc<AtomicBool>,
    thread: JoinHandle<Vec<(u64, u64)>>,
}

impl CpuLog {
    /// Start to log the CPU clock of a process.
    pub fn start(pid: i32) -> Self {
        let clock = ClockId::pid_cpu_clock_id(Pid::from_raw(pid)).expect("target lives");
        Self::of(move || clock_ns(clock))
    }

    /// Start to log what the kernel counts of a thread.
    pub fn of_thread(pid: i32, tid: i32, time: CpuTime) -> Self {
        Self::of(move || time.of_thread(pid, tid))
    }

    fn of(count: impl Fn() -> u64 + Send + 'static) -> Self {
        let over = Arc::new(AtomicBool::new(false));
        let thread = {
            let over = Arc::clone(&over);
            let line = move || (clock_ns(ClockId::CLOCK_REALTIME), count());
            let mut log = vec![line()];
            thread::spawn(move || {
                loop {
                    // The last line is after the end.
                    let last = over.load(Ordering::Relaxed);
                    log.push(line());
                    if last {
                        break log;
                    }
                    thread::sleep(Duration::from_millis(5));
                }
            })
        };
        Self { over, thread }
    }

    /// Stop the log. Returns the least and the most CPU seconds that were used in a second between two moments of wall-clock
    /// time (nanoseconds since 1970). The log has both moments between two of its lines each.
    #[track_caller]
    pub fn cpus_between(self, begin: u64, end: u64) -> (f64, f64) {
        self.over.store(true, Ordering::Relaxed);
        let log = self.thread.join().expect("log does not panic");
        let around = |moment: u64| {
            let after = log.partition_point(|(wall, _)| *wall < moment);
            assert!(after > 0 && after < log.len(), "log does not reach");
            (log[after - 1].1, log[after].1)
        };
        let (first, last) = (around(begin), around(end));
        let cpus = |ns: u64| ns as f64 / (end - begin) as f64;
        (cpus(last.0.saturating_sub(first.1)), cpus(last.1 - first.0))
    }
}

fn clock_ns(clock: ClockId) -> u64 {
    clock_gettime(clock).map_or(0, |t| {
        t.tv_sec() as u64 * 1_000_000_000 + t.tv_nsec() as u64
    })
}

/// Checks every thread of a process for a tracer or a stop, every 2 ms.
#[derive(Debug)]
pub struct StopWatch {
    over: Arc<AtomicBool>,
    thread: JoinHandle<Seen>,
}

/// What the checks found.
#[derive(Debug, Default)]
struct Seen {
    n_looks: u64,
    trouble: Vec<String>,
}

impl StopWatch {
    /// Start to check.
    pub fn start(pid: i32) -> Self {
        let over = Arc::new(AtomicBool::new(false));
        let thread = {
            let over = Arc::clone(&over);
            thread::spawn(move || {
                let mut seen = Seen::default();
                while !over.load(Ordering::Relaxed) {
                    look(pid, &mut seen);
                    thread::sleep(Duration::from_millis(2));
                }
                seen
            })
        };
        Self { over, thread }
    }

    /// Stop, and assert that no check found a tracer or a stopped thread.
    #[track_caller]
    pub fn assert_untouched(self) {
        self.over.store(true, Ordering::Relaxed);
        let seen = self.thread.join().expect("watch does not panic");
        assert!(seen.n_looks > 0, "nothing was checked");
        assert!(
            seen.trouble.is_empty(),
            "target was touched: {:?}",
            seen.trouble
        );
    }
}

fn look(pid: i32, seen: &mut Seen) {
    let Ok(tasks) = fs::read_dir(format!("/proc/{pid}/task")) else {
        return;
    };
    for task in tasks.flatten() {
        let Ok(status) = fs::read_to_string(task.path().join("status")) else {
            continue;
        };
        seen.n_looks += 1;
        let state = field(&status, "State:").unwrap_or_default();
        let tracer = field(&status, "TracerPid:").unwrap_or_default();
        if state.starts_with(['T', 't']) || tracer != "0" {
            seen.trouble
                .push(format!("{:?}: state {state}, tracer {tracer}", task.path()));
        }
    }
}
