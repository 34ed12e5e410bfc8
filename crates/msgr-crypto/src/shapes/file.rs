//! A TOML file of shapes to shapes, and the built-in one.

use serde::Deserialize;

use super::notation::{self, NotationError};
use super::shape::{Shape, Side};

/// Most frames in a file of shapes.
pub const MAX_SHAPES: usize = 1000;
/// Most characters in a name.
pub const MAX_NAME: usize = 80;
const BUILTIN: &str = include_str!("../../data/shapes.toml");
/// Larger than a thousand frames of eighty characters need.
const MAX_FILE_BYTES: usize = 1 << 20;
const VERSION: u32 = 1;
/// More frames than this for one I/O is a mistake.
const MAX_PER_IO: f64 = 10_000.0;

/// A file of shapes that can not be used.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ShapeFileError {
    /// Larger than any list of shapes.
    #[error("the file has more than {MAX_FILE_BYTES} bytes")]
    Size,
    /// Not TOML, or unknown or missing keys.
    #[error("not a file of shapes: {0}")]
    Toml(String),
    /// Written for a later version.
    #[error("shape format {0} is not known; this program reads {VERSION}")]
    Version(u32),
    /// Nothing in it.
    #[error("the file has no [[frame]]")]
    Empty,
    /// More than [`MAX_SHAPES`].
    #[error("more than {MAX_SHAPES} frames")]
    Shapes,
    /// A name that no table can show.
    #[error("frame {0}: the name must have 1 to {MAX_NAME} characters, without control characters")]
    Name(usize),
    /// Two frames of one name and side.
    #[error("frame {index}: another {side} frame has the name `{name}`")]
    Twice {
        /// Counted from 1.
        index: usize,
        /// Its side.
        side: Side,
        /// The name.
        name: String,
    },
    /// Not a number of frames.
    #[error("frame `{0}`: per_io must be above 0 and at most {MAX_PER_IO}")]
    PerIo(String),
    /// Calls not in the notation.
    #[error("frame `{name}`: {error}")]
    Calls {
        /// The frame's name.
        name: String,
        /// What is wrong.
        error: NotationError,
    },
}

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
pub fn parse_shapes(text: &str) -> Result<Vec<Shape>, ShapeFileError> {
    if text.len() > MAX_FILE_BYTES {
        return Err(ShapeFileError::Size);
    }
    let file: File = toml::from_str(text).map_err(|error| {
        let line = error.span().map(|span| {
            let before = text.get(..span.start).unwrap_or_default();
            before.matches('\n').count() + 1
        });
        ShapeFileError::Toml(match line {
            Some(line) => format!("line {line}: {}", error.message()),
            None => error.message().to_owned(),
        })
    })?;
    if file.version != VERSION {
        return Err(ShapeFileError::Version(file.version));
    }
    match file.frame.len() {
        0 => return Err(ShapeFileError::Empty),
        1..=MAX_SHAPES => {}
        _ => return Err(ShapeFileError::Shapes),
    }
    let mut shapes: Vec<Shape> = Vec::with_capacity(file.frame.len());
    for (index, frame) in (1..).zip(file.frame) {
        let (name, side) = (frame.name, frame.side);
        let n_chars = name.chars().count();
        if n_chars == 0 || n_chars > MAX_NAME || name.chars().any(char::is_control) {
            return Err(ShapeFileError::Name(index));
        }
        if shapes.iter().any(|s| s.name == name && s.side == side) {
            return Err(ShapeFileError::Twice { index, side, name });
        }
        if !(frame.per_io > 0.0 && frame.per_io <= MAX_PER_IO) {
            return Err(ShapeFileError::PerIo(name));
        }
        match notation::parse(&frame.calls) {
            Ok(units) => shapes.push(Shape {
                name,
                per_io: frame.per_io,
                source: frame.source,
                ..Shape::unnamed(side, units)
            }),
            Err(error) => return Err(ShapeFileError::Calls { name, error }),
        }
    }
    Ok(shapes)
}
