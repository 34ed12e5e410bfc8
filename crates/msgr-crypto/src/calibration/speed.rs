//! The table of `openssl speed -evp aes-128-gcm` to a calibration, where there is nothing better.
//!
//! Such a table has six sizes and only updates: no cost of a unit, and no copies. The calibration is the
//! line `b + c * n` that fits it best, and the model leaves out the rest.

use super::{Calibration, Curve, DirectionCosts, Fit, LibraryFacts};
use crate::host::Host;

const MAX_BYTES: usize = 1 << 20;
/// `kernel` of a calibration from such a table.
pub(crate) const KERNEL: &str = "unknown (openssl speed)";

const UNKNOWN: &str = "of unknown version";

/// Output of `openssl speed` that can not be used.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
#[non_exhaustive]
pub enum SpeedTableError {
    /// Larger than any such output.
    #[error("the file has more than {MAX_BYTES} bytes")]
    Size,
    /// No line with sizes.
    #[error("no line `type  16 bytes  64 bytes ...`: not the output of openssl speed")]
    NoSizes,
    /// No line with figures.
    #[error("no line `AES-128-GCM  322000.00k ...` behind the sizes")]
    NoFigures,
    /// As many figures as sizes are needed, and at least three.
    #[error("{figures} figures for {sizes} sizes; at least three of each are needed")]
    Count {
        /// Sizes in the heading.
        sizes: usize,
        /// Figures that are numbers above 0.
        figures: usize,
    },
    /// A release whose `speed` sets key, nonce and tag for each operation.
    #[error(
        "made by OpenSSL {0}: since 3.0.16 and 3.4.1 `speed` sets key, nonce and tag for each \
         operation, so its table does not show what an update costs; measure with `wcprof crypto \
         calibrate`"
    )]
    WholeOperations(String),
    /// Throughput that falls with size, or infinite.
    #[error("the figures fit no line of call and byte costs")]
    NoLine,
}

/// Reads what `openssl speed -evp aes-128-gcm -decrypt` printed.
///
/// # Errors
/// When there is no such table, or it was made by a release that measures whole operations.
pub fn parse_speed_table(text: &str) -> Result<Calibration, SpeedTableError> {
    if text.len() > MAX_BYTES {
        return Err(SpeedTableError::Size);
    }
    let version = text.lines().find_map(|line| {
        let rest = line
            .strip_prefix("version:")
            .or_else(|| line.strip_prefix("OpenSSL"))?;
        let word = rest.split_whitespace().next()?;
        word.starts_with(|c: char| c.is_ascii_digit())
            .then(|| word.chars().take(20).collect::<String>())
    });
    if let Some(version) = version.as_deref()
        && measures_whole_operations(version)
    {
        return Err(SpeedTableError::WholeOperations(version.to_owned()));
    }
    let mut lines = text.lines();
    let heading = lines
        .find(|line| line.starts_with("type "))
        .ok_or(SpeedTableError::NoSizes)?;
    let sizes: Vec<u64> = heading
        .split("bytes")
        .filter_map(|part| part.split_whitespace().last()?.parse().ok())
        .filter(|size| *size > 0)
        .collect();
    let figures = lines
        .find(|line| line.to_ascii_lowercase().starts_with("aes-128-gcm"))
        .ok_or(SpeedTableError::NoFigures)?;
    let figures: Vec<f64> = figures
        .split_whitespace()
        .skip(1)
        .filter_map(|word| word.strip_suffix('k')?.parse().ok())
        .filter(|figure: &f64| *figure > 0.0 && figure.is_finite())
        .collect();
    if sizes.len() != figures.len() || sizes.len() < 3 {
        return Err(SpeedTableError::Count {
            sizes: sizes.len(),
            figures: figures.len(),
        });
    }
    // Figures are thousands of bytes a second.
    let points = sizes.into_iter().zip(figures);
    let points = points.map(|(size, figure)| (size, size as f64 / (figure * 1e3) * 1e9));
    calibration_from_points(points.collect(), version)
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

fn calibration_from_points(
    points: Vec<(u64, f64)>,
    version: Option<String>,
) -> Result<Calibration, SpeedTableError> {
    let mut costs = DirectionCosts {
        update: Curve::new(points),
        ..DirectionCosts::default()
    };
    let fit = Fit::new(&costs);
    let line = fit.bulk().ok_or(SpeedTableError::NoLine)?;
    let at = |bytes: u64| line.call_ns + line.byte_ns * bytes as f64;
    if at(0) < 0.0 {
        return Err(SpeedTableError::NoLine);
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
    Ok(Calibration {
        library: LibraryFacts {
            version: format!("OpenSSL {}", version.as_deref().unwrap_or(UNKNOWN)),
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
        use SpeedTableError as E;
        let error = |text: &str| parse_speed_table(text).unwrap_err();
        let sizes = "type 16 bytes 64 bytes 256 bytes\n";
        assert_eq!(error(""), E::NoSizes);
        assert_eq!(error(sizes), E::NoFigures);
        assert_eq!(
            error(&format!("{sizes}AES-128-GCM 1k x 3k")),
            E::Count {
                sizes: 3,
                figures: 2
            }
        );
        let table = format!("{sizes}AES-128-GCM 3000k 2000k 1000k");
        assert_eq!(error(&table), E::NoLine);
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
