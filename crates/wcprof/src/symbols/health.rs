//! A trace and what symbolization reports about it to the state of each module's names.

use std::collections::{HashMap, HashSet};
use std::path::Path;

use wcprof_symbols::{ModuleReport, SourceUse, SymbolReport};
use wcprof_trace::TraceReader;
use wcprof_trace::model::{Frame, SymbolTable, Tables};
use wcprof_types::BuildId;

use super::packages::{self, Supply};
use crate::failure::Failure;

/// The state of a trace's names.
#[derive(Debug)]
pub(super) struct Health {
    /// Most unresolved first, then by samples.
    pub(super) modules: Vec<ModuleHealth>,
    /// Distinct frames with an address.
    pub(super) n_frames: usize,
    /// Those without a name when the files here are asked.
    pub(super) n_unresolved: usize,
    /// Those without a name in the trace itself; `None` when it holds no names.
    pub(super) n_saved_unresolved: Option<usize>,
}

/// The state of one module's names.
#[derive(Debug)]
pub(super) struct ModuleHealth {
    pub(super) report: ModuleReport,
    /// Samples whose stack passes through it.
    pub(super) n_samples: u64,
    /// What would supply what is missing, or has supplied it.
    pub(super) supply: Supply,
}

impl ModuleHealth {
    /// Share of its distinct frames without a name, percent.
    pub(super) fn percent_unresolved(&self) -> f64 {
        100.0 * self.report.n_unresolved as f64 / self.report.n_frames.max(1) as f64
    }

    /// What is missing, as words.
    pub(super) fn missing(&self) -> Vec<&'static str> {
        let mut missing = Vec::new();
        if is_no_file(&self.report) {
            return missing;
        }
        if !has_module(&self.report) {
            missing.push("module file");
        }
        if self.report.missing_symtab {
            missing.push(".symtab");
        }
        if self.report.missing_dwarf {
            missing.push("DWARF");
        }
        missing
    }

    /// The sources that gave something.
    pub(super) fn sources(&self) -> impl Iterator<Item = &SourceUse> {
        self.report
            .sources
            .iter()
            .filter(|s| s.n_symtab > 0 || s.n_dynsym > 0 || s.dwarf)
    }
}

/// The vdso, the kernel, and code that a JIT compiler made: no file, package or server has them.
fn is_no_file(report: &ModuleReport) -> bool {
    report.path.starts_with('[') || report.path.starts_with("/memfd:")
}

fn has_module(report: &ModuleReport) -> bool {
    !report.sources.is_empty()
}

/// Why a module has frames without names, in a few words.
pub(super) fn why(module: &ModuleReport) -> String {
    if module.path == "[anon]" {
        return "it is in no file, and no perf map or jitdump of the target names it".to_owned();
    }
    // A refusal explains more than what is missing for it.
    if let Some(problem) = module.problems.first() {
        let text = problem.to_string();
        let name = super::file_name(module);
        let text = text.strip_prefix(&format!("{name}: ")).unwrap_or(&text);
        return wcprof_report::terminal_name(text).into_owned();
    }
    match module.missing_symtab {
        true => "it is stripped and no debug file was found".to_owned(),
        false => "its symbol table does not have them".to_owned(),
    }
}

impl Health {
    /// Reads a trace; `names` finds names for its tables.
    pub(super) fn of_trace(
        path: &Path,
        names: impl FnOnce(&Tables) -> Result<(SymbolTable, SymbolReport), Failure>,
    ) -> Result<Self, Failure> {
        let mut by_stack: HashMap<usize, u64> = HashMap::new();
        let (tables, _) = TraceReader::open(path)
            .and_then(|reader| {
                reader.read(|_, span| {
                    if let Some(stack) = span.stack {
                        *by_stack.entry(stack.0 as usize).or_default() += u64::from(span.n_samples);
                    }
                })
            })
            .map_err(|error| {
                let mut failure = Failure::from(error);
                failure.error = failure
                    .error
                    .context(format!("failed to read `{}`", path.display()));
                failure
            })?;
        let (_, report) = names(&tables)?;
        let n_saved_unresolved = tables.symbols.as_ref().map(|saved| {
            let has_name = |id: u32| {
                let id = wcprof_trace::model::FrameId(id);
                let local = &tables.local_names.names.frames;
                local.contains_key(&id)
                    || saved
                        .frames
                        .get(&id)
                        .and_then(|frames| frames.last())
                        .is_some_and(|frame| frame.resolved)
            };
            (0..)
                .zip(&tables.frames)
                .filter(|(id, frame)| {
                    !matches!(frame, Frame::Kernel(_) | Frame::KernelCode(_)) && !has_name(*id)
                })
                .count()
        });
        let n_samples = samples(&tables, &by_stack);
        let all: Vec<&ModuleReport> = report.modules.iter().filter(|m| !is_no_file(m)).collect();
        let mut supplies = packages::supplies(&all);
        let mut modules: Vec<ModuleHealth> = report
            .modules
            .into_iter()
            .map(|report| {
                let build_id = report.build_id.clone().filter(|_| report.path != "[vdso]");
                let key = (report.path.clone(), build_id);
                ModuleHealth {
                    n_samples: n_samples.get(&key).copied().unwrap_or(0),
                    supply: supplies.remove(&report.path).unwrap_or_default(),
                    report,
                }
            })
            .collect();
        modules.sort_by(|a, b| {
            let key = |m: &ModuleHealth| (m.report.n_unresolved, m.n_samples);
            key(b)
                .cmp(&key(a))
                .then_with(|| a.report.path.cmp(&b.report.path))
        });
        Ok(Self {
            modules,
            n_frames: report.n_frames,
            n_unresolved: report.n_unresolved,
            n_saved_unresolved,
        })
    }
}

type ModuleKey = (String, Option<BuildId>);

/// Samples of the stacks that pass through each module.
fn samples(tables: &Tables, by_stack: &HashMap<usize, u64>) -> HashMap<ModuleKey, u64> {
    let mut by_module: HashMap<ModuleKey, u64> = HashMap::new();
    for (stack, n) in by_stack {
        let mut node = tables.stacks.get(*stack).and_then(|s| s.leaf);
        let mut seen = HashSet::new();
        let mut elsewhere = HashSet::new();
        while let Some(at) = node.and_then(|id| tables.nodes.get(id.0 as usize)) {
            match tables.frames.get(at.frame.0 as usize) {
                Some(Frame::Native { module, .. }) => {
                    seen.insert(module.0 as usize);
                }
                Some(Frame::Unmapped(_)) => {
                    elsewhere.insert("[anon]");
                }
                Some(Frame::KernelCode(_)) => {
                    elsewhere.insert("[kernel]");
                }
                Some(Frame::Kernel(_)) | None => {}
            }
            // A caller comes before its callees in the table, so that this ends.
            node = at.caller.filter(|caller| Some(*caller) < node);
        }
        let keys: HashSet<ModuleKey> = seen
            .into_iter()
            .filter_map(|module| tables.modules.get(module))
            .map(|module| match module.path.as_str() {
                "[vdso]" => (module.path.clone(), None),
                path => (path.to_owned(), module.build_id.clone()),
            })
            .chain(elsewhere.into_iter().map(|place| (place.to_owned(), None)))
            .collect();
        for key in keys {
            *by_module.entry(key).or_default() += n;
        }
    }
    by_module
}
