//! Which processes of this machine are meant: by name, control group, virtual machine, OSD or parent.

use std::collections::BTreeSet;
use std::fs::{self, File};
use std::io::Read;
use std::path::Path;

use globset::GlobMatcher;
use wcprof_types::Pid;

use crate::procfs::parse_stat;

/// Bytes read of a command line or a list of control groups.
const MAX_TEXT: u64 = 1 << 16;
/// Where control groups are mounted.
const CGROUP_ROOT: &str = "/sys/fs/cgroup";

/// What is known of a process before it is a target. Not for output: the command line is as it is.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Candidate {
    /// Its pid.
    pub pid: Pid,
    /// The process that started it.
    pub parent: Pid,
    /// Its name, at most 15 bytes.
    pub comm: String,
    /// Its arguments.
    pub args: Vec<String>,
    /// Paths of its control groups, one for each hierarchy.
    pub cgroups: Vec<String>,
}

/// What to look for.
#[derive(Clone, Debug)]
pub enum Selector {
    /// Processes of this name, or whose program has it.
    Name(GlobMatcher),
    /// Processes in this control group or below it.
    Cgroup(String),
    /// The QEMU process of this virtual machine.
    Vm(String),
    /// The ceph-osd process with this id.
    Osd(String),
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
                    || process.program().is_some_and(|name| glob.is_match(name))
            }
            Self::Cgroup(path) => process.cgroups.iter().any(|cgroup| {
                is_below(cgroup, path)
                    // `/sys/fs/cgroup/cpu/a` names the hierarchy before the group (version 1).
                    || path
                        .trim_start_matches('/')
                        .split_once('/')
                        .is_some_and(|(_, rest)| is_below(cgroup, &format!("/{rest}")))
            }),
            Self::Vm(name) => process.vm_name().as_deref() == Some(name),
            Self::Osd(id) => process.osd_id() == Some(id),
        }
    }
}

fn is_below(cgroup: &str, path: &str) -> bool {
    let rest = cgroup.strip_prefix(path.trim_end_matches('/'));
    rest.is_some_and(|rest| rest.is_empty() || rest.starts_with('/'))
}

impl Candidate {
    /// File name of the program, by its first argument.
    fn program(&self) -> Option<&str> {
        let program = self.args.first()?;
        let name = program.rsplit('/').next().unwrap_or(program);
        // Daemons that rewrite their arguments: `nginx: worker process`.
        Some(name.split([' ', ':']).next().unwrap_or(name)).filter(|name| !name.is_empty())
    }

    fn is_program(&self, test: impl Fn(&str) -> bool) -> bool {
        test(&self.comm) || self.program().is_some_and(test)
    }

    /// The value of an option given as `-x VALUE`, `--xy VALUE` or `--xy=VALUE`.
    fn option(&self, names: &[&str]) -> Option<&str> {
        let mut args = self.args.iter().skip(1);
        while let Some(arg) = args.next() {
            for name in names {
                match arg.strip_prefix(name) {
                    Some("") => return args.next().map(String::as_str),
                    Some(rest) if name.starts_with("--") && rest.starts_with('=') => {
                        return rest.get(1..);
                    }
                    _ => {}
                }
            }
        }
        None
    }

    /// The virtual machine's name, if it is QEMU: `-name NAME` or `-name guest=NAME,...`.
    pub fn vm_name(&self) -> Option<String> {
        let is_qemu = self.is_program(|name| name.starts_with("qemu") || name.starts_with("kvm"));
        if !is_qemu {
            return None;
        }
        let value = self.option(&["-name", "--name"])?;
        qemu_options(value)
            .into_iter()
            .enumerate()
            .find_map(|(i, option)| {
                match option.split_once('=') {
                    Some(("guest", name)) => Some(name.to_owned()),
                    // The first one may lack its key.
                    None if i == 0 => Some(option),
                    _ => None,
                }
            })
    }

    /// The OSD's id, if it is ceph-osd: `--id N`, `-i N`, `--name osd.N`, `-n osd.N`.
    pub fn osd_id(&self) -> Option<&str> {
        if !self.is_program(|name| name == "ceph-osd") {
            return None;
        }
        self.option(&["--id", "-i"])
            .or_else(|| self.option(&["--name", "-n"])?.strip_prefix("osd."))
    }
}

/// Parts between commas; a doubled comma is one of the text.
fn qemu_options(value: &str) -> Vec<String> {
    let mut options = vec![String::new()];
    let mut chars = value.chars().peekable();
    while let Some(c) = chars.next() {
        if c == ',' && chars.next_if_eq(&',').is_none() {
            options.push(String::new());
        } else if let Some(last) = options.last_mut() {
            last.push(c);
        }
    }
    options
}

