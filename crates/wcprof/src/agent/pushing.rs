//! Requests to a store, and what is said of it.

use std::io;
use std::path::PathBuf;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, SystemTime};

use wcprof_capture::add_lump_cpu;
use wcprof_host::clock::thread_cpu_ns;
use wcprof_host::own_files::open_dir;
use wcprof_host::sys::keep_capabilities;
use wcprof_net::{Answer, Pusher, PusherOptions, Spool, SpoolOptions, Store, StoreKind};

use super::figures::Figures;
use super::log::{self, Level, Sparing};
use super::plan::StorePlan;
use crate::failure::Failure;

/// Where requests go, and how they are made.
#[derive(Clone, Debug)]
pub(super) struct Destination {
    spool: Arc<Spool>,
    pub(super) kind: StoreKind,
    losses: Arc<Mutex<Losses>>,
}

impl Destination {
    /// Hands on a request whose profiles begin then, and says what is lost.
    pub(super) fn add(&self, request: Vec<u8>, begin: SystemTime) {
        let added = self.spool.add(self.kind.pack(request), begin);
        let losses = self.losses.lock();
        let mut losses = losses.unwrap_or_else(PoisonError::into_inner);
        losses.note(added.err(), self.spool.figures().n_dropped);
    }
}

/// What was said of requests that do not wait as they should.
#[derive(Debug)]
struct Losses {
    folder: PathBuf,
    unwritten: Sparing,
    dropped: Sparing,
    n_dropped: u64,
}

impl Losses {
    fn note(&mut self, unwritten: Option<io::Error>, n_dropped: u64) {
        if let Some(error) = unwritten {
            let text = format!(
                "the spool `{}` does not take requests: {error}; they wait in memory (free some space, or choose another \
                 --state-dir)",
                self.folder.display()
            );
            log::sparingly(&mut self.unwritten, Level::Error, &text);
        }
        if std::mem::replace(&mut self.n_dropped, n_dropped) < n_dropped {
            let text = format!(
                "{n_dropped} requests are dropped: the spool holds no more, or their files cannot be read"
            );
            log::sparingly(&mut self.dropped, Level::Error, &text);
        }
    }
}

/// A store that is pushed to.
#[derive(Debug)]
pub(super) struct Pushing {
    pusher: Pusher,
    destination: Destination,
}

impl Pushing {
    /// Begins to send what waits.
    pub(super) fn start(plan: &StorePlan, figures: &Figures) -> Result<Self, Failure> {
        let store = Store::new(plan.store.clone()).map_err(Failure::usage)?;
        let kind = store.kind();
        let opened = open_dir(&plan.spool).and_then(|folder| {
            Spool::open(SpoolOptions {
                folder: Some(folder),
                kind: kind.name(),
                max_bytes: plan.spool_bytes,
                max_age: plan.max_age,
            })
        });
        let spool = opened.map_err(|error| {
            let text = format!("failed to open the spool `{}`", plan.spool.display());
            Failure::from(anyhow::Error::from(error).context(text))
                .hint("--state-dir chooses another folder")
        })?;
        let spool = Arc::new(spool);
        let n_waiting = spool.figures().n_waiting;
        if n_waiting > 0 {
            log::line(
                Level::Info,
                &format!("{n_waiting} requests wait in the spool"),
            );
        }
        let n_unsure = spool.figures().n_unsure;
        if n_unsure > 0 {
            let text = format!(
                "an earlier agent ended while it sent {n_unsure} requests; the store may have them, so that they are not sent again"
            );
            log::line(Level::Warning, &text);
        }
        let options = PusherOptions {
            spread: plan.spread,
            first_wait: None,
        };
        // It needs the network alone.
        let begin = || drop(keep_capabilities(0));
        let pusher = Pusher::start(store, Arc::clone(&spool), options, begin, said())?;
        let pushing = (Arc::clone(&pusher.figures), Arc::clone(&spool));
        figures.lock().pushing = Some(pushing);
        let losses = Losses {
            folder: plan.spool.clone(),
            unwritten: Sparing::default(),
            dropped: Sparing::default(),
            n_dropped: 0,
        };
        let destination = Destination {
            spool,
            kind,
            losses: Arc::new(Mutex::new(losses)),
        };
        Ok(Self {
            pusher,
            destination,
        })
    }

    /// Where requests go.
    pub(super) fn destination(&self) -> Destination {
        self.destination.clone()
    }

    /// Sends what waits, as far as that is possible within this time, and waits up to `last` for the request that is
    /// under way then, unless `is_over` says that nobody will send it again. Gives whether it came to an end.
    pub(super) fn finish(
        self,
        within: Duration,
        last: Duration,
        is_over: impl Fn() -> bool,
    ) -> bool {
        let has_ended = self.pusher.finish(within, last, is_over);
        let figures = self.destination.spool.figures();
        let n_waiting = figures.n_waiting - figures.n_in_memory;
        if n_waiting > 0 {
            let text = format!("{n_waiting} requests wait in the spool for the next start");
            log::line(Level::Warning, &text);
        }
        if figures.n_in_memory > 0 {
            let n = figures.n_in_memory;
            let text = format!("{n} requests that the spool's folder did not take are lost");
            log::line(Level::Error, &text);
        }
        has_ended
    }
}

/// Says what happens, each kind of it once a minute; and counts the CPU time of the thread that it is called on.
fn said() -> impl FnMut(&Answer, Option<Duration>) + Send + 'static {
    let (mut later, mut no_entry, mut refused) =
        (Sparing::default(), Sparing::default(), Sparing::default());
    let mut is_failing = false;
    let mut cpu = None;
    move |answer, wait| {
        let now = thread_cpu_ns();
        add_lump_cpu(now - cpu.replace(now).unwrap_or(now));
        let (level, sparing, text) = match answer {
            Answer::Taken => {
                if std::mem::take(&mut is_failing) {
                    log::line(Level::Info, "the store takes profiles again");
                }
                return;
            }
            Answer::Later { reason, .. } => {
                let text = format!(
                    "the store takes no profile: {reason}; next try in {:.0} s",
                    wait.unwrap_or_default().as_secs_f64().ceil()
                );
                (Level::Warning, &mut later, text)
            }
            Answer::NoEntry { reason } => {
                let text = format!("the store does not let wcprof in: {reason}");
                (Level::Error, &mut no_entry, text)
            }
            Answer::Partly {
                n_rejected: 0,
                reason,
            } => {
                let text = format!("the store says: {reason}");
                (Level::Warning, &mut refused, text)
            }
            Answer::Partly {
                n_rejected: n,
                reason,
            } => {
                let text = format!("the store rejected {n} profiles of a request: {reason}");
                (Level::Error, &mut refused, text)
            }
            Answer::InPart { reason } => {
                let text = format!(
                    "the store has a part of a request, which is not sent again so that nothing counts twice: {reason}"
                );
                (Level::Error, &mut refused, text)
            }
            Answer::Unsure { reason } => {
                let text = format!(
                    "the store may have a request, which is not sent again so that nothing counts twice: {reason}"
                );
                (Level::Error, &mut refused, text)
            }
            Answer::Refused { reason } => {
                let text = format!("the store refused a request, which is dropped: {reason}");
                (Level::Error, &mut refused, text)
            }
        };
        is_failing |= wait.is_some();
        log::sparingly(sparing, level, &text);
    }
}
