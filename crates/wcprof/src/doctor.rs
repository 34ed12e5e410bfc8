//! `wcprof doctor`: how a process and its host are set up, judged; live, from a trace, or from a saved
//! snapshot.

use std::fs::File;
use std::io::{Read, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::Path;

use anyhow::{Context, anyhow};
use wcprof_doctor::{Observed, diagnose, from_saved, render_list, render_text, to_json, to_saved};
use wcprof_findings::Finding;
use wcprof_host::open::open_regular;
use wcprof_host::{SetupError, Target, TargetError, read_setup};
use wcprof_trace::model::Tables;
use wcprof_types::Pid;
use wcprof_types::snapshot::Snapshot;

use crate::args::DoctorArgs;
use crate::failure::{Exit, Failure};
use crate::open::{read_tables, write_output};
use crate::select::pid_of;
use crate::terminal::Terminal;

/// Bytes of a saved snapshot.
const MAX_SAVED: u64 = 16 << 20;

pub(crate) fn run(args: &DoctorArgs) -> Result<(), Failure> {
    let width = Terminal::stdout().prose_width();
    if args.list {
        return write_output(None, render_list(width).as_bytes());
    }
    let (snapshots, observed) = snapshots(args)?;
    if let Some(path) = &args.save_snapshot {
        save(path, &snapshots)?;
    }
    for (i, snapshot) in snapshots.iter().enumerate() {
        let report = diagnose(snapshot, &observed);
        let text = match args.json {
            true => to_json(snapshot, &report).context("failed to write JSON")?,
            false => render_text(snapshot, &report, width, args.all),
        };
        if i > 0 && !args.json {
            write_output(None, b"\n")?;
        }
        write_output(None, text.as_bytes())?;
    }
    Ok(())
}

fn snapshots(args: &DoctorArgs) -> Result<(Vec<Snapshot>, Observed), Failure> {
    let alone = |snapshot| (vec![snapshot], Observed::default());
    if let Some(path) = &args.snapshot {
        return match load(path)? {
            Some(snapshot) => Ok(alone(snapshot)),
            None => of_trace(path),
        };
    }
    let Some(subject) = args.subject.as_deref() else {
        let error = anyhow!("a pid, a trace or --snapshot FILE is needed");
        return Err(Failure::usage(error).hint("`wcprof doctor $(pidof ceph-osd)`"));
    };
    match pid_of(subject) {
        Some(pid) => Ok(alone(live(pid, &args.root)?)),
        None => of_trace(subject),
    }
}

fn live(pid: Pid, root: &Path) -> Result<Snapshot, Failure> {
    if root == Path::new("/") {
        match Target::open(pid) {
            // What may not be read is left out, and 32-bit code has settings, too.
            Ok(_) | Err(TargetError::NotPermitted { .. } | TargetError::ThirtyTwoBit(_)) => {}
            Err(error) => return Err(error.into()),
        }
    }
    read_setup(root, pid).map_err(|error| {
        let exit = match error {
            SetupError::NoSuchProcess { .. } | SetupError::Changed(_) => Exit::NoTarget,
            SetupError::Root { .. } => Exit::Failure,
        };
        Failure::new(exit, error)
    })
}

/// What a recording keeps of its target: JSON, or nothing where it cannot be read.
pub(crate) fn setup_of(pid: Pid) -> Option<String> {
    let snapshot = read_setup(Path::new("/"), pid).ok()?;
    to_saved(&snapshot).ok()
}

fn of_trace(path: &Path) -> Result<(Vec<Snapshot>, Observed), Failure> {
    let (tables, _) = read_tables(path, |_| {})?;
    if tables.origins.setups.is_empty() {
        let error = anyhow!("`{}` has no settings of its process", path.display());
        let why = match tables.header.engine.starts_with("imported ") {
            true => "it was imported",
            false => "it was recorded by an older wcprof",
        };
        return Err(Failure::new(Exit::BadTrace, error)
            .hint(format!("{why}; `wcprof doctor PID` checks a live process")));
    }
    let snapshots = tables.origins.setups.iter().map(|text| from_saved(text));
    let snapshots: Vec<Snapshot> = snapshots
        .collect::<Result<_, _>>()
        .map_err(|e| Failure::new(Exit::BadTrace, e))?;
    let observed = observed(&tables);
    Ok((snapshots, observed))
}

/// What is worth changing in the settings that a trace holds; those of an older wcprof that cannot be read are
/// left out.
pub(crate) fn findings_of(tables: &Tables) -> Vec<Finding> {
    let setups = &tables.origins.setups;
    let snapshots = setups.iter().filter_map(|text| from_saved(text).ok());
    let observed = observed(tables);
    let reports = snapshots.map(|snapshot| diagnose(&snapshot, &observed));
    reports.flat_map(|report| report.findings).collect()
}

/// What a recording shows. Names are those of all processes: of several it is not known whose they are.
fn observed(tables: &Tables) -> Observed {
    match tables.origins.setups.len() {
        1 => Observed {
            encrypting: encrypting(tables),
        },
        _ => Observed::default(),
    }
}

/// A function of the messenger's secure mode among the names that the trace holds.
fn encrypting(tables: &Tables) -> Option<String> {
    let names = tables.names.symbols.iter().flat_map(|s| s.frames.values());
    let mut functions = names.flatten().map(|frame| frame.name.as_str());
    functions
        .find(|name| name.contains("AES128GCM_OnWire"))
        .map(str::to_owned)
}

/// A saved snapshot; `None` of what is no JSON, such as a trace.
fn load(path: &Path) -> Result<Option<Snapshot>, Failure> {
    let mut bytes = Vec::new();
    let file = open_regular(path).map_err(|error| error.reason);
    let read = file.and_then(|file| Ok(file.take(MAX_SAVED + 1).read_to_end(&mut bytes)?));
    read.with_context(|| format!("failed to read snapshot `{}`", path.display()))?;
    if !bytes.trim_ascii_start().starts_with(b"{") {
        return Ok(None);
    }
    if bytes.len() as u64 > MAX_SAVED {
        let error = anyhow!("`{}` is longer than {MAX_SAVED} bytes", path.display());
        return Err(Failure::new(Exit::BadTrace, error));
    }
    let text = String::from_utf8_lossy(&bytes);
    from_saved(&text).map(Some).map_err(|e| {
        let error = anyhow::Error::new(e).context(format!("failed to read `{}`", path.display()));
        Failure::new(Exit::BadTrace, error)
            .hint("`wcprof doctor PID --save-snapshot FILE` writes one")
    })
}

fn save(path: &Path, snapshots: &[Snapshot]) -> Result<(), Failure> {
    let [snapshot] = snapshots else {
        let error = anyhow!(
            "the trace has {} processes; a snapshot holds one",
            snapshots.len()
        );
        return Err(Failure::usage(error));
    };
    let mut text = to_saved(snapshot).map_err(|e| Failure::new(Exit::Failure, e))?;
    text.push('\n');
    // Command lines and paths may tell more than their owner likes.
    let mut file = File::options()
        .write(true)
        .create(true)
        .truncate(true)
        .mode(0o600)
        .open(path)
        .with_context(|| format!("failed to create `{}`", path.display()))?;
    file.write_all(text.as_bytes())
        .with_context(|| format!("failed to write `{}`", path.display()))?;
    Ok(())
}
