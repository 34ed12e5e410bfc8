//! `wcprof crypto`: what the encryption of Ceph's messenger costs, and what would lower it.

mod advise;
mod burst;
mod calibrate;
mod files;
mod model;
mod observe;
mod sandbox;

use std::path::PathBuf;

use clap::{Args, Subcommand, ValueEnum};

use crate::failure::Failure;

#[derive(Args, Debug)]
pub(crate) struct CryptoArgs {
    #[command(subcommand)]
    command: CryptoCommand,
}

#[derive(Subcommand, Debug)]
enum CryptoCommand {
    /// Measure what AES-128-GCM calls of a libcrypto cost on this machine (a second, longer beside other work)
    #[command(after_help = "Examples:\n  wcprof crypto calibrate -o here.json\n  \
        wcprof crypto calibrate --lib /opt/openssl-3.5/lib/libcrypto.so.3 -o newer.json\n  \
        wcprof crypto calibrate --verify")]
    Calibrate(CalibrateArgs),
    /// Predict what messages cost, and what larger pieces at once would save
    #[command(
        after_help = "Examples:\n  wcprof crypto model --calibration here.json\n  \
        wcprof crypto model --shapes mine.toml --threads 3 --iops 87000 --svg chart.svg\n  \
        wcprof crypto model --speed speed.txt --threads 3 --iops 87000"
    )]
    Model(ModelArgs),
    /// Watch the calls of a live process for a moment: which frames it sends and receives
    #[command(
        after_help = "Puts breakpoints (uprobes) into the process for a fraction of a second, takes them \
        out again and verifies that. Needs CAP_SYS_ADMIN.\n\n\
        Example: wcprof crypto observe $(pidof ceph-osd) -d 0.2"
    )]
    Observe(observe::ObserveArgs),
    /// Say in a sentence whether larger pieces at once would help a process, and what else would
    #[command(
        after_help = "Examples:\n  wcprof crypto advise $(pidof ceph-osd)\n  wcprof crypto advise osd.wct"
    )]
    Advise(advise::AdviseArgs),
    /// The process that `calibrate --pid` loads a foreign library in
    #[command(hide = true)]
    ConfinedCalibrate(sandbox::SandboxArgs),
}

#[derive(Args, Debug)]
pub(crate) struct CalibrateArgs {
    /// Library to measure; its code runs with your rights [default: the system's libcrypto]
    #[arg(long, value_name = "PATH")]
    lib: Option<PathBuf>,
    /// Measure the libcrypto that this process maps; unless it is the system's, in a confined process
    #[arg(long, value_name = "PID", conflicts_with_all = ["lib", "verify"])]
    pid: Option<i32>,
    /// Save the calibration (JSON) for `wcprof crypto model`
    #[arg(short, long, value_name = "FILE")]
    output: Option<PathBuf>,
    /// Print the calibration as JSON
    #[arg(long)]
    json: bool,
    /// Also run every frame by every strategy and print the error of the model (a minute)
    #[arg(long, conflicts_with = "json")]
    verify: bool,
    /// Frames for --verify (TOML, see docs/crypto.md) [default: those of real clusters]
    #[arg(long, value_name = "FILE", requires = "verify")]
    shapes: Option<PathBuf>,
}

#[derive(Args, Debug)]
pub(crate) struct ModelArgs {
    /// Calibration to use, from `wcprof crypto calibrate -o` [default: measure the system's now]
    #[arg(long, value_name = "FILE")]
    calibration: Option<PathBuf>,
    /// Use the output of `openssl speed -evp aes-128-gcm -decrypt` instead (up to 3.0.15 and 3.4.0)
    #[arg(long, value_name = "FILE", conflicts_with = "calibration")]
    speed: Option<PathBuf>,
    /// Frames of your own (TOML, see docs/crypto.md) [default: those of real clusters]
    #[arg(long, value_name = "FILE")]
    shapes: Option<PathBuf>,
    /// Messenger threads that are busy all the time
    #[arg(long, value_name = "N", requires = "iops", value_parser = clap::value_parser!(u32).range(1..=1024))]
    threads: Option<u32>,
    /// I/Os a second that they do together
    #[arg(long, value_name = "N", requires = "threads", value_parser = iops)]
    iops: Option<f64>,
    /// Machine-readable output
    #[arg(long)]
    json: bool,
    /// Also draw throughput against the size of a call
    #[arg(long, value_name = "FILE.svg")]
    svg: Option<PathBuf>,
    /// The direction that is drawn
    #[arg(long, value_enum, default_value_t = SideArg::Rx, requires = "svg")]
    side: SideArg,
}

#[derive(ValueEnum, Copy, Clone, PartialEq, Eq, Debug)]
pub(crate) enum SideArg {
    /// Received: decrypted
    Rx,
    /// Sent: encrypted
    Tx,
}

fn iops(text: &str) -> Result<f64, String> {
    match text.parse::<f64>() {
        Ok(n) if (1.0..=1e9).contains(&n) => Ok(n),
        Ok(_) => Err("must be 1 to 1000000000".into()),
        Err(_) => Err("not a number".into()),
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
