//! A libcrypto to its calibration: two to three seconds of CPU time, ten while other work disturbs it.
//!
//! Everything is measured through the very code that runs whole frames, so that what the code itself
//! costs is in the table, too, and is the same for the table and for what it predicts.

use std::time::{Duration, SystemTime, UNIX_EPOCH};

use msgr_crypto_ffi::{CallError, Direction, Library};

use super::cold::Anchors;
use super::{
    BLOCK, Calibration, ColdCosts, Curve, DENSE, DirectionCosts, LibraryFacts, PERIOD, PERIOD_BEGIN,
};
use crate::host::Host;
use crate::measure::{Case, Effort, MeasureError, Reference, cpu_now, measure, median};
use crate::run::{Distance, Memory, Residency, Runner};
use crate::shapes::Side;
use crate::strategy::{Area, Op, Plan, Span};

/// Bytes of partial blocks that are measured; others lie between.
const PARTIAL: [usize; 7] = [1, 3, 6, 8, 10, 13, 15];
/// Sizes beyond the dense part of the table. Twice a power of two keeps lines short.
const LARGE: [usize; 11] = [
    3072, 4096, 6144, 8192, 12288, 16384, 32768, 65536, 131_072, 262_144, 524_288,
];
const SHIFTED: [usize; 4] = [256, 1024, 4096, 16384];
const OUT_OF_PLACE: [usize; 8] = [16, 64, 256, 1024, 4096, 16384, 65536, 131_072];
const COPIES: [usize; 15] = [
    0, 16, 64, 128, 192, 288, 512, 1024, 2048, 4096, 8192, 16384, 32768, 65536, 131_072,
];
/// Calls in a unit that measures one call: what the unit costs is divided by it.
const REPEAT: usize = 8;

/// How to calibrate.
#[derive(Copy, Clone, Debug)]
pub struct CalibrationOptions {
    /// Samples and their length, for hot data; distant data has thrice the CPU time.
    pub effort: Effort,
    /// Measure data in the last-level cache and in memory, too.
    pub cold: bool,
    /// How long to sleep in all, at most, while other work slows the core.
    pub patience: Duration,
}

impl Default for CalibrationOptions {
    fn default() -> Self {
        Self {
            effort: Effort {
                rounds: 11,
                sample_ns: 100_000.0,
                most_cpu: Duration::from_secs(1),
            },
            cold: true,
            patience: Duration::from_secs(8),
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
    let begin = cpu_now()?;
    let mut setting = Setting {
        library,
        host: Host::detect(),
        effort: options.effort,
        reference: Reference::new(library, options.patience)?,
        n_cases: 0,
        n_disturbed: 0,
    };
    let encrypt = direction_costs(&mut setting, Side::Tx)?;
    let decrypt = direction_costs(&mut setting, Side::Rx)?;
    let copy = copy_costs(&mut setting)?;
    let made = SystemTime::now().duration_since(UNIX_EPOCH);
    let mut calibration = Calibration {
        library: LibraryFacts::of(library),
        reference_ns: setting.reference.best_ns,
        disturbed_share: 0.0,
        host: setting.host.clone(),
        made_unix: made.map_or(0, |time| time.as_secs()),
        cpu_seconds: 0.0,
        encrypt,
        decrypt,
        copy,
        l2_cold: None,
        memory_cold: None,
    };
    if options.cold {
        calibration.l2_cold = cold_costs(&mut setting, &calibration, Residency::L2Cold)?;
        calibration.memory_cold = cold_costs(&mut setting, &calibration, Residency::MemoryCold)?;
    }
    calibration.disturbed_share = setting.n_disturbed as f64 / setting.n_cases.max(1) as f64;
    calibration.cpu_seconds = (cpu_now()? - begin) / 1e9;
    calibration
        .check()
        .map_err(|error| MeasureError::Unstable(error.to_string()))?;
    Ok(calibration)
}

impl LibraryFacts {
    /// Of a library that is loaded.
    pub fn of(library: &Library) -> Self {
        let features = library.capabilities().names();
        Self {
            version: library.version().to_owned(),
            path: library.path().map(|path| path.display().to_string()),
            kernel: library.gcm_kernel().id().to_owned(),
            cpu_features: features.into_iter().map(str::to_owned).collect(),
        }
    }
}

/// What all measurements need.
struct Setting<'lib> {
    library: &'lib Library,
    host: Host,
    effort: Effort,
    reference: Reference<'lib>,
    n_cases: usize,
    n_disturbed: usize,
}

/// Cases that are measured together.
struct Bench<'lib> {
    library: &'lib Library,
    side: Side,
    cases: Vec<Case<'lib>>,
}

