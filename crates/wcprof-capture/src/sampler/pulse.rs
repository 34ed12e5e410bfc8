//! What the sampler is doing, for another thread that notices when the kernel does not let it go on.
//!
//! The addresses that the sampler reads are the target's choice. A page that is registered with userfaultfd, or
//! a mapped file whose server does not answer, holds the reader for ever. It reads between two looks at a
//! thread, so it cannot hand that to somebody else; instead the recording ends without it.

use std::collections::BTreeSet;
use std::fmt;
use std::sync::atomic::{AtomicI32, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use nix::errno::Errno;
use nix::unistd::gettid;
use wcprof_types::{Avma, Pid, Tid, cpu_list};

use wcprof_host::clock::monotonic_ns;
use wcprof_host::procfs::{
    Mappings, has_runnable_thread, list_threads, parse_schedstat, read_file, task_state,
};
use wcprof_host::{Target, TargetError, read_memory_now};
use wcprof_perf::PerfError;

/// Reads of one tick may take this long; then the recording may end, or go on with the next tick.
const MAX_WAIT_NS: u64 = 1_000_000_000;
/// No memory has these addresses: they are past all that user code can have.
const MAPPINGS: u64 = u64::MAX;
const STATE: u64 = u64::MAX - 1;
const TICK: u64 = u64::MAX - 2;

/// Notes that are kept.
const MAX_SAID: usize = 16;
const SLOW_TICKS: &str = "the sampler gave up its real-time priority, because ticks often take more than 2 ms of CPU time: \
     they are late when all CPUs are busy; ";

/// That these isolated CPUs have a timer.
pub(super) fn isolated_note(cpus: &BTreeSet<u32>) -> Option<String> {
    let note = format!(
        "CPUs {} are isolated (isolcpus= or nohz_full=) and have a timer, since threads of the target may run there; \
         --spare-isolated leaves them alone",
        cpu_list(cpus)
    );
    (!cpus.is_empty()).then_some(note)
}

/// Written by the sampler.
#[derive(Debug, Default)]
pub struct Pulse {
    /// Even while it sleeps, odd while it works.
    count: AtomicU64,
    /// Its thread.
    sampler: AtomicI32,
    /// How long reads of memory took since it began to work, ns.
    waited_ns: AtomicU64,
    /// What it reads; the address is 0 while it reads nothing, and [`MAPPINGS`], [`STATE`] or [`TICK`] for no memory.
    address: AtomicU64,
    pid: AtomicI32,
    /// The thread whose stack it is, or 0: a lock.
    tid: AtomicI32,
    /// What happened to it that the user should know.
    said: Mutex<BTreeSet<String>>,
    /// Isolated CPUs that got a timer after the start.
    disturbed: Mutex<BTreeSet<u32>>,
}

/// That the sampler asks for something; when it is dropped, what it asked for before holds again.
#[derive(Debug)]
pub(crate) struct Asking<'p> {
    pulse: &'p Pulse,
    before: Stuck,
}

impl Drop for Asking<'_> {
    fn drop(&mut self) {
        self.pulse.note(self.before.read);
    }
}

/// What a sampler was doing when it stopped.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub struct Stuck {
    /// Process, thread (0: a lock of the process) and address ([`MAPPINGS`], [`STATE`], [`TICK`]: these); `None`: something else.
    read: Option<(Pid, Tid, Avma)>,
}

impl Stuck {
    /// The process whose memory or mappings do not answer, where it is that.
    pub fn pid(&self) -> Option<Pid> {
        self.read.map(|(pid, ..)| pid)
    }
}

impl Stuck {
    /// Whether who holds the lock that is waited for (a process that is about to run another program holds that of its files in
    /// `/proc`) may wait for a CPU. Memory has no such holder.
    fn is_starved(self) -> bool {
        self.lock_of().is_some_and(has_runnable_thread)
    }

    /// The process whose lock in the kernel is waited for, where it is not memory that does not answer.
    fn lock_of(self) -> Option<Pid> {
        let (pid, _, at) = self.read?;
        matches!(at.0, MAPPINGS | STATE | TICK).then_some(pid)
    }
}

