//! Addresses of modules to names, with the sources of each module asked in order.

mod naming;
mod sources;

use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Mutex, PoisonError};

use wcprof_trace::model::SymbolFrame;
use wcprof_types::Svma;

use crate::budget::Budget;
use crate::files::{ModuleFiles, ModuleIdentity};
use crate::options::SymbolOptions;
use crate::report::ModuleReport;

/// Stack of a symbolizing thread: demangling and DWARF recurse, within limits.
const STACK_SIZE: usize = 16 << 20;

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
    let budget = Budget::new(options.max_memory);
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
    std::thread::scope(|scope| {
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
        // Without a single thread (process limit) the work is done here.
        if spawned == 0 {
            work();
        }
    });
    results
        .into_iter()
        .map(|result| result.into_inner().unwrap_or_else(PoisonError::into_inner))
        .collect()
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
    let frames = naming::name(query, sources, options, budget, &mut report);
    report.n_unresolved = frames
        .iter()
        .filter(|chain| !chain.last().is_some_and(|f| f.resolved))
        .count();
    ModuleSymbols { frames, report }
}
