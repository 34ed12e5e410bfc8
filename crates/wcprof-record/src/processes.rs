//! Processes of a recording: those that live, and what is kept of the others.

use std::collections::BTreeMap;

use indexmap::IndexSet;
use wcprof_capture::TargetId;
use wcprof_trace::TraceSink;
use wcprof_types::Pid;

use crate::files::TargetFiles;
use crate::modules::ModuleProblem;
use crate::process::ProcessState;

/// Problems with modules that are remembered.
const MAX_PROBLEMS: usize = 256;

/// All processes of a recording.
#[derive(Default)]
pub(crate) struct Processes {
    live: BTreeMap<TargetId, Box<ProcessState>>,
    /// Files of those that have ended.
    ended: Vec<TargetFiles>,
    /// The same library in many processes is one problem.
    problems: IndexSet<ModuleProblem>,
}

impl Processes {
    pub(crate) fn add(&mut self, target: TargetId, process: ProcessState) {
        self.live.insert(target, Box::new(process));
    }

    /// The process of a target, if it has not ended.
    pub(crate) fn get_mut(&mut self, target: TargetId) -> Option<&mut ProcessState> {
        self.live.get_mut(&target).map(AsMut::as_mut)
    }

    /// The targets that have not ended.
    pub(crate) fn targets(&self) -> Vec<TargetId> {
        self.live.keys().copied().collect()
    }

    /// Pids of those that have not ended.
    pub(crate) fn pids(&self) -> Vec<Pid> {
        self.live.values().map(|process| process.pid()).collect()
    }

    pub(crate) fn n_live(&self) -> usize {
        self.live.len()
    }

    pub(crate) fn iter_mut(&mut self) -> impl Iterator<Item = (TargetId, &mut ProcessState)> {
        let live = self.live.iter_mut();
        live.map(|(id, process)| (*id, process.as_mut()))
    }

    /// Takes a process that has ended.
    pub(crate) fn remove(&mut self, target: TargetId) -> Option<ProcessState> {
        let mut process = self.live.remove(&target)?;
        self.note_problems(process.take_problems());
        Some(*process)
    }

    /// Keeps what the names of a process that has ended are found by.
    pub(crate) fn keep(&mut self, files: TargetFiles) {
        self.ended.push(files);
    }

    fn note_problems(&mut self, problems: Vec<ModuleProblem>) {
        let room = MAX_PROBLEMS.saturating_sub(self.problems.len());
        self.problems.extend(problems.into_iter().take(room));
    }

    /// Problems with modules so far.
    pub(crate) fn problems(&mut self) -> impl Iterator<Item = &ModuleProblem> {
        let live = self.live.values_mut();
        let new: Vec<_> = live.flat_map(|process| process.take_problems()).collect();
        self.note_problems(new);
        self.problems.iter()
    }

    /// Files of all processes that have an id of their own, in the order of these.
    pub(crate) fn files(&self) -> Vec<TargetFiles> {
        let live = self.live.values().filter(|process| process.fold.is_none());
        let live = live.map(|process| process.files());
        let mut files: Vec<_> = live.chain(self.ended.iter().cloned()).collect();
        files.sort_by_key(|files| files.process);
        files
    }

    /// Forgets processes that have ended and that the sink has given up. Gives how many these are.
    pub(crate) fn forget_ended(&mut self, sink: &impl TraceSink) -> usize {
        let n_before = self.ended.len();
        self.ended.retain(|files| sink.holds_process(files.process));
        n_before - self.ended.len()
    }

    /// Forgets ids of frames and stacks, and locks that nobody waits for.
    pub(crate) fn forget(&mut self) {
        for process in self.live.values_mut() {
            process.locks.forget();
            process.forget();
        }
    }
}
