//! `preamble_block_t` to what it says, and back.

use super::crc32c::crc32c;
use super::{FrameError, MAX_SEGMENTS, PREAMBLE_BYTES};

/// Bytes that the checksum covers.
const CHECKED_BYTES: usize = PREAMBLE_BYTES - 4;
/// Where flags and checksum are: behind tag, number and four segments of six bytes.
const FLAGS_AT: usize = 2 + 6 * MAX_SEGMENTS;

/// What a preamble says.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) struct Preamble {
    pub(super) tag: u8,
    /// Length and alignment of each segment.
    pub(super) segments: Vec<(u32, u16)>,
    pub(super) flags: u8,
}

impl Preamble {
    pub(super) fn encode(&self) -> [u8; PREAMBLE_BYTES] {
        let mut bytes = [0; PREAMBLE_BYTES];
        bytes[0] = self.tag;
        bytes[1] = self.segments.len() as u8;
        let places = bytes[2..FLAGS_AT].chunks_exact_mut(6);
        for (place, (len, align)) in places.zip(&self.segments) {
            place[..4].copy_from_slice(&len.to_le_bytes());
            place[4..].copy_from_slice(&align.to_le_bytes());
        }
        bytes[FLAGS_AT] = self.flags;
        let crc = crc32c(&bytes[..CHECKED_BYTES]);
        bytes[CHECKED_BYTES..].copy_from_slice(&crc.to_le_bytes());
        bytes
    }

    /// Whether the checksum is right.
    pub(super) fn is_intact(bytes: &[u8; PREAMBLE_BYTES]) -> bool {
        let crc = crc32c(&bytes[..CHECKED_BYTES]);
        bytes[CHECKED_BYTES..] == crc.to_le_bytes()
    }

    pub(super) fn decode(bytes: &[u8; PREAMBLE_BYTES], limit: usize) -> Result<Self, FrameError> {
        if !Self::is_intact(bytes) {
            return Err(FrameError::Malformed("wrong checksum of the preamble"));
        }
        let n_segments = usize::from(bytes[1]);
        if n_segments == 0 || n_segments > MAX_SEGMENTS {
            return Err(FrameError::Malformed("number of segments not 1 to 4"));
        }
        let mut segments = Vec::with_capacity(n_segments);
        for (index, place) in bytes[2..FLAGS_AT].chunks_exact(6).enumerate() {
            let len = u32::from_le_bytes([place[0], place[1], place[2], place[3]]);
            let align = u16::from_le_bytes([place[4], place[5]]);
            if index >= n_segments {
                break;
            }
            if len as usize > limit {
                return Err(FrameError::Oversized {
                    index,
                    bytes: len as usize,
                    limit,
                });
            }
            segments.push((len, align));
        }
        if n_segments > 1 && segments.last().is_some_and(|(len, _)| *len == 0) {
            return Err(FrameError::Malformed("empty segment at the end"));
        }
        Ok(Self {
            tag: bytes[0],
            segments,
            flags: bytes[FLAGS_AT],
        })
    }
}
