//! `wcprof crypto calibrate`: a libcrypto to its costs, as text or JSON.

use std::fmt::Write;
use std::path::Path;
use std::time::Duration;

use msgr_crypto::calibration::{Calibration, CalibrationOptions, Fit, calibrate};
use msgr_crypto::measure::Effort;
use msgr_crypto::run::Residency;
use msgr_crypto::shapes::{Shape, Side};
use msgr_crypto::strategy::{Plan, Strategy};
use msgr_crypto::verify::{Checked, verify};
use msgr_crypto_ffi::{Library, LibraryError};
use wcprof_report::terminal_name;

use super::CalibrateArgs;
use super::model::shapes_of;
use super::sandbox::calibrate_process;
use super::table::{Table, bytes, ns, signed_percent};
use crate::failure::{Exit, Failure};
use crate::open::write_output;

/// Above this share of disturbed measurements the figures are worth a warning.
const DISTURBED: f64 = 0.2;
/// Beyond this a prediction is off.
const OFF: f64 = 0.05;

pub(crate) fn run(args: &CalibrateArgs) -> Result<(), Failure> {
    let shapes = shapes_of(args.shapes.as_deref())?;
    let (library, calibration) = match args.pid {
        Some(pid) => (None, calibrate_process(pid)?),
        None => {
            let library = open(args.lib.as_deref())?;
            let calibration = measure(&library)?;
            (Some(library), calibration)
        }
    };
    if let Some(path) = &args.output {
        write_output(Some(path), json(&calibration)?.as_bytes())?;
    }
    let mut out = match args.json {
        true => json(&calibration)?,
        false => text(&calibration),
    };
    if let Some(library) = library.as_ref().filter(|_| args.verify) {
        out.push('\n');
        out.push_str(&errors(library, &calibration, &shapes)?);
    }
    if let Some(path) = args.output.as_ref().filter(|_| !args.json) {
        let _ = writeln!(
            out,
            "\nSaved. Next: wcprof crypto model --calibration {}",
            terminal_name(&path.display().to_string())
        );
    }
    write_output(None, out.as_bytes())
}

/// The library at `path`, or the system's.
pub(crate) fn open(path: Option<&Path>) -> Result<Library, Failure> {
    let library = match path {
        Some(path) => Library::open(path),
        None => Library::system(),
    };
    library.map_err(|error| {
        let hint = match &error {
            LibraryError::Dependency { .. } => None,
            LibraryError::Load { .. } | LibraryError::NoSymbol { .. } => {
                Some("`grep libcrypto /proc/PID/maps` says which file a process uses".to_owned())
            }
            _ => Some("without --lib the system's libcrypto is measured".to_owned()),
        };
        let mut failure = Failure::new(Exit::Failure, error);
        failure.hint = hint;
        failure
    })
}

/// Calibrates, and says so, since it takes seconds.
pub(crate) fn measure(library: &Library) -> Result<Calibration, Failure> {
    tell!(
        "wcprof: measuring {}: 3 seconds, longer beside other work",
        terminal_name(library.version())
    );
    let calibration = calibrate(library, &CalibrationOptions::default())
        .map_err(|error| Failure::new(Exit::Failure, error))?;
    if calibration.disturbed_share > DISTURBED {
        tell!(
            "wcprof: other work slowed this core during {:.0} % of the measurements; they are less \
             exact, measure again on a calmer machine",
            100.0 * calibration.disturbed_share
        );
    }
    Ok(calibration)
}

fn json(calibration: &Calibration) -> Result<String, Failure> {
    let mut json = calibration
        .to_json()
        .map_err(|error| Failure::new(Exit::Failure, error))?;
    json.push('\n');
    Ok(json)
}

fn text(calibration: &Calibration) -> String {
    let mut out = heading(calibration);
    out.push('\n');
    let mut table = Table::new(
        1,
        &[
            "bytes",
            "decrypt ns",
            "GB/s",
            "encrypt ns",
            "GB/s",
            "with nonce, tag",
            "GB/s",
            "memcpy ns",
        ],
    );
    for size in [
        16_u64, 64, 96, 256, 272, 512, 1024, 2048, 4096, 8192, 16384, 65536, 262_144,
    ] {
        let update = |side| calibration.direction(side).update_ns(0, size);
        let decrypt = update(Side::Rx);
        let message = decrypt + calibration.decrypt.unit_ns;
        let rate = |ns: f64| format!("{:.2}", size as f64 / ns);
        table.row(&[
            &bytes(size),
            &ns(decrypt),
            &rate(decrypt),
            &ns(update(Side::Tx)),
            &rate(update(Side::Tx)),
            &ns(message),
            &rate(message),
            &ns(calibration.copy.at(size)),
        ]);
    }
    out.push_str(&table.render());
    out.push('\n');
    let mut table = Table::new(1, &["ns", "decrypt", "encrypt"]);
    let both = [&calibration.decrypt, &calibration.encrypt];
    for (name, value) in [
        ("nonce, tag and final, per unit", both.map(|c| c.unit_ns)),
        ("  of it the nonce", both.map(|c| c.nonce_ns)),
        ("empty call", both.map(|c| c.update_ns(0, 0))),
        ("new key and nonce", both.map(|c| c.rekey_ns)),
        ("new context with key", both.map(|c| c.context_ns)),
    ] {
        table.row(&[name, &ns(value[0]), &ns(value[1])]);
    }
    out.push_str(&table.render());
    for (side, name) in [(Side::Rx, "Decrypting"), (Side::Tx, "Encrypting")] {
        for regime in Fit::of(calibration.direction(side)).regimes {
            let _ = write!(
                out,
                "\n{name} {} to {}: {} ns a call + {:.3} ns a byte (half of {:.1} GB/s at {:.0} B); \
                 off by {:.1} % in the middle, {:.1} % at most",
                bytes(regime.from_bytes),
                bytes(regime.to_bytes),
                ns(regime.call_ns),
                regime.byte_ns,
                1.0 / regime.byte_ns,
                regime.half_peak_bytes(),
                100.0 * regime.median_error,
                100.0 * regime.max_error,
            );
        }
    }
    out.push('\n');
    let distances = [
        ("last-level cache", &calibration.l2_cold),
        ("memory", &calibration.memory_cold),
    ];
    for (name, cold) in distances {
        let Some(cold) = cold else { continue };
        let more = |calls: &str| {
            let shape = Shape::new("", Side::Rx, calls).ok()?;
            let plan = Plan::new(&shape, Strategy::now(Side::Rx));
            Some(cold.distance_ns(&plan))
        };
        let (Some(small), Some(large)) = (more("80 | 256,16"), more("80 | 192,16384,16")) else {
            continue;
        };
        let _ = writeln!(
            out,
            "From {name}: {} ns more for a received request, {} ns more for 16 KiB",
            ns(small),
            ns(large),
        );
    }
    out
}

