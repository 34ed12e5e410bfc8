//! How a process and its host are set up, read from `/proc` and `/sys` below a root folder: a
//! [`Snapshot`] for `wcprof doctor`. Nothing is judged here, and nothing is written.

mod accounts;
mod ceph;
mod cgroup;
mod devices;
mod facts;
mod files;
mod host;
mod libraries;
mod malloc;
mod memory;
mod process;
mod tree;

#[cfg(test)]
mod tests;

use std::io;
use std::path::{Path, PathBuf};
use std::time::{SystemTime, UNIX_EPOCH};

pub use accounts::AccountsReader;
pub use facts::{CephFacts, ceph_facts};
pub use memory::{MAX_WALK_KIB, Walk};
use thiserror::Error;
use wcprof_types::Pid;
use wcprof_types::snapshot::{SNAPSHOT_SCHEMA, SNAPSHOT_VERSION, Snapshot};

use tree::Tree;

/// Why nothing could be read.
#[derive(Debug, Error)]
pub enum SetupError {
    /// The root folder cannot be used.
    #[error("failed to open `{path}`: {source}")]
    Root {
        /// The folder.
        path: PathBuf,
        /// Why.
        source: io::Error,
    },
    /// There is no such process below the root.
    #[error("no process with pid {pid} in `{path}`")]
    NoSuchProcess {
        /// The number given.
        pid: Pid,
        /// `proc` below the root folder.
        path: PathBuf,
    },
    /// The process ended, or runs another program now.
    #[error("pid {0} exited, or began another program, while it was looked at; try again")]
    Changed(Pid),
}

/// Reads how process `pid` is set up. `root` is `/`, or a folder with copies of another machine's
/// `/proc` and `/sys`. What cannot be read is left out and listed in [`Snapshot::unread`].
///
/// Page tables of the process are walked by the kernel for two of the files read, which takes
/// about a tenth of a second for 4 GiB: above [`MAX_WALK_KIB`], and unless `walk` permits it, those files are
/// left out.
///
/// # Errors
/// No such process, or it ended meanwhile.
pub fn read_setup(root: &Path, pid: Pid, walk: Walk) -> Result<Snapshot, SetupError> {
    let tree = Tree::new(root).map_err(|source| SetupError::Root {
        path: root.to_owned(),
        source,
    })?;
    if tree.text(&format!("/proc/{pid}/status")).is_none()
        && tree.text(&format!("/proc/{pid}/stat")).is_none()
    {
        return Err(SetupError::NoSuchProcess {
            pid,
            path: root.join("proc"),
        });
    }
    let before = identity(&tree, pid);
    let mut process = process::read(&tree, pid, walk);
    let host = host::read(&tree, &mut process);
    if tree.is_live() && identity(&tree, pid) != before {
        return Err(SetupError::Changed(pid));
    }
    let now = SystemTime::now().duration_since(UNIX_EPOCH);
    Ok(Snapshot {
        schema: SNAPSHOT_SCHEMA.into(),
        version: SNAPSHOT_VERSION,
        wcprof_version: env!("CARGO_PKG_VERSION").into(),
        taken_unix_ns: match tree.is_live() {
            true => now.map_or(0, |d| d.as_nanos() as u64),
            // When a copy was made is not known.
            false => 0,
        },
        process,
        host,
        unread: tree.into_unread(),
    })
}

/// What tells this process and this program from a later one with its number.
fn identity(tree: &Tree, pid: Pid) -> Option<(u64, u64)> {
    let stat = tree.text(&format!("/proc/{pid}/stat"))?;
    let stat = crate::procfs::parse_stat(&stat)?;
    Some((stat.start_ticks, stat.start_stack))
}
