//! Queries to names by a confined process, and by another one for what is left when it ends early.

use std::collections::HashSet;
use std::io;
use std::net::Shutdown;
use std::os::fd::AsFd;
use std::os::unix::net::UnixStream;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Mutex, PoisonError};
use std::thread;

use wcprof_host::open::Remote;

use super::messages::{Start, WireModule};
use super::process::{ConfinedProcess, Ended, ProcessWatch, StartProcess, begin};
use super::requests::{Server, State};
use super::wire::send;
use crate::files::ModuleFiles;
use crate::module::{CANCELLED, new_report, problem, unnamed};
use crate::options::{Inlines, SymbolOptions};
use crate::query::{ModuleQuery, ModuleSymbols};

/// Processes that may end early before all that is left is tried with less.
const MAX_ENDED: usize = 8;
/// Threads of the process.
const MAX_THREADS: usize = 32;
/// What is tried for a module.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
enum Effort {
    Dwarf(Inlines),
    SymbolTables,
}

/// A module without names yet.
struct Left {
    index: usize,
    effort: Effort,
    /// The last process had begun with it when it ended.
    is_suspect: bool,
    /// Why less is tried than was asked for.
    reason: Option<String>,
}

/// Names addresses of many modules as [`symbolize_modules`](crate::symbolize_modules) does, in a process
/// that `start` starts. A module at which it ends early is tried again without DWARF, and after that has no
/// names; the report says so.
pub fn symbolize_confined(
    queries: &[ModuleQuery],
    files: &dyn ModuleFiles,
    options: &SymbolOptions,
    start: &StartProcess<'_>,
) -> Vec<ModuleSymbols> {
    let effort = match options.inlines {
        Inlines::No => Effort::SymbolTables,
        inlines => Effort::Dwarf(inlines),
    };
    let has_addresses = |(_, query): &(usize, &ModuleQuery)| !query.addresses.is_empty();
    let all = queries.iter().enumerate().filter(has_addresses);
    let left = all.map(|(index, _)| Left {
        index,
        effort,
        is_suspect: false,
        reason: None,
    });
    let mut left: Vec<Left> = left.collect();
    if let Some(progress) = &options.progress {
        progress.n_modules.store(left.len(), Ordering::Relaxed);
        progress.n_done.store(0, Ordering::Relaxed);
    }
    let mut results: Vec<ModuleSymbols> = queries.iter().map(without_addresses).collect();
    let mut n_ended = 0;
    let mut n_threads = options.threads.clamp(1, MAX_THREADS);
    while !left.is_empty() {
        let states = queries.iter().map(|_| State::default()).collect();
        let server = Server {
            queries,
            files,
            options,
            states,
            stamps: Mutex::new(HashSet::new()),
            n_answering: AtomicUsize::new(0),
        };
        let ended = match options.cancel.is_cancelled() {
            true => Ended::of(CANCELLED.to_owned()),
            false => run(&server, &left, n_threads, start),
        };
        n_ended += 1;
        left = take_names(&server, left, &mut results);
        if ended.is_silent {
            // All that it had begun wait; of the others the next process will know.
            let goes_on = n_ended <= MAX_ENDED && left.iter().any(|module| module.is_suspect);
            let waits = |module: &Left| module.is_suspect || !goes_on;
            let (waiting, others): (Vec<Left>, _) = left.into_iter().partition(waits);
            let of_waiting = waiting
                .iter()
                .filter_map(|left| server.states.get(left.index));
            note_silence(of_waiting, |_| true, &ended);
            give_up(waiting, queries, &mut results, &ended);
            left = others;
            continue;
        }
        // One that only does not end has closed the same files.
        note_silence(server.states.iter(), Remote::is_closing, &ended);
        match left.iter().filter(|module| module.is_suspect).count() {
            // It had begun with several: one after the other, they show which it is.
            2.. if n_threads > 1 => n_threads = 1,
            n_suspects => {
                let is_last = n_suspects == 0 || n_ended > MAX_ENDED;
                let lower = |module: &Left| module.is_suspect || is_last;
                left = try_less(left, queries, &mut results, &ended, lower);
            }
        }
    }
    results
}

fn without_addresses(query: &ModuleQuery) -> ModuleSymbols {
    ModuleSymbols {
        frames: Vec::new(),
        report: new_report(query),
    }
}

/// Runs a process for these modules; returns how it ended.
fn run(server: &Server<'_>, left: &[Left], n_threads: usize, start: &StartProcess<'_>) -> Ended {
    let (socket, process) = match begin(start) {
        Ok(begun) => begun,
        Err(ended) => return ended,
    };
    let n_threads = n_threads.min(left.len());
    let served = serve(server, left, (socket, n_threads), &*process);
    let ended = process.end();
    match served {
        Err(error) if error.kind() == io::ErrorKind::InvalidData => {
            Ended::of(format!("said {error}"))
        }
        _ => ended,
    }
}

