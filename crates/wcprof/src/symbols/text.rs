//! The health of names as text, one line a module.

use std::fmt::Write;

use wcprof_symbols::{Health, ModuleHealth, SourceUse};
use wcprof_text::terminal_name;

pub(super) fn render(health: &Health) -> String {
    let mut out = String::new();
    let modules = health.modules.iter();
    let names: Vec<_> = modules
        .map(|m| terminal_name(m.report.file_name()))
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
    let saved = match health.n_saved_unresolved {
        Some(n) => format!("; {n} have none among the names saved in the trace"),
        None => String::new(),
    };
    let (n, all) = (health.n_unresolved, health.n_frames);
    let _ = writeln!(
        out,
        "{n} of {all} frames have no name with the files of this machine{saved}"
    );
    out
}

/// Servers of debuginfod: the federated one, and those of two distributions.
const SERVERS: &str =
    "https://debuginfod.elfutils.org, debuginfod.debian.net or debuginfod.ubuntu.com";

/// Where a package comes from that the usual lists of packages do not have.
fn repository(package: &str) -> &'static str {
    match package {
        name if name.ends_with("-dbgsym") => {
            " (of the repository debian-debug: `deb http://deb.debian.org/debian-debug CODENAME-debug main`; of Ubuntu: ddebs.ubuntu.com)"
        }
        name if name.contains("-debuginfo") => " (`dnf debuginfo-install`)",
        _ => "",
    }
}

fn details(module: &ModuleHealth) -> String {
    let mut parts = vec![match &module.report.build_id {
        Some(id) => format!("build-id {id}"),
        None => "no build-id".to_owned(),
    }];
    let source = |s: &SourceUse| format!("{} {}", s.kind, s.path.display());
    let sources = module.sources().map(source);
    let sources: Vec<String> = sources.map(|s| s.trim_end().to_owned()).collect();
    parts.push(match sources.is_empty() {
        true => "no source".to_owned(),
        false => format!("from {}", sources.join(" + ")),
    });
    let missing = module.missing();
    let debuginfod = module.supply.debuginfod.as_ref();
    if !missing.is_empty() {
        parts.push(format!("missing {}", missing.join(", ")));
    }
    let package = module.supply.package.iter();
    let package = package.map(|name| format!("package {name}{}", repository(name)));
    let server = debuginfod.map(|path| format!("debuginfod {path} (of {SERVERS})"));
    let suppliers: Vec<String> = package.chain(server).collect();
    if !suppliers.is_empty() {
        parts.push(format!("supplied by {}", suppliers.join(" or ")));
    }
    parts.extend(module.report.problems.iter().map(|p| p.text.clone()));
    terminal_name(&parts.join("; ")).into_owned()
}
