//! `wcprof attach`: records, saves, and prints where the time went.

use std::fs;
use std::iter;
use std::mem::take;
use std::path::Path;
use std::sync::atomic::Ordering;
use std::thread;
use std::time::Duration;

use anyhow::Context;
use wcprof_findings::RuleSet;
use wcprof_host::clock::unix_ns;
use wcprof_host::own_files::unnamed_file;
use wcprof_profile::model::Profile;
use wcprof_profile::{GroupBy, Rules, View};
use wcprof_record::Recorded;
use wcprof_report::{Headline, SvgOptions, TextOptions, TextTrees, svg, text};
use wcprof_symbols::{Inlines, SymbolOptions, SymbolReport};
use wcprof_trace::model::SymbolTable;

use crate::ahead::Ahead;
use crate::args::{AttachArgs, ForceArgs, SymbolArgs};
use crate::command::{self, StartedCommand};
use crate::failure::{Exit, Failure};
use crate::keep;
use crate::local_names;
use crate::message::{Level, line};
use crate::names;
use crate::open::{Opened, hotspot_rules, state_rules};
use crate::output::{self, NewTrace, path_of};
use crate::same_file::is_same_file;
use crate::select::{self, Chosen};
use crate::session::{self, Session, SessionOptions, default_trace_path, record};
use crate::signals::Ending;
use crate::snapshot;
use crate::symbols;
use crate::terminal::Terminal;
use crate::views::{answers, cores_of, overview, title};

/// Share of unresolved frames beyond which the reasons are said.
const MANY_UNRESOLVED: f64 = 0.05;
/// A signal is noticed within this while the beginning is waited for.
const LONGEST_SLEEP: Duration = Duration::from_millis(20);

/// Gives the exit code of the command that was recorded; 0 for processes that were there.
pub(crate) fn run(args: &AttachArgs) -> Result<u8, Failure> {
    if args.command.is_empty() {
        return record_and_print(args, None).map(|()| 0);
    }
    let command = StartedCommand::new(&args.command, args.user.as_deref())?;
    let recorded = record_and_print(args, Some(&command));
    let code = command.exit_code()?;
    match recorded {
        // It said itself why it could not be run.
        Err(error) if error.exit == Exit::NoTarget && command::could_not_run(code) => Ok(code),
        Err(error) if error.exit == Exit::NoTarget => {
            line(Level::Error, &error.to_string());
            Ok(code)
        }
        recorded => recorded.map(|()| code),
    }
}

fn record_and_print(args: &AttachArgs, command: Option<&StartedCommand>) -> Result<(), Failure> {
    let rules = state_rules(&args.analysis.rules)?;
    let hotspot_rules = hotspot_rules(&args.analysis.rules)?;
    names::check(&args.analysis.symbols)?;
    let chosen = match command {
        Some(_) => Chosen::default(),
        None => select::targets(&args.targets, args.children)?,
    };
    for remark in &chosen.remarks {
        message!("wcprof: {remark}");
    }
    let output = args.output.clone();
    let pid = command.map_or_else(|| chosen.first_pid(), StartedCommand::pid);
    let path = output.unwrap_or_else(|| default_trace_path(pid));
    check_outputs(args, &path)?;
    let options = SessionOptions {
        targets: chosen.targets.clone(),
        children: args.children,
        arrivals: command.map(|command| command.arrivals.clone()),
        duration: length(args),
        sampling: args.sampling.clone(),
        kernel: match args.no_kernel {
            true => Some(false),
            false => args.kernel.then_some(true),
        },
        full_command_lines: args.full_command_lines,
        trace: path,
        ending: Ending::default(),
    };
    // From here on signals do not end wcprof.
    let _signals = match command {
        Some(command) => command.at_signals(&options.ending)?,
        None => options.ending.at_signals()?,
    };
    if let Some(multiple) = args.at {
        wait_until(multiple, &options.ending);
    }
    if let Some(time) = args.keep.keep {
        return keep::run(&options, time, args, rules);
    }
    let symbols = &args.analysis.symbols;
    let ahead = Ahead::new(
        symbols,
        names::recording_options(symbols, args.raw, &options.ending.names),
        args.sampling.max_cpu,
    );
    let mut session = record(&options, ahead, || {
        let created = create_recording(args, &options.trace)?;
        command.map_or(Ok(()), StartedCommand::begin)?;
        Ok(created)
    })?;
    let has_ended = session.recorded.stats.end_reason.starts_with("target");
    if session.loss.is_none() && session.recorded.is_empty && has_ended {
        return Err(nothing_seen(&session));
    }
    if args.snapshot {
        take_snapshot(args, &options.trace, &mut session)?;
    }
    if let Some(remark) = &session.remark {
        message!("wcprof: {remark}");
    }
    let loss = session.loss.clone();
    let printed = print(args, &options, session, &rules, &hotspot_rules);
    let Some(loss) = loss else {
        return printed;
    };
    // What else failed may follow from it.
    if let Err(error) = printed
        && !error.is_broken_pipe()
    {
        line(Level::Error, &error.to_string());
    }
    Err(Failure::new(Exit::Failure, anyhow::anyhow!("{loss}"))
        .hint("what was recorded until then is kept"))
}

