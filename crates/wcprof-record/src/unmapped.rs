//! Frames outside of every module to the process whose code they are.

use std::collections::HashMap;

use wcprof_trace::model::{FrameId, ProcessId};

/// Whose the frames outside of every module are: an address can mean different code in two processes.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct UnmappedFrames(HashMap<FrameId, Option<ProcessId>>);

impl UnmappedFrames {
    /// Notes a frame of a process; `None` for one of several that are one in the trace.
    pub(crate) fn note(&mut self, frame: FrameId, process: Option<ProcessId>) {
        let owner = self.0.entry(frame).or_insert(process);
        if *owner != process {
            *owner = None;
        }
    }

    /// Forgets frames.
    pub(crate) fn retain(&mut self, holds: impl Fn(FrameId) -> bool) {
        self.0.retain(|frame, _| holds(*frame));
    }

    /// The same by other numbers of frames and processes; those that have none are left out.
    pub fn renumbered(
        &self,
        frame: impl Fn(FrameId) -> Option<FrameId>,
        process: impl Fn(ProcessId) -> Option<ProcessId>,
    ) -> Self {
        let moved = self
            .0
            .iter()
            .filter_map(|(id, owner)| Some((frame(*id)?, owner.and_then(&process))));
        Self(moved.collect())
    }

    /// The process whose stacks have the frame, if it is one alone.
    pub fn owner(&self, frame: FrameId) -> Option<ProcessId> {
        self.0.get(&frame).copied().flatten()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Check that a frame of one process has an owner, and one of two has none.
    #[test]
    fn owners() {
        let mut frames = UnmappedFrames::default();
        for (frame, process) in [(1, 0), (1, 0), (2, 0), (2, 1), (2, 0)] {
            frames.note(FrameId(frame), Some(ProcessId(process)));
        }
        assert_eq!(frames.owner(FrameId(1)), Some(ProcessId(0)));
        assert_eq!(frames.owner(FrameId(2)), None);
        assert_eq!(frames.owner(FrameId(3)), None);
        frames.note(FrameId(1), None);
        assert_eq!(frames.owner(FrameId(1)), None);
    }
}
