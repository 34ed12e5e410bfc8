//! Names from the target, made harmless for where they are written.

use std::borrow::Cow;

/// For a terminal: control characters and invisible ones become `?`.
pub fn terminal_name(name: &str) -> Cow<'_, str> {
    // Nearly all names; and exports ask for each of them.
    if name.bytes().all(|byte| matches!(byte, b' '..=b'~')) {
        return Cow::Borrowed(name);
    }
    replace(name, |c| c.is_control() || is_invisible(c), '?')
}

/// For one line of prose: newlines and tabs become spaces, then as [`terminal_name`].
pub fn one_line(text: &str) -> String {
    terminal_name(&text.replace(['\n', '\t'], " ")).into_owned()
}

/// For a frame or group of a folded stack: as [`terminal_name`], and `;` becomes `:`.
pub fn folded_name(name: &str) -> Cow<'_, str> {
    match terminal_name(name) {
        Cow::Borrowed(name) => replace(name, |c| c == ';', ':'),
        Cow::Owned(name) => Cow::Owned(name.replace(';', ":")),
    }
}

/// For XML 1.0 text that is escaped later: characters that no document may hold become `?`.
pub fn xml_text(text: &str) -> Cow<'_, str> {
    let is_refused = |c: char| {
        is_invisible(c) || matches!(c, '\u{fffe}' | '\u{ffff}') || (c.is_control() && c != '\n')
    };
    replace(text, is_refused, '?')
}

/// For content of an XML or HTML element, or an attribute: as [`xml_text`], and escaped.
pub fn xml_escaped(text: &str) -> String {
    xml_text(text)
        .replace('&', "&amp;")
        .replace('<', "&lt;")
        .replace('>', "&gt;")
        .replace('"', "&quot;")
        .replace('\'', "&#39;")
}

/// Directional marks, embeddings and overrides, and zero-width characters: a name must not change
/// how the text around it reads.
pub fn is_invisible(c: char) -> bool {
    matches!(c,
        '\u{ad}' | '\u{61c}' | '\u{200b}'..='\u{200f}' | '\u{2028}'..='\u{202e}'
        | '\u{2060}'..='\u{206f}' | '\u{feff}' | '\u{fff9}'..='\u{fffb}')
}

fn replace(name: &str, is_bad: impl Fn(char) -> bool, with: char) -> Cow<'_, str> {
    match name.contains(&is_bad) {
        true => name
            .chars()
            .map(|c| if is_bad(c) { with } else { c })
            .collect(),
        false => Cow::Borrowed(name),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Check that escape sequences and reordering characters do not reach a terminal.
    #[test]
    fn terminal() {
        assert_eq!(terminal_name("a\x1b[31mb\u{202e}c\u{9b}d"), "a?[31mb?c?d");
        assert_eq!(terminal_name("größe→ファイル"), "größe→ファイル");
        assert_eq!(terminal_name("a\u{1b}[2J\n\u{202e}b\u{85}"), "a?[2J??b?");
        assert_eq!(terminal_name("größer, 16 KiB"), "größer, 16 KiB");
    }

    /// Check that a frame cannot end a frame or a line.
    #[test]
    fn folded() {
        assert_eq!(folded_name("a;b\nc\r;"), "a:b?c?:");
        assert_eq!(folded_name("f(int, char) const"), "f(int, char) const");
    }

    /// Check that characters outside XML are replaced.
    #[test]
    fn xml() {
        assert_eq!(xml_text("a\0b\u{ffff}c\n"), "a?b?c\n");
    }
}
