//! What can be read of one process: its memory, its files in `/proc`, its binaries.

use std::collections::BTreeSet;
use std::io;

use wcprof_types::{Mapping, Pid, StopCause};

use super::{ProbeLine, Subject};
use wcprof_host::counters::CephDaemon;
use wcprof_host::open::{LiveFiles, mapped_file};
use wcprof_host::procfs::{
    SyscallState, list_threads, live_task, parse_schedstat, parse_syscall, read_file, read_status,
    read_text, stopped_threads,
};
use wcprof_host::{Target, TargetError};
use wcprof_host::{read_memory, readable_address};

/// Binaries that are opened at most; a process with more is judged by these.
const MAX_BINARIES: usize = 256;

pub(super) fn lines(pid: Pid, target: &Result<Target, TargetError>) -> Vec<ProbeLine> {
    let mappings = match target {
        Ok(target) => target.mappings().map_err(|e| e.to_string()),
        Err(error) => Err(error.to_string()),
    };
    let mut lines = vec![stopped(pid)];
    match &mappings {
        Ok(mappings) => {
            lines.push(line(
                "maps",
                "address space",
                match mappings.n_left_out {
                    0 => format!("{} mappings", mappings.len()),
                    n => format!(
                        "{} mappings, and {n} that exceed a limit and are left out",
                        mappings.len()
                    ),
                },
            ));
            lines.push(memory(pid, mappings));
        }
        Err(error) => lines.push(
            line("maps", "address space", error.clone())
                .missing("no engine works; run as root, or give wcprof CAP_SYS_PTRACE"),
        ),
    }
    lines.extend([schedstat(pid), syscall(pid), kernel_stack(pid)]);
    if let Ok(mappings) = &mappings {
        lines.push(map_files(pid, mappings));
        lines.push(binaries(pid, mappings));
    }
    lines.push(namespace(pid));
    lines.extend(admin_socket(pid));
    lines
}

/// Only of a process that has one.
fn admin_socket(pid: Pid) -> Option<ProbeLine> {
    let daemon = CephDaemon::locate(pid).ok()?;
    let line = |detail: String| line("admin-socket", "Ceph's admin socket", detail);
    Some(match daemon.try_access() {
        Ok(()) => line(format!("attach --ceph can ask `{}`", daemon.path())),
        Err(error) => line(error.to_string()).limited(
            "attach --ceph gets no counters; run as root, give wcprof CAP_DAC_OVERRIDE, or run it as the daemon's user",
        ),
    })
}

fn line(id: &'static str, name: &'static str, detail: impl Into<String>) -> ProbeLine {
    ProbeLine::ok(Subject::Process, id, name, detail)
}

fn memory(pid: Pid, mappings: &[Mapping]) -> ProbeLine {
    let line = |detail: String| line("memory", "process_vm_readv", detail);
    let Some(address) = readable_address(mappings) else {
        return line("it has no readable mapping to try".into());
    };
    match read_memory(pid, address, &mut [0]) {
        Ok(_) => line("its memory can be read".into()),
        Err(error) => line(format!("its memory cannot be read: {}", error.desc())).missing(
            "no engine works: run as root or give wcprof CAP_SYS_PTRACE; see Yama and seccomp above",
        ),
    }
}

/// Whether its threads can run, or somebody stops them.
fn stopped(pid: Pid) -> ProbeLine {
    let line = |detail: String| line("stopped", "stopped threads", detail);
    let (causes, n_threads) = stopped_threads(pid);
    if causes.is_empty() {
        return line("none".into());
    }
    let ends: Vec<&str> = causes.keys().map(|cause| end_of(*cause)).collect();
    let ends = format!(
        "a recording shows them as stopped, and nothing else, until they go on: {}",
        ends.join(", ")
    );
    let causes = causes.into_iter().map(|(cause, threads)| {
        let stopper = threads
            .stopper
            .map_or(String::new(), |who| format!(", {who}"));
        format!("{} of {n_threads} {}{stopper}", threads.n, cause.text())
    });
    line(causes.collect::<Vec<_>>().join("; ")).limited(ends)
}

/// What lets stopped threads go on.
fn end_of(cause: StopCause) -> &'static str {
    match cause {
        StopCause::Signal => "SIGCONT",
        StopCause::Freezer => "a thawed group",
        StopCause::Debugger => "a detached debugger",
        StopCause::CoreDump => "the end of the dump, with which the process ends",
        StopCause::Other(_) => "unknown",
    }
}

fn task_file(pid: Pid, name: &str) -> String {
    let task = live_task(pid).unwrap_or(pid);
    format!("/proc/{pid}/task/{task}/{name}")
}

fn schedstat(pid: Pid) -> ProbeLine {
    let line = |detail: String| line("schedstat", "schedstat", detail);
    let tids = list_threads(pid).unwrap_or_default();
    let mut error = None;
    let mut n_read = 0;
    for tid in &tids {
        match read_text(pid, &format!("task/{tid}/schedstat")) {
            Ok(text) => {
                n_read += 1;
                if parse_schedstat(&text).is_some_and(|stat| stat.run_ns > 0 && stat.n_runs > 0) {
                    return line("exact run time, run-queue delay and switch counts".into());
                }
            }
            Err(e) => error = Some(e),
        }
    }
    match (error, n_read) {
        (_, 1..) => line("all zero: this kernel does not account it".into())
            .missing("the procfs engines have no times; a kernel with CONFIG_SCHED_INFO has them"),
        (Some(e), _) => line(format!(
            "failed to read `{}`: {e}",
            task_file(pid, "schedstat")
        ))
        .missing("the procfs engines do not work; bpf copies no stacks without it"),
        (None, _) => line("it has no threads that can be listed".into())
            .missing("no engine works; see hidepid above"),
    }
}

