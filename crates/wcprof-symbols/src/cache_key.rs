//! A debug file to its place in the cache: named by build-id, for just this file.

use std::fs::File;
use std::os::unix::fs::MetadataExt;
use std::path::Path;

use dwarf_stream::DwarfFiles;
use dwarf_stream::elf::ElfFile;
use serde::{Deserialize, Serialize};
use wcprof_host::cache::{CacheFile, CacheKind};
use wcprof_types::BuildId;

/// The files of this cache.
const NAMES: CacheKind = CacheKind {
    suffix: "wcprof-names",
    version: 3,
    max_file: 64 << 20,
    max_total: 256 << 20,
};
/// A debug file in the cache.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub(crate) struct CacheKey {
    /// Build-id of the file with the DWARF, as bytes.
    build_id: Vec<u8>,
    /// That file, and the one that it shares DWARF with: see [`stamp`].
    main: String,
    supplementary: Option<String>,
}

impl CacheKey {
    pub(crate) fn new(build_id: &BuildId, files: DwarfFiles<'_>) -> Option<Self> {
        let stamp = |elf: &ElfFile| stamp(elf.file()?);
        Some(Self {
            build_id: build_id.as_bytes().to_vec(),
            main: stamp(files.main)?,
            supplementary: match files.supplementary {
                Some(elf) => Some(stamp(elf)?),
                None => None,
            },
        })
    }

    /// Stamps of the files that its content is made from.
    pub(crate) fn stamps(&self) -> impl Iterator<Item = &String> {
        [&self.main].into_iter().chain(&self.supplementary)
    }

    /// Its place below a folder.
    pub(crate) fn file(&self, dir: &Path) -> CacheFile {
        let build_id = BuildId::new(&self.build_id);
        let build_id = build_id.map_or_else(String::new, |id| id.to_string());
        let supplementary = self.supplementary.as_deref().unwrap_or_default();
        let identity = format!(
            "wcprof {} {build_id} {} {supplementary}",
            env!("CARGO_PKG_VERSION"),
            self.main
        );
        CacheFile::new(&NAMES, dir, &build_id, identity)
    }
}

/// Size, times of change and inode of a file: after a change it has another stamp.
pub(crate) fn stamp(file: &File) -> Option<String> {
    let metadata = file.metadata().ok()?;
    Some(format!(
        "{}:{}.{:09}:{}.{:09}:{}:{}",
        metadata.size(),
        metadata.mtime(),
        metadata.mtime_nsec(),
        metadata.ctime(),
        metadata.ctime_nsec(),
        metadata.dev(),
        metadata.ino()
    ))
}
