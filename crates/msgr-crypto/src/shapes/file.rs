//! A TOML file of shapes to shapes, and the built-in one.

use serde::Deserialize;

use super::notation;
use super::shape::{Shape, Side};
use crate::file_error::{FileError, ensure};

/// Most frames in a file of shapes.
const MAX_SHAPES: usize = 1000;
/// Most characters in a name.
const MAX_NAME: usize = 80;
const BUILTIN: &str = include_str!("../../data/shapes.toml");
/// Larger than a thousand frames of eighty characters need.
const MAX_FILE_BYTES: usize = 1 << 20;
const VERSION: u32 = 1;
/// More frames than this for one I/O is a mistake.
const MAX_PER_IO: f64 = 10_000.0;

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct File {
    version: u32,
    #[serde(default)]
    frame: Vec<Frame>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Frame {
    name: String,
    side: Side,
    calls: String,
    #[serde(default = "one")]
    per_io: f64,
    #[serde(default)]
    source: String,
}

fn one() -> f64 {
    1.0
}

/// Shapes of the frames that real clusters send, with their sources.
pub fn builtin() -> Vec<Shape> {
    // The file is part of the program, and a test parses it.
    parse_shapes(BUILTIN).unwrap_or_default()
}

/// Reads shapes as documented in `docs/crypto.md`.
///
/// # Errors
/// When the text is no file of shapes, or a frame in it is malformed or beyond the limits.
pub fn parse_shapes(text: &str) -> Result<Vec<Shape>, FileError> {
    ensure(text.len() <= MAX_FILE_BYTES, || {
        format!("the file has more than {MAX_FILE_BYTES} bytes")
    })?;
    let File { version, frame } = toml::from_str(text).map_err(|error| {
        let before = error.span().and_then(|span| text.get(..span.start));
        let line = before.map(|before| format!("line {}: ", before.matches('\n').count() + 1));
        let line = line.unwrap_or_default();
        FileError(format!("not a file of shapes: {line}{}", error.message()))
    })?;
    ensure(version == VERSION, || {
        format!("shape format {version} is not known; this program reads {VERSION}")
    })?;
    ensure(!frame.is_empty(), || "the file has no [[frame]]".to_owned())?;
    ensure(frame.len() <= MAX_SHAPES, || {
        format!("more than {MAX_SHAPES} frames")
    })?;
    let mut shapes: Vec<Shape> = Vec::with_capacity(frame.len());
    for (index, frame) in (1..).zip(frame) {
        let (name, side) = (frame.name, frame.side);
        let is_name = (1..=MAX_NAME).contains(&name.chars().count());
        ensure(is_name && !name.contains(char::is_control), || {
            format!(
                "frame {index}: the name must have 1 to {MAX_NAME} characters, without control characters"
            )
        })?;
        let is_new = !shapes.iter().any(|s| s.name == name && s.side == side);
        ensure(is_new, || {
            format!("frame {index}: another {side} frame has the name `{name}`")
        })?;
        let is_number = frame.per_io > 0.0 && frame.per_io <= MAX_PER_IO;
        ensure(is_number, || {
            format!("frame `{name}`: per_io must be above 0 and at most {MAX_PER_IO}")
        })?;
        let units = notation::parse(&frame.calls)
            .map_err(|error| FileError(format!("frame `{name}`: {error}")))?;
        shapes.push(Shape {
            name,
            per_io: frame.per_io,
            source: frame.source,
            ..Shape::unnamed(side, units)
        });
    }
    Ok(shapes)
}
