//! Update calls as they were seen in a live process, to GCM units, frames and named shapes.
//!
//! The beginning and the end of a unit are not seen, only the calls between. In secure mode (msgr
//! v2.1) they can be found all the same, by context (one for each connection and direction):
//!
//! * Received: Ceph decrypts an emptied buffer after the last one of a unit, so a call of 0 bytes ends
//!   each unit. The first unit of a frame is `80,0`: preamble 32 and inline 48. The last unit of a
//!   longer frame ends with the epilogue: `16,0`.
//! * Sent: a frame begins with `32,48`, and a longer one ends with `16`.
//!
//! What comes before the first frame of a context, after a gap, or is cut off by the end, is counted
//! as an edge and makes no frame. Contexts that never show the beginning of a frame (cephx, TLS) are
//! counted apart. Sources: `src/msg/async/frames_v2.cc`, `crypto_onwire.cc` of Ceph.

mod name;
mod observation;
mod process;
mod split;

pub use name::{Role, frame_name};
pub use observation::{Observation, Seen, SeenCall, ShapeSeen, SideSeen, ThreadSeen};
pub use process::{BurstFacts, FrameSource, ProcessFrames, ProtocolShape, shapes_by_protocol};

#[cfg(test)]
mod tests;
