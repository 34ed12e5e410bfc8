//! A comparison as JSON. `docs/diff.md` documents it.

use std::io::{self, Write};

use serde_json::{Value, json};
use wcprof_profile::diff::{Line, ProfileDiff};
use wcprof_text::printable_json;

use crate::diff_text::diff_warning;

/// Version of the schema. It grows when a field changes its meaning or goes.
const DIFF_JSON_VERSION: u32 = 1;

/// Writes the comparison, with a newline at the end.
pub fn diff_json(diff: &ProfileDiff, out: &mut impl Write) -> io::Result<()> {
    let [before, after] = &diff.sides;
    let tables = diff.tables.iter().map(|table| {
        json!({
            "kind": table.kind,
            "n_below": table.n_below,
            "lines": table.lines.iter().map(line).collect::<Vec<_>>(),
        })
    });
    let document = json!({
        "schema": "wcprof-diff",
        "version": DIFF_JSON_VERSION,
        "unit": diff.unit,
        "level": diff.level,
        "n_tested": diff.n_tested(),
        "n_significant": diff.n_significant(),
        "warnings": diff.warnings.iter().map(diff_warning).collect::<Vec<_>>(),
        "before": before,
        "after": after,
        "tables": tables.collect::<Vec<_>>(),
    });
    out.write_all(printable_json(&document)?.as_bytes())
}

fn line(line: &Line) -> Value {
    let [before, after] = &line.values;
    let mut fields = json!(line.name);
    fields["before"] = json!(before);
    fields["after"] = json!(after);
    fields["change"] = line.difference().into();
    fields["low"] = line.change.map(|c| c.low).into();
    fields["high"] = line.change.map(|c| c.high).into();
    fields["p"] = line.change.map(|c| c.p).into();
    fields["significant"] = line.is_significant().into();
    fields
}
