//! `wcprof report`: a saved trace in one of the formats.

use std::cmp::Reverse;
use std::collections::BTreeMap;
use std::io::{BufWriter, Write};
use std::mem::ManuallyDrop;

use anyhow::Context;
use wcprof_export::{CsvWriter, Timeline, firefox, pprof, speedscope};
use wcprof_profile::model::{Profile, Row, State};
use wcprof_profile::{Cores, Direction, GroupBy, Relation, ThreadFilter, Trees, View, cores};
use wcprof_report::{
    Headline, TextOptions, UwpmpOptions, cores_text, folded, functions, icicle, json, svg,
    terminal_name, text, uwpmp,
};

use crate::cli::{ByArg, FormatArg, IdleArg, NamesArg, ReportArgs, RuleArgs};
use crate::failure::Failure;
use crate::filters::around;
use crate::html;
use crate::names;
use crate::open::{KernelSide, Spans, named, state_rules, write_output};
use crate::same_file::refuse_input;
use crate::terminal::Terminal;

pub(crate) fn run(args: &ReportArgs) -> Result<(), Failure> {
    if let Some(output) = &args.output {
        refuse_input(&args.trace, output)?;
    }
    let mut view = view(args)?;
    if args.format == FormatArg::Html {
        html::check(args)?;
    }
    let kernel = match args.kernel {
        true => KernelSide::Shown,
        false => KernelSide::Hidden,
    };
    let window = args.part.window()?;
    let (mut opened, symbols, rules) = named(&args.trace, window, &args.rules, &args.symbols)?;
    if args.lines {
        opened.show_lines();
    }
    let (mut profile, spans) = match has_time_axis(args.format) {
        true => {
            let (profile, spans) = opened.indexed_profile(Some(&symbols), &rules, kernel);
            (profile, Some(spans))
        }
        false => (opened.profile(Some(&symbols), &rules, kernel), None),
    };
    args.part.check(&profile)?;
    let findings = match (args.format, kernel) {
        (FormatArg::Html, KernelSide::Hidden) => html::findings(&profile, args)?,
        (FormatArg::Html, KernelSide::Shown) => {
            let profile = opened.profile(Some(&symbols), &rules, KernelSide::Hidden);
            html::findings(&profile, args)?
        }
        _ => Vec::new(),
    };
    if args.names == NamesArg::Short {
        names::shorten(&mut profile);
    }
    view.around = match (&args.callers_of, &args.callees_of) {
        (Some(name), _) => Some(around(&profile, Relation::CallersOf, name)?),
        (_, Some(name)) => Some(around(&profile, Relation::CalleesOf, name)?),
        _ => None,
    };
    match (args.format, &spans) {
        (FormatArg::Csv, Some(spans)) => csv(&profile, spans, args, &view)?,
        (FormatArg::Html, Some(spans)) => {
            let cores = cores_of(&profile, &args.rules, args.ops)?;
            html::write(&profile, spans, args, &view, &findings, cores.as_ref())?;
        }
        _ => {
            let cores = cores_of(&profile, &args.rules, args.ops)?;
            let mut out = Vec::new();
            let rendered = render(
                &profile,
                spans.as_ref(),
                args,
                &view,
                cores.as_ref(),
                &mut out,
            );
            if rendered.is_err() {
                // A flame graph of nothing is none.
                say_empty(&profile, &view);
            }
            rendered.context("failed to render the report")?;
            write_output(args.output.as_ref(), &out)?;
        }
    }
    say_hidden(&profile, args, &view);
    say_direction(args);
    say_empty(&profile, &view);
    // The process ends: freeing many small pieces would take longer.
    std::mem::forget((opened, symbols, profile, spans));
    Ok(())
}

/// Cores by class, where there is more than one process or a number of operations.
pub(crate) fn cores_of(
    profile: &Profile,
    rules: &RuleArgs,
    n_ops: Option<f64>,
) -> Result<Option<Cores>, Failure> {
    if profile.processes.len() < 2 && n_ops.is_none() {
        return Ok(None);
    }
    Ok(Some(cores(profile, &state_rules(rules)?, n_ops)))
}

