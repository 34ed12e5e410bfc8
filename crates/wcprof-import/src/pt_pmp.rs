//! Stacks that poor man's profilers count: `598 poll(libc.so.6),vio_io_wait(viosocket.c:867),...`, the leaf first.

use wcprof_trace::model::Trace;
use wcprof_types::StackEnd;

use crate::error::{Result, within};
use crate::options::Options;
use crate::pmp::unquoted;
use crate::snapshots::{DumpTrace, DumpedThread};

/// Largest sum of all counts: a few bytes must not make a trace without bounds.
const MAX_COUNTED: usize = 1 << 20;
/// What pt-pmp leaves of gdb's `<signal handler called>`.
const SIGNAL: &str = "<signal";

/// The count of a line, and its functions, leaf first.
fn parse(line: &str) -> Option<(usize, &str)> {
    let (count, functions) = unquoted(line).trim().split_once(' ')?;
    let functions = functions.trim_start();
    let is_name = |c: char| c.is_alphabetic() || matches!(c, '_' | '?' | '<' | '(' | '~' | ':');
    let is_stack = functions.starts_with(is_name) && !functions.contains(", ");
    let count = count.parse().ok().filter(|n| *n > 0 && is_stack)?;
    Some((count, functions))
}

/// Whether a line can hardly be anything else: it has several functions, or one with its file.
pub(crate) fn is_counted_stack(line: &str) -> bool {
    parse(line).is_some_and(|(_, functions)| {
        functions.contains(',') || functions.ends_with(')') && functions.contains('(')
    })
}

/// The functions of a list, without their files. Commas in parentheses and template arguments part none.
fn split(functions: &str) -> Vec<&str> {
    let (mut depth, mut begin) = (0_usize, 0);
    let mut parts = Vec::new();
    for (at, byte) in functions.bytes().enumerate() {
        match byte {
            b'<' if functions[at..].starts_with(SIGNAL) => {}
            b'(' | b'<' => depth += 1,
            b')' | b'>' => depth = depth.saturating_sub(1),
            b',' if depth == 0 => {
                parts.push(&functions[begin..at]);
                begin = at + 1;
            }
            _ => {}
        }
    }
    parts.push(&functions[begin..]);
    let without_file = |part: &'_ str| match part.strip_suffix(')').and_then(|p| p.rfind('(')) {
        Some(at) if at > 0 => at,
        _ => part.len(),
    };
    let names = parts
        .into_iter()
        .map(|part| part[..without_file(part)].trim());
    let names = names.map(|name| {
        if name == SIGNAL {
            "<signal handler called>"
        } else {
            name
        }
    });
    names.filter(|name| !name.is_empty()).collect()
}

pub(crate) fn import(text: &str, options: &Options) -> Result<Trace> {
    let mut snapshots = DumpTrace::new("pt-pmp", options);
    // Threads have no number: in each block of lines they are counted from 1 on.
    let (mut n_bad, mut n_here, mut n_all) = (0, 0, 0_usize);
    for line in text.lines() {
        let Some((count, functions)) = parse(line) else {
            n_bad += u64::from(n_here > 0 && !line.trim().is_empty());
            n_here = 0;
            continue;
        };
        n_all = n_all.saturating_add(count);
        within(n_all, MAX_COUNTED, "the sum of all counts")?;
        let names = split(functions);
        for _ in 0..count {
            n_here += 1;
            let thread = DumpedThread {
                tid: n_here,
                ..DumpedThread::default()
            };
            snapshots.add(&thread, names.iter().rev().copied(), StackEnd::Root)?;
        }
    }
    snapshots.builder.note(
        "the text has no threads, and no number of snapshots: each block of lines counts as one, and each stack as a thread of it",
    );
    let bad = "lines were not understood and are left out";
    snapshots.builder.note_counts([(n_bad, bad)]);
    snapshots.finish(" (no line such as `598 poll(libc.so.6),vio_io_wait(viosocket.c:867)`)")
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Check that files are taken from functions, and that commas of template arguments part none.
    #[test]
    fn functions() {
        let line = "    598 poll(libc.so.6),Map<int,A>::get(map.h:7),main(mysqld)";
        let (count, functions) = parse(line).expect("a counted stack");
        assert_eq!(count, 598);
        assert_eq!(split(functions), ["poll", "Map<int,A>::get", "main"]);
        assert_eq!(split("read,work,main"), ["read", "work", "main"]);
        assert_eq!(
            split("pause,<signal,raise"),
            ["pause", "<signal handler called>", "raise"]
        );
        assert_eq!(parse("12 monkeys, and more"), None);
        assert!(!is_counted_stack("3 words"));
    }
}
