//! A file to the trace of it, by its format.

use std::io::{BufReader, Read, Seek, SeekFrom, Write};

use wcprof_trace::model::Trace;

use crate::code::CodeFiles;
use crate::detect::detect;
use crate::error::{ImportError, Result};
use crate::format::Format;
use crate::options::Options;
use crate::{core, dump, folded, limits, perf, pmp, pt_pmp, script, text, write};

/// Reads a file, and writes the trace of it to `out`. `code` opens the files with code that are needed for stack copies.
///
/// # Errors
/// When the file is not of the format given, of no known format, too large, or damaged, and when writing fails.
pub fn import<R: Read + Seek, W: Write>(
    mut source: R,
    options: &Options,
    code: &mut dyn CodeFiles,
    out: W,
) -> Result<()> {
    let found = detect(&head_of(&mut source, limits::HEAD_BYTES)?);
    let format = match (options.format, found) {
        (None, found) => found?,
        (Some(wanted), Ok(found)) if wanted != found => {
            return Err(ImportError::OtherFormat { wanted, found });
        }
        (Some(wanted), Ok(_)) => wanted,
        // Text that is mostly something else may still hold what is wanted.
        (Some(wanted), Err(ImportError::NotRecognized { .. })) if wanted != Format::Perf => wanted,
        (Some(wanted), Err(error)) => {
            return Err(ImportError::NotThis {
                wanted,
                found: error.to_string(),
            });
        }
    };
    source.seek(SeekFrom::Start(0)).map_err(ImportError::Read)?;
    let trace = match format {
        Format::Folded => return folded::import(source, options, out),
        Format::Perf => perf::import(source, options, code),
        Format::Uwpmp | Format::Gdbpmp => pmp::import(&text::read(source)?, format, options),
        Format::Dump => dump::import(&text::read(source)?, options),
        Format::PtPmp => pt_pmp::import(&text::read(source)?, options),
        Format::PerfScript => script::import(&text::read(source)?, options),
    }?;
    write_trace(trace, out)
}

/// Reads a core file of a process, packed or not, and writes the trace of it to `out`. `code` opens the files that the process had mapped.
///
/// # Errors
/// When the file is no core file ([`ImportError::NoCore`]), or none of x86-64, too large, or damaged, and when writing fails.
pub fn import_core<R: Read + Seek + Clone, W: Write>(
    mut source: R,
    options: &Options,
    code: &mut dyn CodeFiles,
    out: W,
) -> Result<()> {
    source.seek(SeekFrom::Start(0)).map_err(ImportError::Read)?;
    let packing = core::Packing::of(&head_of(&mut source, CORE_HEAD)?);
    let open = move || {
        let mut source = source.clone();
        source.seek(SeekFrom::Start(0)).map_err(ImportError::Read)?;
        let source = BufReader::new(source);
        Ok(match packing {
            Some(packing) => packing.unpack(source)?,
            None => Box::new(core::Plain(source)) as Box<dyn core::Forward + '_>,
        })
    };
    write_trace(core::import(&open, options, code)?, out)
}

/// First bytes of a file that [`may_be_core`] looks at.
pub const CORE_HEAD: usize = core::HEAD;

/// Whether a file that begins so is a core file, or one that is packed as core files are.
pub fn may_be_core(head: &[u8]) -> bool {
    core::is_core(head) || core::Packing::of(head).is_some()
}

/// The next bytes, fewer at the end.
fn head_of(source: &mut impl Read, n_bytes: usize) -> Result<Vec<u8>> {
    let mut head = Vec::new();
    let mut bytes = source.take(n_bytes as u64);
    bytes.read_to_end(&mut head).map_err(ImportError::Read)?;
    Ok(head)
}

fn write_trace<W: Write>(Trace { tables, spans }: Trace, out: W) -> Result<()> {
    write::write(&tables, spans, out)
}
