//! `wcprof doctor`: what to change. Findings of time, of a trace, and of how processes and their host are set
//! up: live, from a trace, or from a saved snapshot.

use std::io::Read;
use std::path::Path;

use anyhow::{Context, anyhow};
use wcprof_doctor::{Observed, Report, diagnose, from_saved, render_list, to_saved};
use wcprof_findings::{Detail, Finding, Hotspots, render_rules, rules_to_json};
use wcprof_host::open::open_regular;
use wcprof_host::{SetupError, Target, TargetError, Walk, read_setup};
use wcprof_profile::model::Profile;
use wcprof_types::Pid;
use wcprof_types::snapshot::Snapshot;

use crate::args::{DoctorArgs, ForceArgs};
use crate::failure::{Exit, Failure};
use crate::open::hotspot_rules;
use crate::output::{check, print, write_whole};
use crate::select::{no_process, subjects};
use crate::settings::observed;
use crate::terminal::Terminal;
use crate::views::{found, part_of};

/// Bytes of a saved snapshot.
const MAX_SAVED: u64 = 16 << 20;
/// Bytes that distinguish a snapshot from a trace.
const MAX_START: u64 = 4096;

/// What is looked at.
#[derive(Default)]
struct Found {
    /// Findings of time, and what they are of.
    hotspots: Option<(Hotspots, Profile)>,
    settings: Vec<(Snapshot, Report)>,
}

pub(crate) fn run(args: &DoctorArgs) -> Result<(), Failure> {
    if args.list {
        return list(args);
    }
    if let Some(path) = &args.save_snapshot {
        check(path, args.force)?;
    }
    let found = find(args)?;
    if let Some(path) = &args.save_snapshot {
        save(path, args.force, &found.settings)?;
    }
    let out = match args.json {
        true => json(&found).context("failed to write JSON")?,
        false => text(&found, args.all),
    };
    print(out.as_bytes())
}

fn list(args: &DoctorArgs) -> Result<(), Failure> {
    let rules = hotspot_rules(&args.analysis.rules)?;
    let width = Terminal::stdout().prose_width();
    let out = match args.json {
        true => rules_to_json(&rules).context("failed to write JSON")?,
        false => format!(
            "Rules on time\n\n{}\nChecks of settings\n\n{}",
            render_rules(&rules, width),
            render_list(width)
        ),
    };
    print(out.as_bytes())
}

fn find(args: &DoctorArgs) -> Result<Found, Failure> {
    let subjects = subjects(&args.targets, false)?;
    let mut found = Found::default();
    for pid in subjects.pids() {
        found.add_setting(live(pid, &args.root)?, &Observed::default());
    }
    for file in &subjects.files {
        match load(file)? {
            Some(snapshot) => found.add_setting(snapshot, &Observed::default()),
            None if found.hotspots.is_some() => {
                let error = anyhow!("several traces are given");
                return Err(Failure::usage(error).hint("`wcprof merge` makes one of several"));
            }
            None => found.add_trace(file, args)?,
        }
    }
    match (&found.hotspots, found.settings.as_slice()) {
        (None, []) => Err(no_process()),
        _ => Ok(found),
    }
}

impl Found {
    fn add_setting(&mut self, snapshot: Snapshot, observed: &Observed) {
        let report = diagnose(&snapshot, observed);
        self.settings.push((snapshot, report));
    }

