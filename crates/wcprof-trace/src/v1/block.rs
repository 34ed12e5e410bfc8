//! Blocks: a sequence of sections, compressed and guarded by checksums.

use zstd::bulk::{Compressor, Decompressor};

use crate::error::Malformed;
use crate::limits::MAX_BLOCK_BYTES;

/// Bytes of a block before its payload.
pub(crate) const BLOCK_HEADER_BYTES: usize = 20;

const MARK: [u8; 3] = *b"blk";
const STORED: u8 = 0;
const ZSTD: u8 = 1;

/// The fixed-size part of a block.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub(crate) struct BlockHeader {
    codec: u8,
    raw_len: u32,
    /// Bytes of the payload in the file.
    pub(crate) payload_len: u32,
    payload_crc: u32,
}

impl BlockHeader {
    fn to_bytes(self) -> [u8; BLOCK_HEADER_BYTES] {
        let mut out = [0; BLOCK_HEADER_BYTES];
        out[..3].copy_from_slice(&MARK);
        out[3] = self.codec;
        out[4..8].copy_from_slice(&self.raw_len.to_le_bytes());
        out[8..12].copy_from_slice(&self.payload_len.to_le_bytes());
        out[12..16].copy_from_slice(&self.payload_crc.to_le_bytes());
        let crc = crc32fast::hash(&out[..16]);
        out[16..].copy_from_slice(&crc.to_le_bytes());
        out
    }

    /// `None` when the bytes are damaged.
    pub(crate) fn parse(bytes: &[u8; BLOCK_HEADER_BYTES]) -> Option<Self> {
        let word = |i: usize| Some(u32::from_le_bytes(*bytes.get(i..)?.first_chunk()?));
        let header = Self {
            codec: bytes[3],
            raw_len: word(4)?,
            payload_len: word(8)?,
            payload_crc: word(12)?,
        };
        (bytes[..3] == MARK && crc32fast::hash(&bytes[..16]) == word(16)?).then_some(header)
    }

    /// Refuses sizes and codecs that no writer makes.
    pub(crate) fn check(&self) -> Result<(), Malformed> {
        for len in [self.raw_len, self.payload_len] {
            super::wire::within("bytes in a block", len.into(), MAX_BLOCK_BYTES)?;
        }
        match self.codec {
            STORED | ZSTD => Ok(()),
            code => Err(Malformed::UnknownCode {
                what: "compression",
                code: code.into(),
            }),
        }
    }

    /// Whether the payload is as it was written.
    pub(crate) fn is_intact(&self, payload: &[u8]) -> bool {
        payload.len() == self.payload_len as usize && crc32fast::hash(payload) == self.payload_crc
    }

    /// The sections of a payload.
    pub(crate) fn unpack(
        &self,
        decompressor: &mut Decompressor<'_>,
        payload: Vec<u8>,
    ) -> Result<Vec<u8>, Malformed> {
        self.check()?;
        let raw = match self.codec {
            STORED => payload,
            _ => decompressor
                .decompress(&payload, self.raw_len as usize)
                .map_err(|_| Malformed::Decompress)?,
        };
        if raw.len() != self.raw_len as usize {
            return Err(Malformed::Decompress);
        }
        Ok(raw)
    }
}

/// Packs sections into a block and appends it to `out`.
pub(crate) fn pack(
    compressor: &mut Compressor<'_>,
    sections: &[u8],
    out: &mut Vec<u8>,
) -> Result<(), Malformed> {
    super::wire::within("bytes in a block", sections.len() as u64, MAX_BLOCK_BYTES)?;
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
        codec,
        raw_len: sections.len() as u32,
        payload_len: payload.len() as u32,
        payload_crc: crc32fast::hash(payload),
    };
    out.extend_from_slice(&header.to_bytes());
    out.extend_from_slice(payload);
    Ok(())
}
