//! A call that may never return to its result, or to none after 2 s.

use std::cell::RefCell;
use std::sync::mpsc::{Sender, channel};
use std::thread;
use std::time::Duration;

/// What answers does within microseconds, or after reading a page from a disk.
const DEADLINE: Duration = Duration::from_secs(2);

type Call = Box<dyn FnOnce() + Send>;

thread_local! {
    /// Makes the calls of this thread.
    static CALLER: RefCell<Option<Sender<Call>>> = const { RefCell::new(None) };
}

/// Makes a call on another thread. One that does not return in time is left behind with its thread, and gives
/// `None`.
pub(crate) fn with_deadline<T: Send + 'static>(
    call: impl FnOnce() -> T + Send + 'static,
) -> Option<T> {
    let (to, from) = channel();
    let call: Call = Box::new(move || {
        // Nobody waits any more.
        let _ = to.send(call());
    });
    CALLER.with_borrow_mut(|caller| {
        if caller.is_none() {
            *caller = Some(start()?);
        }
        caller.as_ref()?.send(call).ok()?;
        let result = from.recv_timeout(DEADLINE).ok();
        if result.is_none() {
            *caller = None;
        }
        result
    })
}

fn start() -> Option<Sender<Call>> {
    let (to, calls) = channel::<Call>();
    let thread = thread::Builder::new().name("wcprof-calls".to_owned());
    let started = thread.spawn(move || calls.iter().for_each(|call| call()));
    started.ok().map(|_| to)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Check that a call which does not return is left behind, and that the next one is made.
    #[test]
    fn never_returns() {
        let (_never, wait) = channel::<()>();
        assert_eq!(with_deadline(|| 1), Some(1));
        assert_eq!(with_deadline(move || wait.recv().is_ok()), None);
        assert_eq!(with_deadline(|| 2), Some(2));
    }
}
