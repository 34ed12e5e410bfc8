//! Names of frames to blocks. Blocks of names are large, and each has one section of them.

use std::io::Write;

use zstd::bulk::Compressor;

use crate::error::TraceError;
use crate::format::block::kind;
use crate::format::codec::{Sizes, Table};
use crate::format::wire::{checked_time, known};
use crate::format::{put_section, section, symbols};
use crate::model::{LocalNames, SymbolTable};
use crate::output::Output;

/// Names are written once, when the recording is over.
const LEVEL: i32 = 9;

/// Packs names of a trace with tables of these sizes.
pub(crate) fn pack_symbols<W: Write>(
    table: &SymbolTable,
    sizes: &Sizes,
    output: &mut Output<W>,
) -> Result<(), TraceError> {
    pack_table(section::SYMBOLS, table, sizes, output)
}

/// Packs names that only the recorded machine has.
pub(crate) fn pack_local_names<W: Write>(
    names: &LocalNames,
    sizes: &Sizes,
    output: &mut Output<W>,
) -> Result<(), TraceError> {
    pack_table(section::LOCAL_NAMES, &names.names, sizes, output)?;
    for later in &names.later {
        known("frame", later.frame.0, sizes.get(Table::Frames))?;
        checked_time(later.since.0)?;
    }
    let contents = symbols::later_sections(&names.later);
    pack((section::LATER_NAMES, contents), sizes, output)
}

fn pack_table<W: Write>(
    tag: u8,
    table: &SymbolTable,
    sizes: &Sizes,
    output: &mut Output<W>,
) -> Result<(), TraceError> {
    if let Some((last, _)) = table.frames.last_key_value() {
        known("frame", last.0, sizes.get(Table::Frames))?;
    }
    pack((tag, symbols::sections(table)), sizes, output)
}

fn pack<W: Write>(
    (tag, contents): (u8, Vec<Vec<u8>>),
    sizes: &Sizes,
    output: &mut Output<W>,
) -> Result<(), TraceError> {
    let mut compressor = Compressor::new(LEVEL).map_err(TraceError::Write)?;
    for content in contents {
        let mut sections = Vec::with_capacity(content.len() + 32);
        sizes.put(&mut sections);
        put_section(&mut sections, tag, &content);
        output.pack(&mut compressor, (kind::NAMES, (0, 0)), &sections)?;
    }
    Ok(())
}
