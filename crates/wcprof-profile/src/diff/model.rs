//! What a comparison holds. "Before" and "after" are the two profiles in the order given.

use std::collections::BTreeMap;

use serde::{Serialize, Serializer};
use wcprof_types::BuildId;

use crate::model::{Slices, State};
use crate::{Categories, Counted, View};

/// What to compare.
#[derive(Clone, Debug, Default)]
pub struct DiffOptions<'c> {
    /// Which threads, states and stacks. Lines whose mean share of the time shown is below its
    /// `min_percent` are left out and not tested. Grouping and direction do not matter.
    pub view: View,
    /// Operations done in each recording; values are then per operation.
    pub n_ops: Option<[f64; 2]>,
    /// The same by slice, where it is known: time that follows their number does not vary per operation.
    pub ops_over_time: [Slices; 2],
    /// Kinds of work, which get a table of their own.
    pub categories: Option<&'c Categories>,
}

/// What values are divided by.
#[derive(Copy, Clone, PartialEq, Eq, Debug, Serialize)]
pub enum Unit {
    /// Seconds of the recording: ns of thread time per second, 10^9 is one thread all the time.
    #[serde(rename = "ns/s")]
    Second,
    /// Operations done: ns of thread time per operation.
    #[serde(rename = "ns/op")]
    Operation,
}

/// What the lines of a table are.
#[derive(Copy, Clone, PartialEq, Eq, Debug, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum TableKind {
    /// CPU time by class of daemon.
    Class,
    /// CPU time by kind of work.
    Category,
    /// Time of each pool, as a whole and by state.
    Pool,
    /// Time in which a function was the leaf.
    FunctionSelf,
    /// Time in which a function was anywhere in the stack.
    FunctionTotal,
    /// Time by stack, within a pool.
    Stack,
}

impl TableKind {
    /// Every value, in the order in which tables are shown.
    pub const ALL: [Self; 6] = [
        Self::Class,
        Self::Category,
        Self::Pool,
        Self::FunctionSelf,
        Self::FunctionTotal,
        Self::Stack,
    ];
}

/// What a line is about. Names come from the targets: escape them for their destination.
#[derive(Clone, PartialEq, Eq, Debug, Serialize)]
#[serde(untagged)]
pub enum LineName {
    /// A class of daemon.
    Class {
        /// Its name.
        name: String,
        /// Processes of this class, before and after.
        n_processes: [usize; 2],
    },
    /// A kind of work.
    Category {
        /// Its name.
        name: String,
    },
    /// A pool.
    Pool {
        /// Its name.
        name: String,
        /// Its time in this state only.
        #[serde(skip_serializing_if = "Option::is_none", serialize_with = "name_of")]
        state: Option<State>,
    },
    /// A function.
    Function {
        /// Its name.
        name: String,
    },
    /// A stack.
    Stack {
        /// The pool.
        #[serde(rename = "name")]
        pool: String,
        /// Names of its frames, root first.
        root_first: Vec<String>,
    },
}

fn name_of<S: Serializer>(state: &Option<State>, serializer: S) -> Result<S::Ok, S::Error> {
    state.map(State::name).serialize(serializer)
}

/// One side of a line.
#[derive(Copy, Clone, PartialEq, Debug, Default, Serialize)]
pub struct Value {
    /// Time in ns per [`Unit`].
    #[serde(rename = "value")]
    pub per_unit: f64,
    /// Time, ns.
    pub weight_ns: u64,
    /// Observations that it stands on.
    pub n_samples: u64,
}

/// What is known of a change.
#[derive(Copy, Clone, PartialEq, Debug)]
pub struct Change {
    /// Lower end of its 95 % confidence interval, ns per [`Unit`]. The interval is of this line
    /// alone: of a hundred lines that did not change, about five do not have 0 in theirs.
    pub low: f64,
    /// Upper end.
    pub high: f64,
    /// Probability of a change at least as large if nothing had changed, for this line alone.
    pub p: f64,
    /// Significant among all lines that were tested.
    pub significant: bool,
}

