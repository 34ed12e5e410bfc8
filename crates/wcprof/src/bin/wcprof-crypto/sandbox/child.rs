//! The confined process: gives everything up, then loads the library and measures it.
//!
//! Runs after `exec`, with one thread, so that it can enter a mount namespace (setns(2)); the order is
//! that of what is lost: namespaces and root need privileges, then the user is changed, then the
//! filter is set.

use std::fs;
use std::io::Write;
use std::path::{Path, PathBuf};

use anyhow::{Context, bail};
use clap::Args;
use msgr_crypto::calibration::{CalibrationOptions, calibrate};
use msgr_crypto_ffi::Library;
use nix::fcntl::OFlag;
use nix::libc;
use nix::sched::{CloneFlags, setns};
use nix::sys::prctl::set_pdeathsig;
use nix::sys::resource::Resource;
use nix::sys::signal::Signal;
use nix::sys::stat::Mode;
use nix::unistd::{Gid, chroot, fchdir};
use seccompiler::SeccompCmpOp;

use wcprof_host::procfs::{live_task, open, read_bytes};
use wcprof_host::sys::keep_capabilities;
use wcprof_types::Pid;

use wcprof_cli::Failure;
use wcprof_cli::confined::filter::{Filter, prove};
use wcprof_cli::confined::rights;
use wcprof_cli::same_file::is_same_file;

/// CPU seconds: several times what a calibration takes beside other work. SIGXCPU shows the parent why it ended;
/// who ignores that is killed a second later.
const CPU_SECONDS: u64 = 30;
/// Memory: far more than library and measurements need.
const ADDRESS_SPACE: u64 = 1 << 30;
const OPEN_FILES: u64 = 16;
/// Holds the 65 536 groups that a process may be in.
const MAX_STATUS: u64 = 1 << 20;
/// What it calls beyond computing.
const CALLS: &[i64] = &[
    libc::SYS_readlink,
    libc::SYS_readlinkat,
    libc::SYS_getcwd,
    libc::SYS_getdents64,
    libc::SYS_clock_nanosleep,
    libc::SYS_nanosleep,
    libc::SYS_getrusage,
    libc::SYS_getuid,
    libc::SYS_geteuid,
    libc::SYS_getgid,
    libc::SYS_getegid,
    libc::SYS_uname,
    libc::SYS_sysinfo,
];

#[derive(Args, Debug)]
pub(crate) struct SandboxArgs {
    /// Process whose library it is.
    pid: i32,
    /// Its path there.
    library: PathBuf,
}

/// Measures, and writes a calibration, or a line that begins with `error: `, to standard output.
pub(crate) fn run(args: &SandboxArgs) -> Result<(), Failure> {
    let answer = confine(args.pid)
        .map_err(|error| format!("{error:#}"))
        .and_then(|()| measure(&args.library))
        .unwrap_or_else(|reason| format!("error: {reason}"));
    let mut out = std::io::stdout().lock();
    out.write_all(answer.as_bytes())
        .and_then(|()| out.flush())
        .map_err(Failure::from)
}

fn measure(path: &Path) -> Result<String, String> {
    let library = Library::open(path).map_err(|error| error.to_string())?;
    let calibration = calibrate(&library, &CalibrationOptions::default());
    let calibration = calibration.map_err(|error| error.to_string())?;
    calibration.to_json().map_err(|error| error.to_string())
}

/// Who the target is.
struct Identity {
    uid: u32,
    gid: u32,
    groups: Vec<Gid>,
}

