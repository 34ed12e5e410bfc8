//! The observed process: checks before attaching, its mappings, its end.

use std::os::fd::OwnedFd;
use std::time::{Duration, Instant};
use std::{fmt, io, thread};

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::process::{PidfdFlags, pidfd_open};
use thiserror::Error;
use wcprof_types::{Pid, REDACTED, process_title, redact_args};

use crate::clock::process_cpu_ns;
use crate::deadline::{Awaited, with_deadline};
use crate::procfs::{
    Mappings, TaskStat, cgroups, list_processes, live_folder, live_task, parse_stat, read_bytes,
    read_file, read_mappings, read_status, read_text,
};

/// How long a process may be in the middle of an `exec` before it is taken as it is.
const EXEC_PATIENCE: Duration = Duration::from_millis(100);

/// Why a process cannot be a target.
#[derive(Debug, Error)]
pub enum TargetError {
    /// `/proc/PID` does not exist.
    #[error("no process with pid {0}")]
    NoSuchProcess(Pid),
    /// The number exists inside another pid namespace only.
    #[error("no process with pid {pid} here; inside another pid namespace it is {}", list(.hosts))]
    OtherPidNamespace {
        /// The number given.
        pid: Pid,
        /// Pids here that have this number inside their namespace.
        hosts: Vec<Pid>,
    },
    /// It is a thread, not a process.
    #[error("{tid} is a thread of process {pid}")]
    IsThread {
        /// The number given.
        tid: Pid,
        /// Its process.
        pid: Pid,
    },
    /// A thread of the kernel has no user stacks.
    #[error("pid {0} is a kernel thread: it has no user stacks to sample")]
    KernelThread(Pid),
    /// It has exited and waits for its parent.
    #[error("pid {0} has exited and waits for its parent to notice (zombie)")]
    Zombie(Pid),
    /// 32-bit code.
    #[error("pid {0} runs 32-bit code: wcprof unwinds x86-64 only")]
    ThirtyTwoBit(Pid),
    /// It exists, but this `/proc` does not show it.
    #[error("pid {0} exists, but /proc hides it from this user (mount option hidepid)")]
    Hidden(Pid),
    /// Reading it is not permitted.
    #[error("not permitted to read {file}: {}", advice(.uid_differs))]
    NotPermitted {
        /// The file that was refused.
        file: String,
        /// The process belongs to another user.
        uid_differs: bool,
    },
    /// Anything else.
    #[error("failed to read `{file}`: {source}")]
    Io {
        /// The file.
        file: String,
        /// The error.
        source: io::Error,
    },
}

fn list(pids: &[Pid]) -> String {
    let names: Vec<String> = pids.iter().take(5).map(|p| format!("pid {p}")).collect();
    names.join(" or ")
}

fn advice(uid_differs: &bool) -> &'static str {
    if *uid_differs {
        "the process belongs to another user; run as root or with CAP_SYS_PTRACE and CAP_DAC_READ_SEARCH"
    } else {
        "it needs CAP_SYS_PTRACE (the process is not dumpable, has privileges or a user namespace that wcprof has not, or a security module forbids it)"
    }
}

impl TargetError {
    fn io(pid: Pid, file: String, source: io::Error, uid_differs: bool) -> Self {
        match source.raw_os_error() {
            Some(libc::ENOENT | libc::ESRCH) => Self::NoSuchProcess(pid),
            Some(libc::EACCES | libc::EPERM) => Self::NotPermitted { file, uid_differs },
            _ => Self::Io { file, source },
        }
    }
}

/// A live process that can be sampled.
#[derive(Debug)]
pub struct Target {
    pid: Pid,
    pidfd: OwnedFd,
    /// What makes it this process and this program, not a later one with its number.
    identity: Identity,
    comm: String,
    title: String,
    args: RawArgs,
    uid_differs: bool,
}

/// Arguments of a process, secrets among them, a zero byte after each: many short ones take no more than that. `Debug`
/// does not show them.
#[derive(Default)]
struct RawArgs(String);

impl fmt::Debug for RawArgs {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(REDACTED)
    }
}