/// A line of a table.
#[derive(Clone, PartialEq, Debug)]
pub struct Line {
    /// What it is about.
    pub name: LineName,
    /// Before and after.
    pub values: [Value; 2],
    /// `None` when it stands on too few samples, or a recording is too short, to tell.
    pub change: Option<Change>,
}

impl Line {
    /// After less before, ns per [`Unit`].
    pub fn difference(&self) -> f64 {
        self.values[1].per_unit - self.values[0].per_unit
    }

    /// Whether the change is significant.
    pub fn is_significant(&self) -> bool {
        self.change.is_some_and(|c| c.significant)
    }
}

/// Lines of one kind.
#[derive(Clone, PartialEq, Debug)]
pub struct Table {
    /// What the lines are.
    pub kind: TableKind,
    /// Significant ones first, then by size of the change.
    pub lines: Vec<Line>,
    /// Lines left out because they are below the limit.
    pub n_below: usize,
}

/// One of the two recordings.
#[derive(Clone, PartialEq, Debug, Serialize)]
pub struct Side {
    /// Processes, each as `name (pid N)`, with the name that a user gave (`osd.3`); not escaped.
    pub processes: Vec<String>,
    /// Length of what is compared, ns.
    pub duration_ns: u64,
    /// Threads of the filter.
    pub n_threads: usize,
    /// `bpf`, `procfs` or `procfs-only`.
    pub engine: String,
    /// Time that the filters leave, ns.
    pub shown_ns: u64,
    /// Snapshots that it is of, in which times are counts of threads; 0 of what has a time axis.
    #[serde(skip_serializing_if = "is_none")]
    pub n_snapshots: u32,
    /// Operations done, when given.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub n_ops: Option<f64>,
    /// Operations by the own count of processes, by their class.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub counted: BTreeMap<String, Counted>,
}

fn is_none(n: &u32) -> bool {
    *n == 0
}

/// Why the two may not be comparable.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Warning {
    /// The processes have other names.
    Programs {
        /// Names before.
        before: Vec<String>,
        /// Names after.
        after: Vec<String>,
    },
    /// Files of the same name have other build-ids.
    Rebuilt {
        /// File names.
        modules: Vec<String>,
        /// Of the first one, the build-ids of both sides.
        first: [Option<BuildId>; 2],
    },
    /// The engines see different things.
    Engines([String; 2]),
    /// A recording was imported from text that has no axis of time, so that nothing is known of how
    /// sure its weights are: before, after.
    NoTime([bool; 2]),
    /// A recording is too short to tell how sure its weights are: before, after.
    TooShort([bool; 2]),
    /// A recording did not end cleanly: before, after.
    Cut([bool; 2]),
    /// The filters leave no time: before, after.
    Nothing([bool; 2]),
}

/// A stack of both sides, for a differential flame graph.
#[derive(Clone, PartialEq, Debug)]
pub struct StackPair {
    /// The pool.
    pub pool: String,
    /// Names of its frames, root first.
    pub root_first: Vec<String>,
    /// Time in ns per [`Unit`], before and after.
    pub per_unit: [f64; 2],
}

/// What changed.
#[derive(Clone, PartialEq, Debug)]
pub struct ProfileDiff {
    /// What values are divided by.
    pub unit: Unit,
    /// Before and after.
    pub sides: [Side; 2],
    /// Why they may not be comparable.
    pub warnings: Vec<Warning>,
    /// In the order of [`TableKind::ALL`].
    pub tables: Vec<Table>,
    /// Chance that any line at all is called significant if nothing changed.
    pub level: f64,
    /// All stacks, by pool and name, below the limit too.
    pub stacks: Vec<StackPair>,
}

impl ProfileDiff {
    /// Lines that were tested, in all tables.
    pub fn n_tested(&self) -> usize {
        let lines = self.tables.iter().flat_map(|t| &t.lines);
        lines.filter(|line| line.change.is_some()).count()
    }

    /// Those of them that changed significantly.
    pub fn n_significant(&self) -> usize {
        let lines = self.tables.iter().flat_map(|t| &t.lines);
        lines.filter(|line| line.is_significant()).count()
    }
}
