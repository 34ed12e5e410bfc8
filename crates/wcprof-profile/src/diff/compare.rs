//! Sums of both sides to lines, tests, and what is significant.

use std::collections::BTreeSet;

use super::class::daemon_class;
use super::model::{
    Change, DiffOptions, Line, LineName, ProfileDiff, Side, StackPair, Table, TableKind, Unit,
    Value, Warning,
};
use super::sums::{Lines, Name, Sums};
use super::warnings::{rebuilt_modules, warnings};
use crate::model::{Profile, process_names};
use crate::weight_sum::WeightSum;
use crate::{Course, Estimator, View, counted_by_class, two_sided_p, two_sided_quantile};

/// Chance that any line at all is called significant if nothing changed.
const LEVEL: f64 = 0.05;
/// Fewest samples, of both sides together, that a test can rest on.
const MIN_SAMPLES: u64 = 20;

/// Compares two profiles.
pub fn diff(before: &Profile, after: &Profile, options: &DiffOptions<'_>) -> ProfileDiff {
    let profiles = [before, after];
    let rebuilt = rebuilt_modules(profiles);
    let mut sums = Sums::default();
    let recordings = [0, 1].map(|side| Recording::new(profiles[side], side, options));
    for side in 0..2 {
        let estimator = recordings[side].estimator.as_ref();
        sums.add(side, profiles[side], options, estimator, &rebuilt);
    }
    let mut warnings = warnings(profiles, &rebuilt);
    let nothing = sums.shown.map(|ns| ns == 0);
    if nothing.contains(&true) {
        warnings.push(Warning::Nothing(nothing));
    }
    let comparison = Comparison {
        recordings,
        profiles,
        sums: &sums,
        view: &options.view,
    };
    let mut tables = TableKind::ALL.map(|kind| comparison.table(kind)).to_vec();
    mark_significant(&mut tables);
    for table in &mut tables {
        sort(&mut table.lines);
    }
    ProfileDiff {
        unit: match options.n_ops {
            Some(_) => Unit::Operation,
            None => Unit::Second,
        },
        sides: [0, 1].map(|side| side_of(profiles[side], side, &sums, options)),
        warnings,
        tables,
        level: LEVEL,
        stacks: comparison.stacks(),
    }
}

/// One recording, as far as tests need it.
struct Recording {
    estimator: Option<Estimator>,
    /// Time in ns to ns per unit.
    per_unit: f64,
    /// Of the operations.
    ops: Course,
    /// Variance of a thread's time that comes from not knowing when in a tick's interval it
    /// began and ended, ns squared.
    edge_variance: f64,
}

impl Recording {
    fn new(profile: &Profile, side: usize, options: &DiffOptions<'_>) -> Self {
        let units = match options.n_ops {
            Some(n) => n[side],
            None => profile.duration_ns() as f64 / 1e9,
        };
        let estimator = profile.estimator();
        let ops = &options.ops_over_time[side];
        let ops = estimator.as_ref().map(|estimator| estimator.course(ops));
        let tick = 1e9 / f64::from(profile.header.rate_hz.max(1));
        Self {
            estimator,
            ops: ops.unwrap_or_default(),
            per_unit: if units > 0.0 { 1.0 / units } else { 0.0 },
            edge_variance: tick * tick / 6.0,
        }
    }

    fn value(&self, sum: &WeightSum) -> Value {
        Value {
            weight_ns: sum.weight,
            per_unit: sum.weight as f64 * self.per_unit,
            n_samples: sum.n_samples,
        }
    }

    /// Variance of the value, and its degrees of freedom.
    fn variance(&self, sum: &WeightSum) -> Option<(f64, f64)> {
        let estimator = self.estimator.as_ref()?;
        let edges = self.edge_variance * sum.n_threads as f64;
        // Of the ratio of both: what varies is the rest.
        let per_op = sum.weight as f64 * self.per_unit;
        let variance = estimator.variance(&sum.course, per_op, &self.ops) + edges;
        let degrees = estimator.degrees_of_freedom();
        Some((variance * self.per_unit * self.per_unit, degrees))
    }
}

struct Comparison<'a> {
    recordings: [Recording; 2],
    profiles: [&'a Profile; 2],
    sums: &'a Sums,
    view: &'a View,
}

