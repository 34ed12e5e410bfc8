//! `wcprof check`: what works here and for processes, and where names come from, as text or JSON.

mod json;
mod text;

use anyhow::Context;
use wcprof_capture::probe::{ProbeLine, Subject, Verdict, probe};
use wcprof_types::Pid;

use crate::args::CheckArgs;
use crate::confined;
use crate::failure::{Exit, Failure};
use crate::names;
use crate::output::print;
use crate::select::subjects;
use crate::symbols;
use crate::terminal::Terminal;

pub(crate) fn run(args: &CheckArgs) -> Result<(), Failure> {
    names::check(&args.symbols)?;
    let subjects = subjects(&args.targets, false)?;
    for file in &subjects.files {
        symbols::print(&symbols::of_saved(file, args)?, args)?;
    }
    let pids: Vec<Pid> = subjects.pids().collect();
    if pids.is_empty() && subjects.files.is_empty() {
        engines(None, args)?;
    }
    for &pid in &pids {
        engines(Some(pid), args)?;
    }
    match args.names && !pids.is_empty() {
        true => symbols::print(&symbols::of_processes(&pids, args)?, args),
        false => Ok(()),
    }
}

/// What works for a process, or for wcprof itself.
fn engines(pid: Option<Pid>, args: &CheckArgs) -> Result<(), Failure> {
    let mut probe = probe(pid)?;
    probe.lines.push(confinement());
    let out = match args.json {
        true => json::render(&probe).context("failed to write JSON")?,
        false => text::render(&probe, Terminal::stdout()),
    };
    print(out.as_bytes())?;
    match probe.choice {
        Some(_) => Ok(()),
        None => Err(Failure::new(
            Exit::NotPermitted,
            anyhow::anyhow!("no engine works here for pid {}", probe.pid),
        )),
    }
}

/// What confines the process that reads symbols and DWARF.
fn confinement() -> ProbeLine {
    const ADVICE: &str = "names still come from it; a hostile file has more to break out to";
    let (verdict, detail, advice) = match confined::confinement() {
        Ok(confinement) => {
            let in_force = confinement.in_force.join(", ");
            match confinement.missing.join("; ") {
                missing if missing.is_empty() => (Verdict::Ok, in_force, String::new()),
                missing => (
                    Verdict::Limited,
                    in_force,
                    format!("missing: {missing}; {ADVICE}"),
                ),
            }
        }
        Err(error) => (
            Verdict::Missing,
            format!("the process that finds names {error}"),
            "traces have addresses instead of names; `attach --raw` and `report` elsewhere"
                .to_owned(),
        ),
    };
    ProbeLine {
        subject: Subject::Limit,
        id: "confinement",
        name: "reading of symbols",
        verdict,
        detail,
        advice,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use wcprof_capture::EngineKind;
    use wcprof_capture::probe::Probe;

    /// A result with one line of each verdict, and hostile text in two places.
    pub(super) fn example() -> Probe {
        let line = |subject, id, verdict, detail: &str, advice: &str| ProbeLine {
            subject,
            id,
            name: id,
            verdict,
            detail: detail.to_owned(),
            advice: advice.to_owned(),
        };
        Probe {
            pid: Pid(42),
            title: "x\x1b[31m".to_owned(),
            asked: true,
            lines: vec![
                line(
                    Subject::Engine,
                    "bpf",
                    Verdict::Missing,
                    "not permitted",
                    "use procfs",
                ),
                line(Subject::Engine, "procfs", Verdict::Ok, "all", ""),
                line(
                    Subject::Process,
                    "binaries",
                    Verdict::Limited,
                    "`a\x07b` not",
                    "copy it",
                ),
            ],
            choice: Some(EngineKind::Procfs),
            reason: "it is the best one that works".to_owned(),
        }
    }
}
