//! Where strings are, and the strings themselves once they are needed.
//!
//! `.debug_str` is the largest section after `.debug_info`, and a profile needs some thousand of
//! its strings. So entries are read first, and then the section is gone through once for all
//! strings they name.

use std::collections::HashMap;
use std::sync::Arc;

use gimli::AttributeValue;

use super::DwarfError;
use super::unit::Value;
use crate::elf::{ElfFile, Section};

/// Longest string that is kept, bytes. Longer ones are cut: a name is shown up to 4096
/// characters, and a linkage name is demangled up to 64 KiB.
pub(super) const MAX_TEXT: usize = 64 << 10;
/// Bytes of `.debug_str` looked at together.
const STEP: usize = 256 << 10;

/// A string, or where it is.
#[derive(Clone, PartialEq, Eq, Hash, Debug, Default)]
pub(super) enum Text {
    #[default]
    None,
    /// In the entry itself, or already read.
    Inline(Arc<[u8]>),
    /// Offset in `.debug_str`.
    Str(u64),
    /// Offset in `.debug_line_str`.
    LineStr(u64),
    /// Offset in the `.debug_str` of the supplementary file.
    SupStr(u64),
}

impl Text {
    pub(super) fn of(value: &Value<'_>) -> Self {
        match value {
            AttributeValue::String(bytes) => {
                let bytes = bytes.slice();
                Self::Inline(bytes.get(..MAX_TEXT).unwrap_or(bytes).into())
            }
            AttributeValue::DebugStrRef(offset) => Self::Str(offset.0 as u64),
            AttributeValue::DebugLineStrRef(offset) => Self::LineStr(offset.0 as u64),
            AttributeValue::DebugStrRefSup(offset) => Self::SupStr(offset.0 as u64),
            _ => Self::None,
        }
    }
}

/// Strings of one section by offset.
pub(super) type Strings = HashMap<u64, String>;

/// Reads the strings at `offsets`, at most `limit` bytes of them. Offsets beyond the section are
/// absent from the result; so are strings that no longer fit, whose number is the second result.
pub(super) fn pick(
    elf: &ElfFile,
    section: Option<&Section>,
    mut offsets: Vec<u64>,
    limit: u64,
) -> Result<(Strings, usize), DwarfError> {
    let mut strings = Strings::new();
    offsets.sort_unstable();
    offsets.dedup();
    let Some(section) = section else {
        return Ok((strings, 0));
    };
    let mut stream = elf.stream(section)?;
    let mut total = 0_u64;
    let mut n_dropped = 0;
    let mut next = offsets.iter().copied().peekable();
    // Strings whose end was not seen yet.
    let mut open: Vec<(u64, Vec<u8>)> = Vec::new();
    let mut keep = |offset, bytes: Vec<u8>| {
        total = total.saturating_add(bytes.len() as u64);
        if total <= limit {
            let text = String::from_utf8(bytes)
                .unwrap_or_else(|e| String::from_utf8_lossy(e.as_bytes()).into_owned());
            strings.insert(offset, text);
        } else {
            n_dropped += 1;
        }
    };
    let mut buffer = vec![0; STEP];
    loop {
        if open.is_empty() {
            match next.peek() {
                Some(offset) => stream.skip(offset.saturating_sub(stream.position()))?,
                None => break,
            }
        }
        let begin = stream.position();
        let n = stream.read(&mut buffer)?;
        let bytes = buffer.get(..n).unwrap_or_default();
        if bytes.is_empty() {
            break;
        }
        for (offset, mut text) in std::mem::take(&mut open) {
            let ended = take_text(bytes, &mut text);
            match ended || text.len() >= MAX_TEXT {
                true => keep(offset, text),
                false => open.push((offset, text)),
            }
        }
        let end = begin + n as u64;
        while let Some(offset) = next.next_if(|offset| *offset < end) {
            let at = usize::try_from(offset - begin).unwrap_or(usize::MAX);
            let mut text = Vec::new();
            match take_text(bytes.get(at..).unwrap_or_default(), &mut text) {
                true => keep(offset, text),
                false => open.push((offset, text)),
            }
        }
    }
    Ok((strings, n_dropped))
}

/// Adds bytes up to the terminating zero; whether there was one.
fn take_text(bytes: &[u8], text: &mut Vec<u8>) -> bool {
    let end = bytes.iter().position(|b| *b == 0);
    let part = bytes.get(..end.unwrap_or(bytes.len())).unwrap_or(bytes);
    let room = MAX_TEXT.saturating_sub(text.len());
    text.extend_from_slice(part.get(..room).unwrap_or(part));
    end.is_some()
}
