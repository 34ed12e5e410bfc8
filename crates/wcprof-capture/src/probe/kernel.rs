//! What the kernel offers and what restricts it: BPF, perf, and the settings that explain a refusal.

use std::fs;
use std::io::Read;

use wcprof_types::{Pid, Tid};

use super::{ProbeLine, Subject, Verdict};
use crate::sampler::DUMP_BYTES;
use crate::sys;
use wcprof_host::procfs::{Status, open, own_status, read_file};
use wcprof_host::sys::{CAP_BPF, CAP_SYS_ADMIN, CAP_SYS_PTRACE};
use wcprof_perf::{
    CpuPolicy, PerfOptions, PerfSampler, online_cpus, perf_event_open_reaches_kernel,
};

/// `PROC_PID_INIT_INO` and `PROC_USER_INIT_INO` of `include/linux/proc_ns.h`: numbers of the first
/// namespaces, the same on every machine.
const FIRST_PID_NS: &str = "pid:[4026531836]";
const FIRST_USER_NS: &str = "user:[4026531837]";

/// Settings of the machine and of wcprof, read once. A text that could not be read is `None`.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub(super) struct Machine {
    pub(super) status: Status,
    pub(super) paranoid: Option<String>,
    pub(super) mlock_kb: Option<String>,
    pub(super) yama: Option<String>,
    pub(super) lockdown: Option<String>,
    pub(super) mountinfo: Option<String>,
    pub(super) pid_ns: Option<String>,
    pub(super) user_ns: Option<String>,
    pub(super) n_cpus: usize,
    /// `RLIMIT_NOFILE` and `RLIMIT_MEMLOCK`, soft and hard.
    pub(super) open_files: (u64, u64),
    pub(super) locked_memory: (u64, u64),
}

impl Machine {
    pub(super) fn read() -> Self {
        use nix::sys::resource::{Resource, getrlimit};
        let text = |path: &str| {
            let text = read_file(path).ok()?;
            Some(text.trim().to_owned())
        };
        let link = |path: &str| {
            let link = fs::read_link(path).ok()?;
            Some(link.to_string_lossy().into_owned())
        };
        let limit = |resource| getrlimit(resource).unwrap_or((0, 0));
        Self {
            status: own_status(),
            paranoid: text("/proc/sys/kernel/perf_event_paranoid"),
            mlock_kb: text("/proc/sys/kernel/perf_event_mlock_kb"),
            yama: text("/proc/sys/kernel/yama/ptrace_scope"),
            lockdown: text("/sys/kernel/security/lockdown"),
            mountinfo: text("/proc/self/mountinfo"),
            pid_ns: link("/proc/self/ns/pid"),
            user_ns: link("/proc/self/ns/user"),
            n_cpus: online_cpus().len().max(1),
            open_files: limit(Resource::RLIMIT_NOFILE),
            locked_memory: limit(Resource::RLIMIT_MEMLOCK),
        }
    }

    /// Whether capabilities count inside a user namespace alone.
    pub(super) fn in_nested_user_ns(&self) -> bool {
        self.user_ns
            .as_deref()
            .is_some_and(|ns| ns != FIRST_USER_NS)
    }

    /// Whether wcprof holds a capability, by number.
    pub(super) fn has(&self, capability: u32) -> bool {
        self.status.cap_eff >> capability & 1 == 1
    }
}

pub(super) fn lines(pid: Pid, machine: &Machine) -> Vec<ProbeLine> {
    let per_cpu = per_cpu_timer();
    let per_cpu_works = per_cpu.verdict == Verdict::Ok;
    let mut lines = vec![btf()];
    lines.extend(super::bpf::lines());
    lines.extend([
        per_cpu,
        per_thread_timer(pid),
        paranoid(machine, per_cpu_works),
        lockdown(machine),
        yama(machine),
        seccomp(machine),
        hidepid(machine),
        user_namespace(machine),
        pid_namespace(machine),
    ]);
    lines
}

fn line(id: &'static str, name: &'static str, detail: impl Into<String>) -> ProbeLine {
    ProbeLine::ok(Subject::Kernel, id, name, detail)
}

fn btf() -> ProbeLine {
    let path = "/sys/kernel/btf/vmlinux";
    let line = |detail: String| line("btf", "BTF type information", detail);
    let mut magic = [0; 2];
    let read = open(path).and_then(|mut file| file.read_exact(&mut magic));
    match read {
        // BTF_MAGIC, little-endian.
        Ok(()) if magic == [0x9f, 0xeb] => line(format!("`{path}` is readable")),
        Ok(()) => line(format!("`{path}` has another format"))
            .missing("the engine bpf needs a kernel whose BTF is version 1"),
        Err(e) => line(format!("failed to read `{path}`: {e}")).missing(
            "the engine bpf needs a kernel built with CONFIG_DEBUG_INFO_BTF and a mounted sysfs",
        ),
    }
}

