//! `wcprof symbols`: of each module of a trace where its names come from, what is missing, and what
//! would supply it.

mod health;
mod json;
mod packages;
mod text;

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use wcprof_host::Target;
use wcprof_symbols::{ModuleReport, Problem, SymbolReport};
use wcprof_types::Pid;

use crate::cli::{EngineArg, SymbolsArgs};
use crate::failure::{Exit, Failure};
use crate::names;
use crate::open::write_output;
use crate::session::{SessionOptions, record};
use health::Health;

/// Length of the recording when a process is named.
const DURATION: Duration = Duration::from_secs(1);

pub(crate) fn run(args: &SymbolsArgs) -> Result<(), Failure> {
    names::check(&args.symbols)?;
    let health = match pid(&args.subject) {
        Some(pid) => of_process(pid, args)?,
        None => Health::of_trace(&args.subject, |tables| {
            names::of_machine(tables, &args.symbols)
        })?,
    };
    let text = match args.json {
        true => json::render(&health).map_err(|e| Failure::new(Exit::Failure, e))?,
        false => text::render(&health),
    };
    write_output(None, text.as_bytes())
}

/// A number that is no file is a pid.
fn pid(subject: &Path) -> Option<Pid> {
    match subject.exists() {
        true => None,
        false => subject.to_str()?.parse().ok().map(Pid),
    }
}

/// Records a process for a moment into a file that is gone afterwards.
fn of_process(pid: Pid, args: &SymbolsArgs) -> Result<Health, Failure> {
    let trace = Temporary::new(pid);
    let session = record(&SessionOptions {
        targets: vec![Arc::new(Target::open(pid)?)],
        children: false,
        duration: Some(DURATION),
        rate_hz: 99,
        max_cpu_percent: 20,
        engine: EngineArg::Auto,
        kernel: false,
        threads: Vec::new(),
        exclude_threads: Vec::new(),
        trace: trace.0.clone(),
    })?;
    Health::of_trace(&trace.0, |tables| {
        let options = names::options(&args.symbols);
        names::of_recording(tables, &session.recorded.files, &args.symbols, &options)
    })
}

/// A file that is removed in the end.
struct Temporary(PathBuf);

impl Temporary {
    fn new(pid: Pid) -> Self {
        let now = SystemTime::now().duration_since(UNIX_EPOCH);
        let name = format!(
            "wcprof-symbols-{pid}-{}-{}.wct",
            std::process::id(),
            now.map_or(0, |d| d.as_nanos())
        );
        Self(std::env::temp_dir().join(name))
    }
}

impl Drop for Temporary {
    fn drop(&mut self) {
        // It may never have been made.
        let _ = std::fs::remove_file(&self.0);
    }
}

/// In one line why names are missing, for the end of a recording.
pub(crate) fn summary(report: &SymbolReport, trace: &Path) -> String {
    let share = 100.0 * report.n_unresolved as f64 / report.n_frames.max(1) as f64;
    let most = match worst(report) {
        Some(module) => format!(
            ", {} of them in {}: {}",
            module.n_unresolved,
            wcprof_report::terminal_name(file_name(module)),
            health::why(module)
        ),
        None => String::new(),
    };
    format!(
        "{} of {} functions ({share:.0} %) have no name{most}; `wcprof symbols {}` says what would supply them",
        report.n_unresolved,
        report.n_frames,
        trace.display()
    )
}

/// The module with most frames without a name.
fn worst(report: &SymbolReport) -> Option<&ModuleReport> {
    let worst = report.modules.iter().max_by_key(|m| m.n_unresolved);
    worst.filter(|m| m.n_unresolved > 0)
}

/// What stood in the way of names and [`summary`] does not say.
pub(crate) fn others(report: &SymbolReport) -> Vec<&Problem> {
    let told = worst(report).and_then(|module| module.problems.first());
    let problems = report.modules.iter().flat_map(|m| &m.problems);
    problems.filter(|problem| Some(*problem) != told).collect()
}

fn file_name(module: &ModuleReport) -> &str {
    module.path.rsplit('/').next().unwrap_or(&module.path)
}
