//! Names of addresses to the bytes of a cache file, and back: a line that names the format, a JSON
//! document, and the CRC-32 of both, little-endian.

use std::collections::{BTreeMap, HashMap};
use std::io;
use std::sync::Arc;

use dwarf_stream::DwarfFrame;
use serde::{Deserialize, Serialize};

const MAGIC: &[u8] = b"wcprof names 2\n";

/// Functions by address, innermost first.
pub(super) type Entries = BTreeMap<u64, Vec<DwarfFrame>>;

#[derive(Serialize, Deserialize)]
struct Document {
    identity: String,
    /// Names and paths, each once.
    strings: Vec<String>,
    /// By address, for each frame: name and file, as a position among the strings counted from 1, and
    /// line; each is 0 when it is not known.
    entries: BTreeMap<u64, Vec<[u32; 3]>>,
}

/// The bytes of a cache file.
pub(super) fn encode<'e>(entries: &'e Entries, identity: &str) -> io::Result<Vec<u8>> {
    let mut strings = Vec::new();
    let mut positions: HashMap<&'e str, u32> = HashMap::new();
    let mut position = |text: Option<&'e str>| {
        text.map_or(0, |text| {
            *positions.entry(text).or_insert_with(|| {
                strings.push(text.to_owned());
                u32::try_from(strings.len()).unwrap_or(0)
            })
        })
    };
    let mut encoded = BTreeMap::new();
    for (address, frames) in entries {
        let frame = |frame: &'e DwarfFrame| {
            let (name, file) = (frame.name.as_deref(), frame.file.as_deref());
            [position(name), position(file), frame.line.unwrap_or(0)]
        };
        encoded.insert(*address, frames.iter().map(frame).collect());
    }
    let document = Document {
        identity: identity.to_owned(),
        strings,
        entries: encoded,
    };
    let mut bytes = MAGIC.to_vec();
    serde_json::to_writer(&mut bytes, &document)?;
    let checksum = crc32fast::hash(&bytes);
    bytes.extend(checksum.to_le_bytes());
    Ok(bytes)
}

/// The entries of a cache file; `None` unless it is whole and made from `identity`.
pub(super) fn decode(bytes: &[u8], identity: &str) -> Option<Entries> {
    let (bytes, checksum) = bytes.split_last_chunk::<4>()?;
    if crc32fast::hash(bytes) != u32::from_le_bytes(*checksum) {
        return None;
    }
    let document: Document = serde_json::from_slice(bytes.strip_prefix(MAGIC)?).ok()?;
    if document.identity != identity {
        return None;
    }
    let strings: Vec<Arc<str>> = document.strings.into_iter().map(Arc::from).collect();
    let string = |position: u32| match position.checked_sub(1) {
        None => Some(None),
        Some(i) => strings.get(i as usize).map(|text| Some(text.clone())),
    };
    let frame = |[name, file, line]: [u32; 3]| {
        Some(DwarfFrame {
            name: string(name)?,
            file: string(file)?,
            line: Some(line).filter(|line| *line > 0),
        })
    };
    let entries = document.entries.into_iter().map(|(address, frames)| {
        let frames: Option<Vec<DwarfFrame>> = frames.into_iter().map(frame).collect();
        Some((address, frames?))
    });
    entries.collect()
}
