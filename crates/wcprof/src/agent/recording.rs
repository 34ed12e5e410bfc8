//! One recording of the agent: begins with the processes that are there, takes in those that the finder finds, and ends
//! with the last one or by an order.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{TrySendError, sync_channel};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread;

use wcprof_capture::Arrivals;
use wcprof_export::label_value;
use wcprof_host::Target;
use wcprof_host::clock::moment;
use wcprof_host::own_files::make_dir;
use wcprof_record::Recorder;
use wcprof_trace::ring::Ring;

use super::control::Control;
use super::figures::Figures;
use super::finder::Finder;
use super::intervals::Intervals;
use super::log::{self, Level};
use super::plan::Plan;
use super::profiles::Profiles;
use super::pushing::Destination;
use crate::failure::{Exit, Failure};
use crate::keep::write::{NameOptions, check_folder};
use crate::keep::{self, Keeping, Triggered};
use crate::live::Silent;
use crate::names;
use crate::session::SessionOptions;

/// Intervals that wait to become profiles.
const WAITING: usize = 2;
/// Processes of a search that get a line of the log each.
const MAX_FOUND_LINES: usize = 10;

/// What all recordings share.
#[derive(Debug, Default)]
pub(super) struct Shared {
    pub(super) figures: Arc<Figures>,
    /// One of them has begun: what ends a later one does not end the agent.
    pub(super) has_recorded: AtomicBool,
    pub(super) triggered: Mutex<Triggered>,
}

/// Records until the last process has ended or an order has come.
pub(super) fn run(
    plan: &Plan,
    control: &Control,
    finder: &mut Finder,
    destination: Option<Destination>,
    shared: &Shared,
) -> Result<(), Failure> {
    let figures = &shared.figures;
    let arrivals = Arrivals::default();
    let options = SessionOptions {
        targets: finder.targets().to_vec(),
        children: false,
        arrivals: Some(arrivals.clone()),
        duration: None,
        sampling: plan.args.sampling.clone(),
        // What a store shows are user stacks.
        kernel: Some(false),
        full_command_lines: false,
        trace: plan.state_dir.join("agent.wct"),
        ending: control.begin_recording(),
    };
    make_dir(&plan.state_dir)?;
    check_folder(&options.trace)?;
    note_targets(finder, figures);
    let ended = thread::scope(|scope| {
        // It gives up what only the start of a recording needs; this thread finds processes for the next one, too.
        let recording = scope.spawn(|| record(plan, &options, destination, shared));
        while !recording.is_finished() {
            control.wait(finder.pause());
            let search = finder.search();
            log_found(&search.new);
            if !search.exchange {
                search.new.into_iter().for_each(|new| arrivals.push(new));
            }
            note_targets(finder, figures);
            if search.exchange {
                options.ending.end_recording();
                break;
            }
        }
        recording.join()
    });
    figures.lock().end_recording();
    let panicked = || anyhow::anyhow!("the recording thread panicked; please report this");
    match ended.map_err(|_| panicked())?? {
        None => {}
        Some(Silent {
            pid: Some(pid),
            sampler,
        }) => finder.leave_out(pid, sampler),
        // Another sampler would wait as well.
        Some(Silent { pid: None, sampler }) => {
            while !sampler.is_finished() && !control.has_order() {
                control.wait(finder.pause());
            }
        }
    }
    Ok(())
}

/// Says which processes are recorded from now on: a line each, or one line for many, as processes that start again and again
/// would fill the log.
fn log_found(new: &[Arc<Target>]) {
    let name = |target: &Arc<Target>| {
        let title = label_value(target.title());
        format!("{title} (pid {})", target.pid())
    };
    match new {
        [first, .., last] if new.len() > MAX_FOUND_LINES => {
            let text = format!(
                "found {} processes, {} to {}",
                new.len(),
                name(first),
                name(last)
            );
            log::line(Level::Info, &text);
        }
        _ => {
            for target in new {
                log::line(Level::Info, &format!("found {}", name(target)));
            }
        }
    }
}

fn note_targets(finder: &Finder, figures: &Figures) {
    let titles = finder.targets().iter().map(|target| target.title());
    let mut counted = figures.lock();
    counted.set_targets(titles);
    counted.processes.n_left_out = finder.n_left_out();
}

/// Records, and makes profiles on a thread of their own. Gives the process that the next recording must do without.
fn record(
    plan: &Plan,
    options: &SessionOptions,
    destination: Option<Destination>,
    shared: &Shared,
) -> Result<Option<Silent>, Failure> {
    let figures = &shared.figures;
    let name_options = NameOptions {
        args: &plan.symbols,
        options: names::recording_options(&plan.symbols, false, &options.ending.names),
        raw: false,
    };
    let mut profiles = Profiles::new(plan, name_options.options.clone(), destination, figures);
    let keeping = Keeping {
        keep: plan.keep.keep.unwrap_or(plan.args.recorder.keep),
        args: &plan.keep,
        names: &name_options,
        rules: &plan.rules,
        asked: &[],
        // What could not be written was said.
        is_incomplete: &Arc::default(),
        triggered: &shared.triggered,
    };
    let n_targets = options.targets.len();
    let started = || {
        shared.has_recorded.store(true, Ordering::Relaxed);
        log::line(Level::Info, &format!("recording {n_targets} processes"));
    };
    let (ready, all_ready) = sync_channel(WAITING);
    let intervals = Arc::new(Mutex::new(Intervals::new(plan.args.interval)));
    let also = {
        let (ready, intervals) = (ready.clone(), Arc::clone(&intervals));
        let (figures, ending) = (Arc::clone(figures), options.ending.clone());
        move |recorder: &mut Recorder<Ring>, time| {
            let complete = lock(&intervals).complete(time, moment());
            if let Some(interval) = complete {
                match ready.try_send((recorder.take_snapshot()?, interval)) {
                    Ok(()) => {}
                    // A recording does not wait for profiles: the next one is also of this time.
                    Err(TrySendError::Full(_)) => {
                        lock(&intervals).join(interval);
                        figures.lock().n_joined += 1;
                    }
                    // There would be none any more: their thread panicked, and so does this one's at the end of its scope.
                    Err(TrySendError::Disconnected(_)) => ending.end_recording(),
                }
            }
            Ok(())
        }
    };
    let ended = thread::scope(|scope| {
        scope.spawn(move || profiles.run(&all_ready));
        let (_, ended) = keep::record(options, &keeping, started, also)?;
        let last = lock(&intervals).last(ended.kept.end(), moment());
        if let Some(last) = last {
            // Its receiver waits for it.
            let _ = ready.send((ended.kept, last));
        }
        drop(ready);
        Ok::<_, Failure>((ended.remark, ended.loss, ended.silent))
    });
    let (remark, loss, silent) = ended?;
    if let Some(remark) = remark {
        log::line(Level::Info, &remark);
    }
    match (loss, silent) {
        (Some(loss), Some(silent)) => {
            let text = match silent.pid {
                Some(pid) => format!("pid {pid} is left out for ten minutes at least: {loss}"),
                None => format!("nothing is recorded until the kernel answers: {loss}"),
            };
            log::line(Level::Warning, &text);
            Ok(Some(silent))
        }
        (Some(loss), None) => Err(Failure::new(Exit::Failure, anyhow::anyhow!("{loss}"))),
        (None, _) => Ok(None),
    }
}

fn lock(intervals: &Mutex<Intervals>) -> MutexGuard<'_, Intervals> {
    intervals.lock().unwrap_or_else(PoisonError::into_inner)
}
