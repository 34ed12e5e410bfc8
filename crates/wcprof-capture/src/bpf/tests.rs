//! The engine against threads of this process in known places, and against child processes.

mod core_dump;
mod held;
mod red_zones;
mod settled;

use std::collections::BTreeSet;
use std::fs;
use std::hint;
use std::io::{PipeWriter, Read, Write, pipe};
use std::mem::MaybeUninit;
use std::ops::Range;
use std::os::unix::process::CommandExt;
use std::process::{Child, Command, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc;
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use nix::sched::CloneFlags;
use wcprof_types::{Avma, Pid, Tid, parse_maps};

use wcprof_perf::{CpuPolicy, PerfOptions, PerfSampler, of_thread, online_cpus};

use super::*;
use crate::many_cpus::pin;
use crate::probe::Verdict;
use crate::testing::{ALONE, is_alone, own_pid, skip};
use settled::{many_settled, settled};

const SYS_READ: u32 = 0;

/// A wait for something that must happen gives up after this.
const PATIENCE: Duration = Duration::from_secs(300);

/// Loads an engine.
type Make = fn(&[Pid], bool) -> Result<BpfEngine, BpfError>;

/// The engine, or `None` with a visible note where the machine does not permit it.
fn engine(make: Make, targets: &[Pid]) -> Option<BpfEngine> {
    match make(targets, false) {
        Ok(engine) => Some(engine),
        Err(
            e @ (BpfError::NotPermitted { .. }
            | BpfError::NoBtf(_)
            | BpfError::NoTaskIterator(_)
            | BpfError::NoHelper { .. }),
        ) => {
            skip(&e.to_string());
            None
        }
        Err(e) => panic!("{e}"),
    }
}

/// Makes a test of each function for the passes that are best here and for those of the iterator. Each has a process
/// for itself: a thread that exits cuts a pass of the iterator short.
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
                    let name = concat!("bpf::tests::", stringify!($way), "::", stringify!($test));
                    if super::is_alone(name) {
                        super::$test(super::BpfEngine::$make);
                    }
                }
            )*
        }
    };
}

