//! Bytes from the wire to a frame: what a receiver does, and why it refuses.

use super::gcm::Gcm;
use super::preamble::Preamble;
use super::{
    EPILOGUE_BYTES, Frame, FrameError, INLINE_BYTES, KEY_BYTES, Layout, NONCE_BYTES, NonceSequence,
    PREAMBLE_BYTES, Revision, Segment, TAG_BYTES,
};

/// `FRAME_LATE_STATUS_*` of msgr v2.1.
const STATUS_MASK: u8 = 0x0f;
const STATUS_COMPLETE: u8 = 0x0e;
const STATUS_ABORTED: u8 = 0x01;
/// `FRAME_LATE_FLAG_ABORTED` of msgr v2.0.
const FLAG_ABORTED: u8 = 0x01;
/// How far a nonce is looked for when a tag does not match.
const WINDOW: i128 = 64;
/// No message of Ceph is larger: `osd_max_write_size` is 90 MB.
const DEFAULT_LIMIT: usize = 128 << 20;

/// Decrypts the frames of one direction of a connection, in order.
#[derive(Debug)]
pub struct Opener {
    revision: Revision,
    gcm: Gcm,
    nonces: NonceSequence,
    limit: usize,
    is_closed: bool,
}

impl Opener {
    /// For a key and the nonces that come next.
    ///
    /// # Errors
    /// When libcrypto has no such cipher.
    pub fn new(
        revision: Revision,
        key: &[u8; KEY_BYTES],
        nonces: NonceSequence,
    ) -> Result<Self, FrameError> {
        Ok(Self {
            revision,
            gcm: Gcm::decrypting(key)?,
            nonces,
            limit: DEFAULT_LIMIT,
            is_closed: false,
        })
    }

    /// Permits segments of at most so many bytes.
    pub fn with_limit(self, bytes: usize) -> Self {
        Self {
            limit: bytes,
            ..self
        }
    }

    /// Decrypts the frame at the beginning of `wire`; also how many bytes it took.
    ///
    /// # Errors
    /// [`FrameError::Truncated`] when more bytes are needed: the same frame can be tried again. After
    /// any other error the connection is closed, and every further call fails.
    pub fn open(&mut self, wire: &[u8]) -> Result<(Frame, usize), FrameError> {
        if self.is_closed {
            return Err(FrameError::Closed);
        }
        let before = self.nonces.clone();
        let result = match self.revision {
            Revision::V20 => self.open_v20(wire),
            Revision::V21 => self.open_v21(wire),
        };
        match &result {
            Ok(_) => {}
            Err(FrameError::Truncated { .. }) => self.nonces = before,
            Err(_) => self.is_closed = true,
        }
        result
    }

    fn open_v21(&mut self, wire: &[u8]) -> Result<(Frame, usize), FrameError> {
        const A: usize = PREAMBLE_BYTES + INLINE_BYTES;
        let mut reader = Reader { wire, at: 0 };
        let (sealed, tag) = reader.unit(A)?;
        let nonces = self.nonces.clone();
        let nonce = self.nonces.take()?;
        let Some(plain) = self.gcm.open(&nonce, sealed, tag)? else {
            return Err(self.explain(&nonces, |gcm, nonce| {
                Ok(gcm.open(nonce, sealed, tag)?.is_some())
            })?);
        };
        let (preamble, inline) = split_preamble(&plain)?;
        let preamble = Preamble::decode(&preamble, self.limit)?;
        let layout = layout_of(self.revision, &preamble);
        let padded = layout.padded();
        let mut data = inline.to_vec();
        let (first, others) = padded.split_first().unwrap_or((&0, &[]));
        reader.need(layout.wire_len())?;
        data.truncate(*first);
        if *first > INLINE_BYTES {
            let rest = self.rest(&mut reader, first - INLINE_BYTES, 'B')?;
            data.extend(rest);
        }
        let mut others_data = Vec::new();
        if padded.len() > 1 {
            let len = others.iter().sum::<usize>() + EPILOGUE_BYTES;
            others_data = self.rest(&mut reader, len, 'C')?;
            let status = others_data[len - EPILOGUE_BYTES];
            match status & STATUS_MASK {
                STATUS_COMPLETE => {}
                STATUS_ABORTED => return Err(FrameError::Aborted),
                _ => return Err(FrameError::Malformed("unknown status in the epilogue")),
            }
        }
        let bytes = [data, others_data].concat();
        Ok((frame(&preamble, &padded, &bytes), reader.at))
    }

    fn rest(
        &mut self,
        reader: &mut Reader<'_>,
        len: usize,
        name: char,
    ) -> Result<Vec<u8>, FrameError> {
        let (sealed, tag) = reader.unit(len)?;
        let nonce = self.nonces.take()?;
        let plain = self.gcm.open(&nonce, sealed, tag)?;
        plain.ok_or(FrameError::Tampered(name))
    }

