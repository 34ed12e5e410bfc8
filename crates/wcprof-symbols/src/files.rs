//! Where symbolization finds the files of modules: a module, or a path beside it, to an open file.

use std::path::Path;

use wcprof_types::{Avma, BuildId, Pid};

use wcprof_host::open::open_below_in_time;
pub use wcprof_host::open::{
    NoFile, OpenError, Root, TargetFile, open_regular, open_regular_in_time,
};

/// Which file a module was loaded from.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub struct ModuleIdentity {
    /// Path in the target's mount namespace, without ` (deleted)`; `[vdso]` for the vdso.
    pub path: String,
    /// Build-id note of the loaded image; `None` when it has none or it could not be read.
    pub build_id: Option<BuildId>,
    /// A process that maps it, as numbered where it was recorded; `None` when not known.
    pub pid: Option<Pid>,
    /// First mapped address in that process; `None` when not known.
    pub start: Option<Avma>,
}

impl ModuleIdentity {
    /// Last component of the path.
    pub fn file_name(&self) -> &str {
        wcprof_types::file_name(&self.path)
    }
}

/// The bytes of a module.
#[derive(Debug)]
pub enum ModuleFile {
    /// A regular file (see [`open_regular`]).
    File(TargetFile),
    /// A copy of the image, such as the vdso's.
    Bytes(Vec<u8>),
}

/// Opens files of modules. The caller of symbolization supplies it, since only the caller knows
/// whether the target still lives and how its files can be reached.
pub trait ModuleFiles: Sync {
    /// Opens the module's own file. Its build-id is compared by symbolization, not here.
    fn open(&self, module: &ModuleIdentity) -> Result<ModuleFile, OpenError>;

    /// Opens another file of the mount namespace that `module` was loaded in, by its absolute
    /// path: a debug file beside the module.
    fn open_path(&self, module: &ModuleIdentity, path: &Path) -> Result<TargetFile, OpenError>;
}

/// Files of this machine, for traces opened after the recording: the file at the module's path, if
/// the module has a build-id to compare it with.
#[derive(Copy, Clone, PartialEq, Eq, Debug, Default)]
pub struct LocalFiles;

impl ModuleFiles for LocalFiles {
    fn open(&self, module: &ModuleIdentity) -> Result<ModuleFile, OpenError> {
        open_regular_in_time(comparable(module)?).map(ModuleFile::File)
    }

    fn open_path(&self, _module: &ModuleIdentity, path: &Path) -> Result<TargetFile, OpenError> {
        open_regular_in_time(path)
    }
}

/// Files below a root, such as a container's.
impl ModuleFiles for Root {
    fn open(&self, module: &ModuleIdentity) -> Result<ModuleFile, OpenError> {
        open_below_in_time(self, comparable(module)?).map(ModuleFile::File)
    }

    fn open_path(&self, _module: &ModuleIdentity, path: &Path) -> Result<TargetFile, OpenError> {
        open_below_in_time(self, path)
    }
}

/// The path of a module that is a file. Only by a build-id can it be compared with what was loaded.
fn comparable(module: &ModuleIdentity) -> Result<&Path, OpenError> {
    match module.path.starts_with('/') {
        false => Err(NoFile::NotAFile.at(&module.path)),
        true if module.build_id.is_none() => Err(NoFile::NoBuildId.at(&module.path)),
        true => Ok(Path::new(&module.path)),
    }
}

#[cfg(test)]
mod tests;