/// Whether it is the same process with the same program.
impl PartialEq for Target {
    fn eq(&self, other: &Self) -> bool {
        (self.pid, self.identity) == (other.pid, other.identity)
    }
}

#[derive(Copy, Clone, PartialEq, Eq, Debug)]
struct Identity {
    start_ticks: u64,
    /// First address of the text, bottom of the stack.
    program: (u64, u64),
}

impl Identity {
    fn new(stat: &TaskStat) -> Self {
        Self {
            start_ticks: stat.start_ticks,
            program: (stat.start_code, stat.start_stack),
        }
    }

    /// Whether its program is there: it is the last that an `exec` sets (`load_elf_binary` in fs/binfmt_elf.c).
    fn has_text(self) -> bool {
        self.program.0 != 0
    }

    fn compare(self, now: Self) -> Liveness {
        match now.start_ticks == self.start_ticks {
            // The kernel shows no text for a main thread without memory, which has exited, alone or with all others (only
            // the pidfd shows which), and in the middle of an `exec`.
            true if now == self || !now.has_text() => Liveness::Same,
            true => Liveness::Exec,
            false => Liveness::Exited,
        }
    }
}

/// Whether the target is still what it was.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub enum Liveness {
    /// It is.
    Same,
    /// Another program runs in the same process.
    Exec,
    /// It has exited.
    Exited,
}

impl Target {
    /// Checks that a process which was asked for can be sampled at all. If it is not there, all others are searched for the
    /// reason.
    ///
    /// # Errors
    /// When it cannot.
    pub fn open(pid: Pid) -> Result<Self, TargetError> {
        Self::open_found(pid).map_err(|error| match error {
            TargetError::NoSuchProcess(_) if pid.0 > 0 => absent(pid),
            other => other,
        })
    }

    /// The same of one that was found: thousands a second can have exited by now.
    ///
    /// # Errors
    /// When it cannot be sampled, or has exited.
    pub fn open_found(pid: Pid) -> Result<Self, TargetError> {
        if pid.0 <= 0 {
            return Err(TargetError::NoSuchProcess(pid));
        }
        let file = format!("/proc/{pid}/status");
        let status = read_status(pid).map_err(|e| match TargetError::io(pid, file, e, false) {
            // Everybody may read this file, unless the mount hides it.
            TargetError::NotPermitted { .. } => TargetError::Hidden(pid),
            other => other,
        })?;
        if let Some(tgid) = status.tgid.filter(|&tgid| tgid != pid) {
            return Err(TargetError::IsThread {
                tid: pid,
                pid: tgid,
            });
        }
        let me = nix::unistd::geteuid().as_raw();
        let uid_differs = status.uids.is_some_and(|(_, uid)| uid != me);
        let stat = read_stat_after_exec(pid)?;
        if stat.is_kernel_thread() {
            return Err(TargetError::KernelThread(pid));
        }
        if live_task(pid).is_none() {
            return Err(TargetError::Zombie(pid));
        }
        let pidfd = open_pidfd(pid)
            .map_err(|e| TargetError::io(pid, format!("pidfd of {pid}"), e, uid_differs))?;
        let mut target = Self {
            pid,
            pidfd,
            identity: Identity::new(&stat),
            comm: stat.comm,
            title: String::new(),
            args: RawArgs::default(),
            uid_differs,
        };
        target.mappings()?;
        let args = read_args(pid);
        target.title = process_title(&target.comm, &args);
        target.args = RawArgs(args.into_iter().map(|a| a + "\0").collect());
        target.refuse_32_bit()?;
        Ok(target)
    }

    /// By the vector that the kernel gave the program: opening the program's file may wait for its server.
    fn refuse_32_bit(&self) -> Result<(), TargetError> {
        let vector =
            read_bytes(format!("{}/auxv", live_folder(self.pid)), 4096).unwrap_or_default();
        match is_32_bit(&vector) {
            true => Err(TargetError::ThirtyTwoBit(self.pid)),
            false => Ok(()),
        }
    }

