//! `wcprof crypto model`: shapes and a calibration to what frames cost, as text, JSON and a chart.

use anyhow::anyhow;
use msgr_crypto::calibration::Calibration;
use msgr_crypto::model::{Load, Report};
use msgr_crypto::plot::throughput_svg;
use msgr_crypto::shapes::Side;
use msgr_crypto::text::model_text;

use crate::files::{json_document, open_library, read_calibration, read_shapes, read_speed_table};
use crate::kept::Keeping;
use crate::measure::measure;
use wcprof_cli::Failure;
use wcprof_cli::crypto::{ModelArgs, ModelFormat, SideArg};

pub(crate) fn run(args: &ModelArgs) -> Result<(), Failure> {
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
        (None, None) => measure(&open_library(None)?, Keeping::Reuse.by(&args.cache)),
    }
}
