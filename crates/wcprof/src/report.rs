//! `wcprof report`: a saved trace in one of the formats.

use std::io::{BufWriter, Write};
use std::mem::ManuallyDrop;

use anyhow::Context;
use wcprof_export::{CsvWriter, Timeline, firefox, pprof, speedscope};
use wcprof_profile::model::Profile;
use wcprof_profile::{Around, Cores, Direction, GroupBy, Relation, Trees, View, keep_threads};
use wcprof_report::{
    Headline, SvgOptions, TextOptions, TextTrees, cores_text, folded, functions, json, markdown,
    svg, text, uwpmp, waits,
};
use wcprof_symbols::drop_inline_frames;

use crate::args::{ByArg, FormatArg, IdleArg, ReportArgs};
use crate::daemons;
use crate::failure::Failure;
use crate::filters::around;
use crate::html;
use crate::locks;
use crate::names::shorten;
use crate::open::{Spans, hotspot_rules, named};
use crate::parquet;
use crate::report_flags::{self, format};
use crate::terminal::Terminal;
use crate::views::{answers, cores_of, note_empty, overview, title};

pub(crate) fn run(args: &ReportArgs) -> Result<(), Failure> {
    let format = format(args);
    parquet::check(args, format)?;
    report_flags::check(args, format)?;
    args.out.check(&[&args.trace])?;
    match args.trees.by {
        _ if args.what.locks => return locks::run(args),
        Some(ByArg::Daemon) => return daemons::run(args),
        _ => {}
    }
    let mut view = view(args, format)?;
    if format == FormatArg::Html {
        html::check(args)?;
    }
    let window = args.part.window()?;
    let (mut opened, mut symbols, rules) = named(&args.trace, window, &args.analysis)?;
    if format == FormatArg::Uwpmp {
        // As uwpmp does.
        drop_inline_frames(&mut symbols);
    }
    // Who looks at one moment of a process asks where each thread stands.
    view.idle |= args.trees.idle.is_none() && opened.tables.header.n_snapshots > 0;
    let spec = format.spec();
    opened.set_detail(spec.detail_with(args.trees.lines));
    let kernel = args.trees.kernel;
    let (mut profile, spans) = match spec.has_time_axis {
        true => opened.indexed_profile(&symbols, &rules, kernel),
        false => (opened.profile(&symbols, &rules, kernel), Spans::default()),
    };
    args.part.check(&profile)?;
    // Rules are written for user stacks.
    let needs_both = kernel && spec.has_answers;
    let without_kernel = needs_both.then(|| opened.profile(&symbols, &rules, false));
    let for_rules = without_kernel.as_ref().unwrap_or(&profile);
    let findings = match format {
        FormatArg::Html => Some(html::findings(for_rules, &opened.tables, &rules, args)?),
        _ => None,
    };
    let cores = match spec.has_answers {
        true => cores_of(for_rules, &args.analysis.rules, args.ops)?,
        false => None,
    };
    let cores = cores.as_ref();
    if !spec.has_full_names(args.trees.full_names) {
        shorten(&mut profile);
    }
    view.around = around_wanted(&profile, args)?;
    // A flame graph of nothing is none: before anything else fails.
    note_empty(&profile, &view);
    match format {
        FormatArg::Overview | FormatArg::Markdown => {
            let hotspot_rules = hotspot_rules(&args.analysis.rules)?;
            keep_threads(&mut profile, &view.threads);
            let categories = rules.categories().map_err(Failure::usage)?;
            let answers = answers(&profile, &opened.tables, &hotspot_rules, &categories);
            let mut out = Vec::new();
            match format {
                FormatArg::Markdown => markdown(&profile, &answers, &mut out)?,
                _ => out.extend(overview(&profile, &answers, cores).bytes()),
            }
            args.out.write(&out)?;
        }
        FormatArg::Csv => csv(&profile, &spans, args, &view)?,
        FormatArg::Parquet => parquet::write(&profile, &spans, args, &view, &rules)?,
        FormatArg::Html => {
            html::write(&profile, &spans, args, &view, findings.as_ref(), cores)?;
        }
        _ => {
            let mut out = Vec::new();
            let rendered = render(&profile, &spans, args, &view, cores, &mut out);
            rendered.context("failed to render the report")?;
            args.out.write(&out)?;
        }
    }
    note_hidden(&profile, format, &view);
    // The process ends: freeing many small pieces would take longer.
    std::mem::forget((opened, symbols, profile, without_kernel, spans));
    Ok(())
}

