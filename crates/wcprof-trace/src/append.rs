//! Adds names to a trace file that is not being written any more.

use std::fs::OpenOptions;
use std::io::{self, BufReader, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::Path;

use crate::error::TraceError;
use crate::model::SymbolTable;
use crate::names::pack_symbols;
use crate::output::lock;
use crate::reader::{Ending, TraceReader};

/// Appends names of frames to a trace file, in place of names that it has.
///
/// A partial block at the end of the file (`kill -9`, full disk) is removed first; a damaged file
/// is refused and left as it is. When writing fails, the file is as it was, without the partial
/// block. Reads the whole file, since the names must fit its frames. The file's
/// [`TraceWriter`](crate::TraceWriter) must have been dropped.
pub fn append_symbols(path: impl AsRef<Path>, table: &SymbolTable) -> Result<(), TraceError> {
    let path = path.as_ref();
    let failed = |source| TraceError::Open {
        path: path.to_owned(),
        source,
    };
    let mut file = OpenOptions::new()
        .read(true)
        .append(true)
        .custom_flags(libc::O_NONBLOCK | libc::O_NOCTTY)
        .open(path)
        .map_err(failed)?;
    if !file.metadata().map_err(failed)?.is_file() {
        return Err(failed(io::ErrorKind::InvalidInput.into()));
    }
    lock(&file, path, failed)?;
    let (tables, ending, end) =
        TraceReader::from_reader(BufReader::new(&file))?.read_until_end(|_, _| Ok(()))?;
    if let Ending::Damaged { offset } = ending {
        return Err(TraceError::DamagedForAppend(offset));
    }
    let mut blocks = Vec::new();
    pack_symbols(table, tables.frames.len(), &mut blocks)?;
    file.set_len(end).map_err(TraceError::Write)?;
    file.write_all(&blocks).map_err(|e| {
        // Should this fail too, readers find a partial block, which they ignore.
        let _ = file.set_len(end);
        TraceError::Write(e)
    })
}
