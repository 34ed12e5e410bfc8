//! Names for a trace: symbols meet modules here. Of a live target through the files that the
//! recording held open, of a saved trace through the files of this machine.

use std::fs::File;
use std::io;
use std::path::{Path, PathBuf};

use wcprof_record::{Handle, TargetFiles};
use wcprof_symbols::{
    LocalFiles, ModuleFile, ModuleFiles, ModuleIdentity, OpenError, SymbolOptions, SymbolReport,
    symbolize_tables,
};
use wcprof_trace::model::{SymbolTable, Tables};

use crate::cli::SymbolArgs;

/// Files of the process that was just recorded.
#[derive(Debug)]
struct Recorded<'a>(&'a TargetFiles);

impl ModuleFiles for Recorded<'_> {
    fn open(&self, module: &ModuleIdentity) -> Result<ModuleFile, OpenError> {
        match module.start.and_then(|start| self.0.module(start)) {
            Some(Handle::File(file)) => {
                file.try_clone()
                    .map(ModuleFile::File)
                    .map_err(|source| OpenError::Io {
                        path: module.path.clone().into(),
                        source,
                    })
            }
            Some(Handle::Bytes(bytes)) => Ok(ModuleFile::Bytes(bytes.clone())),
            // It could not be opened while recording; the file of that name here is used only if
            // its build-id says that it is the same.
            None => LocalFiles.open(module),
        }
    }

    fn open_path(&self, _: &ModuleIdentity, path: &Path) -> Result<File, OpenError> {
        self.0.open(path).map_err(|error| OpenError::Io {
            path: path.to_owned(),
            source: io::Error::other(error.to_string()),
        })
    }
}

/// The flags as options.
pub(crate) fn options(args: &SymbolArgs) -> SymbolOptions {
    SymbolOptions {
        inlines: !args.no_inline,
        max_memory: args.max_memory.saturating_mul(1 << 20),
        cache: match args.no_cache {
            true => None,
            false => cache_dir(),
        },
        ..SymbolOptions::default()
    }
}

/// Where the XDG Base Directory Specification puts what can be made again.
fn cache_dir() -> Option<PathBuf> {
    let absolute = |name| {
        let path = PathBuf::from(std::env::var_os(name)?);
        path.is_absolute().then_some(path)
    };
    let base = absolute("XDG_CACHE_HOME").or_else(|| Some(absolute("HOME")?.join(".cache")))?;
    Some(base.join("wcprof"))
}

/// Makes of saved names what `--no-inline` would have saved.
pub(crate) fn drop_inline_frames(symbols: &mut SymbolTable) {
    for frames in symbols.frames.values_mut() {
        frames.retain(|frame| !frame.inlined);
        for frame in frames {
            (frame.file, frame.line) = (None, None);
        }
    }
}

/// Names from the files of the target that was just recorded.
pub(crate) fn of_recording(
    tables: &Tables,
    files: &TargetFiles,
    options: &SymbolOptions,
) -> (SymbolTable, SymbolReport) {
    symbolize_tables(tables, &Recorded(files), options)
}

/// Names from the files of this machine.
pub(crate) fn of_machine(tables: &Tables, options: &SymbolOptions) -> (SymbolTable, SymbolReport) {
    symbolize_tables(tables, &LocalFiles, options)
}
