//! Why a frame can not be sealed or opened.

use openssl::error::ErrorStack;

use super::{MAX_SEGMENTS, OutOfNonces};

/// A frame that can not be encrypted.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum SealError {
    /// Every nonce was used.
    #[error(transparent)]
    OutOfNonces(#[from] OutOfNonces),
    /// No segments, or too many.
    #[error("a frame has 1 to {MAX_SEGMENTS} segments, not {0}")]
    Segments(usize),
    /// Longer than the preamble or the cipher can say.
    #[error("segment {index} has {bytes} bytes; {limit} are possible")]
    Oversized {
        /// Counted from 0.
        index: usize,
        /// Its length.
        bytes: usize,
        /// The most.
        limit: usize,
    },
    /// libcrypto failed.
    #[error("failed to encrypt a frame: {0}")]
    Crypto(#[from] ErrorStack),
}

/// Bytes that can not be decrypted to a frame. All but [`FrameError::Truncated`] end the connection.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum FrameError {
    /// More bytes are needed; nothing was lost, and it can be tried again with more.
    #[error("the frame is truncated: {needed} bytes are needed, {got} are there")]
    Truncated {
        /// Bytes from the beginning of the frame, as far as known by now.
        needed: usize,
        /// Bytes that were given.
        got: usize,
    },
    /// A tag does not match, and no neighbor's nonce explains it.
    #[error("unit {0} was tampered with: its tag does not match")]
    Tampered(char),
    /// The frame was encrypted with a nonce that was used before: a replay, or a sender that reuses
    /// nonces.
    #[error("the nonce was used before: it is {0} behind")]
    NonceReused(u64),
    /// The frame was encrypted with a later nonce: frames are missing, or come in another order.
    #[error("the frame is out of order: its nonce is {0} ahead")]
    Reordered(u64),
    /// Larger than the receiver permits.
    #[error("segment {index} has {bytes} bytes; {limit} are permitted")]
    Oversized {
        /// Counted from 0.
        index: usize,
        /// The length that the preamble says.
        bytes: usize,
        /// The most.
        limit: usize,
    },
    /// An authentic frame that makes no sense, or in msgr v2.0 a preamble that can not be one.
    #[error("malformed frame: {0}")]
    Malformed(&'static str),
    /// The sender gave the frame up while it was on its way.
    #[error("the sender aborted the frame")]
    Aborted,
    /// An earlier frame could not be opened, so that the stream is lost.
    #[error("an earlier frame could not be opened")]
    Closed,
    /// Every nonce was used.
    #[error(transparent)]
    OutOfNonces(#[from] OutOfNonces),
    /// libcrypto failed otherwise than by a tag.
    #[error("failed to decrypt a frame: {0}")]
    Crypto(#[from] ErrorStack),
}
