//! Frames of msgr v2 in secure mode, as bytes on the wire: layout, encryption, decryption.
//!
//! Two revisions are in use. In msgr v2.0 ([`Revision::V20`]) a frame is one AES-128-GCM message with one
//! nonce and one tag:
//!
//! ```text
//! { preamble 32 | segments, each padded to 16 | epilogue 16 } tag 16
//! ```
//!
//! In msgr v2.1 ([`Revision::V21`]) it is up to three, each with a nonce and a tag of its own:
//!
//! ```text
//! A  { preamble 32 | first 48 bytes of segment 0, padded } tag
//! B  { rest of segment 0 } tag                                 if it has more than 48 bytes
//! C  { segments 1.. padded | epilogue 16 } tag                 if there is more than one segment
//! ```
//!
//! Source: Ceph 18.2.7, `src/msg/async/frames_v2.{h,cc}`, `crypto_onwire.{h,cc}`, `doc/dev/msgr2.rst`.

mod crc32c;
mod error;
mod gcm;
mod layout;
mod nonce;
mod open;
mod preamble;
mod seal;

pub use error::{FrameError, SealError};
pub use layout::Layout;
pub use nonce::{NonceSequence, OutOfNonces};
pub use open::Opener;
pub use seal::{Sealed, Sealer};

/// Bytes of a key.
pub const KEY_BYTES: usize = 16;
/// Bytes of a nonce.
pub const NONCE_BYTES: usize = 12;
/// Bytes of a tag.
pub const TAG_BYTES: usize = 16;
/// Segments and epilogues are padded to this.
pub const BLOCK_BYTES: usize = 16;
/// `preamble_block_t`.
pub const PREAMBLE_BYTES: usize = 32;
/// `FRAME_PREAMBLE_INLINE_SIZE`: bytes of segment 0 that travel with the preamble of msgr v2.1.
pub const INLINE_BYTES: usize = 48;
/// `epilogue_secure_rev0_block_t`, `epilogue_secure_rev1_block_t`.
pub const EPILOGUE_BYTES: usize = 16;
/// `MAX_NUM_SEGMENTS`: header, front, middle, data.
pub const MAX_SEGMENTS: usize = 4;
/// Alignments of the segments of a message: where a receiver places them in memory.
pub const MESSAGE_ALIGNMENTS: [u16; MAX_SEGMENTS] = [8, 8, 8, 4096];

/// Which form of secure mode.
#[derive(Copy, Clone, PartialEq, Eq, Hash, Debug)]
pub enum Revision {
    /// msgr v2.0: one GCM message a frame.
    V20,
    /// msgr v2.1 (Ceph 15.2.5 and later): up to three.
    V21,
}

/// Part of a frame.
#[derive(Clone, PartialEq, Eq, Default, Debug)]
pub struct Segment {
    /// Its bytes, without padding.
    pub data: Vec<u8>,
    /// How a receiver aligns it.
    pub align: u16,
}

/// A frame before encryption and after decryption.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Frame {
    /// What it is (`ceph::msgr::v2::Tag`); 17 is a message.
    pub tag: u8,
    /// One to four; empty ones at the end are not sent.
    pub segments: Vec<Segment>,
    /// `FRAME_EARLY_*` flags of the preamble.
    pub flags: u8,
}

impl Frame {
    /// A message: header, front, middle and data, with their alignments.
    pub fn message(segments: [Vec<u8>; MAX_SEGMENTS]) -> Self {
        let segments = segments.into_iter().zip(MESSAGE_ALIGNMENTS);
        let mut frame = Self {
            tag: 17,
            segments: segments
                .map(|(data, align)| Segment { data, align })
                .collect(),
            flags: 0,
        };
        frame.drop_empty();
        frame
    }

    /// Leaves empty segments at the end out, as a sender does; the first one stays.
    pub fn drop_empty(&mut self) {
        while self.segments.len() > 1 && self.segments.last().is_some_and(|s| s.data.is_empty()) {
            self.segments.pop();
        }
    }
}

#[cfg(test)]
mod tests;
