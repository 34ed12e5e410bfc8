//! The flight recorder, `attach --keep`: the last time of a recording is in memory, and becomes a
//! trace file when a signal or a condition asks for it.

pub(crate) mod write;

use std::collections::BTreeSet;
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{Receiver, Sender, SyncSender, TrySendError, channel, sync_channel};
use std::sync::{Arc, Mutex, OnceLock, PoisonError};
use std::thread;
use std::time::Duration;

use tokio::signal::unix::SignalKind;
use wcprof_findings::{Condition, Watch, bare_counter};
use wcprof_host::Target;
use wcprof_profile::Rules;
use wcprof_record::{NamedSnapshot, Recorder};
use wcprof_text::{and_more, terminal_name};
use wcprof_trace::TraceError;
use wcprof_trace::ring::{Ring, RingOptions};
use wcprof_types::TimeNs;

use crate::args::{AttachArgs, ForceArgs, KeepArgs};
use crate::counting::slow_ops;
use crate::failure::{Exit, Failure};
use crate::live::{self, Ended};
use crate::live_names::LiveNames;
use crate::message::{Level, line};
use crate::names;
use crate::output::write_whole;
use crate::session::{SessionOptions, print_left_out, subject};
use crate::signals::at_signals;
use write::{NameOptions, OnFailure, Written, check_folder, create_numbered, write};

/// Names of counters that are shown in place of one that is not counted.
const MAX_LIKE: usize = 6;
/// Files that may wait to be written.
const MAX_WAITING: usize = 4;

/// Records until the end, and writes files on the way.
pub(crate) fn run(
    options: &SessionOptions,
    keep: Duration,
    args: &AttachArgs,
    rules: Rules,
) -> Result<(), Failure> {
    for condition in &args.keep.trigger {
        if condition.counter().is_some() && !args.sampling.ceph {
            let error = anyhow::anyhow!("`{condition}` needs counters, which are not recorded");
            return Err(Failure::usage(error).hint("add --ceph"));
        }
    }
    check_windows(&args.keep.trigger, keep)?;
    let base = &options.trace;
    check_folder(base)?;
    let names = NameOptions {
        args: &args.analysis.symbols,
        options: names::recording_options(&args.analysis.symbols, args.raw, &options.ending.names),
        raw: args.raw,
    };
    let is_incomplete = Arc::new(AtomicBool::new(false));
    let keeping = Keeping {
        keep,
        args: &args.keep,
        names: &names,
        rules: &rules,
        asked: match args.sampling.ceph {
            true => options.targets.as_slice(),
            false => &[],
        },
        is_incomplete: &is_incomplete,
        triggered: &Mutex::default(),
    };
    let started = || print_start(options, keep, args, base);
    let (mut number, ended) = record(options, &keeping, started, |_, _| Ok(()))?;
    if let Some(remark) = &ended.remark {
        message!("wcprof: {remark}");
    }
    let mut write_last = |on_failure| {
        let created = create_numbered(base, &mut number)?;
        write(&ended.kept, created, ended.reason, &names, on_failure)
    };
    // There is no other time for it.
    let written = write_last(OnFailure::Remove).or_else(|failure| {
        line(Level::Error, &failure.to_string());
        write_last(OnFailure::Keep)
    })?;
    print_written(&written, ended.reason, &ended.kept);
    let last = written.path.display();
    message!("more: wcprof report {last} --by pool [--invert]; wcprof doctor {last}");
    match ended.loss {
        Some(loss) => Err(Failure::new(Exit::Failure, anyhow::anyhow!("{loss}"))
            .hint("what was kept until then is written")),
        None if is_incomplete.load(Ordering::Relaxed) => {
            let error = anyhow::anyhow!("not all files could be written");
            Err(Failure::new(Exit::Failure, error).hint("the reasons are above"))
        }
        None => Ok(()),
    }
}

/// Refuses conditions on a longer time than is kept.
pub(crate) fn check_windows(conditions: &[Condition], keep: Duration) -> Result<(), Failure> {
    match conditions.iter().find(|condition| condition.window > keep) {
        None => Ok(()),
        Some(condition) => {
            let error = anyhow::anyhow!("`{condition}` needs a longer time than --keep keeps");
            Err(Failure::usage(error).hint("keep more, or use a shorter time in the condition"))
        }
    }
}

