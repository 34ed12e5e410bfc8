//! Which processes of this machine are meant: by name, control group, virtual machine, OSD or parent.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::path::Path;

use globset::GlobMatcher;
use wcprof_types::{Pid, osd_id, program_name, rewritten_title, vm_name};

use crate::front;
use crate::procfs::{
    cgroups, list_processes, live_folder, live_task, parse_stat, read_file, read_text,
};
use crate::target::read_args;

/// Where control groups are mounted.
const CGROUP_ROOT: &str = "/sys/fs/cgroup";

/// A process that may become a target. Its command line still holds secrets: `Debug` does not show them.
#[derive(Clone, PartialEq, Eq, Default)]
pub struct Candidate {
    /// Its pid.
    pub pid: Pid,
    /// The process that started it.
    pub parent: Pid,
    /// When it was started, in clock ticks since boot.
    pub started: u64,
    /// Its name, at most 15 bytes.
    pub comm: String,
    /// Its arguments.
    pub args: Vec<String>,
    /// Paths of its control groups, one for each hierarchy.
    pub cgroups: Vec<String>,
}

impl fmt::Debug for Candidate {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut shown = f.debug_struct("Candidate");
        shown.field("pid", &self.pid).field("comm", &self.comm);
        shown.finish_non_exhaustive()
    }
}

/// What to look for.
#[derive(Clone, Debug)]
pub enum Selector {
    /// Processes of this name, or whose program has it, or that gave themselves this title (`postgres: checkpointer`).
    Name(GlobMatcher),
    /// Processes in this control group or below it.
    Cgroup(String),
    /// The QEMU processes of the virtual machines of this name.
    Vm(GlobMatcher),
    /// The ceph-osd processes with this id.
    Osd(GlobMatcher),
}

impl Selector {
    /// Processes in a control group, given as in `/proc/PID/cgroup` or by its folder.
    pub fn cgroup(path: &str) -> Self {
        let trimmed = path.trim_end_matches('/');
        let below = Path::new(trimmed).strip_prefix(CGROUP_ROOT);
        Self::Cgroup(match below {
            Ok(rest) => format!("/{}", rest.display()),
            Err(_) if trimmed.starts_with('/') => trimmed.to_owned(),
            Err(_) => format!("/{trimmed}"),
        })
    }

    /// Whether a process is meant.
    pub fn matches(&self, process: &Candidate) -> bool {
        match self {
            Self::Name(glob) => {
                glob.is_match(&process.comm)
                    || program_name(&process.args).is_some_and(|name| glob.is_match(name))
                    || rewritten_title(&process.args).is_some_and(|title| glob.is_match(title))
            }
            Self::Cgroup(path) => {
                // `/sys/fs/cgroup/cpu/a` names the hierarchy before the group (version 1).
                let without_hierarchy = path.get(1..).and_then(|p| Some(&p[p.find('/')?..]));
                let mut paths = [Some(path.as_str()), without_hierarchy]
                    .into_iter()
                    .flatten();
                paths.any(|path| process.cgroups.iter().any(|cgroup| is_below(cgroup, path)))
            }
            Self::Vm(name) => {
                vm_name(&process.comm, &process.args).is_some_and(|vm| is_named(name, &vm))
            }
            Self::Osd(id) => {
                osd_id(&process.comm, &process.args).is_some_and(|osd| is_named(id, osd))
            }
        }
    }
}

/// Whether a name matches, or is the glob itself: `web[1]` may be a machine's name.
fn is_named(glob: &GlobMatcher, name: &str) -> bool {
    glob.is_match(name) || glob.glob().glob() == name
}

fn is_below(cgroup: &str, path: &str) -> bool {
    let rest = cgroup.strip_prefix(path.trim_end_matches('/'));
    rest.is_some_and(|rest| rest.is_empty() || rest.starts_with('/'))
}

/// All processes but kernel threads, zombies and wcprof itself, by pid.
pub fn processes() -> Vec<Candidate> {
    pids().into_iter().filter_map(candidate).collect()
}

/// Pids of all processes but wcprof itself, in order.
pub fn pids() -> Vec<i32> {
    let own = [std::process::id().cast_signed(), front::pid()];
    let mut pids = list_processes();
    pids.retain(|pid| !own.contains(pid));
    pids
}