impl fmt::Display for Stuck {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let what = match self.read {
            None => "the kernel does not answer a question about the target".to_owned(),
            Some((pid, _, Avma(MAPPINGS))) => {
                return write!(
                    f,
                    "the mappings of pid {pid} do not answer (it holds their lock)"
                );
            }
            Some((pid, _, Avma(STATE))) => {
                return write!(f, "the kernel does not tell what pid {pid} does");
            }
            Some((pid, _, Avma(TICK))) => {
                format!("the kernel does not answer a question about pid {pid}")
            }
            Some((pid, Tid(0), address)) => {
                format!(
                    "a lock of pid {pid} is in memory that does not answer, at {:#x}",
                    address.0
                )
            }
            Some((pid, tid, address)) => format!(
                "the stack of thread {tid} of pid {pid} is in memory that does not answer, at {:#x}",
                address.0
            ),
        };
        write!(
            f,
            "{what} (userfaultfd, or a mapped file whose server hangs)"
        )
    }
}

impl Pulse {
    /// The calling thread is the sampler, always the same one, and works from now on.
    pub(super) fn begin(&self) {
        if self.sampler.load(Ordering::Relaxed) == 0 {
            self.sampler.store(gettid().as_raw(), Ordering::Relaxed);
        }
        self.waited_ns.store(0, Ordering::Relaxed);
        self.count.fetch_or(1, Ordering::Relaxed);
    }

    /// It sleeps now, or has ended.
    pub(super) fn rest(&self) {
        let count = self.count.load(Ordering::Relaxed);
        self.count.store(count + count % 2, Ordering::Relaxed);
    }

    /// Whether nothing more is read now, since what was read took long: the next tick goes on.
    pub(super) fn is_late(&self) -> bool {
        self.waited_ns.load(Ordering::Relaxed) >= MAX_WAIT_NS
    }

    /// Reads memory of a target, for a thread or (0) a lock; gives how many bytes could be read. `EAGAIN` when it
    /// [is late](Self::is_late).
    pub(super) fn read(
        &self,
        (pid, tid): (Pid, Tid),
        address: Avma,
        out: &mut [u8],
    ) -> Result<usize, Errno> {
        if self.is_late() {
            return Err(Errno::EAGAIN);
        }
        let begin = monotonic_ns();
        let asking = self.ask((pid, tid), address);
        let read = read_memory_now(pid, address, out);
        drop(asking);
        let waited = monotonic_ns() - begin;
        self.waited_ns.fetch_add(waited, Ordering::Relaxed);
        read
    }

    /// Reads the mappings of a target.
    pub(super) fn mappings(&self, target: &Target) -> Result<Mappings, TargetError> {
        let _asking = self.ask((target.pid(), Tid(0)), Avma(MAPPINGS));
        target.mappings_now()
    }

    /// Files of `/proc` about a target are read as long as this is held.
    pub(crate) fn state(&self, pid: Pid) -> Asking<'_> {
        self.ask((pid, Tid(0)), Avma(STATE))
    }

    /// All that is not named otherwise is about this target, the only one, as long as this is held.
    pub(super) fn tick(&self, pid: Pid) -> Asking<'_> {
        self.ask((pid, Tid(0)), Avma(TICK))
    }

    fn ask(&self, (pid, tid): (Pid, Tid), address: Avma) -> Asking<'_> {
        let before = self.stuck();
        self.note(Some((pid, tid, address)));
        Asking {
            pulse: self,
            before,
        }
    }

    fn note(&self, read: Option<(Pid, Tid, Avma)>) {
        let (pid, tid, address) = read.unwrap_or_default();
        self.pid.store(pid.0, Ordering::Relaxed);
        self.tid.store(tid.0, Ordering::Relaxed);
        self.address.store(address.0, Ordering::Relaxed);
    }

    /// Real-time priority was given up, since ticks took too long for it.
    pub(super) fn give_up_priority(&self, has_best_engine: bool) {
        let help = match has_best_engine {
            true => "--threads helps",
            false => "the engine bpf, or --threads, helps",
        };
        self.say(format!("{SLOW_TICKS}{help}"));
    }

    /// Threads that started since, or are on other CPUs by now, could not be given timers.
    pub(super) fn lacks_timers(&self, error: &PerfError) {
        if !matches!(error, PerfError::NoSuchThread) {
            self.say(format!(
                "threads that started during the recording, or came to other CPUs, have no timer there, so no stacks while they \
                 run: {error}"
            ));
        }
    }

    /// Threads could not be looked at for want of descriptors.
    pub(crate) fn lacks_files(&self) {
        self.say(
            "threads were not seen at some ticks: too many open files, raise RLIMIT_NOFILE (`ulimit -Hn`)"
                .to_owned(),
        );
    }

    fn say(&self, note: String) {
        let mut said = self.said.lock().unwrap_or_else(PoisonError::into_inner);
        if said.len() < MAX_SAID {
            said.insert(note);
        }
    }

    /// Threads of the targets may run on these isolated CPUs by now, which have a timer from now on.
    pub(super) fn disturb(&self, cpus: &BTreeSet<u32>) {
        let disturbed = self.disturbed.lock();
        let mut disturbed = disturbed.unwrap_or_else(PoisonError::into_inner);
        disturbed.extend(cpus);
    }

    /// What happened to the sampler since its start that the user should know.
    pub fn notes(&self) -> Vec<String> {
        let said = self.said.lock();
        let said = said.unwrap_or_else(PoisonError::into_inner).clone();
        let disturbed = self.disturbed.lock();
        let disturbed = isolated_note(&disturbed.unwrap_or_else(PoisonError::into_inner));
        said.into_iter().chain(disturbed).collect()
    }

    /// As if reads had taken long at this tick.
    #[cfg(test)]
    pub(super) fn pretend_late(&self) {
        self.waited_ns.store(MAX_WAIT_NS, Ordering::Relaxed);
    }

    fn stuck(&self) -> Stuck {
        let address = self.address.load(Ordering::Relaxed);
        let pid = Pid(self.pid.load(Ordering::Relaxed));
        let tid = Tid(self.tid.load(Ordering::Relaxed));
        Stuck {
            read: (address != 0).then_some((pid, tid, Avma(address))),
        }
    }
}

