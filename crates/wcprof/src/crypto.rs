//! `wcprof crypto`: what the encryption of Ceph's messenger costs, and what would lower it. The command line is read
//! here; the commands are another program, which calls libcrypto.

use std::path::PathBuf;
use std::time::Duration;

use clap::{Args, Subcommand, ValueEnum};
use wcprof_text::time_in;

use crate::args::{ForceArgs, OutputArgs, TargetArgs, number};

/// The command line of `wcprof crypto`.
#[derive(Args, Debug)]
pub struct CryptoArgs {
    /// What is done.
    #[command(subcommand)]
    pub command: CryptoCommand,
}

/// What `wcprof crypto` does.
#[derive(Subcommand, Debug)]
pub enum CryptoCommand {
    /// Measure what AES-128-GCM calls of a libcrypto cost on this machine: a second, up to ten beside other work
    #[command(after_help = "Examples:\n  wcprof crypto calibrate -o here.json\n  \
        wcprof crypto calibrate --lib /opt/openssl-3.5/lib/libcrypto.so.3 -o newer.json\n  \
        wcprof crypto calibrate --verify\n\nThe result is kept for `model` and `advise`.")]
    Calibrate(CalibrateArgs),
    /// Predict what messages cost, and what larger pieces at once would save
    #[command(
        after_help = "Examples:\n  wcprof crypto model --calibration here.json\n  \
        wcprof crypto model --shapes mine.toml --threads 3 --iops 87000 --format svg -o chart.svg\n  \
        wcprof crypto model --speed speed.txt --threads 3 --iops 87000"
    )]
    Model(ModelArgs),
    /// Watch the calls of a live process for a moment: which frames it sends and receives
    #[command(
        after_help = "Puts breakpoints (uprobes) into the process for a fraction of a second, takes them \
        out again and verifies that. Needs CAP_SYS_ADMIN.\n\n\
        Example: wcprof crypto observe --osd 3 -d 200ms"
    )]
    Observe(ObserveArgs),
    /// Say in a sentence whether larger pieces at once would help a process, and what else would
    #[command(
        after_help = "Examples:\n  wcprof crypto advise --osd 3\n  wcprof crypto advise osd.wct"
    )]
    Advise(AdviseArgs),
}

/// Flags of `calibrate`.
#[derive(Args, Debug)]
pub struct CalibrateArgs {
    /// Library to measure; its code runs with your rights [default: the system's libcrypto]
    #[arg(long, value_name = "PATH")]
    pub lib: Option<PathBuf>,
    /// Save the calibration (JSON) for `wcprof crypto model`
    #[arg(short, long, value_name = "FILE")]
    pub output: Option<PathBuf>,
    /// Whether the output may replace a file.
    #[command(flatten)]
    pub force: ForceArgs,
    /// Print the calibration as JSON
    #[arg(long)]
    pub json: bool,
    /// Also run every frame by every strategy and print the error of the model (a minute)
    #[arg(long, conflicts_with = "json")]
    pub verify: bool,
    /// Frames for --verify (TOML, see docs/crypto.md) [default: those of real clusters]
    #[arg(long, value_name = "FILE", requires = "verify")]
    pub shapes: Option<PathBuf>,
    /// Which process.
    #[command(flatten)]
    pub targets: TargetArgs,
    /// Kept calibrations.
    #[command(flatten)]
    pub cache: CacheArgs,
}

/// Flags of `model`.
#[derive(Args, Debug)]
pub struct ModelArgs {
    /// Calibration to use, from `wcprof crypto calibrate -o` [default: the kept one of the system's libcrypto, else measured now]
    #[arg(long, value_name = "FILE")]
    pub calibration: Option<PathBuf>,
    /// Use the output of `openssl speed -evp aes-128-gcm -decrypt` instead (up to 3.0.15 and 3.4.0)
    #[arg(long, value_name = "FILE", conflicts_with = "calibration")]
    pub speed: Option<PathBuf>,
    /// Frames of your own (TOML, see docs/crypto.md) [default: those of real clusters]
    #[arg(long, value_name = "FILE")]
    pub shapes: Option<PathBuf>,
    /// Messenger threads that are busy all the time
    #[arg(long, value_name = "N", requires = "iops", value_parser = clap::value_parser!(u32).range(1..=1024))]
    pub threads: Option<u32>,
    /// I/Os a second that they do together
    #[arg(long, value_name = "N", requires = "threads", value_parser = iops)]
    pub iops: Option<f64>,
    /// Machine-readable output
    #[arg(long, conflicts_with = "format")]
    pub json: bool,
    /// Another format: a chart of throughput against the size of a call
    #[arg(long, value_enum)]
    pub format: Option<ModelFormat>,
    /// Where the output goes.
    #[command(flatten)]
    pub out: OutputArgs,
    /// The direction that is drawn
    #[arg(long, value_enum, default_value_t = SideArg::Rx, requires = "format")]
    pub side: SideArg,
    /// Kept calibrations.
    #[command(flatten)]
    pub cache: CacheArgs,
}

/// Formats of `model`.
#[derive(ValueEnum, Copy, Clone, PartialEq, Eq, Debug)]
pub enum ModelFormat {
    /// A chart.
    Svg,
}

/// A direction.
#[derive(ValueEnum, Copy, Clone, PartialEq, Eq, Debug)]
pub enum SideArg {
    /// Received: decrypted
    Rx,
    /// Sent: encrypted
    Tx,
}

fn iops(text: &str) -> Result<f64, String> {
    number(text, 1.0, 1e9, "operations a second")
}

/// Flags of `observe`.
#[derive(Args, Debug)]
pub struct ObserveArgs {
    /// The burst.
    #[command(flatten)]
    pub burst: BurstArgs,
    /// Machine-readable output
    #[arg(long)]
    pub json: bool,
    /// Where the output goes.
    #[command(flatten)]
    pub out: OutputArgs,
    /// Which process.
    #[command(flatten)]
    pub targets: TargetArgs,
}

/// Flags of `advise`.
#[derive(Args, Debug)]
pub struct AdviseArgs {
    /// The burst.
    #[command(flatten)]
    pub burst: BurstArgs,
    /// Calibration of the process's library, from `wcprof crypto calibrate -o` [default: the kept one, else measured now]
    #[arg(long, value_name = "FILE")]
    pub calibration: Option<PathBuf>,
    /// Calibration of another library to compare with, from `wcprof crypto calibrate --lib PATH -o`
    #[arg(long, value_name = "FILE")]
    pub other: Option<PathBuf>,
    /// Machine-readable output
    #[arg(long)]
    pub json: bool,
    /// Which process.
    #[command(flatten)]
    pub targets: TargetArgs,
    /// Kept calibrations.
    #[command(flatten)]
    pub cache: CacheArgs,
}

/// How long to observe which threads.
#[derive(Args, Debug, Clone)]
pub struct BurstArgs {
    /// Length of the burst, 10ms to 10s; calls of the target are slower meanwhile
    #[arg(short, long, value_name = "TIME", default_value = "200ms", value_parser = |text: &str| time_in(text, "10ms", "10s"))]
    pub duration: Duration,
    /// Observe only threads whose name matches; may be given several times [default: msgr-worker-*,
    /// or all threads of a process that has none of that name]
    #[arg(long, value_name = "GLOB")]
    pub threads: Vec<String>,
}

/// Whether kept calibrations are used.
#[derive(Args, Debug)]
pub struct CacheArgs {
    /// Do not read or write kept calibrations (in $XDG_CACHE_HOME/wcprof)
    #[arg(long)]
    pub no_cache: bool,
}
