//! `wcprof agent`: processes that it finds by itself, for ever, to a profile of each for every interval, in a store.
//!
//! It is a recording into the ring of the flight recorder (`keep/`): what the ring holds of an interval becomes a
//! profile of each process (`profiles.rs`), a request, and a file in the spool (`wcprof-net`), which a thread of its
//! own sends. When the last process ends, the recording does, and the next one begins with the next process.

mod args;
mod check;
mod config;
mod control;
mod figures;
mod finder;
mod identity;
mod intervals;
mod log;
mod metrics;
mod owners;
mod plan;
mod profiles;
mod pushing;
mod rates;
mod recording;
mod room;

use std::ffi::OsString;
use std::fs::{File, TryLockError};
use std::path::Path;
use std::sync::atomic::Ordering;
use std::time::Duration;

use anyhow::anyhow;
use wcprof_host::own_files::make_dir;

pub(crate) use args::AgentArgs;
use config::with_file;
use control::{Control, Order};
use finder::Finder;
use log::Level;
use plan::Plan;
use pushing::Pushing;
use recording::Shared;

use crate::failure::Failure;
use crate::message;
use crate::same_file::is_same_file;

/// What waits for the store is sent for this long at the end; the rest stays in the spool, for the next plan at once.
const LAST_PUSH: Duration = Duration::from_secs(10);
/// More than a request may take.
const LAST_REQUEST: Duration = Duration::from_secs(40);

/// Runs until a signal ends it.
pub(crate) fn run() -> Result<(), Failure> {
    let words: Vec<OsString> = std::env::args_os().collect();
    let mut plan = Plan::new(with_file(&words)?)?;
    if plan.args.check {
        return check::run(plan);
    }
    let mut state = claim(&plan.state_dir)?;
    let control = Control::new();
    let _signals = control.at_signals()?;
    let shared = Shared::default();
    metrics::serve(&plan.args.listen, &shared.figures)?;
    log::line(Level::Info, &plan.summary());
    loop {
        let order = run_plan(&plan, &control, &shared)?;
        if order == Order::Stop {
            return Ok(());
        }
        let new = with_file(&words).and_then(Plan::new).and_then(|new| {
            if !is_same_file(std::fs::metadata(&new.state_dir), state.metadata()) {
                state = claim(&new.state_dir)?;
            }
            Ok(new)
        });
        match new {
            Ok(new) => {
                plan = new;
                log::line(Level::Info, &format!("reloaded: {}", plan.summary()));
            }
            Err(failure) => {
                let text = failure.to_string();
                let text = text.trim_start_matches("wcprof: ");
                log::line(Level::Error, &format!("going on as before: {text}"));
            }
        }
    }
}

/// Makes the state folder, which is nobody else's as long as it is held open: two agents would take each other's requests.
fn claim(folder: &Path) -> Result<File, Failure> {
    let hint = "--state-dir chooses another folder";
    let opened = make_dir(folder).and_then(|()| File::open(folder));
    let opened = opened.map_err(|error| {
        let text = format!("failed to open the state folder `{}`", folder.display());
        Failure::from(anyhow::Error::from(error).context(text)).hint(hint)
    })?;
    match opened.try_lock() {
        Err(TryLockError::WouldBlock) => {
            let error = anyhow!("another agent uses the state folder `{}`", folder.display());
            Err(Failure::from(error).hint(hint))
        }
        // Some file systems have no locks.
        _ => Ok(opened),
    }
}

/// Records and pushes as planned until a signal orders something else.
fn run_plan(plan: &Plan, control: &Control, shared: &Shared) -> Result<Order, Failure> {
    let pushing = plan.store.as_ref();
    let pushing = pushing
        .map(|store| Pushing::start(store, &shared.figures))
        .transpose()?;
    let mut finder = Finder::new(
        plan.selectors.clone(),
        plan.room(),
        plan.args.sampling.max_cpu,
    );
    let order = loop {
        if let Some(order) = control.take() {
            break order;
        }
        finder.search();
        if finder.targets().is_empty() {
            control.wait(finder.pause());
            continue;
        }
        let destination = pushing.as_ref().map(Pushing::destination);
        let recorded = recording::run(plan, control, &mut finder, destination, shared);
        match recorded {
            Ok(()) => {}
            // What the user has to mend, said at once.
            Err(failure) if !shared.has_recorded.load(Ordering::Relaxed) => return Err(failure),
            Err(failure) => {
                message::line(Level::Error, &failure.to_string());
                control.wait(Duration::from_secs(5));
            }
        }
    };
    if let Some(pushing) = pushing {
        // The next plan must not send the request, too; at the end nobody waits for it.
        let (within, last) = match order {
            Order::Reload => (Duration::ZERO, LAST_REQUEST),
            Order::Stop => (LAST_PUSH, Duration::ZERO),
        };
        let must_stop = || control.must_stop();
        if !pushing.finish(within, last, must_stop) && must_stop() {
            return Ok(Order::Stop);
        }
    }
    Ok(order)
}
