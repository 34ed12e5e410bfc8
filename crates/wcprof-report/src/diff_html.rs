//! A comparison as one HTML file.

use std::io::{self, Write};

use wcprof_profile::diff::ProfileDiff;

use crate::diff_svg::diff_svg;
use crate::diff_text::{figures, line_name, summary, table_heading};
use crate::html::tables::{PageRow, PageTable, TablePage};

/// Lines of a table.
const MAX_LINES: usize = 200;

/// Writes the tables, significant changes first and in bold, and the differential flame graph if there is
/// anything to draw.
pub fn diff_html(diff: &ProfileDiff, title: &str, out: &mut impl Write) -> io::Result<()> {
    let mut svg = Vec::new();
    let drawn = diff_svg(diff, title, &mut svg);
    let tables = diff.tables.iter().map(|table| {
        let lines = table.lines.iter().take(MAX_LINES);
        let n_more = table.lines.len().saturating_sub(MAX_LINES) + table.n_below;
        PageTable {
            heading: table_heading(diff, table.kind),
            notes: (n_more > 0)
                .then(|| format!("{n_more} smaller lines are left out"))
                .into_iter()
                .collect(),
            columns: vec!["before", "after", "change", "", "95 % interval", "what"],
            rows: lines
                .map(|line| PageRow {
                    cells: figures(diff, table.kind, line)
                        .into_iter()
                        .chain([line_name(&line.name)])
                        .collect(),
                    is_marked: line.is_significant(),
                })
                .collect(),
        }
    });
    let page = TablePage {
        title: title.to_owned(),
        lines: summary(diff),
        tables: tables.collect(),
        picture: drawn.is_ok().then_some(svg),
    };
    out.write_all(page.html().as_bytes())
}