/// What is kept of a recording, and how files are made of it.
#[derive(Debug)]
pub(crate) struct Keeping<'a> {
    pub(crate) keep: Duration,
    /// Its memory and its triggers.
    pub(crate) args: &'a KeepArgs,
    pub(crate) names: &'a NameOptions<'a>,
    pub(crate) rules: &'a Rules,
    /// Processes that are asked for their slow operations with each file.
    pub(crate) asked: &'a [Arc<Target>],
    /// Set if a file could not be written.
    pub(crate) is_incomplete: &'a Arc<AtomicBool>,
    pub(crate) triggered: &'a Mutex<Triggered>,
}

/// What triggers have ordered, in this recording and in those before it.
#[derive(Debug, Default)]
pub(crate) struct Triggered {
    n_files: u32,
    /// No other file until then, `CLOCK_MONOTONIC` ns.
    quiet_until: u64,
}

/// Records until the end; `started` is called when that has begun, `also` after each batch with its time, ns. Gives the
/// number of the next file, and how the recording ended.
pub(crate) fn record(
    options: &SessionOptions,
    keeping: &Keeping<'_>,
    started: impl FnOnce(),
    mut also: impl FnMut(&mut Recorder<Ring>, u64) -> Result<(), TraceError> + Send + 'static,
) -> Result<(u32, Ended), Failure> {
    let base = &options.trace;
    let Keeping {
        keep,
        args,
        names,
        rules,
        asked,
        is_incomplete,
        triggered,
    } = *keeping;
    let (ordered, orders) = sync_channel(MAX_WAITING);
    let (looks, looked) = sync_channel(1);
    let triggers = args.trigger.iter().cloned();
    let watches: Vec<Watch> = triggers.map(Watch::new).collect();
    // From here on SIGUSR1 does not end wcprof. Before there is a ring, there is nothing to write.
    let ring_orders: Arc<OnceLock<Sender<String>>> = Arc::default();
    let to_ring = Arc::clone(&ring_orders);
    let written_at = at_signals(&[SignalKind::user_defined1()], move |_| {
        if let Some(orders) = to_ring.get() {
            // A recording that has ended gives what it had anyway.
            let _ = orders.send("SIGUSR1".to_owned());
        }
    })?;
    let looks = (!watches.is_empty()).then_some(looks);
    let (order, wanted) = channel::<String>();
    let ring = RingOptions {
        keep,
        max_bytes: usize::try_from(args.keep_memory << 20).unwrap_or(usize::MAX),
    };
    let mut cutter = Cutter {
        wanted,
        reasons: Vec::new(),
        ordered,
        refused: Arc::clone(is_incomplete),
    };
    let running = live::begin(options, ring, looks, move |recorder, time| {
        cutter.cut(recorder)?;
        also(recorder, time)
    })?;
    let _ = ring_orders.set(order.clone());
    started();
    let (number, ended) = thread::scope(|scope| {
        let writer = scope.spawn(move || write_all((base, asked), &orders, names, is_incomplete));
        if !watches.is_empty() {
            let watcher = Watcher {
                watches,
                // A condition on a function holds for names alone; after that time nothing is kept to look at.
                names: LiveNames::new(keep),
                keep,
                limit: args.trigger_limit,
                triggered,
                orders: order.clone(),
            };
            scope.spawn(move || watcher.run(&looked, names, rules));
        }
        drop(order);
        let ended = live::finish(running, options);
        drop(written_at);
        // The recorder has gone, and with it the ways of orders and looks.
        let number = writer
            .join()
            .map_err(|_| anyhow::anyhow!("the writing thread panicked; please report this"))?;
        Ok::<_, Failure>((number, ended?))
    })?;
    Ok((number, ended))
}

/// Takes what the ring holds for each file that is wanted, once it has all time of threads that wait.
struct Cutter {
    wanted: Receiver<String>,
    /// Why files are wanted that are not cut yet.
    reasons: Vec<String>,
    ordered: SyncSender<(NamedSnapshot, String)>,
    /// Set if a file is not written since too many wait.
    refused: Arc<AtomicBool>,
}

