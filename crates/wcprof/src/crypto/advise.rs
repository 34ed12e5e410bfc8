//! `wcprof crypto advise`: costs of the library, the frames of a process, and the model, to one
//! sentence and its table.

mod mix;
mod options;

use std::fmt::Write;
use std::path::{Path, PathBuf};

use clap::Args;
use msgr_crypto::calibration::Calibration;
use msgr_crypto::model::{Report, WORTHWHILE};
use msgr_crypto::observed::Role;
use msgr_crypto::run::Residency;
use msgr_crypto::shapes::Shape;
use msgr_crypto_ffi::{Capabilities, GcmKernel, VersionNumber};
use serde::Serialize;
use wcprof_findings::printable_json;
use wcprof_report::terminal_name;

use self::mix::Mix;
use self::options::{Choice, Load, choices};
use super::calibrate::{heading, measure, open};
use super::observe::{BurstArgs, Source, Watched, shapes_by_protocol, watch};
use super::sandbox::calibrate_process;
use super::table::{Table, signed_percent};
use crate::cli::{RuleArgs, SymbolArgs};
use crate::failure::{Exit, Failure};
use crate::open::{KernelSide, profile_of, write_output};

/// Frames of more bytes are left out where their number is not known.
const MAX_GUESSED: usize = 128 << 10;

#[derive(Args, Debug)]
pub(crate) struct AdviseArgs {
    /// Process, or trace of `wcprof attach`
    target: String,
    #[command(flatten)]
    burst: BurstArgs,
    /// Calibration of the process's library, from `wcprof crypto calibrate -o` [default: measure now]
    #[arg(long, value_name = "FILE")]
    calibration: Option<PathBuf>,
    /// Calibration of another library to compare with, from `wcprof crypto calibrate --lib PATH -o`
    #[arg(long, value_name = "FILE")]
    other: Option<PathBuf>,
    /// Machine-readable output
    #[arg(long)]
    json: bool,
}

/// What is said.
#[derive(Debug, Serialize)]
struct Advice<'a> {
    schema: &'static str,
    version: u32,
    verdict: &'a str,
    choices: &'a [Choice],
    load: Option<Load>,
    mix: Option<&'a Mix>,
    watched: Option<&'a Watched>,
    calibrated: Calibrated,
    report: &'a Report,
}

/// Whose library the costs are of.
#[derive(Copy, Clone, PartialEq, Eq, Debug, Serialize)]
#[serde(rename_all = "lowercase")]
enum Calibrated {
    /// That of a file that was given.
    Saved,
    /// The process's own.
    Process,
    /// This system's, for want of the one that was recorded.
    System,
}

pub(crate) fn run(args: &AdviseArgs) -> Result<(), Failure> {
    let pid = match Path::new(&args.target).exists() {
        true => None,
        false => args.target.parse::<i32>().ok(),
    };
    let other = args.other.as_deref().map(read).transpose()?;
    let (watched, mix, shapes, (calibration, calibrated)) = match pid {
        Some(pid) => {
            let watched = watch(pid, &args.burst)?;
            let shapes = watched.shapes();
            if shapes.is_empty() {
                return Err(Failure::new(
                    Exit::Failure,
                    anyhow::anyhow!("no frames of the messenger were seen"),
                )
                .hint("it is idle, or not in secure mode: try under load, or with a longer -d"));
            }
            let calibration = match &args.calibration {
                Some(path) => (read(path)?, Calibrated::Saved),
                None => (calibrate_process(pid)?, Calibrated::Process),
            };
            (Some(watched), None, shapes, calibration)
        }
        None => {
            let profile = profile_of(
                Path::new(&args.target),
                None,
                &RuleArgs::default(),
                &SymbolArgs::default(),
                KernelSide::Hidden,
            )?;
            let mix = Mix::new(&profile);
            let shapes = shapes_by_protocol(Role::of_process(&mix.process));
            let calibration = match &args.calibration {
                Some(path) => (read(path)?, Calibrated::Saved),
                None => {
                    let library = open(None)?;
                    tell!(
                        "wcprof: a trace holds no library: this system's is measured, which may not be \
                         that of the trace; --calibration takes another"
                    );
                    (measure(&library)?, Calibrated::System)
                }
            };
            (None, Some(mix), shapes, calibration)
        }
    };
    let mut shapes = shapes;
    if !matches!(
        watched.as_ref().map(|w| &w.source),
        Some(Source::Live { .. })
    ) {
        // One frame of 4 MiB would outweigh all others in a mean that knows no numbers of them.
        shapes.retain(|shape| shape.n_bytes() <= MAX_GUESSED);
    }
    let report = Report::new(&shapes, &calibration, Residency::Hot, None);
    let load = watched.as_ref().and_then(Load::of);
    let other = other.map(|other| Report::new(&shapes, &other, Residency::Hot, None));
    let choices = choices(&report, other.as_ref(), newer_kernel(&calibration), load);
    let verdict = verdict(&report, &choices, mix.as_ref());
    let out = match args.json {
        true => {
            let advice = Advice {
                schema: "wcprof-crypto-advise",
                version: 1,
                verdict: &verdict,
                choices: &choices,
                load,
                mix: mix.as_ref(),
                watched: watched.as_ref(),
                calibrated,
                report: &report,
            };
            printable_json(&advice).map_err(|error| Failure::new(Exit::Failure, error))?
        }
        false => text(
            &verdict,
            &choices,
            watched.as_ref(),
            mix.as_ref(),
            &shapes,
            (&calibration, calibrated),
        ),
    };
    write_output(None, out.as_bytes())
}

