//! The innermost function of a stack to the system call that it waits in.
//!
//! Text of other profilers has no states. Where the innermost function is the C library's wrapper
//! of a call that blocks, the thread most likely waited in it; that is what the states of the
//! import rest on. Anything else stays unknown.

use std::collections::HashMap;
use std::convert::Infallible;

use indexmap::IndexSet;
use wcprof_trace::model::{Frame, Span, StackId, Tables, Trace, WaitId};
use wcprof_types::{ThreadState, Wait};

/// Names without the C library's prefixes (`__GI_`, `__libc_`, `__`) and suffixes, and the number of
/// the system call on x86-64.
const CALLS: &[(&str, u32)] = &[
    ("poll", 7),
    ("select", 23),
    ("nanosleep", 35),
    ("accept", 43),
    ("recvfrom", 45),
    ("recv", 45),
    ("recvmsg", 47),
    ("wait4", 61),
    ("fsync", 74),
    ("fdatasync", 75),
    ("pause", 34),
    ("semop", 65),
    ("msgrcv", 70),
    ("sigsuspend", 130),
    ("sigtimedwait", 128),
    ("rt_sigtimedwait", 128),
    ("futex_wait", 202),
    ("futex_wait_cancelable", 202),
    ("futex_abstimed_wait_common", 202),
    ("futex_abstimed_wait_cancelable64", 202),
    ("do_futex_wait", 202),
    ("lll_lock_wait", 202),
    ("lll_lock_wait_private", 202),
    ("pthread_cond_wait", 202),
    ("pthread_cond_timedwait", 202),
    ("pthread_cond_clockwait", 202),
    ("pthread_mutex_lock", 202),
    ("io_getevents", 208),
    ("io_getevents_0_4", 208),
    ("semtimedop", 220),
    ("clock_nanosleep", 230),
    ("epoll_wait", 232),
    ("waitid", 247),
    ("pselect", 270),
    ("ppoll", 271),
    ("epoll_pwait", 281),
    ("sync_file_range", 277),
    ("accept4", 288),
    ("recvmmsg", 299),
    ("io_uring_enter", 426),
];

/// The wait that the name of an innermost function (with or without arguments) stands for; `None` when
/// it may as well be running.
fn wait_of_leaf(name: &str) -> Option<Wait> {
    let name = name.split(['(', '@']).next().unwrap_or(name).trim();
    let name = name.strip_prefix("__GI_").unwrap_or(name);
    let name = name.trim_start_matches('_');
    let name = name.strip_prefix("libc_").unwrap_or(name);
    let (_, number) = CALLS.iter().find(|(call, _)| {
        name == *call
            || name.strip_prefix(call).is_some_and(|rest| {
                matches!(
                    rest,
                    "_nocancel" | "_time64" | "64" | ".isra.0" | ".constprop.0"
                )
            })
    })?;
    // glibc waits there with FUTEX_WAIT_BITSET_PRIVATE (sysdeps/nptl/futex-internal.c); a plain wait
    // below a condition would be one for its mutex.
    let op = if name.starts_with("futex_abstimed_") {
        137
    } else {
        0
    };
    Some(Wait {
        stop: None,
        syscall: Some(*number),
        op,
        fd: None,
        futex: None,
        kernel: String::new(),
    })
}

/// The wait of the innermost function outside the kernel of a stack, once functions have names.
fn wait_of(tables: &Tables, stack: StackId) -> Option<Wait> {
    let symbols = tables.names.symbols.as_ref()?;
    let mut node = tables.stacks.get(stack.0 as usize)?.leaf;
    loop {
        let at = tables.nodes.get(node?.0 as usize)?;
        match tables.frames.get(at.frame.0 as usize)? {
            Frame::KernelCode(_) | Frame::Kernel(_) => node = at.caller,
            _ => return wait_of_leaf(&symbols.frames.get(&at.frame)?.first()?.name),
        }
    }
}

/// Waits for time that is blocked or of an unknown state, and has none: those of innermost functions, found once for each
/// stack.
#[derive(Clone, Debug, Default)]
pub struct GuessedWaits(HashMap<StackId, Option<WaitId>>);

impl GuessedWaits {
    /// Gives a span its wait; `intern` gives the id of one.
    ///
    /// # Errors
    /// Those of `intern`.
    pub fn guess<E>(
        &mut self,
        tables: &Tables,
        span: &mut Span,
        intern: impl FnOnce(Wait) -> Result<WaitId, E>,
    ) -> Result<(), E> {
        let is_wait = matches!(span.state, ThreadState::Blocked | ThreadState::Unknown);
        let Some(stack) = span.stack.filter(|_| is_wait && span.wait.is_none()) else {
            return Ok(());
        };
        span.wait = match self.0.get(&stack) {
            Some(known) => *known,
            None => {
                let wait = wait_of(tables, stack).map(intern).transpose()?;
                *self.0.entry(stack).or_insert(wait)
            }
        };
        if span.wait.is_some() {
            span.state = ThreadState::Blocked;
        }
        Ok(())
    }
}

/// Gives all spans of a trace their waits.
pub(crate) fn guess_waits(Trace { tables, spans }: &mut Trace) {
    let mut waits: IndexSet<Wait> = std::mem::take(&mut tables.waits).into_iter().collect();
    let mut guessed = GuessedWaits::default();
    for span in spans {
        let intern = |wait| Ok::<_, Infallible>(WaitId(waits.insert_full(wait).0 as u32));
        let Ok(()) = guessed.guess(tables, span, intern);
    }
    tables.waits = waits.into_iter().collect();
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Check wrappers' names, and that functions that compute are no waits.
    #[test]
    fn leaves() {
        let call = |name| wait_of_leaf(name).and_then(|w| w.syscall);
        assert_eq!(call("epoll_wait"), Some(232));
        assert_eq!(call("__GI___clock_nanosleep"), Some(230));
        assert_eq!(call("pthread_cond_wait@@GLIBC_2.3.2"), Some(202));
        assert_eq!(call("__futex_abstimed_wait_common64"), Some(202));
        assert_eq!(call("__poll_nocancel"), Some(7));
        assert_eq!(call("ThreadPool::worker(int)"), None);
        assert_eq!(call("poller"), None);
        let op = |name| wait_of_leaf(name).map(|w| w.op);
        assert_eq!(op("__futex_abstimed_wait_common64"), Some(137));
        assert_eq!(op("__lll_lock_wait"), Some(0));
    }
}