impl Cutter {
    fn cut(&mut self, recorder: &mut Recorder<Ring>) -> Result<(), TraceError> {
        let n_known = self.reasons.len();
        self.reasons.extend(self.wanted.try_iter());
        if !recorder.is_settled() {
            if self.reasons.len() > n_known {
                recorder.settle();
            }
            return Ok(());
        }
        for reason in self.reasons.drain(..) {
            // Once nobody takes orders any more, the end is near.
            if let Err(TrySendError::Full((_, reason))) =
                self.ordered.try_send((recorder.take_snapshot()?, reason))
            {
                self.refused.store(true, Ordering::Relaxed);
                message!(
                    "wcprof: no file is written for {reason}: {MAX_WAITING} others are still being written"
                );
            }
        }
        Ok(())
    }
}

fn print_start(options: &SessionOptions, keep: Duration, args: &AttachArgs, base: &Path) {
    let subject = subject(options, options.targets.len());
    message!(
        "wcprof: recording {subject}; the last {} s are kept in at most {} MB",
        keep.as_secs_f64(),
        args.keep.keep_memory
    );
    for condition in &args.keep.trigger {
        message!("wcprof: trigger: {condition}");
    }
    let example = base.with_file_name(format!(
        "{}-N.wct",
        base.file_stem().unwrap_or_default().to_string_lossy()
    ));
    message!(
        "wcprof: `kill -USR1 {}` writes them to {}; Ctrl-C writes them and ends",
        wcprof_host::front::pid(),
        example.display()
    );
}

fn print_written(written: &Written, reason: &str, kept: &NamedSnapshot) {
    message!(
        "wcprof: wrote {}: {:.1} s, {} threads, {} KiB ({reason})",
        written.path.display(),
        written.duration.0 as f64 / 1e9,
        written.n_threads,
        written.bytes.div_ceil(1024)
    );
    if written.is_cancelled {
        names::print_cancelled(&written.path);
    }
    if let Some(reason) = &written.unnamed {
        let path = written.path.display();
        message!("wcprof: the names are not in `{path}`: {reason}; `wcprof report` finds them");
    }
    let memory = kept.snapshot.memory();
    if memory.n_shortened > 0 {
        let mega = |bytes: usize| bytes as f64 / (1 << 20) as f64;
        message!(
            "wcprof: less is kept than --keep says, since --keep-memory ({:.1} of {:.0} MB are in use) or a table was \
             used up: the oldest part was dropped {} times",
            mega(memory.bytes),
            mega(memory.max_bytes),
            memory.n_shortened
        );
    }
}

/// Writes a file for each order, and beside it the slow operations of the processes that are asked for them; gives
/// the number of the next one.
fn write_all(
    (base, asked): (&Path, &[Arc<Target>]),
    orders: &Receiver<(NamedSnapshot, String)>,
    names: &NameOptions<'_>,
    is_incomplete: &AtomicBool,
) -> u32 {
    let mut number = 1;
    for (kept, reason) in orders {
        // Before the search for names, which takes its time.
        let slow_ops = slow_ops(asked);
        let created = create_numbered(base, &mut number);
        let written =
            created.and_then(|created| write(&kept, created, &reason, names, OnFailure::Remove));
        let written = written.and_then(|written| {
            print_left_out(kept.n_left_out);
            print_written(&written, &reason, &kept);
            write_slow_ops(&written, slow_ops)
        });
        match written {
            Ok(()) => {}
            Err(failure) => {
                is_incomplete.store(true, Ordering::Relaxed);
                line(
                    Level::Error,
                    &format!("{failure}\nwcprof: recording goes on"),
                );
            }
        }
    }
    number
}

/// Writes `osd-1.slow-ops.json` beside `osd-1.wct`.
fn write_slow_ops(written: &Written, json: Option<String>) -> Result<(), Failure> {
    let Some(json) = json else {
        return Ok(());
    };
    let path = written.path.with_extension("slow-ops.json");
    write_whole(&path, ForceArgs::default(), json.as_bytes())?;
    message!("wcprof: wrote {}: dump_historic_slow_ops", path.display());
    Ok(())
}

/// Looks at what is recorded, and orders files when conditions hold.
struct Watcher<'a> {
    watches: Vec<Watch>,
    names: LiveNames,
    keep: Duration,
    limit: u32,
    triggered: &'a Mutex<Triggered>,
    orders: Sender<String>,
}

