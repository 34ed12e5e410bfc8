//! Processes that are recorded to what they count of their own work, and KVM of their virtual machines: asked once a
//! second, on a thread that neither samples nor records.

use std::sync::Arc;
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, channel};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use serde_json::{Map, Value};
use wcprof_capture::TargetId;
use wcprof_host::clock::monotonic_ns;
use wcprof_host::counters::{CephDaemon, Counters, KvmStats, NoAnswer};
use wcprof_host::{Liveness, Target};
use wcprof_record::Recorder;
use wcprof_text::{count, printable_json, terminal_name};
use wcprof_trace::{TraceError, TraceSink};
use wcprof_types::Pid;

use crate::failure::Failure;
use crate::vm_exits::CountedExits;

/// How often processes are asked: each time costs one of their threads about a millisecond.
const EVERY: Duration = Duration::from_secs(1);
/// One that did not answer is left in peace for this long: its queue holds five questions.
const PAUSE: Duration = Duration::from_secs(60);
/// The last answers are waited for this long.
const LAST: Duration = Duration::from_secs(3);
/// Processes whose reason is said.
const MAX_SAID: usize = 5;

/// Who can be asked.
#[derive(Default)]
pub(crate) struct Daemons(Vec<Daemon>);

struct Daemon {
    id: TargetId,
    target: Arc<Target>,
    socket: Option<CephDaemon>,
    exits: Option<VmExits>,
    not_before: Option<Instant>,
    /// Why it did not answer the first time.
    failure: Option<String>,
}

/// Where exits of virtual machines are counted.
enum VmExits {
    /// By KVM, all of them.
    Stats(KvmStats),
    /// By wcprof, in bursts.
    Bursts(CountedExits),
}

impl VmExits {
    /// `None` for a process without a virtual machine.
    fn find(pid: Pid) -> Result<Option<Self>, String> {
        let no_stats = match KvmStats::find(pid) {
            Ok(stats) => return Ok(stats.map(Self::Stats)),
            Err(reason) => reason,
        };
        let exits = CountedExits::find(pid).map_err(|reason| format!("{no_stats}; {reason}"))?;
        Ok(exits.map(Self::Bursts))
    }

    fn counters(&mut self) -> Counters {
        match self {
            Self::Stats(stats) => stats.counters(),
            Self::Bursts(exits) => exits.counters(),
        }
    }
}

/// What one process said.
struct Answer {
    from: TargetId,
    /// `CLOCK_MONOTONIC`, ns.
    time: u64,
    counters: Counters,
}

/// Asks while a recording runs.
pub(crate) struct Counting {
    /// The first word begins it; that there is no more of them ends it.
    begin: Option<Sender<()>>,
    has_begun: bool,
    answers: Receiver<Answer>,
    /// Gives who did not answer, and why.
    thread: JoinHandle<Vec<String>>,
}

impl Daemons {
    /// Asks all targets once, if they are to be asked, and says which do not answer and why. What KVM counts needs no asking.
    /// `None` if there is nothing of any.
    pub(crate) fn find(targets: &[Arc<Target>], are_asked: bool) -> Option<Self> {
        let mut found = Vec::new();
        let mut n_silent = 0;
        for (id, target) in (0..).map(TargetId).zip(targets) {
            let socket = match are_asked.then(|| CephDaemon::find(target.pid())) {
                None => None,
                Some(Ok((socket, _))) => Some(socket),
                Some(Err(error)) => {
                    n_silent += 1;
                    if n_silent <= MAX_SAID {
                        message!("wcprof: {}", silence(target, &error));
                    }
                    None
                }
            };
            let exits = VmExits::find(target.pid()).unwrap_or_else(|reason| {
                let (title, pid) = (terminal_name(target.title()), target.pid());
                message!("wcprof: no VM exits by reason of {title} (pid {pid}): {reason}");
                None
            });
            if socket.is_some() || exits.is_some() {
                found.push(Daemon {
                    id,
                    target: Arc::clone(target),
                    socket,
                    exits,
                    not_before: None,
                    failure: None,
                });
            }
        }
        if n_silent > MAX_SAID {
            let n = count(n_silent - MAX_SAID, "other process");
            message!("wcprof: no counters of {n}");
        }
        let mut bursts: Vec<&mut CountedExits> = (found.iter_mut())
            .filter_map(|daemon| match &mut daemon.exits {
                Some(VmExits::Bursts(exits)) => Some(exits),
                _ => None,
            })
            .collect();
        let n = u32::try_from(bursts.len()).unwrap_or(u32::MAX);
        bursts.iter_mut().for_each(|exits| exits.share_among(n));
        (!found.is_empty()).then_some(Self(found))
    }

