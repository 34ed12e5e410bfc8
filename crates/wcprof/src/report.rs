//! `wcprof report`: a saved trace in one of the formats.

use anyhow::Context;
use wcprof_profile::model::{Profile, State};
use wcprof_profile::{Direction, GroupBy, ThreadFilter, Trees, View};
use wcprof_report::{Headline, TextOptions, UwpmpOptions, folded, json, svg, text, uwpmp};

use crate::cli::{ByArg, FormatArg, IdleArg, NamesArg, ReportArgs};
use crate::failure::{Exit, Failure};
use crate::names;
use crate::open::{KernelSide, profile_of, write_output};
use crate::terminal::Terminal;

pub(crate) fn run(args: &ReportArgs) -> Result<(), Failure> {
    let threads = ThreadFilter::new(&args.threads, &[])
        .map_err(|e| Failure::new(Exit::Usage, e).hint("globs know *, ?, [a-z] and {a,b}"))?;
    let kernel = match args.kernel {
        true => KernelSide::Shown,
        false => KernelSide::Hidden,
    };
    let mut profile = profile_of(&args.trace, &args.rules, &args.symbols, kernel)?;
    if args.names == NamesArg::Short {
        names::shorten(&mut profile);
    }
    let mut out = Vec::new();
    render(&profile, args, threads, &mut out).context("failed to render the report")?;
    write_output(args.output.as_ref(), &out)?;
    say_hidden(&profile, args);
    Ok(())
}

fn render(
    profile: &Profile,
    args: &ReportArgs,
    threads: ThreadFilter,
    out: &mut Vec<u8>,
) -> std::io::Result<()> {
    let view = view(args, threads);
    let terminal = Terminal::stdout();
    let to_terminal = args.output.is_none();
    match args.format {
        FormatArg::Text => {
            let headline = Headline::new(profile).text();
            out.extend_from_slice(headline.as_bytes());
            out.push(b'\n');
            let options = TextOptions {
                width: terminal.width.filter(|_| to_terminal),
                color: terminal.color && to_terminal,
                max_nodes: None,
            };
            text(profile, &Trees::new(profile, &view), &options, out)
        }
        FormatArg::Uwpmp => uwpmp(
            profile,
            &UwpmpOptions {
                direction: view.direction,
                threshold: view.min_percent,
                idle: view.idle,
                width: terminal.width.filter(|_| to_terminal),
                threads: view.threads,
            },
            out,
        ),
        FormatArg::Folded => folded(profile, &Trees::new(profile, &view), out),
        FormatArg::Json => json(profile, &view, out),
        FormatArg::Svg => svg(profile, &view, &title(profile), out),
    }
}

/// Formats without a place for it: how much idle time is hidden.
fn say_hidden(profile: &Profile, args: &ReportArgs) {
    let hidden = args.idle != Some(IdleArg::Show);
    if hidden && matches!(args.format, FormatArg::Folded | FormatArg::Svg) {
        let share = Headline::new(profile).share(State::Idle);
        eprintln!(
            "wcprof: {share:.1} % of the thread time is idle and hidden; --idle show shows it"
        );
    }
}

/// The flags, with each format's defaults.
fn view(args: &ReportArgs, threads: ThreadFilter) -> View {
    let idle = match args.idle {
        Some(idle) => idle == IdleArg::Show,
        None => args.format == FormatArg::Uwpmp,
    };
    View {
        by: match args.by {
            ByArg::Thread => GroupBy::Thread,
            ByArg::Pool => GroupBy::Pool,
            ByArg::Process => GroupBy::Process,
            ByArg::All => GroupBy::All,
        },
        direction: match args.invert {
            true => Direction::LeafFirst,
            false => Direction::RootFirst,
        },
        idle,
        state_frames: args.states,
        min_percent: args.min_percent.unwrap_or(match args.format {
            FormatArg::Text => 0.5,
            FormatArg::Uwpmp | FormatArg::Svg => 0.1,
            FormatArg::Folded | FormatArg::Json => 0.0,
        }),
        threads,
        states: None,
    }
}

/// Title of a flame graph.
pub(crate) fn title(profile: &Profile) -> String {
    let process = profile.threads.first().map_or(String::new(), |t| {
        format!("{} (pid {}), ", t.process_comm, t.pid)
    });
    let seconds = profile.stats.duration.0 as f64 / 1e9;
    format!(
        "{process}{seconds:.1} s of wall-clock time on {}",
        profile.header.host
    )
}
