//! Names for a trace: symbols meet modules here. Of a live target through the files that the
//! recording held open, of a saved trace through the files of this machine.

use std::borrow::Cow;
use std::collections::{BTreeMap, HashSet};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use anyhow::Context;
use wcprof_host::open::{NoFile, OpenError, Root, TargetFile};
use wcprof_profile::model::Profile;
use wcprof_profile::rename_functions;
use wcprof_record::{Handle, TargetFiles};
use wcprof_symbols::{
    Cancel, Debuginfod, DebuginfodOptions, Inlines, LocalFiles, ModuleFile, ModuleFiles,
    ModuleIdentity, ModuleQuery, Problem, SymbolOptions, SymbolReport, short_name,
    symbolize_confined, symbolize_tables, without_clone_suffix,
};
use wcprof_text::terminal_name;
use wcprof_trace::model::{Frame, FrameId, SymbolTable, Tables};

use crate::args::SymbolArgs;
use crate::confined::{self, ConfinedWork, Pace};
use crate::failure::Failure;
use crate::progress;

/// The copy of another machine's root that the flags name.
pub(crate) fn sysroot(args: &SymbolArgs) -> Result<Option<Root>, Failure> {
    let root = args.sysroot.as_ref().map(|path| {
        Root::new(path)
            .with_context(|| format!("failed to open sysroot `{}`", path.display()))
            .map_err(Failure::usage)
    });
    root.transpose()
}

/// Files below a root, or of this machine.
pub(crate) fn files_in(root: Option<&Root>) -> &dyn ModuleFiles {
    match root {
        Some(root) => root,
        None => &LocalFiles,
    }
}

/// No names.
pub(crate) const NONE: &SymbolTable = &SymbolTable {
    frames: BTreeMap::new(),
};

/// Files of the processes that were just recorded, and a root that may have others.
struct Recorded<'a>(&'a [TargetFiles], Option<Root>);

impl Recorded<'_> {
    /// Files of the process that a module is mapped in; several, when it was one after the other.
    fn files_of<'m>(&'m self, module: &'m ModuleIdentity) -> impl Iterator<Item = &'m TargetFiles> {
        let files = self.0.iter();
        files.filter(|files| module.pid.is_none_or(|pid| pid == files.pid()))
    }
}

impl ModuleFiles for Recorded<'_> {
    fn open(&self, module: &ModuleIdentity) -> Result<ModuleFile, OpenError> {
        let handle = |start| {
            let mut files = self.files_of(module);
            files.find_map(|files| files.module(start, module.build_id.as_ref()))
        };
        match module.start.and_then(handle) {
            // Where it hangs in closing it, a child does, too, and that is known here.
            Some(Handle::File(file)) => {
                let file = file.duplicate().map(ModuleFile::File);
                file.map_err(|e| e.at(&module.path))
            }
            Some(Handle::Bytes(bytes)) => Ok(ModuleFile::Bytes(bytes.clone())),
            // It could not be opened while recording; the file of that name here is used only if
            // its build-id says that it is the same.
            None => files_in(self.1.as_ref()).open(module),
        }
    }

    fn open_path(&self, module: &ModuleIdentity, path: &Path) -> Result<TargetFile, OpenError> {
        let Some(files) = self.files_of(module).next() else {
            return Err(NoFile::NotFound.at(path));
        };
        match (files.open(path), &self.1) {
            // What a container lacks is not taken from the host on the target's word.
            (Err(error), Some(root)) if error.is_not_found() => root.open_path(module, path),
            (opened, _) => opened,
        }
    }
}

/// Refuses flags that cannot work, before anything is recorded.
pub(crate) fn check(args: &SymbolArgs) -> Result<(), Failure> {
    sysroot(args).map(drop)
}

