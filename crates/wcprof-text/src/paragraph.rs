//! Prose to lines of a terminal.

use crate::columns::columns;

/// Breaks a text at white space into lines of at most `width` columns, of which `taken` are in use on the
/// first line and `indent` on the others. A longer word stays whole.
pub fn wrap(text: &str, width: usize, taken: usize, indent: usize) -> Vec<String> {
    let mut lines: Vec<String> = Vec::new();
    for word in text.split_whitespace() {
        let used = if lines.len() < 2 { taken } else { indent };
        match lines.last_mut() {
            Some(line) if used + columns(line) + 1 + columns(word) <= width => {
                line.push(' ');
                line.push_str(word);
            }
            _ => lines.push(word.to_owned()),
        }
    }
    lines
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Check that lines keep to the width except for a longer word, and that what is in use counts.
    #[test]
    fn wrapping() {
        assert_eq!(wrap("aa bb cc", 5, 0, 0), ["aa bb", "cc"]);
        assert_eq!(wrap("a longword b", 4, 0, 0), ["a", "longword", "b"]);
        assert_eq!(wrap("a b\nc d", 5, 3, 1), ["a", "b c", "d"]);
        assert!(wrap(" ", 5, 0, 0).is_empty());
    }
}
