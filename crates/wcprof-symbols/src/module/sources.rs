//! Opens the files that can name a module's addresses.

use std::path::{Path, PathBuf};

use wcprof_types::BuildId;

use crate::debug_files::{self, DebugFile, Search};
use crate::debuginfod::Artifact;
use crate::elf::{ElfError, ElfFile};
use crate::files::{ModuleFile, ModuleFiles, ModuleIdentity};
use crate::options::SymbolOptions;
use crate::report::{ModuleReport, Problem, SourceKind, SourceUse};
use crate::symtab::{SymbolIndex, SymbolTable, Table};

/// What can name a module's addresses.
#[derive(Debug, Default)]
pub(super) struct Sources {
    /// The module's own file, compared with the loaded image.
    pub(super) own: Option<ElfFile>,
    /// Its separate debug file; not searched when the own file has all that is asked for.
    pub(super) debug: Option<DebugFile>,
    /// Where the own file is, or the copy of it that is used.
    pub(super) own_path: PathBuf,
    /// What `.gnu_debugaltlink` of the file with the DWARF names.
    pub(super) supplementary: Option<ElfFile>,
    /// Symbols of all tables that were read.
    pub(super) symbols: SymbolIndex,
}

/// Opens a module's files and reads their symbol tables.
pub(super) fn open(
    module: &ModuleIdentity,
    files: &dyn ModuleFiles,
    options: &SymbolOptions,
    report: &mut ModuleReport,
) -> Sources {
    let mut own_path = PathBuf::from(&module.path);
    let mut own = open_own(module, files, &mut report.problems);
    if own.is_none()
        && let Some((elf, path)) = find_copy(module, files, options)
    {
        // What was wrong with the file at the module's path no longer matters.
        report.problems.clear();
        (own, own_path) = (Some(elf), path);
    }
    if own.is_none()
        && let Some((elf, path)) = fetch(module, None, Artifact::Executable, options, report)
    {
        report.problems.clear();
        (own, own_path) = (Some(elf), path);
    }
    let mut tables = Vec::new();
    let mut has_symtab = false;
    if let Some(elf) = &own {
        let mut source = source(SourceKind::Module, own_path.clone());
        let mut reader = Reader { module, report };
        has_symtab = reader.read(elf, Table::Full, &mut source, &mut tables);
        reader.read(elf, Table::Dynamic, &mut source, &mut tables);
        report.sources.push(source);
    }
    let mut has_mini = false;
    if !has_symtab && let Some(elf) = &own {
        has_mini = read_mini(module, elf, report, &mut tables);
    }
    let has_dwarf = own.as_ref().is_some_and(ElfFile::has_dwarf);
    let mut debug = None;
    let has_names = has_symtab || has_mini;
    if !has_names || (options.inlines && !has_dwarf) {
        debug = find_debug(module, own.as_ref(), files, options, report);
        let gives_names = |elf: &ElfFile| elf.section(".symtab").is_some();
        let is_enough = debug.as_ref().is_some_and(|file| {
            (has_names || gives_names(&file.elf))
                && (!options.inlines || has_dwarf || file.elf.has_dwarf())
        });
        if !is_enough {
            let artifact = Artifact::DebugInfo;
            let fetched = fetch(module, own.as_ref(), artifact, options, report);
            let fetched = fetched.map(|(elf, path)| DebugFile {
                elf,
                kind: SourceKind::Debuginfod,
                on_host: true,
                path,
            });
            debug = fetched.or(debug);
        }
    }
    if let Some(file) = &debug {
        let mut source = source(file.kind, file.path.clone());
        if !has_symtab {
            let mut reader = Reader { module, report };
            has_symtab = reader.read(&file.elf, Table::Full, &mut source, &mut tables);
        }
        report.sources.push(source);
    }
    report.missing_symtab = !has_symtab && !has_mini;
    let with_dwarf = [
        own.as_ref().map(|elf| (elf, own_path.as_path())),
        debug.as_ref().map(|file| (&file.elf, file.path.as_path())),
    ];
    let with_dwarf = with_dwarf
        .into_iter()
        .flatten()
        .find(|(elf, _)| elf.has_dwarf());
    let supplementary = match with_dwarf {
        Some((elf, path)) if options.inlines => {
            find_supplementary(module, elf, path, files, options, report)
        }
        _ => None,
    };
    Sources {
        own,
        own_path,
        debug,
        supplementary,
        symbols: SymbolIndex::new(tables),
    }
}

/// Reads the symbol table of the mini debug info; whether there was one.
fn read_mini(
    module: &ModuleIdentity,
    elf: &ElfFile,
    report: &mut ModuleReport,
    tables: &mut Vec<SymbolTable>,
) -> bool {
    let mini = match elf.mini_debug_info() {
        Ok(Some(mini)) => mini,
        Ok(None) => return false,
        Err(error) => {
            left_out(module, report, &module.path, ".gnu_debugdata", &error);
            return false;
        }
    };
    let mut source = source(SourceKind::MiniDebugInfo, PathBuf::from(&module.path));
    let mut reader = Reader { module, report };
    let has_symtab = reader.read(&mini, Table::Full, &mut source, tables);
    if has_symtab {
        report.sources.push(source);
    }
    has_symtab
}

