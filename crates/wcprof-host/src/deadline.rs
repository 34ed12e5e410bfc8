//! A call about a process or a file that may never return to its result, or to none after some seconds.

use std::cell::{Cell, RefCell};
use std::collections::BTreeMap;
use std::io;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, channel};
use std::sync::{Mutex, MutexGuard, Once, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

use nix::unistd::gettid;
use wcprof_types::{Pid, Tid};

use crate::clock::thread_cpu_ns;
use crate::left;
use crate::procfs::{is_runnable, read_file};

/// What answers does within microseconds, or after reading a page from a disk.
const DEADLINE: Duration = Duration::from_secs(2);
/// A call that still reads something from a busy disk has this long, and one that no recording waits for.
const READING_DEADLINE: Duration = Duration::from_secs(10);
/// Nobody waits for the same again so soon, so that what answers late each time costs little.
const PAUSE: Duration = Duration::from_secs(60);
/// Somebody who does not want the result any more is asked so often.
const POLL: Duration = Duration::from_millis(50);
/// Threads that files of a process, or of a disk, may hold.
const MAX_ALIKE: usize = 2;
/// Threads that may be left behind: beyond this no more are started. The agent's unit has 256 tasks.
const MAX_LEFT: usize = 100;

/// What a call waits for.
#[derive(Copy, Clone, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub(crate) enum Awaited {
    /// A page of a process.
    Memory(Pid),
    /// The lock of its mappings, which is also that of its arguments. While a page does not come it can be free.
    Lock(Pid),
    /// Its root folder.
    Root(Pid),
    /// Files that it maps, of a device that others may answer for.
    Files(Pid, (u32, u32)),
    /// The same of a disk of this machine.
    Disk((u32, u32), Pid),
    /// Files that tell what it is.
    Facts(Pid),
    /// Look-ups in its file systems, and copies of its files.
    Lookups(Pid),
    /// Files on a mount, by its id.
    Mount(u64),
    /// Files of JIT compilers on it, which may be long.
    Code(u64),
    /// Files of this machine below a folder, by its hash.
    Host(u64),
}

impl Awaited {
    /// Time without an answer, and time in all for a call that gets on with reading, if that counts.
    fn limits(self) -> (Duration, Option<Duration>) {
        match self {
            Self::Memory(_) | Self::Lock(_) | Self::Root(_) => (DEADLINE, None),
            Self::Lookups(_) => (DEADLINE, Some(3 * READING_DEADLINE)),
            Self::Files(..) | Self::Facts(_) => (DEADLINE, Some(READING_DEADLINE)),
            Self::Mount(_) | Self::Host(_) => (READING_DEADLINE, None),
            Self::Disk(..) => (READING_DEADLINE, Some(3 * READING_DEADLINE)),
            Self::Code(_) => (READING_DEADLINE, Some(6 * READING_DEADLINE)),
        }
    }

    /// How long it is left alone.
    fn pause(self) -> Duration {
        match self {
            // Busy, or gone for good: then the call lasts.
            Self::Disk(..) => Duration::ZERO,
            _ => PAUSE,
        }
    }
}

/// How far a thread is that reads files.
struct Reading {
    began: Instant,
    /// In `/proc`.
    io: String,
    /// What it says (proc_pid_io(5)); `None` where the kernel does not count.
    counts: Option<String>,
}

impl Reading {
    /// Of a thread that is about to begin.
    fn new(tid: Tid) -> Self {
        let io = format!("/proc/self/task/{tid}/io");
        Self {
            began: Instant::now(),
            counts: read_file(&io).ok(),
            io,
        }
    }

    /// Whether it has read something since the last call, or the beginning, and may go on.
    fn gets_on(&mut self, longest: Duration) -> bool {
        let counts = read_file(&self.io).ok();
        let gets_on = counts != self.counts;
        self.counts = counts;
        gets_on && self.began.elapsed() < longest
    }
}

/// Something that did not answer in time.
#[derive(Copy, Clone, Debug, Default)]
struct Silence {
    since: Option<Instant>,
    /// Calls that were left behind, and have not returned yet.
    n_lasting: usize,
    /// A child that was left behind for it.
    child: Option<Pid>,
    is_said: bool,
}

impl Silence {
    /// Whether it may be waited for again.
    fn is_over(self, pause: Duration, now: Instant) -> bool {
        let age = self.since.map(|since| now.saturating_duration_since(since));
        let is_old = age.is_none_or(|age| age >= pause);
        is_old && self.n_lasting == 0 && !self.child.is_some_and(left::has)
    }
}

/// All that did not answer so far.
static SILENT: Mutex<BTreeMap<Awaited, Silence>> = Mutex::new(BTreeMap::new());

