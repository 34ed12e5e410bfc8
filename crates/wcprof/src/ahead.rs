//! Names that are looked up while a recording runs, so that few are missing at its end. What is found goes into
//! the cache of names; the CPU time for it is what `--max-cpu` leaves, and only what nobody else wants.

use std::path::{Path, PathBuf};
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};
use std::thread::JoinHandle;
use std::time::Instant;

use wcprof_host::clock::{children_cpu_ns, own_cpu_ns};
use wcprof_record::{Recorder, TargetFiles};
use wcprof_symbols::{Cancel, Inlines, SymbolOptions};
use wcprof_trace::TraceSink;

use crate::args::SymbolArgs;
use crate::confined::Pace;
use crate::names;
use crate::open::tables_so_far;

/// When names are looked up for the first time, ns of the recording; then whenever it is twice as long.
const FIRST_NS: u64 = 5_000_000_000;
/// CPUs at a time; with less a look-up would hardly end.
const MIN_SHARE: f64 = 0.02;

/// What is to be looked up, and how.
#[derive(Debug)]
pub(crate) struct Ahead {
    args: SymbolArgs,
    options: SymbolOptions,
    /// CPUs that wcprof may take at a time.
    max_share: f64,
    begin: Instant,
    end: Cancel,
}

impl Ahead {
    /// `None` where nothing would be kept, or nothing takes long.
    pub(crate) fn new(
        args: &SymbolArgs,
        options: SymbolOptions,
        max_cpu_percent: u32,
    ) -> Option<Self> {
        let is_worth_it = options.cache.is_some() && options.inlines == Inlines::All;
        let end = Cancel::default();
        is_worth_it.then(|| Self {
            args: args.clone(),
            options: SymbolOptions {
                cancel: end.clone(),
                progress: None,
                // A server may take long, and nobody waits for it now.
                debuginfod: None,
                ..options
            },
            max_share: f64::from(max_cpu_percent) / 100.0,
            begin: Instant::now(),
            end,
        })
    }

    /// Looks up the names of a trace that is being written each time that the files of its processes come.
    fn run(self, trace: &Path, files: &Receiver<Vec<TargetFiles>>) {
        for files in files {
            // Look-ups before this one, too.
            let taken = own_cpu_ns() + children_cpu_ns();
            let taken = taken as f64 / self.begin.elapsed().as_nanos().max(1) as f64;
            let share = self.max_share - taken;
            let Ok(tables) = tables_so_far(trace) else {
                continue;
            };
            if share >= MIN_SHARE {
                let pace = Pace {
                    since: self.begin,
                    share,
                };
                // What is missing is looked up, and said, at the end.
                let _ = names::ahead(&tables, &files, &self.args, &self.options, pace);
            }
        }
    }
}

/// Tells when names are due.
#[derive(Debug)]
pub(crate) struct Due {
    files: SyncSender<Vec<TargetFiles>>,
    begin: Option<u64>,
    next: u64,
}

impl Due {
    pub(crate) fn channel() -> (Self, Receiver<Vec<TargetFiles>>) {
        let (sender, receiver) = sync_channel(1);
        let due = Self {
            files: sender,
            begin: None,
            next: FIRST_NS,
        };
        (due, receiver)
    }

    /// Hands over the files of the recorded processes when it is time, `CLOCK_MONOTONIC` ns.
    pub(crate) fn note<S: TraceSink>(&mut self, recorder: &Recorder<S>, time: u64) {
        if self.is_now(time) {
            // A look-up that still goes on is worth as much.
            let _ = self.files.try_send(recorder.files());
        }
    }

    fn is_now(&mut self, time: u64) -> bool {
        let recorded = time.saturating_sub(*self.begin.get_or_insert(time));
        let is_now = recorded >= self.next;
        while self.next <= recorded {
            self.next *= 2;
        }
        is_now
    }
}

/// Look-ups that go on beside a recording.
#[derive(Debug)]
pub(crate) struct Running {
    thread: JoinHandle<()>,
    end: Cancel,
}

impl Running {
    pub(crate) fn start(
        ahead: Ahead,
        trace: PathBuf,
        files: Receiver<Vec<TargetFiles>>,
    ) -> std::io::Result<Self> {
        let end = ahead.end.clone();
        let thread = std::thread::Builder::new()
            .name("wcprof-ahead".to_owned())
            .spawn(move || ahead.run(&trace, &files))?;
        Ok(Self { thread, end })
    }

    /// Ends what has not ended when the recording has.
    pub(crate) fn end(self) {
        self.end.cancel();
        // Without it all names are looked up now.
        let _ = self.thread.join();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Check that names are due at 5 s, 10 s, 20 s and so on, once where ticks were missed.
    #[test]
    fn due() {
        let (mut due, _files) = Due::channel();
        let seconds = [100, 104, 105, 106, 109, 110, 119, 120, 500, 501];
        let times = seconds
            .into_iter()
            .filter(|s| due.is_now(s * 1_000_000_000));
        assert_eq!(times.collect::<Vec<u64>>(), [105, 110, 120, 500]);
    }
}
