//! Names of addresses to the bytes of a cache file, and back.
//!
//! Little-endian. Magic; format version (`u32`); identity, a string; strings; entries; CRC-32 of
//! all before it. A string is its length (`u32`) and its bytes, UTF-8. Strings and entries are
//! preceded by their number (`u32`). An entry is its address (`u64`) and the number of its frames
//! (`u32`); a frame three `u32`: name and file, as a position among the strings counted from 1,
//! and line, each 0 when not known.

use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;

use dwarf_stream::DwarfFrame;

const MAGIC: &[u8] = b"wcprof names\n";
const VERSION: u32 = 1;

/// Functions by address, innermost first.
pub(super) type Entries = BTreeMap<u64, Vec<DwarfFrame>>;

/// The bytes of a cache file.
pub(super) fn encode(entries: &Entries, identity: &str) -> Vec<u8> {
    let mut strings: Vec<&str> = Vec::new();
    let mut positions: HashMap<&str, u32> = HashMap::new();
    let mut body = Vec::new();
    for (address, frames) in entries {
        body.extend(address.to_le_bytes());
        put_len(&mut body, frames.len());
        for frame in frames {
            for text in [&frame.name, &frame.file] {
                let position = text.as_deref().map_or(0, |text| {
                    *positions.entry(text).or_insert_with(|| {
                        strings.push(text);
                        u32::try_from(strings.len()).unwrap_or(0)
                    })
                });
                body.extend(position.to_le_bytes());
            }
            body.extend(frame.line.unwrap_or(0).to_le_bytes());
        }
    }
    let mut bytes = MAGIC.to_vec();
    bytes.extend(VERSION.to_le_bytes());
    put_text(&mut bytes, identity);
    put_len(&mut bytes, strings.len());
    for text in strings {
        put_text(&mut bytes, text);
    }
    put_len(&mut bytes, entries.len());
    bytes.append(&mut body);
    let checksum = crc32fast::hash(&bytes);
    bytes.extend(checksum.to_le_bytes());
    bytes
}

fn put_len(bytes: &mut Vec<u8>, len: usize) {
    bytes.extend(u32::try_from(len).unwrap_or(u32::MAX).to_le_bytes());
}

fn put_text(bytes: &mut Vec<u8>, text: &str) {
    put_len(bytes, text.len());
    bytes.extend(text.as_bytes());
}

/// The entries of a cache file; `None` unless it is whole and made from `identity`.
pub(super) fn decode(bytes: &[u8], identity: &str) -> Option<Entries> {
    let (bytes, checksum) = bytes.split_last_chunk::<4>()?;
    if crc32fast::hash(bytes) != u32::from_le_bytes(*checksum) {
        return None;
    }
    let mut reader = Reader(bytes.strip_prefix(MAGIC)?);
    if reader.u32()? != VERSION || reader.text()? != identity {
        return None;
    }
    let strings = reader.list(|r| Some(Arc::<str>::from(r.text()?)))?;
    let string = |position: u32| match position.checked_sub(1) {
        None => Some(None),
        Some(i) => strings.get(i as usize).map(|text| Some(text.clone())),
    };
    let entries = reader.list(|r| {
        let frames = |r: &mut Reader<'_>| {
            Some(DwarfFrame {
                name: string(r.u32()?)?,
                file: string(r.u32()?)?,
                line: Some(r.u32()?).filter(|line| *line > 0),
            })
        };
        Some((r.u64()?, r.list(frames)?))
    })?;
    let entries = entries.into_iter().collect();
    reader.0.is_empty().then_some(entries)
}

struct Reader<'a>(&'a [u8]);

impl<'a> Reader<'a> {
    fn take<const N: usize>(&mut self) -> Option<[u8; N]> {
        let (bytes, rest) = self.0.split_first_chunk()?;
        self.0 = rest;
        Some(*bytes)
    }

    fn u32(&mut self) -> Option<u32> {
        self.take().map(u32::from_le_bytes)
    }

    fn u64(&mut self) -> Option<u64> {
        self.take().map(u64::from_le_bytes)
    }

    /// A number of items, and the items.
    fn list<T>(&mut self, read: impl Fn(&mut Self) -> Option<T>) -> Option<Vec<T>> {
        let n = self.u32()?;
        (0..n).map(|_| read(self)).collect()
    }

    fn text(&mut self) -> Option<&'a str> {
        let len = usize::try_from(self.u32()?).ok()?;
        let (text, rest) = self.0.split_at_checked(len)?;
        self.0 = rest;
        std::str::from_utf8(text).ok()
    }
}
