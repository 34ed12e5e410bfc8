//! A libcrypto to its calibration: half a second of CPU time in a second on a quiet machine, at most about
//! [`MAX_SECONDS`] beside other work.
//!
//! Everything is measured by the code that runs whole frames. So what that code itself costs is in the
//! table, and is the same for the table and for what it predicts.

mod cases;
mod direction;

use std::collections::BTreeMap;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use msgr_crypto_ffi::Library;

use self::cases::{CaseSet, REPEAT, Work, out_of_place};
use self::direction::{add_cases, costs};
use super::costs::{Calibration, DirectionCosts, LibraryFacts};
use super::curve::Curve;
use crate::host::Host;
use crate::measure::{Effort, MeasureError, Reference, thread_cpu_ns};
use crate::shapes::Side;

/// Bytes of the copies that are measured.
const COPIES: [usize; 15] = [
    0, 16, 64, 128, 192, 288, 512, 1024, 2048, 4096, 8192, 16384, 32768, 65536, 131_072,
];

/// Wall-clock seconds that a calibration takes at most, unless it hardly gets a CPU: the reference, three
/// sets of cases, and what the fewest samples take. By the default options.
pub const MAX_SECONDS: u64 = 10;

/// How to calibrate.
#[derive(Copy, Clone, Debug)]
pub struct CalibrationOptions {
    /// Samples and their length.
    pub effort: Effort,
    /// How long to sleep in all, at most, while other work slows the core.
    pub patience: Duration,
}

impl Default for CalibrationOptions {
    fn default() -> Self {
        Self {
            effort: Effort {
                rounds: 11,
                sample_ns: 100_000.0,
                max_time: Duration::from_secs(3),
            },
            patience: Duration::from_secs(5),
        }
    }
}

/// Measures what calls of `library` cost on this machine, on the thread that calls.
///
/// # Errors
/// When libcrypto fails, or the measurements make no sense.
pub fn calibrate(
    library: &Library,
    options: &CalibrationOptions,
) -> Result<Calibration, MeasureError> {
    let begin_ns = thread_cpu_ns()?;
    let host = Host::detect();
    let mut session = Session {
        library,
        l2_bytes: host.l2_bytes,
        effort: options.effort,
        reference: Reference::new(library, options.patience)?,
        n_cases: 0,
        n_disturbed: 0,
    };
    let encrypt = session.direction_costs(Side::Tx)?;
    let decrypt = session.direction_costs(Side::Rx)?;
    let copy = session.copy_costs()?;
    let made = SystemTime::now().duration_since(UNIX_EPOCH);
    let calibration = Calibration {
        library: LibraryFacts::from_library(library),
        host,
        made_unix: made.map_or(0, |time| time.as_secs()),
        cpu_seconds: (thread_cpu_ns()? - begin_ns) / 1e9,
        reference_ns: session.reference.best_ns,
        disturbed_share: session.n_disturbed as f64 / session.n_cases.max(1) as f64,
        encrypt,
        decrypt,
        copy,
    };
    calibration
        .check()
        .map_err(|error| MeasureError::Unstable(error.to_string()))?;
    Ok(calibration)
}

impl LibraryFacts {
    /// What a loaded library says of itself.
    pub fn from_library(library: &Library) -> Self {
        let features = library.capabilities().0.into_iter();
        Self {
            version: library.version.clone(),
            path: library.path.as_ref().map(|path| path.display().to_string()),
            kernel: library.gcm_kernel().id().to_owned(),
            cpu_features: features.map(str::to_owned).collect(),
        }
    }
}

/// What all measurements of a calibration share.
struct Session<'lib> {
    library: &'lib Library,
    l2_bytes: u64,
    effort: Effort,
    reference: Reference<'lib>,
    n_cases: usize,
    n_disturbed: usize,
}

impl<'lib> Session<'lib> {
    fn direction_costs(&mut self, side: Side) -> Result<DirectionCosts, MeasureError> {
        let mut set = CaseSet::new(self.library, side);
        add_cases(&mut set, self.l2_bytes)?;
        Ok(costs(&self.measure(set)?))
    }

    fn copy_costs(&mut self) -> Result<Curve, MeasureError> {
        let mut set = CaseSet::new(self.library, Side::Tx);
        set.add_unit(Work::Unit(0), vec![])?;
        // Source and destination are to fit half of L2.
        let fits = |len: &usize| 4 * *len as u64 <= self.l2_bytes;
        for len in COPIES.into_iter().filter(fits) {
            set.add_unit(Work::Copy(len), vec![out_of_place(len, true); REPEAT])?;
        }
        let ns = self.measure(set)?;
        let unit_ns = ns[&Work::Unit(0)];
        let copies = ns.into_iter().filter_map(|(work, ns)| match work {
            Work::Copy(len) => Some((len, ((ns - unit_ns) / REPEAT as f64).max(0.0))),
            _ => None,
        });
        Ok(Curve::by_size(copies))
    }

    fn measure(&mut self, set: CaseSet<'lib>) -> Result<BTreeMap<Work, f64>, MeasureError> {
        let times = set.measure(&mut self.reference, self.effort)?;
        self.n_cases += times.len();
        self.n_disturbed += times.values().filter(|(_, is)| *is).count();
        Ok(times
            .into_iter()
            .map(|(work, (ns, _))| (work, ns))
            .collect())
    }
}

#[cfg(test)]
mod tests {
    use super::super::costs::{BLOCK, DENSE, PERIOD};
    use super::*;

    /// Check that a calibration by the least effort is sound whatever else runs here: every size is
    /// there, and it survives its file.
    #[test]
    fn smallest_effort() {
        let library = Library::system().unwrap();
        let options = CalibrationOptions {
            effort: Effort {
                rounds: 3,
                sample_ns: 5000.0,
                max_time: Duration::MAX,
            },
            patience: Duration::ZERO,
        };
        let calibration = calibrate(&library, &options).unwrap();
        for costs in [&calibration.encrypt, &calibration.decrypt] {
            let n_points = costs.update.points().len() as u64;
            assert!(n_points > (DENSE + PERIOD) / BLOCK, "{n_points}");
            assert!(costs.update_ns(0, 16384) > 0.0 && costs.unit_ns > 0.0);
        }
        assert!(calibration.has_copy_costs());
        assert_eq!(calibration.library.version, library.version);
        let text = calibration.to_json().unwrap();
        let read = Calibration::from_json(&text).unwrap();
        assert_eq!(
            read.encrypt.update.points().len(),
            calibration.encrypt.update.points().len()
        );
    }
}