/// All processes but kernel threads, zombies and wcprof itself, by pid.
pub fn processes() -> Vec<Candidate> {
    let own = std::process::id();
    let entries = fs::read_dir("/proc").into_iter().flatten().flatten();
    let mut found: Vec<Candidate> = entries
        .filter_map(|entry| entry.file_name().to_str()?.parse().ok())
        .filter(|&pid: &i32| pid.cast_unsigned() != own)
        .filter_map(candidate)
        .collect();
    found.sort_by_key(|process| process.pid);
    found
}

fn candidate(pid: i32) -> Option<Candidate> {
    let text = |name: &str| -> Option<String> {
        let mut bytes = Vec::new();
        let file = File::open(format!("/proc/{pid}/{name}")).ok()?;
        file.take(MAX_TEXT).read_to_end(&mut bytes).ok()?;
        Some(String::from_utf8_lossy(&bytes).into_owned())
    };
    let stat = parse_stat(&text("stat")?)?;
    if stat.is_kernel_thread() || matches!(stat.state, 'Z' | 'X') {
        return None;
    }
    // What another user may not read has no arguments here and is found by its name alone.
    let args = text("cmdline").unwrap_or_default();
    let cgroups = text("cgroup").unwrap_or_default();
    Some(Candidate {
        pid: Pid(pid),
        parent: Pid(stat.parent),
        comm: stat.comm,
        args: args.split_terminator('\0').map(str::to_owned).collect(),
        cgroups: cgroups
            .lines()
            .filter_map(|line| Some(line.splitn(3, ':').nth(2)?.to_owned()))
            .collect(),
    })
}

/// The processes that these started, and those that they started, as far as they live.
pub fn descendants(processes: &[Candidate], of: &BTreeSet<Pid>) -> BTreeSet<Pid> {
    let mut found = of.clone();
    // A child may have a smaller number than its parent, where numbers began afresh.
    loop {
        let new: Vec<Pid> = processes
            .iter()
            .filter(|p| found.contains(&p.parent) && !found.contains(&p.pid))
            .map(|p| p.pid)
            .collect();
        if new.is_empty() {
            return found.difference(of).copied().collect();
        }
        found.extend(new);
    }
}

#[cfg(test)]
mod tests {
    use globset::Glob;

    use super::*;

    fn process(args: &[&str]) -> Candidate {
        Candidate {
            comm: "main".to_owned(),
            args: args.iter().map(|&a| a.to_owned()).collect(),
            ..Candidate::default()
        }
    }

    /// Check QEMU's names: short, with a key, among others, with a comma, and none.
    #[test]
    fn vm_names() {
        let name =
            |value: &str| process(&["/usr/bin/qemu-system-x86_64", "-name", value]).vm_name();
        assert_eq!(name("web").as_deref(), Some("web"));
        assert_eq!(name("guest=web,debug-threads=on").as_deref(), Some("web"));
        assert_eq!(name("debug-threads=on,guest=a,,b").as_deref(), Some("a,b"));
        assert_eq!(name("web,process=x").as_deref(), Some("web"));
        assert_eq!(name("debug-threads=on"), None);
        assert_eq!(
            process(&["/usr/libexec/qemu-kvm", "-m", "1G"]).vm_name(),
            None
        );
        let other = process(&["/usr/bin/vim", "-name", "web"]);
        assert_eq!(other.vm_name(), None);
        assert!(Selector::Vm("web".into()).matches(&process(&["qemu-kvm", "-name", "web"])));
    }

    /// Check the ways to give an OSD its id, and that another program's options are not taken.
    #[test]
    fn osd_ids() {
        for args in [
            &["/usr/bin/ceph-osd", "-f", "--cluster", "ceph", "--id", "12"][..],
            &["ceph-osd", "--id=12"],
            &["ceph-osd", "-i", "12", "-f"],
            &["ceph-osd", "-n", "osd.12"],
            &["ceph-osd", "--name=osd.12"],
        ] {
            assert_eq!(process(args).osd_id(), Some("12"), "{args:?}");
        }
        assert_eq!(process(&["ceph-osd", "--id"]).osd_id(), None);
        assert_eq!(process(&["ceph-osd", "--identity=12"]).osd_id(), None);
        assert_eq!(process(&["ceph-mon", "--id", "12"]).osd_id(), None);
        assert!(!Selector::Osd("1".into()).matches(&process(&["ceph-osd", "--id", "12"])));
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
}
