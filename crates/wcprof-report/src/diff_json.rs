//! A comparison as JSON. `docs/diff.md` documents it.

use std::io::{self, Write};

use serde::Serialize;
use wcprof_findings::printable_json;
use wcprof_profile::diff::{Line, LineName, ProfileDiff, Unit, Value};

use crate::diff_text::diff_warning;

/// Version of the schema. It grows when a field changes its meaning or goes.
pub const DIFF_JSON_VERSION: u32 = 1;

/// Writes the comparison, with a newline at the end.
pub fn diff_json(diff: &ProfileDiff, out: &mut impl Write) -> io::Result<()> {
    let [before, after] = &diff.sides;
    let document = Document {
        schema: "wcprof-diff",
        version: DIFF_JSON_VERSION,
        unit: match diff.unit {
            Unit::Second => "ns/s",
            Unit::Operation => "ns/op",
        },
        level: diff.level,
        n_tested: diff.n_tested,
        n_significant: diff.n_significant(),
        warnings: diff.warnings.iter().map(diff_warning).collect(),
        before: side(before),
        after: side(after),
        tables: diff
            .tables
            .iter()
            .map(|table| TableOut {
                kind: table.kind.name(),
                n_below: table.n_below,
                lines: table.lines.iter().map(line).collect(),
            })
            .collect(),
    };
    out.write_all(printable_json(&document)?.as_bytes())
}

#[derive(Serialize)]
struct Document {
    schema: &'static str,
    version: u32,
    unit: &'static str,
    level: f64,
    n_tested: usize,
    n_significant: usize,
    warnings: Vec<String>,
    before: SideOut,
    after: SideOut,
    tables: Vec<TableOut>,
}

#[derive(Serialize)]
struct SideOut {
    processes: Vec<String>,
    duration_ns: u64,
    n_threads: usize,
    engine: String,
    shown_ns: u64,
    #[serde(skip_serializing_if = "Option::is_none")]
    n_ops: Option<f64>,
}

#[derive(Serialize)]
struct TableOut {
    kind: &'static str,
    n_below: usize,
    lines: Vec<LineOut>,
}

#[derive(Serialize)]
struct LineOut {
    #[serde(flatten)]
    name: NameOut,
    before: ValueOut,
    after: ValueOut,
    change: f64,
    low: Option<f64>,
    high: Option<f64>,
    p: Option<f64>,
    significant: bool,
}

#[derive(Serialize, Default)]
struct NameOut {
    name: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    state: Option<&'static str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    n_processes: Option<[usize; 2]>,
    #[serde(skip_serializing_if = "Option::is_none")]
    root_first: Option<Vec<String>>,
}

#[derive(Serialize)]
struct ValueOut {
    value: f64,
    weight_ns: u64,
    n_samples: u64,
}

fn side(side: &wcprof_profile::diff::Side) -> SideOut {
    SideOut {
        processes: side.processes.clone(),
        duration_ns: side.duration_ns,
        n_threads: side.n_threads,
        engine: side.engine.clone(),
        shown_ns: side.shown_ns,
        n_ops: side.n_ops,
    }
}

fn line(line: &Line) -> LineOut {
    let value = |v: &Value| ValueOut {
        value: v.per_unit,
        weight_ns: v.weight_ns,
        n_samples: v.n_samples,
    };
    let [before, after] = &line.values;
    LineOut {
        name: name(&line.name),
        before: value(before),
        after: value(after),
        change: line.difference(),
        low: line.change.map(|c| c.low),
        high: line.change.map(|c| c.high),
        p: line.change.map(|c| c.p),
        significant: line.is_significant(),
    }
}

fn name(name: &LineName) -> NameOut {
    match name {
        LineName::Class { name, n_processes } => NameOut {
            name: name.clone(),
            n_processes: Some(*n_processes),
            ..NameOut::default()
        },
        LineName::Pool { name, state } => NameOut {
            name: name.clone(),
            state: state.map(|s| s.name()),
            ..NameOut::default()
        },
        LineName::Function { name } => NameOut {
            name: name.clone(),
            ..NameOut::default()
        },
        LineName::Stack { pool, root_first } => NameOut {
            name: pool.clone(),
            root_first: Some(root_first.clone()),
            ..NameOut::default()
        },
    }
}
