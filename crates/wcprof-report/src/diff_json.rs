//! A comparison as JSON. `docs/diff.md` documents it.

use std::io::{self, Write};

use serde_json::{Value, json};
use wcprof_profile::diff::{Line, LineName, ProfileDiff, Side, Unit};
use wcprof_text::printable_json;

use crate::diff_text::diff_warning;

/// Version of the schema. It grows when a field changes its meaning or goes.
pub const DIFF_JSON_VERSION: u32 = 1;

/// Writes the comparison, with a newline at the end.
pub fn diff_json(diff: &ProfileDiff, out: &mut impl Write) -> io::Result<()> {
    let tables = diff.tables.iter().map(|table| {
        json!({
            "kind": table.kind.name(),
            "n_below": table.n_below,
            "lines": table.lines.iter().map(line).collect::<Vec<_>>(),
        })
    });
    let document = json!({
        "schema": "wcprof-diff",
        "version": DIFF_JSON_VERSION,
        "unit": match diff.unit {
            Unit::Second => "ns/s",
            Unit::Operation => "ns/op",
        },
        "level": diff.level,
        "n_tested": diff.n_tested,
        "n_significant": diff.n_significant(),
        "warnings": diff.warnings.iter().map(diff_warning).collect::<Vec<_>>(),
        "before": side(&diff.sides[0]),
        "after": side(&diff.sides[1]),
        "tables": tables.collect::<Vec<_>>(),
    });
    out.write_all(printable_json(&document)?.as_bytes())
}

fn side(side: &Side) -> Value {
    let mut fields = json!({
        "processes": side.processes,
        "duration_ns": side.duration_ns,
        "n_threads": side.n_threads,
        "engine": side.engine,
        "shown_ns": side.shown_ns,
    });
    if let Some(n_ops) = side.n_ops {
        fields["n_ops"] = n_ops.into();
    }
    fields
}

fn line(line: &Line) -> Value {
    let mut fields = match &line.name {
        LineName::Class { name, n_processes } => {
            json!({"name": name, "n_processes": n_processes})
        }
        LineName::Pool { name, state: None } | LineName::Function { name } => json!({"name": name}),
        LineName::Pool {
            name,
            state: Some(state),
        } => json!({"name": name, "state": state.name()}),
        LineName::Stack { pool, root_first } => json!({"name": pool, "root_first": root_first}),
    };
    for (key, value) in ["before", "after"].into_iter().zip(&line.values) {
        fields[key] = json!({
            "value": value.per_unit,
            "weight_ns": value.weight_ns,
            "n_samples": value.n_samples,
        });
    }
    fields["change"] = line.difference().into();
    fields["low"] = line.change.map(|c| c.low).into();
    fields["high"] = line.change.map(|c| c.high).into();
    fields["p"] = line.change.map(|c| c.p).into();
    fields["significant"] = line.is_significant().into();
    fields
}
