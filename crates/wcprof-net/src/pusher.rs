//! A spool to a store: each request until the store has it, or will never have it.

use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc::{Receiver, RecvTimeoutError, channel};
use std::thread;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use crate::backoff::Backoff;
use crate::spool::Spool;
use crate::store::{Answer, Store};

/// How often it is asked whether the last request is still waited for.
const CHECK_OVER: Duration = Duration::from_millis(50);

/// How a pusher behaves.
#[derive(Clone, Debug, Default)]
pub struct PusherOptions {
    /// When the spool was empty, the next request leaves by chance within this time: the hosts of a cluster have
    /// theirs at the same moment.
    pub spread: Duration,
    /// The longest time after the first failure. Default: 1 s.
    pub first_wait: Option<Duration>,
}

/// What was done so far.
#[derive(Debug, Default)]
pub struct PushFigures {
    /// Requests that the store has.
    pub n_taken: AtomicU64,
    /// Their bytes.
    pub bytes: AtomicU64,
    /// Tries that failed and are repeated.
    pub n_retries: AtomicU64,
    /// Requests that the store refused for good.
    pub n_refused: AtomicU64,
    /// Requests that the store may have, or a part of which it has: they are not sent again.
    pub n_unsure: AtomicU64,
    /// Profiles that the store refused of requests that it has.
    pub n_rejected: AtomicU64,
    /// When the store took one last, seconds since 1970; 0 for never.
    pub last_taken: AtomicU64,
}

/// Sends what is in a spool, on a thread of its own.
#[derive(Debug)]
pub struct Pusher {
    spool: Arc<Spool>,
    ended: Receiver<()>,
    /// What was done so far.
    pub figures: Arc<PushFigures>,
}

impl Pusher {
    /// Begins. `begin` is called first on the new thread, `event` after each try, with the time that is
    /// waited until the next one, if it is not the next request's.
    ///
    /// # Errors
    /// When no thread can be started.
    pub fn start(
        store: Store,
        spool: Arc<Spool>,
        options: PusherOptions,
        begin: impl FnOnce() + Send + 'static,
        event: impl FnMut(&Answer, Option<Duration>) + Send + 'static,
    ) -> io::Result<Self> {
        let figures: Arc<PushFigures> = Arc::default();
        let (end, ended) = channel();
        let work = Work {
            store,
            spool: Arc::clone(&spool),
            figures: Arc::clone(&figures),
            options,
        };
        let thread = thread::Builder::new().name("wcprof-push".to_owned());
        thread.spawn(move || {
            begin();
            work.run(event);
            // Nobody may wait for it.
            let _ = end.send(());
        })?;
        Ok(Self {
            spool,
            ended,
            figures,
        })
    }

    /// Sends what waits, each request once, and gives up after this time: what is left stays in the spool's folder. Then
    /// waits up to `last` for the request that is under way, so that nobody else sends it, unless `is_over` says that nobody
    /// will. Gives whether it came to an end.
    pub fn finish(self, within: Duration, last: Duration, is_over: impl Fn() -> bool) -> bool {
        self.spool.close();
        let ended = self.ended.recv_timeout(within).is_ok();
        self.spool.stop();
        let begin = Instant::now();
        ended
            || loop {
                let left = last.saturating_sub(begin.elapsed());
                match self.ended.recv_timeout(left.min(CHECK_OVER)) {
                    Ok(()) => break true,
                    Err(RecvTimeoutError::Timeout) if !left.is_zero() && !is_over() => {}
                    Err(_) => break false,
                }
            }
    }
}

struct Work {
    store: Store,
    spool: Arc<Spool>,
    figures: Arc<PushFigures>,
    options: PusherOptions,
}

impl Work {
    fn run(self, mut event: impl FnMut(&Answer, Option<Duration>)) {
        let mut backoff = Backoff::new(self.options.first_wait);
        let (mut was_empty, mut has_failed) = (true, false);
        while self.spool.wait() {
            if std::mem::take(&mut was_empty) {
                self.spool
                    .pause(self.options.spread.mul_f64(fastrand::f64()));
            }
            let Some((number, request)) = self.spool.next() else {
                was_empty = true;
                continue;
            };
            let answer = match &request {
                Ok(request) => {
                    let not_ready = has_failed.then(|| self.store.not_ready()).flatten();
                    not_ready.unwrap_or_else(|| self.store.send(request))
                }
                Err(error) => Answer::Later {
                    reason: format!("failed to read what waits for it: {error}"),
                    after: None,
                },
            };
            let wait = match &answer {
                Answer::Taken
                | Answer::Partly { .. }
                | Answer::InPart { .. }
                | Answer::Refused { .. } => {
                    self.spool.remove(number);
                    was_empty = self.spool.figures().n_waiting == 0;
                    backoff.reset();
                    None
                }
                // Whatever comes next may be lost, too.
                Answer::Unsure { .. } => {
                    self.spool.remove(number);
                    Some(backoff.next(None))
                }
                Answer::Later { after, .. } => Some(backoff.next(*after)),
                Answer::NoEntry { .. } => Some(backoff.next(None)),
            };
            has_failed = wait.is_some();
            self.count(&answer, request.map_or(0, |r| r.len()));
            event(&answer, wait);
            if let Some(wait) = wait {
                self.spool.keep();
                if self.spool.is_closed() {
                    return;
                }
                self.spool.pause(wait);
            }
        }
    }

    fn count(&self, answer: &Answer, len: usize) {
        let figures = &self.figures;
        let add = |count: &AtomicU64, n: u64| {
            count.fetch_add(n, Ordering::Relaxed);
        };
        match answer {
            Answer::Taken | Answer::Partly { .. } => {
                add(&figures.n_taken, 1);
                add(&figures.bytes, len as u64);
                let now = SystemTime::now().duration_since(UNIX_EPOCH);
                let now = now.unwrap_or_default().as_secs();
                figures.last_taken.store(now, Ordering::Relaxed);
            }
            Answer::Refused { .. } => add(&figures.n_refused, 1),
            Answer::InPart { .. } | Answer::Unsure { .. } => add(&figures.n_unsure, 1),
            Answer::Later { .. } | Answer::NoEntry { .. } => add(&figures.n_retries, 1),
        }
        if let Answer::Partly { n_rejected, .. } = answer {
            add(&figures.n_rejected, *n_rejected);
        }
    }
}
