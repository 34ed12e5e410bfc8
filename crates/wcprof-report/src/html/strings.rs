//! Names to indices into one table of strings, harmless for a page and bounded in length.

use std::collections::HashMap;

use crate::escape::terminal_name;

/// The strings of a page, each once.
#[derive(Debug)]
pub(super) struct Strings {
    pub(super) list: Vec<String>,
    ids: HashMap<String, u32>,
    max_chars: usize,
    /// Names that were cut.
    pub(super) n_cut: usize,
}

impl Strings {
    /// An empty table whose strings have at most `max_chars` characters.
    pub(super) fn new(max_chars: usize) -> Self {
        Self {
            list: Vec::new(),
            ids: HashMap::new(),
            max_chars,
            n_cut: 0,
        }
    }

    /// The index of a string.
    pub(super) fn id(&mut self, text: &str) -> u32 {
        if let Some(&id) = self.ids.get(text) {
            return id;
        }
        let id = u32::try_from(self.list.len()).unwrap_or(u32::MAX);
        let clean = self.clean(text);
        self.list.push(clean);
        self.ids.insert(text.to_owned(), id);
        id
    }

    /// A string as it may be shown: without characters that control or reorder text, and cut.
    pub(super) fn clean(&mut self, text: &str) -> String {
        let text: String = text
            .chars()
            .map(|c| if c == '\n' || c == '\t' { ' ' } else { c })
            .collect();
        let text = terminal_name(&text);
        match text.char_indices().nth(self.max_chars) {
            None => text.into_owned(),
            Some((at, _)) => {
                self.n_cut += 1;
                format!("{}...", &text[..at])
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Check that equal strings are one, that what reorders text is gone, and that long ones are cut.
    #[test]
    fn table() {
        let mut strings = Strings::new(4);
        assert_eq!(strings.id("a\u{202e}b"), 0);
        assert_eq!(strings.id("größer"), 1);
        assert_eq!(strings.id("a\u{202e}b"), 0);
        assert_eq!(strings.list, ["a?b", "größ..."]);
        assert_eq!(strings.n_cut, 1);
    }
}
