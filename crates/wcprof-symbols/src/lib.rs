//! Build-id and address in, function names out: inline frames, source lines, demangled.
//!
//! Works on files alone and never on a live process; files that this machine lacks may come from
//! debuginfod servers, if the caller names any ([`Debuginfod`]). The caller says how a module's file is opened
//! ([`ModuleFiles`]); [`LocalFiles`] takes the file at the recorded path on this machine,
//! [`Root`] looks below a container's root. Everything read is taken to be hostile: only
//! regular files are opened, nothing is mapped into memory, every table has a limit that its error
//! names.
//!
//! An address is named by a symbol only if it lies inside that symbol; it is never named after the
//! nearest one. What no symbol covers is shown as `module+0xoffset` of its function's start, which
//! call frame information gives ([`FunctionStarts`]).
//!
//! Main entry points: [`symbolize_tables`] for a whole trace, [`symbolize_modules`] for addresses.
#![forbid(unsafe_code)]

mod build_id;
mod cache;
mod cache_key;
mod clones;
mod confined;
mod context;
mod continued;
mod debug_files;
mod debuginfod;
mod demangle;
mod files;
mod function_starts;
mod health;
mod jitdump;
mod kallsyms;
mod mini_debug_info;
mod module;
mod options;
mod packages;
mod perf_map;
mod plt;
mod query;
mod report;
mod saved_names;
mod short;
mod surroundings;
mod symtab;
mod tables;
mod text_lines;
mod wanted;

pub use clones::without_clone_suffix;
pub use confined::{
    ConfinedProcess, Confinement, Ended, OnFile, ProcessWatch, StartProcess, begin,
    code_from_server, confinement, elf_file, in_memory, run_confined, symbolize_confined,
    tell_size, wire,
};
pub use debuginfod::{
    CachePath, Debuginfod, DebuginfodOptions, Download, OnProgress, ServerFailure,
};
pub use demangle::{MAX_NAME_CHARS, demangle};
pub use dwarf_stream::{Cancel, elf};
pub use files::{
    LocalFiles, ModuleFile, ModuleFiles, ModuleIdentity, NoFile, OpenError, Root, TargetFile,
    open_regular, open_regular_in_time,
};
pub use function_starts::FunctionStarts;
pub use health::{Health, ModuleHealth};
pub use jitdump::{JitCode, JitNames, JitdumpError, jitdump_names};
pub use kallsyms::{KallsymsError, kernel_names};
pub use module::{symbolize_modules, symbolize_one};
pub use options::{Inlines, Naming, SymbolOptions};
pub use packages::{Container, Supply};
pub use perf_map::perf_map_names;
pub use query::{AddressQuery, ModuleQuery, ModuleSymbols};
pub use report::{ModuleReport, Problem, SourceKind, SourceUse, SymbolReport};
pub use saved_names::{drop_inline_frames, improve_names};
pub use short::{call_name, short_name};
pub use tables::symbolize_tables;
