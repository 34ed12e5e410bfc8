//! The update calls of one frame, at one end of a connection.

use std::fmt;

use msgr_crypto_ffi::Direction;

use super::notation;
use crate::file_error::FileError;

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
    /// Name for tables; any text of at most 80 characters.
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
    pub fn new(name: &str, side: Side, calls: &str) -> Result<Self, FileError> {
        Ok(Self {
            name: name.to_owned(),
            ..Self::unnamed(side, notation::parse(calls)?)
        })
    }

    /// A shape with these calls, unit by unit, once for each I/O.
    pub fn unnamed(side: Side, units: Vec<Vec<usize>>) -> Self {
        Self {
            name: String::new(),
            side,
            units,
            per_io: 1.0,
            source: String::new(),
        }
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
