//! What keeps a thread from running until somebody lets it go on: a stop signal, a debugger, a frozen control group, a
//! core dump.

use std::collections::BTreeMap;
use std::path::Path;

use wcprof_types::{Pid, StopCause, Tid};

use super::{cgroups, list_threads, parse_status, parse_task_state, read_file};

/// `PF_*` flags of `stat` (`include/linux/sched.h`): waits until a core dump is written, and writes it.
const PF_POSTCOREDUMP: u32 = 0x8;
const PF_DUMPCORE: u32 = 0x200;
/// Exits.
const PF_EXITING: u32 = 0x4;
/// The thread is in the refrigerator of the freezer; before Linux 6.1.
const PF_FROZEN: u32 = 0x1_0000;

/// Where a thread in state `S` waits while its group is frozen (version 2, `kernel/signal.c`): compilers make one
/// function of both.
const FREEZER_TRAP: [&str; 2] = ["do_freezer_trap", "get_signal"];
/// Where a thread in state `D` waits while its group is frozen (version 1, `kernel/freezer.c`).
const REFRIGERATOR: &str = "__refrigerator";
/// Where the freezer of version 1 is mounted, and where version 2 is.
const FREEZER: &str = "/sys/fs/cgroup/freezer";
const UNIFIED: [&str; 2] = ["/sys/fs/cgroup/unified", "/sys/fs/cgroup"];
/// Threads whose state is looked at.
const MAX_THREADS: usize = 4096;

/// What the freezer of version 1 does with a group, by its `freezer.state`, which tells of the groups above it, too.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub enum Freezer {
    /// Nothing; also where nothing is known.
    Thawed,
    /// The group's threads are being frozen, and some are not frozen yet.
    Freezing,
    /// The group's threads are all frozen.
    Frozen,
}

impl Freezer {
    fn of(group: &str, read: &dyn Fn(&str) -> Option<String>) -> Self {
        let state = read(&format!("{FREEZER}{group}/freezer.state"));
        match state.as_deref().map(str::trim) {
            Some("FROZEN") => Self::Frozen,
            Some("FREEZING") => Self::Freezing,
            _ => Self::Thawed,
        }
    }

    /// At this moment; the group as [`freezer_group`] gives it.
    pub fn of_group(group: &str) -> Self {
        Self::of(group, &|path| read_file(path).ok())
    }
}

/// A thread whose files are read to find out what stops it.
#[derive(Copy, Clone)]
pub(crate) struct StoppedTask<'a> {
    /// `/proc/PID/task/TID`.
    pub(crate) folder: &'a str,
    /// Gives the text of a file.
    pub(crate) read: &'a dyn Fn(&str) -> Option<String>,
}

