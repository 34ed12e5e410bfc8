//! Sums of both sides to lines, tests, and what is significant.

use std::collections::BTreeSet;

use super::class::daemon_class;
use super::model::{
    Change, Line, LineName, ProfileDiff, Side, StackPair, Table, TableKind, Unit, Value, Warning,
};
use super::sums::{Lines, Sums};
use super::warnings::{rebuilt_modules, warnings};
use crate::model::Profile;
use crate::weight_sum::WeightSum;
use crate::{Estimator, View, two_sided_p, two_sided_quantile};

/// Chance that any line at all is called significant if nothing changed.
const LEVEL: f64 = 0.05;
/// Fewest samples, of both sides together, that a test can rest on.
const MIN_SAMPLES: u64 = 20;

/// What to compare.
#[derive(Clone, Debug, Default)]
pub struct DiffOptions {
    /// Which threads, states and stacks. Lines whose mean share of the time shown is below its
    /// `min_percent` are left out and not tested. Grouping and direction do not matter.
    pub view: View,
    /// Operations done in each recording; values are then per operation.
    pub n_ops: Option<[f64; 2]>,
}

/// Compares two profiles.
pub fn diff(before: &Profile, after: &Profile, options: &DiffOptions) -> ProfileDiff {
    let profiles = [before, after];
    let estimators = profiles.map(Profile::estimator);
    let rebuilt = rebuilt_modules(profiles);
    let mut sums = Sums::default();
    for side in 0..2 {
        let estimator = estimators[side].as_ref();
        sums.add(side, profiles[side], &options.view, estimator, &rebuilt);
    }
    let mut warnings = warnings(profiles, &rebuilt);
    let nothing = sums.shown.map(|ns| ns == 0);
    if nothing.contains(&true) {
        warnings.push(Warning::Nothing(nothing));
    }
    let comparison = Comparison {
        sides: [0, 1].map(|side| Recording::new(profiles[side], side, &estimators, options)),
        min_percent: options.view.min_percent,
    };
    let mut tables: Vec<Table> = TableKind::ALL
        .into_iter()
        .map(|kind| comparison.table(kind, &sums, profiles, options))
        .collect();
    let n_tested = mark_significant(&mut tables);
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
        n_tested,
        stacks: comparison.stacks(&sums),
    }
}

/// One recording, as far as tests need it.
struct Recording<'a> {
    estimator: Option<&'a Estimator>,
    /// Time in ns to ns per unit.
    per_unit: f64,
    /// Variance of a thread's time that comes from not knowing when in a tick's interval it
    /// began and ended, ns squared.
    edge_variance: f64,
}

impl<'a> Recording<'a> {
    fn new(
        profile: &Profile,
        side: usize,
        estimators: &'a [Option<Estimator>; 2],
        options: &DiffOptions,
    ) -> Self {
        let units = match options.n_ops {
            Some(n) => n[side],
            None => profile.duration_ns() as f64 / 1e9,
        };
        let tick = 1e9 / f64::from(profile.header.rate_hz.max(1));
        Self {
            estimator: estimators[side].as_ref(),
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
        let estimator = self.estimator?;
        let edges = self.edge_variance * sum.n_threads as f64;
        let variance = estimator.variance(&sum.course) + edges;
        Some((
            variance * self.per_unit * self.per_unit,
            estimator.degrees_of_freedom(),
        ))
    }
}

struct Comparison<'a> {
    sides: [Recording<'a>; 2],
    min_percent: f64,
}

impl Comparison<'_> {
    fn table(
        &self,
        kind: TableKind,
        sums: &Sums,
        profiles: [&Profile; 2],
        options: &DiffOptions,
    ) -> Table {
        let function = |name: &_| LineName::Function {
            name: sums.name(*name).to_owned(),
        };
        match kind {
            TableKind::Class => self.lines(kind, &sums.classes, None, |class| LineName::Class {
                name: sums.name(*class).to_owned(),
                n_processes: profiles.map(|p| n_processes(p, &options.view, sums.name(*class))),
            }),
            TableKind::Pool => {
                self.lines(kind, &sums.pools, Some(sums.shown), |key| LineName::Pool {
                    name: sums.name(key.0).to_owned(),
                    state: key.1,
                })
            }
            TableKind::FunctionSelf => self.lines(kind, &sums.leaves, Some(sums.shown), function),
            TableKind::FunctionTotal => self.lines(kind, &sums.totals, Some(sums.shown), function),
            TableKind::Stack => self.lines(kind, &sums.stacks, Some(sums.shown), |key| {
                LineName::Stack {
                    pool: sums.name(key.0).to_owned(),
                    root_first: key.1.iter().map(|n| sums.name(*n).to_owned()).collect(),
                }
            }),
        }
    }

