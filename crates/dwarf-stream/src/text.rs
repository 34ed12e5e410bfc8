//! Where strings are, and the strings themselves once they are needed.
//!
//! `.debug_str` is the largest section after `.debug_info`, and a lookup needs some thousand of its
//! strings. So entries are read first, and then the section is gone through once for all strings that
//! they name.

use std::collections::HashMap;
use std::sync::Arc;

use gimli::{AttributeValue, EndianSlice, LittleEndian, SectionId};

use crate::elf::{ElfFile, Section};
use crate::error::DwarfError;
use crate::files::{DwarfFiles, section_of};

pub(crate) type Slice<'a> = EndianSlice<'a, LittleEndian>;
pub(crate) type Value<'a> = AttributeValue<Slice<'a>>;

/// Longest string that is kept, bytes; longer ones are cut.
pub(crate) const MAX_TEXT: usize = 64 << 10;
/// Bytes of `.debug_str` looked at together.
const STEP: usize = 256 << 10;

/// A string, or where it is.
#[derive(Clone, PartialEq, Eq, Hash, Debug, Default)]
pub(crate) enum Text {
    #[default]
    None,
    /// In the entry itself, or already read.
    Inline(Arc<str>),
    /// Offset in `.debug_str`.
    Str(u64),
    /// Offset in `.debug_line_str`.
    LineStr(u64),
    /// Offset in the `.debug_str` of the supplementary file.
    SupStr(u64),
}

impl Text {
    pub(crate) fn new(value: &Value<'_>) -> Self {
        match value {
            AttributeValue::String(bytes) => {
                let bytes = bytes.slice();
                let bytes = bytes.get(..MAX_TEXT).unwrap_or(bytes);
                Self::Inline(String::from_utf8_lossy(bytes).into())
            }
            AttributeValue::DebugStrRef(offset) => Self::Str(offset.0 as u64),
            AttributeValue::DebugLineStrRef(offset) => Self::LineStr(offset.0 as u64),
            AttributeValue::DebugStrRefSup(offset) => Self::SupStr(offset.0 as u64),
            _ => Self::None,
        }
    }
}

/// Strings of `.debug_str`, of the main and the supplementary file, by where they are.
#[derive(Debug, Default)]
pub(crate) struct Strings {
    found: HashMap<Text, Arc<str>>,
    /// Strings that did not fit into their share of the memory.
    pub(crate) n_dropped: usize,
}

impl Strings {
    pub(crate) fn get(&self, text: &Text) -> Option<&Arc<str>> {
        self.found.get(text)
    }

    /// Reads those of `wanted` that are not here yet, at most `limit` bytes of each file.
    pub(crate) fn read<'t>(
        &mut self,
        files: DwarfFiles<'_>,
        wanted: impl IntoIterator<Item = &'t Text>,
        limit: u64,
    ) -> Result<(), DwarfError> {
        let (mut main, mut supplementary) = (Vec::new(), Vec::new());
        for text in wanted
            .into_iter()
            .filter(|text| !self.found.contains_key(*text))
        {
            match text {
                Text::Str(offset) => main.push(*offset),
                Text::SupStr(offset) => supplementary.push(*offset),
                Text::None | Text::Inline(_) | Text::LineStr(_) => {}
            }
        }
        let of_main = (Some(files.main), main, Text::Str as fn(u64) -> Text);
        let of_supplementary = (files.supplementary, supplementary, Text::SupStr as _);
        for (elf, offsets, key) in [of_main, of_supplementary] {
            if let Some(elf) = elf.filter(|_| !offsets.is_empty()) {
                let section = section_of(elf, SectionId::DebugStr);
                let (strings, n_dropped) = read_strings(elf, section, offsets, limit)?;
                self.n_dropped += n_dropped;
                let strings = strings.into_iter();
                self.found.extend(strings.map(|(at, text)| (key(at), text)));
            }
        }
        Ok(())
    }
}

/// Reads the strings at `offsets` of a section, at most `limit` bytes of them, by offset. Offsets beyond
/// the section are absent from the result; so are strings that no longer fit, whose number is the
/// second result.
pub(crate) fn read_strings(
    elf: &ElfFile,
    section: Option<&Section>,
    mut offsets: Vec<u64>,
    limit: u64,
) -> Result<(HashMap<u64, Arc<str>>, usize), DwarfError> {
    let mut strings = HashMap::new();
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
            strings.insert(offset, String::from_utf8_lossy(&bytes).into());
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
        let end = begin + n as u64;
        while let Some(offset) = next.next_if(|offset| *offset < end) {
            open.push((offset, Vec::new()));
        }
        for (offset, mut text) in std::mem::take(&mut open) {
            let at = usize::try_from(offset.saturating_sub(begin)).unwrap_or(usize::MAX);
            let ended = take_text(bytes.get(at..).unwrap_or_default(), &mut text);
            match ended || text.len() >= MAX_TEXT {
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
