//! Frames outside of every module to the process whose code they are.

use std::collections::HashMap;
use std::ops::Range;

use wcprof_trace::model::{FrameId, ProcessId};
use wcprof_types::Avma;

/// Whose the frames outside of every module are, and in which mapping: an address can mean different code in two processes.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct UnmappedFrames(HashMap<FrameId, Place>);

#[derive(Clone, PartialEq, Eq, Debug)]
struct Place {
    owner: Option<ProcessId>,
    /// Executable memory that it was in when it was first seen.
    mapping: Option<Range<Avma>>,
}

impl UnmappedFrames {
    /// Notes a frame of a process, and the mapping that it is in; `None` for one of several that are one in the trace.
    pub(crate) fn note(
        &mut self,
        frame: FrameId,
        process: Option<ProcessId>,
        mapping: Option<Range<Avma>>,
    ) {
        let place = self.0.entry(frame).or_insert(Place {
            owner: process,
            mapping,
        });
        if place.owner != process {
            place.owner = None;
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
        let moved = self.0.iter().filter_map(|(id, place)| {
            let place = Place {
                owner: place.owner.and_then(&process),
                mapping: place.mapping.clone(),
            };
            Some((frame(*id)?, place))
        });
        Self(moved.collect())
    }

    /// The process whose stacks have the frame, if it is one alone.
    pub fn owner(&self, frame: FrameId) -> Option<ProcessId> {
        self.0.get(&frame)?.owner
    }

    /// The executable memory that the frame is in.
    pub fn mapping(&self, frame: FrameId) -> Option<Range<Avma>> {
        self.0.get(&frame)?.mapping.clone()
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
            frames.note(FrameId(frame), Some(ProcessId(process)), None);
        }
        assert_eq!(frames.owner(FrameId(1)), Some(ProcessId(0)));
        assert_eq!(frames.owner(FrameId(2)), None);
        assert_eq!(frames.owner(FrameId(3)), None);
        frames.note(FrameId(1), None, None);
        assert_eq!(frames.owner(FrameId(1)), None);
    }
}
