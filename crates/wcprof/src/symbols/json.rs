//! The health of names as JSON, `wcprof-symbols` version 1; `docs/symbols.md` describes it.

use serde::Serialize;
use wcprof_findings::printable_json;

use super::health::Health;

const SCHEMA: &str = "wcprof-symbols";
const VERSION: u32 = 1;

#[derive(Serialize)]
struct Document {
    schema: &'static str,
    version: u32,
    wcprof_version: &'static str,
    n_frames: usize,
    n_unresolved: usize,
    n_saved_unresolved: Option<usize>,
    modules: Vec<Module>,
}

#[derive(Serialize)]
struct Module {
    path: String,
    build_id: Option<String>,
    n_samples: u64,
    n_frames: usize,
    n_unresolved: usize,
    sources: Vec<Source>,
    missing: Vec<&'static str>,
    package: Option<String>,
    debuginfod: Option<String>,
    problems: Vec<String>,
}

#[derive(Serialize)]
struct Source {
    kind: String,
    path: String,
    n_symtab: usize,
    n_dynsym: usize,
    dwarf: bool,
}

pub(super) fn render(health: &Health) -> serde_json::Result<String> {
    let modules = health.modules.iter().map(|module| Module {
        path: module.report.path.clone(),
        build_id: module.report.build_id.as_ref().map(ToString::to_string),
        n_samples: module.n_samples,
        n_frames: module.report.n_frames,
        n_unresolved: module.report.n_unresolved,
        sources: module
            .sources()
            .map(|s| Source {
                kind: s.kind.to_string(),
                path: s.path.display().to_string(),
                n_symtab: s.n_symtab,
                n_dynsym: s.n_dynsym,
                dwarf: s.dwarf,
            })
            .collect(),
        missing: module.missing(),
        package: module.supply.package.clone(),
        debuginfod: module.supply.debuginfod.clone(),
        problems: module
            .report
            .problems
            .iter()
            .map(ToString::to_string)
            .collect(),
    });
    let document = Document {
        schema: SCHEMA,
        version: VERSION,
        wcprof_version: env!("CARGO_PKG_VERSION"),
        n_frames: health.n_frames,
        n_unresolved: health.n_unresolved,
        n_saved_unresolved: health.n_saved_unresolved,
        modules: modules.collect(),
    };
    printable_json(&document)
}
