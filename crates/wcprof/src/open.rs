//! A saved trace to a profile: reads the file, finds names, applies the rules.

use std::fs::File;
use std::io;
use std::path::{Path, PathBuf};

use anyhow::Context;
use wcprof_findings::RuleSet;
use wcprof_profile::model::{Detail, Profile};
use wcprof_profile::{LockTimes, ProfileBuilder, RenamedStacks, RowSpan, Rules, SpanRows};
use wcprof_symbols::{drop_inline_frames, improve_names};
use wcprof_trace::model::{Span, SymbolTable, Tables, Unread};
use wcprof_trace::{Ending, TraceError, TraceReader};
use wcprof_types::TimeNs;

use crate::args::{AnalysisArgs, RuleArgs};
use crate::core_file;
use crate::failure::{Exit, Failure};
use crate::names;
use crate::output::path_of;

/// A trace's tables, and its spans added up.
#[derive(Debug)]
pub(crate) struct Opened {
    pub(crate) tables: Tables,
    builder: ProfileBuilder,
    ending: Ending,
    path: PathBuf,
    window: Window,
    /// Not all spans are added up: what is known only at the end of the trace is needed for them.
    is_partial: bool,
    /// A trace that no path leads to: it is gone when this is closed.
    unnamed: Option<File>,
}

/// Start and end of the part of a recording that is wanted; `None` for all of it.
pub type Window = Option<(TimeNs, TimeNs)>;

impl Opened {
    /// Reads a trace for [`add_up`](Self::add_up).
    pub(crate) fn read(path: &Path, window: Window) -> Result<Self, Failure> {
        let reader = reader(path, window).map_err(|error| in_file(path, error))?;
        let builder = ProfileBuilder::new().with_rate(reader.header().rate_hz);
        let builder = with_window(builder, window);
        let read = reader.read_unordered(
            |tables| !(tables.locks.looks.is_empty() && tables.names.local.later.is_empty()),
            |spans| builder.add_spans(spans),
        );
        let (tables, ending, is_partial) = read.map_err(|error| in_file(path, error))?;
        Ok(Self {
            tables,
            builder,
            ending,
            path: path.to_owned(),
            window,
            is_partial,
            unnamed: None,
        })
    }

    /// Reads the spans again if what is known only at the end of a trace is needed for them: that code
    /// was replaced while it was recorded, or who held locks.
    pub(crate) fn add_up(&mut self) -> Result<(), Failure> {
        let renamed = RenamedStacks::from_tables(&self.tables);
        let locks = LockTimes::from_tables(&self.tables);
        if !self.is_partial && renamed.is_empty() && locks.is_empty() {
            return Ok(());
        }
        let builder = ProfileBuilder::new()
            .with_rate(self.tables.header.rate_hz)
            .with_renamed(renamed)
            .with_locks(locks);
        let builder = with_window(builder, self.window);
        let each = |spans: &[Span]| builder.add_spans(spans);
        let (tables, ..) = read_unordered((&self.path, self.window), |_| false, each)?;
        self.builder = builder;
        // In a trace that did not end cleanly these are known by the spans.
        self.tables.threads = tables.threads;
        // Blocks of spans that were passed over may be damaged.
        self.tables.origins.unread = tables.origins.unread;
        let duration = &mut self.tables.stats.duration;
        *duration = tables.stats.duration.max(*duration);
        self.is_partial = false;
        Ok(())
    }

    /// Keeps frames of one function apart.
    pub(crate) fn set_detail(&mut self, detail: Detail) {
        self.builder = std::mem::take(&mut self.builder).with_detail(detail);
    }

    /// The profile, with the kernel's functions below user stacks if they were recorded and are asked for.
    pub(crate) fn profile(
        &self,
        symbols: &SymbolTable,
        rules: &Rules,
        with_kernel: bool,
    ) -> Profile {
        let (builder, tables) = (&self.builder, &self.tables);
        match with_kernel {
            true => builder.finish_indexed(tables, Some(symbols), rules, true).0,
            false => builder.finish(tables, Some(symbols), rules),
        }
    }

    /// The same, and what reads its spans again.
    pub(crate) fn indexed_profile(
        &self,
        symbols: &SymbolTable,
        rules: &Rules,
        with_kernel: bool,
    ) -> (Profile, Spans) {
        let (builder, tables) = (&self.builder, &self.tables);
        let (profile, rows) = builder.finish_indexed(tables, Some(symbols), rules, with_kernel);
        let spans = Spans {
            path: self.path.clone(),
            window: self.window,
            rows: Some(rows),
        };
        (profile, spans)
    }
}

/// Reads the spans of a trace once more; the default has none.
#[derive(Debug, Default)]
pub(crate) struct Spans {
    path: PathBuf,
    window: Window,
    rows: Option<SpanRows>,
}

impl Spans {
    /// Calls `each` with every span that is in the profile, in the order of the trace.
    pub(crate) fn for_each(&self, mut each: impl FnMut(RowSpan)) -> anyhow::Result<()> {
        let Some(rows) = &self.rows else {
            return Ok(());
        };
        let found = |_: &Tables, span: Span| {
            if let Some(found) = rows.find(&span) {
                each(found);
            }
        };
        let read = reader(&self.path, self.window).and_then(|reader| reader.read(found));
        read.map_err(|error| in_file(&self.path, error).error)?;
        Ok(())
    }

