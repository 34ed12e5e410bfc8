//! A core file of a process in the place of a trace: read, named, and written to a trace without a name.

use std::fs::File;
use std::path::Path;

use anyhow::Context;
use wcprof_host::clock::unix_ns;
use wcprof_host::own_files::unnamed_file;
use wcprof_import::{Options, import_core, is_core, name_by_start};
use wcprof_symbols::open_regular;
use wcprof_trace::TraceWriter;
use wcprof_trace::model::Trace;

use crate::args::SymbolArgs;
use crate::failure::{Exit, Failure};
use crate::names;

/// The trace of a core file, with names; `None` for a file that is none.
pub(crate) fn trace_of(path: &Path, symbols: &SymbolArgs) -> Result<Option<File>, Failure> {
    // What cannot be opened is for whoever reads traces to say.
    let Some(source) = open_regular(path)
        .ok()
        .filter(|file| is_core(file).unwrap_or(false))
    else {
        return Ok(None);
    };
    let trace = read(&source, path, symbols)?;
    let file = unnamed_file(0).context("failed to make a file for what the core file says")?;
    let writer = file.try_clone().map_err(Failure::from)?;
    let mut writer = TraceWriter::for_file(writer, &trace.tables.header).map_err(Failure::from)?;
    wcprof_import::write(&trace, &mut writer).map_err(Failure::from)?;
    Ok(Some(file))
}

/// A core file to a trace with names.
fn read(source: &File, path: &Path, symbols: &SymbolArgs) -> Result<Trace, Failure> {
    let name = path.file_name().unwrap_or(path.as_os_str());
    let options = Options {
        name: name.to_string_lossy().into_owned(),
        wcprof_version: env!("CARGO_PKG_VERSION").to_owned(),
        now_unix_ns: unix_ns(),
        ..Options::default()
    };
    let root = names::sysroot(symbols)?;
    let trace = import_core(source, &options, names::files_in(root.as_ref()));
    let context = || format!("failed to read the core file `{}`", path.display());
    let mut trace =
        trace.map_err(|error| Failure::new(Exit::BadTrace, error).context(context()))?;
    let (found, report) = names::of_machine(&trace.tables, names::NONE, symbols)?;
    names::print_problems(report.problems());
    trace.tables.names.symbols = Some(names::finished(&found, &report).into_owned());
    name_by_start(&mut trace);
    Ok(trace)
}
