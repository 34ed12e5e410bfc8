//! A profile to its fleets: like processes side by side, or like threads of one process, with the time that each
//! spends in a state, in a kind of work and at a lock.

use std::collections::HashMap;

use indexmap::IndexMap;
use serde::{Deserialize, Serialize};

use crate::model::{Profile, Row, State};
use crate::precision::{Course, Estimator};
use crate::rules::Categories;
use crate::spread::Estimate;
use crate::subjects::{Subject, Subjects};
use crate::weight_sum::WeightSum;

/// Lock sites of a fleet that are compared: those with most time.
const MAX_LOCKS: usize = 12;

/// The kind of work that no rule covers.
const OTHER: &str = "other code";

/// What of a member is compared with the others'.
#[derive(Clone, PartialEq, Eq, Hash, PartialOrd, Ord, Debug, Serialize, Deserialize)]
#[serde(tag = "kind", content = "name", rename_all = "kebab-case")]
pub enum Figure {
    /// Time in a state.
    State(State),
    /// CPU time of a kind of work; of what no rule covers, `other code`.
    Category(String),
    /// Time lost to locks in a function, the innermost of the program. Not escaped.
    Lock(String),
}

/// A process, or a thread, of a fleet.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Member {
    /// What a user calls it: `osd.17`, `reactor_3`. Not escaped.
    pub name: String,
    /// Index into [`Profile::processes`].
    pub process: usize,
    /// Its time in all states but idle, ns.
    pub non_idle_ns: u64,
    /// Length of its process's recording, ns; never 0.
    pub recorded_ns: u64,
}

/// Processes of one class, or threads of one pool.
#[derive(Clone, PartialEq, Debug)]
pub struct Fleet {
    /// What they have in common: `ceph-osd`, or the name of a pool.
    pub class: String,
    /// They are threads.
    pub of_threads: bool,
    /// In the order of the trace.
    pub members: Vec<Member>,
    /// Threads at a time by figure: a value for each member. States come first, each kind with most time first.
    pub figures: Vec<(Figure, Vec<Estimate>)>,
}

/// The fleets of a profile that have at least so many members: the processes of each class, then the threads of each
/// pool that rules call like processes. Processes of which nothing was recorded are left out.
pub fn fleets(profile: &Profile, categories: &Categories, min_members: usize) -> Vec<Fleet> {
    let mut parts = parts(profile);
    parts.retain(|part| part.members.len() >= min_members);
    if parts.is_empty() {
        return Vec::new();
    }
    let subjects = Subjects::new(profile, categories);
    let estimator = profile.estimator();
    let mut sums: Vec<Sums<'_>> = parts.iter().map(|_| Sums::default()).collect();
    let mut places = vec![Vec::new(); profile.threads.len()];
    for (at, part) in parts.iter().enumerate() {
        for &(thread, member) in &part.threads {
            places[thread].push((at, member));
        }
    }
    for row in profile.rows.iter().filter(|row| row.weight > 0) {
        let places = &places[row.thread];
        if places.is_empty() {
            continue;
        }
        let course = estimator.as_ref().map(|e| e.course(&row.slices));
        let course = course.unwrap_or_default();
        let keys = keys(row, &subjects);
        for &(part, member) in places {
            sums[part].add(member, &keys, row, &course);
        }
    }
    let fleets = parts.into_iter().zip(sums);
    fleets
        .map(|(part, sums)| sums.fleet(part, estimator.as_ref()))
        .collect()
}

/// Who belongs to a fleet.
#[derive(Default)]
struct Part {
    class: String,
    of_threads: bool,
    members: Vec<Member>,
    /// Each with the place of its member.
    threads: Vec<(usize, usize)>,
}

fn parts(profile: &Profile) -> Vec<Part> {
    let mut parts: IndexMap<(Option<usize>, &str), Part> = IndexMap::new();
    let member = |name: &str, process: usize| Member {
        name: name.to_owned(),
        process,
        non_idle_ns: 0,
        recorded_ns: profile.processes[process].recorded_ns,
    };
    let mut members: HashMap<usize, usize> = HashMap::new();
    for (at, thread) in profile.threads.iter().enumerate() {
        let process = profile.process_of(thread);
        let Some(process) = process.filter(|process| process.recorded_ns > 0) else {
            continue;
        };
        let part = parts.entry((None, &process.class)).or_default();
        let own = *members.entry(thread.process).or_insert_with(|| {
            part.members.push(member(&process.title, thread.process));
            part.members.len() - 1
        });
        part.threads.push((at, own));
        let pool = profile.pools.get(thread.pool);
        if let Some(pool) = pool.filter(|pool| pool.is_fleet && thread.tid.0 != 0) {
            let part = parts.entry((Some(thread.process), &pool.name)).or_default();
            part.threads.push((at, part.members.len()));
            part.members.push(member(&thread.comm, thread.process));
        }
    }
    let mut parts: Vec<Part> = (parts.into_iter())
        .map(|((process, class), part)| Part {
            class: class.to_owned(),
            of_threads: process.is_some(),
            ..part
        })
        .collect();
    parts.sort_by_key(|part| part.of_threads);
    parts
}

