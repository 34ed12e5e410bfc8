//! The bytes of a text to characters.

use std::io::{BufReader, Read};

use crate::error::{ImportError, Result, within};
use crate::limits;

/// Whether `<`, `>` and `&` of a text are written as HTML does, by its parts: it has none of the first two then.
#[derive(Copy, Clone, Debug, Default)]
pub(crate) struct Escapes {
    has_escape: bool,
    has_angle: bool,
}

impl Escapes {
    pub(crate) fn add(&mut self, part: &str) {
        self.has_escape = self.has_escape || part.contains("&lt;") || part.contains("&gt;");
        self.has_angle = self.has_angle || part.contains(['<', '>']);
    }

    pub(crate) fn are_escaped(self) -> bool {
        self.has_escape && !self.has_angle
    }
}

/// A text whose `<`, `>` and `&` were written as HTML does, as trackers and mail do.
pub(crate) fn unescaped(text: &str) -> String {
    // The ampersand last: `&amp;lt;` is `&lt;`.
    let text = text.replace("&lt;", "<").replace("&gt;", ">");
    text.replace("&amp;", "&")
}

/// All of a text. Bytes that are not UTF-8 become replacement characters.
///
/// # Errors
/// When reading fails, or there are more than [`limits::MAX_TEXT_BYTES`].
pub(crate) fn read(source: impl Read) -> Result<String> {
    let mut bytes = Vec::new();
    BufReader::new(source)
        .take(limits::MAX_TEXT_BYTES as u64 + 1)
        .read_to_end(&mut bytes)
        .map_err(ImportError::Read)?;
    within(bytes.len(), limits::MAX_TEXT_BYTES, "the text")?;
    let text = String::from_utf8_lossy(&bytes).into_owned();
    let mut escapes = Escapes::default();
    escapes.add(&text);
    Ok(match escapes.are_escaped() {
        true => unescaped(&text),
        false => text,
    })
}