/// The flags as options.
pub(crate) fn options(args: &SymbolArgs) -> SymbolOptions {
    let defaults = SymbolOptions::default();
    let debug_dirs = args.debug_dir.iter().cloned();
    SymbolOptions {
        inlines: match args.no_inline {
            true => Inlines::No,
            false => Inlines::All,
        },
        debug_dirs: debug_dirs.chain(defaults.debug_dirs).collect(),
        max_memory: args.max_memory.saturating_mul(1 << 20),
        cache: (!args.no_cache).then(cache_dir).flatten(),
        debuginfod: (!args.no_debuginfod).then(debuginfod).flatten(),
        progress: progress::has_terminal().then(Arc::default),
        ..SymbolOptions::default()
    }
}

/// The flags as options for a process that is recorded here, until `cancel`; with `raw`, names are for another
/// host.
pub(crate) fn recording_options(args: &SymbolArgs, raw: bool, cancel: &Cancel) -> SymbolOptions {
    let mut options = options(args);
    options.cancel = cancel.clone();
    if raw {
        // Debug files are for the host that analyses, not for the one that is recorded.
        options.inlines = Inlines::No;
        options.debug_dirs.clear();
        (options.cache, options.debuginfod) = (None, None);
    }
    options
}

/// The servers that the environment names.
fn debuginfod() -> Option<Arc<Debuginfod>> {
    let options = DebuginfodOptions::from_environment(|name| std::env::var_os(name))?;
    if options.n_refused > 0 {
        message!(
            "wcprof: {} of the servers in DEBUGINFOD_URLS are not asked: `ima:enforcing` wants signed files, and \
             wcprof cannot verify signatures; `ima:ignore` before a server permits it",
            options.n_refused
        );
    }
    if options.urls.is_empty() {
        return None;
    }
    Some(Arc::new(Debuginfod::new(DebuginfodOptions {
        on_progress: progress::on_terminal(),
        ..options
    })))
}

/// Finds names, and says which servers failed on the way.
pub(crate) fn symbolize(
    tables: &Tables,
    known: &SymbolTable,
    files: &dyn ModuleFiles,
    options: &SymbolOptions,
    pace: Option<Pace>,
) -> (SymbolTable, SymbolReport) {
    let start = |socket| confined::start(socket, options, ConfinedWork::Names(pace));
    let symbolize = |queries: &[ModuleQuery]| symbolize_confined(queries, files, options, &start);
    let work = || symbolize_tables(tables, known, symbolize);
    let result = match &options.progress {
        Some(naming) => progress::while_naming(naming, work),
        None => work(),
    };
    if let Some(client) = &options.debuginfod {
        progress::clear();
        for failure in client.failures() {
            message!("wcprof: {failure}");
        }
    }
    result
}

/// Whether files may have names of frames that are not `known`.
pub(crate) fn lacks_names(tables: &Tables, known: &SymbolTable) -> bool {
    let mut frames = (0..).map(FrameId).zip(&tables.frames);
    let local = &tables.names.local.names.frames;
    frames.any(|(id, frame)| {
        let is_known = || known.frames.contains_key(&id) || local.contains_key(&id);
        matches!(frame, Frame::Native { .. }) && !is_known()
    })
}

/// The names that a trace keeps; for others a report looks.
pub(crate) fn finished<'s>(
    symbols: &'s SymbolTable,
    report: &SymbolReport,
) -> Cow<'s, SymbolTable> {
    let mut kept = Cow::Borrowed(symbols);
    if !report.unfinished.is_empty() {
        let frames = &mut kept.to_mut().frames;
        frames.retain(|id, _| !report.unfinished.contains(id));
    }
    kept
}

/// Takes back names that were found before, where a later search was ended.
pub(crate) fn take_back(
    (symbols, unfinished): (&mut SymbolTable, &mut HashSet<FrameId>),
    (before, unfinished_before): (SymbolTable, HashSet<FrameId>),
) {
    let known = before.frames.into_iter();
    for (id, names) in known.filter(|(id, _)| !unfinished_before.contains(id)) {
        if unfinished.remove(&id) {
            symbols.frames.insert(id, names);
        }
    }
}