/// Watches a sampler from another thread.
#[derive(Debug)]
pub struct Watcher {
    pulse: Arc<Pulse>,
    last: Option<Look>,
    n_alike: u32,
    n_same_read: u32,
    /// The process whose lock is waited for, and how often its threads were put on a CPU.
    holder: Option<(Pid, u64)>,
}

/// The sampler in the midst of its work, off-CPU.
#[derive(Copy, Clone, Debug)]
struct Look {
    count: u64,
    /// Times it was put on a CPU.
    n_runs: u64,
    stuck: Stuck,
}

impl Look {
    fn has_not_run_since(&self, other: &Self) -> bool {
        (self.count, self.n_runs) == (other.count, other.n_runs)
    }

    /// Whether it is still in the same read of memory, however much of that it has.
    fn is_same_read(&self, other: &Self) -> bool {
        let is_memory = self.stuck.read.is_some_and(|(.., at)| at.0 < TICK);
        is_memory && (self.count, self.stuck) == (other.count, other.stuck)
    }
}

impl Watcher {
    /// Call [`Self::check`] this often.
    pub const EVERY: Duration = Duration::from_millis(400);
    /// Looks that must find the same.
    const N_ALIKE: u32 = 4;
    /// The same where the target may only have no CPU: 10 s.
    const N_STARVED: u32 = 25;
    /// Looks that must find the same read, of which each page may come late: 5 s.
    const N_SAME_READ: u32 = 12;

    /// Watches the sampler of this pulse.
    pub fn new(pulse: Arc<Pulse>) -> Self {
        Self {
            pulse,
            last: None,
            n_alike: 0,
            n_same_read: 0,
            holder: None,
        }
    }

    /// What the sampler waits for, if it was found waiting in the midst of its work again and again, and
    /// neither ran nor waited for a CPU, or was in one read all the time.
    pub fn check(&mut self) -> Option<Stuck> {
        let now = look(&self.pulse);
        if !self.note(now) {
            self.holder = None;
            return None;
        }
        let stuck = self.pulse.stuck();
        let gets_on = self.holder_moves(stuck) || stuck.is_starved();
        (self.n_alike >= Self::N_STARVED || !gets_on).then_some(stuck)
    }

    /// Whether the process whose lock is waited for was on a CPU since the last look, or is looked at for the first time: one that
    /// runs another program reads pages of it meanwhile, which takes long on a busy machine, and is not one that hangs.
    fn holder_moves(&mut self, stuck: Stuck) -> bool {
        let Some(pid) = stuck.lock_of() else {
            return false;
        };
        let now = Some((pid, n_runs(pid)));
        std::mem::replace(&mut self.holder, now) != now
    }

