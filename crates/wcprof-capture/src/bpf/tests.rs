//! The engine against threads of this process in known places, and against child processes.

mod held;

use std::collections::BTreeSet;
use std::fs;
use std::hint;
use std::io::{PipeWriter, Read, Write, pipe};
use std::os::unix::process::CommandExt;
use std::process::{Child, Command, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc;
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use nix::sched::CloneFlags;
use wcprof_types::{Avma, Tid, parse_maps};

use wcprof_perf::{PerfOptions, PerfSampler};

use super::*;

const SYS_READ: u32 = 0;

/// A wait for something that must happen gives up after this.
const PATIENCE: Duration = Duration::from_secs(60);

/// Loads an engine.
type Make = fn(&[Pid]) -> Result<BpfEngine, BpfError>;

/// The engine, or `None` with a visible note where the machine does not permit it.
fn engine(make: Make, targets: &[Pid]) -> Option<BpfEngine> {
    match make(targets) {
        Ok(engine) => Some(engine),
        Err(
            e @ (BpfError::NotPermitted { .. } | BpfError::NoBtf(_) | BpfError::NoTaskIterator(_)),
        ) => {
            eprintln!("SKIPPED: {e}");
            None
        }
        Err(e) => panic!("{e}"),
    }
}

fn own_pid() -> Pid {
    Pid(nix::unistd::getpid().as_raw())
}

/// Makes a test of each function for the passes that are best here and for those of the iterator.
macro_rules! for_both_ways {
    ($($test:ident),* $(,)?) => {
        for_both_ways!(@ best, new, $($test),*);
        for_both_ways!(@ iterator, with_iterator, $($test),*);
    };
    (@ $way:ident, $make:ident, $($test:ident),*) => {
        mod $way {
            $(
                #[test]
                fn $test() {
                    super::$test(super::BpfEngine::$make);
                }
            )*
        }
    };
}

for_both_ways! {
    blocked_thread,
    complete_and_own,
    spinning_thread,
    changes,
    unmentioned,
    stack_copies,
    torn_stacks,
    several_targets,
    joining_targets,
}

/// Calls `step` until it returns something.
fn wait_for<T>(what: &str, mut step: impl FnMut() -> Option<T>) -> T {
    let start = Instant::now();
    loop {
        if let Some(value) = step() {
            return value;
        }
        assert!(start.elapsed() < PATIENCE, "no {what} in {PATIENCE:?}");
        thread::yield_now();
    }
}

/// A thread that blocks in `read` of a pipe for each byte it was not sent yet.
struct Reader {
    tid: Tid,
    /// Address of a variable in its first frame.
    local: Avma,
    writer: PipeWriter,
    thread: JoinHandle<()>,
}

impl Reader {
    fn spawn() -> Self {
        let (mut reader, writer) = pipe().unwrap();
        let (sender, receiver) = mpsc::channel();
        let thread = thread::spawn(move || {
            let mut byte = [0];
            let local = Avma(std::ptr::from_ref(&byte).addr() as u64);
            sender
                .send((Tid(nix::unistd::gettid().as_raw()), local))
                .unwrap();
            while reader.read(&mut byte).unwrap() == 1 {}
        });
        let (tid, local) = receiver.recv().unwrap();
        Self {
            tid,
            local,
            writer,
            thread,
        }
    }

    fn finish(self) {
        drop(self.writer);
        self.thread.join().unwrap();
    }

    /// Snapshots until the thread is in its `read`.
    fn wait_blocked(&self, engine: &mut BpfEngine) -> TaskRecord {
        wait_for("blocked reader", || {
            find(engine, self.tid).filter(is_blocked_in_read)
        })
    }
}

fn is_blocked_in_read(task: &TaskRecord) -> bool {
    let number = task.regs.and_then(|r| r.syscall.number());
    task.state.is_blocked() && number == Some(SYS_READ)
}

/// A thread that runs until it is told to stop.
struct Spinner {
    tid: Tid,
    stop: Arc<AtomicBool>,
    thread: JoinHandle<()>,
}

impl Spinner {
    fn spawn() -> Self {
        let stop = Arc::new(AtomicBool::new(false));
        let (sender, receiver) = mpsc::channel();
        let thread = thread::spawn({
            let stop = Arc::clone(&stop);
            move || {
                sender.send(Tid(nix::unistd::gettid().as_raw())).unwrap();
                while !stop.load(Ordering::Relaxed) {
                    hint::spin_loop();
                }
            }
        });
        let tid = receiver.recv().unwrap();
        Self { tid, stop, thread }
    }

    fn finish(self) {
        self.stop.store(true, Ordering::Relaxed);
        self.thread.join().unwrap();
    }
}

fn find(engine: &mut BpfEngine, tid: Tid) -> Option<TaskRecord> {
    let mut tasks = Vec::new();
    // Threads of other tests that exit cut passes of the task iterator short.
    wait_for("a whole pass", || {
        let info = engine.snapshot(&mut tasks).unwrap();
        (!info.incomplete).then_some(())
    });
    tasks.into_iter().find(|task| task.tid == tid)
}

/// A child that ends when its standard input does.
struct Cat(Child);

impl Cat {
    fn spawn() -> Self {
        let child = Command::new("cat").stdin(Stdio::piped()).spawn().unwrap();
        Self(child)
    }

    fn pid(&self) -> Pid {
        Pid(self.0.id().cast_signed())
    }
}

impl Drop for Cat {
    fn drop(&mut self) {
        drop(self.0.stdin.take());
        self.0.wait().unwrap();
    }
}

/// Check a thread blocked in a known call: its state, call, stack pointer, name and ids.
fn blocked_thread(make: Make) {
    let Some(mut engine) = engine(make, &[own_pid()]) else {
        return;
    };
    let reader = Reader::spawn();
    fs::write(format!("/proc/self/task/{}/comm", reader.tid), "reader;7").unwrap();
    let task = reader.wait_blocked(&mut engine);
    assert_eq!((task.pid, task.name().as_ref()), (own_pid(), "reader;7"));
    assert!(task.state.is_user && !task.state.is_exiting());
    let regs = task.regs.unwrap();
    assert_eq!(regs.syscall.args[2], 1, "the length of the read");
    assert!(regs.sp < reader.local && reader.local.0 - regs.sp.0 < 64 << 10);
    let maps = parse_maps(&fs::read_to_string("/proc/self/maps").unwrap()).unwrap();
    let stack = maps.iter().find(|m| m.contains(regs.sp)).unwrap();
    assert!(stack.contains(reader.local));
    let code = maps.iter().find(|m| m.contains(regs.ip)).unwrap();
    assert!(code.executable);
    assert_eq!(task.queue.map_or(0, |q| q.last_queued), 0);
    reader.finish();
}

/// Check that a snapshot has each thread of the process once and none of another.
fn complete_and_own(make: Make) {
    let Some(mut engine) = engine(make, &[own_pid()]) else {
        return;
    };
    let readers: Vec<Reader> = (0..300).map(|_| Reader::spawn()).collect();
    let mut tasks = Vec::new();
    let info = engine.snapshot(&mut tasks).unwrap();
    assert!(!info.incomplete);
    assert_eq!(info.n_threads as usize, tasks.len());
    let tids: BTreeSet<Tid> = tasks.iter().map(|t| t.tid).collect();
    assert_eq!(tids.len(), tasks.len(), "a thread twice");
    assert!(readers.iter().all(|r| tids.contains(&r.tid)));
    assert!(tasks.iter().all(|t| t.pid == own_pid()));
    readers.into_iter().for_each(Reader::finish);
}

/// Check that a spinning thread never looks blocked and that its counters only grow.
fn spinning_thread(make: Make) {
    let Some(mut engine) = engine(make, &[own_pid()]) else {
        return;
    };
    let spinner = Spinner::spawn();
    let mut before = Counters::default();
    let mut seen_running = false;
    for _ in 0..200 {
        let task = find(&mut engine, spinner.tid).unwrap();
        assert!(!task.state.is_blocked(), "{task:?}");
        assert_ne!(task.state.is_running(), task.state.is_runnable());
        seen_running |= task.state.is_running();
        assert!(task.counters.nvcsw >= before.nvcsw && task.counters.nivcsw >= before.nivcsw);
        assert!(task.counters.run_time_ns >= before.run_time_ns);
        before = task.counters;
    }
    wait_for("sample on a CPU", || {
        seen_running |= find(&mut engine, spinner.tid)?.state.is_running();
        seen_running.then_some(())
    });
    spinner.finish();
}

/// Check that only a blocked thread is unchanged, and not after it ran or was renamed.
fn changes(make: Make) {
    let Some(mut engine) = engine(make, &[own_pid()]) else {
        return;
    };
    let mut reader = Reader::spawn();
    let spinner = Spinner::spawn();
    let before = reader.wait_blocked(&mut engine);
    let mut out = Changes::default();
    engine
        .snapshot_changes(true, &mut out, &mut Vec::new())
        .unwrap();
    assert!(out.unchanged.is_empty());
    let (record, _) = changed(&out, reader.tid).unwrap();
    assert_eq!(
        *record,
        TaskRecord {
            time_ns: record.time_ns,
            queue: record.queue,
            ..before.clone()
        }
    );
    for _ in 0..50 {
        engine
            .snapshot_changes(true, &mut out, &mut Vec::new())
            .unwrap();
        assert!(out.unchanged.contains(&reader.tid));
        assert!(changed(&out, reader.tid).is_none());
        assert!(changed(&out, spinner.tid).is_some());
    }
    fs::write(format!("/proc/self/task/{}/comm", reader.tid), "renamed").unwrap();
    engine
        .snapshot_changes(true, &mut out, &mut Vec::new())
        .unwrap();
    let (renamed, _) = changed(&out, reader.tid).unwrap();
    assert_eq!(renamed.name(), "renamed");
    reader.writer.write_all(&[1]).unwrap();
    wait_for("ran again", || {
        engine
            .snapshot_changes(true, &mut out, &mut Vec::new())
            .unwrap();
        let (task, _) = changed(&out, reader.tid)?;
        (task.counters.switches() > before.counters.switches()).then_some(())
    });
    let tid = reader.tid;
    reader.finish();
    wait_for("exit", || {
        engine
            .snapshot_changes(true, &mut out, &mut Vec::new())
            .unwrap();
        let gone = !out.unchanged.contains(&tid) && changed(&out, tid).is_none();
        gone.then_some(())
    });
    spinner.finish();
}

fn changed(out: &Changes, tid: Tid) -> Option<&(TaskRecord, Range<usize>)> {
    out.changed.iter().find(|(task, _)| task.tid == tid)
}

/// Check that unchanged threads are counted when they are not mentioned, and that an exit shows
/// in the count.
fn unmentioned(make: Make) {
    let cat = Cat::spawn();
    let Some(mut engine) = engine(make, &[own_pid(), cat.pid()]) else {
        return;
    };
    let reader = Reader::spawn();
    reader.wait_blocked(&mut engine);
    let mut out = Changes::default();
    let all = engine
        .snapshot_changes(true, &mut out, &mut Vec::new())
        .unwrap()
        .n_threads;
    assert_eq!(out.changed.len(), all as usize);
    let mut bytes = Vec::new();
    wait_for("the child and the reader unchanged", || {
        let info = engine
            .snapshot_changes(false, &mut out, &mut bytes)
            .unwrap();
        assert!(out.unchanged.is_empty());
        assert_eq!(out.changed.len() as u32 + out.n_unmentioned, info.n_threads);
        (out.n_unmentioned >= 2).then_some(())
    });
    drop(cat);
    wait_for("one thread less", || {
        let info = engine
            .snapshot_changes(false, &mut out, &mut bytes)
            .unwrap();
        assert_eq!(out.changed.len() as u32 + out.n_unmentioned, info.n_threads);
        engine
            .snapshot_changes(true, &mut out, &mut Vec::new())
            .unwrap();
        out.changed
            .iter()
            .all(|(task, _)| task.pid == own_pid())
            .then_some(())
    });
    reader.finish();
}

/// Check that a wanted stack comes with the thread's record, is what memory holds, ends where the
/// mapping does, and is not there for another thread or outside of the mapping.
fn stack_copies(make: Make) {
    let Some(mut engine) = engine(make, &[own_pid()]) else {
        return;
    };
    if let Some(why) = &engine.features().no_stack_copies {
        println!("SKIPPED {why}");
        return;
    }
    let reader = Reader::spawn();
    let other = Reader::spawn();
    let task = reader.wait_blocked(&mut engine);
    other.wait_blocked(&mut engine);
    let sp = task.regs.unwrap().sp;
    let maps = parse_maps(&fs::read_to_string("/proc/self/maps").unwrap()).unwrap();
    let mapping = maps.iter().find(|m| m.contains(sp)).unwrap();
    let (start, end) = (mapping.start, mapping.end);
    let mut out = Changes::default();
    let mut copy = |mapping: Range<Avma>, bytes| {
        let want = WantedStack {
            host_tid: task.host_tid,
            mapping,
            bytes,
        };
        engine.want_stack(&want).unwrap();
        engine.forget_seen();
        let mut bytes = vec![1, 2, 3];
        engine
            .snapshot_changes(false, &mut out, &mut bytes)
            .unwrap();
        let (_, others) = changed(&out, other.tid).unwrap();
        assert!(others.is_empty());
        let (record, range) = changed(&out, reader.tid).unwrap();
        assert!(!record.torn);
        bytes[range.clone()].to_vec()
    };
    let mut memory = vec![0; 4096];
    let mut memory_at = |address: Avma, len: usize| {
        let n = wcprof_host::read_memory(own_pid(), address, &mut memory[..len]).unwrap();
        memory[..n].to_vec()
    };
    assert_eq!(copy(start..end, 1000), memory_at(sp, 1000));
    let near = Avma(sp.0 + 60);
    assert_eq!(copy(start..near, 4096), memory_at(sp, 56));
    assert_eq!(copy(start..sp, 4096), []);
    assert_eq!(
        copy(start..end, 4096).len(),
        4096.min(end.0 - sp.0) as usize
    );
    reader.finish();
    other.finish();
}

/// Check that a thread that switches all the time has whole stacks or says that they are torn:
/// the words that it changes together are equal in each copy.
fn torn_stacks(make: Make) {
    let Some(mut engine) = engine(make, &[own_pid()]) else {
        return;
    };
    if engine.features().no_stack_copies.is_some() {
        println!("SKIPPED the kernel copies no stacks");
        return;
    }
    let stop = Arc::new(AtomicBool::new(false));
    let (sender, receiver) = mpsc::channel();
    let thread = thread::spawn({
        let stop = Arc::clone(&stop);
        move || {
            // Far apart, so that a copy takes a while from one to the other.
            let mut words = [0u64; 1500];
            let tid = Tid(nix::unistd::gettid().as_raw());
            let address = |i: usize, words: &[u64]| Avma(&raw const words[i] as u64);
            sender
                .send((tid, address(0, &words), address(1499, &words)))
                .unwrap();
            let mut n = 0;
            while !stop.load(Ordering::Relaxed) {
                n += 1;
                words[0] = n;
                words[1499] = n;
                hint::black_box(&mut words);
                thread::sleep(Duration::from_micros(20));
            }
        }
    });
    let (tid, first, last) = receiver.recv().unwrap();
    let maps = parse_maps(&fs::read_to_string("/proc/self/maps").unwrap()).unwrap();
    let mapping = maps.iter().find(|m| m.contains(first)).unwrap();
    let host_tid = find(&mut engine, tid).unwrap().host_tid;
    engine
        .want_stack(&WantedStack {
            host_tid,
            mapping: mapping.start..mapping.end,
            bytes: 14 << 10,
        })
        .unwrap();
    let mut out = Changes::default();
    let mut n_copies = 0;
    let mut values = BTreeSet::new();
    wait_for("copies at different times", || {
        let mut bytes = Vec::new();
        engine
            .snapshot_changes(false, &mut out, &mut bytes)
            .unwrap();
        let (record, range) = changed(&out, tid)?;
        let stack = bytes.get(range.clone()).unwrap();
        assert!(!record.torn || stack.is_empty());
        let word = |address: Avma| {
            let at = address.0.checked_sub(record.regs.unwrap().sp.0)? as usize;
            stack
                .get(at..)?
                .first_chunk()
                .map(|b| u64::from_ne_bytes(*b))
        };
        let (a, b) = (word(first)?, word(last)?);
        assert_eq!(a, b);
        n_copies += 1;
        values.insert(a);
        (n_copies >= 200 && values.len() >= 50).then_some(())
    });
    stop.store(true, Ordering::Relaxed);
    thread.join().unwrap();
}

/// Check several targets at once, and that an exited one has no records and is no error.
fn several_targets(make: Make) {
    let (one, two) = (Cat::spawn(), Cat::spawn());
    let Some(mut engine) = engine(make, &[one.pid(), two.pid()]) else {
        return;
    };
    let pids = |engine: &mut BpfEngine| -> Vec<Pid> {
        let mut tasks = Vec::new();
        engine.snapshot(&mut tasks).unwrap();
        tasks.iter().map(|t| t.pid).collect()
    };
    let mut both = pids(&mut engine);
    both.sort();
    let mut expected = [one.pid(), two.pid()];
    expected.sort();
    assert_eq!(both, expected);
    let kept = two.pid();
    drop(one);
    assert_eq!(pids(&mut engine), [kept]);
}

/// Check targets that join and leave, twice, that one which leaves has no records while it lives,
/// and that one target too many is refused.
fn joining_targets(make: Make) {
    let (one, two) = (Cat::spawn(), Cat::spawn());
    let Some(mut engine) = engine(make, &[one.pid()]) else {
        return;
    };
    assert_joins_and_leaves(&mut engine, one.pid(), two.pid());
    // As if there were many more.
    engine.targets.resize(MAX_TARGETS, Pid(0));
    let refused = engine.add_target(two.pid());
    assert!(matches!(refused, Err(BpfError::TooManyTargets(_))));
    engine.targets.truncate(1);
    if engine.iterator.is_some() {
        engine.use_filter_in_program_for_test();
        assert_joins_and_leaves(&mut engine, one.pid(), two.pid());
    }
}

fn assert_joins_and_leaves(engine: &mut BpfEngine, one: Pid, two: Pid) {
    let pids = |engine: &mut BpfEngine| -> BTreeSet<Pid> {
        let mut tasks = Vec::new();
        engine.snapshot(&mut tasks).unwrap();
        tasks.iter().map(|t| t.pid).collect()
    };
    for _ in 0..2 {
        engine.add_target(two).unwrap();
        engine.add_target(two).unwrap();
        assert_eq!(pids(engine), BTreeSet::from([one, two]));
        engine.keep_samples(two.0).unwrap();
        engine.remove_target(two, Some(two.0));
        engine.remove_target(two, Some(two.0));
        assert_eq!(pids(engine), BTreeSet::from([one]));
    }
}

/// Check that the fallback for kernels without the link filter sees the same threads.
#[test]
fn filter_in_program() {
    let cat = Cat::spawn();
    let reader = Reader::spawn();
    let Some(mut engine) = engine(BpfEngine::with_iterator, &[own_pid(), cat.pid()]) else {
        return;
    };
    engine.use_filter_in_program_for_test();
    let mut tasks = Vec::new();
    engine.snapshot(&mut tasks).unwrap();
    assert!(tasks.iter().any(|t| t.tid == reader.tid));
    assert_eq!(tasks.iter().filter(|t| t.pid == cat.pid()).count(), 1);
    assert!(
        tasks
            .iter()
            .all(|t| t.pid == own_pid() || t.pid == cat.pid())
    );
    reader.finish();
}

/// Check the errors for a process that does not exist and for too many.
#[test]
fn bad_targets() {
    let many = vec![Pid(1); MAX_TARGETS + 1];
    assert!(matches!(BpfEngine::new(&many), Err(BpfError::TooManyTargets(n)) if n > MAX_TARGETS));
    if engine(BpfEngine::new, &[own_pid()]).is_some() {
        let none = Pid(i32::MAX);
        assert!(matches!(BpfEngine::new(&[none]), Err(BpfError::NoSuchProcess(p)) if p == none));
    }
}

/// Check that the perf filter keeps the target's samples and drops those of a process that runs
/// as much.
#[test]
fn perf_filter() {
    let cat = Cat::spawn();
    let (Some(own), Some(other)) = (
        engine(BpfEngine::new, &[own_pid()]),
        engine(BpfEngine::new, &[cat.pid()]),
    ) else {
        return;
    };
    let open = |engine: &BpfEngine| {
        let mut sampler = PerfSampler::per_cpu(&PerfOptions {
            period_ns: 1_000_000,
            dump_bytes: 1024,
            kernel_stacks: false,
            filter: Some(engine.perf_filter_fd().unwrap()),
            max_events: 0,
        })
        .unwrap();
        sampler.start().unwrap();
        sampler
    };
    let (mut kept, mut dropped) = (open(&own), open(&other));
    let spinner = Spinner::spawn();
    let mut n_spinner = 0;
    wait_for("samples of the spinner", || {
        kept.drain(|sample| {
            assert_eq!(sample.pid, own_pid());
            n_spinner += u32::from(sample.tid == spinner.tid);
        });
        dropped.drain(|sample| assert_eq!(sample.pid, cat.pid()));
        (n_spinner >= 20).then_some(())
    });
    spinner.finish();
    // What the filters counted, passes tell.
    for (mut engine, expected) in [(own, 20..u32::MAX), (other, 0..1)] {
        if engine.features().no_own_passes.is_none() {
            engine
                .snapshot_changes(false, &mut Changes::default(), &mut Vec::new())
                .unwrap();
            let pass = engine.hold_changes().unwrap().unwrap();
            assert!(expected.contains(&pass.n_kept), "{pass:?}");
        }
    }
}

/// Check that what `probe` reports is what the engine found; shows it when not captured.
#[test]
fn probe_reports() {
    let checks = probe();
    for check in &checks {
        eprintln!("{check:?}");
    }
    let Some(engine) = engine(BpfEngine::new, &[own_pid()]) else {
        assert!(!checks[0].ok);
        return;
    };
    let features = engine.features();
    let perf_filter = features.no_perf_filter.is_none();
    let found = if features.no_own_passes.is_none() {
        vec![true, perf_filter]
    } else {
        let copies = features.no_stack_copies.is_none();
        vec![false, true, features.link_filter, copies, perf_filter]
    };
    assert_eq!(checks.iter().map(|c| c.ok).collect::<Vec<_>>(), found);
}

/// Check that ids are those of wcprof's own pid namespace when that is not the initial one.
#[test]
fn nested_pid_namespace() {
    if engine(BpfEngine::new, &[own_pid()]).is_none() {
        return;
    }
    for test in [
        "best::blocked_thread",
        "best::several_targets",
        "perf_filter",
    ] {
        let mut command = Command::new(std::env::current_exe().unwrap());
        command.args(["--exact", &format!("bpf::tests::{test}")]);
        // SAFETY: between fork and exec it makes system calls alone and allocates nothing.
        unsafe { command.pre_exec(enter_pid_namespace) };
        assert!(command.status().unwrap().success(), "{test}");
    }
}

/// Goes on in a child that is the first process of a new pid namespace, with its own `/proc`;
/// this process ends as the child does.
fn enter_pid_namespace() -> std::io::Result<()> {
    let flags = CloneFlags::CLONE_NEWPID | CloneFlags::CLONE_NEWNS;
    nix::sched::unshare(flags)?;
    // SAFETY: the process has one thread, as its fork has.
    let child = unsafe { libc::fork() };
    if child > 0 {
        let mut status = 0;
        // SAFETY: `status` outlives the calls, and `_exit` runs no code of the process.
        unsafe {
            libc::waitpid(child, &mut status, 0);
            libc::_exit(i32::from(status != 0));
        }
    }
    let none = std::ptr::null();
    // SAFETY: the strings end in NUL; no data is passed.
    let mounted = child == 0
        && unsafe {
            let private = libc::MS_REC | libc::MS_PRIVATE;
            libc::mount(none, c"/".as_ptr(), none, private, none.cast()) == 0
                && libc::mount(
                    c"proc".as_ptr(),
                    c"/proc".as_ptr(),
                    c"proc".as_ptr(),
                    0,
                    none.cast(),
                ) == 0
        };
    if mounted {
        Ok(())
    } else {
        Err(std::io::Error::last_os_error())
    }
}
