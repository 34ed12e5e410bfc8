//! A blocking queue between threads: adding never blocks, taking waits on a condition variable.

use std::collections::VecDeque;
use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};

/// Most elements in a queue; more are refused, since the source of work is paced, not stopped.
const CAPACITY: usize = 4096;

/// A queue that threads share.
pub(crate) struct Queue<T> {
    state: Mutex<State<T>>,
    not_empty: Condvar,
}

struct State<T> {
    items: VecDeque<T>,
    closed: bool,
}

impl<T> Queue<T> {
    pub(crate) fn new() -> Self {
        Self {
            state: Mutex::new(State {
                items: VecDeque::new(),
                closed: false,
            }),
            not_empty: Condvar::new(),
        }
    }

    fn lock(&self) -> MutexGuard<'_, State<T>> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Append an element and wake one waiter; dropped when the queue is closed or full.
    pub(crate) fn push(&self, item: T) {
        let mut state = self.lock();
        if !state.closed && state.items.len() < CAPACITY {
            state.items.push_back(item);
            drop(state);
            self.not_empty.notify_one();
        }
    }

    /// The oldest element; `None` when the queue is closed and empty.
    #[inline(never)]
    pub(crate) fn dequeue_wait(&self) -> Option<T> {
        let has_nothing = |state: &mut State<T>| state.items.is_empty() && !state.closed;
        let state = self.not_empty.wait_while(self.lock(), has_nothing);
        let mut state = state.unwrap_or_else(PoisonError::into_inner);
        state.items.pop_front()
    }

    /// All further elements, at least one; empty when the queue is closed and empty.
    pub(crate) fn drain_wait(&self) -> Vec<T> {
        let Some(first) = self.dequeue_wait() else {
            return Vec::new();
        };
        let mut all = vec![first];
        all.extend(self.lock().items.drain(..));
        all
    }

    /// Let waiters go once the queue is empty, and refuse new elements.
    pub(crate) fn close(&self) {
        self.lock().closed = true;
        self.not_empty.notify_all();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Check that a closed queue still gives what it holds, then ends, and refuses more.
    #[test]
    fn close_drains() {
        let queue = Queue::new();
        queue.push(1);
        queue.push(2);
        queue.push(3);
        queue.close();
        queue.push(4);
        assert_eq!(queue.dequeue_wait(), Some(1));
        assert_eq!(queue.drain_wait(), [2, 3]);
        assert_eq!(queue.dequeue_wait(), None);
        assert!(queue.drain_wait().is_empty());
    }

    /// Check that a waiting thread is woken by an element and by the close.
    #[test]
    fn wakes_waiter() {
        let queue = Queue::new();
        std::thread::scope(|scope| {
            let thread = scope.spawn(|| {
                let mut got = Vec::new();
                while let Some(item) = queue.dequeue_wait() {
                    got.push(item);
                }
                got
            });
            for i in 0..100 {
                queue.push(i);
            }
            queue.close();
            assert_eq!(thread.join().unwrap(), (0..100).collect::<Vec<_>>());
        });
    }

    /// Check that a queue nobody reads stays bounded.
    #[test]
    fn bounded() {
        let queue = Queue::new();
        for i in 0..2 * CAPACITY {
            queue.push(i);
        }
        assert_eq!(queue.drain_wait().len(), CAPACITY);
    }
}