impl<'lib> Bench<'lib> {
    fn new(library: &'lib Library, side: Side) -> Self {
        Self {
            library,
            side,
            cases: Vec::new(),
        }
    }

    /// A plan over its own hot memory; its index.
    fn hot(&mut self, units: Vec<Vec<Op>>) -> Result<usize, MeasureError> {
        let mut runner = Runner::new(self.library, plan(self.side, units), Distance::HOT)?;
        let mut memory = Memory::default();
        runner.begin(&mut memory);
        let case = Case::new(move |n, _: &mut Memory| runner.run(n, &mut memory));
        Ok(self.add(case))
    }

    fn add(&mut self, case: Case<'lib>) -> usize {
        self.cases.push(case);
        self.cases.len() - 1
    }

    fn measure(
        mut self,
        setting: &mut Setting<'_>,
        memory: &mut Memory,
        effort: Effort,
    ) -> Result<Vec<f64>, MeasureError> {
        let measured = measure(&mut self.cases, memory, &mut setting.reference, effort)?;
        setting.n_cases += self.cases.len();
        setting.n_disturbed += measured.is_disturbed.iter().filter(|is| **is).count();
        Ok(measured.ns)
    }
}

fn plan(side: Side, units: Vec<Vec<Op>>) -> Plan {
    let end = |area: Area| {
        let spans = units.iter().flatten().flat_map(|op| match op {
            Op::InPlace(span) => [Some(*span), None],
            Op::Copy { from, to } | Op::Update { from, to } => [Some(*from), Some(*to)],
        });
        let ends = spans
            .flatten()
            .filter(|span| span.area == area)
            .map(|span| span.offset + span.len);
        ends.max().unwrap_or(0)
    };
    Plan {
        side,
        source_len: end(Area::Source),
        destination_len: end(Area::Destination),
        scratch_len: end(Area::Scratch),
        units,
    }
}

fn span(area: Area, offset: usize, len: usize) -> Span {
    Span { area, offset, len }
}

/// Calls in place, each over a buffer of its own, as those of a frame are.
fn in_place(calls: &[usize]) -> Vec<Op> {
    let mut end: usize = 0;
    calls
        .iter()
        .map(|len| {
            let offset = end.next_multiple_of(64);
            end = offset + len;
            Op::InPlace(span(Area::Source, offset, *len))
        })
        .collect()
}

fn repeated(calls: &[usize], times: usize) -> Vec<Op> {
    in_place(&calls.repeat(times))
}

/// Fewer repetitions of long calls: what surrounds them matters less.
fn repeat_for(len: usize) -> usize {
    match len {
        0..=1024 => REPEAT,
        1025..=4096 => 2,
        _ => 1,
    }
}