for_both_ways! {
    blocked_thread,
    complete_and_own,
    spinning_thread,
    unchanged_threads,
    exits,
    full_memory,
    stack_copies,
    kernel_stacks,
    torn_stacks,
    several_targets,
    joining_targets,
    settled,
    many_settled,
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
        Self::spawn_below::<0>()
    }

    /// One with so many bytes on its stack above those of `read`.
    fn spawn_below<const N: usize>() -> Self {
        let (mut reader, writer) = pipe().unwrap();
        let (sender, receiver) = mpsc::channel();
        let thread = thread::spawn(move || {
            let mut above = MaybeUninit::<[u8; N]>::uninit();
            hint::black_box(&mut above);
            let mut byte = [0];
            let local = Avma(std::ptr::from_ref(&byte).addr() as u64);
            sender
                .send((Tid(nix::unistd::gettid().as_raw()), local))
                .unwrap();
            while reader.read(&mut byte).unwrap() == 1 {}
            hint::black_box(&mut above);
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

    /// Snapshots until the thread is in its `read`. One that Linux 6.12 moves to another CPU while it falls asleep
    /// counts as queued until it runs again: it gets a byte now and then, and so falls asleep anew.
    fn wait_blocked(&self, engine: &mut BpfEngine) -> TaskRecord {
        let mut n_looks = 0;
        wait_for("blocked reader", || {
            n_looks += 1;
            if n_looks % 1000 == 0 {
                (&self.writer).write_all(&[1]).unwrap();
            }
            find(engine, self.tid).filter(is_blocked_in_read)
        })
    }
}

/// A thread that lost its CPU on the way to sleep has the state, but is still in the queue.
fn is_blocked_in_read(task: &TaskRecord) -> bool {
    task.is_blocked() && task.last_queued == 0 && task.syscall() == Some(SYS_READ)
}

/// Every thread of the targets.
fn all_tasks(engine: &mut BpfEngine) -> (Pass, Vec<TaskRecord>) {
    engine.forget_seen();
    let (pass, tasks, _) = changes(engine, false);
    (pass, tasks.into_iter().map(|(task, _)| task).collect())
}

type Changed = Vec<(TaskRecord, Range<usize>)>;

/// A pass, its records, and the bytes that their stacks are in.
fn changes(engine: &mut BpfEngine, list: bool) -> (Pass, Changed, Vec<u8>) {
    let mut bytes = vec![1, 2, 3];
    let pass = engine.pass(list, &mut bytes).unwrap();
    let tasks: Changed = records(&bytes, 3).map(Result::unwrap).collect();
    assert_eq!(tasks.len() as u32 + pass.n_unlisted, pass.n_seen());
    (pass, tasks, bytes)
}

fn changed(tasks: &Changed, tid: Tid) -> Option<&(TaskRecord, Range<usize>)> {
    tasks.iter().find(|(task, _)| task.tid == tid.0)
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
    // Threads of other tests that exit cut passes of the task iterator short.
    let tasks = wait_for("a whole pass", || {
        let (pass, tasks) = all_tasks(engine);
        (pass.n_missed == 0).then_some(tasks)
    });
    tasks.into_iter().find(|task| task.tid == tid.0)
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
    assert_eq!(
        (task.tgid, &task.comm),
        (own_pid().0, b"reader;7\0\0\0\0\0\0\0\0")
    );
    assert!(!task.is_exiting() && !task.is_kernel_worker());
    let regs = task.user_regs().unwrap();
    assert_eq!(task.dx, 1, "the length of the read");
    assert!(regs.sp < reader.local && reader.local.0 - regs.sp.0 < 64 << 10);
    let maps = parse_maps(&fs::read_to_string("/proc/self/maps").unwrap()).unwrap();
    let stack = maps.iter().find(|m| m.contains(regs.sp)).unwrap();
    assert!(stack.contains(reader.local));
    let code = maps.iter().find(|m| m.contains(regs.ip)).unwrap();
    assert!(code.executable);
    reader.finish();
}

/// Check that a pass has each thread of the process once and none of another.
fn complete_and_own(make: Make) {
    let Some(mut engine) = engine(make, &[own_pid()]) else {
        return;
    };
    let readers: Vec<Reader> = (0..300).map(|_| Reader::spawn()).collect();
    let (pass, tasks) = all_tasks(&mut engine);
    assert_eq!(pass.n_missed, 0);
    let tids: BTreeSet<i32> = tasks.iter().map(|t| t.tid).collect();
    assert_eq!(tids.len(), tasks.len(), "a thread twice");
    assert!(readers.iter().all(|r| tids.contains(&r.tid.0)));
    assert!(tasks.iter().all(|t| t.tgid == own_pid().0));
    readers.into_iter().for_each(Reader::finish);
}

/// Puts a thread and the calling one on different CPUs, where there are two: on one they would never run at once.
fn pin_apart(tid: Tid) {
    let cpus = of_thread(&online_cpus(), tid);
    pin(tid.0, &[*cpus.first().unwrap()]);
    pin(0, &[*cpus.last().unwrap()]);
}

/// Check that a spinning thread never looks blocked and that its counters only grow.
fn spinning_thread(make: Make) {
    let Some(mut engine) = engine(make, &[own_pid()]) else {
        return;
    };
    let spinner = Spinner::spawn();
    pin_apart(spinner.tid);
    let mut before = (0, 0, 0);
    let mut seen_running = false;
    for _ in 0..200 {
        let task = find(&mut engine, spinner.tid).unwrap();
        assert!(!task.is_blocked(), "{task:?}");
        seen_running |= task.is_on_cpu();
        let now = (task.nvcsw, task.nivcsw, task.run_time);
        assert!(now.0 >= before.0 && now.1 >= before.1 && now.2 >= before.2);
        before = now;
    }
    wait_for("sample on a CPU", || {
        seen_running |= find(&mut engine, spinner.tid)?.is_on_cpu();
        seen_running.then_some(())
    });
    spinner.finish();
}

/// Check that a blocked thread is not in later passes until it ran, that a list has it without its stack
/// and with a new name, and that a thread which runs is in each pass.
fn unchanged_threads(make: Make) {
    let Some(mut engine) = engine(make, &[own_pid()]) else {
        return;
    };
    let mut reader = Reader::spawn();
    let spinner = Spinner::spawn();
    let mut before = reader.wait_blocked(&mut engine);
    // A thread that is preempted on its way to sleep runs once more.
    wait_for("pass without the reader", || {
        let (_, tasks, _) = changes(&mut engine, false);
        let changed = changed(&tasks, reader.tid).map(|(task, _)| *task);
        before = changed.unwrap_or(before);
        changed.is_none().then_some(())
    });
    for list in [false, true].repeat(25) {
        let (pass, tasks, _) = changes(&mut engine, list);
        assert_eq!(changed(&tasks, reader.tid).is_some(), list);
        assert!(list == (pass.n_unlisted == 0));
        assert!(changed(&tasks, spinner.tid).is_some());
    }
    for host_tid in [before.host_tid, before.host_tid + 1] {
        engine.forget_seen_thread(host_tid);
        let (_, tasks, _) = changes(&mut engine, false);
        let is_listed = changed(&tasks, reader.tid).is_some();
        assert_eq!(is_listed, host_tid == before.host_tid);
    }
    fs::write(format!("/proc/self/task/{}/comm", reader.tid), "renamed").unwrap();
    let (_, tasks, _) = changes(&mut engine, true);
    let (task, stack) = changed(&tasks, reader.tid).unwrap();
    assert!(task.comm.starts_with(b"renamed\0") && stack.is_empty());
    let mut as_before = *task;
    as_before.time = before.time;
    as_before.comm = before.comm;
    as_before.reader_arrival = before.reader_arrival;
    assert_eq!(as_before, before);
    reader.writer.write_all(&[1]).unwrap();
    wait_for("ran again", || {
        let (_, tasks, _) = changes(&mut engine, false);
        let (task, _) = changed(&tasks, reader.tid)?;
        (task.nvcsw > before.nvcsw).then_some(())
    });
    let tid = reader.tid;
    reader.finish();
    wait_for("exit", || {
        let (_, tasks, _) = changes(&mut engine, true);
        changed(&tasks, tid).is_none().then_some(())
    });
    spinner.finish();
}

/// Check that an exit shows in the count of threads.
fn exits(make: Make) {
    let cat = Cat::spawn();
    let other = Cat::spawn();
    let Some(mut engine) = engine(make, &[other.pid(), cat.pid()]) else {
        return;
    };
    wait_for("both unchanged", || {
        let (pass, ..) = changes(&mut engine, false);
        (pass.n_unlisted == 2).then_some(())
    });
    drop(cat);
    wait_for("one thread less", || {
        let (pass, ..) = changes(&mut engine, false);
        (pass.n_seen() == 1).then_some(())
    });
}

/// Check that a pass with more stacks than the shared memory holds goes on where it stopped.
fn full_memory(make: Make) {
    let Some(mut engine) = engine(make, &[own_pid()]) else {
        return;
    };
    crate::sys::raise_open_files();
    let readers: Vec<Reader> = (0..400).map(|_| Reader::spawn()).collect();
    let maps = parse_maps(&fs::read_to_string("/proc/self/maps").unwrap()).unwrap();
    for task in all_tasks(&mut engine).1 {
        let sp = task.user_regs().unwrap().sp;
        // Threads of other tests may be newer than the list of mappings.
        let Some(mapping) = maps.iter().find(|m| m.contains(sp)) else {
            continue;
        };
        engine
            .want_stack(&want(&task, mapping.start..mapping.end, 8 << 10))
            .unwrap();
    }
    let (tasks, bytes) = wait_for("a whole pass", || {
        engine.forget_seen();
        let (pass, tasks, bytes) = changes(&mut engine, false);
        (pass.n_missed == 0).then_some((tasks, bytes))
    });
    let tids: BTreeSet<i32> = tasks.iter().map(|(task, _)| task.tid).collect();
    assert_eq!(tids.len(), tasks.len(), "a thread twice");
    assert!(readers.iter().all(|r| tids.contains(&r.tid.0)));
    if engine.features().no_stack_copies.is_none() {
        assert!(bytes.len() > 1 << 20, "{}", bytes.len());
    }
    readers.into_iter().for_each(Reader::finish);
}

fn want(task: &TaskRecord, mapping: Range<Avma>, bytes: u32) -> Want {
    Want {
        start: mapping.start.0,
        end: mapping.end.0,
        host_tid: task.host_tid,
        bytes,
    }
}

/// Check that a wanted stack comes with the thread's record, is what memory holds, ends where the
/// mapping does, and is not there for another thread or outside of the mapping.
fn stack_copies(make: Make) {
    let Some(mut engine) = engine(make, &[own_pid()]) else {
        return;
    };
    if let Some(why) = &engine.features().no_stack_copies {
        return skip(why);
    }
    let reader = Reader::spawn_below::<{ MAX_STACK + 4096 }>();
    let other = Reader::spawn();
    let task = reader.wait_blocked(&mut engine);
    other.wait_blocked(&mut engine);
    let sp = task.user_regs().unwrap().sp;
    let maps = parse_maps(&fs::read_to_string("/proc/self/maps").unwrap()).unwrap();
    let mapping = maps.iter().find(|m| m.contains(sp)).unwrap();
    let (start, end) = (mapping.start, mapping.end);
    let mut copy = |mapping: Range<Avma>, bytes| {
        engine.want_stack(&want(&task, mapping, bytes)).unwrap();
        engine.forget_seen();
        let (_, tasks, bytes) = changes(&mut engine, false);
        let (_, others) = changed(&tasks, other.tid).unwrap();
        assert!(others.is_empty());
        let (record, range) = changed(&tasks, reader.tid).unwrap();
        assert!(!record.is_torn());
        (record.stack_below, bytes[range.clone()].to_vec())
    };
    let mut memory = vec![0; 2 * MAX_STACK];
    let mut memory_at = |address: Avma, len: usize| {
        let n = wcprof_host::read_memory(own_pid(), address, &mut memory[..len]).unwrap();
        memory[..n].to_vec()
    };
    let below = Avma(sp.0 - 128);
    assert_eq!(copy(start..end, 1000), (128, memory_at(below, 1128)));
    let near = Avma(sp.0 + 60);
    assert_eq!(copy(start..near, 4096), (128, memory_at(below, 184)));
    // The red zone is copied as far as the mapping goes.
    let at = Avma(sp.0 - 44);
    assert_eq!(copy(at..near, 4096), (40, memory_at(Avma(sp.0 - 40), 96)));
    assert_eq!(copy(sp..near, 4096), (0, memory_at(sp, 56)));
    assert!(copy(start..sp, 4096).1.is_empty());
    // What is larger than the memory for a stack is cut.
    for (bytes, n) in [(100 << 10, 100 << 10), (1 << 20, MAX_STACK)] {
        assert_eq!(copy(start..end, bytes), (128, memory_at(below, 128 + n)));
    }
    reader.finish();
    other.finish();
}

/// Check that blocked threads have kernel stacks when these are asked for, and no others.
fn kernel_stacks(make: Make) {
    let with_kernel: fn(&[Pid], bool) -> _ = make;
    let (Some(mut without), Ok(mut engine)) =
        (engine(make, &[own_pid()]), with_kernel(&[own_pid()], true))
    else {
        return;
    };
    let reader = Reader::spawn();
    let spinner = Spinner::spawn();
    reader.wait_blocked(&mut without);
    assert_eq!(find(&mut without, reader.tid).unwrap().kernel_len, 0);
    engine.forget_seen();
    let (_, tasks, bytes) = changes(&mut engine, false);
    let (task, stack) = changed(&tasks, reader.tid).unwrap();
    let kernel = &bytes[stack.end..][..task.kernel_len as usize];
    assert!(kernel.len() >= 24, "{task:?}");
    for address in kernel.chunks_exact(8) {
        assert!(address[7] == 0xff, "no address of the kernel: {address:x?}");
    }
    spinner.finish();
    reader.finish();
}

/// Check that a thread that switches all the time has whole stacks or says that they are torn:
/// the words that it changes together are equal in each copy.
fn torn_stacks(make: Make) {
    let Some(mut engine) = engine(make, &[own_pid()]) else {
        return;
    };
    if engine.features().no_stack_copies.is_some() {
        return skip("the kernel copies no stacks");
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
    let task = find(&mut engine, tid).unwrap();
    let wanted = want(&task, mapping.start..mapping.end, 14 << 10);
    engine.want_stack(&wanted).unwrap();
    let mut n_copies = 0;
    let mut values = BTreeSet::new();
    wait_for("copies at different times", || {
        let (_, tasks, bytes) = changes(&mut engine, false);
        let (record, range) = changed(&tasks, tid)?;
        let stack = bytes.get(range.clone()).unwrap();
        assert!(!record.is_torn() || stack.is_empty());
        let word = |address: Avma| {
            let base = record.user_regs().unwrap().sp.0 - u64::from(record.stack_below);
            let at = address.0.checked_sub(base)? as usize;
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
        let (_, tasks) = all_tasks(engine);
        tasks.iter().map(|t| Pid(t.tgid)).collect()
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

/// Check targets that join and leave, twice, and that one which leaves has no records while it lives.
fn joining_targets(make: Make) {
    let (one, two) = (Cat::spawn(), Cat::spawn());
    let Some(mut engine) = engine(make, &[one.pid()]) else {
        return;
    };
    assert_joins_and_leaves(&mut engine, one.pid(), two.pid());
    if engine.features().no_own_passes.is_some() {
        engine.filter_in_program().unwrap();
        assert_joins_and_leaves(&mut engine, one.pid(), two.pid());
    }
}

fn assert_joins_and_leaves(engine: &mut BpfEngine, one: Pid, two: Pid) {
    let pids = |engine: &mut BpfEngine| -> BTreeSet<Pid> {
        let (_, tasks) = all_tasks(engine);
        tasks.iter().map(|t| Pid(t.tgid)).collect()
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
    engine.filter_in_program().unwrap();
    let (_, tasks) = all_tasks(&mut engine);
    assert!(tasks.iter().any(|t| t.tid == reader.tid.0));
    assert_eq!(tasks.iter().filter(|t| t.tgid == cat.pid().0).count(), 1);
    let of_targets = [own_pid().0, cat.pid().0];
    assert!(tasks.iter().all(|t| of_targets.contains(&t.tgid)));
    reader.finish();
}

/// Check the errors for a process that does not exist and for too many.
#[test]
fn bad_targets() {
    let many = vec![Pid(1); MAX_TARGETS + 1];
    assert!(
        matches!(BpfEngine::new(&many, false), Err(BpfError::TooManyTargets(n)) if n > MAX_TARGETS)
    );
    if engine(BpfEngine::new, &[own_pid()]).is_some() {
        let none = Pid(i32::MAX);
        assert!(
            matches!(BpfEngine::new(&[none], false), Err(BpfError::NoSuchProcess(p)) if p == none)
        );
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
    let open = |engine| filtered_timers(engine, 1_000_000);
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
            let (pass, ..) = changes(&mut engine, false);
            assert!(expected.contains(&pass.n_kept), "{pass:?}");
        }
    }
}

fn filtered_timers(engine: &BpfEngine, period_ns: u64) -> PerfSampler {
    let options = PerfOptions {
        period_ns,
        dump_bytes: 1024,
        kernel_stacks: false,
        filter: Some(engine.perf_filter_fd().unwrap()),
        max_events: 0,
        policy: CpuPolicy::default(),
    };
    let mut sampler = PerfSampler::per_cpu(&options, &online_cpus()).unwrap();
    sampler.start().unwrap();
    sampler
}

/// Check that what `probe` reports is what the engine found; shows it when not captured.
#[test]
fn probe_reports() {
    let mut lines = crate::probe::probe(None).unwrap().lines;
    lines.retain(|line| line.id.starts_with("bpf-"));
    for line in &lines {
        eprintln!("{line:?}");
    }
    let works = lines.iter().map(|line| line.verdict == Verdict::Ok);
    let works: Vec<bool> = works.collect();
    let Some(engine) = engine(BpfEngine::new, &[own_pid()]) else {
        assert_eq!(works, [false]);
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
    assert_eq!(works, found);
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
        let name = format!("bpf::tests::{test}");
        command.args(["--exact", &name]).env(ALONE, &name);
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
