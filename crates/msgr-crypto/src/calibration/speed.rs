//! The table of `openssl speed -evp aes-128-gcm` to a calibration, where there is nothing better.
//!
//! Such a table has six sizes and only updates: no cost of a unit, and no copies. The calibration is the
//! line `b + c * n` that fits it best, and the model leaves out the rest.

use super::{Calibration, Curve, DirectionCosts, Fit, LibraryFacts};
use crate::file_error::{FileError, ensure};
use crate::host::Host;

const MAX_BYTES: usize = 1 << 20;
/// `kernel` of a calibration from such a table.
pub(crate) const KERNEL: &str = "unknown (openssl speed)";

const UNKNOWN: &str = "of unknown version";
const NO_SIZES: &str = "no line `type  16 bytes  64 bytes ...`: not the output of openssl speed";
const NO_FIGURES: &str = "no line `AES-128-GCM  322000.00k ...` behind the sizes";

/// Reads what `openssl speed -evp aes-128-gcm -decrypt` printed.
///
/// # Errors
/// When there is no such table, or it was made by a release that measures whole operations.
pub fn parse_speed_table(text: &str) -> Result<Calibration, FileError> {
    ensure(text.len() <= MAX_BYTES, || {
        format!("the file has more than {MAX_BYTES} bytes")
    })?;
    let version = text.lines().find_map(|line| {
        let rest = line.strip_prefix("version:");
        let rest = rest.or_else(|| line.strip_prefix("OpenSSL"))?;
        let word = rest.split_whitespace().next()?;
        let is_version = word.starts_with(|c: char| c.is_ascii_digit());
        is_version.then(|| word.chars().take(20).collect::<String>())
    });
    let version = version.unwrap_or_else(|| UNKNOWN.to_owned());
    ensure(!measures_whole_operations(&version), || {
        format!(
            "made by OpenSSL {version}: since 3.0.16 and 3.4.1 `speed` sets key, nonce and tag for each \
             operation, so its table does not show what an update costs; measure with `wcprof crypto \
             calibrate`"
        )
    })?;
    let mut lines = text.lines();
    let heading = lines.find(|line| line.starts_with("type "));
    let heading = heading.ok_or_else(|| FileError(NO_SIZES.to_owned()))?;
    let sizes = heading.split("bytes");
    let sizes = sizes.filter_map(|part| part.split_whitespace().last()?.parse().ok());
    let sizes: Vec<u64> = sizes.filter(|size| *size > 0).collect();
    let figures = lines.find(|line| line.to_ascii_lowercase().starts_with("aes-128-gcm"));
    let figures = figures.ok_or_else(|| FileError(NO_FIGURES.to_owned()))?;
    let figures = figures.split_whitespace().skip(1);
    let figures = figures.filter_map(|word| word.strip_suffix('k')?.parse().ok());
    let figures: Vec<f64> = figures
        .filter(|n: &f64| *n > 0.0 && n.is_finite())
        .collect();
    let (n, n_sizes) = (figures.len(), sizes.len());
    ensure(n == n_sizes && n >= 3, || {
        format!("{n} figures for {n_sizes} sizes; at least three of each are needed")
    })?;
    // Figures are thousands of bytes a second.
    let points = sizes.into_iter().zip(figures);
    let points = points.map(|(size, figure)| (size, size as f64 / (figure * 1e3) * 1e9));
    calibration_from_points(points.collect(), &version)
        .ok_or_else(|| FileError("the figures fit no line of call and byte costs".to_owned()))
}

/// Whether `speed` of this release sets key, nonce and tag each time (pull request 25823: 3.0.16,
/// 3.4.1, and releases after those; others in between are not known and taken as changed).
fn measures_whole_operations(version: &str) -> bool {
    let mut parts = version.split('.').map(|part| {
        let digits: String = part.chars().take_while(char::is_ascii_digit).collect();
        digits.parse::<u32>().unwrap_or(0)
    });
    let mut next = || parts.next().unwrap_or(0);
    let (major, minor, patch) = (next(), next(), next());
    match (major, minor) {
        (0..=2, _) => false,
        (3, 0) => patch >= 16,
        (3, 4) => patch >= 1,
        (3, 1..=3) => false,
        _ => true,
    }
}