fn render(
    profile: &Profile,
    spans: &Spans,
    args: &ReportArgs,
    view: &View,
    cores: Option<&Cores>,
    out: &mut Vec<u8>,
) -> anyhow::Result<()> {
    let format = format(args);
    let terminal = Terminal::of_output(args.out.is_stdout());
    let options = TextOptions {
        width: terminal.width,
        color: terminal.color,
        max_nodes: None,
        // Without such filters the states of a group that was idle are of interest.
        full_names: format.spec().has_full_names(args.trees.full_names),
        only_shown: view.states.is_some() || view.focus.is_some() || view.around.is_some(),
    };
    let title = || title(profile);
    match format {
        FormatArg::Text => {
            writeln!(out, "{}", Headline::new(profile).text())?;
            if let Some(cores) = cores {
                writeln!(out, "{}", cores_text(cores))?;
            }
            // The process ends soon: freeing many small pieces takes longer than that.
            let trees = ManuallyDrop::new(TextTrees::new(profile, view));
            text(profile, &trees, &options, out)
        }
        FormatArg::Functions => {
            writeln!(out, "{}", Headline::new(profile).text())?;
            functions(profile, view, &options, out)
        }
        FormatArg::Waits => {
            writeln!(out, "{}", Headline::new(profile).text())?;
            waits(profile, view, &options, out)
        }
        FormatArg::Uwpmp => uwpmp(profile, view, options.width, out),
        FormatArg::Folded => folded(profile, &Trees::new(profile, view), out),
        FormatArg::Json => json(profile, view, cores, out),
        FormatArg::Svg | FormatArg::Icicle => {
            let wanted = SvgOptions {
                title: &title(),
                from_top: format == FormatArg::Icicle || view.is_leaf_first(),
                full_names: options.full_names,
            };
            svg(profile, view, &wanted, out)
        }
        FormatArg::Pprof => pprof(profile, view, out),
        FormatArg::Speedscope => {
            speedscope(profile, view, &timeline(profile, spans)?, &title(), out)
        }
        FormatArg::Firefox => firefox(profile, view, &timeline(profile, spans)?, &title(), out),
        // Written apart.
        FormatArg::Overview
        | FormatArg::Markdown
        | FormatArg::Csv
        | FormatArg::Parquet
        | FormatArg::Html => Ok(()),
    }?;
    Ok(())
}

/// Writes CSV while the trace is read once more.
fn csv(profile: &Profile, spans: &Spans, args: &ReportArgs, view: &View) -> Result<(), Failure> {
    args.out.write_with(|out| {
        let mut csv = CsvWriter::new(profile, view, BufWriter::new(out))?;
        spans.try_for_each(|span| csv.add(span))?;
        csv.finish()?;
        Ok(())
    })
}

/// The spans of a trace by thread, in order of time.
fn timeline(profile: &Profile, spans: &Spans) -> anyhow::Result<Timeline> {
    let mut timeline = Timeline::new(profile);
    spans.for_each(|span| timeline.add(profile, span))?;
    timeline.sort();
    Ok(timeline)
}

/// Formats without a place for it: how much idle time is hidden.
fn note_hidden(profile: &Profile, format: FormatArg, view: &View) {
    if !view.idle && !format.spec().says_hidden_idle {
        let headline = Headline::new(profile);
        let n = headline.idle_at_a_time();
        message!("wcprof: {n:.2} idle threads on average are hidden; --idle show shows them");
    }
}

/// The function whose callers or callees alone are shown.
fn around_wanted(profile: &Profile, args: &ReportArgs) -> Result<Option<Around>, Failure> {
    let (relation, name) = match (&args.trees.callers_of, &args.trees.callees_of) {
        (Some(name), _) => (Relation::CallersOf, name),
        (_, Some(name)) => (Relation::CalleesOf, name),
        _ => return Ok(None),
    };
    around(profile, relation, name).map(Some)
}

/// The flags, with each format's defaults.
fn view(args: &ReportArgs, format: FormatArg) -> Result<View, Failure> {
    let spec = format.spec();
    let is_around = args.trees.callers_of.is_some() || args.trees.callees_of.is_some();
    let mut view = View {
        by: match args.trees.by {
            Some(by) => by.group_by(),
            None if is_around => GroupBy::All,
            None => spec.group_by,
        },
        direction: match args.trees.invert {
            true => Direction::LeafFirst,
            false => Direction::RootFirst,
        },
        idle: (args.trees.idle).map_or(spec.shows_idle, |idle| idle == IdleArg::Show),
        state_frames: args.trees.states,
        files: args.trees.files,
        min_percent: args.trees.min_percent.unwrap_or(spec.min_percent),
        threads: args.part.thread_filter()?,
        ..View::default()
    };
    args.stacks.apply(&mut view)?;
    Ok(view)
}
