//! Frames outside of every module to the process whose code they are, and where it is.

use std::collections::HashMap;
use std::fmt;
use std::ops::Range;
use std::sync::Arc;

use wcprof_trace::model::{FrameId, ProcessId};
use wcprof_types::Avma;

/// Frames outside of every module: whose and where each is, since an address can mean different code in two processes.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct UnmappedFrames(HashMap<FrameId, Place>);

#[derive(Clone, PartialEq, Eq, Debug)]
struct Place {
    owner: Option<ProcessId>,
    /// Where the frame was when its first stack had it.
    code: Option<CodePlace>,
}

/// Executable memory of no module.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum CodePlace {
    /// A mapping of no file.
    Memory(Range<Avma>),
    /// The path of a file that is no ELF file.
    File(Arc<str>),
}

/// As in `[code in PLACE]`.
impl fmt::Display for CodePlace {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Memory(range) => write!(f, "{:#x}-{:#x}", range.start.0, range.end.0),
            Self::File(path) => f.write_str(path),
        }
    }
}

impl UnmappedFrames {
    /// Notes a frame of a process and where it is; `None` for one of several that are one in the trace.
    pub(crate) fn note(
        &mut self,
        frame: FrameId,
        process: Option<ProcessId>,
        code: Option<CodePlace>,
    ) {
        let place = self.0.entry(frame).or_insert(Place {
            owner: process,
            code,
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
                code: place.code.clone(),
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
    pub fn code(&self, frame: FrameId) -> Option<&CodePlace> {
        self.0.get(&frame)?.code.as_ref()
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
