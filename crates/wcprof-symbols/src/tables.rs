//! A trace's tables to the names of its frames.

use std::collections::{BTreeMap, HashMap};
use std::path::PathBuf;

use wcprof_trace::model::{Frame, FrameId, Module, SymbolFrame, SymbolTable, Tables};

use crate::files::ModuleIdentity;
use crate::query::{AddressQuery, ModuleQuery, ModuleSymbols};
use crate::report::{ModuleReport, SourceKind, SourceUse, SymbolReport};

/// The module of the kernel's page for breakpoints.
const UPROBES: &str = "[uprobes]";

/// Names every frame of a trace that has an address in a module and is not in `known`; others (the kernel's and those
/// of no module) are absent from the result.
///
/// A file that several processes mapped is read once, if its build-id proves that it is the same.
///
/// `symbolize` names the addresses of modules, in the order of the queries
/// ([`symbolize_modules`](crate::symbolize_modules)).
pub fn symbolize_tables(
    tables: &Tables,
    known: &SymbolTable,
    symbolize: impl FnOnce(&[ModuleQuery]) -> Vec<ModuleSymbols>,
) -> (SymbolTable, SymbolReport) {
    let mut queries: Vec<ModuleQuery> = Vec::new();
    let mut ids: Vec<Vec<FrameId>> = Vec::new();
    let by_module = group(tables, &mut queries);
    ids.resize_with(queries.len(), Vec::new);
    let mut report = SymbolReport::default();
    let mut table = SymbolTable::default();
    let mut local = LocalReports::default();
    let frames = (0..=u32::MAX).map(FrameId).zip(&tables.frames);
    for (id, frame) in frames.filter(|(id, _)| !known.frames.contains_key(id)) {
        let names = tables.names.local.names.frames.get(&id);
        let has_name = names.is_some_and(|names| names.iter().any(|name| name.resolved));
        if local.count(frame, tables, has_name) {
            report.n_frames += 1;
            report.n_unresolved += usize::from(!has_name);
            continue;
        }
        let (module, address, function) = match frame {
            Frame::Native {
                module,
                address,
                function,
            } => (module, address, function),
            Frame::Unmapped(_) | Frame::Kernel(_) | Frame::KernelCode(_) | Frame::Unknown(_) => {
                continue;
            }
        };
        report.n_frames += 1;
        let idx = module.0 as usize;
        let (Some(module), Some(query)) = (tables.modules.get(idx), by_module.get(idx)) else {
            // A frame of a module that the trace does not have.
            report.n_unresolved += 1;
            continue;
        };
        if module.path == UPROBES {
            table.frames.insert(id, vec![in_uprobe()]);
            continue;
        }
        queries[*query].addresses.push(AddressQuery {
            address: module.svma(*address),
            function: function.map(|start| module.svma(start)),
        });
        ids[*query].push(id);
    }
    for (symbols, ids) in symbolize(&queries).into_iter().zip(ids) {
        report.n_unresolved += symbols.report.n_unresolved;
        let ModuleReport {
            is_cancelled,
            is_silent,
            ..
        } = symbols.report;
        for (id, names) in ids.into_iter().zip(symbols.frames) {
            if is_cancelled || is_silent && !names.iter().any(|name| name.resolved) {
                report.unfinished.insert(id);
            }
            table.frames.insert(id, names);
        }
        if symbols.report.n_frames > 0 {
            report.modules.push(symbols.report);
        }
    }
    report.modules.extend(local.0.into_values());
    (table, report)
}

/// Code of a thread that is in the page where the kernel executes instructions under breakpoints
/// (`kernel/events/uprobes.c`).
fn in_uprobe() -> SymbolFrame {
    SymbolFrame {
        name: "uprobe".to_owned(),
        resolved: true,
        ..SymbolFrame::default()
    }
}

/// Frames that no file names, by a name for where they are.
#[derive(Default)]
struct LocalReports(BTreeMap<&'static str, ModuleReport>);

impl LocalReports {
    /// Counts a frame that no file can name; false for others.
    fn count(&mut self, frame: &Frame, tables: &Tables, has_name: bool) -> bool {
        let place = match frame {
            Frame::Unmapped(_) => "[anon]",
            Frame::KernelCode(_) => "[kernel]",
            Frame::Kernel(_) | Frame::Unknown(_) => return false,
            Frame::Native { .. } if !has_name => return false,
            Frame::Native { module, .. } => match tables.modules.get(module.0 as usize) {
                Some(module) if module.path == "[vdso]" => "[vdso]",
                _ => "[anon]",
            },
        };
        let report = self.0.entry(place).or_insert_with(|| ModuleReport {
            path: place.to_owned(),
            ..ModuleReport::default()
        });
        report.n_frames += 1;
        report.n_unresolved += usize::from(!has_name);
        if has_name && report.sources.is_empty() {
            let source = SourceUse::new(SourceKind::Recorded, PathBuf::new());
            report.sources.push(source);
        }
        for source in &mut report.sources {
            source.n_symtab += usize::from(has_name);
        }
        true
    }
}

/// Makes one query for all modules that are the same file; returns the query of each module.
fn group(tables: &Tables, queries: &mut Vec<ModuleQuery>) -> Vec<usize> {
    let mut seen = HashMap::new();
    let mut by_module = Vec::with_capacity(tables.modules.len());
    for module in &tables.modules {
        // Without a build-id only the same path in the same process is the same file.
        let process = module.build_id.is_none().then_some(module.process);
        let key = (&module.path, &module.build_id, process, module.base);
        by_module.push(*seen.entry(key).or_insert_with(|| {
            queries.push(query(tables, module));
            queries.len() - 1
        }));
    }
    by_module
}

fn query(tables: &Tables, module: &Module) -> ModuleQuery {
    let process = tables.processes.get(module.process.0 as usize);
    ModuleQuery {
        module: ModuleIdentity {
            path: module.path.clone(),
            build_id: module.build_id.clone(),
            pid: process.map(|p| p.pid),
            start: Some(module.start),
        },
        base: module.base,
        addresses: Vec::new(),
    }
}

#[cfg(test)]
mod tests;