    /// Asks from the first [`Counting::take`] on.
    pub(crate) fn start(mut self) -> Result<Counting, Failure> {
        let (begin, begun) = channel();
        let (answers_to, answers) = channel();
        let run = move || -> Vec<String> {
            let mut next = begun.recv().map_err(|_| RecvTimeoutError::Disconnected);
            loop {
                for daemon in &mut self.0 {
                    // A recording that has failed takes no more.
                    let _ = daemon.ask().map(|answer| answers_to.send(answer));
                }
                if next == Err(RecvTimeoutError::Disconnected) {
                    return self
                        .0
                        .into_iter()
                        .filter_map(|daemon| daemon.failure)
                        .collect();
                }
                next = begun.recv_timeout(EVERY);
            }
        };
        let thread = thread::Builder::new().name("wcprof-counters".to_owned());
        Ok(Counting {
            begin: Some(begin),
            has_begun: false,
            answers,
            thread: thread.spawn(run)?,
        })
    }
}

impl Daemon {
    fn ask(&mut self) -> Option<Answer> {
        let before = monotonic_ns();
        let mut counters = self.ask_socket().unwrap_or_default();
        counters.extend(self.exits.iter_mut().flat_map(VmExits::counters));
        (!counters.is_empty()).then(|| Answer {
            from: self.id,
            // It counted somewhere in between.
            time: before.midpoint(monotonic_ns()),
            counters,
        })
    }

    fn ask_socket(&mut self) -> Option<Counters> {
        let socket = self.socket.as_ref()?;
        if self.not_before.is_some_and(|time| Instant::now() < time) {
            return None;
        }
        match socket.counters() {
            Ok(counters) => Some(counters),
            Err(error) => {
                self.not_before = Some(Instant::now() + PAUSE);
                // One that has ended is no news.
                if self.failure.is_none() && self.target.liveness() == Liveness::Same {
                    self.failure = Some(silence(&self.target, &error));
                }
                None
            }
        }
    }
}

impl Counting {
    /// Hands over what was answered; the first call begins to ask.
    pub(crate) fn take<S: TraceSink>(&mut self, to: &mut Recorder<S>) -> Result<(), TraceError> {
        if let Some(begin) = self.begin.as_ref().filter(|_| !self.has_begun) {
            self.has_begun = true;
            // A thread that has panicked leaves a recording without counters.
            let _ = begin.send(());
        }
        let mut answers = self.answers.try_iter();
        answers.try_for_each(|answer| answer.put(to))
    }

    /// Asks a last time, and hands over what is answered in time. Gives who did not answer, and why.
    pub(crate) fn finish<S: TraceSink>(
        mut self,
        to: &mut Recorder<S>,
    ) -> Result<Vec<String>, TraceError> {
        self.begin = None;
        let until = Instant::now() + LAST;
        loop {
            let rest = until.saturating_duration_since(Instant::now());
            match self.answers.recv_timeout(rest) {
                Ok(answer) => answer.put(to)?,
                Err(RecvTimeoutError::Disconnected) => {
                    return Ok(self.thread.join().unwrap_or_default());
                }
                // It is left behind.
                Err(RecvTimeoutError::Timeout) => {
                    return Ok(vec![
                        "the last counters were not answered in time".to_owned(),
                    ]);
                }
            }
        }
    }
}

impl Answer {
    fn put<S: TraceSink>(&self, to: &mut Recorder<S>) -> Result<(), TraceError> {
        to.counters(self.from, self.time, &self.counters)
    }
}

/// The operations that OSDs remember as slow, as JSON; `None` if none of the processes says anything.
pub(crate) fn slow_ops(targets: &[Arc<Target>]) -> Option<String> {
    let answers = targets.iter().filter_map(|target| {
        let (daemon, _) = CephDaemon::find(target.pid()).ok()?;
        // Others do not know the question.
        let answer = daemon.slow_ops().ok()?;
        let answer: Value = serde_json::from_slice(&answer).ok()?;
        let name = format!("{} (pid {})", target.title(), target.pid());
        Some((name, answer))
    });
    let answers: Map<String, Value> = answers.collect();
    match answers.is_empty() {
        true => None,
        false => printable_json(&answers).ok(),
    }
}

/// Why there is nothing of a process.
fn silence(target: &Target, error: &NoAnswer) -> String {
    let (title, pid) = (target.title(), target.pid());
    let text = format!("no counters of {title} (pid {pid}): {error}");
    terminal_name(&text).into_owned()
}
