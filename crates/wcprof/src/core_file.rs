//! A core file of a process in the place of a trace: read, named, and written to a trace without a name.

use std::fs::File;
use std::os::unix::fs::FileExt;
use std::path::Path;

use anyhow::Context;
use wcprof_host::clock::unix_ns;
use wcprof_host::own_files::unnamed_file;
use wcprof_import::{CORE_HEAD, InputKind, Options, RefusalKind, ThreadStarts, may_be_core};
use wcprof_symbols::open_regular;

use crate::args::SymbolArgs;
use crate::failure::{Exit, Failure};
use crate::imported::Imported;

/// The trace of a core file, with names; `None` for a file that is none.
pub(crate) fn trace_of(path: &Path, symbols: &SymbolArgs) -> Result<Option<File>, Failure> {
    // What cannot be opened is for whoever reads traces to say.
    let Some(source) = open_regular(path).ok().filter(may_be) else {
        return Ok(None);
    };
    let name = path.file_name().unwrap_or(path.as_os_str());
    let options = Options {
        name: name.to_string_lossy().into_owned(),
        wcprof_version: env!("CARGO_PKG_VERSION").to_owned(),
        now_unix_ns: unix_ns(),
        ..Options::default()
    };
    let mut starts = ThreadStarts::default();
    let core = (&source, InputKind::Core);
    let mut imported = match Imported::read(core, &options, symbols, |span| starts.add(&span))? {
        Ok(imported) => imported,
        // Something else that is packed.
        Err(refusal) if refusal.kind == RefusalKind::NoCore => return Ok(None),
        Err(refusal) => {
            let context = format!("failed to read the core file `{}`", path.display());
            return Err(Failure::new(Exit::BadTrace, refusal).context(context));
        }
    };
    imported.find_names();
    starts.name(&mut imported.tables);
    let file = unnamed_file(0).context("failed to make a file for what the core file says")?;
    let writer = file.try_clone()?;
    imported.write(writer, |_, _, _| Ok(()))?;
    Ok(Some(file))
}

/// By its first bytes.
fn may_be(file: &File) -> bool {
    let mut head = [0; CORE_HEAD];
    let n = file.read_at(&mut head, 0).unwrap_or_default();
    may_be_core(head.get(..n).unwrap_or_default())
}