fn timer_options() -> PerfOptions<'static> {
    PerfOptions {
        period_ns: 10_000_000,
        dump_bytes: DUMP_BYTES,
        kernel_stacks: false,
        filter: None,
        max_events: 4096,
        policy: CpuPolicy::default(),
    }
}

/// With registers and stack dump, in the kernel too, and its ring mapped.
fn per_cpu_timer() -> ProbeLine {
    let line = |detail: String| line("perf-per-cpu", "perf timer per CPU", detail);
    match PerfSampler::per_cpu(&timer_options(), &online_cpus()) {
        Ok(_) => line("opened on every CPU, with user registers and stack dump".into()),
        Err(e) => line(e.to_string()).limited(
            "a timer per thread is used if that works; CAP_PERFMON (or kernel.perf_event_paranoid \
             = -1) gives one per CPU",
        ),
    }
}

fn per_thread_timer(pid: Pid) -> ProbeLine {
    let line = |detail: String| line("perf-per-thread", "perf timer per thread", detail);
    match PerfSampler::per_thread(&timer_options(), &[Tid(pid.0)]) {
        Ok(perf) if perf.sees_kernel() => {
            line("opened, with user registers and stack dump, in the kernel too".into())
        }
        Ok(_) => line("opened, with user registers and stack dump, in user mode alone".into())
            .limited(
                "time in the kernel has no samples and is shown as `[on-cpu, not sampled]`; it \
                 needs CAP_PERFMON or kernel.perf_event_paranoid <= 1",
            ),
        Err(e) => line(e.to_string())
            .missing("needed where there is no timer per CPU; else only procfs-only works"),
    }
}

fn paranoid(machine: &Machine, per_cpu_works: bool) -> ProbeLine {
    let line = |detail: String| line("perf-event-paranoid", "perf_event_paranoid", detail);
    let Some(value) = &machine.paranoid else {
        return line("kernel.perf_event_paranoid cannot be read".into()).missing(
            "this kernel has no perf events, or /proc/sys is hidden; only procfs-only works then",
        );
    };
    let number: i32 = value.parse().unwrap_or(i32::MAX);
    match number {
        _ if per_cpu_works => line(format!("{value}; it does not restrict wcprof here")),
        ..=-1 => line(value.clone()),
        0..=2 => line(format!(
            "{value}: timers per thread, for processes that this user may trace"
        ))
        .limited(if number == 2 {
            "they see user mode alone; `sysctl kernel.perf_event_paranoid=1` adds the \
                 kernel, -1 or CAP_PERFMON adds timers per CPU"
        } else {
            "`sysctl kernel.perf_event_paranoid=-1` or CAP_PERFMON adds timers per CPU"
        }),
        _ => line(format!("{value}: no timers without CAP_PERFMON")).missing(
            "`sysctl kernel.perf_event_paranoid=2`, or CAP_PERFMON; until then procfs-only works",
        ),
    }
}

fn lockdown(machine: &Machine) -> ProbeLine {
    let line = |detail: String| line("lockdown", "kernel lockdown", detail);
    let Some(text) = &machine.lockdown else {
        return line("not set, or hidden: `/sys/kernel/security/lockdown` cannot be read".into());
    };
    let mode = text
        .split_once('[')
        .and_then(|(_, rest)| rest.split_once(']'))
        .map_or("unknown", |(mode, _)| mode);
    if mode == "confidentiality" {
        return line(format!("mode `{mode}`: BPF may not read kernel memory")).limited(
            "no engine bpf; procfs works; it can only be left by a reboot with other boot settings",
        );
    }
    line(format!("mode `{mode}`, which does not restrict wcprof"))
}

fn yama(machine: &Machine) -> ProbeLine {
    let line = |detail: String| line("yama", "Yama ptrace_scope", detail);
    let ptrace = machine.has(CAP_SYS_PTRACE);
    let Some(scope) = &machine.yama else {
        return line("not set".into());
    };
    match (scope.as_str(), ptrace) {
        ("0", _) => line("0: every process of the same user can be read".into()),
        ("1" | "2", true) => line(format!("{scope}; CAP_SYS_PTRACE passes it")),
        ("1", false) => line("1: only own descendants can be read".into()).limited(
            "run as root, give wcprof CAP_SYS_PTRACE, or `sysctl kernel.yama.ptrace_scope=0`",
        ),
        ("2", false) => line("2: no process can be read without CAP_SYS_PTRACE".into())
            .missing("run as root or with CAP_SYS_PTRACE; no engine works without"),
        _ => line(format!("{scope}: no process can be read by any other"))
            .missing("no engine works; 3 can only be left by a reboot"),
    }
}

