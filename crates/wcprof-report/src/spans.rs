//! Lines of text in colors, cut to a width.

use wcprof_profile::model::State;
use wcprof_text::{columns, first_columns};

use crate::colors::ansi;

/// How a part of a line is printed.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub(crate) enum Style {
    Plain,
    Heading,
    /// In the color of a state.
    Of(State),
}

/// Parts of a line.
pub(crate) type Line = Vec<(Style, String)>;

/// A line without colors.
pub(crate) fn plain(text: impl Into<String>) -> Line {
    vec![(Style::Plain, text.into())]
}

/// A heading after an empty line.
pub(crate) fn heading(text: impl Into<String>) -> [Line; 2] {
    [plain(""), vec![(Style::Heading, text.into())]]
}

/// The lines, each cut to `width` columns and without blanks at its end.
pub(crate) fn render(lines: &[Line], width: Option<usize>, color: bool) -> String {
    let mut out = String::new();
    for line in lines {
        let start = out.len();
        let mut room = width.unwrap_or(usize::MAX);
        for (style, text) in line {
            let shown = first_columns(text, room);
            room -= columns(shown);
            match style {
                _ if !color || shown.trim().is_empty() => out.push_str(shown),
                Style::Plain => out.push_str(shown),
                Style::Heading => out.push_str(&format!("\x1b[1m{shown}\x1b[0m")),
                Style::Of(state) => {
                    out.push_str(&format!("\x1b[{}m{shown}\x1b[0m", ansi(*state)));
                }
            }
        }
        out.truncate(start.max(out.trim_end_matches(' ').len()));
        out.push('\n');
    }
    out
}
