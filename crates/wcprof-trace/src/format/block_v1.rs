//! Blocks of format 1, which refer to the blocks before them. They are only read.

use zstd::bulk::Decompressor;

use super::wire::u32_at;
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
    /// `None` when the bytes are damaged.
    pub(crate) fn parse(bytes: &[u8; BLOCK_HEADER_BYTES]) -> Option<Self> {
        let header = Self {
            codec: bytes[3],
            raw_len: u32_at(bytes, 4),
            payload_len: u32_at(bytes, 8),
            payload_crc: u32_at(bytes, 12),
        };
        let is_intact = bytes[..3] == MARK && crc32fast::hash(&bytes[..16]) == u32_at(bytes, 16);
        is_intact.then_some(header)
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
        super::block::is_intact(payload, self.payload_len, self.payload_crc)
    }

    /// The sections of a payload.
    pub(crate) fn unpack(
        &self,
        decompressor: &mut Decompressor<'_>,
        payload: Vec<u8>,
    ) -> Result<Vec<u8>, Malformed> {
        self.check()?;
        super::block::unpack(decompressor, self.codec == ZSTD, payload, self.raw_len)
    }
}
