//! Texts in columns of a terminal, of which wide characters take two and combining ones none.

use std::borrow::Cow;

use unicode_width::{UnicodeWidthChar, UnicodeWidthStr};

/// Cuts to `width` columns of a terminal, of which wide characters take two, with `...` at the end of
/// what was cut.
pub fn cut(text: &str, width: Option<usize>) -> Cow<'_, str> {
    match width {
        Some(width) if columns(text) > width => {
            let mut short = head(text, width.saturating_sub(3)).to_owned();
            short.extend("...".chars().take(width));
            short.into()
        }
        _ => text.into(),
    }
}

/// Columns that a text takes on a terminal.
pub fn columns(text: &str) -> usize {
    text.width()
}

/// As much of the text as has room in so many columns.
pub fn head(text: &str, width: usize) -> &str {
    let mut taken = 0;
    let end = text.char_indices().find(|(_, c)| {
        taken += c.width().unwrap_or(0);
        taken > width
    });
    end.map_or(text, |(end, _)| text.get(..end).unwrap_or(text))
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
