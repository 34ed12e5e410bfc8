//! Names to indices into one table of strings, harmless for a page and bounded in length.

use indexmap::IndexMap;
use wcprof_text::one_line;

/// The strings of a page, each once.
#[derive(Debug)]
pub(super) struct Strings {
    /// What is shown, by what it was.
    shown: IndexMap<String, String>,
    max_chars: usize,
    /// Names that were cut.
    pub(super) n_cut: usize,
}

impl Strings {
    /// An empty table whose strings have at most `max_chars` characters.
    pub(super) fn new(max_chars: usize) -> Self {
        Self {
            shown: IndexMap::new(),
            max_chars,
            n_cut: 0,
        }
    }

    /// The index of a string.
    pub(super) fn id(&mut self, text: &str) -> u32 {
        let known = self.shown.get_index_of(text);
        let id = known.unwrap_or_else(|| {
            let clean = self.clean(text);
            self.shown.insert_full(text.to_owned(), clean).0
        });
        id as u32
    }

    /// A string as it may be shown: without characters that control or reorder text, and cut.
    pub(super) fn clean(&mut self, text: &str) -> String {
        let text = one_line(text);
        match text.char_indices().nth(self.max_chars) {
            None => text,
            Some((at, _)) => {
                self.n_cut += 1;
                format!("{}...", &text[..at])
            }
        }
    }

    /// The strings in the order of their indices.
    pub(super) fn into_list(self) -> Vec<String> {
        self.shown.into_values().collect()
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
        assert_eq!(strings.n_cut, 1);
        assert_eq!(strings.into_list(), ["a?b", "größ..."]);
    }
}
