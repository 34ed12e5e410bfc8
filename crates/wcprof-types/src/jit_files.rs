//! Files in which runtimes say what code they made, by their paths.

use crate::file_name;

/// Whether a path is that of a jitdump: `jit-PID.dump` in any folder (`tools/perf/Documentation/jitdump-specification.txt`).
pub fn is_jitdump(path: &str) -> bool {
    has_pid(file_name(path), "jit-", ".dump")
}

/// The perf map of a process, in its mount namespace; `pid` as the process itself sees it.
pub fn perf_map(pid: i32) -> String {
    format!("{PERF_MAP}{pid}{PERF_MAP_END}")
}

/// Whether a path is that of a perf map.
pub fn is_perf_map(path: &str) -> bool {
    has_pid(path, PERF_MAP, PERF_MAP_END)
}

const PERF_MAP: &str = "/tmp/perf-";
const PERF_MAP_END: &str = ".map";

/// Whether there is a number of a process between two parts of a name, and nothing else.
fn has_pid(name: &str, begin: &str, end: &str) -> bool {
    let pid = name
        .strip_prefix(begin)
        .and_then(|name| name.strip_suffix(end));
    let is_number =
        |pid: &str| pid.bytes().all(|b| b.is_ascii_digit()) && pid.parse::<u32>().is_ok();
    pid.is_some_and(is_number)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Check paths of such files, and some that only look like them.
    #[test]
    fn paths() {
        assert!(is_perf_map(&perf_map(4711)) && is_perf_map("/tmp/perf-4711.map"));
        assert!(is_jitdump("/home/u/.debug/jit/x/jit-1.dump"));
        for path in [
            "/tmp/perf-.map",
            "/tmp/perf-+1.map",
            "/tmp/perf-1/../../etc/x.map",
            "/etc/perf-1.map",
            "/etc/shadow",
            "/tmp/jit-1.dump/x",
            "/tmp/jit-.dump",
        ] {
            assert!(!is_perf_map(path) && !is_jitdump(path), "{path}");
        }
    }
}