/// Library, CPU and caches.
pub(crate) fn heading(calibration: &Calibration) -> String {
    let library = &calibration.library;
    let mut out = String::new();
    let file = match &library.path {
        Some(path) => format!(" ({})", terminal_name(path)),
        None => String::new(),
    };
    let _ = writeln!(out, "{}{file}", terminal_name(&library.version));
    let features: Vec<_> = library
        .cpu_features
        .iter()
        .map(|name| terminal_name(name))
        .collect();
    let _ = writeln!(
        out,
        "GCM kernel {}; CPU features {}",
        terminal_name(&library.kernel),
        match features.is_empty() {
            true => "unknown".to_owned(),
            false => features.join(" "),
        }
    );
    if calibration.made_unix > 0 {
        let _ = writeln!(
            out,
            "{}, L2 {} KiB, last-level cache {} MiB; measured in {:.1} s of CPU time",
            terminal_name(&calibration.host.cpu),
            calibration.host.l2_bytes >> 10,
            calibration.host.l3_bytes >> 20,
            calibration.cpu_seconds
        );
    }
    out
}

/// The model against the machine.
fn errors(
    library: &Library,
    calibration: &Calibration,
    shapes: &[Shape],
) -> Result<String, Failure> {
    let effort = Effort {
        rounds: 15,
        sample_ns: 150_000.0,
        most_cpu: Duration::MAX,
    };
    let residencies = [Residency::Hot, Residency::L2Cold, Residency::MemoryCold];
    let checked = verify(library, calibration, shapes, &residencies, effort)
        .map_err(|error| Failure::new(Exit::Failure, error))?;
    let mut table = Table::new(
        3,
        &[
            "data",
            "frame",
            "strategy",
            "measured ns",
            "predicted ns",
            "error",
            "error now",
            "spread",
        ],
    );
    for row in &checked {
        let Some(shape) = shapes.get(row.shape) else {
            continue;
        };
        table.row(&[
            row.residency.id(),
            &format!("{} {}", shape.side, shape.name),
            row.strategy.id(),
            &ns(row.measured_ns),
            &ns(row.prediction.ns()),
            &match row.is_disturbed {
                true => format!("({})", signed_percent(row.error())),
                false => signed_percent(row.error()),
            },
            &signed_percent(row.error_now()),
            &format!("{:.1} %", 100.0 * row.spread),
        ]);
    }
    let mut out = table.render();
    for residency in residencies {
        out.push('\n');
        out.push_str(&summary(residency, &checked));
    }
    out.push('\n');
    Ok(out)
}

/// How far off, with the calibration as it is, and with costs of distance as they were meanwhile.
fn summary(residency: Residency, checked: &[Checked]) -> String {
    let of: Vec<_> = checked
        .iter()
        .filter(|row| row.residency == residency)
        .collect();
    let calm: Vec<_> = of.iter().filter(|row| !row.is_disturbed).collect();
    let n_disturbed = of.len() - calm.len();
    let disturbed = match n_disturbed {
        0 => String::new(),
        n => format!("; {n} in brackets were disturbed by other work and do not count"),
    };
    let Some(calibrated) = distribution(calm.iter().map(|row| row.error())) else {
        return format!("{}: nothing to compare{disturbed}", residency.id());
    };
    let mut out = format!("{}: {calibrated}{disturbed}", residency.id());
    if residency != Residency::Hot
        && let Some(now) = distribution(calm.iter().map(|row| row.error_now()))
    {
        let n_vague = calm.iter().filter(|row| row.spread > OFF).count();
        let _ = write!(
            out,
            "\n  with distance as it was meanwhile: {now}; {n_vague} were measured twice more than \
             {:.0} % apart",
            100.0 * OFF
        );
    }
    out
}

fn distribution(errors: impl Iterator<Item = f64>) -> Option<String> {
    let mut errors: Vec<f64> = errors.map(f64::abs).collect();
    errors.sort_by(f64::total_cmp);
    let (middle, most) = (errors.get(errors.len() / 2)?, errors.last()?);
    Some(format!(
        "off by {:.1} % in the middle, {:.1} % at most; {} of {} within {:.0} %",
        100.0 * middle,
        100.0 * most,
        errors.iter().filter(|error| **error <= OFF).count(),
        errors.len(),
        100.0 * OFF
    ))
}
