//! Results of checks to a report: findings, what is not known, what passed.

use serde::Serialize;
use wcprof_findings::{Basis, Finding, Setting, SettingsFound};
use wcprof_types::process_title;
use wcprof_types::snapshot::Snapshot;

use crate::texts::Texts;

/// The results of all checks of a snapshot.
#[derive(Clone, PartialEq, Debug, Default)]
pub struct Report {
    /// The worst first.
    pub findings: Vec<Finding>,
    /// Questions without an answer.
    pub unknown: Vec<Unknown>,
    /// Checks that found nothing wrong.
    pub passed: Vec<Passed>,
}

/// A question without an answer.
#[derive(Clone, PartialEq, Eq, Hash, Debug, Serialize)]
pub struct Unknown {
    /// The check.
    pub check: String,
    /// What is not known, and why.
    pub reason: String,
    /// How to know it.
    pub next: String,
}

/// A check that found nothing wrong.
#[derive(Clone, PartialEq, Eq, Debug, Serialize)]
pub struct Passed {
    /// The check.
    pub check: String,
    /// What it saw.
    pub seen: String,
}

/// What checks read, and where they put their results.
#[derive(Debug)]
pub(crate) struct Out<'a> {
    pub(crate) snapshot: &'a Snapshot,
    /// What a recording shows.
    pub(crate) observed: &'a Observed,
    texts: &'a Texts,
    report: Report,
}

/// What a recording shows of a process beside its settings.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Observed {
    /// A function of the messenger's encryption that was in a stack. That there is none proves
    /// nothing: the recording may be too short, or without names.
    pub encrypting: Option<String>,
    /// There is a recording, whose states of threads say which were stopped: the settings, read once before it began, do not.
    pub is_recording: bool,
    /// It holds what the kernel accounted meanwhile: the rules on time say what limits did, and checks of what a limit did since
    /// it was set do not.
    pub has_accounts: bool,
    /// What changed meanwhile of the groups and limits of the recorded threads: what was read of them once is not of the
    /// whole recording.
    pub limit_changes: Vec<String>,
}

/// A setting and where it was read.
pub(crate) fn setting(
    name: impl Into<String>,
    value: impl Into<String>,
    origin: impl Into<String>,
) -> Setting {
    Setting {
        name: name.into(),
        value: value.into(),
        origin: origin.into(),
    }
}

impl<'a> Out<'a> {
    pub(crate) fn new(snapshot: &'a Snapshot, observed: &'a Observed, texts: &'a Texts) -> Self {
        Self {
            snapshot,
            observed,
            texts,
            report: Report::default(),
        }
    }

    /// A finding of check `id`; nothing without settings.
    pub(crate) fn found(&mut self, id: &str, settings: impl IntoIterator<Item = Setting>) {
        self.found_with(id, settings.into_iter().collect(), &[]);
    }

    /// A finding in whose texts `{name}` is replaced.
    pub(crate) fn found_with(&mut self, id: &str, settings: Vec<Setting>, names: &[(&str, &str)]) {
        let Some(text) = self.texts.get(id).filter(|_| !settings.is_empty()) else {
            return;
        };
        let process = &self.snapshot.process;
        let pid = process.pid.to_string();
        let fill = |text: &str| {
            let text = text.replace("{pid}", &pid);
            names.iter().fold(text, |text, (name, value)| {
                text.replace(&format!("{{{name}}}"), value)
            })
        };
        self.report.findings.push(Finding {
            rule: id.to_owned(),
            title: fill(&text.title),
            severity: text.severity,
            action: fill(&text.action),
            remedy: text.remedy,
            returns: 1.0,
            gain: None,
            pid: process.pid,
            process: process_title(&process.comm, &process.cmdline),
            host: String::new(),
            pools: Vec::new(),
            basis: Basis::Setting(SettingsFound {
                settings,
                n_threads: None,
            }),
            evidence: Vec::new(),
            explanation: fill(&text.explanation),
            advice: fill(&text.advice),
            sources: text.sources.clone(),
            verify: fill(&text.verify),
        });
    }

    /// A finding if there are settings, else passed if something was seen.
    pub(crate) fn found_or_passed(
        &mut self,
        id: &str,
        settings: Vec<Setting>,
        seen: impl Into<String>,
    ) {
        match settings.is_empty() {
            true => self.passed(id, seen),
            false => self.found(id, settings),
        }
    }

    /// Nothing is wrong with what was `seen`; nothing is said when that is empty.
    pub(crate) fn passed(&mut self, check: &str, seen: impl Into<String>) {
        let seen = seen.into();
        if !seen.is_empty() {
            self.report.passed.push(Passed {
                check: check.to_owned(),
                seen,
            });
        }
    }

    /// The question cannot be answered, for this reason; `next` is how to answer it.
    pub(crate) fn unknown(
        &mut self,
        check: &str,
        reason: impl Into<String>,
        next: impl Into<String>,
    ) {
        self.report.unknown.push(Unknown {
            check: check.to_owned(),
            reason: reason.into(),
            next: next.into(),
        });
    }

    pub(crate) fn finish(mut self) -> Report {
        // Stable: of one severity, in the order of the checks.
        self.report
            .findings
            .sort_by_key(|finding| std::cmp::Reverse(finding.severity));
        self.report
    }
}