/// Tells the process what to do, and answers until it has ended.
fn serve(
    server: &Server<'_>,
    left: &[Left],
    (socket, n_threads): (UnixStream, usize),
    process: &dyn ConfinedProcess,
) -> io::Result<()> {
    let end = || {
        process.kill();
        let _ = socket.shutdown(Shutdown::Both);
    };
    let watch = ProcessWatch {
        process,
        is_answering: &|| server.is_answering(),
        cancel: &server.options.cancel,
    };
    watch.confinement(&socket, &end)?;
    let options = server.options;
    let module = |left: &Left| {
        let query = server.queries.get(left.index)?;
        let inlines = match left.effort {
            Effort::Dwarf(inlines) => inlines,
            Effort::SymbolTables => Inlines::No,
        };
        Some(WireModule::new(left.index, query, inlines))
    };
    let start = Start {
        modules: left.iter().filter_map(module).collect(),
        debug_dirs: options
            .debug_dirs
            .iter()
            .map(|dir| dir.as_path().into())
            .collect(),
        max_memory: options.max_memory,
        n_threads,
    };
    send(&socket, &start, None)?;
    let mut sockets = Vec::new();
    for _ in 1..n_threads {
        let (own, other) = UnixStream::pair()?;
        send(&socket, &(), Some(other.as_fd()))?;
        sockets.push(own);
    }
    sockets.push(socket);
    // One that does not end keeps its sockets open.
    let end = || {
        process.kill();
        for socket in &sockets {
            let _ = socket.shutdown(Shutdown::Both);
        }
    };
    let serve_all = || {
        thread::scope(|scope| {
            let serve = |socket| {
                // One that is not understood must not go on with the other sockets.
                let serve = move || server.serve(socket).inspect_err(|_| end());
                thread::Builder::new().spawn_scoped(scope, serve)
            };
            let threads: io::Result<Vec<_>> = sockets.iter().map(serve).collect();
            let threads = threads.inspect_err(|_| end())?;
            let results = threads.into_iter().map(|thread| {
                let result = thread.join();
                result.unwrap_or_else(|panic| std::panic::resume_unwind(panic))
            });
            let results: Vec<io::Result<()>> = results.collect();
            results.into_iter().find(Result::is_err).unwrap_or(Ok(()))
        })
    };
    watch.run(&end, serve_all)?
}

/// Takes the names that the process has told; returns the modules that are left.
fn take_names(server: &Server<'_>, left: Vec<Left>, results: &mut [ModuleSymbols]) -> Vec<Left> {
    let mut open = Vec::new();
    for module in left {
        let (Some(query), Some(state), Some(result)) = (
            server.queries.get(module.index),
            server.states.get(module.index),
            results.get_mut(module.index),
        ) else {
            continue;
        };
        let mut symbols = state.symbols.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(mut symbols) = symbols.take() {
            if let Some(reason) = &module.reason {
                let text = format!("its debug information was not read: {reason}");
                symbols.report.problems.insert(0, problem(query, &text));
                symbols.report.missing_dwarf = true;
            }
            symbols.report.is_silent = state.is_silent.load(Ordering::Relaxed);
            *result = symbols;
        } else if server.options.cancel.is_cancelled() {
            *result = unnamed(query, CANCELLED);
            result.report.is_cancelled = true;
        } else {
            let is_suspect = state.has_begun.load(Ordering::Relaxed);
            open.push(Left {
                is_suspect,
                ..module
            });
        }
    }
    open
}

/// Later processes get no files that may make them wait as this one does.
fn note_silence<'s>(
    states: impl Iterator<Item = &'s State>,
    is_silent: impl Fn(Remote) -> bool,
    ended: &Ended,
) {
    if let Some(child) = ended.child {
        let mounts = states.flat_map(|state| state.mounts().clone());
        mounts
            .filter(|mount| is_silent(*mount))
            .for_each(|mount| mount.note_silence(child));
    }
}

/// Leaves modules without names.
fn give_up(left: Vec<Left>, queries: &[ModuleQuery], results: &mut [ModuleSymbols], ended: &Ended) {
    for module in left {
        let query = queries.get(module.index);
        if let (Some(query), Some(result)) = (query, results.get_mut(module.index)) {
            let how = &ended.how;
            let text = format!("its files were not read: the process that reads it {how}");
            *result = unnamed(query, &text);
            result.report.is_silent = ended.is_silent;
        }
    }
}

/// Tries less for the modules that `lower` says; returns those for which there is something to try.
fn try_less(
    left: Vec<Left>,
    queries: &[ModuleQuery],
    results: &mut [ModuleSymbols],
    ended: &Ended,
    lower: impl Fn(&Left) -> bool,
) -> Vec<Left> {
    let is_over = |module: &Left| lower(module) && module.effort == Effort::SymbolTables;
    let (over, mut goes_on): (_, Vec<Left>) = left.into_iter().partition(is_over);
    give_up(over, queries, results, ended);
    for module in goes_on.iter_mut().filter(|module| lower(module)) {
        module.effort = Effort::SymbolTables;
        module.reason = Some(format!("the process that reads it {}", ended.how));
    }
    goes_on
}
