//! `wcprof merge`: several traces to one.

use std::collections::HashMap;
use std::fs;
use std::path::{Path, PathBuf};

use wcprof_trace::model::Tables;
use wcprof_trace::{Align, Ending, TraceReader, TraceWriter, merge, merged_header};

use crate::cli::{AlignArg, MergeArgs};
use crate::failure::{Exit, Failure};
use crate::same_file::{identity, is_same_file};

pub(crate) fn run(args: &MergeArgs) -> Result<(), Failure> {
    refuse_twice(&args.traces)?;
    for path in &args.traces {
        refuse_output(path, &args.output)?;
    }
    let mut sources: Vec<Tables> = Vec::new();
    for path in &args.traces {
        let read = TraceReader::open(path).and_then(|reader| reader.read(|_, _| {}));
        let (tables, ending) = read.map_err(|error| of_file(path, error.into()))?;
        if ending != Ending::Clean {
            eprintln!("wcprof: `{}`: {ending}", path.display());
        }
        if tables.symbols.is_none() {
            eprintln!(
                "wcprof: `{}` holds no function names (recorded with --raw, or cut): give --debug-dir or --sysroot to \
                 the commands that read the merged trace",
                path.display()
            );
        }
        sources.push(tables);
    }
    let align = match args.align {
        AlignArg::Auto => Align::fitting(&sources),
        AlignArg::Clock => Align::Clock,
        AlignArg::Start => Align::Start,
    };
    let header = merged_header(&sources, env!("CARGO_PKG_VERSION"));
    let mut writer = TraceWriter::create(&args.output, &header)?;
    let spans = |i: usize| TraceReader::open(args.traces.get(i).map_or(Path::new(""), |p| p));
    let losses = merge(&sources, align, spans, &mut writer)?;
    if losses.n_unnamed > 0 {
        eprintln!(
            "wcprof: {} frames of JIT code lost their names: the traces have other code at the same \
             addresses",
            losses.n_unnamed
        );
    }
    let n_processes: usize = sources.iter().map(|t| t.processes.len()).sum();
    eprintln!(
        "wcprof: {} of {n_processes} processes on {}, {}",
        args.output.display(),
        wcprof_report::terminal_name(&header.host),
        match align {
            Align::Clock => "by the hosts' clocks",
            Align::Start => "beginning at the same moment",
        }
    );
    Ok(())
}

/// A trace that counts twice would double its processes and their cores.
fn refuse_twice(traces: &[PathBuf]) -> Result<(), Failure> {
    let mut known = HashMap::new();
    for path in traces {
        if let Ok(file) = fs::metadata(path)
            && let Some(first) = known.insert(identity(&file), path)
        {
            let (first, path) = (first.display(), path.display());
            let error = anyhow::anyhow!("`{first}` and `{path}` are the same trace");
            return Err(Failure::new(Exit::Usage, error).hint("give each trace once"));
        }
    }
    Ok(())
}

/// Writing would empty the file before it is read.
fn refuse_output(input: &Path, output: &Path) -> Result<(), Failure> {
    if !is_same_file(fs::metadata(input), fs::metadata(output)) {
        return Ok(());
    }
    let error = anyhow::anyhow!("`{}` is one of the traces to merge", output.display());
    Err(Failure::new(Exit::Usage, error).hint("choose another file with -o"))
}

fn of_file(path: &Path, mut failure: Failure) -> Failure {
    let context = format!("failed to read `{}`", path.display());
    failure.error = failure.error.context(context);
    failure
}