    fn add_trace(&mut self, path: &Path, args: &DoctorArgs) -> Result<(), Failure> {
        let hotspot_rules = hotspot_rules(&args.analysis.rules)?;
        let (profile, tables, rules) = part_of(path, &args.part, &args.analysis)?;
        let categories = rules.categories().map_err(Failure::usage)?;
        let hotspots = found(&profile, &hotspot_rules, &categories);
        if hotspots.findings.is_empty() && !profile.threads.is_empty() {
            let trace = path.display();
            message!("wcprof: `wcprof report {trace} --tree --invert` shows where the time goes");
        }
        self.hotspots = Some((hotspots, profile));
        let setups = &tables.origins.setups;
        let observed = observed(&tables);
        for setup in setups {
            match from_saved(setup) {
                Ok(snapshot) => self.add_setting(snapshot, &observed),
                Err(error) => {
                    message!("wcprof: settings of a process are left out: {error}");
                }
            }
        }
        if setups.is_empty() {
            let why = match tables.header.engine.starts_with("imported ") {
                true => "it was imported",
                false => "they could not be read when it was recorded",
            };
            message!(
                "wcprof: `{}` has no settings of its process: {why}; `wcprof doctor PID` checks a live one",
                path.display()
            );
        }
        Ok(())
    }
}

fn json(found: &Found) -> serde_json::Result<String> {
    let none = Hotspots::default();
    let hotspots = found
        .hotspots
        .as_ref()
        .map_or(&none, |(hotspots, _)| hotspots);
    let reports = found.settings.iter();
    let settings: Vec<Finding> = reports
        .flat_map(|(_, report)| report.findings.clone())
        .collect();
    let process = |(snapshot, report): &(_, _)| wcprof_doctor::to_json(snapshot, report);
    let processes = found.settings.iter().map(process).collect();
    wcprof_findings::to_json(hotspots, &settings, processes)
}

fn text(found: &Found, all: bool) -> String {
    let width = Terminal::stdout().prose_width();
    let detail = if all { Detail::Full } else { Detail::Brief };
    let of_time = found
        .hotspots
        .iter()
        .map(|(hotspots, profile)| wcprof_findings::render_text(profile, hotspots, width, detail));
    let settings = Some(found.settings.as_slice()).filter(|settings| !settings.is_empty());
    let settings = settings.map(|settings| wcprof_doctor::render_text(settings, width, all));
    let parts: Vec<String> = of_time.chain(settings).collect();
    let mut text = parts.join("\n");
    if !text.ends_with('\n') {
        text.push('\n');
    }
    text
}

fn live(pid: Pid, root: &Path) -> Result<Snapshot, Failure> {
    if root == Path::new("/") {
        match Target::open(pid) {
            // What may not be read is left out, and 32-bit code has settings, too.
            Ok(_) | Err(TargetError::NotPermitted { .. } | TargetError::ThirtyTwoBit(_)) => {}
            Err(error) => return Err(error.into()),
        }
    }
    read_setup(root, pid, Walk::PageTables).map_err(|error| {
        let exit = match error {
            SetupError::NoSuchProcess { .. } | SetupError::Changed(_) => Exit::NoTarget,
            SetupError::Root { .. } => Exit::Failure,
        };
        Failure::new(exit, error)
    })
}

/// A saved snapshot; `None` of what is no JSON, such as a trace.
fn load(path: &Path) -> Result<Option<Snapshot>, Failure> {
    let mut bytes = Vec::new();
    let context = || format!("failed to read snapshot `{}`", path.display());
    let file = open_regular(path).map_err(|error| error.reason);
    let mut file = file.with_context(context)?.take(MAX_SAVED + 1);
    // A trace, which may be large, is not read to its end for this.
    let start = file.by_ref().take(MAX_START).read_to_end(&mut bytes);
    start.with_context(context)?;
    if !bytes.trim_ascii_start().starts_with(b"{") {
        return Ok(None);
    }
    file.read_to_end(&mut bytes).with_context(context)?;
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

fn save(path: &Path, force: ForceArgs, settings: &[(Snapshot, Report)]) -> Result<(), Failure> {
    let [(snapshot, _)] = settings else {
        let error = anyhow!(
            "there are settings of {} processes; a snapshot holds those of one",
            settings.len()
        );
        return Err(Failure::usage(error));
    };
    let mut text = to_saved(snapshot).map_err(|e| Failure::new(Exit::Failure, e))?;
    text.push('\n');
    write_whole(path, force, text.as_bytes())
}
