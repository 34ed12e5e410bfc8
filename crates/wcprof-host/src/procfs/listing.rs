//! Processes, and the threads of one with their names.

use std::io;

use wcprof_types::{Pid, Tid};

use super::read_text;

/// All processes of wcprof's pid namespace, ascending.
pub fn list_processes() -> Vec<i32> {
    let entries = std::fs::read_dir("/proc").into_iter().flatten().flatten();
    let mut pids: Vec<i32> = entries
        .filter_map(|entry| entry.file_name().to_str()?.parse().ok())
        .collect();
    pids.sort_unstable();
    pids
}

/// The threads of a process, in the kernel's order.
pub fn list_threads(pid: Pid) -> io::Result<Vec<Tid>> {
    let mut tids = Vec::new();
    for entry in std::fs::read_dir(format!("/proc/{pid}/task"))? {
        // A thread that exits while the folder is read ends the listing early on old kernels.
        let Ok(entry) = entry else { break };
        if let Some(tid) = entry.file_name().to_str().and_then(|s| s.parse().ok()) {
            tids.push(Tid(tid));
        }
    }
    Ok(tids)
}

/// A thread's name, bytes that are not UTF-8 replaced.
pub fn thread_name(pid: Pid, tid: Tid) -> io::Result<String> {
    let text = read_text(pid, &format!("task/{tid}/comm"))?;
    Ok(text.strip_suffix('\n').unwrap_or(&text).to_owned())
}
