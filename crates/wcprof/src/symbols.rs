//! `wcprof check --names`: of each module of a trace where its names come from, what is missing, and what
//! would supply it.

mod json;
mod text;

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use anyhow::Context;
use wcprof_host::Target;
use wcprof_record::TargetFiles;
use wcprof_symbols::{Container, Health, Problem, SymbolReport};
use wcprof_text::terminal_name;
use wcprof_trace::model::{SymbolTable, Tables};
use wcprof_types::Pid;

use crate::args::{CheckArgs, ForceArgs, defaults};
use crate::failure::Failure;
use crate::names;
use crate::open::read_tables;
use crate::output;
use crate::session::{SessionOptions, record};
use crate::signals::Ending;

/// Length of the recording.
const DURATION: Duration = Duration::from_secs(1);

pub(crate) fn print(health: &Health, args: &CheckArgs) -> Result<(), Failure> {
    let text = match args.json {
        true => json::render(health).context("failed to write JSON")?,
        false => text::render(health),
    };
    output::print(text.as_bytes())
}

/// Of a trace, with the files of this machine.
pub(crate) fn of_saved(path: &Path, args: &CheckArgs) -> Result<Health, Failure> {
    of_trace(path, &[], |tables| {
        names::of_machine(tables, names::NONE, &args.symbols)
    })
}

/// Records processes for a moment into a file that is gone afterwards.
pub(crate) fn of_processes(pids: &[Pid], args: &CheckArgs) -> Result<Health, Failure> {
    let folder = tempfile::tempdir().context("failed to make a folder for the recording")?;
    let trace = folder.path().join("symbols.wct");
    let targets = pids.iter().map(|pid| Target::open(*pid).map(Arc::new));
    let ending = Ending::default();
    let _signals = ending.at_signals()?;
    let options = SessionOptions {
        targets: targets.collect::<Result<_, _>>()?,
        children: false,
        arrivals: None,
        duration: Some(DURATION),
        sampling: defaults(),
        kernel: Some(false),
        full_command_lines: false,
        trace: trace.clone(),
        ending: ending.clone(),
    };
    let session = record(&options, None, || {
        output::create(&trace, ForceArgs::default())
    })?;
    for said in session.loss.iter().chain(&session.remark) {
        message!("wcprof: {said}");
    }
    of_trace(&trace, &containers(&session.recorded.files), |tables| {
        let options = names::recording_options(&args.symbols, false, &ending.names);
        names::of_recording(tables, &session.recorded.files, &args.symbols, &options)
    })
}

/// The containers that processes live in.
fn containers(files: &[TargetFiles]) -> Vec<Container<'_>> {
    let mut containers = BTreeMap::new();
    for files in files {
        let Some(root) = files.own_root() else {
            continue;
        };
        let container = containers.entry(root).or_insert_with(|| Container {
            open: Box::new(|path| files.open(path).ok()),
            processes: Vec::new(),
        });
        container.processes.push(files.process);
    }
    containers.into_values().collect()
}

/// Reads a trace; `names` finds names for its tables.
fn of_trace(
    path: &Path,
    containers: &[Container<'_>],
    names: impl FnOnce(&Tables) -> Result<(SymbolTable, SymbolReport), Failure>,
) -> Result<Health, Failure> {
    let mut n_samples = BTreeMap::new();
    let (tables, _) = read_tables(path, |span| {
        if let Some(stack) = span.stack {
            *n_samples.entry(stack).or_default() += u64::from(span.n_samples);
        }
    })?;
    let (_, report) = names(&tables)?;
    Ok(Health::new(&tables, report, &n_samples, containers))
}

/// In one line why names are missing, for the end of a recording.
pub(crate) fn summary(report: &SymbolReport, trace: &Path) -> String {
    let share = 100.0 * report.n_unresolved as f64 / report.n_frames.max(1) as f64;
    let most = match report.worst() {
        Some(module) => {
            let name = terminal_name(module.file_name());
            let why = module.why_unresolved();
            let n = module.n_unresolved;
            format!(", {n} of them in {name}: {}", terminal_name(why))
        }
        None => String::new(),
    };
    format!(
        "{} of {} functions ({share:.0} %) have no name{most}; `wcprof check {}` says what would supply them",
        report.n_unresolved,
        report.n_frames,
        trace.display()
    )
}

/// What stood in the way of names and [`summary`] does not say.
pub(crate) fn others(report: &SymbolReport) -> impl Iterator<Item = &Problem> {
    let said = report.worst().and_then(|module| module.problems.first());
    report
        .problems()
        .filter(move |problem| Some(*problem) != said)
}
