//! Files of other profilers to traces: `perf.data` and the text of `perf script`, folded stacks, what uwpmp, gdbpmp and pt-pmp
//! print, and dumps of all threads' stacks by debuggers.
//!
//! The trace says where it came from (engine and notes of its header) and what the source lacks. What
//! is read is hostile: sizes are limited ([`limits`]), text that is not understood is
//! counted and noted, and a file of another format is refused by its name ([`ImportError`]).
#![forbid(unsafe_code)]

mod builder;
mod core;
mod detect;
mod dump;
mod error;
mod folded;
mod format;
mod identified_file;
pub mod limits;
mod options;
mod perf;
mod pmp;
mod pt_pmp;
mod script;
mod snapshots;
mod waits;
mod write;

pub use core::name_by_start;
pub use detect::detect;
pub use error::ImportError;
pub use format::Format;
pub use options::Options;
pub use waits::guess_waits;
pub use write::write;

use std::io::{BufReader, Read, Seek, SeekFrom};

use error::Result;
use wcprof_symbols::ModuleFiles;
use wcprof_trace::model::Trace;

/// Reads a file into a trace.
///
/// # Errors
/// When the file is not of the format given, of no known format, too large, or damaged.
pub fn import<R: Read + Seek>(mut source: R, options: &Options) -> Result<Trace> {
    let mut head = Vec::new();
    (&mut source)
        .take(limits::HEAD_BYTES as u64)
        .read_to_end(&mut head)
        .map_err(ImportError::Read)?;
    let found = detect(&head);
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
    match format {
        Format::Perf => perf::import(source, options),
        Format::Folded => folded::import(&text(source)?, options),
        Format::Uwpmp | Format::Gdbpmp => pmp::import(&text(source)?, format, options),
        Format::Dump => dump::import(&text(source)?, options),
        Format::PtPmp => pt_pmp::import(&text(source)?, options),
        Format::PerfScript => script::import(&text(source)?, options),
    }
}

/// Reads a core file of a process, packed or not, into a trace. `files`: where the files that it maps are on this machine.
///
/// # Errors
/// When the file is no core of x86-64, too large, or damaged.
pub fn import_core<R: Read + Seek + Clone>(
    mut source: R,
    options: &Options,
    files: &dyn ModuleFiles,
) -> Result<Trace> {
    let head = core_head(&mut source)?;
    let packing = core::Packing::of(&head);
    let open = move || {
        let mut source = source.clone();
        source.seek(SeekFrom::Start(0)).map_err(ImportError::Read)?;
        let source = BufReader::new(source);
        Ok(match packing {
            Some(packing) => packing.unpack(source)?,
            None => Box::new(core::Plain(source)) as Box<dyn core::Forward + '_>,
        })
    };
    core::import(&open, options, files)
}

/// Whether a file is a core file, packed or not.
///
/// # Errors
/// When it cannot be read.
pub fn is_core<R: Read + Seek>(mut source: R) -> Result<bool> {
    let head = core_head(&mut source)?;
    let Some(packing) = core::Packing::of(&head) else {
        return Ok(core::is_core(&head));
    };
    source.seek(SeekFrom::Start(0)).map_err(ImportError::Read)?;
    // What cannot be unpacked is no core.
    let mut unpacked = Vec::new();
    let read = packing.unpack(BufReader::new(source)).map(|file| {
        let mut file = file.take(core::HEAD as u64);
        file.read_to_end(&mut unpacked)
    });
    Ok(read.is_ok() && core::is_core(&unpacked))
}

fn core_head<R: Read + Seek>(source: &mut R) -> Result<Vec<u8>> {
    let mut head = Vec::new();
    source.seek(SeekFrom::Start(0)).map_err(ImportError::Read)?;
    let mut bytes = source.take(core::HEAD as u64);
    bytes.read_to_end(&mut head).map_err(ImportError::Read)?;
    Ok(head)
}

/// All of a text. Bytes that are not UTF-8 become replacement characters.
fn text(source: impl Read) -> Result<String> {
    let mut bytes = Vec::new();
    BufReader::new(source)
        .take(limits::MAX_TEXT_BYTES as u64 + 1)
        .read_to_end(&mut bytes)
        .map_err(ImportError::Read)?;
    error::within(bytes.len(), limits::MAX_TEXT_BYTES, "the text")?;
    Ok(without_escapes(
        String::from_utf8_lossy(&bytes).into_owned(),
    ))
}

/// A text whose `<`, `>` and `&` were written as HTML does, as trackers and mail do: it has none of the first two.
fn without_escapes(text: String) -> String {
    let is_escaped = (text.contains("&lt;") || text.contains("&gt;")) && !text.contains(['<', '>']);
    if !is_escaped {
        return text;
    }
    // The ampersand last: `&amp;lt;` is `&lt;`.
    let text = text.replace("&lt;", "<").replace("&gt;", ">");
    text.replace("&amp;", "&")
}