fn direction_costs(setting: &mut Setting<'_>, side: Side) -> Result<DirectionCosts, MeasureError> {
    let l2_bytes = setting.host.l2_bytes;
    let mut bench = Bench::new(setting.library, side);
    // Everything else is told from this one, so it is measured thrice, far apart.
    let mut units = vec![bench.hot(vec![vec![]])?];
    let setup = SetupCases::add(&mut bench)?;

    let block = BLOCK as usize;
    let dense = (block..=DENSE as usize).step_by(block);
    let period = (PERIOD_BEGIN as usize..=(PERIOD_BEGIN + PERIOD) as usize).step_by(block);
    let mut updates = Vec::new();
    // Larger ones would be measured beyond the cache: what is there is in the other tables.
    let fits = |len: &usize| 2 * *len as u64 <= l2_bytes;
    for len in dense.chain(period).chain(LARGE.into_iter().filter(fits)) {
        let times = repeat_for(len);
        updates.push((len, times, bench.hot(vec![repeated(&[len], times)])?));
    }
    units.push(bench.hot(vec![vec![]])?);
    let empty = bench.hot(vec![repeated(&[0], REPEAT)])?;
    let mut partial = Vec::new();
    for n in PARTIAL {
        let small = bench.hot(vec![in_place(&[n])])?;
        let tail = bench.hot(vec![in_place(&[256 + n])])?;
        let fill = bench.hot(vec![repeated(&[256 + n, block - n], 4)])?;
        let head = bench.hot(vec![repeated(&[256 + n, 256 + block - n], 4)])?;
        partial.push((n, [small, tail, fill, head]));
    }
    let mut shifted = Vec::new();
    for len in SHIFTED {
        shifted.push((len, bench.hot(vec![repeated(&[4, len, 12], 2)])?));
    }
    let mut out_of_place = Vec::new();
    for len in OUT_OF_PLACE.into_iter().filter(|len| fits(&(2 * len))) {
        let here = bench.hot(vec![in_place(&[len])])?;
        let there = bench.hot(vec![vec![away(len)]])?;
        out_of_place.push((len, here, there));
    }

    units.push(bench.hot(vec![vec![]])?);

    let ns = bench.measure(setting, &mut Memory::default(), setting.effort)?;
    let unit_ns = median(&units.iter().map(|unit| ns[*unit]).collect::<Vec<_>>());
    let each = |case: usize, times: usize| (ns[case] - unit_ns) / times as f64;
    let mut costs = DirectionCosts {
        unit_ns,
        nonce_ns: ns[setup.nonce],
        rekey_ns: ns[setup.rekey],
        context_ns: ns[setup.context],
        ..DirectionCosts::default()
    };
    // Noise must not make a call take less than no time.
    costs.update = curve(
        updates
            .iter()
            .map(|(len, times, case)| (*len, each(*case, *times).max(0.1))),
    );
    let empty_ns = each(empty, REPEAT).max(0.0);
    let small = partial.iter().map(|(n, cases)| (*n, each(cases[0], 1)));
    costs.small = curve(std::iter::once((0, empty_ns)).chain(small));
    costs.first = first_costs(&out_of_place, |len, case| {
        each(case, 1) - costs.update_ns(0, len)
    });
    let f256 = costs.update.at(256) + costs.first.at(256);
    let f256_again = costs.update.at(256);
    let (mut tail, mut fill, mut head) = (vec![(0, 0.0)], Vec::new(), Vec::new());
    for (n, cases) in &partial {
        let tail_ns = each(cases[1], 1) - f256;
        tail.push((*n, tail_ns));
        fill.push((
            block - n,
            (each(cases[2], 4) - f256_again - tail_ns).max(0.0),
        ));
        head.push((block - n, each(cases[3], 4) - 2.0 * f256_again - tail_ns));
    }
    costs.tail = curve(tail);
    costs.fill = curve(fill);
    costs.head = curve(head);
    let shifted: Vec<_> = shifted
        .iter()
        .map(|(len, case)| {
            let expected =
                costs.update_ns(0, 4) + costs.update_ns(4, *len as u64) + costs.update_ns(4, 12);
            (*len, each(*case, 2) - expected)
        })
        .collect();
    costs.shifted = curve(std::iter::once((0, 0.0)).chain(shifted));
    costs.out_of_place = Curve::new(without_spikes(
        out_of_place
            .iter()
            .map(|(len, here, there)| (*len as u64, ns[*there] - ns[*here]))
            .collect(),
    ));
    Ok(costs)
}

/// Each value, or a neighbor's if that lies between: the middle one of three. Addresses that happen to
/// collide in a cache can make a single size slow, for as long as its memory is used.
fn without_spikes(points: Vec<(u64, f64)>) -> Vec<(u64, f64)> {
    let at = |index: usize| points.get(index).map(|(_, ns)| *ns);
    points
        .iter()
        .enumerate()
        .map(|(index, (len, ns))| {
            let before = index.checked_sub(1).and_then(at);
            let after = at(index + 1);
            let ns = match (before, after) {
                (Some(before), Some(after)) => median(&[before, *ns, after]),
                (Some(one), None) | (None, Some(one)) if points.len() > 2 => ns.min(one),
                _ => *ns,
            };
            (*len, ns)
        })
        .collect()
}

/// What the first call of a unit takes more; the same for all long ones, where it would drown in noise.
fn first_costs(cases: &[(usize, usize, usize)], more: impl Fn(u64, usize) -> f64) -> Curve {
    const LONG: u64 = 1024;
    let points = cases
        .iter()
        .map(|(len, here, _)| (*len as u64, *here))
        .filter(|(len, _)| *len <= LONG);
    let points = points.map(|(len, here)| (len, more(len, here)));
    let mut points = without_spikes(points.collect());
    if let Some((_, last)) = points.last().copied() {
        points.push((1 << 40, last));
    }
    Curve::new(points)
}

/// Cases of what is done before a message.
struct SetupCases {
    nonce: usize,
    rekey: usize,
    context: usize,
}

