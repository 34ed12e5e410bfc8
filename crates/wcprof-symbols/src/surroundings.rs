//! What symbolization asks of the machine beside the files of modules: files of this machine, debuginfod
//! servers, the cache.
//!
//! All that it opens comes from here or from [`ModuleFiles`](crate::ModuleFiles), so that it can run in a
//! process that can open nothing itself.

use std::path::{Path, PathBuf};

use dwarf_stream::elf::ElfFile;
use wcprof_host::open::{TargetFile, open_regular_in_time};
use wcprof_types::BuildId;

use crate::cache_key::CacheKey;
use crate::debuginfod::Artifact;
use crate::files::OpenError;
use crate::options::SymbolOptions;
use crate::report::Problem;

/// What symbolization asks of the machine.
pub(crate) trait Surroundings: Sync {
    /// Opens a file of this machine.
    fn open(&self, path: &Path) -> Result<TargetFile, OpenError>;

    /// The file for a build-id from a debuginfod server, and where it is. Files that were refused are
    /// added to `problems`.
    fn fetch(
        &self,
        module: (&str, &BuildId),
        artifact: Artifact,
        problems: &mut Vec<Problem>,
    ) -> Option<(ElfFile, PathBuf)>;

    /// What the cache has.
    fn read_cache(&self, key: &CacheKey) -> Option<Vec<u8>>;

    /// Puts something into the cache, if there is one.
    fn write_cache(&self, key: &CacheKey, content: &[u8]);
}

/// This machine, as the options permit.
pub(crate) struct ThisMachine<'o>(pub(crate) &'o SymbolOptions);

impl Surroundings for ThisMachine<'_> {
    fn open(&self, path: &Path) -> Result<TargetFile, OpenError> {
        open_regular_in_time(path)
    }

    fn fetch(
        &self,
        module: (&str, &BuildId),
        artifact: Artifact,
        problems: &mut Vec<Problem>,
    ) -> Option<(ElfFile, PathBuf)> {
        let client = self.0.debuginfod.as_ref()?;
        client.fetch(module, artifact, &self.0.cancel, problems)
    }

    fn read_cache(&self, key: &CacheKey) -> Option<Vec<u8>> {
        key.file(self.0.cache.as_deref()?).read()
    }

    fn write_cache(&self, key: &CacheKey, content: &[u8]) {
        if let Some(dir) = self.0.cache.as_deref() {
            // Without a cache all is as right, and slower.
            let _ = key.file(dir).write(content);
        }
    }
}