fn source(kind: SourceKind, path: PathBuf) -> SourceUse {
    SourceUse {
        kind,
        path,
        n_symtab: 0,
        n_dynsym: 0,
        dwarf: false,
    }
}

fn open_own(
    module: &ModuleIdentity,
    files: &dyn ModuleFiles,
    problems: &mut Vec<Problem>,
) -> Option<ElfFile> {
    let unusable = |reason: String| Problem::ModuleUnusable {
        module: module.file_name().to_owned(),
        reason,
    };
    let opened = files.open(module).map_err(|e| unusable(e.to_string()));
    let parsed = opened.and_then(|file| {
        match file {
            ModuleFile::File(file) => ElfFile::from_file(file),
            ModuleFile::Bytes(bytes) => ElfFile::from_bytes(bytes),
        }
        .map_err(|e| unusable(format!("failed to read `{}`: {e}", module.path)))
    });
    let elf = parsed.map_err(|problem| problems.push(problem)).ok()?;
    if let Some(wanted) = &module.build_id {
        let found = elf.build_id();
        if found.as_ref() != Some(wanted) {
            problems.push(Problem::ModuleMismatch {
                module: module.file_name().to_owned(),
                path: module.path.clone(),
                found,
                wanted: wanted.clone(),
            });
            return None;
        }
    }
    Some(elf)
}

/// A copy of the module elsewhere, which a build-id proves to be the same.
fn find_copy(
    module: &ModuleIdentity,
    files: &dyn ModuleFiles,
    options: &SymbolOptions,
) -> Option<(ElfFile, PathBuf)> {
    let search = Search {
        module,
        build_id: Some(module.build_id.as_ref()?),
        link: None,
        options,
    };
    debug_files::find_copy(&search, files)
}

/// A file of the module from a debuginfod server. What is no file has none.
fn fetch(
    module: &ModuleIdentity,
    own: Option<&ElfFile>,
    artifact: Artifact,
    options: &SymbolOptions,
    report: &mut ModuleReport,
) -> Option<(ElfFile, PathBuf)> {
    let client = options.debuginfod.as_ref()?;
    let build_id = build_id(module, own).filter(|_| module.path.starts_with('/'))?;
    client.fetch(
        module.file_name(),
        &build_id,
        artifact,
        &mut report.problems,
    )
}

/// The build-id of the loaded image.
fn build_id(module: &ModuleIdentity, own: Option<&ElfFile>) -> Option<BuildId> {
    match (&module.build_id, own) {
        (Some(id), _) => Some(id.clone()),
        (None, Some(elf)) => elf.build_id(),
        (None, None) => None,
    }
}

/// The file that shares DWARF with this one.
fn find_supplementary(
    module: &ModuleIdentity,
    elf: &ElfFile,
    path: &Path,
    files: &dyn ModuleFiles,
    options: &SymbolOptions,
    report: &mut ModuleReport,
) -> Option<ElfFile> {
    let link = elf.alt_link().unwrap_or_else(|error| {
        left_out(module, report, path, ".gnu_debugaltlink", &error);
        None
    })?;
    let search = Search {
        module,
        build_id: None,
        link: None,
        options,
    };
    debug_files::find_supplementary(&search, path, &link, files, &mut report.problems)
}

fn find_debug(
    module: &ModuleIdentity,
    own: Option<&ElfFile>,
    files: &dyn ModuleFiles,
    options: &SymbolOptions,
    report: &mut ModuleReport,
) -> Option<DebugFile> {
    let build_id = build_id(module, own);
    let link = own.map_or(Ok(None), ElfFile::debug_link);
    let link = link.unwrap_or_else(|error| {
        left_out(module, report, &module.path, ".gnu_debuglink", &error);
        None
    });
    let search = Search {
        module,
        build_id: build_id.as_ref(),
        link: link.as_ref(),
        options,
    };
    debug_files::find(&search, files, &mut report.problems)
}

fn left_out(
    module: &ModuleIdentity,
    report: &mut ModuleReport,
    path: impl Into<PathBuf>,
    what: &'static str,
    error: &ElfError,
) {
    report.problems.push(Problem::LeftOut {
        module: module.file_name().to_owned(),
        path: path.into(),
        what,
        reason: error.to_string(),
    });
}

/// Reads symbol tables, noting what fails.
struct Reader<'a> {
    module: &'a ModuleIdentity,
    report: &'a mut ModuleReport,
}

impl Reader<'_> {
    /// Reads one table into `tables`; whether there was one.
    fn read(
        &mut self,
        elf: &ElfFile,
        which: Table,
        source: &mut SourceUse,
        tables: &mut Vec<SymbolTable>,
    ) -> bool {
        match SymbolTable::read(elf, which) {
            Ok(Some(table)) => {
                match which {
                    Table::Full => source.n_symtab = table.len(),
                    Table::Dynamic => source.n_dynsym = table.len(),
                }
                tables.push(table);
                true
            }
            Ok(None) => false,
            Err(error) => {
                let what = match which {
                    Table::Full => ".symtab",
                    Table::Dynamic => ".dynsym",
                };
                left_out(self.module, self.report, &source.path, what, &error);
                false
            }
        }
    }
}