/// How long is recorded; `None` without an end.
fn length(args: &AttachArgs) -> Option<Duration> {
    match args.snapshot {
        true => Some(snapshot::LENGTH),
        false => Some(args.duration).filter(|d| !d.is_zero()),
    }
}

/// Puts what a recording shows of one moment in its place, under the name of the trace.
fn take_snapshot(args: &AttachArgs, trace: &Path, session: &mut Session) -> Result<(), Failure> {
    let (path, file) = create(args, trace)?;
    snapshot::condense(session, file)?;
    session.trace = path;
    Ok(())
}

/// Waits until the clock shows a multiple of a time, or a signal comes.
fn wait_until(multiple: Duration, ending: &Ending) {
    let multiple = (multiple.as_nanos() as u64).max(1);
    let begin = (unix_ns() / multiple + 1) * multiple;
    while !ending.recording().load(Ordering::Relaxed) {
        let left = begin.saturating_sub(unix_ns());
        if left == 0 {
            return;
        }
        // The clock may be set meanwhile.
        thread::sleep(Duration::from_nanos(left).min(LONGEST_SLEEP));
    }
}

/// Refuses outputs that cannot be written when the recording is over.
fn check_outputs(args: &AttachArgs, trace: &Path) -> Result<(), Failure> {
    if args.output.is_some() && args.keep.keep.is_none() {
        output::check(trace, args.force)?;
    }
    let Some(svg) = &args.flamegraph else {
        return Ok(());
    };
    if *svg == trace || is_same_file(fs::metadata(svg), fs::metadata(trace)) {
        let svg = svg.display();
        let error = anyhow::anyhow!("`{svg}` cannot be both the trace and the flame graph");
        return Err(Failure::usage(error).hint("choose another file for one of them"));
    }
    output::check(svg, args.force)
}

/// Creates what is recorded into: the trace, or a file without a name, of which a moment is kept.
fn create_recording(args: &AttachArgs, path: &Path) -> Result<NewTrace, Failure> {
    match args.snapshot {
        true => Ok((path.to_owned(), unnamed_file(0)?)),
        false => create(args, path),
    }
}

/// Creates the trace; without `-o`, under a name that is not taken.
fn create(args: &AttachArgs, path: &Path) -> Result<NewTrace, Failure> {
    match &args.output {
        Some(path) => output::create(path, args.force),
        None => {
            let others = (2..).map(|number| keep::write::numbered(path, number));
            output::create_first_free(iter::once(path.to_owned()).chain(others))
        }
    }
}

