//! The health of names as text, one line a module.

use std::fmt::Write;

use wcprof_report::terminal_name;

use super::health::{Health, ModuleHealth};

pub(super) fn render(health: &Health) -> String {
    let mut out = String::new();
    let names: Vec<String> = health
        .modules
        .iter()
        .map(|m| terminal_name(super::file_name(&m.report)).into_owned())
        .collect();
    let width = names.iter().map(|n| n.chars().count()).max().unwrap_or(0);
    for (module, name) in health.modules.iter().zip(&names) {
        // Writing to a string cannot fail.
        let _ = writeln!(
            out,
            "{name:width$}  {:>7} samples  {:>5} frames  {:>5.1} % unnamed  {}",
            module.n_samples,
            module.report.n_frames,
            module.percent_unresolved(),
            details(module)
        );
    }
    let _ = writeln!(
        out,
        "{} of {} frames have no name with the files of this machine{}",
        health.n_unresolved,
        health.n_frames,
        match health.n_saved_unresolved {
            Some(n) => format!("; {n} have none among the names saved in the trace"),
            None => String::new(),
        }
    );
    out
}

fn details(module: &ModuleHealth) -> String {
    let mut parts = vec![match &module.report.build_id {
        Some(id) => format!("build-id {id}"),
        None => "no build-id".to_owned(),
    }];
    let sources: Vec<String> = module
        .sources()
        .map(|s| {
            format!("{} {}", s.kind, s.path.display())
                .trim_end()
                .to_owned()
        })
        .collect();
    parts.push(match sources.is_empty() {
        true => "no source".to_owned(),
        false => format!("from {}", sources.join(" + ")),
    });
    let missing = module.missing();
    let debuginfod = module.supply.debuginfod.as_ref();
    if let (true, Some(path)) = (missing.is_empty(), debuginfod) {
        parts.push(format!("supplied by debuginfod {path}"));
    }
    if !missing.is_empty() {
        parts.push(format!("missing {}", missing.join(", ")));
        let supply = &module.supply;
        let ways: Vec<String> = supply
            .package
            .iter()
            .map(|name| format!("package {name}"))
            .chain(debuginfod.map(|path| format!("debuginfod {path}")))
            .collect();
        if !ways.is_empty() {
            parts.push(format!("supplied by {}", ways.join(" or ")));
        }
    }
    let name = super::file_name(&module.report);
    for problem in &module.report.problems {
        let text = problem.to_string();
        let text = text.strip_prefix(&format!("{name}: ")).unwrap_or(&text);
        parts.push(text.to_owned());
    }
    terminal_name(&parts.join("; ")).into_owned()
}
