//! What is known when the files of a module are searched.

use std::fmt;
use std::path::Path;

use crate::files::{ModuleFiles, ModuleIdentity, OpenError, TargetFile};
use crate::options::SymbolOptions;
use crate::report::Problem;
use crate::surroundings::Surroundings;

/// A module, and where its files may be.
#[derive(Copy, Clone)]
pub(crate) struct Context<'a> {
    pub(crate) module: &'a ModuleIdentity,
    pub(crate) files: &'a dyn ModuleFiles,
    pub(crate) surroundings: &'a dyn Surroundings,
    pub(crate) options: &'a SymbolOptions,
}

impl Context<'_> {
    /// Opens a file of the mount namespace that the module was loaded in, or of this machine
    /// (`on_host`); `None` when it is not there.
    pub(crate) fn open(&self, path: &Path, on_host: bool) -> Option<Result<TargetFile, OpenError>> {
        let opened = match on_host {
            true => self.surroundings.open(path),
            false => self.files.open_path(self.module, path),
        };
        match opened {
            Err(error) if error.is_not_found() => None,
            opened => Some(opened),
        }
    }

    /// A part of the file at `path` that cannot be used, and why.
    pub(crate) fn left_out(
        &self,
        path: impl AsRef<Path>,
        what: &str,
        reason: impl fmt::Display,
    ) -> Problem {
        let path = path.as_ref().display();
        self.problem(format!("`{path}`: left out {what}: {reason}"))
    }

    pub(crate) fn problem(&self, text: String) -> Problem {
        Problem {
            module: self.module.file_name().to_owned(),
            text,
        }
    }
}
