//! Signals of the user to orders: stop (SIGTERM, SIGINT, SIGQUIT), read the configuration again (SIGHUP).

use std::io;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use tokio::signal::unix::SignalKind;

use crate::signals::{ENDING, Ending, SignalWatch, at_signals};

/// What the user wants.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub(super) enum Order {
    /// End with what was recorded so far.
    Stop,
    /// Go on with another configuration.
    Reload,
}

#[derive(Debug, Default)]
struct State {
    order: Option<Order>,
    /// The recording that runs.
    ending: Ending,
}

/// Orders on their way. Clones share them.
#[derive(Clone, Debug, Default)]
pub(super) struct Control(Arc<(Mutex<State>, Condvar)>);

impl Control {
    pub(super) fn new() -> Self {
        Self::default()
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.0.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// From now on signals are orders.
    pub(super) fn at_signals(&self) -> io::Result<SignalWatch> {
        let control = self.clone();
        let mut kinds = ENDING.to_vec();
        // It writes what a recording has; without one there is nothing to write.
        kinds.push(SignalKind::user_defined1());
        at_signals(&kinds, move |kind| control.signal(kind))
    }

    fn signal(&self, kind: SignalKind) {
        let mut state = self.lock();
        if kind == SignalKind::user_defined1() {
            return;
        }
        let is_reload = kind == SignalKind::hangup();
        if !is_reload && state.order == Some(Order::Stop) {
            // Nobody waits for names any more.
            state.ending.names.cancel();
        }
        if state.order != Some(Order::Stop) {
            state.order = Some(if is_reload {
                Order::Reload
            } else {
                Order::Stop
            });
        }
        state.ending.end_recording();
        self.0.1.notify_all();
    }

    /// A recording begins: an order ends it. One that is there already does so at once.
    pub(super) fn begin_recording(&self) -> Ending {
        let mut state = self.lock();
        state.ending = Ending::default();
        if state.order.is_some() {
            state.ending.end_recording();
        }
        state.ending.clone()
    }

    pub(super) fn has_order(&self) -> bool {
        self.lock().order.is_some()
    }

    /// Whether the agent is to end.
    pub(super) fn must_stop(&self) -> bool {
        self.lock().order == Some(Order::Stop)
    }

    /// The order that has come; what is to be stopped stays so.
    pub(super) fn take(&self) -> Option<Order> {
        let mut state = self.lock();
        match state.order {
            Some(Order::Stop) => Some(Order::Stop),
            _ => state.order.take(),
        }
    }

    /// As a signal that ends the agent.
    pub(super) fn stop(&self) {
        self.signal(SignalKind::terminate());
    }

    /// Waits until this time has passed or an order has come.
    pub(super) fn wait(&self, time: Duration) {
        let state = self.lock();
        let has_none = |state: &mut State| state.order.is_none();
        drop(self.0.1.wait_timeout_while(state, time, has_none));
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::Ordering;

    use super::*;

    /// Check that a reload is carried out once, that a stop counts more and stays, and that both end the recording that
    /// runs, or begins.
    #[test]
    fn orders() {
        let control = Control::new();
        let is_ended = |ending: &Ending| ending.recording().load(Ordering::Relaxed);
        let first = control.begin_recording();
        control.signal(SignalKind::user_defined1());
        assert!(!is_ended(&first));
        assert_eq!(control.take(), None);
        control.signal(SignalKind::hangup());
        assert!(is_ended(&first));
        assert!(is_ended(&control.begin_recording()));
        assert_eq!(control.take(), Some(Order::Reload));
        assert_eq!(control.take(), None);
        let second = control.begin_recording();
        assert!(!is_ended(&second));
        control.signal(SignalKind::terminate());
        control.signal(SignalKind::hangup());
        assert!(is_ended(&second) && !second.names.is_cancelled());
        assert_eq!([control.take(), control.take()], [Some(Order::Stop); 2]);
        control.signal(SignalKind::interrupt());
        assert!(second.names.is_cancelled());
    }
}