impl StoppedTask<'_> {
    /// What stops the thread, if it does not run, by the state letter and the flags of its `stat`, and what the freezer
    /// of version 1 does with its group. `slept`: it was in state `S` and has not run since, so that state `D` is the
    /// freezer's.
    pub(crate) fn cause(
        self,
        (state, flags): (char, u32),
        slept: bool,
        freezer: impl FnOnce() -> Freezer,
    ) -> Option<StopCause> {
        // The thread that writes the dump also runs, but not the program, until it exits.
        let dumps = flags & (PF_DUMPCORE | PF_EXITING) == PF_DUMPCORE;
        if dumps || (flags & PF_POSTCOREDUMP != 0 && matches!(state, 'I' | 'D')) {
            return Some(StopCause::CoreDump);
        }
        let is_frozen = match state {
            'T' => return Some(StopCause::Signal),
            't' => return Some(StopCause::Debugger),
            'S' => FREEZER_TRAP.contains(&self.wchan().as_str()),
            'D' => {
                flags & PF_FROZEN != 0
                    || match freezer() {
                        Freezer::Frozen => true,
                        // Others of the group are not frozen yet, and may wait for a disk.
                        Freezer::Freezing => slept || self.wchan() == REFRIGERATOR,
                        Freezer::Thawed => false,
                    }
            }
            _ => false,
        };
        is_frozen.then_some(StopCause::Freezer)
    }

    /// What stops a thread of which nothing was known before; its files tell what the freezer does.
    pub(crate) fn cause_now(self, state: (char, u32)) -> Option<StopCause> {
        self.cause(state, false, || self.freezer())
    }

    fn text(self, name: &str) -> String {
        (self.read)(&format!("{}/{name}", self.folder)).unwrap_or_default()
    }

    /// The function of the kernel that it waits in; empty when it is not readable.
    fn wchan(self) -> String {
        self.text("wchan")
    }

    /// Its group in the freezer of version 1; the root has no state.
    fn freezer_group(self) -> Option<String> {
        let groups = self.text("cgroup");
        let mut groups = cgroups(&groups);
        let group = groups.find(|(names, _)| names.split(',').any(|name| name == "freezer"));
        group
            .map(|(_, path)| path.to_owned())
            .filter(|path| path.len() > 1)
    }

    /// What the freezer of version 1 does with its group.
    fn freezer(self) -> Freezer {
        let group = self.freezer_group();
        group.map_or(Freezer::Thawed, |group| Freezer::of(&group, self.read))
    }

    /// Who stops it, as far as that is known: the control group that was frozen, or the tracer.
    fn stopper(self, cause: StopCause) -> Option<String> {
        match cause {
            StopCause::Debugger => {
                let tracer = parse_status(&self.text("status")).tracer?;
                let comm = (self.read)(&format!("/proc/{tracer}/comm")).unwrap_or_default();
                Some(format!("{} (pid {tracer})", comm.trim()))
            }
            StopCause::Freezer => {
                let groups = self.text("cgroup");
                let unified = cgroups(&groups).find(|(names, _)| names.is_empty());
                let v2 = unified.into_iter().flat_map(|(_, path)| {
                    UNIFIED.map(|mount| (mount, path.to_owned(), "cgroup.freeze"))
                });
                let v1 = self.freezer_group();
                let v1 = v1.map(|path| (FREEZER, path, "freezer.self_freezing"));
                let mut groups = v1.into_iter().chain(v2).flat_map(|(mount, path, file)| {
                    let levels = Path::new(&path).ancestors();
                    let levels = levels.map(|group| format!("{mount}{}", group.display()));
                    levels.map(|group| (group, file)).collect::<Vec<_>>()
                });
                let is_frozen = |(group, file): &(String, &str)| {
                    (self.read)(&format!("{group}/{file}")).is_some_and(|text| text.trim() == "1")
                };
                groups
                    .find(is_frozen)
                    .map(|(group, _)| format!("`{group}`"))
            }
            _ => None,
        }
    }
}

/// What stops a thread, if it does not run; see `StoppedTask::cause`.
pub fn stop_cause(
    (pid, tid): (Pid, Tid),
    state: (char, u32),
    slept: bool,
    freezer: impl FnOnce() -> Freezer,
) -> Option<StopCause> {
    StoppedTask {
        folder: &format!("/proc/{pid}/task/{tid}"),
        read: &|path| read_file(path).ok(),
    }
    .cause(state, slept, freezer)
}

/// Whether the freezer of version 1 has a group beside its root, which alone can be frozen.
pub fn has_freezer_groups() -> bool {
    let folders = std::fs::read_dir(FREEZER).into_iter().flatten().flatten();
    let mut kinds = folders.filter_map(|entry| entry.file_type().ok());
    kinds.any(|kind| kind.is_dir())
}

/// The group of a thread in the freezer of version 1, which stops it in its sleep (Linux 6.1); the root is none.
pub fn freezer_group(pid: Pid, tid: Tid) -> Option<String> {
    let task = StoppedTask {
        folder: &format!("/proc/{pid}/task/{tid}"),
        read: &|path| read_file(path).ok(),
    };
    task.freezer_group()
}

/// What stops a thread at this moment.
pub fn stopped(pid: Pid, tid: Tid) -> Option<StopCause> {
    let stat = read_file(format!("/proc/{pid}/task/{tid}/stat")).ok()?;
    let task = StoppedTask {
        folder: &format!("/proc/{pid}/task/{tid}"),
        read: &|path| read_file(path).ok(),
    };
    task.cause_now(parse_task_state(stat.as_bytes())?)
}

/// Threads of a process that are stopped for one reason.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct StoppedThreads {
    /// How many.
    pub n: usize,
    /// Who stops the first of them, as far as that is known: the control group that was frozen, or the tracer.
    pub stopper: Option<String>,
}