    /// The same, until `each` fails.
    pub(crate) fn try_for_each(
        &self,
        mut each: impl FnMut(RowSpan) -> io::Result<()>,
    ) -> anyhow::Result<()> {
        let mut result = Ok(());
        self.for_each(|span| {
            if result.is_ok() {
                result = each(span);
            }
        })?;
        Ok(result?)
    }
}

fn with_window(builder: ProfileBuilder, window: Window) -> ProfileBuilder {
    match window {
        Some((from, to)) => builder.with_window(from, to),
        None => builder,
    }
}

/// Of a trace, or of a part of it.
fn reader(path: &Path, window: Window) -> Result<TraceReader<File>, TraceError> {
    match window {
        Some(part) => TraceReader::open_part(path, part),
        None => TraceReader::open(path),
    }
}

/// See [`TraceReader::read_unordered`].
fn read_unordered(
    (path, window): (&Path, Window),
    enough: impl FnMut(&Tables) -> bool,
    each: impl Fn(&[Span]) + Sync,
) -> Result<(Tables, Ending, bool), Failure> {
    let read = reader(path, window).and_then(|reader| reader.read_unordered(enough, each));
    read.map_err(|error| in_file(path, error))
}

/// Says which trace could not be read.
fn in_file(path: &Path, error: TraceError) -> Failure {
    Failure::from(error).context(format!("failed to read `{}`", path.display()))
}

/// The tables of a trace that is being written.
pub(crate) fn tables_so_far(path: &Path) -> Result<Tables, Failure> {
    let (tables, ..) = read_unordered((path, None), |_| true, |_| {})?;
    Ok(tables)
}

/// The tables of a trace; `each` is called with its spans.
pub(crate) fn read_tables(
    path: &Path,
    mut each: impl FnMut(Span),
) -> Result<(Tables, Ending), Failure> {
    let read = TraceReader::open(path).and_then(|reader| reader.read(|_, span| each(span)));
    read.map_err(|error| in_file(path, error))
}

/// Opens a saved trace; names come from the trace or else from this machine's files.
pub fn profile_of(
    path: &Path,
    window: Window,
    analysis: &AnalysisArgs,
) -> Result<Profile, Failure> {
    let (opened, symbols, rules) = named(path, window, analysis)?;
    Ok(opened.profile(&symbols, &rules, false))
}

/// A saved trace, or the core file of a process, with names and rules.
pub(crate) fn named(
    path: &Path,
    window: Window,
    AnalysisArgs { rules, symbols }: &AnalysisArgs,
) -> Result<(Opened, SymbolTable, Rules), Failure> {
    let rules = state_rules(rules)?;
    let of_core = core_file::trace_of(path, symbols)?;
    let in_place = of_core.as_ref().map(path_of);
    let mut opened = Opened::read(in_place.as_deref().unwrap_or(path), window)?;
    opened.unnamed = of_core;
    opened.add_up()?;
    if opened.ending != Ending::Clean {
        message!("wcprof: {}", opened.ending);
    }
    if opened.tables.origins.unread != Unread::default() {
        message!("wcprof: {}", opened.tables.origins.unread);
    }
    let mut saved = opened.tables.names.symbols.take().unwrap_or_default();
    let known = match names::are_wanted(symbols) {
        true => names::NONE,
        false => &saved,
    };
    if names::lacks_names(&opened.tables, known) {
        let (found, report) = names::of_machine(&opened.tables, known, symbols)?;
        names::print_problems(report.problems());
        improve_names(&mut saved, found);
    }
    if symbols.no_inline {
        drop_inline_frames(&mut saved);
    }
    Ok((opened, saved, rules))
}

/// The built-in rules for states and pools, after the user's own.
pub(crate) fn state_rules(args: &RuleArgs) -> Result<Rules, Failure> {
    let mut files = Vec::new();
    for path in args.rules.iter().filter(|path| !is_hotspot_rule(path)) {
        let text = std::fs::read_to_string(path)
            .with_context(|| format!("failed to read rules `{}`", path.display()))
            .map_err(Failure::usage)?;
        files.push((path.display().to_string(), text));
    }
    Rules::with_user_files(&files).map_err(Failure::usage)
}

/// Whether a path of `--rules` is a hotspot rule, or a folder of them, rather than rules for states
/// and pools. What is no regular file (a pipe) can be read but once, and is the latter.
fn is_hotspot_rule(path: &Path) -> bool {
    path.is_dir()
        || path.is_file() && std::fs::read_to_string(path).is_ok_and(|t| RuleSet::is_rule(&t))
}

/// The built-in hotspot rules and the user's own.
pub(crate) fn hotspot_rules(args: &RuleArgs) -> Result<RuleSet, Failure> {
    let mut rules = RuleSet::builtin().map_err(|e| Failure::new(Exit::Failure, e))?;
    for path in args.rules.iter().filter(|path| is_hotspot_rule(path)) {
        let loaded = match path.is_dir() {
            true => rules.load_dir(path),
            false => rules.load_file(path),
        };
        loaded.map_err(Failure::usage)?;
    }
    Ok(rules)
}
