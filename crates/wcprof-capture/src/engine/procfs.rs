//! Snapshots from `/proc`: `schedstat` for the counters, `syscall` for the state and, of blocked threads, the instruction
//! and stack pointer, and `stat` of a thread that ran for what stops it. Their files are held open while descriptors last;
//! those of further threads are opened at each tick.

use std::collections::HashMap;
use std::fs::File;
use std::io;
use std::sync::Arc;

use wcprof_types::{Pid, Sched, StopCause, Tid, UserRegs};

use super::snapshot::{
    Comm, InSyscall, SnapshotError, SnapshotSet, SnapshotStack, Snapshots, ThreadInfo,
    ThreadSnapshot,
};
use crate::batch::{TargetId, ThreadCounters};
use crate::sampler::Pulse;
use wcprof_host::clock::{boot_offset_ns, monotonic_ns};
use wcprof_host::procfs::{
    Freezer, SchedStat, SyscallState, TaskStat, freezer_group, has_ended, has_freezer_groups,
    line_buffer, list_threads, open, parse_schedstat, parse_stat, parse_syscall, parse_task_state,
    read_file, read_line_bytes, stop_cause, thread_name,
};

/// A thread's name is read again this often.
const NAME_NS: u64 = 1_000_000_000;
/// Most threads get their name soon after their birth: until then it is read after this long, then
/// after twice as long, and so on.
const YOUNG_NAME_NS: u64 = 10_000_000;
/// Threads that run no guest are asked again whether they do this often: few ever will.
const GUEST_NS: u64 = 8_000_000_000;
/// It is looked whether there are groups in the freezer of version 1 this often.
const FREEZER_NS: u64 = 250_000_000;
/// `/proc/PID/stat` counts in `USER_HZ`, 100 on every Linux.
const TICK_NS: u64 = 10_000_000;
/// Files of a thread that are read at ticks; the second one only after it ran.
const FILES: [&str; 3] = ["schedstat", "stat", "syscall"];

#[derive(Debug)]
pub(crate) struct ProcfsSnapshots {
    pulse: Arc<Pulse>,
    targets: Vec<(TargetId, Pid)>,
    threads: HashMap<Tid, Files>,
    /// Descriptors that may be held, and that are.
    max_held: usize,
    n_held: usize,
    /// Threads whose files were opened at this tick.
    n_new: usize,
    /// `CLOCK_BOOTTIME` − `CLOCK_MONOTONIC`: time spent suspended.
    boot_offset: u64,
    /// No timer sample tells which run time is a guest's.
    reads_guest_time: bool,
    freezers: Freezers,
}

/// Groups of the freezer of version 1 that were asked for at this tick. A group has many threads, and one file says of
/// all what is done with them; while they are being frozen the kernel looks at each to answer.
#[derive(Debug, Default)]
struct Freezers {
    asked: HashMap<Arc<str>, Freezer>,
    /// Whether there are any, and when that is to be looked at next: without any no thread is asked for its own.
    exist: bool,
    due: u64,
}

impl Freezers {
    /// Begins a tick.
    fn begin(&mut self, time: u64) {
        self.asked.clear();
        if time >= self.due {
            self.exist = has_freezer_groups();
            self.due = time + FREEZER_NS;
        }
    }

    /// That of a thread.
    fn group(&self, pid: Pid, tid: Tid) -> Option<Arc<str>> {
        let group = self.exist.then(|| freezer_group(pid, tid));
        group.flatten().map(Arc::from)
    }

    fn of(&mut self, group: Option<&Arc<str>>) -> Freezer {
        let Some(group) = group else {
            return Freezer::Thawed;
        };
        let ask = || Freezer::of_group(group);
        *self.asked.entry(Arc::clone(group)).or_insert_with(ask)
    }
}