/// The stopped threads of a process at this moment by cause, and how many threads were looked at.
pub fn stopped_threads(pid: Pid) -> (BTreeMap<StopCause, StoppedThreads>, usize) {
    let tids = list_threads(pid).unwrap_or_default();
    let mut causes: BTreeMap<StopCause, StoppedThreads> = BTreeMap::new();
    let n_looks = tids.len().min(MAX_THREADS);
    for tid in tids.into_iter().take(MAX_THREADS) {
        let Some(cause) = stopped(pid, tid) else {
            continue;
        };
        let threads = causes.entry(cause).or_insert_with(|| StoppedThreads {
            n: 0,
            stopper: StoppedTask {
                folder: &format!("/proc/{pid}/task/{tid}"),
                read: &|path| read_file(path).ok(),
            }
            .stopper(cause),
        });
        threads.n += 1;
    }
    (causes, n_looks)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// What stops a thread with this `stat` and these files.
    fn cause(state: (char, u32), slept: bool, files: &[(&str, &str)]) -> Option<StopCause> {
        let read = |path: &str| {
            let file = files.iter().find(|(name, _)| *name == path);
            file.map(|(_, text)| (*text).to_owned())
        };
        let task = StoppedTask {
            folder: "/proc/7/task/8",
            read: &read,
        };
        task.cause(state, slept, || task.freezer())
    }

    /// Check each cause by the kernel's files, and that waits for a disk and sleeps are none.
    #[test]
    fn causes() {
        let wchan = |place| ("/proc/7/task/8/wchan", place);
        let group = ("/proc/7/task/8/cgroup", "6:freezer:/a/b\n0::/x\n");
        let state = |text| ("/sys/fs/cgroup/freezer/a/b/freezer.state", text);
        assert_eq!(cause(('T', 0), false, &[]), Some(StopCause::Signal));
        assert_eq!(cause(('t', 0), false, &[]), Some(StopCause::Debugger));
        assert_eq!(cause(('R', 0), false, &[]), None);
        let freezer = Some(StopCause::Freezer);
        for place in ["do_freezer_trap", "get_signal"] {
            assert_eq!(cause(('S', 0), false, &[wchan(place)]), freezer);
        }
        assert_eq!(cause(('S', 0), false, &[wchan("hrtimer_nanosleep")]), None);
        assert_eq!(cause(('D', 0), false, &[group, state("FROZEN\n")]), freezer);
        let freezing =
            |slept, place| cause(('D', 0), slept, &[group, state("FREEZING"), wchan(place)]);
        assert_eq!(freezing(false, "__refrigerator"), freezer);
        assert_eq!(freezing(true, "futex_do_wait"), freezer);
        assert_eq!(freezing(false, "folio_wait_bit"), None);
        assert_eq!(cause(('D', 0), true, &[group, state("THAWED")]), None);
        assert_eq!(cause(('D', PF_FROZEN), false, &[]), freezer);
        let dump = Some(StopCause::CoreDump);
        assert_eq!(cause(('D', PF_DUMPCORE), false, &[]), dump);
        assert_eq!(cause(('R', PF_DUMPCORE), false, &[]), dump);
        assert_eq!(cause(('R', PF_DUMPCORE | PF_EXITING), false, &[]), None);
        assert_eq!(cause(('I', PF_POSTCOREDUMP), false, &[]), dump);
    }

    /// Check that the group that was frozen is named, not the one below it, and who traces.
    #[test]
    fn stoppers() {
        let named = |cause, files: &[(&str, &str)]| {
            let read = |path: &str| {
                let file = files.iter().find(|(name, _)| *name == path);
                file.map(|(_, text)| (*text).to_owned())
            };
            let task = StoppedTask {
                folder: "/proc/7/task/8",
                read: &read,
            };
            task.stopper(cause)
        };
        let groups = ("/proc/7/task/8/cgroup", "6:freezer:/\n0::/x/y\n");
        let files = [
            groups,
            ("/sys/fs/cgroup/x/y/cgroup.freeze", "0\n"),
            ("/sys/fs/cgroup/x/cgroup.freeze", "1\n"),
        ];
        let found = named(StopCause::Freezer, &files);
        assert_eq!(found.as_deref(), Some("`/sys/fs/cgroup/x`"));
        assert_eq!(named(StopCause::Freezer, &[groups]), None);
        let files = [
            ("/proc/7/task/8/status", "TracerPid:\t99\n"),
            ("/proc/99/comm", "gdb\n"),
        ];
        let found = named(StopCause::Debugger, &files);
        assert_eq!(found.as_deref(), Some("gdb (pid 99)"));
    }
}