/// A figure while time is added up.
#[derive(Copy, Clone, PartialEq, Eq, Hash)]
enum Key<'a> {
    State(State),
    Category(&'a str),
    Lock(&'a str),
}

impl From<Key<'_>> for Figure {
    fn from(key: Key<'_>) -> Self {
        match key {
            Key::State(state) => Self::State(state),
            Key::Category(name) => Self::Category(name.to_owned()),
            Key::Lock(function) => Self::Lock(function.to_owned()),
        }
    }
}

/// What a row counts for: its state, and what it works on or which lock it waits for.
fn keys<'a>(row: &Row, subjects: &Subjects<'a>) -> Vec<Key<'a>> {
    if !row.state.is_active() || row.state == State::Unknown {
        return Vec::new();
    }
    let subject = subjects.of(row).map(|subject| match subject {
        Subject::Work(kind) => Key::Category(kind.unwrap_or(OTHER)),
        Subject::Lock(function) => Key::Lock(function),
    });
    [Key::State(row.state)].into_iter().chain(subject).collect()
}

/// Time of the members of one fleet.
#[derive(Default)]
struct Sums<'a> {
    /// By figure and member.
    figures: IndexMap<Key<'a>, HashMap<usize, WeightSum>>,
    /// By member: all its time, and that which is not idle.
    observed: HashMap<usize, (WeightSum, u64)>,
}

impl<'a> Sums<'a> {
    fn add(&mut self, member: usize, keys: &[Key<'a>], row: &Row, course: &Course) {
        let (observed, non_idle) = self.observed.entry(member).or_default();
        observed.add(row, course);
        if row.state.is_active() {
            *non_idle = non_idle.saturating_add(row.weight);
        }
        for key in keys {
            let members = self.figures.entry(*key).or_default();
            members.entry(member).or_default().add(row, course);
        }
    }

    fn fleet(self, mut part: Part, estimator: Option<&Estimator>) -> Fleet {
        let none = WeightSum::default();
        for (at, member) in part.members.iter_mut().enumerate() {
            member.non_idle_ns = self.observed.get(&at).map_or(0, |(_, ns)| *ns);
        }
        let mut figures = self.figures;
        let total = |members: &HashMap<usize, WeightSum>| {
            let weights = members.values().map(|sum| sum.weight);
            weights.fold(0, u64::saturating_add)
        };
        let rank = |key: &Key<'_>| match key {
            Key::State(_) => 0,
            Key::Category(_) => 1,
            Key::Lock(_) => 2,
        };
        figures.sort_by(|a, x, b, y| (rank(a), total(y)).cmp(&(rank(b), total(x))));
        let mut n_locks = 0;
        figures.retain(|key, _| {
            n_locks += usize::from(matches!(key, Key::Lock(_)));
            n_locks <= MAX_LOCKS
        });
        let figures = figures.into_iter().map(|(key, sums)| {
            let value = |(at, member): (usize, &Member)| {
                let sum = sums.get(&at).unwrap_or(&none);
                let observed = self.observed.get(&at).map_or(&none, |(sum, _)| sum);
                estimate(sum, observed, member.recorded_ns, estimator)
            };
            (
                Figure::from(key),
                part.members.iter().enumerate().map(value).collect(),
            )
        });
        Fleet {
            figures: figures.collect(),
            class: part.class,
            of_threads: part.of_threads,
            members: part.members,
        }
    }
}

/// Threads at a time.
fn estimate(
    sum: &WeightSum,
    observed: &WeightSum,
    recorded_ns: u64,
    estimator: Option<&Estimator>,
) -> Estimate {
    let recorded = recorded_ns.max(1) as f64;
    let variance = estimator.map(|estimator| {
        // The member's whole time is taken as it is.
        let share = sum.weight as f64 / observed.weight.max(1) as f64;
        estimator.variance(&sum.course, share, &observed.course) / (recorded * recorded)
    });
    Estimate {
        value: sum.weight as f64 / recorded,
        variance,
        degrees_of_freedom: estimator.map_or(0.0, Estimator::degrees_of_freedom),
    }
}
