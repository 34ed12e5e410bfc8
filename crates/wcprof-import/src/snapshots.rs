//! Stacks of threads at a moment, without any time, to a trace of snapshots.
//!
//! A thread weighs [`SNAPSHOT_NS`] in each snapshot that it is in, so that threads on average are threads in a snapshot. The
//! header says how many snapshots there are, and that is how views know that no weight is time.

use std::collections::HashMap;

use indexmap::IndexMap;
use wcprof_trace::model::{ProcessId, SNAPSHOT_NS, Span, ThreadId, Trace};
use wcprof_types::{Pid, StackEnd, ThreadState, Tid, TimeNs};

use crate::builder::Builder;
use crate::error::{ImportError, Result};
use crate::options::Options;
use crate::waits;

/// Most snapshots: one a second for a day.
const MAX_SNAPSHOTS: u64 = 1 << 17;

/// A thread as a dump names it.
#[derive(Clone, PartialEq, Eq, Hash, Debug, Default)]
pub(crate) struct DumpedThread {
    /// Of its process; 0 if the dump does not say.
    pub(crate) pid: i32,
    /// LWP; without one, the number that the debugger gave it.
    pub(crate) tid: i32,
    /// Empty if the dump does not say.
    pub(crate) comm: String,
}

/// A trace of snapshots under construction.
pub(crate) struct DumpTrace {
    pub(crate) builder: Builder,
    processes: HashMap<i32, ProcessId>,
    /// By pid and tid, with the snapshots that it is in.
    threads: IndexMap<(i32, i32), (ThreadId, u64)>,
}

impl DumpTrace {
    pub(crate) fn new(engine: &str, options: &Options) -> Self {
        Self {
            builder: Builder::new(engine, options),
            processes: HashMap::new(),
            threads: IndexMap::new(),
        }
    }

    /// Adds the stack of a thread; one that was seen before is in another snapshot now.
    pub(crate) fn add<'a>(
        &mut self,
        thread: &DumpedThread,
        root_first: impl IntoIterator<Item = &'a str>,
        end: StackEnd,
    ) -> Result<()> {
        let builder = &mut self.builder;
        let process = match self.processes.get(&thread.pid) {
            Some(&known) => known,
            None => {
                let new = builder.process(Pid(thread.pid), "imported")?;
                self.processes.insert(thread.pid, new);
                new
            }
        };
        let key = (thread.pid, thread.tid);
        let (id, n_before) = match self.threads.get(&key) {
            Some(&known) => known,
            None => {
                let comm = Some(thread.comm.as_str()).filter(|comm| !comm.is_empty());
                let comm = comm.unwrap_or("imported");
                (builder.thread(process, Tid(thread.tid.max(1)), comm)?, 0)
            }
        };
        if n_before >= MAX_SNAPSHOTS {
            let (what, limit) = ("the number of snapshots", MAX_SNAPSHOTS);
            return Err(ImportError::TooLarge { what, limit });
        }
        self.threads.insert(key, (id, n_before + 1));
        let frames = root_first.into_iter().map(|name| builder.named(name));
        let frames = frames.collect::<Result<Vec<_>, _>>()?;
        let stack = builder.stack(frames, end)?;
        *builder.trace.tables.stats.ends.entry(end).or_default() += 1;
        let start = n_before * SNAPSHOT_NS;
        builder.trace.tables.threads[id.0 as usize].end = TimeNs(start + SNAPSHOT_NS);
        builder.span(Span {
            thread: id,
            start: TimeNs(start),
            end: TimeNs(start + SNAPSHOT_NS),
            weight: SNAPSHOT_NS,
            n_samples: 1,
            state: ThreadState::Unknown,
            wait: None,
            stack: Some(stack),
        })
    }

    /// The trace, in which functions that block are waits.
    pub(crate) fn finish(mut self, none: &str) -> Result<Trace> {
        let snapshots = self.threads.values().map(|(_, n)| *n).max();
        let Some(n) = snapshots else {
            return Err(ImportError::NoSamples(none.to_owned()));
        };
        self.builder.trace.tables.header.n_snapshots = u32::try_from(n).unwrap_or(u32::MAX);
        self.builder.note(
            "figures count threads, and no time: the text has stacks at a moment; a thread waits where its innermost function is a \
             call that blocks, else its state is unknown",
        );
        let mut trace = self.builder.finish(n * SNAPSHOT_NS);
        waits::guess_waits(&mut trace);
        Ok(trace)
    }
}
