//! `cargo xtask lab story`: a virtual machine on Ceph is tuned step by step, and wcprof says at each step
//! what there is to tune.
//!
//! The order is that of "QEMU/KVM + Ceph librbd performance test and deep tuning (2022)": librbd's cache
//! on and libc's malloc, cache off, tcmalloc, secure mode. At each step wcprof is attached to QEMU and to
//! the OSD; what it must find, and what it must not find any more, is checked, and all is written to a
//! report. The steps run in a process of their own, so that the lab is taken down however they end.

mod causes;
mod measure;
mod steps;
mod text;

use anyhow::{Result, ensure};
use fs_err as fs;

use super::place::Lab;
use super::supervise::supervised;
use super::wcprof::Wcprof;
use super::{ceph, vm};

/// How the story is recorded.
#[derive(Debug, clap::Args)]
pub struct Options {
    /// Instead: all that the story changes at once, and each alone taken away; fails where the first screen has another order
    /// than CPU time of an operation
    #[arg(long)]
    causes: bool,
    /// Also keep the traces, without names of this host, as fixtures
    #[arg(long, conflicts_with = "causes")]
    fixtures: bool,
    /// Length of each recording in seconds
    #[arg(long, default_value_t = 10, value_parser = clap::value_parser!(u32).range(5..=120))]
    seconds: u32,
    /// Ticks a second
    #[arg(long, default_value_t = 99, value_parser = clap::value_parser!(u32).range(20..=999))]
    rate: u32,
}

/// Runs all steps. The lab is down afterwards.
///
/// # Errors
/// When a cluster runs already, a step fails, or a finding is missing or wrong.
pub fn run(lab: &Lab, options: &Options) -> Result<()> {
    supervised(lab, || run_steps(lab, options))
}

fn run_steps(lab: &Lab, options: &Options) -> Result<()> {
    let wcprof = Wcprof::new("lab-story", options.seconds, options.rate)?;
    if options.causes {
        return causes::run(lab, &wcprof);
    }
    measure::write_probes(&wcprof)?;
    let mut done = Vec::new();
    let mut running = None;
    for step in &steps::STEPS {
        println!("== {}: {}", step.name, step.title);
        let cluster = step.cluster();
        if running.as_ref() != Some(&cluster) {
            ceph::down(lab, false)?;
            ceph::up(lab, &cluster)?;
            running = Some(cluster);
        }
        vm::up(lab, &step.machine())?;
        let measured = measure::measure(&wcprof, lab, step);
        vm::down(lab)?;
        let measured = measured?;
        print!("{}", text::summary(&measured));
        done.push((step, measured));
    }
    let report = wcprof.folder.join("story.md");
    fs::write(&report, text::report(&done, options.seconds, options.rate))?;
    println!("report: {}", report.display());
    let wrong = done
        .iter()
        .flat_map(|(step, measured)| measured.wrong(step));
    let wrong = wrong.collect::<Vec<String>>().join("\n");
    ensure!(wrong.is_empty(), "wcprof is wrong:\n{wrong}");
    if options.fixtures {
        for (step, target) in steps::STEPS
            .iter()
            .flat_map(|step| steps::TARGETS.map(|t| (step, t)))
        {
            let name = step.file(target);
            wcprof.copy_to_fixtures(&name, &format!("story-{name}"))?;
        }
    }
    Ok(())
}
