//! What standard output is: looked at once.

use std::io::IsTerminal;

use terminal_size::{Width, terminal_size};

/// Facts about standard output.
#[derive(Copy, Clone, Debug)]
pub(crate) struct Terminal {
    /// Columns; `None` when it is not a terminal: lines are not cut then.
    pub(crate) width: Option<usize>,
    pub(crate) color: bool,
}

impl Terminal {
    pub(crate) fn stdout() -> Self {
        let is_terminal = std::io::stdout().is_terminal();
        let size = terminal_size().filter(|_| is_terminal);
        let no_color = std::env::var_os("NO_COLOR").is_some_and(|v| !v.is_empty());
        let dumb = std::env::var_os("TERM").is_some_and(|v| v == "dumb");
        Self {
            width: size.map(|(Width(w), _)| usize::from(w)),
            color: is_terminal && !no_color && !dumb,
        }
    }

    /// Standard output if it `is_written`; else a file, which has neither width nor color.
    pub(crate) fn of_output(is_written: bool) -> Self {
        match is_written {
            true => Self::stdout(),
            false => Self {
                width: None,
                color: false,
            },
        }
    }

    /// Where prose is wrapped.
    pub(crate) fn prose_width(self) -> usize {
        self.width.unwrap_or(100).min(120)
    }
}
