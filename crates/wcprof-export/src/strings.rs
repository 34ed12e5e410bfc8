//! Texts to their numbers in a table of strings.

use indexmap::IndexSet;

/// The strings of a file, each once.
#[derive(Debug, Default)]
pub struct Strings(IndexSet<String>);

impl Strings {
    /// The number of a text, which is taken in if it is new.
    pub fn number(&mut self, text: &str) -> usize {
        let known = self.0.get_index_of(text);
        known.unwrap_or_else(|| self.0.insert_full(text.to_owned()).0)
    }

    /// The text of a number.
    #[must_use]
    pub fn text(&self, number: usize) -> Option<&str> {
        self.0.get_index(number).map(String::as_str)
    }

    /// All, by number.
    pub fn into_list(self) -> Vec<String> {
        self.0.into_iter().collect()
    }
}