/// A process; `None` for kernel threads, zombies and what is not there.
pub fn candidate(pid: i32) -> Option<Candidate> {
    let text = |name: &str| read_text(Pid(pid), name).unwrap_or_default();
    let stat = parse_stat(&text("stat"))?;
    if stat.is_kernel_thread() || (stat.has_ended() && live_task(Pid(pid)).is_none()) {
        return None;
    }
    let groups = read_file(format!("{}/cgroup", live_folder(Pid(pid)))).unwrap_or_default();
    Some(Candidate {
        pid: Pid(pid),
        parent: Pid(stat.parent),
        started: stat.start_ticks,
        comm: stat.comm,
        // What another user may not read, or does not answer, has no arguments here and is found by its name alone.
        args: read_args(Pid(pid)),
        cgroups: cgroups(&groups).map(|(_, path)| path.to_owned()).collect(),
    })
}

/// Chosen processes by service, each service's in order: the processes of one ancestor among them, or of one that is
/// not chosen but has their name, which is how servers start a process for each client.
pub fn services(processes: &[Candidate], chosen: &BTreeSet<Pid>) -> BTreeMap<Pid, Vec<Pid>> {
    let by_pid: BTreeMap<Pid, &Candidate> = processes.iter().map(|p| (p.pid, p)).collect();
    let ancestor = |mut pid: Pid| {
        // Parents may be forged into a ring.
        for _ in 0..processes.len() {
            let parent = by_pid
                .get(&pid)
                .and_then(|p| Some((*p, *by_pid.get(&p.parent)?)));
            match parent {
                Some((process, parent))
                    if chosen.contains(&parent.pid) || parent.comm == process.comm =>
                {
                    pid = parent.pid;
                }
                _ => break,
            }
        }
        pid
    };
    let mut services: BTreeMap<Pid, Vec<Pid>> = BTreeMap::new();
    for &pid in chosen {
        services.entry(ancestor(pid)).or_default().push(pid);
    }
    services
}

/// The processes that these started, and those that they started, as far as they live.
pub fn descendants(processes: &[Candidate], of: &BTreeSet<Pid>) -> BTreeSet<Pid> {
    let mut found = of.clone();
    // A child may have a smaller number than its parent, where numbers began afresh.
    let mut n_before = 0;
    while found.len() > n_before {
        n_before = found.len();
        for process in processes {
            if found.contains(&process.parent) {
                found.insert(process.pid);
            }
        }
    }
    &found - of
}

#[cfg(test)]
mod tests {
    use std::process::{Command, Stdio};
    use std::sync::mpsc::channel;

    use globset::Glob;

    use super::*;
    use crate::deadline::{Awaited, with_deadline};

    fn process(args: &[&str]) -> Candidate {
        Candidate {
            comm: "main".to_owned(),
            args: args.iter().map(|&a| a.to_owned()).collect(),
            ..Candidate::default()
        }
    }

    /// Check machines and OSDs by their whole names and by globs; a name with the letters of a glob is one, too.
    #[test]
    fn machines_and_osds() {
        let vm = process(&["qemu-kvm", "-name", "guest=web,debug-threads=on"]);
        let glob = |glob: &str| Glob::new(glob).unwrap().compile_matcher();
        assert!(Selector::Vm(glob("web")).matches(&vm));
        assert!(!Selector::Vm(glob("we")).matches(&vm));
        let osd = process(&["ceph-osd", "--id", "12"]);
        assert!(Selector::Osd(glob("12")).matches(&osd));
        assert!(!format!("{osd:?}").contains("12"));
        assert!(!Selector::Osd(glob("1")).matches(&osd));
        assert!(Selector::Osd(glob("*")).matches(&osd));
        assert!(!Selector::Osd(glob("*")).matches(&vm));
        let bracketed = process(&["qemu-kvm", "-name", "a[1]"]);
        assert!(Selector::Vm(glob("a[1]")).matches(&bracketed));
    }