    /// When it was started, in clock ticks since boot.
    pub fn started(&self) -> u64 {
        self.identity.start_ticks
    }

    /// Its pid.
    pub fn pid(&self) -> Pid {
        self.pid
    }

    /// Its name when it was opened.
    pub fn comm(&self) -> &str {
        &self.comm
    }

    /// What a user called it when it was opened: `osd.3`, the name of a virtual machine; else its name.
    pub fn title(&self) -> &str {
        &self.title
    }

    /// Of its command line when it was opened what a trace keeps ([`redact_args`]), arguments apart. Empty when it could
    /// not be read.
    pub fn cmdline(&self) -> Vec<String> {
        redact_args(&self.comm, &self.full_cmdline())
    }

    /// Its command line when it was opened with all secrets, arguments apart; at most 64 KiB of it.
    pub fn full_cmdline(&self) -> Vec<String> {
        split_args(&self.args.0)
    }

    /// Which process it is, of all that ever had its pid: the boot id of its kernel, a space, and its start in
    /// clock ticks since boot. Empty when the kernel does not give its boot id.
    pub fn birth(&self) -> String {
        let boot = read_file("/proc/sys/kernel/random/boot_id").unwrap_or_default();
        match boot.trim() {
            "" => String::new(),
            boot => format!("{boot} {}", self.identity.start_ticks),
        }
    }

    /// The path of its control group, relative to the root of wcprof's own cgroup namespace:
    /// that of the unified hierarchy, or where the process is in its root (or there is none) the
    /// longest of the others; empty when it cannot be read.
    pub fn cgroup(&self) -> String {
        let groups = read_file(format!("{}/cgroup", live_folder(self.pid)));
        cgroup_path(&groups.unwrap_or_default()).to_owned()
    }

    /// Its mappings. Another thread waits for their lock, which the target can hold for ever.
    pub fn mappings(&self) -> Result<Mappings, TargetError> {
        let pid = self.pid;
        let read = with_deadline(Awaited::Lock(pid), move || read_mappings(pid));
        self.checked(read.unwrap_or_else(|| Err(io::ErrorKind::TimedOut.into())))
    }

    /// The same on this thread, however long it takes.
    pub fn mappings_now(&self) -> Result<Mappings, TargetError> {
        self.checked(read_mappings(self.pid))
    }

    fn checked(&self, read: io::Result<Mappings>) -> Result<Mappings, TargetError> {
        read.map_err(|error| {
            TargetError::io(
                self.pid,
                format!("/proc/{}/maps", self.pid),
                error,
                self.uid_differs,
            )
        })
    }

    /// Whether it has exited (all of its threads).
    pub fn has_exited(&self) -> bool {
        let mut fds = [PollFd::new(&self.pidfd, PollFlags::IN)];
        poll(&mut fds, Some(&Timespec::default())).is_ok_and(|n| n > 0)
    }

    /// Whether it still runs the same program.
    pub fn liveness(&self) -> Liveness {
        if self.has_exited() {
            return Liveness::Exited;
        }
        match read_stat(self.pid) {
            Ok(stat) => self.identity.compare(Identity::new(&stat)),
            Err(TargetError::NoSuchProcess(_)) => Liveness::Exited,
            // Not readable for the moment (it changes its credentials): keep going.
            Err(_) => Liveness::Same,
        }
    }

    /// CPU time of all its threads, exited ones included, ns; exact at the moment of the call.
    pub fn cpu_ns(&self) -> Option<u64> {
        process_cpu_ns(self.pid).ok()
    }
}

/// What the kernel says of a process, not in the middle of an `exec`, when it has no arguments yet.
fn read_stat_after_exec(pid: Pid) -> Result<TaskStat, TargetError> {
    let began = Instant::now();
    loop {
        let stat = read_stat(pid)?;
        let is_between = !stat.is_kernel_thread() && !Identity::new(&stat).has_text();
        if !is_between || live_task(pid) != Some(pid) || began.elapsed() > EXEC_PATIENCE {
            return Ok(stat);
        }
        thread::sleep(Duration::from_millis(1));
    }
}

