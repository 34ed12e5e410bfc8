//! A file that others wrote to a trace without a name: a confined process reads it, and what that writes is read as any trace is.

use std::fs::File;
use std::io::{BufReader, Seek, SeekFrom};

use anyhow::Context;
use wcprof_host::own_files::unnamed_file;
use wcprof_import::{
    ImportJob, ImportRefusal, InputKind, MachineCode, Options, RefusalKind, WithVdso,
    import_confined,
};
use wcprof_symbols::{Root, SymbolOptions, SymbolReport};
use wcprof_trace::model::{Span, Tables};
use wcprof_trace::{Ending, TraceError, TraceReader, TraceSink, TraceWriter};

use crate::args::SymbolArgs;
use crate::confined::{self, ConfinedWork};
use crate::failure::{Exit, Failure};
use crate::names;

/// An imported trace.
pub(crate) struct Imported {
    /// The trace, which no path leads to.
    file: File,
    pub(crate) tables: Tables,
    root: Option<Root>,
    symbols: SymbolOptions,
}

impl Imported {
    /// Imports a file, and calls `each` with every span.
    ///
    /// # Errors
    /// Why it is refused, or what failed on this side.
    pub(crate) fn read(
        (input, kind): (&File, InputKind),
        options: &Options,
        args: &SymbolArgs,
        each: impl FnMut(Span),
    ) -> Result<Result<Self, ImportRefusal>, Failure> {
        let symbols = names::options(args);
        let root = names::sysroot(args)?;
        let file = unnamed_file(0).context("failed to make a file for the trace")?;
        let job = ImportJob {
            input,
            kind,
            output: &file,
            options,
        };
        let files = WithVdso(names::files_in(root.as_ref()));
        let mut code = MachineCode::new(&files, &symbols);
        code.written = input.metadata().and_then(|about| about.modified()).ok();
        let start = |socket| confined::start(socket, &symbols, ConfinedWork::Import);
        let imported = import_confined(job, &mut code, &start);
        names::print_problems(code.problems.iter());
        if let Err(refusal) = imported {
            return Ok(Err(refusal));
        }
        Ok(match read(&file, each) {
            Ok((tables, Ending::Clean)) => Ok(Self {
                file,
                tables,
                root,
                symbols,
            }),
            Ok((_, ending)) => Err(no_trace(&ending.to_string())),
            Err(error) => Err(no_trace(&error.to_string())),
        })
    }

    /// Names what has no names yet, with the files that the import has had, and says what is missing.
    pub(crate) fn find_names(&mut self) {
        let files = &WithVdso(names::files_in(self.root.as_ref()));
        let (symbols, report): (_, SymbolReport) =
            names::symbolize(&self.tables, names::NONE, files, &self.symbols, None);
        names::print_problems(report.problems());
        self.tables.names.symbols = Some(names::finished(&symbols, &report).into_owned());
    }

    /// Writes the trace with the tables as they are now. `change` may change each span.
    ///
    /// # Errors
    /// When writing fails.
    pub(crate) fn write(
        &self,
        out: File,
        mut change: impl FnMut(&Tables, &mut Span, &mut TraceWriter<File>) -> Result<(), TraceError>,
    ) -> Result<(), TraceError> {
        let tables = &self.tables;
        let mut writer = TraceWriter::for_file(out, &tables.header)?;
        writer.add_tables(tables)?;
        let mut written = Ok(());
        let mut each = |mut span: Span| {
            change(tables, &mut span, &mut writer)?;
            writer.span(&span)
        };
        read(&self.file, |span| {
            if written.is_ok() {
                written = each(span);
            }
        })?;
        written?;
        writer.finish(&tables.stats)?;
        writer.write_names(&tables.names)
    }

    /// Writes the trace as it was imported.
    ///
    /// # Errors
    /// When writing fails.
    pub(crate) fn copy(&self, mut out: File) -> std::io::Result<()> {
        let mut file = &self.file;
        file.seek(SeekFrom::Start(0))?;
        std::io::copy(&mut file, &mut out).map(drop)
    }
}

/// The failure of a file that is refused.
pub(crate) fn failure(refusal: ImportRefusal) -> Failure {
    match refusal.kind {
        RefusalKind::System => Failure::new(Exit::Failure, refusal),
        RefusalKind::OtherFormat => {
            Failure::usage(refusal).hint("without --format the file is recognized by its content")
        }
        RefusalKind::NotRecognized => Failure::new(Exit::BadTrace, refusal)
            .hint("--format takes it as perf, folded, uwpmp, gdbpmp, dump, pt-pmp or perf-script"),
        RefusalKind::NoCore | RefusalKind::Content => Failure::new(Exit::BadTrace, refusal),
    }
}

fn no_trace(why: &str) -> ImportRefusal {
    ImportRefusal {
        kind: RefusalKind::Content,
        text: format!("the process that reads it wrote no trace: {why}"),
    }
}

/// Reads a trace from its beginning.
fn read(mut file: &File, mut each: impl FnMut(Span)) -> Result<(Tables, Ending), TraceError> {
    file.seek(SeekFrom::Start(0)).map_err(TraceError::Read)?;
    let reader = TraceReader::from_reader(BufReader::new(file))?;
    reader.read(|_, span| each(span))
}
