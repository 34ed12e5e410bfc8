//! Addresses of modules to names, several modules at a time.

mod naming;
mod sources;
mod split;

use std::sync::atomic::Ordering;

use dwarf_stream::Budget;
use rayon::ThreadPoolBuilder;
use rayon::prelude::*;
use wcprof_trace::model::SymbolFrame;

use crate::context::Context;
use crate::files::ModuleFiles;
use crate::options::SymbolOptions;
use crate::query::{AddressQuery, ModuleQuery, ModuleSymbols};
use crate::report::{ModuleReport, Problem};

/// Stack of a symbolizing thread: demangling and DWARF recurse, within limits.
pub(crate) const STACK_SIZE: usize = 16 << 20;

/// Why names are missing when the caller wants no more of them.
const CANCELLED: &str = "the search for its names was ended early";

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
    let pool = |n_threads| {
        ThreadPoolBuilder::new()
            .num_threads(n_threads)
            .stack_size(STACK_SIZE)
            .thread_name(|_| "wcprof-symbols".to_owned())
            .build()
    };
    let n_threads = options.threads.clamp(1, queries.len().max(1));
    let Ok(pool) = pool(n_threads).or_else(|_| pool(1)) else {
        // Not done on the caller's stack, which may be too small.
        let reason = "failed to start a thread for it; raise the limit on processes (`ulimit -u`)";
        return queries.iter().map(|query| unnamed(query, reason)).collect();
    };
    let has_addresses = |query: &&ModuleQuery| !query.addresses.is_empty();
    if let Some(progress) = &options.progress {
        let n_modules = queries.iter().filter(has_addresses).count();
        progress.n_modules.store(n_modules, Ordering::Relaxed);
        progress.n_done.store(0, Ordering::Relaxed);
    }
    let symbolize = |query: &ModuleQuery| {
        let symbols = symbolize_module(query, files, options, &budget);
        if let Some(progress) = options.progress.as_ref().filter(|_| has_addresses(&query)) {
            progress.n_done.fetch_add(1, Ordering::Relaxed);
        }
        symbols
    };
    pool.install(|| {
        let queries = queries.par_iter().with_max_len(1);
        queries.map(symbolize).collect()
    })
}

/// The result where no names were looked for.
fn unnamed(query: &ModuleQuery, reason: &str) -> ModuleSymbols {
    let frames = |at: &AddressQuery| {
        vec![SymbolFrame {
            name: query.unnamed(at.function.unwrap_or(at.address)),
            ..SymbolFrame::default()
        }]
    };
    ModuleSymbols {
        frames: query.addresses.iter().map(frames).collect(),
        report: ModuleReport {
            problems: vec![problem(query, reason)],
            missing_symtab: true,
            missing_dwarf: true,
            n_unresolved: query.addresses.len(),
            ..new_report(query)
        },
    }
}

fn problem(query: &ModuleQuery, text: &str) -> Problem {
    Problem {
        module: query.module.file_name().to_owned(),
        text: text.to_owned(),
    }
}

fn new_report(query: &ModuleQuery) -> ModuleReport {
    ModuleReport {
        path: query.module.path.clone(),
        build_id: query.module.build_id.clone(),
        n_frames: query.addresses.len(),
        ..ModuleReport::default()
    }
}

/// Names the addresses of one module.
fn symbolize_module(
    query: &ModuleQuery,
    files: &dyn ModuleFiles,
    options: &SymbolOptions,
    budget: &Budget,
) -> ModuleSymbols {
    let mut report = new_report(query);
    if query.addresses.is_empty() {
        return ModuleSymbols {
            frames: Vec::new(),
            report,
        };
    }
    if options.cancel.is_cancelled() {
        let mut symbols = unnamed(query, CANCELLED);
        symbols.report.is_cancelled = true;
        return symbols;
    }
    let context = Context {
        module: &query.module,
        files,
        options,
    };
    let sources = sources::open(context, &mut report);
    let frames = naming::name(query, context, &sources, budget, &mut report);
    let is_unresolved = |chain: &&Vec<SymbolFrame>| !chain.last().is_some_and(|f| f.resolved);
    if options.cancel.is_cancelled() {
        // What else failed may have failed for this reason.
        report.is_cancelled = true;
        report.problems = vec![problem(query, CANCELLED)];
    }
    report.n_unresolved = frames.iter().filter(is_unresolved).count();
    ModuleSymbols { frames, report }
}