impl SetupCases {
    fn add(bench: &mut Bench<'_>) -> Result<Self, CallError> {
        const KEY: [u8; 16] = [1; 16];
        const NONCE: [u8; 12] = [2; 12];
        let library = bench.library;
        let direction: Direction = bench.side.direction();
        let mut context = library.context(direction, &KEY)?;
        let nonce = bench.add(Case::new(move |n, _: &mut Memory| {
            (0..n).try_for_each(|_| context.restart(&NONCE))
        }));
        let mut context = library.context(direction, &KEY)?;
        let rekey = bench.add(Case::new(move |n, _: &mut Memory| {
            (0..n).try_for_each(|_| context.rekey(&KEY, &NONCE))
        }));
        let context = bench.add(Case::new(move |n, _: &mut Memory| {
            (0..n).try_for_each(|_| library.context(direction, &KEY).map(drop))
        }));
        Ok(Self {
            nonce,
            rekey,
            context,
        })
    }
}

fn away(len: usize) -> Op {
    Op::Update {
        from: span(Area::Source, 0, len),
        to: span(Area::Destination, 0, len),
    }
}

fn copy_costs(setting: &mut Setting<'_>) -> Result<Curve, MeasureError> {
    let l2_bytes = setting.host.l2_bytes;
    let mut bench = Bench::new(setting.library, Side::Tx);
    let unit = bench.hot(vec![vec![]])?;
    let mut copies = Vec::new();
    let fits = |len: &usize| 4 * *len as u64 <= l2_bytes;
    for len in COPIES.into_iter().filter(fits) {
        let times = REPEAT;
        let copy = Op::Copy {
            from: span(Area::Source, 0, len),
            to: span(Area::Destination, 0, len),
        };
        copies.push((len, times, bench.hot(vec![vec![copy; times]])?));
    }
    let ns = bench.measure(setting, &mut Memory::default(), setting.effort)?;
    Ok(curve(copies.iter().map(|(len, times, case)| {
        (*len, ((ns[*case] - ns[unit]) / *times as f64).max(0.0))
    })))
}

fn cold_costs(
    setting: &mut Setting<'_>,
    calibration: &Calibration,
    residency: Residency,
) -> Result<Option<ColdCosts>, MeasureError> {
    let mut bench = Bench::new(setting.library, Side::Tx);
    let mut memory = Memory::default();
    let Some(anchors) = Anchors::add(
        setting.library,
        &setting.host,
        residency,
        &mut bench.cases,
        &mut memory,
    )?
    else {
        return Ok(None);
    };
    let effort = Effort {
        rounds: setting.effort.rounds.min(6),
        most_cpu: 3 * setting.effort.most_cpu,
        ..setting.effort
    };
    let ns = bench.measure(setting, &mut memory, effort)?;
    Ok(Some(anchors.costs(calibration, &ns)))
}

fn curve(points: impl IntoIterator<Item = (usize, f64)>) -> Curve {
    Curve::new(
        points
            .into_iter()
            .map(|(len, ns)| (len as u64, ns))
            .collect(),
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Check that a single slow size vanishes and a trend stays.
    #[test]
    fn spikes() {
        let points = |values: &[f64]| (0..).zip(values.iter().copied()).collect::<Vec<_>>();
        let smooth = |values: &[f64]| without_spikes(points(values));
        assert_eq!(
            smooth(&[1.0, 2.0, 150.0, 4.0, 9.0]),
            points(&[1.0, 2.0, 4.0, 9.0, 4.0])
        );
        assert_eq!(smooth(&[1.0, 2.0, 3.0]), points(&[1.0, 2.0, 2.0]));
        assert_eq!(smooth(&[5.0]), points(&[5.0]));
    }

    /// Check that a calibration without distant data, by the least effort, is a sound one whatever else
    /// runs here: every size is there, and it survives its file.
    #[test]
    fn smallest_effort() {
        let library = Library::system().unwrap();
        let options = CalibrationOptions {
            effort: Effort {
                rounds: 3,
                sample_ns: 5000.0,
                most_cpu: Duration::MAX,
            },
            cold: false,
            patience: Duration::ZERO,
        };
        let calibration = calibrate(&library, &options).unwrap();
        assert!(calibration.l2_cold.is_none() && calibration.memory_cold.is_none());
        for costs in [&calibration.encrypt, &calibration.decrypt] {
            let n_points = costs.update.points().len() as u64;
            assert!(n_points > (DENSE + PERIOD) / BLOCK, "{n_points}");
            assert!(costs.update_ns(0, 16384) > 0.0 && costs.unit_ns > 0.0);
        }
        assert!(calibration.knows_copies());
        assert_eq!(calibration.library.version, library.version());
        let text = calibration.to_json().unwrap();
        let read = Calibration::from_json(&text).unwrap();
        assert_eq!(
            read.encrypt.update.points().len(),
            calibration.encrypt.update.points().len()
        );
    }
}
