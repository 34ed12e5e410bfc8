//! Lines to standard error, in place of `eprintln!`, which panics when it cannot write: its reader has
//! gone, or the disk is full. A recording must not end with the terminal that it was started from.
//! Where standard error is systemd's journal they have their level in front (`sd-daemon(3)`).

use std::io::{Write, stderr};
use std::sync::OnceLock;

use nix::sys::stat::fstat;
use wcprof_text::one_line;

/// How much a line matters, as syslog numbers it.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub enum Level {
    /// Something was not done.
    Error = 3,
    /// Something may be wrong.
    Warning = 4,
    /// What is done.
    Info = 6,
}

/// Writes a line of level `Info` to standard error, if that can be written to.
#[macro_export]
macro_rules! message {
    ($($argument:tt)*) => {
        $crate::message::line($crate::message::Level::Info, &::std::format!($($argument)*))
    };
}

/// Writes lines to standard error, if that can be written to. Errors and paths in them may have names from a target or a
/// file.
pub fn line(level: Level, text: &str) {
    static IS_JOURNAL: OnceLock<bool> = OnceLock::new();
    let is_journal = IS_JOURNAL.get_or_init(|| {
        let stream = std::env::var("JOURNAL_STREAM").unwrap_or_default();
        let stat = fstat(stderr());
        stat.is_ok_and(|stat| stream == format!("{}:{}", stat.st_dev, stat.st_ino))
    });
    let text = harmless(text);
    // There is nobody to report a failure to.
    let _ = match is_journal {
        true => writeln!(stderr().lock(), "{}", journal_line(level, &text)),
        false => writeln!(stderr().lock(), "{text}"),
    };
}

/// The text with its lines and no other character that drives a terminal or reorders what is beside it.
fn harmless(text: &str) -> String {
    text.split('\n')
        .map(one_line)
        .collect::<Vec<_>>()
        .join("\n")
}

/// One line, whose program the journal knows.
fn journal_line(level: Level, text: &str) -> String {
    let text = text.trim_start_matches("wcprof: ").replace('\n', "; ");
    format!("<{}>{text}", level as u8)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Check that a message has its lines, and drives no terminal.
    #[test]
    fn names() {
        let text = "\x1b[2J\u{202e}gpj: no\tfile\nhint: \r\u{9b}2J";
        assert_eq!(harmless(text), "?[2J?gpj: no file\nhint: ??2J");
        assert_eq!(harmless("\nwhat it does\n"), "\nwhat it does\n");
    }

    /// Check that what the journal gets is one line with a level.
    #[test]
    fn journal() {
        let text = "wcprof: no space\nhint: another folder";
        let line = journal_line(Level::Error, text);
        assert_eq!(line, "<3>no space; hint: another folder");
    }
}
