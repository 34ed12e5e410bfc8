//! What the two processes of an import say to each other.
//!
//! The confined process speaks first (what confines it), and is told what to do: [`ImportStart`] with the file to read, then an empty
//! message with the file to write. It asks ([`ImportRequest`]) for files with code, whose answers are whether one comes with it, until it is done.

use serde::{Deserialize, Serialize};
use thiserror::Error;
use wcprof_types::BuildId;

use crate::code::SeenFile;
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
    /// The file at a module's path.
    Open(WireCode),
    /// The file with its build-id, from elsewhere.
    Fetch(WireCode),
    /// The file at a path, if it is the one that was seen.
    SameFile(String, SeenFile),
    /// The vdso of this kernel, if it is of this release and on this host.
    Vdso(String, String),
    /// A perf map or jitdump, by its path.
    JitFile(String),
    /// It has written the trace, or why not. There is no answer.
    Done(Result<(), ImportRefusal>),
}

/// Which file with code.
#[derive(Debug, Serialize, Deserialize)]
pub(super) struct WireCode {
    pub(super) path: String,
    build_id: Vec<u8>,
}

impl WireCode {
    pub(super) fn new(path: &str, build_id: &BuildId) -> Self {
        Self {
            path: path.to_owned(),
            build_id: build_id.as_bytes().to_vec(),
        }
    }

    /// `None` for what is no build-id.
    pub(super) fn build_id(&self) -> Option<BuildId> {
        BuildId::new(&self.build_id)
    }
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
