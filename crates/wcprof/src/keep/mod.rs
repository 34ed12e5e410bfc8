//! The flight recorder, `attach --keep`: the last time of a recording is in memory, and becomes a
//! trace file when a signal or a condition asks for it.

pub(crate) mod condition;
mod watch;
pub(crate) mod write;

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{Receiver, Sender, sync_channel};
use std::thread;
use std::time::Duration;

use anyhow::Context;
use tokio::signal::unix::{SignalKind, signal};
use tokio::sync::oneshot;
use wcprof_profile::Rules;
use wcprof_record::Kept;
use wcprof_trace::ring::RingOptions;
use wcprof_types::TimeNs;

use crate::attach;
use crate::cli::AttachArgs;
use crate::failure::{Exit, Failure};
use crate::live::{self, Live, Takers};
use crate::live_names::LiveNames;
use crate::session::{SessionOptions, subject};
use watch::Watch;
use write::{NameOptions, check_folder, numbered, write};

/// What the ring held may wait for so many files that are being written before it.
const MAX_WAITING: usize = 4;
/// A waiting thread is heard of once a second: what is younger is not looked at yet.
const SETTLED_NS: u64 = 1_200_000_000;

/// Why a file is written.
#[derive(Clone, PartialEq, Eq, Debug)]
enum Reason {
    Signal,
    Trigger(String),
}

impl std::fmt::Display for Reason {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Signal => f.write_str("SIGUSR1"),
            Self::Trigger(text) => write!(f, "trigger: {text}"),
        }
    }
}

/// Records until the end, and writes files on the way.
pub(crate) fn run(
    options: &SessionOptions,
    keep: Duration,
    args: &AttachArgs,
    rules: Rules,
) -> Result<(), Failure> {
    for condition in &args.keep.trigger {
        if condition.window > keep {
            let error = anyhow::anyhow!("`{condition}` looks at a longer time than --keep keeps");
            return Err(Failure::new(Exit::Usage, error).hint("keep more, or look at less"));
        }
    }
    check_folder(&options.trace)?;
    let names = NameOptions {
        args: &args.symbols,
        options: attach::symbol_options(args),
        raw: args.raw,
    };
    let base = &options.trace;
    let ring = RingOptions {
        keep,
        max_bytes: usize::try_from(args.keep.keep_memory << 20).unwrap_or(usize::MAX),
    };
    let (ordered, orders) = sync_channel(MAX_WAITING);
    let failed = Arc::new(AtomicBool::new(false));
    let refused = Arc::clone(&failed);
    let watches: Vec<Watch> = args.keep.trigger.iter().cloned().map(Watch::new).collect();
    let (looks, looked) = sync_channel(1);
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .context("failed to start the event loop")?;
    // From here on SIGUSR1 does not end wcprof.
    let signals = runtime.block_on(async { Signals::new() })?;
    let takers = Takers {
        ordered,
        refused: Box::new(move |reason| {
            refused.store(true, Ordering::Relaxed);
            tell!(
                "wcprof: no file is written for {reason}: {MAX_WAITING} others are still being written"
            );
        }),
        looks: (!watches.is_empty()).then_some(looks),
    };
    let (live, done) = live::begin(options, ring, takers)?;
    say_begin(options, keep, args, base);
    let number = thread::scope(|scope| {
        let (names, failed) = (&names, &*failed);
        let writer = scope.spawn(move || write_all(base, &orders, names, failed));
        if !watches.is_empty() {
            let orders = live.orders();
            scope.spawn(move || {
                let watcher = Watcher {
                    watches,
                    names: LiveNames::new(),
                    keep,
                    limit: args.keep.trigger_limit,
                    orders,
                };
                watcher.run(&looked, names, &rules);
            });
        }
        let waited = runtime.block_on(wait(&live, signals, done));
        live.stop();
        let ended = live.finish(options)?;
        waited?;
        // The recorder has gone, and with it the ways of orders and looks.
        let number = writer
            .join()
            .map_err(|_| anyhow::anyhow!("the writing thread panicked; please report this"))?;
        Ok::<_, Failure>((number, ended))
    });
    let (mut number, ended) = number?;
    if let Some(remark) = &ended.remark {
        tell!("wcprof: {remark}");
    }
    let path = numbered(base, &mut number);
    let written = write(&ended.kept, path, ended.reason, &names)?;
    say_written(&written, &ended.reason, &ended.kept);
    let last = written.path.display();
    tell!("more: wcprof report {last} --by pool [--invert]; wcprof hotspots {last}");
    match ended.loss {
        Some(loss) => Err(Failure::new(Exit::Failure, anyhow::anyhow!("{loss}"))
            .hint("what was kept until then is written")),
        None if failed.load(Ordering::Relaxed) => {
            let error = anyhow::anyhow!("not all files could be written");
            Err(Failure::new(Exit::Failure, error).hint("the reasons are above"))
        }
        None => Ok(()),
    }
}

