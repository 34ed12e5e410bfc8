//! Tables as one HTML file without a script: locks, and what changed between two recordings.

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use wcprof_text::xml_escaped;

use super::page::{STYLE, hash};

/// A page of tables. All text is escaped when it is written.
#[derive(Clone, Debug, Default)]
pub(crate) struct TablePage {
    pub(crate) title: String,
    /// Lines below the title.
    pub(crate) lines: Vec<String>,
    pub(crate) tables: Vec<PageTable>,
    /// An SVG, shown as an image, in which no script runs.
    pub(crate) picture: Option<Vec<u8>>,
}

/// A table with its heading.
#[derive(Clone, Debug, Default)]
pub(crate) struct PageTable {
    pub(crate) heading: String,
    pub(crate) notes: Vec<String>,
    pub(crate) columns: Vec<&'static str>,
    pub(crate) rows: Vec<PageRow>,
}

/// A row; all its cells but the last are figures.
#[derive(Clone, Debug, Default)]
pub(crate) struct PageRow {
    pub(crate) cells: Vec<String>,
    pub(crate) is_marked: bool,
}

impl TablePage {
    /// The page. It loads nothing, and nothing in it can run.
    pub(crate) fn html(&self) -> String {
        let title = xml_escaped(&self.title);
        let picture = self.picture.as_ref().map(|svg| {
            let data = STANDARD.encode(svg);
            format!("<img alt=\"flame graph\" src=\"data:image/svg+xml;base64,{data}\">")
        });
        let tables = self.tables.iter().map(table).collect::<String>();
        format!(
            "<!DOCTYPE html>\n<html lang=\"en\">\n<head>\n<meta charset=\"utf-8\">\n\
             <meta http-equiv=\"Content-Security-Policy\" content=\"default-src 'none'; img-src data:; \
             style-src 'sha256-{}'\">\n\
             <meta name=\"viewport\" content=\"width=device-width, initial-scale=1\">\n\
             <title>{title}</title>\n<style>{STYLE}</style>\n</head>\n<body>\n<main>\n\
             <h1>{title}</h1>\n{}{tables}{}</main>\n</body>\n</html>\n",
            hash(STYLE),
            paragraphs(&self.lines),
            picture.unwrap_or_default(),
        )
    }
}

fn paragraphs(lines: &[String]) -> String {
    let lines = lines.iter();
    lines
        .map(|line| format!("<p class=\"plain\">{}</p>\n", xml_escaped(line)))
        .collect()
}

fn table(table: &PageTable) -> String {
    let last = table.columns.len().saturating_sub(1);
    let class = |at: usize| if at == last { "name wrap" } else { "num" };
    let head = table.columns.iter().enumerate();
    let head =
        head.map(|(at, name)| format!("<th class=\"{}\">{}</th>", class(at), xml_escaped(name)));
    let rows = table.rows.iter().map(|row| {
        let cells = row.cells.iter().enumerate();
        let cells = cells
            .map(|(at, cell)| format!("<td class=\"{}\">{}</td>", class(at), xml_escaped(cell)));
        let class = if row.is_marked {
            " class=\"marked\""
        } else {
            ""
        };
        format!("<tr{class}>{}</tr>\n", cells.collect::<String>())
    });
    format!(
        "<section><h2 class=\"plain\">{}</h2>\n{}<div class=\"scroll\"><table><thead><tr>{}</tr></thead>\n\
         <tbody>{}</tbody></table></div></section>\n",
        xml_escaped(&table.heading),
        paragraphs(&table.notes),
        head.collect::<String>(),
        rows.collect::<String>(),
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Check that names stay text, and that rows are marked.
    #[test]
    fn hostile() {
        let evil = "</td><script>alert(1)</script>\u{1b}\u{202e}";
        let row = |is_marked| PageRow {
            cells: vec!["1.0".to_owned(), evil.to_owned()],
            is_marked,
        };
        let page = TablePage {
            title: evil.to_owned(),
            lines: vec![evil.to_owned()],
            tables: vec![PageTable {
                heading: evil.to_owned(),
                notes: vec![evil.to_owned()],
                columns: vec!["%", "function"],
                rows: vec![row(true), row(false)],
            }],
            picture: Some(b"<svg><script>alert(1)</script></svg>".to_vec()),
        };
        let html = page.html();
        assert!(
            !html.contains("<script") && !html.contains('\u{1b}') && !html.contains('\u{202e}')
        );
        assert_eq!(html.matches("&lt;/td&gt;&lt;script&gt;").count(), 7);
        assert_eq!(html.matches("<tr class=\"marked\">").count(), 1);
    }
}
