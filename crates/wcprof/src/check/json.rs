//! The result as JSON, `wcprof-check` version 2; `docs/permissions.md` describes it.

use serde_json::json;
use wcprof_capture::probe::{Probe, Subject, Verdict};
use wcprof_text::printable_json;

pub(super) fn render(probe: &Probe) -> serde_json::Result<String> {
    let checks = probe.lines.iter().map(|line| {
        json!({
            "subject": subject(line.subject),
            "id": line.id,
            "verdict": verdict(line.verdict),
            "detail": line.detail,
            "advice": line.advice,
        })
    });
    printable_json(&json!({
        "schema": "wcprof-check",
        "version": 2,
        "wcprof_version": env!("CARGO_PKG_VERSION"),
        "pid": probe.asked.then_some(probe.pid.0),
        "process": probe.asked.then_some(&probe.title),
        "engine": probe.choice.map(|engine| engine.name()),
        "reason": probe.reason,
        "checks": checks.collect::<Vec<_>>(),
    }))
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
        assert_eq!(json["schema"], "wcprof-check");
        assert_eq!(json["version"], 2);
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
        assert!(json["pid"].is_null() && json["process"].is_null() && json["engine"].is_null());
    }
}
