//! Names of addresses to the bytes that the cache keeps, and back: a JSON document.

use std::collections::{BTreeMap, HashMap};
use std::io;
use std::sync::Arc;

use dwarf_stream::DwarfFrame;
use serde::{Deserialize, Serialize};

/// Functions by address, innermost first.
pub(super) type Entries = BTreeMap<u64, Vec<DwarfFrame>>;

#[derive(Serialize, Deserialize)]
struct Document {
    /// Names and paths, each once.
    strings: Vec<String>,
    /// By address, for each frame: name and file, as a position among the strings counted from 1, and
    /// line; each is 0 when it is not known.
    entries: BTreeMap<u64, Vec<[u32; 3]>>,
}

/// The bytes of these entries.
pub(super) fn encode<'e>(entries: &'e Entries) -> io::Result<Vec<u8>> {
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
        strings,
        entries: encoded,
    };
    Ok(serde_json::to_vec(&document)?)
}

/// The entries of such bytes.
pub(super) fn decode(bytes: &[u8]) -> Option<Entries> {
    let document: Document = serde_json::from_slice(bytes).ok()?;
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