/// Whether an auxiliary vector (`getauxval(3)`) is that of a 32-bit program: pairs of 32-bit numbers, with the size of
/// a program header of that class.
fn is_32_bit(vector: &[u8]) -> bool {
    const AT_PHENT: u64 = 4;
    let (long, _) = vector.as_chunks::<8>();
    let (short, _) = vector.as_chunks::<4>();
    let long = long.iter().map(|bytes| u64::from_ne_bytes(*bytes));
    let short = short.iter().map(|bytes| u32::from_ne_bytes(*bytes).into());
    let header_bytes = |numbers: Vec<u64>| {
        let (pairs, _) = numbers.as_chunks::<2>();
        pairs
            .iter()
            .find(|[key, _]| *key == AT_PHENT)
            .map(|[_, n]| *n)
    };
    let is_64_bit = header_bytes(long.collect()) == Some(56);
    !is_64_bit && header_bytes(short.collect()) == Some(32)
}

fn read_stat(pid: Pid) -> Result<TaskStat, TargetError> {
    let failed = |e| TargetError::io(pid, format!("/proc/{pid}/stat"), e, false);
    let text = read_text(pid, "stat").map_err(failed)?;
    parse_stat(&text).ok_or_else(|| failed(io::Error::other("unexpected form")))
}

/// The arguments of a process, secrets among them; at most 64 KiB. None when they cannot be read. Another thread
/// waits for the lock of its memory, which it can hold for ever.
pub(crate) fn read_args(pid: Pid) -> Vec<String> {
    let read = move || read_file(format!("{}/cmdline", live_folder(pid))).ok();
    let read = with_deadline(Awaited::Lock(pid), read);
    split_args(&read.flatten().unwrap_or_default())
}

fn split_args(text: &str) -> Vec<String> {
    text.split_terminator('\0').map(str::to_owned).collect()
}

/// A descriptor of a process, which becomes readable when the whole thread group has exited.
fn open_pidfd(pid: Pid) -> io::Result<OwnedFd> {
    let pid = rustix::process::Pid::from_raw(pid.0).ok_or(io::ErrorKind::NotFound)?;
    Ok(pidfd_open(pid, PidfdFlags::empty())?)
}

/// Why a pid is absent: hidden, of another pid namespace, or of no process.
fn absent(pid: Pid) -> TargetError {
    // A process that this call finds is there.
    if open_pidfd(pid).is_ok() && read_status(pid).is_err() {
        return TargetError::Hidden(pid);
    }
    let has_it_inside = |host: &Pid| {
        read_status(*host)
            .is_ok_and(|status| status.ns_pids.len() > 1 && status.ns_pids.last() == Some(&pid.0))
    };
    let hosts = list_processes().into_iter().map(Pid);
    let hosts: Vec<Pid> = hosts.filter(has_it_inside).collect();
    match hosts.is_empty() {
        true => TargetError::NoSuchProcess(pid),
        false => TargetError::OtherPidNamespace { pid, hosts },
    }
}

/// Of the lines of `/proc/PID/cgroup` the path that says most.
fn cgroup_path(lines: &str) -> &str {
    let unified =
        cgroups(lines).find(|(controllers, path)| controllers.is_empty() && path.len() > 1);
    // Of several as long, the first.
    let longest = || cgroups(lines).rev().max_by_key(|(_, path)| path.len());
    unified.or_else(longest).map_or("", |(_, path)| path)
}

#[cfg(test)]
mod tests {
    use std::io::Read;
    use std::os::unix::process::CommandExt;

    use super::*;

    /// Check that this process is a target and is alive and the same.
    #[test]
    fn own_process() {
        let target = Target::open(Pid(std::process::id() as i32)).unwrap();
        assert_eq!(target.liveness(), Liveness::Same);
        assert!(target.cpu_ns().unwrap() > 0);
        assert!(!target.mappings().unwrap().is_empty());
        assert!(!target.cmdline().is_empty());
    }

