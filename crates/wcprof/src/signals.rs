//! Signals of the user to calls, on a thread that waits for them.

use std::future::poll_fn;
use std::io;
use std::task::Poll;
use std::thread;

use tokio::runtime::Builder;
use tokio::select;
use tokio::signal::unix::{Signal, SignalKind, signal};
use tokio::sync::oneshot;

/// Signals are waited for until this is dropped.
#[derive(Debug)]
pub(crate) struct SignalWatch {
    _end: oneshot::Sender<()>,
}

/// Calls `act` at each of these signals. When this returns, they no longer end wcprof.
///
/// # Errors
/// When a signal cannot be waited for, or a thread cannot be started.
pub(crate) fn at_signals(
    kinds: &[SignalKind],
    mut act: impl FnMut() + Send + 'static,
) -> io::Result<SignalWatch> {
    let runtime = Builder::new_current_thread().enable_io().build()?;
    let mut signals: Vec<Signal> = {
        let _inside = runtime.enter();
        let signals = kinds.iter().map(|&kind| signal(kind));
        signals.collect::<io::Result<_>>()?
    };
    let (end, mut ended) = oneshot::channel();
    let thread = thread::Builder::new().name("wcprof-signals".to_owned());
    thread.spawn(move || {
        runtime.block_on(async {
            loop {
                let any = poll_fn(|context| {
                    let came = |signal: &mut Signal| signal.poll_recv(context).is_ready();
                    match signals.iter_mut().any(came) {
                        true => Poll::Ready(()),
                        false => Poll::Pending,
                    }
                });
                select! {
                    () = any => act(),
                    _ = &mut ended => break,
                }
            }
        });
    })?;
    Ok(SignalWatch { _end: end })
}
