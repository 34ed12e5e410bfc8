//! Text files of `/proc/PID`, read and parsed.

mod groups;
mod listing;
mod live_task;
mod maps;
mod stat;
mod status;
mod stopped;
mod syscall;
mod text;

pub(crate) use groups::cgroups;
pub use listing::{list_processes, list_threads, thread_name};
pub(crate) use live_task::find_live_task;
pub use live_task::{live_folder, live_task};
pub(crate) use maps::parse_mappings;
pub use maps::{Mappings, read_mappings};
pub use stat::{SchedStat, TaskStat, has_ended, parse_schedstat, parse_stat, parse_task_state};
pub use status::{NamespacePids, Status, parse_status};
pub(crate) use stopped::StoppedTask;
pub use stopped::{
    Freezer, StoppedThreads, freezer_group, has_freezer_groups, stop_cause, stopped,
    stopped_threads,
};
pub use syscall::{SyscallState, parse_syscall};
pub use text::{line_buffer, open, read_bytes, read_file, read_line, read_line_bytes, read_text};

use std::io;

use wcprof_types::{Pid, Tid};

/// Reads and parses `/proc/PID/status`.
pub fn read_status(pid: Pid) -> io::Result<Status> {
    Ok(parse_status(&read_text(pid, "status")?))
}

/// The same of wcprof itself; where that cannot be read, nothing.
pub fn own_status() -> Status {
    parse_status(&read_file("/proc/self/status").unwrap_or_default())
}

/// Resident memory of wcprof itself, now and at most, bytes.
pub fn own_rss() -> (u64, u64) {
    own_status().rss
}

/// State letter of a task (`proc(5)`), whose folder below `/proc` this is: `77`, `self/task/78`.
pub fn task_state(folder: &str) -> Option<char> {
    let stat = read_file(format!("/proc/{folder}/stat")).ok()?;
    Some(parse_stat(&stat)?.state)
}

/// Whether a task runs or waits for a CPU; see [`task_state`].
pub(crate) fn is_runnable(folder: &str) -> bool {
    task_state(folder) == Some('R')
}

/// Whether a thread of a process runs or waits for a CPU.
pub fn has_runnable_thread(pid: Pid) -> bool {
    let tids = list_threads(pid).unwrap_or_default();
    tids.iter()
        .any(|tid| is_runnable(&format!("{pid}/task/{tid}")))
}

/// What a thread is blocked in at this moment, by its `syscall` file.
pub fn blocked_in(pid: Pid, tid: Tid) -> Option<SyscallState> {
    let file = open(format!("/proc/{pid}/task/{tid}/syscall")).ok()?;
    parse_syscall(read_line(&file, &mut line_buffer()).ok()?)
}

/// Frames taken of a kernel stack.
const MAX_KERNEL_FRAMES: usize = 64;

/// Functions of a blocked thread's kernel stack, leaf first, with the module of those that are in
/// one in brackets (`/proc/PID/task/TID/stack`, needs `CAP_SYS_ADMIN`); else the one that its `wchan`
/// names. Empty when neither can be read.
pub fn kernel_stack(pid: Pid, tid: Tid) -> Vec<String> {
    let text = |name: &str| read_text(pid, &format!("task/{tid}/{name}")).unwrap_or_default();
    let mut names = parse_kernel_stack(&text("stack"));
    if names.is_empty() {
        names.extend(Some(text("wchan")).filter(|name| !name.is_empty() && name != "0"));
    }
    names
}

/// Lines as `[<0>] nvme_queue_rq+0x5d/0x6d0 [nvme]` (`fs/proc/base.c`, `proc_pid_stack`).
fn parse_kernel_stack(text: &str) -> Vec<String> {
    let name = |line: &str| {
        let place = line.split_once("] ")?.1;
        let (function, rest) = place.split_once('+').unwrap_or((place, ""));
        Some(match rest.split_once(' ') {
            Some((_, module)) => format!("{function} {module}"),
            None => function.to_owned(),
        })
    };
    text.lines()
        .filter_map(name)
        .take(MAX_KERNEL_FRAMES)
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Check kernel stacks: functions of a module name it, what is no frame is passed over, and
    /// there is a limit.
    #[test]
    fn kernel_stacks() {
        let text = "[<0>] wait_on_page+0x1/0x2\n[<0>] nvme_queue_rq+0x5d/0x6d0 [nvme]\n\
                    rubbish\n[<0>] 0xffffffffc0000000\n";
        let names = ["wait_on_page", "nvme_queue_rq [nvme]", "0xffffffffc0000000"];
        assert_eq!(parse_kernel_stack(text), names);
        let long = "[<0>] a+0x1/0x2\n".repeat(1000);
        assert_eq!(parse_kernel_stack(&long).len(), MAX_KERNEL_FRAMES);
        assert!(parse_kernel_stack("").is_empty());
    }
}
