//! `wcprof report`: a saved trace in one of the formats.

use std::cmp::Reverse;
use std::collections::BTreeMap;
use std::io::Write;

use anyhow::Context;
use wcprof_profile::model::{Profile, Row, State};
use wcprof_profile::{Direction, GroupBy, Relation, Trees, View};
use wcprof_report::{
    Headline, TextOptions, UwpmpOptions, folded, functions, json, svg, terminal_name, text, uwpmp,
};

use crate::cli::{ByArg, FormatArg, IdleArg, NamesArg, ReportArgs};
use crate::failure::Failure;
use crate::filters::around;
use crate::names;
use crate::open::{KernelSide, named, write_output};
use crate::terminal::Terminal;

pub(crate) fn run(args: &ReportArgs) -> Result<(), Failure> {
    let mut view = view(args)?;
    let kernel = match args.kernel {
        true => KernelSide::Shown,
        false => KernelSide::Hidden,
    };
    let window = args.part.window()?;
    let (mut opened, symbols, rules) = named(&args.trace, window, &args.rules, &args.symbols)?;
    if args.lines {
        opened.show_lines();
    }
    let mut profile = opened.profile(Some(&symbols), &rules, kernel);
    args.part.check(&profile)?;
    if args.names == NamesArg::Short {
        names::shorten(&mut profile);
    }
    view.around = match (&args.callers_of, &args.callees_of) {
        (Some(name), _) => Some(around(&profile, Relation::CallersOf, name)?),
        (_, Some(name)) => Some(around(&profile, Relation::CalleesOf, name)?),
        _ => None,
    };
    let mut out = Vec::new();
    render(&profile, args, &view, &mut out).context("failed to render the report")?;
    write_output(args.output.as_ref(), &out)?;
    say_hidden(&profile, args, &view);
    say_empty(&profile, &view);
    Ok(())
}

fn render(
    profile: &Profile,
    args: &ReportArgs,
    view: &View,
    out: &mut Vec<u8>,
) -> std::io::Result<()> {
    let terminal = Terminal::stdout();
    let to_terminal = args.output.is_none();
    let options = TextOptions {
        width: terminal.width.filter(|_| to_terminal),
        color: terminal.color && to_terminal,
        max_nodes: None,
    };
    match args.format {
        FormatArg::Text => {
            writeln!(out, "{}", Headline::new(profile).text())?;
            text(profile, &Trees::new(profile, view), &options, out)
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
        FormatArg::Json => json(profile, view, out),
        FormatArg::Svg => svg(profile, view, &title(profile), out),
    }
}

/// When filters leave nothing, says what the trace has.
fn say_empty(profile: &Profile, view: &View) {
    const MOST: usize = 8;
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
    eprintln!("wcprof: no time passes the filters");
    if profile.rows.iter().any(|row| passes(&row)) {
        eprintln!("wcprof: no stack does; --format functions lists the functions of this trace");
        return;
    }
    if !view.idle && profile.rows.iter().any(|r| r.state == State::Idle) {
        eprintln!("wcprof: idle time is hidden; --idle show shows it");
    }
    let pools = pools_by_time(profile);
    let more = match pools.len().saturating_sub(MOST) {
        0 => String::new(),
        n => format!(" and {n} more"),
    };
    let pools = pools[..pools.len().min(MOST)].join(", ");
    eprintln!(
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
    if !view.idle && matches!(args.format, FormatArg::Folded | FormatArg::Svg) {
        let share = Headline::new(profile).share(State::Idle);
        eprintln!(
            "wcprof: {share:.1} % of the thread time is idle and hidden; --idle show shows it"
        );
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
            Some(ByArg::All) => GroupBy::All,
            None if is_around => GroupBy::All,
            None => GroupBy::Thread,
        },
        direction: match args.invert {
            true => Direction::LeafFirst,
            false => Direction::RootFirst,
        },
        idle,
        state_frames: args.states,
        min_percent: args.min_percent.unwrap_or(match args.format {
            FormatArg::Text | FormatArg::Functions => 0.5,
            FormatArg::Uwpmp | FormatArg::Svg => 0.1,
            FormatArg::Folded | FormatArg::Json => 0.0,
        }),
        threads: args.part.thread_filter()?,
        ..View::default()
    };
    args.stacks.apply(&mut view)?;
    Ok(view)
}

/// Title of a flame graph.
pub(crate) fn title(profile: &Profile) -> String {
    let process = profile.threads.first().map_or(String::new(), |t| {
        format!("{} (pid {}), ", t.process_comm, t.pid)
    });
    let seconds = profile.duration_ns() as f64 / 1e9;
    format!(
        "{process}{seconds:.1} s of wall-clock time on {}",
        profile.header.host
    )
}