#[derive(Debug)]
struct Files {
    target: TargetId,
    /// Its folder in `/proc`.
    dir: String,
    /// Those of [`FILES`], where descriptors are left. They are of this thread for ever; those that are opened again
    /// can be of a later one with its number.
    held: Option<[File; FILES.len()]>,
    /// As the kernel gives it, and `CLOCK_MONOTONIC` ns.
    start_ticks: u64,
    started: u64,
    kernel_side: bool,
    /// `None` where it is not to be read.
    guest: Option<GuestTime>,
    /// When its name is to be read next, and how long after that again.
    name_due: u64,
    name_wait: u64,
    /// The thread's control group (version 1) that can stop a sleeper without waking it.
    freezer: Option<Arc<str>>,
    /// It was blocked when it was last looked at.
    last: Option<BlockedLook>,
    /// The thread writes its process's core dump, and may run for that: the program does not.
    dumps: bool,
}

/// A thread's run time in guests.
#[derive(Copy, Clone, Debug)]
struct GuestTime {
    /// When it was last read, ns. Others than virtual CPUs have none.
    ns: u64,
    /// When that of a thread without any is to be read next, and how long after that again.
    due: u64,
    wait: u64,
}

/// What was seen of a blocked thread.
#[derive(Copy, Clone, Debug)]
struct BlockedLook {
    n_runs: u64,
    /// Its state letter in `stat`.
    state: char,
    syscall: InSyscall,
    regs: UserRegs,
    stop: Option<StopCause>,
}

impl ProcfsSnapshots {
    pub(crate) fn new(
        targets: &[(TargetId, Pid)],
        max_held: usize,
        reads_guest_time: bool,
        pulse: Arc<Pulse>,
    ) -> Self {
        Self {
            pulse,
            targets: targets.to_vec(),
            threads: HashMap::default(),
            max_held,
            n_held: 0,
            n_new: 0,
            boot_offset: boot_offset_ns(),
            reads_guest_time,
            freezers: Freezers::default(),
        }
    }

    /// `None` for a thread that has exited.
    ///
    /// # Errors
    /// When there are too many open files.
    fn open(&mut self, target: TargetId, pid: Pid, tid: Tid) -> io::Result<Option<Files>> {
        self.try_open(target, pid, tid).or_else(or_gone)
    }

    fn try_open(&mut self, target: TargetId, pid: Pid, tid: Tid) -> io::Result<Option<Files>> {
        let dir = format!("/proc/{pid}/task/{tid}");
        let Some(stat) = stat_of(&dir)? else {
            return Ok(None);
        };
        if stat.has_ended() {
            return Ok(None);
        }
        let mut held = None;
        if self.n_held + FILES.len() <= self.max_held {
            let open = |name| open(format!("{dir}/{name}"));
            held = Some([open(FILES[0])?, open(FILES[1])?, open(FILES[2])?]);
            self.n_held += FILES.len();
        }
        let started = (stat.start_ticks * TICK_NS).saturating_sub(self.boot_offset);
        Ok(Some(Files {
            target,
            dir,
            held,
            start_ticks: stat.start_ticks,
            started,
            kernel_side: stat.is_kernel_side_worker(),
            guest: self.reads_guest_time.then_some(GuestTime {
                ns: stat.guest_ticks * TICK_NS,
                due: 0,
                wait: YOUNG_NAME_NS,
            }),
            name_due: 0,
            name_wait: match monotonic_ns().saturating_sub(started) < NAME_NS {
                true => YOUNG_NAME_NS,
                false => NAME_NS,
            },
            freezer: self.freezers.group(pid, tid),
            last: None,
            dumps: false,
        }))
    }

    fn snapshot_of(
        &mut self,
        target: TargetId,
        pid: Pid,
        out: &mut SnapshotSet,
    ) -> Result<(), SnapshotError> {
        let tids = match list_threads(pid) {
            Ok(tids) => tids,
            Err(e) if matches!(e.raw_os_error(), Some(libc::ENOENT | libc::ESRCH)) => {
                out.gone.push(target);
                return Ok(());
            }
            Err(e) if is_full(&e) => {
                out.incomplete = true;
                return Ok(());
            }
            Err(e) => return Err(e.into()),
        };
        self.look_at(tids, target, pid, out);
        Ok(())
    }

