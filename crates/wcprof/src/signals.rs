//! Signals of the user to calls, on a thread that waits for them.

use std::future::poll_fn;
use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::task::Poll;
use std::thread;

use nix::libc::SIGXCPU;
use tokio::runtime::Builder;
use tokio::select;
use tokio::signal::unix::{Signal, SignalKind, signal};
use tokio::sync::oneshot;
use wcprof_host::front;
use wcprof_host::sys::keep_capabilities;
use wcprof_symbols::Cancel;

/// Signals that end a recording. The end of a terminal's session is SIGHUP, Ctrl-\\ SIGQUIT. SIGXCPU comes each second beyond
/// `ulimit -St`.
pub(crate) const ENDING: [SignalKind; 5] = [
    SignalKind::interrupt(),
    SignalKind::terminate(),
    SignalKind::hangup(),
    SignalKind::quit(),
    SignalKind::from_raw(SIGXCPU),
];

/// What signals end, one after the other. Clones share it.
#[derive(Clone, Debug, Default)]
pub(crate) struct Ending {
    /// The recording has ended, or is to.
    recording: Arc<AtomicBool>,
    /// The search for names.
    pub(crate) names: Cancel,
}

impl Ending {
    /// Signals end what is under way until the returned watch is dropped.
    pub(crate) fn at_signals(&self) -> io::Result<SignalWatch> {
        let ending = self.clone();
        let mut kinds = ENDING.to_vec();
        if front::is_ignored(SignalKind::hangup().as_raw_value()) {
            // `nohup`: it is to outlive its session.
            kinds.retain(|kind| *kind != SignalKind::hangup());
        }
        at_signals(&kinds, move |kind| ending.signal(kind))
    }

    /// Ends the recording, and after its end what follows.
    pub(crate) fn signal(&self, kind: SignalKind) {
        let has_ended = self.recording.swap(true, Ordering::Relaxed);
        // A session that ends sends several SIGHUP, and nobody waits for the end.
        if has_ended && kind != SignalKind::hangup() {
            self.names.cancel();
        }
    }

    /// Ends the recording, or notes that it has ended by itself.
    pub(crate) fn end_recording(&self) {
        self.recording.store(true, Ordering::Relaxed);
    }

    /// Set when the recording is to end.
    pub(crate) fn recording(&self) -> &AtomicBool {
        &self.recording
    }
}

/// Signals are waited for until this is dropped.
#[derive(Debug)]
pub(crate) struct SignalWatch {
    _end: oneshot::Sender<()>,
}

/// Calls `act` with each of these signals. When this returns, they no longer end wcprof.
///
/// # Errors
/// When a signal cannot be waited for, or a thread cannot be started.
pub(crate) fn at_signals(
    kinds: &[SignalKind],
    mut act: impl FnMut(SignalKind) + Send + 'static,
) -> io::Result<SignalWatch> {
    let runtime = Builder::new_current_thread().enable_io().build()?;
    let mut signals: Vec<(SignalKind, Signal)> = {
        let _inside = runtime.enter();
        let delivered = |kind: SignalKind| {
            let number = front::delivered_as(kind.as_raw_value());
            signal(SignalKind::from_raw(number))
        };
        let signals = kinds.iter().map(|&kind| Ok((kind, delivered(kind)?)));
        signals.collect::<io::Result<_>>()?
    };
    let (end, mut ended) = oneshot::channel();
    let thread = thread::Builder::new().name("wcprof-signals".to_owned());
    thread.spawn(move || {
        // It needs none.
        let _ = keep_capabilities(0);
        runtime.block_on(async {
            loop {
                let any = poll_fn(|context| {
                    let came = signals.iter_mut().find_map(|(kind, signal)| {
                        let is_ready = signal.poll_recv(context).is_ready();
                        is_ready.then_some(*kind)
                    });
                    came.map_or(Poll::Pending, Poll::Ready)
                });
                select! {
                    kind = any => act(kind),
                    _ = &mut ended => break,
                }
            }
        });
    })?;
    Ok(SignalWatch { _end: end })
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Check that the first signal ends the recording, and a second one, or the first after the recording's own end,
    /// the search for names; that SIGHUP, which comes more than once, never does.
    #[test]
    fn order() {
        let state = |ending: &Ending| {
            let recording = ending.recording().load(Ordering::Relaxed);
            (recording, ending.names.is_cancelled())
        };
        for first in ENDING {
            for second in ENDING {
                let ending = Ending::default();
                assert_eq!(state(&ending), (false, false));
                ending.signal(first);
                assert_eq!(state(&ending), (true, false), "{first:?}");
                ending.signal(second);
                let expected = (true, second != SignalKind::hangup());
                assert_eq!(state(&ending), expected, "{first:?} {second:?}");
            }
        }
        let ending = Ending::default();
        ending.end_recording();
        assert_eq!(state(&ending), (true, false));
        ending.signal(SignalKind::interrupt());
        assert_eq!(state(&ending), (true, true));
    }
}