fn render(
    profile: &Profile,
    spans: Option<&Spans>,
    args: &ReportArgs,
    view: &View,
    cores: Option<&Cores>,
    out: &mut Vec<u8>,
) -> anyhow::Result<()> {
    let terminal = Terminal::stdout();
    let to_terminal = args.output.is_none();
    let options = TextOptions {
        width: terminal.width.filter(|_| to_terminal),
        color: terminal.color && to_terminal,
        max_nodes: None,
        // Without such filters the states of a group that was idle are of interest.
        only_shown: view.states.is_some() || view.focus.is_some() || view.around.is_some(),
    };
    let title = || title(profile);
    match args.format {
        FormatArg::Text => {
            writeln!(out, "{}", Headline::new(profile).text())?;
            if let Some(cores) = cores {
                writeln!(out, "{}", cores_text(cores))?;
            }
            // The process ends soon: freeing many small pieces takes longer than that.
            let trees = ManuallyDrop::new(Trees::new(profile, view));
            text(profile, &trees, &options, out)
        }
        FormatArg::Functions => {
            writeln!(out, "{}", Headline::new(profile).text())?;
            functions(profile, view, &options, out)
        }
        FormatArg::Uwpmp => uwpmp(
            profile,
            &UwpmpOptions {
                view: view.clone(),
                width: options.width,
            },
            out,
        ),
        FormatArg::Folded => folded(profile, &Trees::new(profile, view), out),
        FormatArg::Json => json(profile, view, cores, out),
        FormatArg::Svg => svg(profile, view, &title(), out),
        FormatArg::Icicle => icicle(profile, view, &title(), out),
        FormatArg::Pprof => pprof(profile, view, out),
        FormatArg::Speedscope => {
            speedscope(profile, view, &timeline(profile, spans)?, &title(), out)
        }
        FormatArg::Firefox => firefox(profile, view, &timeline(profile, spans)?, &title(), out),
        // Written apart, with the spans.
        FormatArg::Csv | FormatArg::Html => Ok(()),
    }?;
    Ok(())
}

/// Writes CSV while the trace is read once more.
fn csv(profile: &Profile, spans: &Spans, args: &ReportArgs, view: &View) -> Result<(), Failure> {
    let out: Box<dyn Write + Send> = match &args.output {
        Some(path) => {
            let file = std::fs::File::create(path);
            Box::new(file.with_context(|| format!("failed to write `{}`", path.display()))?)
        }
        None => Box::new(std::io::stdout()),
    };
    let mut csv = CsvWriter::new(profile, view, BufWriter::new(out))?;
    let mut result = Ok(());
    spans.for_each(|span| {
        if result.is_ok() {
            result = csv.add(span);
        }
    })?;
    result.and_then(|()| csv.finish().map(drop))?;
    Ok(())
}

/// Whether a format needs the spans of a trace besides their sums.
fn has_time_axis(format: FormatArg) -> bool {
    matches!(
        format,
        FormatArg::Speedscope | FormatArg::Firefox | FormatArg::Csv | FormatArg::Html
    )
}

/// The spans of a trace by thread, in order of time.
fn timeline(profile: &Profile, spans: Option<&Spans>) -> anyhow::Result<Timeline> {
    let mut timeline = Timeline::new(profile);
    if let Some(spans) = spans {
        spans.for_each(|span| timeline.add(profile, span))?;
    }
    timeline.sort();
    Ok(timeline)
}

/// When filters leave nothing, says what the trace has.
pub(crate) fn say_empty(profile: &Profile, view: &View) {
    let passes = |row: &&Row| {
        view.shows(row.state)
            && profile
                .threads
                .get(row.thread)
                .is_some_and(|t| view.threads.matches(profile, t))
    };
    let all = View {
        by: GroupBy::All,
        min_percent: 100.0,
        ..view.clone()
    };
    if Trees::new(profile, &all)
        .groups
        .iter()
        .any(|g| g.weight > 0)
    {
        return;
    }
    tell!("wcprof: no time passes the filters");
    if profile.rows.iter().any(|row| passes(&row)) {
        tell!("wcprof: no stack does; --format functions lists the functions of this trace");
        return;
    }
    if !view.idle && profile.rows.iter().any(|r| r.state == State::Idle) {
        tell!("wcprof: idle time is hidden; --idle show shows it");
    }
    say_pools(profile);
}

/// When filters leave no thread, says which pools there are.
pub(crate) fn say_no_threads(profile: &Profile, filter: &ThreadFilter) {
    let mut threads = profile.threads.iter();
    if !threads.any(|thread| filter.matches(profile, thread)) {
        tell!("wcprof: no thread passes the filters");
        say_pools(profile);
    }
}

