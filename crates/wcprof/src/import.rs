//! `wcprof import`: a file of another profiler to a trace.

use std::path::PathBuf;

use anyhow::{Context, anyhow};
use clap::{Args, ValueEnum};
use wcprof_host::clock::unix_ns;
use wcprof_import::{Format, GuessedWaits, InputKind, Options, is_running_kernel};
use wcprof_symbols::{Cancel, open_regular};
use wcprof_trace::TraceSink;
use wcprof_trace::model::{Frame, Tables};

use crate::args::{ForceArgs, SymbolArgs};
use crate::failure::Failure;
use crate::imported::{Imported, failure};
use crate::local_names::kernel_functions;
use crate::output::{check, write_trace};
use crate::same_file::is_same_file;

#[derive(Args, Debug)]
pub(crate) struct ImportArgs {
    /// File of another profiler
    pub(crate) file: PathBuf,
    /// Trace file to write
    #[arg(short, long, value_name = "TRACE")]
    pub(crate) output: PathBuf,
    #[command(flatten)]
    pub(crate) force: ForceArgs,
    /// Format of the file; by default it is recognized by its content
    #[arg(long, value_enum)]
    pub(crate) format: Option<ImportFormat>,
    /// Time of one unit of a folded weight, or of one sample of uwpmp, gdbpmp or perf script, in microseconds [default: 1 for folded stacks, else 10000]
    #[arg(long, value_name = "US", value_parser = clap::value_parser!(u64).range(1..=1_000_000_000))]
    pub(crate) unit: Option<u64>,
    /// Which of two weights a line is taken from folded stacks of a differential
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u8).range(1..=2))]
    pub(crate) column: Option<u8>,
    /// Whether the tree of uwpmp or gdbpmp starts with leaf functions; by default this is recognized
    #[arg(long, value_name = "BOOL")]
    pub(crate) inverted: Option<bool>,
    /// Do not find function names for perf.data; read no debug file
    #[arg(long)]
    pub(crate) raw: bool,
    #[command(flatten)]
    pub(crate) symbols: SymbolArgs,
}

#[derive(ValueEnum, Copy, Clone, PartialEq, Eq, Debug)]
pub(crate) enum ImportFormat {
    /// The file of `perf record`
    Perf,
    /// `root;...;leaf WEIGHT`, a stack a line
    Folded,
    /// The text of uwpmp
    Uwpmp,
    /// The text of gdbpmp
    Gdbpmp,
    /// Stacks of all threads, as gdb (`thread apply all bt`), gstack, pstack and eu-stack print them
    Dump,
    /// Counted stacks, as pt-pmp prints them
    PtPmp,
    /// The text of `perf script`
    PerfScript,
}

pub(crate) fn run(args: &ImportArgs) -> Result<(), Failure> {
    let path = &args.file;
    let context = || format!("failed to import `{}`", path.display());
    let source = open_regular(path).with_context(context);
    let source = source.map_err(|error| match path.join("data").is_file() {
        true => Failure::from(error)
            .hint("`perf record --threads` makes such a folder: record without --threads"),
        false => error.into(),
    })?;
    if is_same_file(source.metadata(), std::fs::metadata(&args.output)) {
        // The trace must not take the place of the evidence.
        let error = anyhow!("the file to import and the trace to write are the same");
        return Err(Failure::usage(error));
    }
    check(&args.output, args.force)?;
    let name = path.file_name().unwrap_or(path.as_os_str());
    let options = Options {
        format: args.format.map(|format| match format {
            ImportFormat::Perf => Format::Perf,
            ImportFormat::Folded => Format::Folded,
            ImportFormat::Uwpmp => Format::Uwpmp,
            ImportFormat::Gdbpmp => Format::Gdbpmp,
            ImportFormat::Dump => Format::Dump,
            ImportFormat::PtPmp => Format::PtPmp,
            ImportFormat::PerfScript => Format::PerfScript,
        }),
        name: name.to_string_lossy().into_owned(),
        unit_ns: args.unit.map(|us| us * 1000),
        column: args.column,
        inverted: args.inverted,
        wcprof_version: env!("CARGO_PKG_VERSION").to_owned(),
        now_unix_ns: unix_ns(),
    };
    let input = (&source, InputKind::Profile);
    let mut symbols = args.symbols.clone();
    // Who wants no names waits for no server.
    symbols.no_debuginfod |= args.raw;
    let imported = Imported::read(input, &options, &symbols, drop)?;
    let mut imported = imported.map_err(|refusal| failure(refusal).context(context()))?;
    let is_named = imported.tables.names.symbols.is_some() || args.raw;
    if !is_named {
        imported.find_names();
    }
    if let Some(why) = name_kernel(&mut imported.tables) {
        message!("wcprof: kernel functions have no names: {why}");
    }
    write_trace(&args.output, args.force, |file| {
        if imported.tables.names.local.names.frames.is_empty() && is_named {
            return Ok(imported.copy(file)?);
        }
        let mut waits = GuessedWaits::default();
        let written = imported.write(file, |tables, span, writer| {
            waits.guess(tables, span, |wait| writer.intern_wait(wait))
        });
        Ok(written?)
    })?;
    let tables = &imported.tables;
    message!(
        "wcprof: {} threads, {} samples in {output}; `wcprof report {output}` prints them",
        tables.threads.len(),
        tables.stats.n_observations,
        output = args.output.display(),
    );
    for note in &tables.header.notes {
        message!("wcprof: {}", wcprof_text::terminal_name(note));
    }
    Ok(())
}

/// Names kernel addresses, if they are those of the kernel that runs here; else says why not.
fn name_kernel(tables: &mut Tables) -> Option<String> {
    let is_of_kernel = |frame: &Frame| matches!(frame, Frame::KernelCode(_));
    if !tables.frames.iter().any(is_of_kernel) {
        return None;
    }
    if !is_running_kernel(&tables.header.kernel, &tables.header.host) {
        return Some(format!(
            "they were recorded on `{}` with kernel {}",
            wcprof_text::terminal_name(&tables.header.host),
            wcprof_text::terminal_name(&tables.header.kernel)
        ));
    }
    match kernel_functions(tables, &Cancel::default()) {
        Ok(found) => tables.names.local.names.frames.extend(found),
        Err(error) => return Some(format!("{error:#}")),
    }
    None
}
