//! Core files as systemd-coredump keeps them: packed by zstd, LZ4 or xz (`systemd-coredump(8)`).

use std::io::Read;

use lz4_flex::frame::FrameDecoder;
use lzma_rust2::XzReader;
use ruzstd::decoding::StreamingDecoder;

use super::memory::{Forward, Packed};
use crate::error::{ImportError, Result};

/// Memory of the decoder of xz, KiB: enough for `xz -9`.
const MAX_XZ_KIB: u32 = 80 << 10;

/// How a file is packed.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub(crate) enum Packing {
    Zstd,
    Lz4,
    Xz,
}

impl Packing {
    /// By the first bytes of a file; `None` for others.
    pub(crate) fn of(head: &[u8]) -> Option<Self> {
        match head {
            [0x28, 0xb5, 0x2f, 0xfd, ..] => Some(Self::Zstd),
            [0x04, 0x22, 0x4d, 0x18, ..] => Some(Self::Lz4),
            [0xfd, b'7', b'z', b'X', b'Z', ..] => Some(Self::Xz),
            _ => None,
        }
    }

    /// The unpacked file.
    ///
    /// # Errors
    /// When its first bytes cannot be unpacked.
    pub(crate) fn unpack<'a>(self, file: impl Read + 'a) -> Result<Box<dyn Forward + 'a>> {
        Ok(match self {
            Self::Zstd => {
                let decoder = StreamingDecoder::new(file);
                Box::new(Packed::new(
                    decoder.map_err(|e| ImportError::Core(e.to_string()))?,
                ))
            }
            Self::Lz4 => Box::new(Packed::new(FrameDecoder::new(file))),
            Self::Xz => Box::new(Packed::new(XzReader::new_mem_limit(file, true, MAX_XZ_KIB))),
        })
    }
}
