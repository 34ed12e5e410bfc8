//! Texts measured in columns of a terminal: a wide character takes two, a combining one none.

use std::borrow::Cow;

use unicode_width::{UnicodeWidthChar, UnicodeWidthStr};

/// Cuts a text to `width` columns; `...` marks the cut. `None` does not cut.
pub fn cut(text: &str, width: Option<usize>) -> Cow<'_, str> {
    match width {
        Some(width) if columns(text) > width => {
            let dots = &"..."[..width.min(3)];
            format!("{}{dots}", first_columns(text, width.saturating_sub(3))).into()
        }
        _ => text.into(),
    }
}

/// Columns that a text takes.
pub fn columns(text: &str) -> usize {
    text.width()
}

/// The start of a text that fits into `width` columns.
pub fn first_columns(text: &str, width: usize) -> &str {
    let mut taken = 0;
    let end = text.char_indices().find(|(_, c)| {
        taken += c.width().unwrap_or(0);
        taken > width
    });
    end.map_or(text, |(end, _)| &text[..end])
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Check that texts are cut at columns, not in the middle of a wide character.
    #[test]
    fn columns_are_cut() {
        for (text, width, expected) in [
            ("short", 5, "short"),
            ("longer", 5, "lo..."),
            ("longer", 2, ".."),
            ("longer", 0, ""),
            ("磁盘读写", 8, "磁盘读写"),
            ("磁盘读写", 7, "磁盘..."),
            ("磁盘读写", 6, "磁..."),
            ("e\u{301}e\u{301}", 2, "e\u{301}e\u{301}"),
        ] {
            assert_eq!(cut(text, Some(width)), expected, "{text} {width}");
            assert!(columns(&cut(text, Some(width))) <= width);
        }
        assert_eq!(cut("磁盘", None), "磁盘");
    }

    /// Check that a cut line is never longer than asked, by characters and not by bytes.
    #[test]
    fn cuts() {
        assert_eq!(cut("größer", Some(6)), "größer");
        assert_eq!(cut("größere", Some(6)), "grö...");
        assert_eq!(cut("abcd", Some(2)), "..");
        assert_eq!(cut("abcd", None), "abcd");
    }
}
