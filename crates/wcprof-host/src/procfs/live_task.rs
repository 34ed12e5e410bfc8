//! The task whose files in `/proc` speak for a process.
//!
//! A main thread that has ended (`pthread_exit`) stays as a zombie until all others have ended. Its folder shows the
//! name, the start and the threads of the process, and nothing of its memory, its files and its limits: these are of
//! threads that live. Each task has a folder `/proc/NUMBER` with all that a process has there, also those that are not
//! in the listing of `/proc`.

use wcprof_types::Pid;

use super::{has_ended, parse_task_state, read_file};

/// Threads that are looked at: those of a process do not stay when they have ended, unless somebody traces them.
const MAX_LOOKS: usize = 64;

/// The number whose folder in `/proc` has the memory, files and limits of a process: its own or, where its main thread
/// has ended, that of a thread that lives. `None` when no task of it lives.
pub fn live_task(pid: Pid) -> Option<Pid> {
    let threads = || {
        let threads = std::fs::read_dir(format!("/proc/{pid}/task"));
        let names = threads.into_iter().flatten().flatten();
        names.filter_map(|entry| entry.file_name().into_string().ok())
    };
    find_live_task(pid, threads, |path| read_file(path).ok())
}

/// [`live_task`] where `threads` gives the names in the process's `task` folder, and `read` the text of a file.
pub(crate) fn find_live_task<N: Iterator<Item = String>>(
    pid: Pid,
    threads: impl FnOnce() -> N,
    read: impl Fn(String) -> Option<String>,
) -> Option<Pid> {
    let lives = |task: Pid| {
        let stat = read(format!("/proc/{task}/stat")).unwrap_or_default();
        parse_task_state(stat.as_bytes()).is_some_and(|(state, _)| !has_ended(state))
    };
    if lives(pid) {
        return Some(pid);
    }
    let tids = threads().take(MAX_LOOKS);
    let mut tids = tids.filter_map(|name| name.parse().ok().map(Pid));
    tids.find(|&tid| lives(tid))
}

/// The folder of [`live_task`]; that of the process where no task of it lives.
pub fn live_folder(pid: Pid) -> String {
    format!("/proc/{}", live_task(pid).unwrap_or(pid))
}
