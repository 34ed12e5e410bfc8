//! Addresses of modules to names, with the sources of each module asked in order.

mod naming;
mod sources;
mod split;

use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Mutex, PoisonError};

use wcprof_trace::model::SymbolFrame;
use wcprof_types::Svma;

use crate::budget::Budget;
use crate::demangle::printable;
use crate::files::{ModuleFiles, ModuleIdentity};
use crate::options::SymbolOptions;
use crate::report::{ModuleReport, Problem};

/// Stack of a symbolizing thread: demangling and DWARF recurse, within limits.
pub(crate) const STACK_SIZE: usize = 16 << 20;

/// An address to name.
#[derive(Copy, Clone, PartialEq, Eq, Hash, PartialOrd, Ord, Debug)]
pub struct AddressQuery {
    /// The lookup address: inside the call instruction for a return address.
    pub address: Svma,
    /// Start of the function by its FDE, when the unwinder found one.
    pub function: Option<Svma>,
}

/// Addresses of one module to name.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct ModuleQuery {
    /// Which file.
    pub module: ModuleIdentity,
    /// What `+0xoffset` of unnamed functions counts from: the page-aligned address of the first
    /// `PT_LOAD` segment.
    pub base: Svma,
    /// The addresses, in any order.
    pub addresses: Vec<AddressQuery>,
}

impl ModuleQuery {
    /// `module+0xoffset` of a place without a name.
    fn unnamed(&self, place: Svma) -> String {
        let offset = place.0.wrapping_sub(self.base.0);
        format!("{}+{offset:#x}", printable(self.module.file_name()))
    }
}

/// Names of one module's addresses.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct ModuleSymbols {
    /// By address, in the order of [`ModuleQuery::addresses`]: its functions, innermost inline
    /// function first; never empty, the last is not inlined.
    pub frames: Vec<Vec<SymbolFrame>>,
    /// What was used and what was missing.
    pub report: ModuleReport,
}

/// Names addresses of many modules, several modules at a time. The results stand in the order of
/// `queries` and do not depend on the number of threads.
///
/// Never fails: what has no name gets `module+0xoffset`, and the report says why.
pub fn symbolize_modules(
    queries: &[ModuleQuery],
    files: &dyn ModuleFiles,
    options: &SymbolOptions,
) -> Vec<ModuleSymbols> {
    let budget = Budget::new(options.max_memory / 2);
    let next = AtomicUsize::new(0);
    let results: Vec<Mutex<ModuleSymbols>> = queries.iter().map(|_| Mutex::default()).collect();
    let work = || {
        loop {
            let i = next.fetch_add(1, Ordering::Relaxed);
            let (Some(query), Some(result)) = (queries.get(i), results.get(i)) else {
                break;
            };
            let symbols = symbolize_module(query, files, options, &budget);
            *result.lock().unwrap_or_else(PoisonError::into_inner) = symbols;
        }
    };
    let has_threads = std::thread::scope(|scope| {
        let n_threads = options.threads.clamp(1, queries.len().max(1));
        let spawned = (0..n_threads)
            .filter(|_| {
                std::thread::Builder::new()
                    .name("wcprof-symbols".to_owned())
                    .stack_size(STACK_SIZE)
                    .spawn_scoped(scope, work)
                    .is_ok()
            })
            .count();
        spawned > 0
    });
    let results = results
        .into_iter()
        .map(|result| result.into_inner().unwrap_or_else(PoisonError::into_inner));
    if has_threads {
        results.collect()
    } else {
        // Not done on the caller's stack, which may be too small.
        queries.iter().map(no_thread).collect()
    }
}

/// The result when the system refuses to start a thread.
fn no_thread(query: &ModuleQuery) -> ModuleSymbols {
    let problem = Problem::ModuleUnusable {
        module: query.module.file_name().to_owned(),
        reason: "failed to start a thread for it; raise the limit on processes (`ulimit -u`)"
            .to_owned(),
    };
    let unnamed = |at: &AddressQuery| {
        vec![SymbolFrame {
            name: query.unnamed(at.function.unwrap_or(at.address)),
            file: None,
            line: None,
            inlined: false,
            resolved: false,
        }]
    };
    ModuleSymbols {
        frames: query.addresses.iter().map(unnamed).collect(),
        report: ModuleReport {
            path: query.module.path.clone(),
            build_id: query.module.build_id.clone(),
            problems: vec![problem],
            missing_symtab: true,
            missing_dwarf: true,
            n_frames: query.addresses.len(),
            n_unresolved: query.addresses.len(),
            ..ModuleReport::default()
        },
    }
}

/// Names the addresses of one module.
fn symbolize_module(
    query: &ModuleQuery,
    files: &dyn ModuleFiles,
    options: &SymbolOptions,
    budget: &Budget,
) -> ModuleSymbols {
    let mut report = ModuleReport {
        path: query.module.path.clone(),
        build_id: query.module.build_id.clone(),
        n_frames: query.addresses.len(),
        ..ModuleReport::default()
    };
    if query.addresses.is_empty() {
        return ModuleSymbols {
            frames: Vec::new(),
            report,
        };
    }
    let sources = sources::open(&query.module, files, options, &mut report);
    let frames = naming::name(query, sources, files, options, budget, &mut report);
    report.n_unresolved = frames
        .iter()
        .filter(|chain| !chain.last().is_some_and(|f| f.resolved))
        .count();
    ModuleSymbols { frames, report }
}
