//! Who waited for whom, as one HTML file.

use std::io::{self, Write};

use wcprof_findings::{LockReport, LockSite, held_text, lock_summary, site_notes};

use crate::html::tables::{PageRow, PageTable, TablePage};

/// Lock sites, and holders of each.
const MAX_SITES: usize = 100;
const MAX_HOLDS: usize = 20;

/// Writes a table for each lock site, most lost time first: who held the locks, and with which stack.
pub fn locks_html(report: &LockReport, title: &str, out: &mut impl Write) -> io::Result<()> {
    let page = TablePage {
        title: title.to_owned(),
        lines: lock_summary(report).to_vec(),
        tables: (report.sites.iter().take(MAX_SITES))
            .map(|site| table(report, site))
            .collect(),
        picture: None,
    };
    out.write_all(page.html().as_bytes())
}

fn table(report: &LockReport, site: &LockSite) -> PageTable {
    let row = |share: f64, ns: u64, text: String| PageRow {
        cells: vec![format!("{share:.1} %"), report.amount(ns), text],
        is_marked: false,
    };
    let holds = site.held_by.iter().take(MAX_HOLDS);
    let holds = holds.map(|hold| row(hold.percent, hold.weight_ns, held_text(hold)));
    let unknown = site.unknown.iter();
    let unknown = unknown.map(|u| row(u.percent, u.weight_ns, format!("unknown: {}", u.text)));
    let unit = match report.n_snapshots {
        0 => "time",
        _ => "threads",
    };
    PageTable {
        heading: format!(
            "{:.1} %, {}: {}",
            site.percent,
            report.amount(site.lost_ns),
            site.function
        ),
        notes: site_notes(report, site),
        columns: vec!["of the site", unit, "held by"],
        rows: holds.chain(unknown).collect(),
    }
}
