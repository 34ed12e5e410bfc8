//! `wcprof crypto`: what the encryption of Ceph's messenger costs, and what would lower it.

mod advise;
mod burst;
mod calibrate;
mod files;
mod kept;
mod measure;
mod model;
mod observe;
mod sandbox;

use clap::{Args, Subcommand};

use crate::failure::Failure;

#[derive(Args, Debug)]
pub(crate) struct CryptoArgs {
    #[command(subcommand)]
    command: CryptoCommand,
}

#[derive(Subcommand, Debug)]
enum CryptoCommand {
    /// Measure what AES-128-GCM calls of a libcrypto cost on this machine: a second, up to ten beside other work
    #[command(after_help = "Examples:\n  wcprof crypto calibrate -o here.json\n  \
        wcprof crypto calibrate --lib /opt/openssl-3.5/lib/libcrypto.so.3 -o newer.json\n  \
        wcprof crypto calibrate --verify\n\nThe result is kept for `model` and `advise`.")]
    Calibrate(calibrate::CalibrateArgs),
    /// Predict what messages cost, and what larger pieces at once would save
    #[command(
        after_help = "Examples:\n  wcprof crypto model --calibration here.json\n  \
        wcprof crypto model --shapes mine.toml --threads 3 --iops 87000 --format svg -o chart.svg\n  \
        wcprof crypto model --speed speed.txt --threads 3 --iops 87000"
    )]
    Model(model::ModelArgs),
    /// Watch the calls of a live process for a moment: which frames it sends and receives
    #[command(
        after_help = "Puts breakpoints (uprobes) into the process for a fraction of a second, takes them \
        out again and verifies that. Needs CAP_SYS_ADMIN.\n\n\
        Example: wcprof crypto observe --osd 3 -d 200ms"
    )]
    Observe(observe::ObserveArgs),
    /// Say in a sentence whether larger pieces at once would help a process, and what else would
    #[command(
        after_help = "Examples:\n  wcprof crypto advise --osd 3\n  wcprof crypto advise osd.wct"
    )]
    Advise(advise::AdviseArgs),
    /// The process that `calibrate PID` loads a foreign library in
    #[command(hide = true)]
    ConfinedCalibrate(sandbox::SandboxArgs),
}

impl CryptoArgs {
    /// Whether it looks at live processes.
    pub(crate) fn reads_processes(&self) -> bool {
        !matches!(self.command, CryptoCommand::ConfinedCalibrate(_))
    }
}

pub(crate) fn run(args: &CryptoArgs) -> Result<(), Failure> {
    match &args.command {
        CryptoCommand::Calibrate(args) => calibrate::run(args),
        CryptoCommand::Model(args) => model::run(args),
        CryptoCommand::Observe(args) => observe::run(args),
        CryptoCommand::Advise(args) => advise::run(args),
        CryptoCommand::ConfinedCalibrate(args) => sandbox::run_child(args),
    }
}
