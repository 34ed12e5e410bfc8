//! `wcprof crypto model`: shapes and a calibration to what frames cost, as text, JSON and a chart.

use std::fmt::Write;
use std::fs;
use std::io::Read;
use std::path::Path;

use anyhow::Context;
use msgr_crypto::calibration::{Calibration, parse_speed_table};
use msgr_crypto::model::{Load, Report, WORTHWHILE};
use msgr_crypto::plot::throughput_svg;
use msgr_crypto::run::Residency;
use msgr_crypto::shapes::{Shape, Side, builtin, parse_shapes};
use wcprof_findings::printable_json;

use super::calibrate::{heading, measure, open};
use super::table::{Table, bytes, ns, signed_percent};
use super::{DataArg, ModelArgs, SideArg};
use crate::failure::{Exit, Failure};
use crate::open::write_output;

/// No file of shapes or of a calibration is larger.
const MAX_FILE_BYTES: u64 = 8 << 20;

pub(crate) fn run(args: &ModelArgs) -> Result<(), Failure> {
    let shapes = shapes_of(args.shapes.as_deref())?;
    let calibration = calibration_of(args)?;
    let load = match (args.threads, args.iops) {
        (Some(threads), Some(iops)) => Some(Load { threads, iops }),
        _ => None,
    };
    let residency = match args.data {
        DataArg::Hot => Residency::Hot,
        DataArg::L2Cold => Residency::L2Cold,
        DataArg::MemoryCold => Residency::MemoryCold,
    };
    if residency != Residency::Hot && calibration.cold(residency).is_none() {
        return Err(Failure::new(
            Exit::Usage,
            anyhow::anyhow!("the calibration has no figures for {} data", residency.id()),
        )
        .hint("calibrate on a machine with more free memory, or leave --data out"));
    }
    let report = Report::new(&shapes, &calibration, residency, load);
    if let Some(path) = &args.svg {
        let side = match args.side {
            SideArg::Rx => Side::Rx,
            SideArg::Tx => Side::Tx,
        };
        let Some(side) = report.sides.iter().find(|report| report.side == side) else {
            return Err(Failure::new(
                Exit::Usage,
                anyhow::anyhow!("no frame is {side}, so there is nothing to draw"),
            )
            .hint("choose the other direction with --side"));
        };
        write_output(Some(path), throughput_svg(&calibration, side).as_bytes())?;
    }
    let out = match args.json {
        true => json(&report)?,
        false => text(&report, &calibration),
    };
    write_output(None, out.as_bytes())
}

/// Shapes of a file, or the built-in ones.
pub(crate) fn shapes_of(path: Option<&Path>) -> Result<Vec<Shape>, Failure> {
    let Some(path) = path else {
        return Ok(builtin());
    };
    parse_shapes(&read(path)?)
        .map_err(|error| usage(path, error).hint("docs/crypto.md describes the format of shapes"))
}

fn calibration_of(args: &ModelArgs) -> Result<Calibration, Failure> {
    if let Some(path) = &args.speed {
        return parse_speed_table(&read(path)?).map_err(|error| usage(path, error));
    }
    match &args.calibration {
        Some(path) => Calibration::from_json(&read(path)?).map_err(|error| {
            usage(path, error).hint("`wcprof crypto calibrate -o FILE` makes a calibration")
        }),
        None => measure(&open(None)?),
    }
}

fn usage(path: &Path, error: impl std::error::Error + Send + Sync + 'static) -> Failure {
    let error = anyhow::Error::new(error).context(format!("failed to read `{}`", path.display()));
    Failure::new(Exit::Usage, error)
}

/// A text file of bounded length.
fn read(path: &Path) -> Result<String, Failure> {
    let read = || {
        // Opening a FIFO would wait for a writer.
        if !fs::metadata(path)?.is_file() {
            return Err(std::io::Error::other("not a regular file"));
        }
        let mut text = String::new();
        let mut file = fs::File::open(path)?.take(MAX_FILE_BYTES + 1);
        file.read_to_string(&mut text)?;
        match text.len() as u64 > MAX_FILE_BYTES {
            true => Err(std::io::Error::other("larger than 8 MiB")),
            false => Ok(text),
        }
    };
    read()
        .with_context(|| format!("failed to read `{}`", path.display()))
        .map_err(|error| Failure::new(Exit::Usage, error))
}

fn json(report: &Report) -> Result<String, Failure> {
    #[derive(serde::Serialize)]
    struct Document<'a> {
        schema: &'static str,
        version: u32,
        #[serde(flatten)]
        report: &'a Report,
    }
    let document = Document {
        schema: "wcprof-crypto-model",
        version: 1,
        report,
    };
    printable_json(&document).map_err(|error| Failure::new(Exit::Failure, error))
}