/// Removes the trace of a recording that has seen no thread, and says so.
fn nothing_seen(session: &Session) -> Failure {
    if is_same_file(session.file.metadata(), fs::metadata(&session.trace)) {
        let _ = fs::remove_file(&session.trace);
    }
    let error = anyhow::anyhow!("all processes to record ended before any of their time was seen");
    Failure::new(Exit::NoTarget, error)
        .hint("--children of what starts them, or the agent, records processes from their start on")
}

/// Adds names to a recording, and prints where its time went.
fn print(
    args: &AttachArgs,
    options: &SessionOptions,
    mut session: Session,
    rules: &Rules,
    hotspot_rules: &RuleSet,
) -> Result<(), Failure> {
    let path = session.trace.as_path();
    let opened = Opened::read(&path_of(&session.file), None);
    let context = format!("failed to read back `{}`", path.display());
    let mut opened = opened.map_err(|failure| failure.context(context))?;
    // What could not be written (full disk) is still known here.
    opened.tables.stats = session.recorded.stats.clone();
    let mut names = Names::find(args, &options.ending, &mut opened, &mut session.recorded)?;
    let symbols = &names.symbols;
    // Rules are made for user stacks.
    let profile = opened.profile(symbols, rules, false);
    let categories = rules.categories().map_err(Failure::usage)?;
    let answers = answers(&profile, &opened.tables, hotspot_rules, &categories);
    let cores = cores_of(&profile, &args.analysis.rules, None)?;
    let mut screen = overview(&profile, &answers, cores.as_ref()).into_bytes();
    if args.kernel {
        print_tree(&opened.profile(symbols, rules, true), &mut screen)?;
    } else if args.tree {
        print_tree(&profile, &mut screen)?;
    }
    // What is to be written is, even if nobody reads the rest of what is printed.
    let printed = output::print(&screen);
    names.complete(&opened, &mut session.recorded)?;
    print_missing_names(&profile, &names.report, path, args.raw);
    session::print_problems(&session.recorded.problems);
    let flamegraph = args.flamegraph.as_deref();
    let drawn = flamegraph.map_or(Ok(()), |svg| {
        let profile = opened.profile(&names.symbols, rules, args.kernel);
        write_flamegraph(&profile, svg, args.force)
    });
    print_next(path, flamegraph.filter(|_| drawn.is_ok()));
    printed?;
    drawn
}

/// The names of a recording.
struct Names<'a> {
    args: &'a SymbolArgs,
    options: SymbolOptions,
    is_raw: bool,
    symbols: SymbolTable,
    report: SymbolReport,
}

impl<'a> Names<'a> {
    /// Finds the names. Where most inline frames are in the cache, the others are left for
    /// [`complete`](Self::complete): they need the whole of a large file.
    fn find(
        args: &'a AttachArgs,
        ending: &Ending,
        opened: &mut Opened,
        recorded: &mut Recorded,
    ) -> Result<Self, Failure> {
        let symbol_args = &args.analysis.symbols;
        let mut names = Self {
            args: symbol_args,
            options: names::recording_options(symbol_args, args.raw, &ending.names),
            is_raw: args.raw,
            symbols: SymbolTable::default(),
            report: SymbolReport::default(),
        };
        let inlines = match names.options.inlines {
            Inlines::All => Inlines::Quick,
            other => other,
        };
        names.look_up(opened, recorded, inlines)?;
        let origin = (&*recorded).into();
        let (symbols, cancel) = (&mut names.symbols, &names.options.cancel);
        let (local, problems) = local_names::of_recording(&opened.tables, &origin, symbols, cancel);
        for problem in problems {
            message!("wcprof: {problem}");
        }
        opened.tables.names.local = local;
        local_names::count(&opened.tables, &mut names.report);
        opened.add_up()?;
        Ok(names)
    }

