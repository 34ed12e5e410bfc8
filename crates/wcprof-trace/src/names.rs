//! Names of frames to blocks. Blocks of names are large, and each is one section.

use zstd::bulk::Compressor;

use crate::error::TraceError;
use crate::model::{LocalNames, SymbolTable};
use crate::v1::wire::{checked_time, known};
use crate::v1::{block, put_section, section, symbols};

/// Names are written once, when the recording is over.
const LEVEL: i32 = 9;

/// Appends names of a trace with so many frames.
pub(crate) fn pack_symbols(
    table: &SymbolTable,
    n_frames: usize,
    out: &mut Vec<u8>,
) -> Result<(), TraceError> {
    pack_table(section::SYMBOLS, table, n_frames, out)
}

/// Appends names that only the recorded machine has.
pub(crate) fn pack_local_names(
    names: &LocalNames,
    n_frames: usize,
    out: &mut Vec<u8>,
) -> Result<(), TraceError> {
    pack_table(section::LOCAL_NAMES, &names.names, n_frames, out)?;
    for later in &names.later {
        known("frame", later.frame.0, n_frames)?;
        checked_time(later.since.0)?;
    }
    pack(
        section::LATER_NAMES,
        symbols::later_sections(&names.later),
        out,
    )
}

fn pack_table(
    tag: u8,
    table: &SymbolTable,
    n_frames: usize,
    out: &mut Vec<u8>,
) -> Result<(), TraceError> {
    if let Some((last, _)) = table.frames.last_key_value() {
        known("frame", last.0, n_frames)?;
    }
    pack(tag, symbols::sections(table), out)
}

fn pack(tag: u8, contents: Vec<Vec<u8>>, out: &mut Vec<u8>) -> Result<(), TraceError> {
    let mut compressor = Compressor::new(LEVEL).map_err(TraceError::Write)?;
    for content in contents {
        let mut sections = Vec::with_capacity(content.len() + 8);
        put_section(&mut sections, tag, &content);
        block::pack(&mut compressor, &sections, out)?;
    }
    Ok(())
}