    fn look_at(&mut self, tids: Vec<Tid>, target: TargetId, pid: Pid, out: &mut SnapshotSet) {
        for tid in tids {
            // A number that another process had has other files now.
            if self.threads.get(&tid).is_some_and(|f| f.target != target) {
                self.forget(tid);
            }
            if !self.threads.contains_key(&tid) {
                if self.n_new == out.max_new {
                    out.n_waiting += 1;
                    continue;
                }
                self.n_new += 1;
                match self.open(target, pid, tid) {
                    Ok(Some(files)) => self.threads.insert(tid, files),
                    Ok(None) => continue,
                    Err(_) => {
                        out.incomplete = true;
                        continue;
                    }
                };
            }
            let files = self.threads.get_mut(&tid);
            match files.map_or(Ok(None), |files| files.read(pid, tid, &mut self.freezers)) {
                Ok(Some(snapshot)) => out.threads.push(snapshot),
                // It exited; another thread may get its number and new files.
                Ok(None) => self.forget(tid),
                Err(_) => out.incomplete = true,
            }
        }
    }
}

impl Files {
    fn schedstat(&self) -> io::Result<Option<SchedStat>> {
        self.parse_file(0, |line| parse_schedstat(str::from_utf8(line).ok()?))
    }

    fn state(&self) -> io::Result<Option<(char, u32)>> {
        self.parse_file(1, parse_task_state)
    }

    fn syscall(&self) -> io::Result<Option<SyscallState>> {
        self.parse_file(2, |line| parse_syscall(str::from_utf8(line).ok()?))
    }

    /// Reads the file at this place of [`FILES`]; `None` when the thread has exited.
    fn parse_file<T>(
        &self,
        at: usize,
        parse: impl Fn(&[u8]) -> Option<T>,
    ) -> io::Result<Option<T>> {
        let mut buffer = line_buffer();
        let opened;
        let file = match &self.held {
            Some(held) => &held[at],
            None => {
                opened = match open(format!("{}/{}", self.dir, FILES[at])) {
                    Ok(file) => file,
                    Err(error) => return or_gone(error),
                };
                &opened
            }
        };
        Ok(read_line_bytes(file, &mut buffer).ok().and_then(parse))
    }

    /// Whether the files are still those of this thread.
    fn is_same(&self) -> io::Result<bool> {
        if self.held.is_some() {
            return Ok(true);
        }
        let stat = stat_of(&self.dir).or_else(or_gone)?;
        Ok(stat.is_some_and(|stat| stat.start_ticks == self.start_ticks))
    }

    /// `None` when it has exited.
    ///
    /// # Errors
    /// When there are too many open files.
    fn read(
        &mut self,
        pid: Pid,
        tid: Tid,
        freezers: &mut Freezers,
    ) -> io::Result<Option<ThreadSnapshot>> {
        let time = monotonic_ns();
        if !self.is_same()? {
            return Ok(None);
        }
        let Some(counters) = self.schedstat()? else {
            return Ok(None);
        };
        if !self.look((pid, tid), counters.n_runs, freezers)? {
            return Ok(None);
        }
        if let Some(guest) = &mut self.guest
            && (guest.ns > 0 || time >= guest.due)
        {
            let stat = stat_of(&self.dir).or_else(or_gone)?;
            let ns = stat.map(|stat| stat.guest_ticks * TICK_NS);
            *guest = GuestTime {
                ns: ns.unwrap_or(guest.ns),
                due: time + guest.wait,
                wait: (2 * guest.wait).min(GUEST_NS),
            };
        }
        let mut comm = None;
        if time >= self.name_due {
            self.freezer = freezers.group(pid, tid);
            comm = thread_name(pid, tid).ok().map(|name| Comm::new(&name));
            self.name_due = time + self.name_wait;
            self.name_wait = (2 * self.name_wait).min(NAME_NS);
        }
        let last = self.last.filter(|_| !self.kernel_side);
        Ok(Some(ThreadSnapshot {
            target: self.target,
            tid,
            time,
            sched: match self.last.is_some() || self.dumps {
                true => Sched::Blocked,
                false => Sched::Running,
            },
            counters: ThreadCounters {
                switches: counters.n_runs,
                voluntary: None,
                run_ns: counters.run_ns,
                delay_ns: counters.delay_ns,
                guest_ns: self.guest.map_or(0, |guest| guest.ns),
            },
            n_runs: counters.n_runs,
            // Those of a worker are of the system call that made it.
            regs: last.map(|last| last.regs),
            syscall: last.map(|last| last.syscall),
            stop: match self.last {
                Some(last) => last.stop,
                None => self.dumps.then_some(StopCause::CoreDump),
            },
            stack: SnapshotStack::None,
            kernel: 0..0,
            info: ThreadInfo {
                started: self.started,
                comm,
                kernel_side: self.kernel_side,
                ..ThreadInfo::default()
            },
        }))
    }
}

