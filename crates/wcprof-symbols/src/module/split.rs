//! Where the files of split DWARF may be: packages beside the module and its debug file, single
//! files where they were compiled, both below the folders of debug files.
//!
//! The owner of the module chose these paths. So they mean files in the root that the module was
//! loaded in, as those of `.gnu_debuglink` do; the folders of debug files are this machine's, and
//! only the last parts of a path count there.

use std::path::{Component, Path, PathBuf};

use dwarf_stream::elf::{ElfFile, Kind, Source};
use dwarf_stream::{DwarfError, SplitFile, SplitFiles};

use super::sources::Sources;
use crate::context::Context;

/// Longest path that is searched, bytes: the limit of the system.
const MAX_PATH: usize = 4096;

/// Split DWARF of one module.
#[derive(Copy, Clone)]
pub(super) struct Split<'a> {
    pub(super) context: Context<'a>,
    pub(super) sources: &'a Sources,
}

impl std::fmt::Debug for Split<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Split")
            .field("module", self.context.module)
            .finish_non_exhaustive()
    }
}

/// A path, and whether it is one of this machine and not where the module was loaded.
type Place = (PathBuf, bool);

impl Split<'_> {
    /// `None` when it is not there.
    fn open(&self, place: &Place, is_package: bool) -> Option<Result<SplitFile, DwarfError>> {
        let (path, on_host) = place;
        let unusable = |reason: String| DwarfError::SplitUnusable {
            path: path.display().to_string(),
            reason,
        };
        let opened = self.context.open(path, *on_host)?;
        let file = opened.map_err(|error| unusable(error.to_string()));
        Some(file.and_then(|file| {
            let source = Source::from_file(file);
            let elf = source.and_then(|source| ElfFile::parse(source, Kind::DwarfOnly));
            let elf = elf.map_err(|error| unusable(error.to_string()))?;
            Ok(SplitFile {
                elf: elf.with_cancel(&self.context.options.cancel),
                path: path.clone(),
                is_package,
            })
        }))
    }

    fn package_places(&self) -> Vec<Place> {
        let module = Path::new(&self.context.module.path);
        let own = &self.sources.own_path;
        let debug = self.sources.debug.as_ref();
        let beside = [
            module.is_absolute().then_some((module, false)),
            (own != module).then_some((own, true)),
            debug.map(|file| (file.path.as_path(), file.on_host)),
        ];
        let beside = beside.into_iter().flatten();
        let mut places: Vec<Place> = beside
            .map(|(path, on_host)| (with_suffix(path), on_host))
            .collect();
        let name = self.context.module.file_name();
        if !matches!(name, "" | "." | "..") {
            let dirs = self.context.options.debug_dirs.iter();
            places.extend(dirs.map(|dir| (dir.join(format!("{name}.dwp")), true)));
        }
        places
    }
}

impl SplitFiles for Split<'_> {
    fn packages(&self) -> Vec<Result<SplitFile, DwarfError>> {
        let places = self.package_places();
        let found = places.iter().filter_map(|place| self.open(place, true));
        found.collect()
    }

    fn object(&self, comp_dir: &str, name: &str) -> Result<SplitFile, DwarfError> {
        let compiled = Path::new(comp_dir).join(name);
        let missing = || DwarfError::SplitMissing(compiled.display().to_string());
        if name.is_empty() || compiled.as_os_str().len() > MAX_PATH {
            return Err(missing());
        }
        let mut places = Vec::new();
        if compiled.is_absolute() {
            places.push((compiled.clone(), false));
        }
        let relative = normal(Path::new(name));
        let last = relative.file_name().map(PathBuf::from);
        let inside = [Some(normal(&compiled)), Some(relative), last];
        for dir in &self.context.options.debug_dirs {
            for path in inside.iter().flatten().map(|path| dir.join(path)) {
                if places.iter().all(|(known, _)| *known != path) {
                    places.push((path, true));
                }
            }
        }
        let found = places.iter().find_map(|place| self.open(place, false));
        found.unwrap_or_else(|| Err(missing()))
    }
}

/// A path without the parts that lead up or to the root.
fn normal(path: &Path) -> PathBuf {
    let parts = path.components();
    parts
        .filter(|part| matches!(part, Component::Normal(_)))
        .collect()
}

fn with_suffix(path: &Path) -> PathBuf {
    let mut path = path.as_os_str().to_owned();
    path.push(".dwp");
    path.into()
}
