//! The result as JSON, `wcprof-check` version 1; `docs/permissions.md` describes it.

use serde::Serialize;
use wcprof_capture::probe::{Probe, Subject, Verdict};
use wcprof_findings::printable_json;

const SCHEMA: &str = "wcprof-check";
const VERSION: u32 = 1;

#[derive(Serialize)]
struct Document<'a> {
    schema: &'static str,
    version: u32,
    wcprof_version: &'static str,
    pid: Option<i32>,
    comm: Option<&'a str>,
    engine: Option<&'static str>,
    reason: &'a str,
    checks: Vec<Check<'a>>,
}

#[derive(Serialize)]
struct Check<'a> {
    subject: &'static str,
    id: &'static str,
    verdict: &'static str,
    detail: &'a str,
    advice: &'a str,
}

pub(super) fn render(probe: &Probe) -> serde_json::Result<String> {
    let checks = probe.lines.iter().map(|line| Check {
        subject: subject(line.subject),
        id: line.id,
        verdict: verdict(line.verdict),
        detail: &line.detail,
        advice: &line.advice,
    });
    let document = Document {
        schema: SCHEMA,
        version: VERSION,
        wcprof_version: env!("CARGO_PKG_VERSION"),
        pid: probe.asked.then_some(probe.pid.0),
        comm: probe.asked.then_some(probe.comm.as_str()),
        engine: probe.choice.map(|engine| engine.name()),
        reason: &probe.reason,
        checks: checks.collect(),
    };
    printable_json(&document)
}

fn subject(subject: Subject) -> &'static str {
    match subject {
        Subject::Engine => "engine",
        Subject::Privilege => "privilege",
        Subject::Kernel => "kernel",
        Subject::Process => "process",
        Subject::Limit => "limit",
    }
}

fn verdict(verdict: Verdict) -> &'static str {
    match verdict {
        Verdict::Ok => "ok",
        Verdict::Limited => "limited",
        Verdict::Missing => "missing",
    }
}

#[cfg(test)]
mod tests {
    use super::super::tests::example;
    use super::*;

    /// Check the fields that the documentation names.
    #[test]
    fn fields() {
        let mut probe = example();
        let parse = |probe: &Probe| -> serde_json::Value {
            serde_json::from_str(&render(probe).unwrap()).unwrap()
        };
        let json = parse(&probe);
        assert_eq!(json["schema"], SCHEMA);
        assert_eq!(json["version"], 1);
        assert_eq!(json["pid"], 42);
        assert_eq!(json["engine"], "procfs");
        assert_eq!(
            json["checks"][0],
            serde_json::json!({
                "subject": "engine", "id": "bpf", "verdict": "missing",
                "detail": "not permitted", "advice": "use procfs",
            })
        );
        (probe.asked, probe.choice) = (false, None);
        let json = parse(&probe);
        assert!(json["pid"].is_null() && json["comm"].is_null() && json["engine"].is_null());
    }
}
