//! A frame to bytes on the wire: what a sender does.

use super::gcm::Gcm;
use super::preamble::Preamble;
use super::{
    BLOCK_BYTES, EPILOGUE_BYTES, Frame, INLINE_BYTES, KEY_BYTES, MAX_SEGMENTS, NonceSequence,
    Revision, SealError,
};

/// More would not be counted by libcrypto, whose lengths are `int`.
const MAX_BYTES: usize = (i32::MAX as usize) - 4096;
/// `FRAME_LATE_STATUS_COMPLETE` of msgr v2.1; v2.0 has no flags set.
const COMPLETE: u8 = 0x0e;

/// Encrypts the frames of one direction of a connection, in order.
#[derive(Debug)]
pub struct Sealer {
    revision: Revision,
    gcm: Gcm,
    nonces: NonceSequence,
}

/// An encrypted frame.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Sealed {
    /// Bytes for the wire.
    pub bytes: Vec<u8>,
    /// Bytes of each update call that was made, unit by unit.
    pub calls: Vec<Vec<usize>>,
}

impl Sealer {
    /// For a key and the nonces that come next.
    ///
    /// # Errors
    /// When libcrypto has no such cipher.
    pub fn new(
        revision: Revision,
        key: &[u8; KEY_BYTES],
        nonces: NonceSequence,
    ) -> Result<Self, SealError> {
        Ok(Self {
            revision,
            gcm: Gcm::encrypting(key)?,
            nonces,
        })
    }

    /// Encrypts a frame. Nonces are used up also when it fails.
    ///
    /// # Errors
    /// When the frame can not be sent, no nonce is left, or libcrypto fails.
    pub fn seal(&mut self, frame: &Frame) -> Result<Sealed, SealError> {
        let mut frame = frame.clone();
        frame.drop_empty();
        let n = frame.segments.len();
        if n == 0 || n > MAX_SEGMENTS {
            return Err(SealError::Segments(n));
        }
        for (index, segment) in frame.segments.iter().enumerate() {
            let limit = MAX_BYTES / MAX_SEGMENTS;
            if segment.data.len() > limit {
                return Err(SealError::Oversized {
                    index,
                    bytes: segment.data.len(),
                    limit,
                });
            }
        }
        let preamble = Preamble {
            tag: frame.tag,
            segments: frame
                .segments
                .iter()
                .map(|segment| (segment.data.len() as u32, segment.align))
                .collect(),
            flags: frame.flags,
        };
        let preamble = preamble.encode();
        let mut epilogue = [0; EPILOGUE_BYTES];
        if self.revision == Revision::V21 {
            epilogue[0] = COMPLETE;
        }
        let mut sealed = Sealed {
            bytes: Vec::new(),
            calls: Vec::new(),
        };
        let (first, others) = match frame.segments.split_first() {
            Some((first, others)) => (first.data.as_slice(), others),
            None => return Err(SealError::Segments(0)),
        };
        // Padding of segment 0 is in its own buffer, that of others a buffer more.
        let mut first = first.to_vec();
        first.resize(first.len().next_multiple_of(BLOCK_BYTES), 0);
        let zeros = [0; BLOCK_BYTES];
        let padding = |len: usize| &zeros[..len.next_multiple_of(BLOCK_BYTES) - len];
        let others = others
            .iter()
            .flat_map(|segment| [&segment.data[..], padding(segment.data.len())]);
        match self.revision {
            Revision::V20 => {
                let parts = [&preamble[..], &first].into_iter().chain(others);
                self.unit(parts.chain([&epilogue[..]]), &mut sealed)?;
            }
            Revision::V21 => {
                let rest = first.split_off(first.len().min(INLINE_BYTES));
                first.resize(INLINE_BYTES, 0);
                self.unit([&preamble[..], &first].into_iter(), &mut sealed)?;
                if !rest.is_empty() {
                    self.unit([&rest[..]].into_iter(), &mut sealed)?;
                }
                if n > 1 {
                    self.unit(others.chain([&epilogue[..]]), &mut sealed)?;
                }
            }
        }
        Ok(sealed)
    }

    fn unit<'a>(
        &mut self,
        parts: impl Iterator<Item = &'a [u8]>,
        sealed: &mut Sealed,
    ) -> Result<(), SealError> {
        let nonce = self.nonces.take()?;
        self.gcm.begin(&nonce)?;
        let mut calls = Vec::new();
        for part in parts.filter(|part| !part.is_empty()) {
            self.gcm.update(part, &mut sealed.bytes)?;
            calls.push(part.len());
        }
        sealed.bytes.extend(self.gcm.tag()?);
        sealed.calls.push(calls);
        Ok(())
    }
}
