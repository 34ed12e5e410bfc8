//! What a process gives up one after the other: descriptors, user, memory and time.

use std::fs;

use anyhow::Context;
use nix::sys::resource::{Resource, getrlimit, setrlimit};
use nix::sys::signal::{SigSet, Signal};
use nix::unistd::{Gid, Uid, close, getuid, setgroups, setresgid, setresuid};

/// The user that stands for root in a confined process.
pub const NOBODY: u32 = 65534;

/// Leaves what a process has of its parent: descriptors but for standard input, output and error, and that SIGXCPU, which ends
/// it at its limit, is blocked.
pub fn leave_parent() -> anyhow::Result<()> {
    let limit = SigSet::from(Signal::SIGXCPU);
    limit
        .thread_unblock()
        .context("failed to unblock SIGXCPU")?;
    let fds: Vec<i32> = fs::read_dir("/proc/self/fd")
        .context("failed to list descriptors")?
        .filter_map(|entry| entry.ok()?.file_name().to_str()?.parse().ok())
        .filter(|fd| *fd > 2)
        .collect();
    for fd in fds {
        // The one of the listing itself is closed already.
        let _ = close(fd);
    }
    Ok(())
}

/// Changes the user, if it is another one. That need not drop capabilities: it does where the user was root of its user
/// namespace (capabilities(7)).
pub fn become_user(uid: u32, gid: u32, groups: &[Gid]) -> anyhow::Result<()> {
    let (uid, gid) = (Uid::from_raw(uid), Gid::from_raw(gid));
    // The same user without privileges: there is nothing to change, and no right to it.
    if getuid() != uid {
        setgroups(groups)
            .and_then(|()| setresgid(gid, gid, gid))
            .and_then(|()| setresuid(uid, uid, uid))
            .with_context(|| format!("failed to become user {uid}"))?;
    }
    Ok(())
}

/// Sets limits: soft and hard. Those that are lower stay: no right to raise them is left.
pub fn limit(limits: &[(Resource, u64, u64)]) -> anyhow::Result<()> {
    for &(resource, soft, hard) in limits {
        let (_, before) = getrlimit(resource).context("failed to read a limit")?;
        let hard = hard.min(before);
        setrlimit(resource, soft.min(hard), hard).context("failed to set a limit")?;
    }
    Ok(())
}
