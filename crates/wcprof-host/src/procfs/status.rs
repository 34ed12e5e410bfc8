//! `/proc/PID/status` (`fs/proc/array.c`, `proc_pid_status`).

use wcprof_types::Pid;

/// What wcprof reads of `status`.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Status {
    /// Thread group id: the process a thread belongs to.
    pub tgid: Option<Pid>,
    /// Who traces the thread; `None`: nobody.
    pub tracer: Option<Pid>,
    /// Real and effective user id.
    pub uids: Option<(u32, u32)>,
    /// Effective capabilities.
    pub cap_eff: u64,
    /// Ignored signals, signal 1 in the lowest bit.
    pub ignored: u64,
    /// seccomp mode: 0 off, 1 strict, 2 filter.
    pub seccomp: u32,
    /// Resident memory, now and at most, bytes.
    pub rss: (u64, u64),
    /// Ids in the pid namespaces, outermost first.
    pub ns_pids: NamespacePids,
}

/// Ids of one process in its pid namespaces, outermost (ours) first.
pub type NamespacePids = Vec<i32>;

/// Parses `status`; what is missing keeps its default.
pub fn parse_status(text: &str) -> Status {
    let mut status = Status::default();
    for line in text.lines() {
        let Some((key, value)) = line.split_once(':') else {
            continue;
        };
        let value = value.trim();
        match key {
            "Tgid" => status.tgid = value.parse().ok().map(Pid),
            "TracerPid" => status.tracer = value.parse().ok().filter(|&pid| pid != 0).map(Pid),
            "Uid" => {
                let mut ids = value.split_ascii_whitespace().map(|v| v.parse().ok());
                if let (Some(Some(real)), Some(Some(effective))) = (ids.next(), ids.next()) {
                    status.uids = Some((real, effective));
                }
            }
            "CapEff" => status.cap_eff = u64::from_str_radix(value, 16).unwrap_or(0),
            "SigIgn" => status.ignored = u64::from_str_radix(value, 16).unwrap_or(0),
            "VmRSS" => status.rss.0 = bytes(value),
            "VmHWM" => status.rss.1 = bytes(value),
            "Seccomp" => status.seccomp = value.parse().unwrap_or(0),
            "NSpid" => {
                status.ns_pids = value
                    .split_ascii_whitespace()
                    .filter_map(|v| v.parse().ok())
                    .collect();
            }
            _ => {}
        }
    }
    status
}

/// The bytes of `12 kB`.
fn bytes(value: &str) -> u64 {
    let number = value.split_ascii_whitespace().next();
    number.and_then(|n| n.parse::<u64>().ok()).unwrap_or(0) * 1024
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Check the fields of a containerized process.
    #[test]
    fn container() {
        let status = parse_status(
            "Name:\tceph-osd\nTgid:\t812\nTracerPid:\t0\nUid:\t167\t167\t167\t167\n\
             NSpid:\t812\t1\nSigIgn:\t0000000000001001\nCapEff:\t000001ffffffffff\n\
             VmHWM:\t    2048 kB\nVmRSS:\t    1024 kB\nSeccomp:\t2\nodd line\n",
        );
        assert_eq!(
            (status.tracer, parse_status("TracerPid:\t9").tracer),
            (None, Some(Pid(9)))
        );
        assert_eq!(status.tgid, Some(Pid(812)));
        assert_eq!(status.ns_pids, [812, 1]);
        assert_eq!(status.uids, Some((167, 167)));
        assert_eq!(status.ignored, 1 | 1 << 12);
        assert_eq!(status.rss, (1 << 20, 2 << 20));
        assert_eq!((status.cap_eff, status.seccomp), (0x1ff_ffff_ffff, 2));
    }
}