    fn note(&mut self, now: Option<Look>) -> bool {
        let both = now.zip(self.last);
        let next = |n: u32, is_same: bool| if is_same { n + 1 } else { 0 };
        let is_alike = both.is_some_and(|(now, last)| now.has_not_run_since(&last));
        self.n_alike = next(self.n_alike, is_alike);
        let is_same_read = both.is_some_and(|(now, last)| now.is_same_read(&last));
        self.n_same_read = next(self.n_same_read, is_same_read);
        self.last = now;
        self.n_alike >= Self::N_ALIKE || self.n_same_read >= Self::N_SAME_READ
    }
}

/// How often the threads of a process were put on a CPU.
fn n_runs(pid: Pid) -> u64 {
    let of = |tid: &Tid| {
        let line = read_file(format!("/proc/{pid}/task/{tid}/schedstat")).ok()?;
        Some(parse_schedstat(&line)?.n_runs)
    };
    let tids = list_threads(pid).unwrap_or_default();
    tids.iter().filter_map(of).fold(0, u64::wrapping_add)
}

fn look(pulse: &Pulse) -> Option<Look> {
    let count = pulse.count.load(Ordering::Relaxed);
    if count.is_multiple_of(2) {
        return None;
    }
    let folder = format!("self/task/{}", pulse.sampler.load(Ordering::Relaxed));
    let schedstat = read_file(format!("/proc/{folder}/schedstat")).ok()?;
    let n_runs = parse_schedstat(&schedstat)?.n_runs;
    let is_off_cpu = matches!(task_state(&folder)?, 'D' | 'S');
    is_off_cpu.then(|| Look {
        count,
        n_runs,
        stuck: pulse.stuck(),
    })
}

#[cfg(test)]
mod tests {
    use std::sync::mpsc::channel;

    use super::*;

    fn look(count: u64, n_runs: u64) -> Option<Look> {
        let stuck = Stuck { read: None };
        Some(Look {
            count,
            n_runs,
            stuck,
        })
    }

    /// Check that a read which takes long is one that does not answer, though pages come now and then.
    #[test]
    fn one_read() {
        let mut watcher = Watcher::new(Arc::default());
        let mut is_stuck = |address: u64| {
            let stuck = Stuck {
                read: Some((Pid(1), Tid(2), Avma(address))),
            };
            (0..Watcher::N_SAME_READ + 1).fold(false, |_, n_runs| {
                let n_runs = n_runs.into();
                watcher.note(Some(Look {
                    count: 1,
                    n_runs,
                    stuck,
                }))
            })
        };
        assert!(is_stuck(0x1000));
        assert!(is_stuck(0x2000));
        let mut reads = (0..100).map(|n| Look {
            count: 1,
            n_runs: n,
            stuck: Stuck {
                read: Some((Pid(1), Tid(2), Avma(n))),
            },
        });
        assert!(!reads.any(|look| watcher.note(Some(look))));
    }

    /// Check that what was asked for before holds again when something else has been answered.
    #[test]
    fn asked() {
        let pulse = Pulse::default();
        let own = Pid(std::process::id().cast_signed());
        let asking = pulse.state(own);
        let before = pulse.stuck();
        assert_eq!(before.read, Some((own, Tid(0), Avma(STATE))));
        let mappings = pulse.mappings(&Target::open(own).unwrap());
        assert!(mappings.is_ok());
        assert_eq!(pulse.stuck(), before);
        drop(asking);
        assert_eq!(pulse.stuck().read, None);
    }

    /// Check that when reads took long nothing more is read before the next tick.
    #[test]
    fn late() {
        let pulse = Pulse::default();
        let own = Pid(std::process::id().cast_signed());
        let word = 7_u64;
        let read = || {
            let mut out = [0; 8];
            pulse.read(
                (own, Tid(0)),
                Avma((&raw const word).addr() as u64),
                &mut out,
            )
        };
        assert_eq!(read(), Ok(8));
        pulse.pretend_late();
        assert_eq!(read(), Err(Errno::EAGAIN));
        pulse.begin();
        assert_eq!(read(), Ok(8));
    }

    /// Check that a process that runs may let go of a lock as soon as it gets a CPU, and that memory has no lock.
    #[test]
    fn starved() {
        let own = Pid(std::process::id().cast_signed());
        let stuck = |at| Stuck {
            read: Some((own, Tid(0), Avma(at))),
        };
        for at in [MAPPINGS, STATE, TICK] {
            assert!(stuck(at).is_starved());
        }
        assert!(!stuck(0x1000).is_starved());
        assert!(!Stuck { read: None }.is_starved());
    }

