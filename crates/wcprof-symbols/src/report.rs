//! What symbolization used, and what it could not.

use std::collections::HashSet;
use std::fmt;
use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};
use wcprof_trace::model::FrameId;
use wcprof_types::BuildId;

/// Where names of a module came from, in the order in which sources are asked.
#[derive(Copy, Clone, PartialEq, Eq, Hash, PartialOrd, Ord, Debug, Serialize, Deserialize)]
pub enum SourceKind {
    /// The module's own file: its symbol tables, its own DWARF.
    Module,
    /// The symbol table in the module's `.gnu_debugdata` (mini debug info).
    MiniDebugInfo,
    /// The table of functions in a module's own file that a Go program has for its tracebacks.
    GoFunctions,
    /// A debug file found by build-id.
    BuildIdFile,
    /// A debug file that `.gnu_debuglink` names.
    DebugLink,
    /// A file of the module's name and build-id in a folder of debug files.
    DebugDir,
    /// A file that a debuginfod server has for the build-id.
    Debuginfod,
    /// A package of split DWARF (`.dwp`).
    SplitPackage,
    /// Files with the split DWARF of single units (`.dwo`); the first of them.
    SplitObject,
    /// Names that were recorded with the trace, of code that is in no file.
    Recorded,
}

impl fmt::Display for SourceKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Module => "module",
            Self::MiniDebugInfo => "mini debug info (.gnu_debugdata)",
            Self::GoFunctions => "table of Go's functions (.gopclntab)",
            Self::BuildIdFile => "debug file by build-id",
            Self::Recorded => "names recorded with it",
            Self::DebugDir => "file of that name and build-id",
            Self::Debuginfod => "file from debuginfod",
            Self::SplitPackage => "split DWARF (.dwp)",
            Self::SplitObject => "split DWARF (.dwo)",
            Self::DebugLink => "debug file by .gnu_debuglink",
        })
    }
}

/// A file that gave names.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct SourceUse {
    /// How it was found.
    pub kind: SourceKind,
    /// Its path.
    pub path: PathBuf,
    /// Functions in the `.symtab` that was read; 0 without one, or when it was not needed.
    pub n_symtab: usize,
    /// Functions in the `.dynsym` that was read.
    pub n_dynsym: usize,
    /// Its DWARF gave inline frames and lines.
    pub dwarf: bool,
}

impl SourceUse {
    /// A file that gave nothing yet.
    pub(crate) fn new(kind: SourceKind, path: PathBuf) -> Self {
        Self {
            kind,
            path,
            n_symtab: 0,
            n_dynsym: 0,
            dwarf: false,
        }
    }
}

/// Something that stood in the way of names.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
#[error("{module}: {text}")]
pub struct Problem {
    /// The module's file name.
    pub module: String,
    /// What it is, with the file that it is about. Names in it are not escaped.
    pub text: String,
}

impl Problem {
    /// A debug file could not be opened or read.
    pub(crate) fn unusable(module: &str, file: &Path, reason: &dyn fmt::Display) -> Self {
        Self {
            module: module.to_owned(),
            text: format!("debug file `{}`: {reason}", file.display()),
        }
    }

    /// A debug file belongs to another build.
    pub(crate) fn mismatch(
        module: &str,
        file: &Path,
        found: Option<&BuildId>,
        wanted: Option<&BuildId>,
    ) -> Self {
        Self {
            module: module.to_owned(),
            text: format!(
                "debug file `{}` is for build-id {}, the process runs {}",
                file.display(),
                or_none(found),
                or_none(wanted)
            ),
        }
    }
}

/// A build-id as text.
pub(crate) fn or_none(id: Option<&BuildId>) -> String {
    id.map_or_else(|| "(none)".to_owned(), ToString::to_string)
}

/// How the names of one module were found.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct ModuleReport {
    /// The module's path.
    pub path: String,
    /// The module's build-id.
    pub build_id: Option<BuildId>,
    /// Files that gave names, in the order in which they are preferred.
    pub sources: Vec<SourceUse>,
    /// What stood in the way.
    pub problems: Vec<Problem>,
    /// The module has no full symbol table of its own and no debug file was found: only exported
    /// functions have names.
    pub missing_symtab: bool,
    /// Inline frames and lines were asked for, and no DWARF was found or it could not be used.
    pub missing_dwarf: bool,
    /// The search for its names was ended before it was through.
    pub is_cancelled: bool,
    /// The file system of its own file did not answer, and may do so later.
    pub is_silent: bool,
    /// Addresses whose inline frames are not in the cache ([`Inlines::Quick`](crate::Inlines::Quick)).
    pub n_pending: usize,
    /// Distinct addresses.
    pub n_frames: usize,
    /// Distinct addresses without a name.
    pub n_unresolved: usize,
}

impl ModuleReport {
    /// The last part of its path.
    pub fn file_name(&self) -> &str {
        wcprof_types::file_name(&self.path)
    }

    /// The vdso, the kernel, and code that a JIT compiler made: no file, package or server has them.
    pub fn is_no_file(&self) -> bool {
        self.path.starts_with('[') || self.path.starts_with("/memfd:")
    }

    /// Whether it is a Go program whose functions have names by its own table.
    fn has_go_functions(&self) -> bool {
        let mut kinds = self.sources.iter().map(|source| source.kind);
        kinds.any(|kind| kind == SourceKind::GoFunctions)
    }

    /// Why it has frames without names, in a few words; not escaped.
    pub fn why_unresolved(&self) -> &str {
        if self.path == "[anon]" {
            return "it is in no file, and no perf map or jitdump of the target names it";
        }
        match self.problems.first() {
            // A refusal explains more than what is missing for it.
            Some(problem) => &problem.text,
            None if self.has_go_functions() => "they are not Go's, and no debug file was found",
            None if self.missing_symtab => "it is stripped and no debug file was found",
            None => "its symbol table does not have them",
        }
    }
}

/// How names were found, by module.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct SymbolReport {
    /// Modules in the order in which the trace has them; one entry for all processes that mapped
    /// the same file.
    pub modules: Vec<ModuleReport>,
    /// Distinct frames with an address.
    pub n_frames: usize,
    /// Distinct frames without a name, those outside every module included.
    pub n_unresolved: usize,
    /// Frames whose names are not all known yet: the search was ended, or a file system did not answer.
    pub unfinished: HashSet<FrameId>,
}

impl SymbolReport {
    /// What stood in the way, module by module.
    pub fn problems(&self) -> impl Iterator<Item = &Problem> {
        self.modules.iter().flat_map(|module| &module.problems)
    }

    /// Whether the search for names was ended before it was through.
    pub fn is_cancelled(&self) -> bool {
        self.modules.iter().any(|module| module.is_cancelled)
    }

    /// Addresses whose inline frames are not in the cache.
    pub fn n_pending(&self) -> usize {
        self.modules.iter().map(|module| module.n_pending).sum()
    }

    /// The module with most frames without a name, if there is one.
    pub fn worst(&self) -> Option<&ModuleReport> {
        let worst = self.modules.iter().max_by_key(|m| m.n_unresolved);
        worst.filter(|m| m.n_unresolved > 0)
    }
}