fn read(path: &Path) -> Result<Calibration, Failure> {
    let shown = path.display().to_string();
    let failed = |error: anyhow::Error| {
        Failure::new(
            Exit::Usage,
            error.context(format!(
                "failed to read calibration `{}`",
                terminal_name(&shown)
            )),
        )
    };
    let metadata = std::fs::metadata(path).map_err(|error| failed(error.into()))?;
    if !metadata.is_file() || metadata.len() > 8 << 20 {
        return Err(failed(anyhow::anyhow!("not a file of that size")));
    }
    let json = std::fs::read_to_string(path).map_err(|error| failed(error.into()))?;
    Calibration::from_json(&json).map_err(|error| failed(error.into()))
}

/// The kernel that OpenSSL since 3.1 would use here, if it is another than now.
fn newer_kernel(calibration: &Calibration) -> Option<GcmKernel> {
    let newer = GcmKernel::pick(VersionNumber::new(3, 5, 0), Capabilities::of_this_cpu());
    (newer.id() != calibration.library.kernel).then_some(newer)
}

fn verdict(report: &Report, choices: &[Choice], mix: Option<&Mix>) -> String {
    let best = report.verdict.saved_share;
    let lever = choices
        .iter()
        .filter(|choice| choice.is_lever && choice.saved_share > best.max(WORTHWHILE))
        .max_by(|a, b| a.saved_share.total_cmp(&b.saved_share));
    let lever = match lever {
        Some(choice) => format!(
            "; {} would save {:.0} % of it",
            choice.name,
            100.0 * choice.saved_share
        ),
        None => {
            "; more messenger threads, or crc mode in a trusted network, are what is left".into()
        }
    };
    let whole = mix.map_or(String::new(), |mix| {
        format!(
            " (encryption is {:.1} % of the messenger threads' CPU time)",
            100.0 * mix.crypto_share
        )
    });
    match best < WORTHWHILE {
        true => format!(
            "Batching cannot help: it would save {:.1} % of the time of encryption{whole}{lever}.",
            100.0 * best
        ),
        false => format!(
            "Batching would save {:.1} % of the time of encryption{whole}{lever}.",
            100.0 * best
        ),
    }
}

fn text(
    verdict: &str,
    choices: &[Choice],
    watched: Option<&Watched>,
    mix: Option<&Mix>,
    shapes: &[Shape],
    (calibration, calibrated): (&Calibration, Calibrated),
) -> String {
    let mut out = format!("{verdict}\n\n");
    let mut table = Table::new(1, &["", "ns a frame", "saved", "of a thread"]);
    for choice in choices {
        table.row(&[
            &choice.name,
            &format!("{:.0}", choice.frame_ns),
            &match choice.saved_share {
                0.0 => "-".to_owned(),
                share => signed_percent(-share),
            },
            &choice
                .thread_percent
                .map_or("-".to_owned(), |percent| format!("{percent:.2} %")),
        ]);
    }
    out.push_str(&table.render());
    for note in choices.iter().filter_map(|choice| choice.note.as_deref()) {
        let _ = writeln!(out, "{note}");
    }
    out.push('\n');
    match (watched.map(|watched| &watched.source), mix) {
        (Some(Source::Live { burst, observation }), _) => {
            let _ = writeln!(
                out,
                "From {} frames of {} kinds seen in {:.2} s; the burst itself slowed these threads.",
                observation.n_frames(),
                shapes.len(),
                burst.seconds
            );
        }
        (Some(Source::Protocol { reason, .. }), _) => {
            let _ = writeln!(
                out,
                "NOT OBSERVED ({}): one frame of each kind that such a process has by the protocol, up to \
                 64 KiB.",
                terminal_name(reason)
            );
        }
        (None, Some(mix)) => out.push_str(&mix.text()),
        (None, None) => {}
    }
    out.push('\n');
    out.push_str(match calibrated {
        Calibrated::Saved => "Costs as calibrated in the given file:\n",
        Calibrated::Process => "Costs of the process's own library:\n",
        Calibrated::System => {
            "Costs of this system's library on this machine, which may not be those of the trace (measure \
             there:\nwcprof crypto calibrate --pid PID -o FILE, and give it with --calibration FILE):\n"
        }
    });
    out.push_str(&heading(calibration));
    out
}
