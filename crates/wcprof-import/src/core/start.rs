//! Threads of a core to names: the function that each begins with.

use std::collections::BTreeMap;

use wcprof_symbols::call_name;
use wcprof_trace::model::{Span, StackId, SymbolTable, Tables, ThreadId};

/// Functions that start others, by their names without arguments and templates: those of glibc, libstdc++, Ceph, QEMU and GLib.
const STARTERS: &[&str] = &[
    "_start",
    "__libc_start_main",
    "__libc_start_main_impl",
    "__libc_start_call_main",
    "clone",
    "__clone",
    "clone3",
    "__clone3",
    "start_thread",
    "execute_native_thread_routine",
    "Thread::_entry_func",
    "Thread::entry_wrapper",
    "qemu_thread_start",
    "g_thread_proxy",
];
/// Parts of the C++ library between a thread's start and its function.
const LIBRARY: &[&str] = &[
    "std::thread::",
    "std::__invoke",
    "std::invoke",
    "void std::__invoke",
];
/// Frames at the root among which the function is looked for.
const MAX_DEPTH: usize = 12;
/// Characters of a name that are kept: it is the name of a pool.
const MAX_NAME: usize = 40;

/// The functions that threads of an import without names of threads begin with, once functions have names.
#[derive(Clone, Debug, Default)]
pub struct ThreadStarts(BTreeMap<ThreadId, StackId>);

impl ThreadStarts {
    /// Notes the stack of a thread.
    pub fn add(&mut self, span: &Span) {
        if let Some(stack) = span.stack {
            self.0.insert(span.thread, stack);
        }
    }

    /// Names the threads.
    pub fn name(&self, tables: &mut Tables) {
        for (ThreadId(at), stack) in &self.0 {
            let functions = root_first(tables, stack.0);
            let start = functions.iter().find(|name| !starts_others(name));
            let start = start.map(|name| shortened(name));
            if let (Some(name), Some(thread)) = (start, tables.threads.get_mut(*at as usize)) {
                let names = thread.names.iter_mut();
                names.for_each(|(_, known)| known.clone_from(&name));
            }
        }
    }
}

fn starts_others(name: &str) -> bool {
    let bare = name.split(['(', '@', '<']).next().unwrap_or(name);
    let bare = bare.rsplit(' ').next().unwrap_or(bare);
    STARTERS.contains(&bare) || LIBRARY.iter().any(|part| name.starts_with(part))
}

/// A name without its arguments, as long as may be.
fn shortened(name: &str) -> String {
    call_name(name).chars().take(MAX_NAME).collect()
}

/// The names of a stack's functions, root first; none of those without a name.
fn root_first(tables: &Tables, stack: u32) -> Vec<&str> {
    let mut frames = Vec::new();
    let mut node = tables
        .stacks
        .get(stack as usize)
        .and_then(|stack| stack.leaf);
    while let Some(known) = node.and_then(|node| tables.nodes.get(node.0 as usize)) {
        frames.push(known.frame);
        node = known.caller;
    }
    let symbols: Option<&SymbolTable> = tables.names.symbols.as_ref();
    let of_frame = |frame| symbols.and_then(|symbols| symbols.frames.get(frame));
    let functions = frames.iter().rev().take(MAX_DEPTH).filter_map(of_frame);
    let names = functions.flat_map(|functions| functions.iter().rev());
    names
        .filter(|function| function.resolved)
        .map(|function| function.name.as_str())
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Check which functions only start others.
    #[test]
    fn starters() {
        for name in [
            "start_thread",
            "__libc_start_main@@GLIBC_2.34",
            "Thread::entry_wrapper()",
            "std::thread::_State_impl<std::thread::_Invoker<std::tuple<main::{lambda()#1}> > >::_M_run()",
        ] {
            assert!(starts_others(name), "{name}");
        }
        for name in [
            "main",
            "iothread_run",
            "OSD::ShardedOpWQ::_process(unsigned int)",
            "clone_range",
        ] {
            assert!(!starts_others(name), "{name}");
        }
        assert_eq!(shortened("Log::entry()"), "Log::entry");
    }
}
