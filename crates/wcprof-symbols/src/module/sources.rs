//! Opens the files that can name a module's addresses.

use std::path::PathBuf;

use dwarf_stream::elf::ElfFile;
use wcprof_types::BuildId;

use crate::build_id::build_id_of;
use crate::context::Context;
use crate::debug_files::{self, DebugFile};
use crate::debuginfod::Artifact;
use crate::files::ModuleFile;
use crate::mini_debug_info::mini_debug_info;
use crate::options::Inlines;
use crate::report::{ModuleReport, Problem, SourceKind, SourceUse, or_none};
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
    /// What `.gnu_debugaltlink` or `.debug_sup` of the file with the DWARF names.
    pub(super) supplementary: Option<ElfFile>,
    /// Symbols of all tables that were read.
    pub(super) symbols: SymbolIndex,
}

impl Sources {
    /// The file with DWARF, how it was found, and its path.
    pub(super) fn with_dwarf(&self) -> Option<(&ElfFile, SourceKind, &PathBuf)> {
        let own = self
            .own
            .iter()
            .map(|elf| (elf, SourceKind::Module, &self.own_path));
        let debug = self
            .debug
            .iter()
            .map(|file| (&file.elf, file.kind, &file.path));
        own.chain(debug).find(|(elf, ..)| elf.has_dwarf())
    }
}

/// Opens a module's files and reads their symbol tables.
pub(super) fn open(context: Context<'_>, report: &mut ModuleReport) -> Sources {
    let mut opener = Opener {
        context,
        report,
        tables: Vec::new(),
    };
    let (own, own_path) = match opener.own() {
        Some((elf, path)) => (Some(elf), path),
        None => (None, PathBuf::from(&context.module.path)),
    };
    let (mut has_symtab, mut has_own) = (false, false);
    if let Some(elf) = &own {
        let mut source = SourceUse::new(SourceKind::Module, own_path.clone());
        has_symtab = opener.read(elf, Table::Full, &mut source);
        opener.read(elf, Table::Dynamic, &mut source);
        opener.report.sources.push(source);
        has_own = !has_symtab && (opener.read_go(elf) || opener.read_mini(elf));
    }
    let has_dwarf = own.as_ref().is_some_and(ElfFile::has_dwarf);
    let has_names = has_symtab || has_own;
    let wants_dwarf = context.options.inlines != Inlines::No;
    let mut debug = None;
    if !has_names || (wants_dwarf && !has_dwarf) {
        let is_enough = |elf: &ElfFile| {
            (has_names || elf.section(".symtab").is_some())
                && (!wants_dwarf || has_dwarf || elf.has_dwarf())
        };
        debug = opener.debug(own.as_ref(), is_enough);
    }
    if let Some(file) = &debug {
        let mut source = SourceUse::new(file.kind, file.path.clone());
        has_symtab = has_symtab || opener.read(&file.elf, Table::Full, &mut source);
        opener.report.sources.push(source);
    }
    opener.report.missing_symtab = !has_symtab && !has_own;
    let mut sources = Sources {
        own,
        own_path,
        debug,
        supplementary: None,
        symbols: SymbolIndex::new(opener.tables),
    };
    if wants_dwarf {
        sources.supplementary = supplementary(context, &sources, report);
    }
    sources
}

/// The file that shares DWARF with the one that has it.
fn supplementary(
    context: Context<'_>,
    sources: &Sources,
    report: &mut ModuleReport,
) -> Option<ElfFile> {
    let (elf, _, path) = sources.with_dwarf()?;
    let problems = &mut report.problems;
    let link = elf.alt_link().unwrap_or_else(|error| {
        problems.push(context.left_out(path, "link to shared DWARF", error));
        None
    })?;
    debug_files::find_supplementary(context, path, &link, problems)
}

/// Opens files, and notes what fails.
struct Opener<'a> {
    context: Context<'a>,
    report: &'a mut ModuleReport,
    /// Symbol tables that were read.
    tables: Vec<SymbolTable>,
}

