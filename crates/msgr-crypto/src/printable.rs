//! Text of others (names of processes, files and libraries) to text that can be shown in one line.

/// Control characters, and characters that are invisible or change how the text around them reads, as `?`.
pub(crate) fn printable(text: &str) -> String {
    text.chars()
        .map(|c| if is_harmful(c) { '?' } else { c })
        .collect()
}

fn is_harmful(c: char) -> bool {
    c.is_control()
        || matches!(c,
            '\u{ad}' | '\u{61c}' | '\u{200b}'..='\u{200f}' | '\u{2028}'..='\u{202e}'
            | '\u{2060}'..='\u{206f}' | '\u{feff}' | '\u{fff9}'..='\u{fffb}')
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Check that escape sequences, line feeds and reordering characters are replaced, and nothing else.
    #[test]
    fn replaced() {
        assert_eq!(printable("a\u{1b}[2J\n\u{202e}b\u{85}"), "a?[2J??b?");
        assert_eq!(printable("größer, 16 KiB"), "größer, 16 KiB");
    }
}