impl Comparison<'_> {
    fn table(&self, kind: TableKind) -> Table {
        let sums = self.sums;
        let name = |name: &Name| sums.name(*name).to_owned();
        let function = |id: &Name| LineName::Function { name: name(id) };
        match kind {
            TableKind::Class => self.lines(kind, &sums.classes, |class| LineName::Class {
                name: name(class),
                n_processes: self
                    .profiles
                    .map(|p| n_processes(p, self.view, sums.name(*class))),
            }),
            TableKind::Category => self.lines(kind, &sums.categories, |work| LineName::Category {
                name: name(work),
            }),
            TableKind::Pool => self.lines(kind, &sums.pools, |(pool, state)| LineName::Pool {
                name: name(pool),
                state: *state,
            }),
            TableKind::FunctionSelf => self.lines(kind, &sums.leaves, function),
            TableKind::FunctionTotal => self.lines(kind, &sums.totals, function),
            TableKind::Stack => self.lines(kind, &sums.stacks, |(pool, frames)| LineName::Stack {
                pool: name(pool),
                root_first: frames.iter().map(name).collect(),
            }),
        }
    }

    /// Lines whose mean share of the time shown reaches the limit; all classes.
    fn lines<K>(&self, kind: TableKind, lines: &Lines<K>, name: impl Fn(&K) -> LineName) -> Table {
        let shown = self.sums.shown;
        // A side without any time has no say.
        let n_sides = shown.iter().filter(|ns| **ns > 0).count().max(1);
        let share = |sums: &[WeightSum; 2]| {
            let parts = [0, 1].map(|side| sums[side].weight as f64 / shown[side].max(1) as f64);
            100.0 * (parts[0] + parts[1]) / n_sides as f64
        };
        let is_listed = |sums| kind == TableKind::Class || share(sums) >= self.view.min_percent;
        let listed = lines.iter().filter(|(_, sums)| is_listed(sums));
        let listed = listed.map(|(key, sums)| Line {
            name: name(key),
            values: [0, 1].map(|side| self.recordings[side].value(&sums[side])),
            change: self.change(sums),
        });
        let listed: Vec<Line> = listed.collect();
        Table {
            kind,
            n_below: lines.len() - listed.len(),
            lines: listed,
        }
    }

    /// Welch's test, with the variances that the recordings show in themselves.
    fn change(&self, sums: &[WeightSum; 2]) -> Option<Change> {
        if sums[0].n_samples.saturating_add(sums[1].n_samples) < MIN_SAMPLES {
            return None;
        }
        let (v0, df0) = self.recordings[0].variance(&sums[0])?;
        let (v1, df1) = self.recordings[1].variance(&sums[1])?;
        let values = [0, 1].map(|side| self.recordings[side].value(&sums[side]).per_unit);
        let difference = values[1] - values[0];
        let variance = v0 + v1;
        if variance <= 0.0 {
            return None;
        }
        // Welch and Satterthwaite.
        let df = variance * variance / (v0 * v0 / df0 + v1 * v1 / df1);
        let deviation = variance.sqrt();
        let reach = two_sided_quantile(0.05, df) * deviation;
        Some(Change {
            low: difference - reach,
            high: difference + reach,
            p: two_sided_p(difference / deviation, df),
            significant: false,
        })
    }

    fn stacks(&self) -> Vec<StackPair> {
        let name = |name: &Name| self.sums.name(*name).to_owned();
        let stacks = self.sums.stacks.iter();
        let stacks = stacks.map(|((pool, frames), sums)| StackPair {
            pool: name(pool),
            root_first: frames.iter().map(name).collect(),
            per_unit: [0, 1].map(|side| self.recordings[side].value(&sums[side]).per_unit),
        });
        let mut stacks: Vec<StackPair> = stacks.collect();
        stacks.sort_by(|a, b| (&a.pool, &a.root_first).cmp(&(&b.pool, &b.root_first)));
        stacks
    }
}

/// Holm's procedure over all lines of all tables: whatever depends on what, the chance of calling
/// any unchanged line significant is at most the level. Lines that are the same time, such as those of a
/// function and of its only caller, are one test.
fn mark_significant(tables: &mut [Table]) {
    let mut tested: Vec<&mut Change> = tables
        .iter_mut()
        .flat_map(|table| &mut table.lines)
        .filter_map(|line| line.change.as_mut())
        .collect();
    let figures = |c: &Change| [c.p, c.low, c.high].map(f64::to_bits);
    // No figure is negative where it decides: the bits of p are in its order.
    tested.sort_by_key(|change| figures(change));
    let mut tests: Vec<&mut [&mut Change]> = tested
        .chunk_by_mut(|a, b| figures(a) == figures(b))
        .collect();
    let n = tests.len();
    for (at, same) in tests.iter_mut().enumerate() {
        if same[0].p > LEVEL / (n - at) as f64 {
            break;
        }
        same.iter_mut().for_each(|change| change.significant = true);
    }
}

fn sort(lines: &mut [Line]) {
    lines.sort_by(|a, b| {
        b.is_significant()
            .cmp(&a.is_significant())
            .then_with(|| b.difference().abs().total_cmp(&a.difference().abs()))
            .then_with(|| format!("{:?}", a.name).cmp(&format!("{:?}", b.name)))
    });
}

fn n_processes(profile: &Profile, view: &View, class: &str) -> usize {
    let threads = profile.threads.iter();
    let threads = threads.filter(|t| view.threads.matches(profile, t));
    let of_class = threads.filter(|t| daemon_class(&t.process_comm) == class);
    let processes: BTreeSet<usize> = of_class.map(|t| t.process).collect();
    processes.len()
}

fn side_of(profile: &Profile, side: usize, sums: &Sums, options: &DiffOptions<'_>) -> Side {
    let threads = profile.threads.iter().filter(|t| t.tid.0 != 0);
    let threads = threads.filter(|t| options.view.threads.matches(profile, t));
    Side {
        processes: process_names(threads.clone().map(|t| (t.pid, profile.process_title(t)))),
        duration_ns: profile.duration_ns(),
        n_threads: threads.count(),
        engine: profile.header.engine.clone(),
        n_snapshots: profile.header.n_snapshots,
        n_ops: options.n_ops.map(|n| n[side]),
        shown_ns: sums.shown[side],
        counted: counted_by_class(profile)
            .into_iter()
            .map(|(class, counted)| (class.to_owned(), counted))
            .collect(),
    }
}
