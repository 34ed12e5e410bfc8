//! The frames of a process: those that a burst of breakpoints saw, or those that it has by the protocol.

use serde::Serialize;

use super::name::Role;
use super::observation::Observation;
use crate::shapes::{Shape, Side, builtin};

/// Shapes of an observation that the model is asked about.
const MAX_SHAPES: usize = 40;

/// A process and its frames.
#[derive(Debug, Serialize)]
pub struct ProcessFrames {
    /// The process.
    pub pid: i32,
    /// What a user calls it: `osd.3`.
    pub process: String,
    /// What it is to the protocol.
    #[serde(skip)]
    pub role: Role,
    /// Where the shapes come from.
    #[serde(flatten)]
    pub source: FrameSource,
}

/// Where shapes come from.
#[derive(Debug, Serialize)]
#[serde(tag = "source", rename_all = "lowercase")]
pub enum FrameSource {
    /// Its calls were seen.
    Live {
        /// How they were seen.
        burst: Box<BurstFacts>,
        /// What was seen.
        observation: Box<Observation>,
    },
    /// Its calls were not seen: the frames that other clusters send by the protocol.
    Protocol {
        /// Why nothing was seen.
        reason: String,
        /// The frames.
        shapes: Vec<ProtocolShape>,
    },
}

/// A frame that such a process has by the protocol.
#[derive(Clone, PartialEq, Eq, Debug, Serialize)]
pub struct ProtocolShape {
    /// Its name.
    pub name: String,
    /// Its direction.
    pub side: Side,
    /// Its calls, in the notation of shapes.
    pub calls: String,
    /// Where the sizes come from.
    pub origin: String,
}

/// A burst of breakpoints and its cost.
#[derive(Clone, PartialEq, Default, Debug, Serialize)]
pub struct BurstFacts {
    /// Files with OpenSSL that were probed, by their paths in the target.
    pub libraries: Vec<String>,
    /// How long calls were seen, seconds.
    pub seconds: f64,
    /// How long breakpoints were in the target, seconds.
    pub trapped_seconds: f64,
    /// Threads observed.
    pub n_threads: usize,
    /// Threads of the process that were not: other names, or too many.
    pub n_threads_not_observed: usize,
    /// Threads started meanwhile.
    pub n_threads_born: usize,
    /// Calls that the kernel counted.
    pub n_hits: u64,
    /// Of these, calls without a sample.
    pub n_missing: u64,
    /// Records that were not understood.
    pub n_malformed: u64,
    /// `time`, `full` or `exited`.
    pub end: &'static str,
    /// `verified`, `exited`, `unknown` or `differs`.
    pub removal: &'static str,
    /// Nanoseconds that a call took longer, measured on wcprof itself.
    pub ns_per_hit: f64,
    /// The same while the breakpoints are put in and out and calls are not seen.
    pub ns_per_silent_hit: f64,
    /// CPU time that the burst cost the target, seconds.
    pub cost_seconds: f64,
}

impl ProcessFrames {
    /// A process whose calls were not seen.
    pub fn by_protocol(pid: i32, process: &str, role: Role, reason: &str) -> Self {
        let shapes = shapes_by_protocol(role).into_iter();
        let shapes = shapes.map(|shape| ProtocolShape {
            calls: shape.notation(),
            name: shape.name,
            side: shape.side,
            origin: shape.source,
        });
        Self {
            pid,
            process: process.to_owned(),
            role,
            source: FrameSource::Protocol {
                reason: reason.to_owned(),
                shapes: shapes.collect(),
            },
        }
    }

    /// Shapes for the model: those seen, or those that such a process has by the protocol.
    pub fn shapes(&self) -> Vec<Shape> {
        match &self.source {
            FrameSource::Live { observation, .. } => observation.model_shapes(MAX_SHAPES),
            FrameSource::Protocol { .. } => shapes_by_protocol(self.role),
        }
    }
}

/// The built-in frames that a process of this role sends and receives.
pub fn shapes_by_protocol(role: Role) -> Vec<Shape> {
    let mut shapes = builtin();
    shapes.retain(|shape| {
        let is_reply = shape.name.contains("reply");
        match (role, shape.side) {
            (Role::Client, Side::Rx) | (Role::Osd, Side::Tx) => is_reply,
            (Role::Client, Side::Tx) | (Role::Osd, Side::Rx) => !is_reply,
            (Role::Other, _) => true,
        }
    });
    shapes
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Check that a client receives replies and sends requests, an OSD the other way, and others both.
    #[test]
    fn roles() {
        let names = |comm: &str, side| {
            let shapes = ProcessFrames::by_protocol(1, comm, Role::of_process(comm), "");
            let shapes = shapes.shapes().into_iter();
            let of_side = shapes.filter(|shape| shape.side == side);
            of_side.map(|shape| shape.name).collect::<Vec<_>>()
        };
        let are_replies = |names: Vec<String>| names.iter().all(|name| name.contains("reply"));
        assert!(are_replies(names("qemu-system-x86", Side::Rx)));
        assert!(are_replies(names("ceph-osd", Side::Tx)));
        assert!(!are_replies(names("qemu-system-x86", Side::Tx)));
        let all = ProcessFrames::by_protocol(1, "mon.a", Role::of_process("ceph-mon"), "").shapes();
        assert_eq!(all.len(), builtin().len());
    }
}