fn say_begin(options: &SessionOptions, keep: Duration, args: &AttachArgs, base: &Path) {
    let subject = subject(options, options.targets.len());
    tell!(
        "wcprof: recording {subject}; the last {} s are kept in at most {} MB",
        keep.as_secs_f64(),
        args.keep.keep_memory
    );
    for condition in &args.keep.trigger {
        tell!("wcprof: trigger: {condition}");
    }
    let example = base.with_file_name(format!(
        "{}-N.wct",
        base.file_stem().unwrap_or_default().to_string_lossy()
    ));
    tell!(
        "wcprof: `kill -USR1 {}` writes them to {}; Ctrl-C writes them and ends",
        std::process::id(),
        example.display()
    );
}

fn say_written(written: &write::Written, reason: &dyn std::fmt::Display, kept: &Kept) {
    tell!(
        "wcprof: wrote {}: {:.1} s, {} threads, {} KiB ({reason})",
        written.path.display(),
        written.duration.0 as f64 / 1e9,
        written.n_threads,
        written.bytes.div_ceil(1024)
    );
    let memory = kept.snapshot.memory();
    if memory.n_shortened > 0 {
        let mega = |bytes: usize| bytes as f64 / (1 << 20) as f64;
        tell!(
            "wcprof: less is kept than --keep says, since --keep-memory is used up: {:.1} of {:.0} MB are \
             in use, and the oldest part was dropped {} times",
            mega(memory.bytes),
            mega(memory.max_bytes),
            memory.n_shortened
        );
    }
}

/// Writes a file for each order; gives the number of the next one.
fn write_all(
    base: &Path,
    orders: &Receiver<(Kept, Reason)>,
    names: &NameOptions<'_>,
    failed: &AtomicBool,
) -> u32 {
    let mut number = 1;
    for (kept, reason) in orders {
        let path: PathBuf = numbered(base, &mut number);
        match write(&kept, path, &reason.to_string(), names) {
            Ok(written) => say_written(&written, &reason, &kept),
            Err(failure) => {
                failed.store(true, Ordering::Relaxed);
                tell!("{failure}\nwcprof: recording goes on");
            }
        }
    }
    number
}

struct Signals {
    usr1: tokio::signal::unix::Signal,
    terminate: tokio::signal::unix::Signal,
    interrupt: tokio::signal::unix::Signal,
}

impl Signals {
    fn new() -> std::io::Result<Self> {
        Ok(Self {
            usr1: signal(SignalKind::user_defined1())?,
            terminate: signal(SignalKind::terminate())?,
            interrupt: signal(SignalKind::interrupt())?,
        })
    }
}

/// Waits for the end; hands on signals.
async fn wait(
    live: &Live<Reason>,
    mut signals: Signals,
    mut done: oneshot::Receiver<()>,
) -> Result<(), Failure> {
    loop {
        tokio::select! {
            _ = &mut done => return Ok(()),
            _ = signals.usr1.recv() => live.order(Reason::Signal),
            _ = signals.interrupt.recv() => live.stop(),
            _ = signals.terminate.recv() => live.stop(),
        }
    }
}

/// Looks at what is recorded, and orders files when conditions hold.
struct Watcher {
    watches: Vec<Watch>,
    names: LiveNames,
    keep: Duration,
    limit: u32,
    orders: Sender<Reason>,
}

impl Watcher {
    fn run(mut self, looks: &Receiver<Kept>, names: &NameOptions<'_>, rules: &Rules) {
        let keep = u64::try_from(self.keep.as_nanos()).unwrap_or(u64::MAX);
        let mut from = TimeNs(0);
        let mut quiet_until = TimeNs(0);
        let mut n_written = 0;
        for kept in looks {
            let now = kept.snapshot.end();
            let to = TimeNs(now.0.saturating_sub(SETTLED_NS));
            if to <= from {
                continue;
            }
            match self.look(&kept, from, to, names, rules) {
                Ok(Some(reason)) if now >= quiet_until && n_written < self.limit => {
                    n_written += 1;
                    // One incident is one file: the next would have this one's time in it.
                    quiet_until = TimeNs(now.0.saturating_add(keep));
                    if n_written == self.limit {
                        let n = self.limit;
                        tell!("wcprof: {n} files by triggers: these are all (--trigger-limit)");
                    }
                    if self.orders.send(reason).is_err() {
                        return;
                    }
                }
                Ok(_) => {}
                Err(failure) => tell!("{failure}\nwcprof: a second is not looked at"),
            }
            from = to;
        }
        let spent = self.names.spent().as_secs_f64();
        tell!("wcprof: names for triggers took {spent:.2} s");
    }

    /// Takes a part of what was recorded; gives the reason if a condition holds now.
    fn look(
        &mut self,
        kept: &Kept,
        from: TimeNs,
        to: TimeNs,
        names: &NameOptions<'_>,
        rules: &Rules,
    ) -> Result<Option<Reason>, Failure> {
        let cut = kept.snapshot.cut(from)?;
        let symbols = (names.args, &names.options);
        let profile = self.names.profile(kept, &cut, to, symbols, rules)?;
        let mut reason = None;
        for watch in &mut self.watches {
            if let Some(share) = watch.take(&profile) {
                let condition = watch.condition();
                let text = format!("{condition} (it is {:.1} %)", share * 100.0);
                reason.get_or_insert(Reason::Trigger(text));
            }
        }
        Ok(reason)
    }
}
