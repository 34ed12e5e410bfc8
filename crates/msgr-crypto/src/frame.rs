//! Sizes of the parts of a frame of msgr v2 in secure mode, as Ceph lays them out on the wire.
//!
//! In msgr v2.1 (Ceph 15.2.5 and later) a frame is up to three GCM units, each with its own nonce and tag:
//!
//! ```text
//! A  { preamble 32 | first 48 bytes of segment 0, padded } tag
//! B  { rest of segment 0 } tag                                 if it has more than 48 bytes
//! C  { segments 1.. padded | epilogue 16 } tag                 if there is more than one segment
//! ```
//!
//! Source: Ceph 18.2.7, `src/msg/async/frames_v2.{h,cc}`, `crypto_onwire.{h,cc}`, `doc/dev/msgr2.rst`.

/// Segments and epilogues are padded to this many bytes; also a block of AES.
pub(crate) const BLOCK_BYTES: usize = 16;
/// `preamble_block_t`.
pub(crate) const PREAMBLE_BYTES: usize = 32;
/// `FRAME_PREAMBLE_INLINE_SIZE`: bytes of segment 0 that are in the same unit as the preamble.
pub(crate) const INLINE_BYTES: usize = 48;
/// `epilogue_secure_rev1_block_t`.
pub(crate) const EPILOGUE_BYTES: usize = 16;
