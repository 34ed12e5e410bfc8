//! What can go wrong with the BPF engine, and what to do about it.

use std::error::Error;
use std::io;

use thiserror::Error;
use wcprof_types::Pid;

use super::shared::{MAX_TARGETS, RecordError};
use wcprof_host::procfs::{parse_status, read_file};
use wcprof_host::sys::{CAP_BPF, CAP_PERFMON, CAP_SYS_ADMIN, are_of_host};

/// Lines of the verifier's log that an error shows.
const LOG_LINES: usize = 8;

/// Why the BPF engine does not work here.
#[derive(Debug, Error)]
#[non_exhaustive]
pub enum BpfError {
    /// The kernel does not describe its own types.
    #[error(
        "failed to read the kernel's type information `/sys/kernel/btf/vmlinux`: {0}; it needs a \
         kernel built with CONFIG_DEBUG_INFO_BTF and a mounted sysfs"
    )]
    NoBtf(String),
    /// The kernel refused a `bpf` call for lack of rights.
    #[error("not permitted to {action}: {reason}")]
    NotPermitted {
        /// What was tried.
        action: &'static str,
        /// The likely cause and what to do.
        reason: String,
    },
    /// A program calls a function that this kernel does not offer to BPF programs.
    #[error(
        "this kernel is too old: it has no BPF helper {helper}, which the program `{program}` calls; Linux 5.15 has \
         all that the engine bpf needs, 5.18 all that it uses"
    )]
    NoHelper {
        /// Program name.
        program: &'static str,
        /// Its number, `BPF_FUNC_*` of `linux/bpf.h`.
        helper: u32,
    },
    /// The kernel's verifier refused a program.
    #[error(
        "the kernel refused the program `{program}`: {cause}; its verifier said: {log}; this \
         kernel may lack a feature that the engine needs"
    )]
    Rejected {
        /// Program name.
        program: &'static str,
        /// The call's error.
        cause: io::Error,
        /// The last lines of the verifier's log.
        log: String,
    },
    /// There is no task iterator in this kernel.
    #[error("this kernel has no BPF task iterator: {0}; it came with Linux 5.8")]
    NoTaskIterator(String),
    /// A step of loading failed in another way.
    #[error("failed to {action}: {cause}")]
    Load {
        /// What was tried.
        action: &'static str,
        /// The cause and its causes.
        cause: String,
    },
    /// What a program wrote is no sequence of records.
    #[error(transparent)]
    Record(#[from] RecordError),
    /// A pass stopped before its end.
    #[error("a pass of the BPF program over the threads stopped before its end")]
    Truncated,
    /// No thread of this process exists.
    #[error("no such process: {0}")]
    NoSuchProcess(Pid),
    /// More targets than the maps hold.
    #[error("too many targets: {0}, at most {max}", max = MAX_TARGETS)]
    TooManyTargets(usize),
}

impl BpfError {
    /// For a failed `bpf` call.
    pub(super) fn from_io(action: &'static str, cause: &io::Error) -> Self {
        match cause.raw_os_error() {
            Some(libc::EPERM | libc::EACCES) => Self::NotPermitted {
                action,
                reason: why_not_permitted(),
            },
            _ => Self::Load {
                action,
                cause: cause.to_string(),
            },
        }
    }

    /// For the object that is built in: it cannot be read, or does not fit this kernel's types.
    pub(super) fn from_object(verb: &str, error: &dyn Error) -> Self {
        Self::Load {
            action: "load the BPF object",
            cause: format!("failed to {verb} it: {}", chain(error)),
        }
    }

    /// For a program that could not be loaded; `log` is the verifier's, up to its first NUL.
    pub(super) fn from_program(program: &'static str, cause: io::Error, log: &[u8]) -> Self {
        let log = log.split(|&b| b == 0).next().unwrap_or_default();
        let log = String::from_utf8_lossy(log);
        if let Some(helper) = unknown_helper(&log) {
            return Self::NoHelper { program, helper };
        }
        let log = last_lines(&log);
        // A program the verifier refuses also fails with EACCES, but leaves a log.
        if log.is_empty() {
            Self::from_io("load a BPF program", &cause)
        } else {
            Self::Rejected {
                program,
                cause,
                log,
            }
        }
    }
}

/// The text of an error and of its causes.
pub(super) fn chain(error: &dyn Error) -> String {
    let mut text = error.to_string();
    let mut source = error.source();
    while let Some(cause) = source {
        let cause_text = cause.to_string();
        if !text.ends_with(&cause_text) {
            text.push_str(": ");
            text.push_str(&cause_text);
        }
        source = cause.source();
    }
    text
}

/// The function whose absence ended the verifier's work (`check_helper_call` of `kernel/bpf/verifier.c`).
fn unknown_helper(log: &str) -> Option<u32> {
    let (_, rest) = log.rsplit_once("invalid func unknown#")?;
    let end = rest.find(|c: char| !c.is_ascii_digit());
    rest.get(..end.unwrap_or(rest.len()))?.parse().ok()
}

