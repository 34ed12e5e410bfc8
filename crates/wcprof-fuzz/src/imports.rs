//! What other profilers wrote: `perf.data`, folded stacks, the text of uwpmp and gdbpmp.

use std::io::Cursor;
use std::path::Path;

use wcprof_import::{Format, ImportError, Options, import, is_core};
use wcprof_profile::ProfileBuilder;
use wcprof_symbols::{ModuleFile, ModuleFiles, ModuleIdentity, NoFile, OpenError, TargetFile};
use wcprof_trace::model::{Tables, Trace};

use crate::traces::print;

/// Which format (`u8`) is insisted on, and the text.
pub(crate) fn import_text(data: &[u8]) {
    let Some((which, text)) = data.split_first() else {
        return;
    };
    read(text, text_format(*which), |_, _| {});
}

/// A recording of perf.
pub(crate) fn import_perf(data: &[u8]) {
    read(data, Some(Format::Perf), |_, _| {});
}

/// No file of a core is on this machine.
struct NoFiles;

impl ModuleFiles for NoFiles {
    fn open(&self, module: &ModuleIdentity) -> Result<ModuleFile, OpenError> {
        Err(NoFile::NotAFile.at(&module.path))
    }

    fn open_path(&self, _: &ModuleIdentity, path: &Path) -> Result<TargetFile, OpenError> {
        Err(NoFile::NotAFile.at(path))
    }
}

/// A core file, packed or not.
pub(crate) fn import_core(data: &[u8]) {
    let is_core = is_core(Cursor::new(data));
    let trace = wcprof_import::import_core(Cursor::new(data), &Options::default(), &NoFiles);
    assert!(is_core.is_ok_and(|is| is) || trace.is_err());
    profile_of(trace, |_, _| {});
}

/// Which format (`u8`) is insisted on, and the file, which is printed in every way.
pub(crate) fn import_views(data: &[u8]) {
    let Some((which, file)) = data.split_first() else {
        return;
    };
    let format = match which % 8 {
        4 => Some(Format::Perf),
        text => text_format(text),
    };
    read(file, format, print);
}

fn text_format(which: u8) -> Option<Format> {
    match which % 8 {
        0 | 4 => None,
        1 => Some(Format::Folded),
        2 => Some(Format::Uwpmp),
        3 => Some(Format::Gdbpmp),
        5 => Some(Format::Dump),
        6 => Some(Format::PtPmp),
        _ => Some(Format::PerfScript),
    }
}

/// Whatever is read must be a trace like any other, from which a profile can be made.
fn read(data: &[u8], format: Option<Format>, and: impl FnOnce(ProfileBuilder, &Tables)) {
    let options = Options {
        format,
        name: "fuzz".to_owned(),
        ..Options::default()
    };
    profile_of(import(Cursor::new(data), &options), and);
}

fn profile_of(trace: Result<Trace, ImportError>, and: impl FnOnce(ProfileBuilder, &Tables)) {
    let trace = match trace {
        Ok(trace) => trace,
        Err(error) => {
            assert!(!error.to_string().is_empty());
            return;
        }
    };
    let mut builder = ProfileBuilder::new();
    for span in &trace.spans {
        assert!((span.thread.0 as usize) < trace.tables.threads.len());
        assert!(span.start <= span.end);
        builder.add_span(span);
    }
    and(builder, &trace.tables);
}