/// Says that names of a trace are missing because the user did not want to wait for them.
pub(crate) fn print_cancelled(trace: &Path) {
    let trace = trace.display();
    message!(
        "wcprof: names are incomplete, as the search for them was ended; `wcprof report {trace}` finds them"
    );
}

/// Says why names are missing, a line each, the first few only.
pub(crate) fn print_problems<'p>(problems: impl Iterator<Item = &'p Problem>) {
    const MOST: usize = 5;
    let problems: Vec<&Problem> = problems.collect();
    for problem in problems.iter().take(MOST) {
        message!("wcprof: {}", terminal_name(&problem.to_string()));
    }
    if problems.len() > MOST {
        let n = problems.len() - MOST;
        message!("wcprof: and {n} more problems with symbol files");
    }
}

/// Whether the user says where files are: then they are read even if the trace holds names.
pub(crate) fn are_wanted(args: &SymbolArgs) -> bool {
    !args.debug_dir.is_empty() || args.sysroot.is_some()
}

/// Where the XDG Base Directory Specification puts what can be made again.
pub fn cache_dir() -> Option<PathBuf> {
    let absolute = |name| {
        let path = PathBuf::from(std::env::var_os(name)?);
        path.is_absolute().then_some(path)
    };
    let base = absolute("XDG_CACHE_HOME").or_else(|| Some(absolute("HOME")?.join(".cache")))?;
    Some(base.join("wcprof"))
}

/// Shortens the names of functions.
pub(crate) fn shorten(profile: &mut Profile) {
    rename_functions(profile, |name| short_name(without_clone_suffix(name)));
}

/// Names from the files of the targets that were just recorded.
pub(crate) fn of_recording(
    tables: &Tables,
    files: &[TargetFiles],
    args: &SymbolArgs,
    options: &SymbolOptions,
) -> Result<(SymbolTable, SymbolReport), Failure> {
    let files = Recorded(files, sysroot(args)?);
    Ok(symbolize(tables, NONE, &files, options, None))
}

/// Puts into the cache what [`of_recording`] will need, while the recording goes on.
pub(crate) fn ahead(
    tables: &Tables,
    files: &[TargetFiles],
    args: &SymbolArgs,
    options: &SymbolOptions,
    pace: Pace,
) -> Result<(), Failure> {
    let files = Recorded(files, sysroot(args)?);
    symbolize(tables, NONE, &files, options, Some(pace));
    Ok(())
}

/// Names that are not `known`, from the files of this machine, or of a copy of the recorded one.
pub(crate) fn of_machine(
    tables: &Tables,
    known: &SymbolTable,
    args: &SymbolArgs,
) -> Result<(SymbolTable, SymbolReport), Failure> {
    let root = sysroot(args)?;
    let files = files_in(root.as_ref());
    Ok(symbolize(tables, known, files, &options(args), None))
}

#[cfg(test)]
mod tests {
    use wcprof_trace::model::SymbolFrame;

    use super::*;

    fn table(names: &[(u32, &str)]) -> SymbolTable {
        let frame = |&(id, name): &(u32, &str)| {
            let function = SymbolFrame {
                name: name.to_owned(),
                ..SymbolFrame::default()
            };
            (FrameId(id), vec![function])
        };
        SymbolTable {
            frames: names.iter().map(frame).collect(),
        }
    }

    /// Check that a search which is ended takes no names that were found before, and what a trace keeps.
    #[test]
    fn ended() {
        let before = table(&[(0, "a"), (1, "b"), (2, "c+0x1")]);
        let mut symbols = table(&[(0, "a, inlined"), (1, "b+0x1"), (2, "c+0x1"), (3, "d+0x1")]);
        let mut report = SymbolReport {
            unfinished: [1, 2, 3].map(FrameId).into(),
            ..SymbolReport::default()
        };
        let found = (&mut symbols, &mut report.unfinished);
        take_back(found, (before, [FrameId(2)].into()));
        let kept = finished(&symbols, &report);
        assert_eq!(*kept, table(&[(0, "a, inlined"), (1, "b")]));
    }
}