fn confine(pid: i32) -> anyhow::Result<()> {
    let pid = live_task(Pid(pid)).map_or(pid, |task| task.0);
    let identity = identity(pid)?;
    rights::leave_parent()?;
    // Everything of the target is opened before the first step, from where it can be seen.
    let flags = OFlag::O_PATH | OFlag::O_DIRECTORY | OFlag::O_CLOEXEC;
    let root = nix::fcntl::open(&*format!("/proc/{pid}/root"), flags, Mode::empty())
        .with_context(|| format!("failed to open the root of process {pid}"))?;
    let mut namespaces = Vec::new();
    for (name, flag) in [
        ("user", CloneFlags::CLONE_NEWUSER),
        ("ipc", CloneFlags::CLONE_NEWIPC),
        ("uts", CloneFlags::CLONE_NEWUTS),
        ("net", CloneFlags::CLONE_NEWNET),
        ("mnt", CloneFlags::CLONE_NEWNS),
    ] {
        let theirs = format!("/proc/{pid}/ns/{name}");
        let link =
            fs::read_link(&theirs).with_context(|| format!("failed to read {name} namespace"))?;
        if fs::read_link(format!("/proc/self/ns/{name}")).ok() != Some(link) {
            let file = open(theirs).with_context(|| format!("failed to open {name} namespace"))?;
            namespaces.push((name, flag, file));
        }
    }
    for (name, flag, file) in namespaces {
        setns(&file, flag).with_context(|| format!("failed to enter its {name} namespace"))?;
    }
    let own_root = fs::metadata("/");
    fchdir(&root).context("failed to enter its root")?;
    // Without the privilege to change it, only a target of the same root can be followed.
    if let Err(error) = chroot(".")
        && !is_same_file(own_root, fs::metadata("."))
    {
        return Err(error).context("failed to change to its root");
    }
    drop(root);
    rights::become_user(identity.uid, identity.gid, &identity.groups)?;
    // Cleared by the change of user, so it is set now.
    set_pdeathsig(Signal::SIGKILL).context("failed to follow the end of wcprof")?;
    // The change of user drops them only where root of the namespace is who it was before.
    keep_capabilities(0).context("failed to give up capabilities")?;
    rights::limit(&[
        (Resource::RLIMIT_CPU, CPU_SECONDS, CPU_SECONDS + 1),
        (Resource::RLIMIT_AS, ADDRESS_SPACE, ADDRESS_SPACE),
        (Resource::RLIMIT_NOFILE, OPEN_FILES, OPEN_FILES),
        (Resource::RLIMIT_FSIZE, 0, 0),
        (Resource::RLIMIT_CORE, 0, 0),
    ])?;
    filter()?.apply()?;
    prove()
}

/// The system calls of a library that reads files and computes.
fn filter() -> anyhow::Result<Filter> {
    /// Opening for anything but reading.
    const WRITING: u64 = (libc::O_WRONLY | libc::O_RDWR | libc::O_CREAT | libc::O_TRUNC) as u64;
    let reading = SeccompCmpOp::MaskedEq(WRITING);
    Filter::computing()
        .permit(CALLS)
        .permit_if(libc::SYS_openat, &[(2, reading.clone(), 0)])?
        .permit_if(libc::SYS_open, &[(1, reading, 0)])?
        // The pipe to wcprof.
        .permit_if(libc::SYS_write, &[(0, SeccompCmpOp::Eq, 1)])
}

fn identity(pid: i32) -> anyhow::Result<Identity> {
    let status = read_bytes(format!("/proc/{pid}/status"), MAX_STATUS)
        .with_context(|| format!("failed to read the user of process {pid}"))?;
    let status = String::from_utf8_lossy(&status);
    let numbers = |key: &str| -> Vec<u32> {
        let line = status.lines().find_map(|line| line.strip_prefix(key));
        let words = line.unwrap_or_default().split_whitespace();
        words.filter_map(|word| word.parse().ok()).collect()
    };
    // Real, effective, saved, file system: the effective one is what it acts as.
    let (uids, gids) = (numbers("Uid:"), numbers("Gid:"));
    let (Some(uid), Some(gid)) = (uids.get(1), gids.get(1)) else {
        bail!("the user of the process is not known");
    };
    Ok(match uid {
        // Root has more rights than a calibration needs, in any namespace.
        0 => Identity {
            uid: rights::NOBODY,
            gid: rights::NOBODY,
            groups: Vec::new(),
        },
        uid => Identity {
            uid: *uid,
            gid: *gid,
            groups: numbers("Groups:").into_iter().map(Gid::from_raw).collect(),
        },
    })
}
