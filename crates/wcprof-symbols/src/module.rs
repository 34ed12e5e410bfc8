//! Addresses of modules to names, several modules at a time.

mod naming;
mod sources;
mod split;

use dwarf_stream::Budget;
use rayon::ThreadPoolBuilder;
use rayon::prelude::*;
use wcprof_trace::model::SymbolFrame;

use crate::context::Context;
use crate::files::ModuleFiles;
use crate::options::SymbolOptions;
use crate::query::{AddressQuery, ModuleQuery, ModuleSymbols};
use crate::report::{ModuleReport, Problem};
use crate::surroundings::{Surroundings, ThisMachine};

/// Stack of a symbolizing thread: demangling and DWARF recurse, within limits.
pub(crate) const STACK_SIZE: usize = 16 << 20;

/// Why names are missing when the caller wants no more of them.
pub(crate) const CANCELLED: &str = "the search for its names was ended early";

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
    let symbolize =
        |_, query: &_| symbolize_module(query, (files, &ThisMachine(options)), options, &budget);
    for_each_module(queries, options, symbolize)
        .unwrap_or_else(|| queries.iter().map(without_thread).collect())
}

/// The same for one module on the stack of the caller, which must have 16 MiB.
pub fn symbolize_one(
    query: &ModuleQuery,
    files: &dyn ModuleFiles,
    options: &SymbolOptions,
) -> ModuleSymbols {
    let budget = Budget::new(options.max_memory / 2);
    symbolize_module(query, (files, &ThisMachine(options)), options, &budget)
}

/// Calls `symbolize` for each query, on several threads; `None` where none can be started.
pub(crate) fn for_each_module<T: Send>(
    queries: &[ModuleQuery],
    options: &SymbolOptions,
    symbolize: impl Fn(usize, &ModuleQuery) -> T + Sync,
) -> Option<Vec<T>> {
    let pool = |n_threads| {
        ThreadPoolBuilder::new()
            .num_threads(n_threads)
            .stack_size(STACK_SIZE)
            .thread_name(|_| "wcprof-symbols".to_owned())
            .build()
    };
    let n_threads = options.threads.clamp(1, queries.len().max(1));
    // Not done on the caller's stack, which may be too small.
    let pool = pool(n_threads).or_else(|_| pool(1)).ok()?;
    Some(pool.install(|| {
        let queries = queries.par_iter().enumerate().with_max_len(1);
        queries.map(|(i, query)| symbolize(i, query)).collect()
    }))
}

/// The result where no thread could be started.
pub(crate) fn without_thread(query: &ModuleQuery) -> ModuleSymbols {
    let reason = "failed to start a thread for it; raise the limit on processes (`ulimit -u`)";
    unnamed(query, reason)
}

/// The result where no names were looked for.
pub(crate) fn unnamed(query: &ModuleQuery, reason: &str) -> ModuleSymbols {
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

impl ModuleReport {
    /// Notes that names are missing because no more were wanted.
    pub(crate) fn cancel(&mut self, query: &ModuleQuery) {
        self.is_cancelled = true;
        // What else failed may have failed for this reason.
        self.problems = vec![problem(query, CANCELLED)];
    }
}

pub(crate) fn problem(query: &ModuleQuery, text: &str) -> Problem {
    Problem {
        module: query.module.file_name().to_owned(),
        text: text.to_owned(),
    }
}

pub(crate) fn new_report(query: &ModuleQuery) -> ModuleReport {
    ModuleReport {
        path: query.module.path.clone(),
        build_id: query.module.build_id.clone(),
        n_frames: query.addresses.len(),
        ..ModuleReport::default()
    }
}

/// Names the addresses of one module.
pub(crate) fn symbolize_module(
    query: &ModuleQuery,
    (files, surroundings): (&dyn ModuleFiles, &dyn Surroundings),
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
        surroundings,
        options,
    };
    let sources = sources::open(context, &mut report);
    let frames = naming::name(query, context, &sources, budget, &mut report);
    let is_unresolved = |chain: &&Vec<SymbolFrame>| !chain.last().is_some_and(|f| f.resolved);
    if options.cancel.is_cancelled() {
        report.cancel(query);
    }
    report.n_unresolved = frames.iter().filter(is_unresolved).count();
    ModuleSymbols { frames, report }
}
