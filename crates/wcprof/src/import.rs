//! `wcprof import`: what another profiler left to a trace.

use std::fs::File;
use std::io::BufReader;
use std::path::{Path, PathBuf};
use std::time::{SystemTime, UNIX_EPOCH};

use anyhow::anyhow;
use clap::{Args, ValueEnum};
use wcprof_import::{Format, ImportError, Options};
use wcprof_symbols::open_regular;
use wcprof_trace::TraceWriter;
use wcprof_trace::model::{Frame, Trace};

use crate::cli::SymbolArgs;
use crate::failure::{Exit, Failure};
use crate::local_names::kernel_functions;
use crate::names;
use crate::open::say_problems;
use crate::same_file::is_same_file;

#[derive(Args, Debug)]
pub(crate) struct ImportArgs {
    /// File of another profiler
    pub(crate) file: PathBuf,
    /// Trace file to write
    #[arg(short, long, value_name = "TRACE")]
    pub(crate) output: PathBuf,
    /// What the file is; by default it is recognized by its content
    #[arg(long, value_enum)]
    pub(crate) format: Option<ImportFormat>,
    /// Time that one unit of a folded weight, or one sample of uwpmp or gdbpmp, stands for, in
    /// microseconds [default: 1 for folded stacks, 10000 for uwpmp and gdbpmp]
    #[arg(long, value_name = "US", value_parser = clap::value_parser!(u64).range(1..=1_000_000_000))]
    pub(crate) unit: Option<u64>,
    /// Whether the tree of uwpmp or gdbpmp begins with leaf functions; by default its ends tell
    #[arg(long, value_name = "BOOL")]
    pub(crate) inverted: Option<bool>,
    /// Leave function names of perf.data out of the trace; read no debug file
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
}

pub(crate) fn run(args: &ImportArgs) -> Result<(), Failure> {
    let path = &args.file;
    let source = open_regular(path).map_err(|e| {
        let error = anyhow!(e).context(format!("failed to import `{}`", path.display()));
        Failure::new(Exit::Failure, error)
    })?;
    refuse_same_file(&source, &args.output)?;
    let now = SystemTime::now().duration_since(UNIX_EPOCH);
    let name = path.file_name().unwrap_or(path.as_os_str());
    let options = Options {
        format: args.format.map(|format| match format {
            ImportFormat::Perf => Format::Perf,
            ImportFormat::Folded => Format::Folded,
            ImportFormat::Uwpmp => Format::Uwpmp,
            ImportFormat::Gdbpmp => Format::Gdbpmp,
        }),
        name: name.to_string_lossy().into_owned(),
        unit_ns: args.unit.map(|us| us * 1000),
        inverted: args.inverted,
        wcprof_version: env!("CARGO_PKG_VERSION").to_owned(),
        now_unix_ns: now.map_or(0, |d| u64::try_from(d.as_nanos()).unwrap_or(u64::MAX)),
    };
    let mut trace =
        wcprof_import::import(BufReader::new(source), &options).map_err(|e| failure(e, path))?;
    if trace.tables.symbols.is_none() && !args.raw {
        let (symbols, report) = names::of_machine(&trace.tables, &args.symbols)?;
        say_problems(&report);
        trace.tables.symbols = Some(symbols);
        wcprof_import::guess_waits(&mut trace);
    }
    if let Some(why) = name_kernel(&mut trace) {
        tell!("wcprof: kernel functions have no names: {why}");
    }
    let mut writer = TraceWriter::create(&args.output, &trace.tables.header)?;
    wcprof_import::write(&trace, &mut writer)?;
    tell!(
        "wcprof: {} threads, {} samples in {output}; `wcprof report {output}` prints them",
        trace.tables.threads.len(),
        trace.tables.stats.n_observations,
        output = args.output.display(),
    );
    for note in &trace.tables.header.notes {
        tell!("wcprof: {}", wcprof_report::terminal_name(note));
    }
    Ok(())
}

/// The trace must not take the place of the evidence.
fn refuse_same_file(source: &File, output: &Path) -> Result<(), Failure> {
    if !is_same_file(source.metadata(), std::fs::metadata(output)) {
        return Ok(());
    }
    let error = anyhow!("the file to import and the trace to write are the same");
    Err(Failure::new(Exit::Usage, error))
}

fn failure(error: ImportError, path: &Path) -> Failure {
    let (exit, hint) = match &error {
        ImportError::Read(_) => (Exit::Failure, None),
        ImportError::OtherFormat { .. } | ImportError::NotThis { .. } => (
            Exit::Usage,
            Some("without --format the file is recognized by its content"),
        ),
        ImportError::NotRecognized { .. } => (
            Exit::BadTrace,
            Some("--format takes it as perf, folded, uwpmp or gdbpmp"),
        ),
        _ => (Exit::BadTrace, None),
    };
    let error = anyhow!(error).context(format!("failed to import `{}`", path.display()));
    let mut failure = Failure::new(exit, error);
    failure.hint = hint.map(str::to_owned);
    failure
}

/// Names kernel addresses, if they are those of the kernel that runs here; else says why not.
fn name_kernel(trace: &mut Trace) -> Option<String> {
    let tables = &mut trace.tables;
    let is_of_kernel = |frame: &Frame| matches!(frame, Frame::KernelCode(_));
    if !tables.frames.iter().any(is_of_kernel) {
        return None;
    }
    let here = |file: &str| {
        let text = std::fs::read_to_string(format!("/proc/sys/kernel/{file}"));
        text.unwrap_or_default().trim().to_owned()
    };
    if here("osrelease") != tables.header.kernel || here("hostname") != tables.header.host {
        return Some(format!(
            "they were recorded on `{}` with kernel {}",
            wcprof_report::terminal_name(&tables.header.host),
            wcprof_report::terminal_name(&tables.header.kernel)
        ));
    }
    match kernel_functions(tables) {
        Ok(found) => tables.local_names.names.frames.extend(found),
        Err(error) => return Some(format!("{error:#}")),
    }
    None
}
