//! Where the lab keeps its files, and the programs that use them.

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
    pub root: String,
}

impl Lab {
    /// The lab of this environment, whether it runs or not.
    ///
    /// # Errors
    /// When its path has spaces or the like, which options of Ceph and QEMU cannot hold.
    pub fn new() -> Result<Self> {
        let folder = std::env::var_os("WCPROF_LAB");
        let folder = folder.map_or_else(|| std::env::temp_dir().join("wcprof-lab"), PathBuf::from);
        let root = std::path::absolute(folder)?.display().to_string();
        ensure!(
            root.chars()
                .all(|c| c.is_alphanumeric() || "/._-".contains(c)),
            "the lab's folder `{root}` has other characters than letters, digits and `/._-`"
        );
        Ok(Self { root })
    }

    /// Data, sockets, logs and process ids of one cluster.
    pub fn cluster(&self) -> String {
        format!("{}/cluster", self.root)
    }

    /// A file or folder of the cluster.
    pub fn file(&self, name: &str) -> PathBuf {
        PathBuf::from(self.cluster()).join(name)
    }

    /// Kernel and initial file system; they outlive clusters.
    pub fn guest(&self) -> PathBuf {
        PathBuf::from(&self.root).join("guest")
    }

    /// The file with one line on how the cluster was made. It is written last: it says that the cluster is
    /// complete.
    pub fn description(&self) -> PathBuf {
        self.file("description")
    }

    /// The first OSD.
    ///
    /// # Errors
    /// When no complete cluster runs.
    pub fn osd(&self) -> Result<Daemon> {
        self.require_cluster()?;
        let osd = self.daemons("osd.0")?.pop();
        osd.context("the OSD does not run: `cargo xtask lab down`, then `up`")
    }

    /// What was started here, has a name that begins so, and still runs.
    pub fn daemons(&self, name: &str) -> Result<Vec<Daemon>> {
        let mut daemons = Daemon::all(&self.file(""))?;
        daemons.retain(|daemon| daemon.name.starts_with(name));
        Ok(daemons)
    }

    /// Process ids of all OSDs.
    pub fn osds(&self) -> Result<Vec<i32>> {
        Ok(self.daemons("osd.")?.iter().map(|osd| osd.pid).collect())
    }

    /// The virtual machine, if it runs.
    pub fn machine(&self) -> Result<Option<Daemon>> {
        Ok(self.daemons("vm")?.pop())
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

    /// # Errors
    /// When a cluster runs, complete or not.
    pub fn require_none(&self) -> Result<()> {
        ensure!(
            self.daemons("")?.is_empty(),
            "a cluster runs already: `cargo xtask lab down` first"
        );
        Ok(())
    }

    /// A command from a line, as [`command`] makes it, that finds this cluster and no other.
    pub fn command(&self, line: &str) -> Command {
        let mut command = command(line);
        command
            .env("CEPH_CONF", self.file("ceph.conf"))
            .env_remove("CEPH_ARGS")
            .env_remove("LD_PRELOAD")
            .env("PYTHONWARNINGS", "ignore");
        command
    }

    /// Runs such a command to its end, and returns what it printed.
    ///
    /// # Errors
    /// When it fails.
    pub fn run(&self, line: &str) -> Result<String> {
        Ok(capture(self.command(line))?.trim().to_owned())
    }

    /// Starts such a command in the background; its output goes to a log of that name.
    ///
    /// # Errors
    /// When it does not start, or should use tcmalloc, which is not installed.
    pub fn start(&self, name: &str, line: &str, tcmalloc: bool) -> Result<Daemon> {
        const LIBRARY: &str = "libtcmalloc.so.4";
        let mut command = self.command(line);
        if tcmalloc {
            ensure!(
                self.run("/sbin/ldconfig -p")?.contains(LIBRARY),
                "{LIBRARY} is not installed; run `cargo xtask lab install`"
            );
            command.env("LD_PRELOAD", LIBRARY);
        }
        Daemon::start(&self.file(""), name, &mut command)
    }
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
