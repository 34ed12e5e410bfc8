//! Rows of text to aligned columns, and figures as people read them.

use std::fmt::Display;

use wcprof_text::terminal_name;

/// A table whose first columns are names, to the left, and the others figures, to the right.
pub(super) struct Table {
    n_names: usize,
    rows: Vec<Vec<String>>,
}

impl Table {
    /// With its heading, whose cells are separated by ` | `.
    pub(super) fn new(n_names: usize, heading: &str) -> Self {
        let heading = heading.split(" | ").map(str::to_owned).collect();
        let rows = vec![heading];
        Self { n_names, rows }
    }

    /// A row; text from files is made harmless.
    pub(super) fn row(&mut self, cells: &[&dyn Display]) {
        let cells = cells.iter().map(|cell| cell.to_string());
        let cells = cells.map(|cell| terminal_name(&cell).into_owned());
        self.rows.push(cells.collect());
    }

    pub(super) fn render(&self) -> String {
        let width = |column: usize| {
            let cells = self.rows.iter().map(|row| row[column].chars().count());
            cells.max().unwrap_or(0)
        };
        let widths: Vec<usize> = (0..self.rows[0].len()).map(width).collect();
        let mut out = String::new();
        for row in &self.rows {
            let cells = row.iter().zip(&widths).enumerate();
            let cells = cells.map(|(column, (cell, width))| match column < self.n_names {
                true => format!("{cell:<width$}"),
                false => format!("{cell:>width$}"),
            });
            out += cells.collect::<Vec<_>>().join("  ").trim_end();
            out.push('\n');
        }
        out
    }
}

/// Bytes: `96 B`, `16 KiB`, `1 MiB`.
pub(crate) fn format_bytes(n: u64) -> String {
    match n {
        _ if n >= 1 << 20 && n.is_multiple_of(1 << 20) => format!("{} MiB", n >> 20),
        _ if n >= 1 << 10 && n.is_multiple_of(1 << 10) => format!("{} KiB", n >> 10),
        _ => format!("{n} B"),
    }
}

/// Nanoseconds with three digits and more: `41.3`, `4131`.
pub(super) fn format_ns(ns: f64) -> String {
    let digits = usize::from(ns < 99.95);
    format!("{ns:.digits$}")
}

/// A share as percent.
pub(super) fn percent(share: f64) -> String {
    format!("{:.1} %", 100.0 * share)
}

/// A share as signed percent.
pub(super) fn signed_percent(share: f64) -> String {
    format!("{:+.1} %", 100.0 * share)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Check alignment, and that text from outside can not leave its cell.
    #[test]
    fn aligned() {
        let mut table = Table::new(1, "name | ns");
        table.row(&[&"a\x1b[2J", &1]);
        table.row(&[&"größer", &1000]);
        assert_eq!(table.render(), "name      ns\na?[2J      1\ngrößer  1000\n");
    }

    /// Check units.
    #[test]
    fn figures() {
        assert_eq!(format_bytes(16), "16 B");
        assert_eq!(format_bytes(1536), "1536 B");
        assert_eq!(format_bytes(16384), "16 KiB");
        assert_eq!(format_bytes(4 << 20), "4 MiB");
        assert_eq!(format_ns(41.26), "41.3");
        assert_eq!(format_ns(4131.4), "4131");
        assert_eq!(signed_percent(-0.0123), "-1.2 %");
    }
}
