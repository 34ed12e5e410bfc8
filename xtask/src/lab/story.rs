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

use anyhow::{Result, ensure};
use fs_err as fs;

use self::measure::Probes;
use super::place::Lab;
use super::supervise::supervised;
use super::wcprof::{Wcprof, WcprofOptions};
use super::{ceph, vm};

/// How the story is recorded.
#[derive(Debug, clap::Args)]
pub struct Options {
    #[command(flatten)]
    wcprof: WcprofOptions,
    /// Length of each recording in seconds
    #[arg(long, default_value_t = 20, value_parser = clap::value_parser!(u32).range(5..=120))]
    seconds: u32,
    /// Ticks a second
    #[arg(long, default_value_t = 299, value_parser = clap::value_parser!(u32).range(20..=999))]
    rate: u32,
}

/// Runs all steps. The lab is down afterwards.
///
/// # Errors
/// When a cluster runs already, a step fails, or wcprof says something else than it must.
pub fn run(lab: &Lab, options: &Options) -> Result<()> {
    supervised(lab, options.wcprof.steps_only, || run_steps(lab, options))
}

fn run_steps(lab: &Lab, options: &Options) -> Result<()> {
    let mut wcprof = Wcprof::new(&options.wcprof, "lab-story", options.seconds)?;
    wcprof.rate = Some(options.rate);
    let probes = Probes::write(&wcprof)?;
    let mut done = Vec::new();
    let mut running = None;
    for step in steps::STEPS {
        println!("== {}: {}", step.name, step.title);
        let cluster = step.cluster();
        if running.as_ref() != Some(&cluster) {
            ceph::down(lab, false)?;
            ceph::up(lab, &cluster)?;
            running = Some(cluster);
        }
        vm::up(lab, &step.machine())?;
        let measured = measure::measure(&wcprof, &probes, lab, step);
        vm::down(lab)?;
        let measured = measured?;
        for line in measured.summary() {
            println!("{line}");
        }
        done.push((step, measured));
    }
    let report = wcprof.folder.join("story.md");
    fs::write(&report, text::report(&done, options.seconds, options.rate))?;
    println!("report: {}", report.display());
    let wrong = done.iter();
    let wrong: Vec<String> = wrong
        .flat_map(|(step, measured)| measured.wrong(step))
        .collect();
    ensure!(
        wrong.is_empty(),
        "wcprof does not say what it must:\n{}",
        wrong.join("\n")
    );
    if options.wcprof.fixtures {
        for step in steps::STEPS {
            for target in steps::TARGETS {
                let name = step.file(*target);
                wcprof.keep(&name, &format!("story-{name}"))?;
            }
        }
    }
    Ok(())
}
