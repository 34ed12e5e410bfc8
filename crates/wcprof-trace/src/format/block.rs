//! Blocks: a sequence of sections, compressed and guarded by checksums, which can be read
//! without the blocks before it.

use zstd::bulk::{Compressor, Decompressor};

use super::wire::{u32_at, u64_at, within};
use crate::error::Malformed;
use crate::limits::MAX_BLOCK_BYTES;

/// Bytes of a block before its payload.
pub(crate) const BLOCK_HEADER_BYTES: usize = 44;

/// Every block begins with it; a reader that has lost its way looks for it.
pub(crate) const MARK: [u8; 8] = *b"\x89wcblk\r\n";
const STORED: u8 = 0;
const ZSTD: u8 = 1;

/// What a block holds. A reader skips kinds that it does not know.
pub(crate) mod kind {
    /// What spans refer to, and what is known of the recording.
    pub(crate) const TABLES: u8 = 1;
    pub(crate) const SPANS: u8 = 2;
    /// Names of functions.
    pub(crate) const NAMES: u8 = 3;
    /// Where the blocks before it are.
    pub(crate) const INDEX: u8 = 4;
}

/// The fixed-size part of a block.
#[derive(Copy, Clone, PartialEq, Eq, Debug, Default)]
pub(crate) struct BlockHeader {
    pub(crate) kind: u8,
    codec: u8,
    raw_len: u32,
    /// Bytes of the payload in the file.
    pub(crate) payload_len: u32,
    payload_crc: u32,
    /// The earliest begin and the latest end of its spans, ns; 0 without spans.
    pub(crate) times: (u64, u64),
}

impl BlockHeader {
    pub(crate) fn to_bytes(self) -> [u8; BLOCK_HEADER_BYTES] {
        let mut out = [0; BLOCK_HEADER_BYTES];
        out[..8].copy_from_slice(&MARK);
        (out[8], out[9]) = (self.kind, self.codec);
        out[12..16].copy_from_slice(&self.raw_len.to_le_bytes());
        out[16..20].copy_from_slice(&self.payload_len.to_le_bytes());
        out[20..24].copy_from_slice(&self.payload_crc.to_le_bytes());
        out[24..32].copy_from_slice(&self.times.0.to_le_bytes());
        out[32..40].copy_from_slice(&self.times.1.to_le_bytes());
        let crc = crc32fast::hash(&out[..40]);
        out[40..].copy_from_slice(&crc.to_le_bytes());
        out
    }

    /// `None` when the bytes are too few or damaged.
    pub(crate) fn parse(bytes: &[u8]) -> Option<Self> {
        let bytes: &[u8; BLOCK_HEADER_BYTES] = bytes.first_chunk()?;
        let header = Self {
            kind: bytes[8],
            codec: bytes[9],
            raw_len: u32_at(bytes, 12),
            payload_len: u32_at(bytes, 16),
            payload_crc: u32_at(bytes, 20),
            times: (u64_at(bytes, 24), u64_at(bytes, 32)),
        };
        let is_intact =
            bytes.starts_with(&MARK) && crc32fast::hash(&bytes[..40]) == u32_at(bytes, 40);
        is_intact.then_some(header)
    }

    /// Refuses sizes that no writer makes.
    pub(crate) fn check(&self) -> Result<(), Malformed> {
        [self.raw_len, self.payload_len]
            .into_iter()
            .try_for_each(|len| within("bytes in a block", len.into(), MAX_BLOCK_BYTES))
    }

    /// Whether a reader of this version can do something with it.
    pub(crate) fn is_known(&self) -> bool {
        (kind::TABLES..=kind::INDEX).contains(&self.kind) && self.codec <= ZSTD
    }

    /// Whether it has spans of `from..to`.
    pub(crate) fn overlaps(&self, (from, to): (u64, u64)) -> bool {
        self.times.1 > from && self.times.0 < to
    }

    /// Whether the payload is as it was written.
    pub(crate) fn is_intact(&self, payload: &[u8]) -> bool {
        is_intact(payload, self.payload_len, self.payload_crc)
    }

    /// The sections of a payload.
    pub(crate) fn unpack(
        &self,
        decompressor: &mut Decompressor<'_>,
        payload: Vec<u8>,
    ) -> Result<Vec<u8>, Malformed> {
        unpack(decompressor, self.codec == ZSTD, payload, self.raw_len)
    }
}

/// Whether a payload has the length and the checksum that its header gives.
pub(super) fn is_intact(payload: &[u8], len: u32, crc: u32) -> bool {
    payload.len() == len as usize && crc32fast::hash(payload) == crc
}

/// The sections of a payload that has `raw_len` bytes of them.
pub(super) fn unpack(
    decompressor: &mut Decompressor<'_>,
    is_compressed: bool,
    payload: Vec<u8>,
    raw_len: u32,
) -> Result<Vec<u8>, Malformed> {
    let raw_len = raw_len as usize;
    let raw = match is_compressed {
        false => payload,
        true => decompressor
            .decompress(&payload, raw_len)
            .map_err(|_| Malformed::Decompress)?,
    };
    match raw.len() == raw_len {
        true => Ok(raw),
        false => Err(Malformed::Decompress),
    }
}

/// Packs sections into a block and appends it to `out`.
pub(crate) fn pack(
    compressor: &mut Compressor<'_>,
    (kind, times): (u8, (u64, u64)),
    sections: &[u8],
    out: &mut Vec<u8>,
) -> Result<BlockHeader, Malformed> {
    within("bytes in a block", sections.len() as u64, MAX_BLOCK_BYTES)?;
    // Data that does not shrink, or a compressor without memory: kept as it is.
    let compressed = compressor
        .compress(sections)
        .ok()
        .filter(|c| c.len() < sections.len());
    let (codec, payload) = match &compressed {
        Some(c) => (ZSTD, c.as_slice()),
        None => (STORED, sections),
    };
    let header = BlockHeader {
        kind,
        codec,
        raw_len: sections.len() as u32,
        payload_len: payload.len() as u32,
        payload_crc: crc32fast::hash(payload),
        times,
    };
    out.extend_from_slice(&header.to_bytes());
    out.extend_from_slice(payload);
    Ok(header)
}

/// The same without compression.
pub(crate) fn store(kind: u8, sections: &[u8], out: &mut Vec<u8>) -> Result<(), Malformed> {
    within("bytes in a block", sections.len() as u64, MAX_BLOCK_BYTES)?;
    let header = BlockHeader {
        kind,
        codec: STORED,
        raw_len: sections.len() as u32,
        payload_len: sections.len() as u32,
        payload_crc: crc32fast::hash(sections),
        times: (0, 0),
    };
    out.extend_from_slice(&header.to_bytes());
    out.extend_from_slice(sections);
    Ok(())
}
