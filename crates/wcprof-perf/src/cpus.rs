//! Threads to the CPUs whose timers sample them.

use std::collections::BTreeSet;
use std::iter::once;

use nix::errno::Errno;
use nix::sched::sched_getaffinity;
use wcprof_host::procfs::{list_threads, read_file};
use wcprof_types::{Pid, Tid, parse_cpus};

/// Where timers may be.
#[derive(Copy, Clone, PartialEq, Eq, Debug, Default)]
pub struct CpuPolicy {
    /// None on CPUs that the administrator keeps free of interrupts (`isolcpus=`, `nohz_full=`).
    pub spare_isolated: bool,
}

/// CPUs that are online (`/sys/devices/system/cpu/online`).
pub fn online_cpus() -> BTreeSet<u32> {
    listed("online")
}

/// CPUs that the administrator keeps free of interrupts: `isolcpus=` and `nohz_full=` of the kernel's command line.
pub fn isolated_cpus() -> BTreeSet<u32> {
    &listed("isolated") | &listed("nohz_full")
}

fn listed(name: &str) -> BTreeSet<u32> {
    let text = read_file(format!("/sys/devices/system/cpu/{name}"));
    text.map_or_else(|_| BTreeSet::new(), |text| parse_cpus(&text))
}

impl CpuPolicy {
    /// The CPUs that may have timers at all.
    pub fn usable(self) -> BTreeSet<u32> {
        match self.spare_isolated {
            true => &online_cpus() - &isolated_cpus(),
            false => online_cpus(),
        }
    }

    /// Those on which a thread of these processes may run (`sched_setaffinity(2)`, cpusets).
    pub fn of_processes(self, pids: impl IntoIterator<Item = Pid>) -> BTreeSet<u32> {
        let usable = self.usable();
        // To list ten thousand threads takes 5 ms, and is seldom needed: the first ones tell.
        let others = |pid| list_threads(pid).unwrap_or_default();
        let threads = pids
            .into_iter()
            .flat_map(|pid| once(Tid(pid.0)).chain(once(pid).flat_map(others)));
        allowed(&usable, threads.filter_map(affinity))
    }
}

/// Those of the usable CPUs on which a thread may run.
pub fn of_thread(usable: &BTreeSet<u32>, tid: Tid) -> BTreeSet<u32> {
    allowed(usable, affinity(tid))
}

/// The usable CPUs that threads may run on. `None`: it cannot be told where one may run.
pub(crate) fn allowed(
    usable: &BTreeSet<u32>,
    threads: impl IntoIterator<Item = Option<BTreeSet<u32>>>,
) -> BTreeSet<u32> {
    let mut found = BTreeSet::new();
    for thread in threads {
        found.extend(thread.as_ref().unwrap_or(usable) & usable);
        // Most processes may run everywhere: their first thread tells.
        if found.len() == usable.len() {
            break;
        }
    }
    found
}

/// Where a thread may run, which cannot be told on machines with more CPUs than the call's mask has; `None` for one that
/// has exited.
pub(crate) fn affinity(tid: Tid) -> Option<Option<BTreeSet<u32>>> {
    let set = match sched_getaffinity(nix::unistd::Pid::from_raw(tid.0)) {
        Err(Errno::ESRCH) => return None,
        set => set.ok(),
    };
    Some(set.map(|set| {
        let is_set = |cpu: &u32| set.is_set(*cpu as usize).unwrap_or(false);
        let all = 0..nix::sched::CpuSet::count() as u32;
        all.filter(is_set).collect()
    }))
}

/// Lets the calling thread run on one CPU alone.
#[cfg(test)]
pub(crate) fn pin(cpu: u32) {
    let mut only = nix::sched::CpuSet::new();
    only.set(cpu as usize).unwrap();
    nix::sched::sched_setaffinity(nix::unistd::Pid::from_raw(0), &only).unwrap();
}

#[cfg(test)]
mod tests {
    use super::*;

    fn set<const N: usize>(cpus: [u32; N]) -> BTreeSet<u32> {
        cpus.into()
    }

    /// Check unions of pinned threads, threads that are asked no more, and one that cannot be told.
    #[test]
    fn unions() {
        let usable = set([0, 1, 2, 3]);
        let of = |threads: Vec<Option<BTreeSet<u32>>>| allowed(&usable, threads);
        assert_eq!(of(vec![]), set([]));
        assert_eq!(of(vec![Some(set([1])), Some(set([3, 7]))]), set([1, 3]));
        assert_eq!(of(vec![Some(set([1])), None]), usable);
        let asked = std::cell::Cell::new(0);
        let threads = (0..5).map(|_| {
            asked.set(asked.get() + 1);
            Some(set([0, 1, 2, 3]))
        });
        assert_eq!(allowed(&usable, threads), usable);
        assert_eq!(asked.get(), 1);
    }

    /// Check that a thread which has exited may run nowhere.
    #[test]
    fn exited_thread() {
        let exited = std::thread::spawn(|| Tid(nix::unistd::gettid().as_raw()));
        let tid = exited.join().unwrap();
        while std::path::Path::new(&format!("/proc/self/task/{tid}")).exists() {
            std::thread::yield_now();
        }
        assert_eq!(affinity(tid), None);
        assert_eq!(of_thread(&online_cpus(), tid), set([]));
    }

    /// Check the CPUs of a thread that is pinned to one.
    #[test]
    fn pinned_thread() {
        let pinned = std::thread::spawn(|| {
            let own = Tid(nix::unistd::gettid().as_raw());
            let before = affinity(own).unwrap().unwrap();
            let first = *before.first().unwrap();
            pin(first);
            (first, of_thread(&online_cpus(), own))
        });
        let (first, cpus) = pinned.join().unwrap();
        assert_eq!(cpus, set([first]));
    }
}