    /// Check the vectors of programs of both classes, and of none.
    #[test]
    fn class() {
        let vector = read_bytes("/proc/self/auxv", 4096).unwrap();
        assert!(!is_32_bit(&vector));
        let pairs: [u32; 8] = [32, 0xf7f1_2550, 3, 0x5655_6034, 4, 32, 0, 0];
        assert!(is_32_bit(pairs.map(u32::to_ne_bytes).as_flattened()));
        assert!(!is_32_bit(&vector[..vector.len().min(5)]));
        assert!(!is_32_bit(&[]));
    }

    /// Check what another program, another process and a main thread that has exited are taken for.
    #[test]
    fn identities() {
        let identity = |start_ticks, start_code, start_stack| Identity {
            start_ticks,
            program: (start_code, start_stack),
        };
        let before = identity(7, 0x1000, 0x7fff_0000);
        assert_eq!(before.compare(before), Liveness::Same);
        let exec = before.compare(identity(7, 0x2000, 0x7fff_8000));
        assert_eq!(exec, Liveness::Exec);
        assert_eq!(before.compare(identity(7, 0, 0)), Liveness::Same);
        // The new program's stack is there, its text is not yet.
        assert_eq!(before.compare(identity(7, 0, 0x7fff_9000)), Liveness::Same);
        assert_eq!(before.compare(identity(8, 0, 0)), Liveness::Exited);
    }

    /// Check that the unified hierarchy comes first, and one of version 1 where it is empty.
    #[test]
    fn cgroup_paths() {
        let v2 = "0::/system.slice/ceph-osd@3.service\n";
        assert_eq!(cgroup_path(v2), "/system.slice/ceph-osd@3.service");
        let hybrid = "5:cpu,cpuacct:/docker/ab\n1:name=systemd:/docker/ab:c\n0::/\n";
        assert_eq!(cgroup_path(hybrid), "/docker/ab:c");
        assert_eq!(cgroup_path("0::/\n"), "/");
        assert_eq!(cgroup_path("what\n:"), "");
    }

    /// Check the errors for numbers that no process has.
    #[test]
    fn absent_pids() {
        for pid in [0, -1, i32::MAX] {
            let error = Target::open(Pid(pid)).unwrap_err();
            assert!(matches!(error, TargetError::NoSuchProcess(_)), "{error}");
        }
    }

    /// Check that a thread id is refused with its process named.
    #[test]
    fn thread_id() {
        thread::spawn(|| {
            let tid = Pid(nix::unistd::gettid().as_raw());
            let error = Target::open(tid).unwrap_err();
            assert!(matches!(error, TargetError::IsThread { .. }), "{error}");
        })
        .join()
        .unwrap();
    }

    /// Check that an exited child is noticed, is a zombie to a newcomer, and has the title and arguments that it had.
    #[test]
    fn exited_child() {
        let mut child = std::process::Command::new("sh")
            .arg0("/usr/bin/ceph-osd")
            .args(["-c", "echo; read line", "--id", "3", "--key=AQ=="])
            .stdin(std::process::Stdio::piped())
            .stdout(std::process::Stdio::piped())
            .spawn()
            .unwrap();
        let pid = Pid(child.id() as i32);
        // It has its arguments a while after `spawn` returns.
        let ran = child.stdout.as_mut().unwrap().read(&mut [0]).unwrap();
        assert_eq!(ran, 1);
        let target = Target::open(pid).unwrap();
        assert_eq!(target.title(), "osd.3");
        drop(child.stdin.take());
        // Waits for the exit without reaping it.
        poll(&mut [PollFd::new(&target.pidfd, PollFlags::IN)], None).unwrap();
        assert_eq!(target.liveness(), Liveness::Exited);
        assert!(matches!(Target::open(pid), Err(TargetError::Zombie(_))));
        assert_eq!(target.title(), "osd.3");
        assert_eq!(target.cmdline()[3..], ["--id", "3", "--key=***"]);
        assert_eq!(target.full_cmdline()[5..], ["--key=AQ=="]);
        let shown = format!("{target:?}");
        assert!(!shown.contains("AQ=="), "{shown}");
        child.wait().unwrap();
    }
}
