//! A trace and the report on its names to the state of each module's names.

use std::collections::{BTreeMap, HashMap};

use wcprof_trace::StackSets;
use wcprof_trace::model::{Frame, FrameId, StackId, SymbolTable, Tables};
use wcprof_types::BuildId;

use crate::packages::{Container, Supply, supplies};
use crate::report::{ModuleReport, SourceUse, SymbolReport};

/// The state of a trace's names.
#[derive(Debug)]
pub struct Health {
    /// Most unresolved first, then by samples.
    pub modules: Vec<ModuleHealth>,
    /// Distinct frames with an address.
    pub n_frames: usize,
    /// Those without a name when the files here are asked.
    pub n_unresolved: usize,
    /// Those without a name in the trace itself; `None` when it holds no names.
    pub n_saved_unresolved: Option<usize>,
}

/// The state of one module's names.
#[derive(Debug)]
pub struct ModuleHealth {
    /// How its names were found.
    pub report: ModuleReport,
    /// Samples whose stack passes through it.
    pub n_samples: u64,
    /// What would supply what is missing, or has supplied it.
    pub supply: Supply,
}

impl ModuleHealth {
    /// Share of its distinct frames without a name, percent.
    pub fn percent_unresolved(&self) -> f64 {
        100.0 * self.report.n_unresolved as f64 / self.report.n_frames.max(1) as f64
    }

    /// What is missing, as words.
    pub fn missing(&self) -> Vec<&'static str> {
        let report = &self.report;
        let is_file = !report.is_no_file();
        [
            (report.sources.is_empty(), "module file"),
            (report.missing_symtab, ".symtab"),
            (report.missing_dwarf, "DWARF"),
        ]
        .into_iter()
        .filter(|(is_missing, _)| is_file && *is_missing)
        .map(|(_, what)| what)
        .collect()
    }

    /// The sources that gave something.
    pub fn sources(&self) -> impl Iterator<Item = &SourceUse> {
        let sources = self.report.sources.iter();
        sources.filter(|s| s.n_symtab > 0 || s.n_dynsym > 0 || s.dwarf)
    }
}

impl Health {
    /// Asks package databases of this machine for what is missing, which takes some seconds at most; for modules of
    /// `containers` those in their roots.
    /// `n_samples`: of each stack of the trace.
    pub fn new(
        tables: &Tables,
        report: SymbolReport,
        n_samples: &BTreeMap<StackId, u64>,
        containers: &[Container<'_>],
    ) -> Self {
        let n_samples = samples(tables, n_samples);
        let supplies = supplies(&report.modules, tables, containers);
        let module = |(report, supply): (ModuleReport, Supply)| {
            let key = key(&report.path, report.build_id.as_ref());
            ModuleHealth {
                n_samples: n_samples.get(&key).copied().unwrap_or(0),
                supply,
                report,
            }
        };
        let modules = report.modules.into_iter().zip(supplies);
        let mut modules: Vec<ModuleHealth> = modules.map(module).collect();
        modules.sort_by(|a, b| {
            let key = |m: &ModuleHealth| (m.report.n_unresolved, m.n_samples);
            let by_path = || a.report.path.cmp(&b.report.path);
            key(b).cmp(&key(a)).then_with(by_path)
        });
        Self {
            modules,
            n_frames: report.n_frames,
            n_unresolved: report.n_unresolved,
            n_saved_unresolved: tables.names.symbols.as_ref().map(|s| n_unnamed(tables, s)),
        }
    }
}

/// Frames of user code that neither the saved names nor the local ones name.
fn n_unnamed(tables: &Tables, saved: &SymbolTable) -> usize {
    let local = &tables.names.local.names.frames;
    let has_name = |id: &FrameId| {
        let outer = saved.frames.get(id).and_then(|frames| frames.last());
        let local = local.get(id).and_then(|frames| frames.last());
        local.or(outer).is_some_and(|frame| frame.resolved)
    };
    let has_none = |frame: &Frame| {
        let kinds = matches!(frame, Frame::Kernel(_) | Frame::KernelCode(_));
        kinds || matches!(frame, Frame::Unknown(_))
    };
    let frames = (0..).map(FrameId).zip(&tables.frames);
    frames
        .filter(|(id, frame)| !has_none(frame) && !has_name(id))
        .count()
}

/// Path and build-id; the vdso is the same module whatever its build-id.
type ModuleKey<'t> = (&'t str, Option<&'t BuildId>);

fn key<'t>(path: &'t str, build_id: Option<&'t BuildId>) -> ModuleKey<'t> {
    (path, build_id.filter(|_| path != "[vdso]"))
}

/// Samples of the stacks that pass through each module.
fn samples<'t>(
    tables: &'t Tables,
    by_stack: &BTreeMap<StackId, u64>,
) -> HashMap<ModuleKey<'t>, u64> {
    let mut keys: HashMap<ModuleKey<'t>, u32> = HashMap::new();
    let of_frame = |frame: &Frame| {
        let key = match frame {
            Frame::Native { module, .. } => {
                let module = tables.modules.get(module.0 as usize)?;
                key(&module.path, module.build_id.as_ref())
            }
            Frame::Unmapped(_) => ("[anon]", None),
            Frame::KernelCode(_) => ("[kernel]", None),
            Frame::Kernel(_) | Frame::Unknown(_) => return None,
        };
        let new = keys.len() as u32;
        Some(*keys.entry(key).or_insert(new))
    };
    let of_frame: Vec<Option<u32>> = tables.frames.iter().map(of_frame).collect();
    let own = |frame: FrameId| {
        let key = of_frame.get(frame.0 as usize).copied().flatten();
        key.into_iter()
    };
    let mut by_key = vec![0_u64; keys.len()];
    for (of_stack, n) in StackSets::new(tables, own).sums(by_stack) {
        for &key in of_stack {
            by_key[key as usize] = by_key[key as usize].saturating_add(n);
        }
    }
    let keys = keys.into_iter();
    keys.map(|(key, i)| (key, by_key[i as usize])).collect()
}
