//! The health of names as JSON, `wcprof-symbols` version 1; `docs/symbols.md` describes it.

use serde_json::{Value, json};
use wcprof_symbols::{Health, ModuleHealth, SourceUse};
use wcprof_text::printable_json;

pub(super) fn render(health: &Health) -> serde_json::Result<String> {
    printable_json(&json!({
        "schema": "wcprof-symbols",
        "version": 1,
        "wcprof_version": env!("CARGO_PKG_VERSION"),
        "n_frames": health.n_frames,
        "n_unresolved": health.n_unresolved,
        "n_saved_unresolved": health.n_saved_unresolved,
        "modules": health.modules.iter().map(module).collect::<Vec<_>>(),
    }))
}

fn module(module: &ModuleHealth) -> Value {
    let report = &module.report;
    let source = |s: &SourceUse| {
        json!({
            "kind": s.kind.to_string(),
            "path": s.path.display().to_string(),
            "n_symtab": s.n_symtab,
            "n_dynsym": s.n_dynsym,
            "dwarf": s.dwarf,
        })
    };
    json!({
        "path": report.path,
        "build_id": report.build_id.as_ref().map(ToString::to_string),
        "n_samples": module.n_samples,
        "n_frames": report.n_frames,
        "n_unresolved": report.n_unresolved,
        "sources": module.sources().map(source).collect::<Vec<_>>(),
        "missing": module.missing(),
        "package": module.supply.package,
        "debuginfod": module.supply.debuginfod,
        "problems": report.problems.iter().map(ToString::to_string).collect::<Vec<_>>(),
    })
}