/// [`MAX_LEFT`] was reached.
static IS_EXHAUSTED: AtomicBool = AtomicBool::new(false);

/// A file was not opened, since too many others are not closed.
static IS_UNCLOSED: AtomicBool = AtomicBool::new(false);

/// Notes that a file was not opened, since too many others are not closed.
pub(crate) fn note_unclosed() {
    IS_UNCLOSED.store(true, Ordering::Relaxed);
}

fn silent() -> MutexGuard<'static, BTreeMap<Awaited, Silence>> {
    SILENT.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Whether this did not answer, and is to be left alone for now.
pub(crate) fn is_silent(awaited: Awaited) -> bool {
    let silent = silent();
    let alike = match awaited {
        Awaited::Files(pid, _) => {
            Awaited::Files(pid, (0, 0))..=Awaited::Files(pid, (u32::MAX, u32::MAX))
        }
        Awaited::Disk(disk, _) => {
            Awaited::Disk(disk, Pid(i32::MIN))..=Awaited::Disk(disk, Pid(i32::MAX))
        }
        other => other..=other,
    };
    let alike = silent.range(alike);
    if alike.map(|(_, silence)| silence.n_lasting).sum::<usize>() >= MAX_ALIKE {
        return true;
    }
    let silence = silent.get(&awaited);
    silence.is_some_and(|silence| !silence.is_over(awaited.pause(), Instant::now()))
}

/// Somebody else found that this does not answer: a child, which was left behind for it or has ended.
pub(crate) fn silence(awaited: Awaited, child: Pid) {
    let mut silent = silent();
    let silence = silent.entry(awaited).or_default();
    (silence.since, silence.child) = (Some(Instant::now()), Some(child));
}

/// What did not answer and the user should know of, once each.
pub fn new_silences() -> Vec<String> {
    static ONCE: Once = Once::new();
    let mut said = Vec::new();
    for (awaited, silence) in silent().iter_mut() {
        if let Awaited::Memory(pid) = awaited
            && !std::mem::replace(&mut silence.is_said, true)
        {
            said.push(format!(
                "memory of pid {pid} did not answer within 2 s (userfaultfd, or a mapped file whose server hangs): what is \
                 there is missing"
            ));
        }
    }
    static FULL: Once = Once::new();
    if IS_UNCLOSED.load(Ordering::Relaxed) {
        FULL.call_once(|| {
            said.push(
                "servers of very many files do not answer when these are closed: until they do, wcprof opens no more there, or \
                 on no server, so that names and stacks may be missing"
                    .to_owned(),
            );
        });
    }
    if IS_EXHAUSTED.load(Ordering::Relaxed) {
        ONCE.call_once(|| {
            said.push(format!(
                "{MAX_LEFT} questions about processes and files are not answered: until they are, wcprof asks fewer or none, so \
                 that names, arguments and deep stacks may be missing"
            ));
        });
    }
    said
}

type Call = Box<dyn FnOnce() + Send>;

thread_local! {
    /// Makes the calls of this thread.
    static CALLER: RefCell<Option<Caller>> = const { RefCell::new(None) };
    /// CPU time of these calls, ns.
    static CALLS_CPU_NS: Cell<u64> = const { Cell::new(0) };
    /// Tells that nobody wants their results any more.
    static IS_UNWANTED: RefCell<Option<IsUnwanted>> = const { RefCell::new(None) };
}

type IsUnwanted = Box<dyn Fn() -> bool>;

/// Does work of which calls about processes and files are left behind when nobody wants their results any more.
pub fn while_wanted<T>(is_unwanted: impl Fn() -> bool + 'static, work: impl FnOnce() -> T) -> T {
    let before = IS_UNWANTED.replace(Some(Box::new(is_unwanted)));
    let result = work();
    IS_UNWANTED.set(before);
    result
}

/// Whether nobody waits for the calling thread any more.
fn is_unwanted() -> bool {
    IS_UNWANTED.with_borrow(|is_unwanted| is_unwanted.as_ref().is_some_and(|f| f()))
}

/// Waits for a result until `time` is over, or nobody wants it any more.
fn wait_for<T>(from: &Receiver<T>, time: Duration) -> Result<T, RecvTimeoutError> {
    let begin = Instant::now();
    loop {
        let left = time.saturating_sub(begin.elapsed());
        match from.recv_timeout(left.min(POLL)) {
            Err(RecvTimeoutError::Timeout) if !left.is_zero() && !is_unwanted() => {}
            result => return result,
        }
    }
}

/// CPU time of the calling thread, and of the calls that others made for it, ns.
pub fn work_cpu_ns() -> u64 {
    thread_cpu_ns() + CALLS_CPU_NS.get()
}