impl Files {
    /// Learns whether the thread is blocked, and in what. Of one that was blocked and has not run since, as its count of
    /// runs shows, only whether it still is, which `syscall` tells at the least cost, and whether the freezer stops it in
    /// its sleep. False when it has exited.
    fn look(
        &mut self,
        thread: (Pid, Tid),
        n_runs: u64,
        freezers: &mut Freezers,
    ) -> io::Result<bool> {
        let Some(last) = self.last.filter(|last| last.n_runs == n_runs) else {
            return self.look_anew(thread, n_runs, freezers);
        };
        if self.freezer.is_none() {
            let Some(syscall) = self.syscall()? else {
                return Ok(false);
            };
            self.last = (syscall != SyscallState::Running).then_some(last);
            return Ok(true);
        }
        let Some((state, flags)) = self.state()? else {
            return Ok(false);
        };
        let stop = match (last.state, state) {
            // A thread may have been frozen only after the last look, or thawed: the letter is that of a wait for a disk, too.
            (before, 'D') => {
                let slept = before == 'S' || last.stop == Some(StopCause::Freezer);
                let freezer = || freezers.of(self.freezer.as_ref());
                stop_cause(thread, (state, flags), slept, freezer)
            }
            (before, state) if before == state => last.stop,
            _ => stop_cause(thread, (state, flags), false, || Freezer::Thawed),
        };
        let last = BlockedLook {
            state,
            stop,
            ..last
        };
        self.last = (state != 'R').then_some(last);
        Ok(true)
    }

    /// The same of a thread that ran.
    fn look_anew(
        &mut self,
        thread: (Pid, Tid),
        n_runs: u64,
        freezers: &mut Freezers,
    ) -> io::Result<bool> {
        let (Some((state, flags)), Some(syscall)) = (self.state()?, self.syscall()?) else {
            return Ok(false);
        };
        let freezer = || freezers.of(self.freezer.as_ref());
        let stop = stop_cause(thread, (state, flags), false, freezer);
        self.dumps = stop == Some(StopCause::CoreDump);
        self.last = match syscall {
            SyscallState::Running => None,
            SyscallState::Blocked { number, args, regs } => Some(BlockedLook {
                n_runs,
                state,
                syscall: InSyscall { number, args },
                regs,
                stop,
            }),
        };
        // One that has ended shows its counters until its process is waited for: a main thread, as long as others run.
        Ok(!has_ended(state))
    }
}

fn is_full(error: &io::Error) -> bool {
    matches!(error.raw_os_error(), Some(libc::EMFILE | libc::ENFILE))
}

/// Nothing for an error of a thread that has exited.
fn or_gone<T>(error: io::Error) -> io::Result<Option<T>> {
    match is_full(&error) {
        true => Err(error),
        false => Ok(None),
    }
}

/// The `stat` of a thread's folder; `None` when it has another form.
fn stat_of(dir: &str) -> io::Result<Option<TaskStat>> {
    Ok(parse_stat(&read_file(format!("{dir}/stat"))?))
}

impl Snapshots for ProcfsSnapshots {
    fn snapshot(
        &mut self,
        out: &mut SnapshotSet,
        _stacks: &mut Vec<u8>,
    ) -> Result<(), SnapshotError> {
        out.clear();
        self.n_new = 0;
        self.freezers.begin(monotonic_ns());
        let targets = self.targets.clone();
        let pulse = Arc::clone(&self.pulse);
        targets.into_iter().try_for_each(|(target, pid)| {
            // A thread that is about to run another program holds a lock that these files need.
            let _asking = pulse.state(pid);
            self.snapshot_of(target, pid, out)
        })?;
        if out.incomplete {
            pulse.lacks_files();
        }
        Ok(())
    }