impl Watcher<'_> {
    fn run(mut self, looks: &Receiver<NamedSnapshot>, names: &NameOptions<'_>, rules: &Rules) {
        let mut from = TimeNs(0);
        for kept in looks {
            let to = TimeNs(kept.snapshot.end().0.saturating_sub(live::SETTLED_NS));
            if to <= from {
                continue;
            }
            match self.look(&kept, from, to, names, rules) {
                Ok(Some(reason)) => {
                    if self.may_write(kept.end()) && self.orders.send(reason).is_err() {
                        return;
                    }
                }
                Ok(None) => {}
                Err(failure) => {
                    let text = format!("{failure}\nwcprof: one second is not tested");
                    line(Level::Error, &text);
                }
            }
            from = to;
        }
        let spent = self.names.spent.as_secs_f64();
        message!("wcprof: names for triggers took {spent:.2} s");
    }

    /// Whether a file may be written now, which then counts.
    fn may_write(&self, now: u64) -> bool {
        let mut triggered = self
            .triggered
            .lock()
            .unwrap_or_else(PoisonError::into_inner);
        if now < triggered.quiet_until || triggered.n_files >= self.limit {
            return false;
        }
        triggered.n_files += 1;
        // One incident is one file: the next would have this one's time in it.
        let keep = u64::try_from(self.keep.as_nanos()).unwrap_or(u64::MAX);
        triggered.quiet_until = now.saturating_add(keep);
        if triggered.n_files == self.limit {
            let n = self.limit;
            message!("wcprof: {n} files by triggers: this is the last (--trigger-limit)");
        }
        true
    }

    /// Takes a part of what was recorded; gives the reason if a condition holds now.
    fn look(
        &mut self,
        kept: &NamedSnapshot,
        from: TimeNs,
        to: TimeNs,
        names: &NameOptions<'_>,
        rules: &Rules,
    ) -> Result<Option<String>, Failure> {
        let cut = kept.snapshot.cut(from)?;
        let symbols = (names.args, &names.options);
        let profile = self.names.profile(kept, &cut, to, symbols, rules)?;
        let mut reason = None;
        for watch in &mut self.watches {
            if let Some(value) = watch.take(&profile) {
                let condition = &watch.condition;
                let value = condition.value_text(value);
                reason.get_or_insert(format!("trigger: {condition} (it is {value})"));
            }
            if let Some(others) = watch.counted_instead() {
                message!("wcprof: {}", not_counted(&watch.condition, &others));
            }
        }
        Ok(reason)
    }
}

/// That nothing was counted under the name in a condition, and the names that are most like it.
fn not_counted(condition: &Condition, others: &BTreeSet<String>) -> String {
    let name = condition.counter().unwrap_or_default();
    let likeness = |other: &str| {
        strsim::jaro_winkler(name, bare_counter(other)).max(strsim::jaro_winkler(name, other))
    };
    let mut others: Vec<&str> = others.iter().map(String::as_str).collect();
    others.sort_by(|a, b| likeness(b).total_cmp(&likeness(a)));
    let shown = others.iter().take(MAX_LIKE);
    let shown: Vec<_> = shown.map(|name| terminal_name(name)).collect();
    format!(
        "trigger `{condition}`: no process has counted `{name}` so far; similar counters of times: {}{}",
        shown.join(", "),
        and_more(others.len().saturating_sub(MAX_LIKE))
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Check that the recordings of an agent, one after the other, write no more files than one, nor sooner.
    #[test]
    fn limit_of_recordings() {
        let triggered = Mutex::default();
        let watcher = || Watcher {
            watches: Vec::new(),
            names: LiveNames::new(Duration::ZERO),
            keep: Duration::from_nanos(10),
            limit: 2,
            triggered: &triggered,
            orders: channel().0,
        };
        let first = watcher();
        assert_eq!([100, 105].map(|now| first.may_write(now)), [true, false]);
        let second = watcher();
        assert_eq!(
            [109, 110, 200].map(|now| second.may_write(now)),
            [false, true, false]
        );
        assert!(!watcher().may_write(300));
    }

    /// Check that the names most like the one that is not counted come first.
    #[test]
    fn like_names() {
        let names = [
            "bluestore.kv_sync_lat",
            "osd.op_latency",
            "osd.op_r_latency",
            "osd.op_w_latency",
        ];
        let others = names.map(str::to_owned).into();
        let condition = "op_latencies > 20ms over 5s".parse().unwrap();
        let text = not_counted(&condition, &others);
        assert!(
            text.starts_with("trigger `op_latencies > 20ms over 5s`: no process has counted `op_latencies` so far; similar counters of times: osd.op_latency, "),
            "{text}"
        );
        assert!(text.ends_with(", bluestore.kv_sync_lat"), "{text}");
    }
}