struct Caller {
    calls: Sender<Call>,
    tid: Tid,
}

/// Makes a call on another thread. One that does not return in time, nor gets on with the files that it
/// reads, is left behind with its thread, and gives `None`, as every other call that waits for the same does until it has
/// returned, and a minute is over.
pub(crate) fn with_deadline<T: Send + 'static>(
    awaited: Awaited,
    call: impl FnOnce() -> T + Send + 'static,
) -> Option<T> {
    if is_silent(awaited) {
        return None;
    }
    let (deadline, longest) = awaited.limits();
    let (to, from) = channel();
    let call: Call = Box::new(move || {
        let before = thread_cpu_ns();
        let result = call();
        let cpu = thread_cpu_ns().saturating_sub(before);
        let locked = silent();
        let unsent = to.send((result, cpu));
        drop(locked);
        if let Err(unsent) = unsent {
            // It may be a file, and to close it may last as long.
            drop(unsent);
            if let Some(silence) = silent().get_mut(&awaited) {
                silence.n_lasting -= 1;
            }
        }
    });
    let (result, cpu) = CALLER.with_borrow_mut(|caller| {
        if caller.is_none() {
            *caller = Some(start()?);
        }
        let (tid, mut reading) = {
            let caller = caller.as_ref()?;
            let reading = longest.map(|longest| (Reading::new(caller.tid), longest));
            caller.calls.send(call).ok()?;
            (caller.tid, reading)
        };
        loop {
            let result = wait_for(&from, deadline);
            let is_unwanted = is_unwanted();
            match result {
                Ok(result) => return Some(result),
                Err(RecvTimeoutError::Disconnected) => {
                    *caller = None;
                    return None;
                }
                // It only has no CPU.
                Err(_) if !is_unwanted && is_runnable(&format!("self/task/{tid}")) => {}
                Err(_)
                    if !is_unwanted
                        && reading
                            .as_mut()
                            .is_some_and(|(reading, longest)| reading.gets_on(*longest)) => {}
                Err(_) => {
                    *caller = None;
                    let mut silent = silent();
                    if let Ok(result) = from.try_recv() {
                        return Some(result);
                    }
                    let silence = silent.entry(awaited).or_default();
                    if !is_unwanted {
                        silence.since = Some(Instant::now());
                    }
                    silence.n_lasting += 1;
                    // With the lock: the call knows by it that it was left behind.
                    drop(from);
                    return None;
                }
            }
        }
    })?;
    CALLS_CPU_NS.set(CALLS_CPU_NS.get() + cpu);
    Some(result)
}

/// Reads a file about a process for which the kernel takes a lock that the process may hold.
///
/// # Errors
/// Those of [`read_file`], and `TimedOut` when there is no answer.
pub fn read_in_time(pid: Pid, path: &str) -> io::Result<String> {
    let path = path.to_owned();
    let read = with_deadline(Awaited::Lock(pid), move || read_file(path));
    read.unwrap_or_else(|| Err(io::ErrorKind::TimedOut.into()))
}

/// Ends the thread that makes the calls of this one; the next call starts another, which is like this one then.
pub(crate) fn end_caller() {
    CALLER.with_borrow_mut(|caller| *caller = None);
}

