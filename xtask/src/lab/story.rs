//! `cargo xtask lab story`: a virtual machine on Ceph is tuned step by step, and wcprof says at each step
//! what there is to tune.
//!
//! The order is that of "QEMU/KVM + Ceph librbd performance test and deep tuning (2022)": librbd's cache
//! on and libc's malloc, cache off, tcmalloc, secure mode. At each step wcprof is attached to QEMU and to
//! the OSD; what it must find, and what it must not find any more, is checked, and all is written to a
//! report. The steps run in a process of their own, so that the lab is taken down however they end.

mod measure;
mod steps;
mod text;

use std::path::PathBuf;

use anyhow::{Result, ensure};

use self::measure::Probes;
use super::supervise::supervised;
use super::wcprof::Wcprof;
use super::{Lab, ceph, vm, write};

/// How the story is told.
#[derive(Debug, clap::Args)]
pub struct Options {
    /// Folder for the report, traces and flame graphs [default: lab-story, in cargo's target folder]
    #[arg(long)]
    folder: Option<PathBuf>,
    /// Length of each recording in seconds
    #[arg(long, default_value_t = 20, value_parser = clap::value_parser!(u32).range(5..=120))]
    seconds: u32,
    /// Ticks a second
    #[arg(long, default_value_t = 299, value_parser = clap::value_parser!(u32).range(20..=999))]
    rate: u32,
    /// wcprof to run; built when not given
    #[arg(long)]
    program: Option<PathBuf>,
    /// Also keep the traces, without names of this host, as fixtures
    #[arg(long)]
    fixtures: bool,
    /// This is the process of the steps
    #[arg(long, hide = true)]
    steps_only: bool,
}

/// Tells the story; the lab is down afterwards.
///
/// # Errors
/// When a cluster runs already, a step fails, or wcprof says something else than it must.
pub fn run(lab: &Lab, options: &Options) -> Result<()> {
    supervised(lab, options.steps_only, || tell(lab, options))
}

fn tell(lab: &Lab, options: &Options) -> Result<()> {
    let mut wcprof = Wcprof::new(
        options.program.as_deref(),
        options.folder.as_deref(),
        "lab-story",
        options.seconds,
    )?;
    wcprof.rate = Some(options.rate);
    let probes = Probes::write(&wcprof)?;
    let mut told = Vec::new();
    let mut before = None;
    for step in steps::STEPS {
        println!("== {}: {}", step.name, step.title);
        if before != Some(step.cluster()) {
            ceph::down(lab, false)?;
            ceph::up(lab, &step.cluster_options())?;
            before = Some(step.cluster());
        }
        vm::up(lab, &step.machine())?;
        let measured = measure::measure(&wcprof, &probes, lab, step);
        vm::down(lab)?;
        let measured = measured?;
        for line in measured.summary() {
            println!("{line}");
        }
        told.push((step, measured));
    }
    let report = wcprof.folder.join("story.md");
    write(&report, text::report(&told, options.seconds, options.rate))?;
    println!("report: {}", report.display());
    let wrong: Vec<String> = told
        .iter()
        .flat_map(|(step, measured)| step.wrong(measured))
        .collect();
    ensure!(
        wrong.is_empty(),
        "wcprof does not say what it must:\n{}",
        wrong.join("\n")
    );
    if options.fixtures {
        for (step, target) in steps::all() {
            let name = step.file(target);
            wcprof.keep(&name, &format!("story-{name}"))?;
        }
    }
    Ok(())
}