fn say_pools(profile: &Profile) {
    const MOST: usize = 8;
    let pools = pools_by_time(profile);
    let more = match pools.len().saturating_sub(MOST) {
        0 => String::new(),
        n => format!(" and {n} more"),
    };
    let pools = pools[..pools.len().min(MOST)].join(", ");
    tell!(
        "wcprof: pools of this trace: {}{more}",
        terminal_name(&pools)
    );
}

/// Names of pools, most time that is not idle first.
fn pools_by_time(profile: &Profile) -> Vec<&str> {
    let mut weights: BTreeMap<&str, u64> = BTreeMap::new();
    for row in &profile.rows {
        let thread = profile.threads.get(row.thread);
        if let Some(pool) = thread.and_then(|t| profile.pools.get(t.pool)) {
            let sum = weights.entry(&pool.name).or_default();
            *sum = sum.saturating_add(match row.state {
                State::Idle => 0,
                _ => row.weight,
            });
        }
    }
    let mut pools: Vec<_> = weights.into_iter().collect();
    pools.sort_by_key(|(_, weight)| Reverse(*weight));
    pools.into_iter().map(|(name, _)| name).collect()
}

/// Formats without a place for it: how much idle time is hidden.
fn say_hidden(profile: &Profile, args: &ReportArgs, view: &View) {
    if !view.idle
        && !matches!(
            args.format,
            FormatArg::Text
                | FormatArg::Functions
                | FormatArg::Uwpmp
                | FormatArg::Json
                | FormatArg::Html
        )
    {
        let share = Headline::new(profile).share(State::Idle);
        tell!("wcprof: {share:.1} % of the thread time is idle and hidden; --idle show shows it");
    }
}

/// The flags, with each format's defaults.
fn view(args: &ReportArgs) -> Result<View, Failure> {
    let idle = match args.idle {
        Some(idle) => idle == IdleArg::Show,
        None => args.format == FormatArg::Uwpmp,
    };
    let is_around = args.callers_of.is_some() || args.callees_of.is_some();
    let mut view = View {
        by: match args.by {
            Some(ByArg::Thread) => GroupBy::Thread,
            Some(ByArg::Pool) => GroupBy::Pool,
            Some(ByArg::Process) => GroupBy::Process,
            Some(ByArg::Cgroup) => GroupBy::Cgroup,
            Some(ByArg::Host) => GroupBy::Host,
            Some(ByArg::All) => GroupBy::All,
            None if args.format == FormatArg::Html => GroupBy::Pool,
            None if is_around || has_thread_of_its_own(args.format) => GroupBy::All,
            None => GroupBy::Thread,
        },
        direction: match args.invert {
            true => Direction::LeafFirst,
            false => Direction::RootFirst,
        },
        idle,
        state_frames: args.states,
        files: args.files,
        min_percent: args.min_percent.unwrap_or(match args.format {
            FormatArg::Text | FormatArg::Functions => 0.5,
            FormatArg::Uwpmp | FormatArg::Svg | FormatArg::Icicle => 0.1,
            FormatArg::Html => 0.02,
            _ => 0.0,
        }),
        threads: args.part.thread_filter()?,
        ..View::default()
    };
    args.stacks.apply(&mut view)?;
    Ok(view)
}

/// Whether a format says the thread of each sample beside its stack.
fn has_thread_of_its_own(format: FormatArg) -> bool {
    matches!(
        format,
        FormatArg::Pprof | FormatArg::Firefox | FormatArg::Csv
    )
}

/// Formats whose viewers invert: that `--invert` does nothing.
fn say_direction(args: &ReportArgs) {
    let name = match args.format {
        FormatArg::Pprof => "pprof",
        FormatArg::Speedscope => "speedscope",
        FormatArg::Firefox => "the Firefox Profiler",
        FormatArg::Csv => "CSV",
        FormatArg::Html if args.invert => {
            tell!("wcprof: --invert changes nothing: the page has both directions");
            return;
        }
        _ => return,
    };
    if args.invert {
        tell!("wcprof: --invert changes nothing: {name} has the root first");
    }
}

/// Title of a flame graph.
pub(crate) fn title(profile: &Profile) -> String {
    let process = profile.threads.first().map_or(String::new(), |t| {
        let more = match profile.processes.len() {
            0 | 1 => String::new(),
            n => format!(" and {} more", n - 1),
        };
        format!("{} (pid {}){more}, ", profile.process_title(t), t.pid)
    });
    let seconds = profile.duration_ns() as f64 / 1e9;
    format!(
        "{process}{seconds:.1} s of wall-clock time on {}",
        profile.header.host
    )
}