    fn add_target(&mut self, target: TargetId, pid: Pid) -> Result<(), SnapshotError> {
        self.targets.push((target, pid));
        Ok(())
    }

    fn remove_target(&mut self, target: TargetId, _pid: Pid) {
        self.targets.retain(|&(known, _)| known != target);
        // Also of threads that nobody has sampled yet.
        let of_it = |(&tid, files): (&Tid, &Files)| (files.target == target).then_some(tid);
        let tids: Vec<Tid> = self.threads.iter().filter_map(of_it).collect();
        tids.into_iter().for_each(|tid| self.forget(tid));
    }

    fn n_runs(&mut self, tid: Tid) -> Option<u64> {
        Some(self.threads.get(&tid)?.schedstat().ok()??.n_runs)
    }

    fn forget(&mut self, tid: Tid) {
        if self.threads.remove(&tid).is_some_and(|f| f.held.is_some()) {
            self.n_held -= FILES.len();
        }
    }
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::process::Command;

    use nix::sys::resource::{Resource, setrlimit};

    use super::*;
    use crate::testing::{is_alone, skip};

    /// Check that for want of descriptors threads are not seen, none is taken for an exited one, and that this is said.
    #[test]
    fn no_descriptors() {
        if !is_alone("engine::procfs::tests::no_descriptors") {
            return;
        }
        let pid = Pid(std::process::id() as i32);
        let new = |max_held| {
            let pulse = Arc::new(Pulse::default());
            let engine = ProcfsSnapshots::new(&[(TargetId(0), pid)], max_held, false, pulse);
            let out = SnapshotSet {
                max_new: usize::MAX,
                ..SnapshotSet::default()
            };
            (engine, out)
        };
        let tid = Tid(pid.0);
        let (mut frugal, mut out) = new(1);
        frugal.snapshot(&mut out, &mut Vec::new()).unwrap();
        assert!(!out.incomplete && frugal.pulse.notes().is_empty());
        setrlimit(Resource::RLIMIT_NOFILE, 64, 64).unwrap();
        let full: Vec<File> = std::iter::from_fn(|| open("/proc/version").ok()).collect();
        assert!(frugal.open(TargetId(0), pid, tid).is_err());
        let files = frugal.threads.get_mut(&tid).unwrap();
        assert!(files.is_same().is_err() && files.schedstat().is_err());
        assert!(files.read(pid, tid, &mut Freezers::default()).is_err());
        frugal.snapshot(&mut out, &mut Vec::new()).unwrap();
        assert!(out.incomplete && out.gone.is_empty() && frugal.threads.contains_key(&tid));
        assert_eq!(frugal.pulse.notes().len(), 1);
        for is_known in [true, false] {
            out.clear();
            frugal.look_at(vec![tid], TargetId(0), pid, &mut out);
            assert!(out.incomplete && out.threads.is_empty());
            assert_eq!(frugal.threads.remove(&tid).is_some(), is_known);
        }
        drop(full);
    }

