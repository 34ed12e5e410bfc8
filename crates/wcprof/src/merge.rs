//! `wcprof merge`: several traces to one.

use std::collections::HashMap;
use std::fs;
use std::path::PathBuf;

use wcprof_text::terminal_name;
use wcprof_trace::model::Tables;
use wcprof_trace::{Align, Ending, TraceReader, TraceWriter, anonymize, merge, merged_header};

use crate::args::{AlignArg, MergeArgs};
use crate::failure::Failure;
use crate::open::read_tables;
use crate::same_file::{identity, refuse_input};

pub(crate) fn run(args: &MergeArgs) -> Result<(), Failure> {
    refuse_twice(&args.traces)?;
    for path in &args.traces {
        refuse_input(path, &args.output)?;
    }
    let mut sources: Vec<Tables> = Vec::new();
    for path in &args.traces {
        let (tables, ending) = read_tables(path, |_| {})?;
        if ending != Ending::Clean {
            message!("wcprof: `{}`: {ending}", path.display());
        }
        if tables.names.symbols.is_none() {
            message!(
                "wcprof: `{}` has no function names (recorded with --raw, or cut short): use --debug-dir or --sysroot with \
                 the commands that read the merged trace",
                path.display()
            );
        }
        sources.push(tables);
    }
    if args.anonymous {
        anonymize(&mut sources);
    }
    let align = match args.align {
        AlignArg::Auto => Align::fitting(&sources),
        AlignArg::Clock => Align::Clock,
        AlignArg::Start => Align::Start,
    };
    let header = merged_header(&sources, env!("CARGO_PKG_VERSION"));
    let mut writer = TraceWriter::create(&args.output, &header)?;
    let spans = |i: usize| TraceReader::open(&args.traces[i]);
    let n_processes: usize = sources.iter().map(|t| t.processes.len()).sum();
    let losses = merge(sources, align, spans, &mut writer)?;
    if losses.n_unnamed > 0 {
        message!(
            "wcprof: {} frames of JIT code lost their names: the traces have other code at the same \
             addresses",
            losses.n_unnamed
        );
    }
    let noun = match n_processes {
        1 => "process",
        _ => "processes",
    };
    message!(
        "wcprof: {} of {n_processes} {noun} on {}, {}",
        args.output.display(),
        terminal_name(&header.host),
        match align {
            Align::Clock => "by the hosts' clocks",
            Align::Start => "starting at the same moment",
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
            return Err(Failure::usage(error).hint("give each trace once"));
        }
    }
    Ok(())
}