    fn open_v20(&mut self, wire: &[u8]) -> Result<(Frame, usize), FrameError> {
        let mut reader = Reader { wire, at: 0 };
        reader.need(PREAMBLE_BYTES)?;
        let nonces = self.nonces.clone();
        let nonce = self.nonces.take()?;
        // The length of the frame is in a preamble that no tag vouches for yet: only its checksum.
        let preamble = peek_preamble(&mut self.gcm, &nonce, wire)?;
        if !Preamble::is_intact(&preamble) {
            return Err(self.explain(&nonces, |gcm, nonce| {
                Ok(Preamble::is_intact(&peek_preamble(gcm, nonce, wire)?))
            })?);
        }
        let preamble = Preamble::decode(&preamble, self.limit)?;
        let layout = layout_of(self.revision, &preamble);
        let len = layout.wire_len() - TAG_BYTES;
        let (sealed, tag) = reader.unit(len)?;
        let plain = self
            .gcm
            .open(&nonce, sealed, tag)?
            .ok_or(FrameError::Tampered('A'))?;
        if plain[len - EPILOGUE_BYTES] & FLAG_ABORTED != 0 {
            return Err(FrameError::Aborted);
        }
        let padded = layout.padded();
        let bytes = &plain[PREAMBLE_BYTES..];
        Ok((frame(&preamble, &padded, bytes), reader.at))
    }

    /// Why a first unit does not match its nonce: another one's, or none's.
    fn explain(
        &mut self,
        nonces: &NonceSequence,
        matches: impl Fn(&mut Gcm, &[u8; NONCE_BYTES]) -> Result<bool, FrameError>,
    ) -> Result<FrameError, FrameError> {
        for distance in 1..=WINDOW {
            for ahead in [-distance, distance] {
                let Some(nonce) = nonces.peek(ahead) else {
                    continue;
                };
                if matches(&mut self.gcm, &nonce)? {
                    let distance = distance as u64;
                    return Ok(match ahead < 0 {
                        true => FrameError::NonceReused(distance),
                        false => FrameError::Reordered(distance),
                    });
                }
            }
        }
        Ok(FrameError::Tampered('A'))
    }
}

/// Bytes that are left.
struct Reader<'a> {
    wire: &'a [u8],
    at: usize,
}

impl<'a> Reader<'a> {
    /// At least so many bytes from the beginning of the frame.
    fn need(&self, needed: usize) -> Result<(), FrameError> {
        match self.wire.len() {
            got if got < needed => Err(FrameError::Truncated { needed, got }),
            _ => Ok(()),
        }
    }

    /// The next unit and its tag.
    fn unit(&mut self, len: usize) -> Result<(&'a [u8], &'a [u8]), FrameError> {
        let end = self.at + len + TAG_BYTES;
        self.need(end)?;
        let (sealed, tag) = self.wire[self.at..end].split_at(len);
        self.at = end;
        Ok((sealed, tag))
    }
}

fn split_preamble(plain: &[u8]) -> Result<([u8; PREAMBLE_BYTES], &[u8]), FrameError> {
    match plain.split_first_chunk::<PREAMBLE_BYTES>() {
        Some((preamble, rest)) => Ok((*preamble, rest)),
        None => Err(FrameError::Malformed("no preamble")),
    }
}

fn peek_preamble(
    gcm: &mut Gcm,
    nonce: &[u8; NONCE_BYTES],
    wire: &[u8],
) -> Result<[u8; PREAMBLE_BYTES], FrameError> {
    let mut plain = Vec::new();
    gcm.begin(nonce)?;
    gcm.update(&wire[..PREAMBLE_BYTES.min(wire.len())], &mut plain)?;
    Ok(split_preamble(&plain)?.0)
}

fn layout_of(revision: Revision, preamble: &Preamble) -> Layout {
    let lens: Vec<usize> = preamble
        .segments
        .iter()
        .map(|(len, _)| *len as usize)
        .collect();
    Layout::new(revision, &lens)
}

/// Segments without their padding.
fn frame(preamble: &Preamble, padded: &[usize], mut bytes: &[u8]) -> Frame {
    let mut segments = Vec::with_capacity(padded.len());
    for ((len, align), padded) in preamble.segments.iter().zip(padded) {
        let (segment, rest) = bytes.split_at((*padded).min(bytes.len()));
        bytes = rest;
        let data = segment.get(..*len as usize).unwrap_or_default().to_vec();
        segments.push(Segment {
            data,
            align: *align,
        });
    }
    Frame {
        tag: preamble.tag,
        segments,
        flags: preamble.flags,
    }
}