    fn look_up(
        &mut self,
        opened: &Opened,
        recorded: &Recorded,
        inlines: Inlines,
    ) -> Result<(), Failure> {
        let options = SymbolOptions {
            inlines,
            ..self.options.clone()
        };
        let found = names::of_recording(&opened.tables, &recorded.files, self.args, &options)?;
        (self.symbols, self.report) = found;
        Ok(())
    }

    /// Finds what was left, and saves all in the trace.
    fn complete(&mut self, opened: &Opened, recorded: &mut Recorded) -> Result<(), Failure> {
        let local = &opened.tables.names.local;
        match self.report.n_pending() {
            0 => {}
            n => {
                let of = self.report.n_frames;
                message!(
                    "wcprof: inline functions of {n} of {of} addresses are not above yet, and are added to the trace \
                     now (Ctrl-C ends that)"
                );
                let quick = (take(&mut self.symbols), take(&mut self.report.unfinished));
                self.look_up(opened, recorded, self.options.inlines)?;
                names::take_back((&mut self.symbols, &mut self.report.unfinished), quick);
                let frames = &mut self.symbols.frames;
                frames.retain(|id, _| !local.names.frames.contains_key(id));
            }
        }
        if let Err(error) = recorded.writer.write_local_names(local) {
            message!("wcprof: names of code without a file are not saved in the trace: {error}");
        }
        if !self.is_raw
            && let found = names::finished(&self.symbols, &self.report)
            && let Err(error) = recorded.writer.write_symbols(&found)
        {
            message!("wcprof: function names are not saved in the trace: {error}");
        }
        Ok(())
    }
}

/// Call trees by pool, roots first.
fn print_tree(profile: &Profile, out: &mut Vec<u8>) -> anyhow::Result<()> {
    let terminal = Terminal::stdout();
    let options = TextOptions {
        width: terminal.width,
        color: terminal.color,
        ..Default::default()
    };
    let view = View {
        by: GroupBy::Pool,
        min_percent: 1.0,
        ..View::default()
    };
    out.push(b'\n');
    Ok(text(
        profile,
        &TextTrees::new(profile, &view),
        &options,
        out,
    )?)
}

fn print_missing_names(profile: &Profile, report: &SymbolReport, trace: &Path, raw: bool) {
    if report.is_cancelled() && report.unfinished.is_empty() {
        let trace = trace.display();
        message!(
            "wcprof: inline functions are incomplete, as the search for them was ended; \
             `wcprof report {trace} --debug-dir /usr/lib/debug` finds them"
        );
        return;
    }
    if report.is_cancelled() {
        return names::print_cancelled(trace);
    }
    let losses = Headline::new(profile).losses;
    let many = losses.n_unresolved as f64 > MANY_UNRESOLVED * losses.n_frames as f64;
    if many {
        message!("wcprof: {}", symbols::summary(report, trace));
    }
    match (raw, many) {
        // They are looked for when the trace is read.
        (true, _) => {}
        (false, true) => names::print_problems(symbols::others(report)),
        (false, false) => names::print_problems(report.problems()),
    }
}

fn write_flamegraph(profile: &Profile, path: &Path, force: ForceArgs) -> Result<(), Failure> {
    let view = View {
        by: GroupBy::Pool,
        min_percent: 0.1,
        ..View::default()
    };
    let mut bytes = Vec::new();
    let options = SvgOptions {
        title: &title(profile),
        ..SvgOptions::default()
    };
    svg(profile, &view, &options, &mut bytes).context("failed to draw the flame graph")?;
    output::write_whole(path, force, &bytes)
}

fn print_next(trace: &Path, flamegraph: Option<&Path>) {
    let trace = trace.display();
    message!("\ntrace: {trace}");
    if let Some(svg) = flamegraph {
        message!("flame graph: {}", svg.display());
    }
    message!(
        "more: wcprof report {trace} --tree [--kernel]; wcprof doctor {trace}; wcprof report {trace} --format html -o page.html; wcprof diff"
    );
}
