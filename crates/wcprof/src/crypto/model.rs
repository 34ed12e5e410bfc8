//! `wcprof crypto model`: shapes and a calibration to what frames cost, as text, JSON and a chart.

use anyhow::anyhow;
use msgr_crypto::calibration::Calibration;
use msgr_crypto::model::{Load, Report};
use msgr_crypto::plot::throughput_svg;
use msgr_crypto::shapes::Side;
use msgr_crypto::text::model_text;

use super::calibrate::measure;
use super::files::{json_document, open_library, read_calibration, read_shapes, read_speed_table};
use super::{ModelArgs, SideArg};
use crate::failure::{Exit, Failure};
use crate::open::write_output;

pub(super) fn run(args: &ModelArgs) -> Result<(), Failure> {
    let shapes = read_shapes(args.shapes.as_deref())?;
    let calibration = calibration(args)?;
    let load = match (args.threads, args.iops) {
        (Some(threads), Some(iops)) => Some(Load { threads, iops }),
        _ => None,
    };
    let report = Report::new(&shapes, &calibration, load);
    if let Some(path) = &args.svg {
        let side = match args.side {
            SideArg::Rx => Side::Rx,
            SideArg::Tx => Side::Tx,
        };
        let Some(side) = report.sides.iter().find(|report| report.side == side) else {
            let error = anyhow!("no frame is {side}, so there is nothing to draw");
            return Err(
                Failure::new(Exit::Usage, error).hint("choose the other direction with --side")
            );
        };
        write_output(Some(path), throughput_svg(&calibration, side).as_bytes())?;
    }
    let out = match args.json {
        true => json_document("wcprof-crypto-model", 2, &report)?,
        false => model_text(&report, &calibration),
    };
    write_output(None, out.as_bytes())
}

fn calibration(args: &ModelArgs) -> Result<Calibration, Failure> {
    match (&args.speed, &args.calibration) {
        (Some(path), _) => read_speed_table(path),
        (None, Some(path)) => read_calibration(path),
        (None, None) => measure(&open_library(None)?),
    }
}
