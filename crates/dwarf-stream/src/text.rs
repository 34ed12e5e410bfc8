//! Where strings are, and the strings themselves once they are needed.
//!
//! `.debug_str` is the largest section after `.debug_info`, and a lookup needs some thousand of its
//! strings. So entries are read first, and then the section is gone through once for all strings that
//! they name.

use std::collections::HashMap;
use std::sync::Arc;

use gimli::{AttributeValue, EndianSlice, LittleEndian, SectionId};

use crate::allowance::Allowance;
use crate::elf::{ElfFile, Section, SectionStream};
use crate::error::DwarfError;
use crate::files::{DwarfFiles, section_of};

pub(crate) type Slice<'a> = EndianSlice<'a, LittleEndian>;
pub(crate) type Value<'a> = AttributeValue<Slice<'a>>;

/// Longest string that is kept, bytes; longer ones are cut.
const MAX_TEXT: usize = 64 << 10;
/// Bytes of `.debug_str` looked at together.
const STEP: usize = 256 << 10;
/// Bytes that a string takes beyond its text: counters, and its place in a table.
const STRING_OVERHEAD: usize = 64;

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

    /// Memory that it takes beside itself.
    pub(crate) fn heap_size(&self) -> u64 {
        match self {
            Self::Inline(text) => string_size(text),
            _ => 0,
        }
    }
}

/// Strings of `.debug_str`, of the main and the supplementary file, and of `.debug_line_str`, by where they
/// are.
#[derive(Debug, Default)]
pub(crate) struct Strings {
    found: HashMap<Text, Arc<str>>,
}

impl Strings {
    pub(crate) fn get(&self, text: &Text) -> Option<Arc<str>> {
        match text {
            Text::None => None,
            Text::Inline(text) => Some(Arc::clone(text)),
            Text::Str(_) | Text::LineStr(_) | Text::SupStr(_) => self.found.get(text).cloned(),
        }
    }

    /// Reads those of `wanted` that are not here yet.
    pub(crate) fn read<'t>(
        &mut self,
        files: DwarfFiles<'_>,
        wanted: impl IntoIterator<Item = &'t Text>,
        room: &Allowance,
    ) -> Result<(), DwarfError> {
        let (mut main, mut line, mut supplementary) = (Vec::new(), Vec::new(), Vec::new());
        let wanted = wanted.into_iter();
        for text in wanted.filter(|text| !self.found.contains_key(*text)) {
            match text {
                Text::Str(offset) => main.push(*offset),
                Text::LineStr(offset) => line.push(*offset),
                Text::SupStr(offset) => supplementary.push(*offset),
                Text::None | Text::Inline(_) => {}
            }
        }
        let (own, other) = (Some(files.main), files.supplementary);
        let main = (own, SectionId::DebugStr, main, Text::Str as fn(u64) -> Text);
        let line = (own, SectionId::DebugLineStr, line, Text::LineStr as _);
        let supplementary = (other, SectionId::DebugStr, supplementary, Text::SupStr as _);
        for (elf, id, offsets, key) in [main, line, supplementary] {
            if let Some(elf) = elf.filter(|_| !offsets.is_empty()) {
                let section = section_of(elf, id);
                let strings = read_strings(elf, section, offsets, room)?.into_iter();
                self.found.extend(strings.map(|(at, text)| (key(at), text)));
            }
        }
        Ok(())
    }
}

/// Reads the strings at `offsets` of a section, by offset. Offsets beyond the section are absent from
/// the result, and strings for which no room is left.
pub(crate) fn read_strings(
    elf: &ElfFile,
    section: Option<&Section>,
    mut offsets: Vec<u64>,
    room: &Allowance,
) -> Result<HashMap<u64, Arc<str>>, DwarfError> {
    let mut strings = HashMap::new();
    offsets.sort_unstable();
    offsets.dedup();
    let Some(section) = section else {
        return Ok(strings);
    };
    let mut window = Window {
        stream: elf.stream(section)?,
        begin: 0,
        bytes: Vec::new(),
    };
    // Where the string that was read last ends: those that begin inside it end there, too.
    let mut end = 0;
    let mut offsets = offsets.into_iter();
    while let Some(offset) = offsets.next() {
        window.move_to(offset)?;
        if offset >= window.end() {
            break;
        }
        if offset > end || window.part(end, end + 1) != [0] {
            end = window.find_zero(offset);
        }
        let text = window.part(offset, end.min(offset.saturating_add(MAX_TEXT as u64)));
        let text: Arc<str> = String::from_utf8_lossy(text).into();
        if !room.take(string_size(&text)) {
            room.refuse(offsets.len());
            break;
        }
        strings.insert(offset, text);
    }
    Ok(strings)
}

/// Memory that a string takes that is kept.
pub(crate) fn string_size(text: &str) -> u64 {
    (text.len() + STRING_OVERHEAD) as u64
}

/// A part of a section that moves forward, long enough for the longest string.
struct Window<'a> {
    stream: SectionStream<'a>,
    /// Offset of `bytes` in the section.
    begin: u64,
    bytes: Vec<u8>,
}

impl Window<'_> {
    fn end(&self) -> u64 {
        self.begin + self.bytes.len() as u64
    }

    /// Makes sure that `offset` and what may follow it are inside, as far as the section has them.
    fn move_to(&mut self, offset: u64) -> Result<(), DwarfError> {
        let needed = offset.saturating_add(MAX_TEXT as u64);
        if needed <= self.end() || self.end() == self.stream.size() {
            return Ok(());
        }
        let keep = self.part(offset, self.end()).len();
        self.bytes.drain(..self.bytes.len() - keep);
        self.stream
            .skip(offset.saturating_sub(self.stream.position()))?;
        self.begin = self.stream.position() - keep as u64;
        self.bytes.resize(keep + STEP, 0);
        let n = self
            .stream
            .read(self.bytes.get_mut(keep..).unwrap_or_default())?;
        self.bytes.truncate(keep + n);
        Ok(())
    }

    /// Bytes from an offset to another.
    fn part(&self, from: u64, to: u64) -> &[u8] {
        let at =
            |offset: u64| usize::try_from(offset.saturating_sub(self.begin)).unwrap_or(usize::MAX);
        let part = self.bytes.get(at(from)..at(to).min(self.bytes.len()));
        part.unwrap_or_default()
    }

    /// The first zero byte from `offset` on; the end of this window when it has none.
    fn find_zero(&self, offset: u64) -> u64 {
        let rest = self.part(offset, self.end());
        let length = rest.iter().position(|byte| *byte == 0);
        offset + length.unwrap_or(rest.len()) as u64
    }
}