    /// Check that the holder of a lock that was on a CPU gets on, and that one which stands still does not.
    #[test]
    fn holders() {
        let mut child = std::process::Command::new("cat");
        let mut child = child.stdin(std::process::Stdio::piped()).spawn().unwrap();
        let pid = child.id().cast_signed();
        let signal = |signal| nix::sys::signal::kill(nix::unistd::Pid::from_raw(pid), signal);
        let is_in = |letter| task_state(&format!("{pid}/task/{pid}")) == Some(letter);
        let mut watcher = Watcher::new(Arc::default());
        let mut moves = |at| {
            watcher.holder_moves(Stuck {
                read: Some((Pid(pid), Tid(0), Avma(at))),
            })
        };
        signal(nix::sys::signal::SIGSTOP).unwrap();
        while !is_in('T') {
            std::thread::yield_now();
        }
        assert!(moves(MAPPINGS), "the first look");
        assert!(!moves(MAPPINGS) && !moves(STATE));
        assert!(!moves(0x1000), "memory");
        signal(nix::sys::signal::SIGCONT).unwrap();
        while !is_in('S') {
            std::thread::yield_now();
        }
        assert!(moves(MAPPINGS));
        drop(child.stdin.take());
        child.wait().unwrap();
    }

    /// Check that only looks in a row that find the same count.
    #[test]
    fn looks_in_a_row() {
        let mut watcher = Watcher::new(Arc::default());
        let mut stuck =
            |looks: &[Option<Look>]| looks.iter().fold(false, |_, look| watcher.note(*look));
        assert!(!stuck(&[look(1, 5); 4]));
        assert!(stuck(&[look(1, 5)]));
        assert!(
            !stuck(&[look(1, 6), look(1, 6), look(1, 6), look(1, 6)]),
            "it ran"
        );
        assert!(!stuck(&[look(3, 6); 4]), "another tick");
        assert!(
            !stuck(&[None, look(3, 6), look(3, 6), look(3, 6), look(3, 6)]),
            "it waited for a CPU"
        );
        assert!(stuck(&[look(3, 6)]));
    }

    /// Check a thread that waits within its work, and one that waits for work.
    #[test]
    fn a_waiting_thread() {
        let pulse: Arc<Pulse> = Arc::default();
        let (begun_tx, begun) = channel();
        let (next, orders) = channel::<()>();
        let thread = std::thread::spawn({
            let pulse = Arc::clone(&pulse);
            move || {
                for rests in [false, true] {
                    pulse.begin();
                    pulse.address.store(0x1000, Ordering::Relaxed);
                    pulse.pid.store(5, Ordering::Relaxed);
                    pulse.tid.store(7, Ordering::Relaxed);
                    if rests {
                        pulse.rest();
                    }
                    begun_tx.send(()).unwrap();
                    let _ = orders.recv();
                }
            }
        });
        let mut watcher = Watcher::new(Arc::clone(&pulse));
        begun.recv().unwrap();
        let stuck = (0..100_000)
            .find_map(|_| watcher.check())
            .expect("it waits");
        let text = stuck.to_string();
        assert!(
            text.contains("thread 7") && text.contains("0x1000"),
            "{text}"
        );
        // A holder of a lock is looked at twice.
        let again = |watcher: &mut Watcher| {
            let stuck = (0..Watcher::N_STARVED).find_map(|_| watcher.check());
            stuck.expect("it still waits").to_string()
        };
        pulse.address.store(STATE, Ordering::Relaxed);
        let text = again(&mut watcher);
        assert!(text.contains("what pid 5 does"), "{text}");
        // This process has a thread that runs: this one.
        pulse
            .pid
            .store(std::process::id().cast_signed(), Ordering::Relaxed);
        let mut patient = Watcher::new(Arc::clone(&pulse));
        let n_looks = (1..1000).find(|_| patient.check().is_some());
        assert_eq!(n_looks, Some(Watcher::N_STARVED + 1));
        pulse.pid.store(5, Ordering::Relaxed);
        pulse.address.store(TICK, Ordering::Relaxed);
        let text = again(&mut watcher);
        assert!(text.contains("about pid 5 (userfaultfd"), "{text}");
        pulse.address.store(MAPPINGS, Ordering::Relaxed);
        let text = again(&mut watcher);
        assert!(text.contains("the mappings of pid 5"), "{text}");
        assert_eq!(stuck.pid(), Some(Pid(5)));
        next.send(()).unwrap();
        begun.recv().unwrap();
        assert!((0..10).all(|_| watcher.check().is_none()));
        drop(next);
        thread.join().unwrap();
    }
}