fn seccomp(machine: &Machine) -> ProbeLine {
    let line = |detail: String| line("seccomp", "seccomp filter", detail);
    if machine.status.seccomp == 0 {
        return line("none".into());
    }
    // Without the capability the kernel gives the same answer as a filter.
    let may_bpf = machine.has(CAP_BPF) || machine.has(CAP_SYS_ADMIN);
    let bpf = sys::bpf_reaches_kernel().or(may_bpf.then_some(false));
    let calls = [
        ("bpf", bpf, "no engine bpf"),
        (
            "perf_event_open",
            Some(perf_event_open_reaches_kernel()),
            "no timers: only procfs-only works",
        ),
        (
            "process_vm_readv",
            Some(sys::process_vm_readv_reaches_kernel()),
            "no engine works",
        ),
    ];
    seccomp_line(&calls).unwrap_or_else(|| {
        line("a filter is in force; it lets pass what wcprof calls, as far as can be told".into())
    })
}

fn seccomp_line(calls: &[(&str, Option<bool>, &str)]) -> Option<ProbeLine> {
    let refused: Vec<_> = calls.iter().filter(|c| c.1 == Some(false)).collect();
    let unknown: Vec<&str> = calls
        .iter()
        .filter(|c| c.1.is_none())
        .map(|c| c.0)
        .collect();
    let line = |detail: String| line("seccomp", "seccomp filter", detail);
    if refused.is_empty() && unknown.is_empty() {
        return None;
    }
    if refused.is_empty() {
        let detail = format!(
            "a filter is in force; whether it refuses {} cannot be told",
            unknown.join(", ")
        );
        return Some(line(detail).limited("the kernel refuses it to wcprof in any case"));
    }
    let names: Vec<&str> = refused.iter().map(|c| c.0).collect();
    let losses: Vec<&str> = refused.iter().map(|c| c.2).collect();
    Some(
        line(format!("a filter refuses {}", names.join(", "))).missing(format!(
            "{}; allow them in the container's or service's seccomp profile, or run wcprof on the \
             host",
            losses.join("; ")
        )),
    )
}

fn hidepid(machine: &Machine) -> ProbeLine {
    let line = |detail: String| line("hidepid", "hidepid of /proc", detail);
    let option = machine.mountinfo.as_deref().and_then(hidepid_option);
    match option.as_deref() {
        None | Some("0" | "off") => line("not set".into()),
        Some(value) if machine.has(CAP_SYS_PTRACE) => {
            line(format!("{value}; CAP_SYS_PTRACE passes it"))
        }
        Some(value) => line(format!("{value}: processes of other users are hidden")).limited(
            "processes of this user work with every engine; for others run as root, or join the \
             group of the mount option gid=",
        ),
    }
}

/// The value of `hidepid` of what is mounted on `/proc` last (proc_pid_mountinfo(5)).
fn hidepid_option(mountinfo: &str) -> Option<String> {
    let mut found = None;
    for line in mountinfo.lines() {
        let Some((mount, file_system)) = line.split_once(" - ") else {
            continue;
        };
        let mut fields = file_system.split(' ');
        let kind = fields.next();
        if mount.split(' ').nth(4) != Some("/proc") || kind != Some("proc") {
            continue;
        }
        let options = fields.nth(1).unwrap_or_default();
        found = options
            .split(',')
            .find_map(|option| option.strip_prefix("hidepid="))
            .map(str::to_owned);
    }
    found
}

fn user_namespace(machine: &Machine) -> ProbeLine {
    let line = |detail: String| line("user-namespace", "user namespace", detail);
    match machine.in_nested_user_ns() {
        false => line("the first one: capabilities count everywhere".into()),
        true => line("nested: capabilities count inside it alone".into()).limited(
            "no engine bpf, no timers per CPU, no map_files; for those run wcprof outside, or in \
             a container that shares the host's user namespace",
        ),
    }
}