/// `None` when throughput falls with size, or is infinite.
fn calibration_from_points(points: Vec<(u64, f64)>, version: &str) -> Option<Calibration> {
    let mut costs = DirectionCosts {
        update: Curve::new(points),
        ..DirectionCosts::default()
    };
    let fit = Fit::new(&costs);
    let line = fit.bulk()?;
    let at = |bytes: u64| line.call_ns + line.byte_ns * bytes as f64;
    if at(0) < 0.0 {
        return None;
    }
    costs.update = Curve::new([16, 64, 1024, 16384].map(|n| (n, at(n))).to_vec());
    let zero = Curve::new(vec![(0, 0.0)]);
    // An empty call returns at once; how fast is not known.
    costs.small = Curve::new(vec![(0, 0.0), (1, at(1)), (15, at(15))]);
    costs.fill = Curve::new(vec![(1, at(1)), (15, at(15))]);
    costs.tail = Curve::new(vec![(0, 0.0), (15, 15.0 * line.byte_ns)]);
    costs.head = costs.tail.clone();
    costs.shifted = zero.clone();
    costs.out_of_place = zero.clone();
    costs.first = zero.clone();
    Some(Calibration {
        library: LibraryFacts {
            version: format!("OpenSSL {version}"),
            path: None,
            kernel: KERNEL.to_owned(),
            cpu_features: Vec::new(),
        },
        host: Host {
            cpu: "unknown".to_owned(),
            l2_bytes: u64::from(u32::MAX),
        },
        made_unix: 0,
        cpu_seconds: 0.0,
        reference_ns: 0.0,
        disturbed_share: 0.0,
        encrypt: costs.clone(),
        decrypt: costs,
        copy: zero,
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::shapes::Side;

    /// The table of the report at ceph.io, 2022/qemu-kvm-tuning (AMD EPYC 7742).
    pub(crate) const REPORT: &str = include_str!("../../data/report-2022.speed.txt");

    /// Check the line through the report's table: 45 ns a call, 0.247 ns a byte.
    #[test]
    fn report() {
        let calibration = parse_speed_table(REPORT).unwrap();
        let costs = calibration.direction(Side::Rx);
        let byte_ns = (costs.update_ns(0, 16384) - costs.update_ns(0, 1024)) / 15360.0;
        assert!((byte_ns - 0.247).abs() < 0.001, "{byte_ns}");
        let call_ns = costs.update_ns(0, 16) - 16.0 * byte_ns;
        assert!((call_ns - 44.9).abs() < 0.5, "{call_ns}");
    }

    /// Check that output without a table, with holes, or of a release that measures something else
    /// is refused.
    #[test]
    fn refused() {
        let sizes = "type 16 bytes 64 bytes 256 bytes\n";
        for (text, part) in [
            (String::new(), "no line `type"),
            (sizes.to_owned(), "no line `AES-128-GCM"),
            (
                format!("{sizes}AES-128-GCM 1k x 3k"),
                "2 figures for 3 sizes",
            ),
            (
                format!("{sizes}AES-128-GCM 3000k 2000k 1000k"),
                "fit no line",
            ),
        ] {
            let error = parse_speed_table(&text).unwrap_err().to_string();
            assert!(error.contains(part), "{error}");
        }
        let table = format!("{sizes}AES-128-GCM 300000k 900000k 2000000k");
        assert!(parse_speed_table(&table).is_ok());
        for (version, good) in [
            ("3.0.15", true),
            ("3.0.16", false),
            ("3.4.0", true),
            ("3.4.1", false),
            ("3.5.7", false),
            ("1.1.1w", true),
        ] {
            let result = parse_speed_table(&format!("version: {version}\n{table}"));
            assert_eq!(result.is_ok(), good, "{version}");
        }
    }
}