    /// Lines whose mean share of `of` reaches the limit.
    fn lines<K>(
        &self,
        kind: TableKind,
        lines: &Lines<K>,
        of: Option<[u64; 2]>,
        name: impl Fn(&K) -> LineName,
    ) -> Table {
        let share = |sums: &[WeightSum; 2], of: [u64; 2]| {
            let parts = [0, 1].map(|side| sums[side].weight as f64 / of[side].max(1) as f64);
            // A side without any time has no say.
            let n = of.iter().filter(|ns| **ns > 0).count().max(1);
            100.0 * (parts[0] + parts[1]) / n as f64
        };
        let listed: Vec<_> = lines
            .iter()
            .filter(|(_, sums)| of.is_none_or(|of| share(sums, of) >= self.min_percent))
            .map(|(key, sums)| Line {
                name: name(key),
                values: [0, 1].map(|side| self.sides[side].value(&sums[side])),
                change: self.change(sums),
            })
            .collect();
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
        let (v0, df0) = self.sides[0].variance(&sums[0])?;
        let (v1, df1) = self.sides[1].variance(&sums[1])?;
        let values = [0, 1].map(|side| self.sides[side].value(&sums[side]).per_unit);
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

    fn stacks(&self, sums: &Sums) -> Vec<StackPair> {
        let mut stacks: Vec<StackPair> = sums
            .stacks
            .iter()
            .map(|(key, pair)| StackPair {
                pool: sums.name(key.0).to_owned(),
                root_first: key.1.iter().map(|n| sums.name(*n).to_owned()).collect(),
                per_unit: [0, 1].map(|side| self.sides[side].value(&pair[side]).per_unit),
            })
            .collect();
        stacks.sort_by(|a, b| (&a.pool, &a.root_first).cmp(&(&b.pool, &b.root_first)));
        stacks
    }
}

/// Holm's procedure over all lines of all tables: whatever depends on what, the chance of calling
/// any unchanged line significant is at most the level. Gives how many were tested.
fn mark_significant(tables: &mut [Table]) -> usize {
    let mut tested: Vec<&mut Change> = tables
        .iter_mut()
        .flat_map(|table| &mut table.lines)
        .filter_map(|line| line.change.as_mut())
        .collect();
    tested.sort_by(|a, b| a.p.total_cmp(&b.p));
    let n = tested.len();
    for (at, change) in tested.into_iter().enumerate() {
        if change.p > LEVEL / (n - at) as f64 {
            break;
        }
        change.significant = true;
    }
    n
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
    let of_class: BTreeSet<_> = profile
        .threads
        .iter()
        .filter(|t| daemon_class(&t.process_comm) == class && view.threads.matches(profile, t))
        .map(|t| t.process)
        .collect();
    of_class.len()
}

fn side_of(profile: &Profile, side: usize, sums: &Sums, options: &DiffOptions) -> Side {
    let threads = profile
        .threads
        .iter()
        .filter(|t| t.tid.0 != 0 && options.view.threads.matches(profile, t));
    let processes: BTreeSet<_> = threads
        .clone()
        .map(|t| (t.pid, profile.process_title(t)))
        .collect();
    Side {
        processes: processes
            .into_iter()
            .map(|(pid, title)| format!("{title} (pid {pid})"))
            .collect(),
        duration_ns: profile.duration_ns(),
        n_threads: threads.count(),
        engine: profile.header.engine.clone(),
        n_ops: options.n_ops.map(|n| n[side]),
        shown_ns: sums.shown[side],
    }
}