impl Opener<'_> {
    /// The module's own file: at its path, a copy elsewhere, or from a server.
    fn own(&mut self) -> Option<(ElfFile, PathBuf)> {
        match self.own_in_place() {
            Ok(elf) => return Some((elf, PathBuf::from(&self.context.module.path))),
            Err(problem) => self.report.problems.push(problem),
        }
        let found = debug_files::find_copy(self.context);
        let found = found.or_else(|| self.fetch(None, Artifact::Executable))?;
        // What was wrong with the file at the module's path no longer matters.
        self.report.problems.clear();
        Some(found)
    }

    fn own_in_place(&self) -> Result<ElfFile, Problem> {
        let module = self.context.module;
        let problem = |text| self.context.problem(text);
        let opened = self.context.files.open(module);
        let elf = match opened.map_err(|error| problem(error.to_string()))? {
            ModuleFile::File(file) => ElfFile::from_file(file),
            ModuleFile::Bytes(bytes) => ElfFile::from_bytes(bytes),
        }
        .map_err(|error| problem(format!("failed to read `{}`: {error}", module.path)))?;
        let found = build_id_of(&elf);
        match &module.build_id {
            Some(wanted) if found.as_ref() != Some(wanted) => Err(problem(format!(
                "the file `{}` is build-id {}, the process runs {wanted}",
                module.path,
                or_none(found.as_ref())
            ))),
            _ => Ok(elf.with_cancel(&self.context.options.cancel)),
        }
    }

    /// The separate debug file: the one on this machine if it is enough, else one from a server.
    fn debug(
        &mut self,
        own: Option<&ElfFile>,
        is_enough: impl Fn(&ElfFile) -> bool,
    ) -> Option<DebugFile> {
        let problems = &mut self.report.problems;
        let link = own.map_or(Ok(None), ElfFile::debug_link);
        let link = link.unwrap_or_else(|error| {
            let path = &self.context.module.path;
            problems.push(self.context.left_out(path, ".gnu_debuglink", error));
            None
        });
        let build_id = self.build_id(own);
        let problems = &mut self.report.problems;
        let found = debug_files::find(self.context, build_id.as_ref(), link.as_ref(), problems);
        if found.as_ref().is_some_and(|file| is_enough(&file.elf)) {
            return found;
        }
        let fetched = self.fetch(own, Artifact::DebugInfo);
        let fetched = fetched.map(|(elf, path)| DebugFile {
            elf,
            kind: SourceKind::Debuginfod,
            on_host: true,
            path,
        });
        fetched.or(found)
    }

    /// A file of the module from a debuginfod server. What is no file has none.
    fn fetch(&mut self, own: Option<&ElfFile>, artifact: Artifact) -> Option<(ElfFile, PathBuf)> {
        let module = self.context.module;
        let build_id = self
            .build_id(own)
            .filter(|_| module.path.starts_with('/'))?;
        let problems = &mut self.report.problems;
        let wanted = (module.file_name(), &build_id);
        self.context.surroundings.fetch(wanted, artifact, problems)
    }

    /// The build-id of the loaded image.
    fn build_id(&self, own: Option<&ElfFile>) -> Option<BuildId> {
        let known = self.context.module.build_id.clone();
        known.or_else(|| own.and_then(build_id_of))
    }

    /// Reads the table of Go's functions; returns whether there was one.
    fn read_go(&mut self, elf: &ElfFile) -> bool {
        let path = PathBuf::from(&self.context.module.path);
        let table = SymbolTable::read_go(elf).unwrap_or_else(|error| {
            let problem = self
                .context
                .left_out(&path, "table of Go's functions", error);
            self.report.problems.push(problem);
            None
        });
        let Some(table) = table else {
            return false;
        };
        self.report.sources.push(SourceUse {
            n_symtab: table.len(),
            ..SourceUse::new(SourceKind::GoFunctions, path)
        });
        self.tables.push(table);
        true
    }

    /// Reads the symbol table of the mini debug info; returns whether there was one.
    fn read_mini(&mut self, elf: &ElfFile) -> bool {
        let path = PathBuf::from(&self.context.module.path);
        let mini = mini_debug_info(elf).unwrap_or_else(|error| {
            let problem = self.context.left_out(&path, ".gnu_debugdata", error);
            self.report.problems.push(problem);
            None
        });
        let mut source = SourceUse::new(SourceKind::MiniDebugInfo, path);
        let has_symtab = mini.is_some_and(|mini| self.read(&mini, Table::Full, &mut source));
        if has_symtab {
            self.report.sources.push(source);
        }
        has_symtab
    }

    /// Reads one symbol table; returns whether there was one.
    fn read(&mut self, elf: &ElfFile, which: Table, source: &mut SourceUse) -> bool {
        let (what, n_functions) = match which {
            Table::Full => (".symtab", &mut source.n_symtab),
            Table::Dynamic => (".dynsym", &mut source.n_dynsym),
        };
        match SymbolTable::read(elf, which) {
            Ok(Some(table)) => {
                *n_functions = table.len();
                self.tables.push(table);
                true
            }
            Ok(None) => false,
            Err(error) => {
                let problem = self.context.left_out(&source.path, what, error);
                self.report.problems.push(problem);
                false
            }
        }
    }
}
