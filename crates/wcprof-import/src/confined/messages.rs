//! What the two processes of an import say to each other.
//!
//! The confined process speaks first (what confines it), and is told what to do: [`ImportStart`] with the file to read, then an empty
//! message with the file to write. It asks ([`ImportRequest`]) for files with code, whose answers are whether one comes with it, until it is done.

use serde::{Deserialize, Serialize};
use thiserror::Error;

use crate::code::WantedFile;
use crate::error::ImportError;
use crate::options::Options;

/// What a file is taken for.
#[derive(Copy, Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub enum InputKind {
    /// What another profiler or a debugger wrote.
    Profile,
    /// A core file, packed or not.
    Core,
}

/// What is to be done.
#[derive(Debug, Serialize, Deserialize)]
pub(super) struct ImportStart {
    pub(super) kind: InputKind,
    pub(super) options: Options,
}

/// What the confined process asks for, or tells.
#[derive(Debug, Serialize, Deserialize)]
pub(super) enum ImportRequest {
    /// A file.
    File(WantedFile),
    /// It has written the trace, or why not. There is no answer.
    Done(Result<(), ImportRefusal>),
}

/// Why nothing was imported, as the process that read the file says.
#[derive(Clone, PartialEq, Eq, Debug, Error, Serialize, Deserialize)]
#[error("{text}")]
pub struct ImportRefusal {
    /// Whose fault it is.
    pub kind: RefusalKind,
    /// What is wrong.
    pub text: String,
}

/// Kinds of reasons.
#[derive(Copy, Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub enum RefusalKind {
    /// Reading or writing failed, or the process could not be started.
    System,
    /// It is another format than the one that was given.
    OtherFormat,
    /// It is nothing that is known.
    NotRecognized,
    /// It is no core file.
    NoCore,
    /// Its content is refused.
    Content,
}

impl From<ImportError> for ImportRefusal {
    fn from(error: ImportError) -> Self {
        let kind = match &error {
            ImportError::Read(_) | ImportError::Write(_) => RefusalKind::System,
            ImportError::OtherFormat { .. } | ImportError::NotThis { .. } => {
                RefusalKind::OtherFormat
            }
            ImportError::NotRecognized { .. } => RefusalKind::NotRecognized,
            ImportError::NoCore => RefusalKind::NoCore,
            _ => RefusalKind::Content,
        };
        Self {
            kind,
            text: error.to_string(),
        }
    }
}
