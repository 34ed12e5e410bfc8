//! Where the lab keeps its things, and the programs that use them.

use std::path::PathBuf;
use std::process::Command;

use anyhow::{Context, Result, ensure};
use fs_err as fs;

use super::daemon::Daemon;
use crate::process::{capture, command, is_installed};

/// Name of the storage pool.
pub const POOL: &str = "rbd";
/// Name of the block device image in it.
pub const IMAGE: &str = "disk";

/// The lab's folder.
#[derive(Debug)]
pub struct Lab {
    /// `WCPROF_LAB`, or `wcprof-lab` in the temporary folder.
    pub root: PathBuf,
}

impl Lab {
    /// The lab of this environment, whether it runs or not.
    pub fn new() -> Self {
        let root = std::env::var_os("WCPROF_LAB").map_or_else(
            || std::env::temp_dir().join("wcprof-lab"),
            |folder| std::path::absolute(&folder).unwrap_or_else(|_| folder.into()),
        );
        Self { root }
    }

    /// Data, sockets, logs and process ids of one cluster.
    pub fn cluster(&self) -> PathBuf {
        self.root.join("cluster")
    }

    /// Kernel and initial file system; they outlive clusters.
    pub fn guest(&self) -> PathBuf {
        self.root.join("guest")
    }

    /// A log file of the cluster.
    pub fn log(&self, name: &str) -> PathBuf {
        self.cluster().join("log").join(name)
    }

    /// `ceph.conf`.
    pub fn conf(&self) -> PathBuf {
        self.cluster().join("ceph.conf")
    }

    /// One line on how the cluster was made. It is written last: it says that the cluster is complete.
    pub fn description(&self) -> PathBuf {
        self.cluster().join("description")
    }

    /// The admin socket of a daemon.
    pub fn socket(&self, daemon: &str) -> PathBuf {
        self.cluster().join(format!("{daemon}.asok"))
    }

    /// The first OSD.
    ///
    /// # Errors
    /// When no complete cluster runs.
    pub fn osd(&self) -> Result<Daemon> {
        self.require_cluster()?;
        Daemon::running(&self.cluster(), "osd.0")?
            .context("the OSD does not run: `cargo xtask lab down`, then `up`")
    }

    /// Process ids of all OSDs.
    pub fn osds(&self) -> Result<Vec<i32>> {
        let daemons = Daemon::all(&self.cluster())?.into_iter();
        let osds = daemons.filter(|daemon| daemon.name.starts_with("osd."));
        Ok(osds.map(|daemon| daemon.pid).collect())
    }

    /// The virtual machine, if it runs.
    pub fn machine(&self) -> Result<Option<Daemon>> {
        Daemon::running(&self.cluster(), "vm")
    }

    /// How the cluster was made.
    ///
    /// # Errors
    /// When no complete cluster is there.
    pub fn require_cluster(&self) -> Result<String> {
        fs::read_to_string(self.description())
            .map(|text| text.trim().to_owned())
            .context("there is no cluster: run `cargo xtask lab up` first")
    }

    /// A command from words, as [`command`] makes it, that finds this cluster and no other.
    pub fn command(&self, words: &str) -> Command {
        let mut command = command(words);
        command
            .env("CEPH_CONF", self.conf())
            .env_remove("CEPH_ARGS")
            .env_remove("LD_PRELOAD")
            .env("PYTHONWARNINGS", "ignore");
        command
    }
}

/// Makes a program use tcmalloc instead of libc's malloc.
///
/// # Errors
/// When tcmalloc is not installed.
pub fn preload_tcmalloc(program: &mut Command) -> Result<()> {
    const NAME: &str = "libtcmalloc.so.4";
    let known = capture(&mut command("/sbin/ldconfig -p")).unwrap_or_default();
    ensure!(
        known.contains(NAME),
        "{NAME} is not installed; run `cargo xtask lab install`"
    );
    program.env("LD_PRELOAD", NAME);
    Ok(())
}

/// # Errors
/// When one of the programs is not installed.
pub fn require_programs(programs: &str) -> Result<()> {
    let missing = programs.split(' ').filter(|program| !is_installed(program));
    let missing = missing.collect::<Vec<_>>().join(", ");
    ensure!(
        missing.is_empty(),
        "not installed: {missing}; run `cargo xtask lab install`"
    );
    Ok(())
}
