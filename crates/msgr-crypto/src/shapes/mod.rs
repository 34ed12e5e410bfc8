//! Frames as the sequences of EVP update calls that they cause: the built-in table of real ones, and
//! the small text format for others.
//!
//! A shape is what was seen at one side of a connection, as in `32,48 | 285,3,4096x4,16`: GCM units
//! are separated by `|`, the bytes of each `EVP_*Update` call by commas, `4096x4` is four calls. An
//! empty call (`0`) is one that Ceph really makes: it keeps an emptied node in its list of buffers.

mod file;
mod notation;
mod shape;

pub use file::{builtin, parse_shapes};
pub(crate) use notation::{MAX_CALLS, MAX_FRAME_BYTES};
pub use shape::{Shape, Side};

#[cfg(test)]
mod tests;
