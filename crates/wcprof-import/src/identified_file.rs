//! A file of this machine that has a recorded build-id: its call frame information, and its code.
//!
//! A file with another build-id, or none, is not used: another version of it would give wrong frames, and a truncated stack is better.

use std::sync::Arc;

use wcprof_symbols::TargetFile;
use wcprof_symbols::elf::Source;
use wcprof_types::{Avma, BuildId, FileOffset, LoadBias};
use wcprof_unwind::ModuleCode;

use crate::code::{CodeFiles, WantedFile};

/// Call frame information of a file, and the file.
#[derive(Debug)]
pub(crate) struct IdentifiedFile {
    source: Source,
    pub(crate) code: Arc<ModuleCode>,
}

impl IdentifiedFile {
    /// The file of a module, if one with its build-id is found. `room`: as of [`ModuleCode::read`].
    pub(crate) fn find(
        code: &mut dyn CodeFiles,
        path: &str,
        build_id: &BuildId,
        room: usize,
    ) -> Option<Self> {
        let read = |file| Self::read(file, build_id, room);
        let wanted = [WantedFile::AtPath, WantedFile::Fetched];
        wanted.into_iter().find_map(|of| {
            let file = code.open(&of(path.to_owned(), build_id.clone()))?;
            read(file)
        })
    }

    /// Of an open file that has this build-id. `room`: as of [`ModuleCode::read`].
    fn read(file: TargetFile, build_id: &BuildId, room: usize) -> Option<Self> {
        let code = ModuleCode::read(file.clone(), room).ok()?;
        let is_it = code.build_id() == Some(build_id);
        let source = is_it.then(|| Source::from_file(file).ok()).flatten()?;
        Some(Self {
            source,
            code: Arc::new(code),
        })
    }

    /// Of an image in memory, such as the vdso's.
    pub(crate) fn of_image(bytes: Vec<u8>) -> Option<Self> {
        let code = ModuleCode::parse(&bytes).ok()?;
        Some(Self {
            source: Source::Bytes(bytes),
            code: Arc::new(code),
        })
    }

    /// Reads code where it is loaded with this bias; false when it is not in the file, or cannot be read.
    pub(crate) fn read_text(&self, bias: LoadBias, address: Avma, bytes: &mut [u8]) -> bool {
        let offset = self.code.file_offset(bias.to_svma(address));
        offset.is_some_and(|FileOffset(at)| {
            let read = self.source.read_into(format_args!("code"), at, bytes);
            read.is_ok()
        })
    }
}
