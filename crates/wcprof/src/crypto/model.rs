//! `wcprof crypto model`: shapes and a calibration to what frames cost, as text, JSON and a chart.

use std::path::PathBuf;

use anyhow::anyhow;
use clap::{Args, ValueEnum};
use msgr_crypto::calibration::Calibration;
use msgr_crypto::model::{Load, Report};
use msgr_crypto::plot::throughput_svg;
use msgr_crypto::shapes::Side;
use msgr_crypto::text::model_text;

use super::files::{json_document, open_library, read_calibration, read_shapes, read_speed_table};
use super::kept::{CacheArgs, Keeping};
use super::measure::measure;
use crate::args::OutputArgs;
use crate::failure::Failure;

#[derive(Args, Debug)]
pub(crate) struct ModelArgs {
    /// Calibration to use, from `wcprof crypto calibrate -o` [default: the kept one of the system's libcrypto, else measured now]
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
    #[arg(long, conflicts_with = "format")]
    json: bool,
    /// Another format: a chart of throughput against the size of a call
    #[arg(long, value_enum)]
    format: Option<ModelFormat>,
    #[command(flatten)]
    out: OutputArgs,
    /// The direction that is drawn
    #[arg(long, value_enum, default_value_t = SideArg::Rx, requires = "format")]
    side: SideArg,
    #[command(flatten)]
    cache: CacheArgs,
}

#[derive(ValueEnum, Copy, Clone, PartialEq, Eq, Debug)]
pub(crate) enum ModelFormat {
    Svg,
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

pub(super) fn run(args: &ModelArgs) -> Result<(), Failure> {
    args.out.check(&[])?;
    let shapes = read_shapes(args.shapes.as_deref())?;
    let calibration = calibration(args)?;
    let load = match (args.threads, args.iops) {
        (Some(threads), Some(iops)) => Some(Load { threads, iops }),
        _ => None,
    };
    let report = Report::new(&shapes, &calibration, load);
    let out = match args.format {
        Some(ModelFormat::Svg) => chart(args, &report, &calibration)?,
        None if args.json => json_document("wcprof-crypto-model", 2, &report)?,
        None => model_text(&report, &calibration),
    };
    args.out.write(out.as_bytes())
}

fn chart(args: &ModelArgs, report: &Report, calibration: &Calibration) -> Result<String, Failure> {
    let side = match args.side {
        SideArg::Rx => Side::Rx,
        SideArg::Tx => Side::Tx,
    };
    let Some(side) = report.sides.iter().find(|report| report.side == side) else {
        let error = anyhow!("no frame is {side}, so there is nothing to draw");
        return Err(Failure::usage(error).hint("choose the other direction with --side"));
    };
    Ok(throughput_svg(calibration, side))
}

fn calibration(args: &ModelArgs) -> Result<Calibration, Failure> {
    match (&args.speed, &args.calibration) {
        (Some(path), _) => read_speed_table(path),
        (None, Some(path)) => read_calibration(path),
        (None, None) => measure(&open_library(None)?, args.cache.keeping(Keeping::Reuse)),
    }
}
