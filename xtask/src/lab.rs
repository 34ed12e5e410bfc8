//! `cargo xtask lab`: a small Ceph cluster and a virtual machine on it, to profile real targets.
//!
//! Real programs of the distribution, bound to loopback, without systemd and without a manager
//! daemon. All state is in one folder: `WCPROF_LAB`, or `wcprof-lab` in the temporary folder.
//! Nothing is ever stopped by name: only what was started here and recorded.

pub mod admin;
mod agent;
pub mod ceph;
pub mod conf;
mod crypto;
pub mod daemon;
pub mod fio;
mod gateway;
mod guest;
mod operations;
pub mod place;
mod provoke;
mod story;
mod supervise;
mod vm;
mod wcprof;

use anyhow::Result;

use self::place::Lab;
use crate::setup::{self, install};

/// What to do.
#[derive(Debug, clap::Subcommand)]
pub enum Task {
    /// Install the packages that the lab needs (Debian)
    Install {
        /// Also debug symbols (about 770 MB)
        #[arg(long)]
        symbols: bool,
    },
    /// Make a new cluster and a filled image
    Up(conf::Options),
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
    /// Load the image with fio through librbd, which prints speed and CPU time
    Fio(fio::Options),
    /// Compare the encrypted frames of known loads, seen live, with what the protocol says
    Crypto,
    /// Compare what an operation costs, by Ceph's own count, with fio's count and the kernel's CPU time
    Operations,
    /// Run the agent on three OSDs and a virtual machine, one OSD restarted, and check that no interval is missing
    Agent(agent::Options),
    /// Tune a virtual machine on Ceph step by step, and check what wcprof says at each
    Story(story::Options),
    /// Make limits on purpose, and check that wcprof finds them
    Provoke(provoke::Options),
}

/// Runs the command.
///
/// # Errors
/// When a package is missing, a daemon does not start, or a program fails.
pub fn run(task: &Task) -> Result<()> {
    let lab = Lab::new()?;
    match task {
        Task::Install { symbols: false } => install(&[setup::LAB]),
        Task::Install { symbols: true } => install(&[setup::LAB, setup::LAB_SYMBOLS]),
        Task::Up(options) => ceph::up(&lab, options),
        Task::Down { wipe } => ceph::down(&lab, *wipe),
        Task::VmUp(options) => vm::up(&lab, options),
        Task::VmDown => vm::down(&lab),
        Task::Fio(options) => fio::run(&lab, options),
        Task::Crypto => crypto::run(&lab),
        Task::Operations => operations::run(&lab),
        Task::Agent(options) => agent::run(&lab, options),
        Task::Story(options) => story::run(&lab, options),
        Task::Provoke(options) => provoke::run(&lab, options),
    }
}