fn text(report: &Report, calibration: &Calibration) -> String {
    let mut out = heading(calibration);
    let _ = writeln!(out, "Data {}\n", report.residency);
    out.push_str(&frames(report));
    for side in &report.sides {
        let _ = write!(out, "\n{}: ", side.side);
        match side.half_peak_bytes {
            Some(half) => {
                let _ = write!(out, "half of the peak at {half:.0} B a call; ");
            }
            None => out.push_str("no line fits the update costs; "),
        }
        out.push_str(&match (side.break_even_bytes, calibration.knows_copies()) {
            (_, false) => "cost of copies not known".to_owned(),
            (None, _) => "copying fragments together never pays".to_owned(),
            (Some(size), _) => format!(
                "copying the fragments of 16 KiB together pays up to {} each",
                bytes(size as u64)
            ),
        });
    }
    out.push('\n');
    out.push_str(&load(report));
    out.push('\n');
    out.push_str(&verdict(report));
    out
}

fn frames(report: &Report) -> String {
    let mut table = Table::new(
        2,
        &[
            "frame",
            "calls",
            "now ns",
            "one allocation",
            "gathered",
            "scratch",
            "bulk",
            "calls are",
        ],
    );
    for frame in &report.frames {
        let saved = |start: &str| {
            let alternative = frame
                .alternatives
                .iter()
                .find(|alternative| alternative.strategy.starts_with(start));
            alternative.map_or("-".to_owned(), |a| signed_percent(-a.saved_share))
        };
        table.row(&[
            &format!("{} {}", frame.side, frame.name),
            &frame.calls,
            &ns(frame.now.ns),
            &saved("contiguous"),
            &saved("gathered"),
            &saved("coalesced"),
            &signed_percent(frame.bulk_ns / frame.now.ns - 1.0),
            &format!("{:.1} %", 100.0 * frame.call_share),
        ]);
    }
    table.render()
}

fn load(report: &Report) -> String {
    let Some(load) = report.load else {
        return String::new();
    };
    let mut out = format!(
        "\n{} threads at {:.0} I/Os a second: each has {:.2} us for an I/O. If an I/O has one such \
         frame:\n",
        load.threads,
        load.iops,
        load.budget_ns() / 1e3
    );
    let mut table = Table::new(
        1,
        &[
            "frame",
            "of a thread",
            "best",
            "gain, points",
            "I/Os at most",
            "bulk",
            "I/Os at most",
        ],
    );
    let mut n_left_out = 0;
    for frame in &report.frames {
        let Some(load) = frame.load else { continue };
        if load.thread_percent > 100.0 {
            n_left_out += 1;
            continue;
        }
        table.row(&[
            &format!("{} {}", frame.side, frame.name),
            &format!("{:.1} %", load.thread_percent),
            &format!("{:.1} %", load.best_thread_percent),
            &format!("{:.1}", load.gain_points),
            &format!("{:.0}", load.iops_bound),
            &format!("{:.1} %", load.bulk_thread_percent),
            &format!("{:.0}", load.bulk_iops_bound),
        ]);
    }
    out.push_str(&table.render());
    if n_left_out > 0 {
        let _ = writeln!(
            out,
            "{n_left_out} left out: these threads could not do that many."
        );
    }
    out
}

fn verdict(report: &Report) -> String {
    let n_all = report.frames.len();
    let helped = &report.verdict.helped;
    let percent = 100.0 * WORTHWHILE;
    let saved = |name: &str| {
        let best = report
            .frames
            .iter()
            .map(|frame| (frame, format!("{} {}", frame.side, frame.name)))
            .find(|(_, other)| other == name);
        best.map_or(0.0, |(frame, _)| frame.best_saved_share())
    };
    let most = helped
        .iter()
        .map(|name| (saved(name), name))
        .max_by(|a, b| a.0.total_cmp(&b.0));
    let most = most.map_or_else(String::new, |(share, name)| {
        let name = wcprof_report::terminal_name(name);
        format!("at most {:.1} % ({name})", 100.0 * share)
    });
    match helped.len() {
        0 => format!(
            "Batching cannot help: it saves less than {percent:.0} % of the encryption of each \
             frame. A faster library or more messenger threads can.\n"
        ),
        n if n == n_all => format!(
            "Batching saves at least {percent:.0} % of the encryption of each frame; {:.1} % of all \
             together.\n",
            100.0 * report.verdict.saved_share
        ),
        n => format!(
            "Batching saves {percent:.0} % or more of the encryption of {n} of {n_all} frames, {most}; \
             for the others it cannot help.\n"
        ),
    }
}