fn pid_namespace(machine: &Machine) -> ProbeLine {
    let line = |detail: String| line("pid-namespace", "pid namespace", detail);
    match machine.pid_ns.as_deref() {
        Some(FIRST_PID_NS) => line("the first one: every process can be named".into()),
        _ => line("nested: processes outside it have no pid here".into()).limited(
            "every engine works for the processes inside; for others run wcprof on the host, or \
             in a container with --pid=host",
        ),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn with(set: impl FnOnce(&mut Machine)) -> Machine {
        let mut machine = Machine::default();
        set(&mut machine);
        machine
    }

    /// Check every value of Yama's setting, with and without the capability that passes it.
    #[test]
    fn yama_scopes() {
        let verdict = |scope: &str, caps| {
            yama(&with(|m| {
                m.yama = Some(scope.to_owned());
                m.status.cap_eff = caps;
            }))
            .verdict
        };
        let ptrace = 1 << CAP_SYS_PTRACE;
        assert_eq!(["0", "1", "2", "3"].map(|s| verdict(s, 0)), {
            use Verdict::{Limited, Missing, Ok};
            [Ok, Limited, Missing, Missing]
        });
        assert_eq!(["1", "2"].map(|s| verdict(s, ptrace)), [Verdict::Ok; 2]);
        assert_eq!(verdict("3", ptrace), Verdict::Missing);
        assert_eq!(yama(&Machine::default()).verdict, Verdict::Ok);
    }

    /// Check that each value of the sysctl says what it leaves, and that a working timer wins.
    #[test]
    fn paranoid_values() {
        let verdict = |value: &str, works| {
            paranoid(&with(|m| m.paranoid = Some(value.to_owned())), works).verdict
        };
        assert_eq!(verdict("-1", false), Verdict::Ok);
        assert_eq!(verdict("1", false), Verdict::Limited);
        assert_eq!(verdict("2", false), Verdict::Limited);
        assert_eq!(verdict("4", false), Verdict::Missing);
        assert_eq!(verdict("4", true), Verdict::Ok);
        assert_eq!(
            paranoid(&Machine::default(), true).verdict,
            Verdict::Missing
        );
    }

    /// Check the lockdown modes.
    #[test]
    fn lockdown_modes() {
        let found = |text: &str| lockdown(&with(|m| m.lockdown = Some(text.to_owned())));
        assert_eq!(
            found("none [integrity] confidentiality").verdict,
            Verdict::Ok
        );
        let worst = found("none integrity [confidentiality]");
        assert_eq!(worst.verdict, Verdict::Limited);
        assert!(worst.advice.contains("procfs works"));
        assert!(found("").detail.contains("unknown"));
    }

    /// Check that the option is found in the mount that covers others, and nowhere else.
    #[test]
    fn hidepid_of_mounts() {
        let plain = "22 27 0:21 / /proc rw,relatime - proc proc rw\n";
        let hidden = "90 22 0:50 / /proc rw shared:5 - proc proc rw,gid=4,hidepid=invisible\n";
        let other = "91 27 0:51 / /mnt/proc rw - proc proc rw,hidepid=2\n";
        assert_eq!(hidepid_option(plain), None);
        assert_eq!(
            hidepid_option(&format!("{plain}{hidden}{other}")).as_deref(),
            Some("invisible")
        );
        assert_eq!(hidepid_option(&format!("{hidden}{plain}")), None);
        assert_eq!(hidepid_option("a - b\n - proc\n\n"), None);
        let machine = with(|m| m.mountinfo = Some(hidden.to_owned()));
        assert_eq!(hidepid(&machine).verdict, Verdict::Limited);
    }

    /// Check that a refused call names what is lost, and an ambiguous one is not blamed.
    #[test]
    fn seccomp_calls() {
        let line = |bpf, perf| {
            seccomp_line(&[
                ("bpf", bpf, "no engine bpf"),
                ("perf_event_open", perf, "no timers"),
            ])
        };
        assert_eq!(line(Some(true), Some(true)), None);
        let refused = line(None, Some(false)).unwrap();
        assert_eq!(refused.verdict, Verdict::Missing);
        assert!(refused.detail.ends_with("refuses perf_event_open"));
        assert!(refused.advice.starts_with("no timers;"));
        assert_eq!(line(None, Some(true)).unwrap().verdict, Verdict::Limited);
    }

    /// Check namespaces that are not the machine's first ones.
    #[test]
    fn namespaces() {
        let first = with(|m| {
            m.pid_ns = Some(FIRST_PID_NS.to_owned());
            m.user_ns = Some(FIRST_USER_NS.to_owned());
        });
        let nested = with(|m| {
            m.pid_ns = Some("pid:[4026532837]".to_owned());
            m.user_ns = Some("user:[4026532836]".to_owned());
        });
        assert_eq!(user_namespace(&first).verdict, Verdict::Ok);
        assert_eq!(pid_namespace(&first).verdict, Verdict::Ok);
        assert_eq!(user_namespace(&nested).verdict, Verdict::Limited);
        assert_eq!(pid_namespace(&nested).verdict, Verdict::Limited);
    }
}