fn syscall(pid: Pid) -> ProbeLine {
    let file = task_file(pid, "syscall");
    let read = read_file(&file);
    syscall_line(&file, &read)
}

fn syscall_line(file: &str, read: &io::Result<String>) -> ProbeLine {
    let line = |detail: String| line("syscall", "syscall of threads", detail);
    match read {
        Ok(text) => match parse_syscall(text) {
            Some(SyscallState::Running) => line("readable; the thread that was asked runs".into()),
            Some(SyscallState::Blocked { .. }) => {
                line("readable: instruction and stack pointer of blocked threads".into())
            }
            None => line(format!("`{file}` has another form"))
                .missing("the procfs engines see no stacks; bpf does not need it"),
        },
        Err(e) if e.raw_os_error() == Some(libc::ESRCH) => {
            line("readable; the thread that was asked has exited".into())
        }
        Err(e) => line(format!("failed to read `{file}`: {e}")).missing(
            "the procfs engines do not work; bpf does not need it; another user's process needs \
             CAP_SYS_PTRACE and CAP_DAC_READ_SEARCH",
        ),
    }
}

fn kernel_stack(pid: Pid) -> ProbeLine {
    let line = |detail: String| line("kernel-stack", "kernel stack of threads", detail);
    match read_file(task_file(pid, "stack")) {
        Ok(_) => line("readable: where threads without a user stack wait".into()),
        Err(e) if e.raw_os_error() == Some(libc::ESRCH) => {
            line("the main thread has exited".into())
        }
        Err(e) => line(e.to_string()).limited(
            "threads without a user stack (io_uring workers, vhost) are shown by their wchan; \
             CAP_SYS_ADMIN gives the kernel stack",
        ),
    }
}

fn map_files(pid: Pid, mappings: &[Mapping]) -> ProbeLine {
    let line = |detail: String| line("map-files", "map_files", detail);
    let Some(mapping) = mappings.iter().find(|m| is_binary(m)) else {
        return line("it maps no binary".into());
    };
    match mapped_file(pid, mapping) {
        Ok(_) => line("mapped files are opened by mapping, not by name".into()),
        Err(error) if error.kind() == io::ErrorKind::NotFound => {
            line("the mapping that was tried has gone".into())
        }
        Err(error) => line(format!("that of `{}`: {error}", mapping.path)).limited(
            "files are opened by name and compared with memory; deleted or replaced ones need \
             CAP_CHECKPOINT_RESTORE or CAP_SYS_ADMIN",
        ),
    }
}

fn is_binary(mapping: &Mapping) -> bool {
    mapping.executable && mapping.path.starts_with('/')
}

fn binaries(pid: Pid, mappings: &[Mapping]) -> ProbeLine {
    let line = |detail: String| line("binaries", "binaries", detail);
    let files = LiveFiles::new(pid);
    let mut seen = BTreeSet::new();
    let (mut n_open, mut n_remote, mut errors) = (0, 0, Vec::new());
    for mapping in mappings.iter().filter(|m| is_binary(m)) {
        if !seen.insert(mapping.path.as_str()) || seen.len() > MAX_BINARIES {
            continue;
        }
        if files.may_hang(mapping) {
            n_remote += 1;
            continue;
        }
        match files.open_mapping(mapping) {
            Ok(_) => n_open += 1,
            Err(error) => errors.push(error.to_string()),
        }
    }
    let mut detail = format!("{n_open} can be opened");
    if n_remote > 0 {
        detail.push_str(&format!(
            ", {n_remote} on network file systems were not tried"
        ));
    }
    match errors.first() {
        None => line(detail),
        Some(first) => line(format!("{detail}, {} not: {first}", errors.len())).limited(
            "stacks through them are cut and they have no names; see map_files and \
             CAP_DAC_READ_SEARCH",
        ),
    }
}

fn namespace(pid: Pid) -> ProbeLine {
    let line = |detail: String| line("process-namespace", "its pid namespace", detail);
    match read_status(pid).map(|status| status.ns_pids) {
        Ok(pids) if pids.len() > 1 => line(format!(
            "a nested one, where it is pid {}; every engine works with pid {pid}",
            pids.last().copied().unwrap_or_default()
        )),
        _ => line("that of wcprof".into()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::probe::Verdict;

    /// Check what each form of the file means for the procfs engines.
    #[test]
    fn syscall_forms() {
        let verdict = |read: io::Result<&str>| syscall_line("f", &read.map(str::to_owned)).verdict;
        assert_eq!(verdict(Ok("running\n")), Verdict::Ok);
        assert_eq!(verdict(Ok("-1 0x10 0x20\n")), Verdict::Ok);
        assert_eq!(verdict(Ok("what\n")), Verdict::Missing);
        let error = |number| Err(io::Error::from_raw_os_error(number));
        assert_eq!(verdict(error(libc::EACCES)), Verdict::Missing);
        assert_eq!(verdict(error(libc::ESRCH)), Verdict::Ok);
    }
}
