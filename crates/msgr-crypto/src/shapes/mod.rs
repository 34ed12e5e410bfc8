//! Frames as the sequences of EVP update calls that they cause: the built-in table of real ones, and
//! the small text format for others.
//!
//! A shape is what was seen at one side of a connection, as in `32,48 | 285,3,4096x4,16`: GCM units
//! are separated by `|`, the bytes of each `EVP_*Update` call by commas, `4096x4` is four calls. An
//! empty call (`0`) is one that Ceph really makes: it keeps an emptied node in its list of buffers.

mod file;
mod notation;

use std::fmt;

use msgr_crypto_ffi::Direction;

pub use file::{ShapeFileError, builtin, parse_shapes};
pub use notation::NotationError;

/// Most frames in a file of shapes.
pub const MAX_SHAPES: usize = 1000;
/// Most GCM units in a frame: preamble; rest of segment 0; the other segments.
pub const MAX_UNITS: usize = 3;
/// Most update calls in a frame: a payload of 16 MiB in pages of 4 KiB, and some.
pub const MAX_CALLS: usize = 8192;
/// Most bytes in a frame.
pub const MAX_FRAME_BYTES: usize = 64 << 20;
/// Most characters in a name.
pub const MAX_NAME: usize = 80;

/// Which end of a connection a frame is at.
#[derive(
    Copy, Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, serde::Serialize, serde::Deserialize,
)]
#[serde(rename_all = "lowercase")]
pub enum Side {
    /// Received: decrypted.
    Rx,
    /// Sent: encrypted.
    Tx,
}

impl Side {
    /// What the cipher does.
    pub fn direction(self) -> Direction {
        match self {
            Self::Rx => Direction::Decrypt,
            Self::Tx => Direction::Encrypt,
        }
    }
}

impl fmt::Display for Side {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Rx => "RX",
            Self::Tx => "TX",
        })
    }
}

/// The update calls of one frame.
#[derive(Clone, PartialEq, Debug)]
pub struct Shape {
    /// Name for tables; any text of at most [`MAX_NAME`] characters.
    pub name: String,
    /// Who makes the calls.
    pub side: Side,
    /// Bytes of each update call, unit by unit, in order.
    pub units: Vec<Vec<usize>>,
    /// Frames of this shape for each I/O, for sums over a mix.
    pub per_io: f64,
    /// Where the sizes come from.
    pub source: String,
}

impl Shape {
    /// A shape from the notation, once for each I/O.
    ///
    /// # Errors
    /// When `calls` is not in the notation, or beyond the limits.
    pub fn new(name: &str, side: Side, calls: &str) -> Result<Self, NotationError> {
        Ok(Self {
            name: name.to_owned(),
            side,
            units: notation::parse(calls)?,
            per_io: 1.0,
            source: String::new(),
        })
    }

    /// Bytes that are encrypted or decrypted.
    pub fn n_bytes(&self) -> usize {
        self.units.iter().flatten().sum()
    }

    /// Update calls, empty ones included.
    pub fn n_calls(&self) -> usize {
        self.units.iter().map(Vec::len).sum()
    }

    /// The calls in the notation: `80,0 | 192,16384,16,0`.
    pub fn notation(&self) -> String {
        notation::write(&self.units)
    }
}

#[cfg(test)]
mod tests;