    /// Check that a sleeper which was looked at while its group was being frozen is found frozen at its next look, and that
    /// it is not when the group was thawed, though it has not run. The kernel's files say when that is.
    #[test]
    fn frozen_between_looks() {
        let group = format!("/sys/fs/cgroup/freezer/wcprof-unit-{}", std::process::id());
        let state = format!("{group}/freezer.state");
        if fs::create_dir(&group).is_err() || !fs::exists(&state).unwrap() {
            return skip("no freezer of version 1 in which a group can be made");
        }
        let mut child = Command::new("sleep").arg("100").spawn().unwrap();
        let pid = Pid(child.id() as i32);
        let stat = format!("/proc/{pid}/stat");
        let letter = || parse_task_state(fs::read_to_string(&stat).ok()?.as_bytes());
        let until = |is_so: &dyn Fn() -> bool| {
            while !is_so() {
                std::thread::yield_now();
            }
        };
        let is = |word: &str| fs::read_to_string(&state).is_ok_and(|text| text.trim() == word);
        fs::write(format!("{group}/cgroup.procs"), pid.to_string()).unwrap();
        until(&|| letter().is_some_and(|(letter, _)| letter == 'S'));
        let mut engine = ProcfsSnapshots::new(&[(TargetId(0), pid)], 1000, true, Arc::default());
        let stop = |engine: &mut ProcfsSnapshots| {
            let mut out = SnapshotSet {
                max_new: usize::MAX,
                ..SnapshotSet::default()
            };
            engine.snapshot(&mut out, &mut Vec::new()).unwrap();
            out.threads[0].stop
        };
        assert_eq!(stop(&mut engine), None);
        for _ in 0..2 {
            fs::write(&state, "FROZEN").unwrap();
            until(&|| is("FROZEN") && letter().is_some_and(|(letter, _)| letter == 'D'));
            // As if it had napped until then: it was in this state when it was first seen in this wait.
            let files = engine.threads.get_mut(&Tid(pid.0)).unwrap();
            let last = files.last.as_mut().unwrap();
            (last.state, last.stop) = ('D', None);
            assert_eq!(stop(&mut engine), Some(StopCause::Freezer));
            assert_eq!(stop(&mut engine), Some(StopCause::Freezer));
            fs::write(&state, "THAWED").unwrap();
            until(&|| is("THAWED") && letter().is_some_and(|(letter, _)| letter == 'S'));
            assert_eq!(stop(&mut engine), None);
        }
        child.kill().unwrap();
        child.wait().unwrap();
        until(&|| fs::remove_dir(&group).is_ok());
    }

    /// Check a snapshot of this process: a thread that waits for a channel is blocked in futex
    /// with its stack pointer known, and its count of runs stands still.
    #[test]
    fn own_threads() {
        let (tx, rx) = std::sync::mpsc::channel::<()>();
        let (tid_tx, tid_rx) = std::sync::mpsc::channel();
        let thread = std::thread::spawn(move || {
            tid_tx.send(Tid(nix::unistd::gettid().as_raw())).unwrap();
            rx.recv().ok();
        });
        let tid = tid_rx.recv().unwrap();
        let pid = Pid(std::process::id() as i32);
        let mut engine = ProcfsSnapshots::new(&[(TargetId(0), pid)], 1000, true, Arc::default());
        let mut out = SnapshotSet {
            max_new: usize::MAX,
            ..SnapshotSet::default()
        };
        // The thread needs a moment to reach its wait: look until it has.
        let found = loop {
            engine.snapshot(&mut out, &mut Vec::new()).unwrap();
            let found = out.threads.iter().find(|t| t.tid == tid).unwrap().clone();
            if found.sched == Sched::Blocked {
                break found;
            }
            std::thread::yield_now();
        };
        assert_eq!(found.syscall.unwrap().number, Some(libc::SYS_futex as u32));
        assert!(found.regs.unwrap().sp.0 != 0);
        assert_eq!(engine.n_runs(tid), Some(found.n_runs));
        // The same without descriptors to hold.
        let mut frugal = ProcfsSnapshots::new(&[(TargetId(0), pid)], 1, true, Arc::default());
        frugal.snapshot(&mut out, &mut Vec::new()).unwrap();
        let again = out.threads.iter().find(|t| t.tid == tid).unwrap();
        assert_eq!((again.sched, again.regs), (found.sched, found.regs));
        assert_eq!(frugal.n_runs(tid), Some(found.n_runs));
        assert_eq!(frugal.n_held, 0);
        // The files of a later thread with its number are not taken for its own.
        frugal.threads.get_mut(&tid).unwrap().start_ticks += 1;
        frugal.snapshot(&mut out, &mut Vec::new()).unwrap();
        assert!(out.threads.iter().all(|t| t.tid != tid));
        frugal.snapshot(&mut out, &mut Vec::new()).unwrap();
        assert!(out.threads.iter().any(|t| t.tid == tid), "it is a new one");
        assert!(found.info.started <= found.time);
        assert!(engine.n_held >= 2 * FILES.len());
        engine.remove_target(TargetId(0), pid);
        assert!(engine.n_held == 0 && engine.threads.is_empty());
        drop(tx);
        thread.join().unwrap();
    }
}
