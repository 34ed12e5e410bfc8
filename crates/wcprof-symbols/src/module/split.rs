//! Where the files of split DWARF may be: packages beside the module and its debug file, single
//! files where they were compiled, both below the folders of debug files.
//!
//! The owner of the module chose these paths. So they mean files in the root that the module was
//! loaded in, as those of `.gnu_debuglink` do; the folders of debug files are this machine's, and
//! only the last parts of a path count there.

use std::fs::File;
use std::path::{Component, Path, PathBuf};

use super::sources::Sources;
use crate::dwarf::{DwarfError, SplitFile, SplitFiles};
use crate::elf::ElfFile;
use crate::files::{ModuleFiles, ModuleIdentity, OpenError, open_regular};
use crate::options::SymbolOptions;

/// Longest path that is looked for, bytes: the limit of the system.
const MAX_PATH: usize = 4096;

/// Split DWARF of one module.
#[derive(Copy, Clone)]
pub(super) struct Split<'a> {
    pub(super) module: &'a ModuleIdentity,
    pub(super) sources: &'a Sources,
    pub(super) files: &'a dyn ModuleFiles,
    pub(super) options: &'a SymbolOptions,
}

impl std::fmt::Debug for Split<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Split")
            .field("module", self.module)
            .finish_non_exhaustive()
    }
}

/// A place to look at.
struct Place {
    path: PathBuf,
    /// On this machine, and not where the module was loaded.
    on_host: bool,
}

impl Split<'_> {
    /// `None` when it is not there.
    fn open(&self, place: &Place, is_package: bool) -> Option<Result<SplitFile, DwarfError>> {
        let opened = match place.on_host {
            true => open_regular(&place.path),
            false => self.files.open_path(self.module, &place.path),
        };
        let file = match opened {
            Ok(file) => file,
            Err(error) if error.is_not_found() => return None,
            Err(error) => return Some(Err(unusable(&place.path, &error))),
        };
        Some(self.parse(file, place, is_package))
    }

    fn parse(&self, file: File, place: &Place, is_package: bool) -> Result<SplitFile, DwarfError> {
        let elf = ElfFile::from_shared_dwarf(file).map_err(|error| DwarfError::SplitUnusable {
            path: place.path.display().to_string(),
            reason: error.to_string(),
        })?;
        Ok(SplitFile {
            elf,
            path: place.path.clone(),
            is_package,
        })
    }

    fn package_places(&self) -> Vec<Place> {
        let mut places = Vec::new();
        let module = &self.module.path;
        if module.starts_with('/') {
            places.push(Place {
                path: with_suffix(Path::new(module)),
                on_host: false,
            });
        }
        let own = &self.sources.own_path;
        if own != Path::new(module) {
            places.push(Place {
                path: with_suffix(own),
                on_host: true,
            });
        }
        if let Some(debug) = &self.sources.debug {
            places.push(Place {
                path: with_suffix(&debug.path),
                on_host: debug.on_host,
            });
        }
        let name = self.module.file_name();
        if !matches!(name, "" | "." | "..") {
            places.extend(self.options.debug_dirs.iter().map(|dir| Place {
                path: dir.join(format!("{name}.dwp")),
                on_host: true,
            }));
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
            places.push(Place {
                path: compiled.clone(),
                on_host: false,
            });
        }
        let inside: PathBuf = normal(&compiled).collect();
        for dir in &self.options.debug_dirs {
            let relative: PathBuf = normal(Path::new(name)).collect();
            let last = relative.file_name().map(PathBuf::from);
            for path in [Some(inside.clone()), Some(relative), last]
                .into_iter()
                .flatten()
            {
                let path = dir.join(path);
                if places.iter().all(|place| place.path != path) {
                    places.push(Place {
                        path,
                        on_host: true,
                    });
                }
            }
        }
        let found = places.iter().find_map(|place| self.open(place, false));
        found.unwrap_or_else(|| Err(missing()))
    }
}

/// The parts of a path that do not lead up or to the root.
fn normal(path: &Path) -> impl Iterator<Item = Component<'_>> {
    path.components()
        .filter(|part| matches!(part, Component::Normal(_)))
}

fn with_suffix(path: &Path) -> PathBuf {
    let mut path = path.as_os_str().to_owned();
    path.push(".dwp");
    path.into()
}

fn unusable(path: &Path, error: &OpenError) -> DwarfError {
    DwarfError::SplitUnusable {
        path: path.display().to_string(),
        reason: error.to_string(),
    }
}
