//! What a sampler is made of.

use std::fmt;
use std::sync::Arc;

use super::budget::CpuBudget;
use super::clock::{DueTick, TickClock};
use super::outbox::Outbox;
use super::pulse::Pulse;
use super::targets::Targets;
use super::threads::ThreadTable;
use crate::engine::{EngineKind, SnapshotSet, Snapshots};
use wcprof_perf::{PerfSampler, Timers};

/// Timer samples that wait in the rings for other ticks, all of which can be in one: half of its room.
const MAX_HELD_SAMPLES: u32 = 7;

/// Where kernel stacks of blocked threads come from.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub(super) enum KernelSource {
    /// They are not wanted.
    None,
    /// Of threads without a user stack alone, from `/proc`; where such threads come later, `wchan` is all that can
    /// be read.
    Workers,
    /// The engine gives addresses with its snapshots.
    Engine,
    /// `/proc/PID/task/TID/stack` or `wchan`, once a thread that has run.
    Procfs,
}

/// Ticks whose snapshots are still to be read.
#[derive(Debug, Default)]
pub(super) struct HeldTicks {
    pub(super) ticks: Vec<DueTick>,
    /// Until then ticks with timer samples are read at once, since there were deep ones.
    pub(super) deep_until: u64,
}

impl HeldTicks {
    /// Timer samples at which the ticks are to be read.
    pub(super) fn max_samples(&self, now: u64) -> u32 {
        match now < self.deep_until {
            true => 1,
            false => MAX_HELD_SAMPLES,
        }
    }
}

/// A sampler that is ready to run.
pub struct Sampler {
    pub(super) engine: EngineKind,
    pub(super) notes: Vec<String>,
    pub(super) snapshots: Box<dyn Snapshots>,
    /// Timers of running threads.
    pub(super) perf: Option<PerfSampler>,
    pub(super) kernel: KernelSource,
    pub(super) targets: Targets,
    pub(super) threads: ThreadTable,
    pub(super) budget: CpuBudget,
    pub(super) clock: TickClock,
    pub(super) held: HeldTicks,
    /// The snapshot of this tick.
    pub(super) set: SnapshotSet,
    pub(super) outbox: Outbox,
}

impl fmt::Debug for Sampler {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Sampler")
            .field("targets", &self.targets)
            .field("engine", &self.engine)
            .field("notes", &self.notes)
            .finish_non_exhaustive()
    }
}

impl Sampler {
    /// The engine in use.
    pub fn engine(&self) -> EngineKind {
        self.engine
    }

    /// Whether kernel stacks are read from `/proc`.
    pub fn reads_kernel_stacks(&self) -> bool {
        matches!(self.kernel, KernelSource::Procfs | KernelSource::Workers)
    }

    /// What another thread watches while it runs.
    pub fn pulse(&self) -> Arc<Pulse> {
        Arc::clone(&self.targets.pulse)
    }

    /// Its timers: they are to be stopped where it does not get on.
    pub fn timers(&self) -> Timers {
        let timers = self.perf.as_ref().map(PerfSampler::timers);
        timers.unwrap_or_default()
    }

    /// Whether batches have the kernel's part of user stacks.
    pub fn has_kernel_stacks(&self) -> bool {
        matches!(self.kernel, KernelSource::Engine | KernelSource::Procfs)
    }

    /// Files of modules that may be held open, for all processes.
    pub fn module_files(&self) -> usize {
        self.targets.room.module_files
    }

    /// Remarks on this recording: why a better engine is not used, what is missing.
    pub fn notes(&self) -> &[String] {
        &self.notes
    }
}