fn start() -> Option<Caller> {
    let n_left: usize = silent().values().map(|silence| silence.n_lasting).sum();
    if n_left >= MAX_LEFT {
        IS_EXHAUSTED.store(true, Ordering::Relaxed);
        return None;
    }
    let (to, calls) = channel::<Call>();
    let (tid_to, tid) = channel();
    let thread = thread::Builder::new().name("wcprof-calls".to_owned());
    let run = move || {
        let _ = tid_to.send(Tid(gettid().as_raw()));
        calls.iter().for_each(|call| call());
    };
    thread.spawn(run).ok()?;
    Some(Caller {
        calls: to,
        tid: tid.recv().ok()?,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Check that a call which does not return is left behind, and that the same is waited for again when it has returned
    /// and the pause is over.
    #[test]
    fn never_returns() {
        let (never, wait) = channel::<()>();
        let (hung, other) = (Awaited::Lock(Pid(-1)), Awaited::Memory(Pid(-1)));
        let silence = || *silent().get(&hung).unwrap();
        assert_eq!(with_deadline(hung, || 1), Some(1));
        assert_eq!(with_deadline(hung, move || wait.recv().is_ok()), None);
        let (to, from) = channel();
        assert_eq!(with_deadline(hung, move || to.send(())), None);
        assert!(from.recv().is_err(), "it was called");
        assert_eq!(with_deadline(other, || 2), Some(2));
        assert_eq!(new_silences(), [""; 0]);
        let later = silence().since.unwrap() + PAUSE;
        assert!(!silence().is_over(PAUSE, later));
        drop(never);
        while silence().n_lasting > 0 {
            thread::yield_now();
        }
        assert_eq!(with_deadline(hung, || 3), None);
        assert!(silence().is_over(PAUSE, later));
    }

    /// Check that nobody asks again before a while has passed, and a child that did not answer has ended.
    #[test]
    fn left_child() {
        let mut child = std::process::Command::new("cat")
            .stdin(std::process::Stdio::piped())
            .spawn()
            .unwrap();
        let (pid, awaited) = (Pid(child.id().cast_signed()), Awaited::Mount(u64::MAX));
        assert!(!is_silent(awaited));
        silence(awaited, pid);
        let silence = *silent().get(&awaited).unwrap();
        let (since, later) = (silence.since.unwrap(), silence.since.unwrap() + PAUSE);
        left::leave(pid);
        assert!(is_silent(awaited) && !silence.is_over(PAUSE, later));
        left::kill_unreaped(pid);
        assert!(!silence.is_over(PAUSE, since) && silence.is_over(PAUSE, later));
        assert!(child.wait().is_err(), "it was reaped");
    }

    /// Check that a call which nobody wants any more is left behind before its time is over, and is no silence.
    #[test]
    fn unwanted() {
        let (never, wait) = channel::<()>();
        let hung = Awaited::Facts(Pid(-3));
        let call = || with_deadline(hung, move || wait.recv().is_ok());
        assert_eq!(while_wanted(|| true, call), None);
        assert!(!is_unwanted());
        let silence = || *silent().get(&hung).unwrap();
        assert!(silence().since.is_none() && is_silent(hung));
        drop(never);
        while silence().n_lasting > 0 {
            thread::yield_now();
        }
        assert_eq!(with_deadline(hung, || 1), Some(1));
    }

    /// Check that the CPU time of a call is its caller's.
    #[test]
    fn cpu() {
        let before = work_cpu_ns();
        let spin = || {
            let begin = thread_cpu_ns();
            while thread_cpu_ns() - begin < 20_000_000 {}
        };
        with_deadline(Awaited::Facts(Pid(-2)), spin).unwrap();
        let took = work_cpu_ns() - before;
        assert!(took >= 20_000_000, "{took}");
    }

    /// Check that a thread which reads files gets on when it has read something, and not when it waits.
    #[test]
    fn reading() {
        let (go, wait) = channel::<()>();
        let (to, from) = channel();
        thread::spawn(move || {
            to.send(Tid(gettid().as_raw())).unwrap();
            for () in wait {
                read_file("/proc/version").unwrap();
                to.send(Tid(0)).unwrap();
            }
        });
        let mut reading = Reading::new(from.recv().unwrap());
        if reading.counts.is_none() {
            return println!("SKIPPED deadline::reading: this kernel does not count what is read");
        }
        assert!(!reading.gets_on(Duration::MAX));
        go.send(()).unwrap();
        from.recv().unwrap();
        assert!(reading.gets_on(READING_DEADLINE) && !reading.gets_on(Duration::MAX));
        reading.began -= READING_DEADLINE;
        go.send(()).unwrap();
        from.recv().unwrap();
        assert!(!reading.gets_on(READING_DEADLINE), "its time is over");
    }

    /// Check that a disk which has answered, late, is asked at once, and that few files of a process or of a disk hold a thread.
    #[test]
    fn devices() {
        let disk = |pid| Awaited::Disk((9, 9), Pid(pid));
        silent().entry(disk(-5)).or_default().since = Some(Instant::now());
        assert!(!is_silent(disk(-5)));
        // A process that holds its file is no disk that is gone.
        silent().entry(disk(-5)).or_default().n_lasting = 1;
        assert!(is_silent(disk(-5)) && !is_silent(disk(-6)));
        silent().entry(disk(-7)).or_default().n_lasting = 1;
        assert!(is_silent(disk(-6)));
        let files = |minor| Awaited::Files(Pid(-5), (0, minor));
        for minor in 0..MAX_ALIKE as u32 {
            assert!(!is_silent(files(99)));
            silent().entry(files(minor)).or_default().n_lasting = 1;
        }
        assert!(is_silent(files(99)));
        let other = Awaited::Files(Pid(-6), (0, 99));
        assert!(!is_silent(other));
        silent().retain(|awaited, _| {
            !matches!(
                awaited,
                Awaited::Disk((9, 9), _) | Awaited::Files(Pid(-5), _)
            )
        });
    }
}