/// The last lines that say why, without the verifier's closing statistics.
fn last_lines(log: &str) -> String {
    let lines: Vec<&str> = log
        .lines()
        .map(str::trim)
        .filter(|line| !line.is_empty())
        .filter(|line| !line.starts_with("processed ") && !line.starts_with("verification time"))
        .collect();
    let first = lines.len().saturating_sub(LOG_LINES);
    lines.get(first..).unwrap_or_default().join(" | ")
}

/// The likely cause of an EPERM from `bpf`, from what this process can see.
fn why_not_permitted() -> String {
    let status = read_file("/proc/self/status").unwrap_or_default();
    let lockdown = read_file("/sys/kernel/security/lockdown").unwrap_or_default();
    let uid_map = read_file("/proc/self/uid_map").unwrap_or_default();
    explain_not_permitted(&status, &lockdown, &uid_map)
}

fn explain_not_permitted(status: &str, lockdown: &str, uid_map: &str) -> String {
    let status = (!status.is_empty()).then(|| parse_status(status));
    let has = |cap: u32| status.as_ref().is_none_or(|s| s.cap_eff >> cap & 1 == 1);
    let missing: Vec<&str> = [(CAP_BPF, "CAP_BPF"), (CAP_PERFMON, "CAP_PERFMON")]
        .iter()
        .filter(|(cap, _)| !has(*cap))
        .map(|(_, name)| *name)
        .collect();
    if !has(CAP_SYS_ADMIN) && !missing.is_empty() {
        return format!(
            "{} missing; run as root, or give wcprof CAP_BPF and CAP_PERFMON (before Linux 5.8 \
             CAP_SYS_ADMIN)",
            missing.join(" and ")
        );
    }
    if lockdown.contains("[confidentiality]") {
        return "kernel lockdown is in mode `confidentiality`, which forbids BPF to read kernel \
                memory; it can only be left by a reboot with other boot settings"
            .to_owned();
    }
    if !are_of_host(uid_map) {
        return "wcprof runs in a user namespace, whose capabilities do not count for BPF; run it \
                on the host, or in a container that shares the host's user namespace"
            .to_owned();
    }
    if status.is_some_and(|status| status.seccomp != 0) {
        return "a seccomp filter of this container or service probably blocks the system call \
                `bpf`; allow it, or run wcprof on the host"
            .to_owned();
    }
    "the capabilities are there, so a security module (SELinux, AppArmor) or RLIMIT_MEMLOCK \
     (before Linux 5.11; `ulimit -l unlimited`) is the likely cause; see the kernel's audit log"
        .to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    const HOST_IDS: &str = "         0          0 4294967295\n";

    /// Check that each cause is told apart and names what to do.
    #[test]
    fn causes_of_eperm() {
        let none = "CapEff:\t0000000000000000\nSeccomp:\t0\n";
        let bpf_only = "CapEff:\t0000008000000000\nSeccomp:\t0\n";
        let all = "CapEff:\t000001ffffffffff\nSeccomp:\t0\n";
        let filtered = "CapEff:\t000001ffffffffff\nSeccomp:\t2\n";
        let open = "[none] integrity confidentiality";
        let locked = "none integrity [confidentiality]";
        for (status, lockdown, ids, words) in [
            (none, open, HOST_IDS, "CAP_BPF and CAP_PERFMON missing"),
            (bpf_only, open, HOST_IDS, "CAP_PERFMON missing"),
            (all, locked, HOST_IDS, "lockdown"),
            (all, open, "0 100000 65536", "user namespace"),
            (filtered, open, HOST_IDS, "seccomp"),
            (all, "", HOST_IDS, "RLIMIT_MEMLOCK"),
            ("", "", "", "RLIMIT_MEMLOCK"),
        ] {
            let text = explain_not_permitted(status, lockdown, ids);
            assert!(text.contains(words), "{words}: {text}");
        }
    }

    /// Check that the log's reason survives and its statistics do not.
    #[test]
    fn end_of_verifier_log() {
        let log: String = (0..20).map(|i| format!("{i}: r0 = 0\n")).collect();
        let log = log + "invalid mem access 'scalar'\n\nprocessed 20 insns (limit 1000000)\n";
        let text = last_lines(&log);
        assert!(text.ends_with("| invalid mem access 'scalar'"), "{text}");
        assert_eq!(text.split(" | ").count(), LOG_LINES);
        assert_eq!(last_lines("\n"), "");
    }

    /// Check that a refusal with a log is the verifier's, and one without is for lack of rights.
    #[test]
    fn refused_programs() {
        let eacces = || io::Error::from_raw_os_error(libc::EACCES);
        let refused = BpfError::from_program("p", eacces(), b"R1 invalid mem access\n\0\0old");
        assert!(
            matches!(&refused, BpfError::Rejected { log, .. } if log == "R1 invalid mem access")
        );
        let old = BpfError::from_program(
            "p",
            eacces(),
            b"8: (85) call unknown#158\ninvalid func unknown#158\n",
        );
        assert!(matches!(old, BpfError::NoHelper { helper: 158, .. }));
        let forbidden = BpfError::from_program("p", eacces(), &[0; 8]);
        assert!(matches!(forbidden, BpfError::NotPermitted { .. }));
    }
}
