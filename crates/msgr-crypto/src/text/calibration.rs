//! A calibration to the tables of `wcprof crypto calibrate`.

use std::fmt::Write;

use super::table::{Table, format_bytes, format_ns};
use crate::calibration::{Calibration, Fit};
use crate::shapes::Side;
use wcprof_text::terminal_name;

/// Sizes of the table of calls.
const SIZES: [u64; 13] = [
    16, 64, 96, 256, 272, 512, 1024, 2048, 4096, 8192, 16384, 65536, 262_144,
];

/// Library, machine, and what calls cost, by size.
pub fn calibration_text(calibration: &Calibration) -> String {
    format!(
        "{}\n{}\n{}{}",
        heading(calibration),
        call_table(calibration),
        setup_table(calibration),
        fits(calibration)
    )
}

/// Library, CPU and cache.
pub fn heading(calibration: &Calibration) -> String {
    let library = &calibration.library;
    let path = library.path.as_ref();
    let path = path.map_or(String::new(), |path| format!(" ({})", terminal_name(path)));
    let features = match library.cpu_features.is_empty() {
        true => "unknown".to_owned(),
        false => terminal_name(&library.cpu_features.join(" ")).into_owned(),
    };
    let mut out = format!(
        "{}{path}\nGCM kernel {}; CPU features {features}\n",
        terminal_name(&library.version),
        terminal_name(&library.kernel),
    );
    if calibration.made_unix > 0 {
        let _ = writeln!(
            out,
            "{}, L2 {} KiB; measured in {:.1} s of CPU time",
            terminal_name(&calibration.host.cpu),
            calibration.host.l2_bytes >> 10,
            calibration.cpu_seconds
        );
    }
    out
}

fn call_table(calibration: &Calibration) -> String {
    let mut table = Table::new(
        1,
        "bytes | decrypt ns | GB/s | encrypt ns | GB/s | with nonce, tag | GB/s | memcpy ns",
    );
    for size in SIZES {
        let update = |side| calibration.direction(side).update_ns(0, size);
        let decrypt = update(Side::Rx);
        let message = decrypt + calibration.decrypt.unit_ns;
        let rate = |ns: f64| format!("{:.2}", size as f64 / ns);
        table.row(&[
            &format_bytes(size),
            &format_ns(decrypt),
            &rate(decrypt),
            &format_ns(update(Side::Tx)),
            &rate(update(Side::Tx)),
            &format_ns(message),
            &rate(message),
            &format_ns(calibration.copy.at(size)),
        ]);
    }
    table.render()
}

fn setup_table(calibration: &Calibration) -> String {
    let mut table = Table::new(1, "ns | decrypt | encrypt");
    let both = [&calibration.decrypt, &calibration.encrypt];
    for (name, value) in [
        ("nonce, tag and final, per unit", both.map(|c| c.unit_ns)),
        ("  nonce alone", both.map(|c| c.nonce_ns)),
        ("empty call", both.map(|c| c.update_ns(0, 0))),
        ("new key and nonce", both.map(|c| c.rekey_ns)),
        ("new context with key", both.map(|c| c.context_ns)),
    ] {
        table.row(&[&name, &format_ns(value[0]), &format_ns(value[1])]);
    }
    table.render()
}

fn fits(calibration: &Calibration) -> String {
    let mut out = String::new();
    for (side, name) in [(Side::Rx, "Decrypting"), (Side::Tx, "Encrypting")] {
        for regime in Fit::new(calibration.direction(side)).regimes {
            let _ = write!(
                out,
                "\n{name} {} to {}: {} ns a call + {:.3} ns a byte (half of {:.1} GB/s at {:.0} B); \
                 median error {:.1} %, largest {:.1} %",
                format_bytes(regime.from_bytes),
                format_bytes(regime.to_bytes),
                format_ns(regime.call_ns),
                regime.byte_ns,
                1.0 / regime.byte_ns,
                regime.half_peak_bytes(),
                100.0 * regime.median_error,
                100.0 * regime.max_error,
            );
        }
    }
    out.push('\n');
    out
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::calibration::tests::example;

    /// Check the heading, a row of each table, a fitted line, and that names can not leave their line.
    #[test]
    fn tables() {
        let mut calibration = example();
        calibration.host.cpu = "a CPU\n\u{1b}[2J".into();
        let text = calibration_text(&calibration);
        let starts = "OpenSSL 3.0.0 (/lib/libcrypto.so.3)\nGCM kernel aesni-stitched; CPU features aes\n\
                      a CPU??[2J, L2 512 KiB; measured in 2.0 s of CPU time\n\n";
        assert!(text.starts_with(starts), "{text}");
        for row in [
            "64 B           24.0  2.67        24.0  2.67              124  0.52        4.0\n",
            "new key and nonce                   200      200\n",
            "\nEncrypting 16 B to 64 KiB: ",
        ] {
            assert!(text.contains(row), "no {row:?} in:\n{text}");
        }
    }
}
