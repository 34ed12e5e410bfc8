//! `cargo xtask lab`: a small Ceph cluster and a virtual machine on it, to profile real targets.
//!
//! Real programs of the distribution, bound to loopback, without systemd and without a manager
//! daemon. All state is in one folder: `WCPROF_LAB`, or `wcprof-lab` in the temporary folder.
//! Nothing is ever stopped by name: only what was started here and recorded.

mod admin;
mod ceph;
mod conf;
mod crypto;
mod daemon;
pub mod fio;
mod gateway;
mod guest;
mod provoke;
mod story;
mod supervise;
mod vm;
mod wcprof;

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};

use crate::setup::{Group, install};
pub use admin::ask;
pub use daemon::Daemon;

/// Name of the storage pool.
const POOL: &str = "rbd";
/// Name of the block device image in it.
const IMAGE: &str = "disk";

/// Run a small Ceph cluster and a virtual machine on loopback.
#[derive(Debug, clap::Args)]
pub struct Args {
    #[command(subcommand)]
    command: Task,
}

#[derive(Debug, clap::Subcommand)]
enum Task {
    /// Install the packages that the lab needs (Debian)
    Install {
        /// Also debug symbols (about 770 MB)
        #[arg(long)]
        symbols: bool,
    },
    /// Make a new cluster and a filled image
    Up(ceph::Options),
    /// Stop the virtual machine and the cluster
    Down {
        /// Also remove the cluster's data and logs
        #[arg(long)]
        wipe: bool,
    },
    /// Boot a virtual machine whose disk is the image
    VmUp(vm::Options),
    /// Stop the virtual machine
    VmDown,
    /// Load the image with fio through librbd and print speed and CPU time
    Fio(fio::Options),
    /// Print what runs
    Status,
    /// Ask the OSD whether its connections are encrypted
    CheckMode,
    /// Compare the encrypted frames of known loads, seen live, with what the protocol says
    Crypto,
    /// Tune a virtual machine on Ceph step by step, and check what wcprof says at each
    Story(story::Options),
    /// Make limits on purpose, and check that wcprof finds them
    Provoke(provoke::Options),
    /// Build kernel and initial file system of the virtual machine
    GuestBuild,
}

/// Runs the command.
///
/// # Errors
/// When a package is missing, a daemon does not start, or a program fails.
pub fn run(args: &Args) -> Result<()> {
    let lab = Lab::new();
    match &args.command {
        Task::Install { symbols: false } => install(&[Group::Lab]),
        Task::Install { symbols: true } => install(&[Group::Lab, Group::LabSymbols]),
        Task::Up(options) => ceph::up(&lab, options),
        Task::Down { wipe } => ceph::down(&lab, *wipe),
        Task::VmUp(options) => vm::up(&lab, options),
        Task::VmDown => vm::down(&lab),
        Task::Fio(options) => {
            let result = fio::run(&lab, options)?;
            println!("{result}");
            Ok(())
        }
        Task::Status => status(&lab),
        Task::CheckMode => {
            let modes = admin::wire_modes(&lab)?;
            println!("{modes}");
            Ok(())
        }
        Task::Crypto => crypto::run(&lab),
        Task::Story(options) => story::run(&lab, options),
        Task::Provoke(options) => provoke::run(&lab, options),
        Task::GuestBuild => guest::build(&lab),
    }
}

/// Where the lab keeps its things.
#[derive(Debug)]
pub struct Lab {
    root: PathBuf,
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
    fn cluster(&self) -> PathBuf {
        self.root.join("cluster")
    }

    /// Kernel and initial file system; they outlive clusters.
    fn guest(&self) -> PathBuf {
        self.root.join("guest")
    }

    fn log(&self, name: &str) -> PathBuf {
        self.cluster().join("log").join(name)
    }

    fn conf(&self) -> PathBuf {
        self.cluster().join("ceph.conf")
    }

    /// One line on how the cluster was made; written last, so that it says that the cluster is
    /// complete.
    fn description(&self) -> PathBuf {
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
    ///
    /// # Errors
    /// When a record of one can not be read.
    pub fn osds(&self) -> Result<Vec<i32>> {
        let daemons = Daemon::all(&self.cluster())?.into_iter();
        Ok(daemons
            .filter(|daemon| daemon.name.starts_with("osd."))
            .map(|daemon| daemon.pid)
            .collect())
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

    /// A program that finds this cluster and no other.
    fn command(&self, program: &str) -> Command {
        let mut command = Command::new(program);
        command
            .env("CEPH_CONF", self.conf())
            .env_remove("CEPH_ARGS")
            .env_remove("LD_PRELOAD")
            .env("PYTHONWARNINGS", "ignore");
        command
    }
}

fn status(lab: &Lab) -> Result<()> {
    println!("folder: {}", lab.root.display());
    match lab.require_cluster() {
        Ok(description) => println!("cluster: {description}"),
        Err(error) => println!("{error}"),
    }
    for daemon in Daemon::all(&lab.cluster())? {
        println!("{daemon}");
    }
    if lab.description().exists() {
        println!(
            "for ceph, rbd and rados: export CEPH_CONF={}",
            lab.conf().display()
        );
    }
    Ok(())
}

/// Asks until the answer is yes.
///
/// # Errors
/// When it is still no after `patience`, with `what` as the error, or when asking fails.
fn wait_until(
    what: &str,
    patience: Duration,
    mut is_done: impl FnMut() -> Result<bool>,
) -> Result<()> {
    let end = Instant::now() + patience;
    loop {
        if is_done()? {
            return Ok(());
        }
        ensure!(
            Instant::now() < end,
            "{what}: not within {} s",
            patience.as_secs()
        );
        std::thread::sleep(Duration::from_millis(200));
    }
}

/// Which of the programs is not installed, as an error.
fn require_programs(programs: &[&str]) -> Result<()> {
    let missing: Vec<&str> = programs
        .iter()
        .copied()
        .filter(|program| !crate::process::is_installed(program))
        .collect();
    ensure!(
        missing.is_empty(),
        "not installed: {}; run `cargo xtask lab install`",
        missing.join(", ")
    );
    Ok(())
}

fn create_folder(path: &Path) -> Result<()> {
    fs::create_dir_all(path).with_context(|| format!("failed to create `{}`", path.display()))
}

fn write(path: &Path, content: impl AsRef<[u8]>) -> Result<()> {
    fs::write(path, content).with_context(|| format!("failed to write `{}`", path.display()))
}
