//! A value to JSON that a terminal can show.
//!
//! JSON escapes only the characters below U+0020. Other control characters could drive a terminal, and
//! invisible ones reorder its lines: they are written as `\uXXXX`. A reader of the JSON sees no difference.

use serde::Serialize;

use crate::escape::is_invisible;

/// The value as one indented JSON document. It ends with a newline.
///
/// # Errors
/// JSON cannot hold the value: a map has a key that is no text.
pub fn printable_json<T: Serialize>(value: &T) -> Result<String, serde_json::Error> {
    let json = serde_json::to_string_pretty(value)?;
    let mut text = String::with_capacity(json.len() + 1);
    for c in json.chars() {
        // Line feeds are the document's own; all others occur in strings only.
        if c != '\n' && (c.is_control() || is_invisible(c)) {
            text.push_str(&format!("\\u{:04x}", u32::from(c)));
        } else {
            text.push(c);
        }
    }
    text.push('\n');
    Ok(text)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Check that nothing drives a terminal, that the same text is read again, and that other letters
    /// stay as they are.
    #[test]
    fn harmless() {
        let nasty = "a\u{1b}[2J\u{7f}\u{9b}31m\u{202e}\u{200b}\\u009b größe→ファイル\0";
        let text = printable_json(&nasty).unwrap();
        let bad = |c: char| c.is_control() || ('\u{200b}'..='\u{206f}').contains(&c);
        assert!(!text.trim_end_matches('\n').contains(bad), "{text:?}");
        assert!(text.contains("größe→ファイル"), "{text}");
        assert_eq!(serde_json::from_str::<String>(&text).unwrap(), nasty);
    }
}