    /// Check names by comm, which is cut, and by the program's file.
    #[test]
    fn names() {
        let by = |glob: &str| Selector::Name(Glob::new(glob).unwrap().compile_matcher());
        let mut qemu = process(&["/usr/bin/qemu-system-x86_64", "-m", "1G"]);
        qemu.comm = "qemu-system-x86".to_owned();
        assert!(by("qemu-system-x86_64").matches(&qemu) && by("qemu-*").matches(&qemu));
        assert!(!by("qemu").matches(&qemu) && !by("bin").matches(&qemu));
        assert!(by("nginx").matches(&process(&["nginx: worker process"])));
        let session = process(&["postgres: bench app [local] UPDATE waiting  ", ""]);
        assert!(by("postgres: *").matches(&session) && by("postgres").matches(&session));
        assert!(!by("postgres: *").matches(&process(&["postgres", "-D", "/data"])));
    }

    /// Check groups by path, by folder, in a hierarchy of version 1, and that a name that only
    /// begins alike is another one.
    #[test]
    fn cgroups() {
        let mut osd = process(&["ceph-osd"]);
        osd.cgroups = vec!["/system.slice/ceph-osd@3.service".to_owned()];
        for path in [
            "/system.slice",
            "/system.slice/",
            "system.slice/ceph-osd@3.service",
            "/sys/fs/cgroup/system.slice/ceph-osd@3.service",
            "/sys/fs/cgroup/cpu,cpuacct/system.slice",
        ] {
            assert!(Selector::cgroup(path).matches(&osd), "{path}");
        }
        for path in [
            "/system.slice/ceph-osd",
            "/user.slice",
            "/sys/fs/cgroup/user.slice",
        ] {
            assert!(!Selector::cgroup(path).matches(&osd), "{path}");
        }
        assert!(Selector::cgroup("/sys/fs/cgroup").matches(&osd));
    }

    /// Check children of children, a parent with a larger number, and this process's own parent.
    #[test]
    fn families() {
        let of = |pid, parent| Candidate {
            pid: Pid(pid),
            parent: Pid(parent),
            ..Candidate::default()
        };
        let all = [of(2, 9), of(9, 5), of(5, 1), of(7, 1), of(5, 5)];
        let pids = |list: &[i32]| list.iter().copied().map(Pid).collect::<BTreeSet<_>>();
        assert_eq!(descendants(&all, &pids(&[5])), pids(&[2, 9]));
        assert_eq!(descendants(&all, &pids(&[7])), pids(&[]));
        let me = std::process::id() as i32;
        assert!(processes().iter().all(|p| p.pid.0 != me && p.pid.0 > 0));
        assert!(candidate(me).is_some_and(|p| !p.args.is_empty()));
    }

    /// Check a server whose processes are all chosen, one of which only the children are, and a lone process.
    #[test]
    fn services_of_processes() {
        let of = |pid, parent, comm: &str| Candidate {
            pid: Pid(pid),
            parent: Pid(parent),
            comm: comm.to_owned(),
            ..Candidate::default()
        };
        let all = [
            of(10, 1, "postgres"),
            of(11, 10, "postgres"),
            of(20, 1, "postgres"),
            of(21, 20, "postgres"),
            of(22, 21, "postgres"),
            of(30, 1, "sh"),
            of(31, 30, "postgres"),
        ];
        let chosen = [10, 11, 21, 22, 31].map(Pid).into();
        let found = services(&all, &chosen);
        let expected = [(10, vec![10, 11]), (20, vec![21, 22]), (31, vec![31])];
        let expected =
            expected.map(|(root, pids)| (Pid(root), pids.into_iter().map(Pid).collect()));
        assert_eq!(found, BTreeMap::from(expected));
        let ring = [of(1, 2, "a"), of(2, 1, "a")];
        assert!(services(&ring, &[1, 2].map(Pid).into()).len() <= 2);
    }

    /// Check that a process which does not answer is a candidate by its name.
    #[test]
    fn no_answer() {
        let mut child = Command::new("cat").stdin(Stdio::piped()).spawn().unwrap();
        let pid = child.id() as i32;
        let (_never, wait) = channel::<()>();
        assert_eq!(
            with_deadline(Awaited::Lock(Pid(pid)), move || wait.recv().is_ok()),
            None
        );
        let found = candidate(pid);
        child.kill().unwrap();
        child.wait().unwrap();
        assert!(found.is_some_and(|p| p.comm == "cat" && p.args.is_empty()));
    }
}
