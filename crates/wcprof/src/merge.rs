//! `wcprof merge`: several traces to one.

use std::collections::HashMap;
use std::fs;
use std::path::PathBuf;

use wcprof_text::{duration, terminal_name};
use wcprof_trace::model::{Tables, Unread};
use wcprof_trace::{
    Align, Ending, Joins, Overlap, Repeated, TraceReader, TraceWriter, anonymize, merge,
    merged_header,
};
use wcprof_types::process_title;

use crate::args::{AlignArg, MergeArgs};
use crate::failure::Failure;
use crate::names;
use crate::open::read_tables;
use crate::output::{check, write_trace};
use crate::same_file::{identity, refuse_input};

pub(crate) fn run(args: &MergeArgs) -> Result<(), Failure> {
    refuse_twice(&args.traces)?;
    for path in &args.traces {
        refuse_input(path, &args.output)?;
    }
    check(&args.output, args.force)?;
    let mut sources: Vec<Tables> = Vec::new();
    for path in &args.traces {
        let (tables, ending) = read_tables(path, |_| {})?;
        if ending != Ending::Clean {
            message!("wcprof: `{}`: {ending}", path.display());
        }
        if tables.origins.unread != Unread::default() {
            message!("wcprof: `{}`: {}", path.display(), tables.origins.unread);
        }
        let names = tables.names.symbols.as_ref();
        if names::lacks_names(&tables, names.unwrap_or(names::NONE)) {
            message!(
                "wcprof: `{}` lacks function names (recorded with --raw, cut short, or the search was ended): use --debug-dir or --sysroot with \
                 the commands that read the merged trace, or read it on that host",
                path.display()
            );
        }
        sources.push(tables);
    }
    let joins = match args.align {
        AlignArg::Start => Joins::none(sources.len()),
        AlignArg::Auto | AlignArg::Clock => {
            Joins::find(&sources).map_err(|overlap| recorded_twice(&args.traces, &overlap))?
        }
    };
    let align = match args.align {
        AlignArg::Auto => Align::fitting(&sources, &joins),
        AlignArg::Clock => Align::Clock,
        AlignArg::Start => Align::Start,
    };
    let repeated = joins.repeated.iter();
    let repeated: Vec<String> = repeated.map(|r| repeated_text(r, &sources)).collect();
    if args.anonymous {
        anonymize(&mut sources);
    }
    let header = merged_header(&sources, env!("CARGO_PKG_VERSION"));
    let spans = |i: usize| TraceReader::open(&args.traces[i]);
    let n_recorded: usize = sources.iter().map(|t| t.processes.len()).sum();
    let n_processes = n_recorded - joins.n_continued();
    let losses = write_trace(&args.output, args.force, |file| {
        let mut writer = TraceWriter::for_file(file, &header)?;
        Ok(merge(sources, align, &joins, spans, &mut writer)?)
    })?;
    if losses.n_unnamed > 0 {
        message!(
            "wcprof: {} frames of JIT code lost their names: the traces have other code at the same \
             addresses",
            losses.n_unnamed
        );
    }
    for text in repeated {
        message!("wcprof: {text}");
    }
    message!(
        "wcprof: {} of {} on {}, {}",
        args.output.display(),
        match n_processes {
            1 => "1 process".to_owned(),
            n => format!("{n} processes"),
        },
        terminal_name(&header.host),
        match align {
            Align::Clock => "by the hosts' clocks",
            Align::Start => "starting at the same moment",
        }
    );
    Ok(())
}

/// `3 recordings of osd.0 (pid 123), 30.0 s recorded over 125 s`.
fn repeated_text(repeated: &Repeated, sources: &[Tables]) -> String {
    let process = &sources[repeated.source].processes[repeated.process.0 as usize];
    let title = process_title(&process.comm, &process.cmdline);
    format!(
        "{} recordings of {} (pid {}), {} recorded over {}",
        repeated.n_recordings,
        terminal_name(&title),
        process.pid,
        duration(repeated.recorded_ns),
        duration(repeated.over_ns)
    )
}

/// Two recordings of one process that overlap would double its time where they do.
fn recorded_twice(traces: &[PathBuf], overlap: &Overlap) -> Failure {
    let [first, second] = overlap.sources.map(|i| traces[i].display());
    let error = anyhow::anyhow!(
        "`{first}` and `{second}` recorded {} (pid {}) at the same time, for {}: that would count twice",
        terminal_name(&overlap.comm),
        overlap.pid,
        duration(overlap.ns)
    );
    Failure::usage(error).hint("leave one of them out; `--align start` makes two processes of it")
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
