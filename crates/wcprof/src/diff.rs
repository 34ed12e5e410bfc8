//! `wcprof diff`: what changed from one saved trace to another, and how sure that is.

use std::path::{Path, PathBuf};

use anyhow::Context;
use clap::{Args, ValueEnum};
use wcprof_profile::diff::{DiffOptions, TableKind, diff};
use wcprof_profile::model::Profile;
use wcprof_profile::{Counted, View, counted_by_class};
use wcprof_report::{DiffTextOptions, diff_html, diff_json, diff_svg, diff_text};

use crate::args::{AnalysisArgs, IdleArg, OutputArgs, percent};
use crate::failure::{Exit, Failure};
use crate::filters::{PartArgs, StackArgs};
use crate::names::shorten;
use crate::open::{profile_of, state_rules};
use crate::terminal::Terminal;
use crate::views::note_empty;

#[derive(Args, Debug)]
pub(crate) struct DiffArgs {
    /// Baseline trace
    pub(crate) before: PathBuf,
    /// Trace to compare with the baseline
    pub(crate) after: PathBuf,
    /// Operations done in each recording: compare time per operation
    ///
    /// `counted`: by the counters of both recordings (attach --ceph).
    #[arg(long, value_name = "N,M", value_parser = operations, allow_negative_numbers = true)]
    pub(crate) per_op: Option<Operations>,
    /// Only these tables, separated by commas [default: all]
    #[arg(long, value_enum, value_delimiter = ',', value_name = "TABLE")]
    pub(crate) by: Vec<TableArg>,
    /// Lines per table at most; significant ones come first
    #[arg(long, value_name = "N", default_value_t = 20)]
    pub(crate) limit: usize,
    /// Do not show or test lines below this share of the shown time
    ///
    /// It is averaged over both traces.
    #[arg(long, value_name = "P", default_value_t = 0.5, value_parser = percent, allow_negative_numbers = true)]
    pub(crate) min_percent: f64,
    /// Machine-readable output
    #[arg(long, conflicts_with = "format")]
    pub(crate) json: bool,
    /// Another format
    #[arg(long, value_enum)]
    pub(crate) format: Option<DiffFormat>,
    #[command(flatten)]
    pub(crate) out: OutputArgs,
    /// Idle time, hide or show [default: hide; of snapshots show]
    #[arg(long, value_enum)]
    pub(crate) idle: Option<IdleArg>,
    /// Function names with template arguments and namespaces
    #[arg(long)]
    pub(crate) full_names: bool,
    #[command(flatten)]
    pub(crate) part: PartArgs,
    #[command(flatten)]
    pub(crate) stacks: StackArgs,
    #[command(flatten)]
    pub(crate) analysis: AnalysisArgs,
}

#[derive(ValueEnum, Copy, Clone, PartialEq, Eq, Debug)]
pub(crate) enum TableArg {
    /// CPU time by class of daemon (osd, mon, rgw, qemu ...)
    Class,
    /// CPU time by kind of work (malloc, encryption, checksums ...)
    Category,
    /// Pools, as a whole and by state
    Pool,
    /// Functions, self and total
    Function,
    /// Stacks
    Stack,
}

#[derive(ValueEnum, Copy, Clone, PartialEq, Eq, Debug)]
pub(crate) enum DiffFormat {
    /// A page with all tables and the flame graph
    Html,
    /// A differential flame graph
    Svg,
}

/// Operations before and after.
#[derive(Copy, Clone, PartialEq, Debug)]
pub(crate) enum Operations {
    Given([f64; 2]),
    /// By the processes themselves.
    Counted,
}

pub(crate) fn run(args: &DiffArgs) -> Result<(), Failure> {
    args.out.check(&[&args.before, &args.after])?;
    let mut view = View {
        min_percent: args.min_percent,
        threads: args.part.thread_filter()?,
        ..View::default()
    };
    args.stacks.apply(&mut view)?;
    let before = open(&args.before, args)?;
    let after = open(&args.after, args)?;
    let of_snapshots = before.header.n_snapshots > 0 && after.header.n_snapshots > 0;
    view.idle |= args.idle.map_or(of_snapshots, |idle| idle == IdleArg::Show);
    let rules = state_rules(&args.analysis.rules)?;
    let categories = rules.categories().map_err(Failure::usage)?;
    let mut options = DiffOptions {
        categories: Some(&categories),
        view,
        ..DiffOptions::default()
    };
    match args.per_op {
        None => {}
        Some(Operations::Given(n)) => options.n_ops = Some(n),
        Some(Operations::Counted) => {
            let before = counted(&before, &args.before)?;
            let after = counted(&after, &args.after)?;
            options.n_ops = Some([before.all.n.round(), after.all.n.round()]);
            options.ops_over_time = [before.over_time, after.over_time];
        }
    }
    let found = diff(&before, &after, &options);
    for (profile, side) in [&before, &after].into_iter().zip(&found.sides) {
        if side.shown_ns == 0 {
            note_empty(profile, &options.view);
        }
    }
    let title = format!("{} to {}", args.before.display(), args.after.display());
    let mut out = Vec::new();
    match args.format {
        Some(DiffFormat::Html) => {
            diff_html(&found, &title, &mut out).context("failed to make the page")?;
        }
        Some(DiffFormat::Svg) => {
            diff_svg(&found, &title, &mut out).context("failed to draw the flame graph")?;
        }
        None if args.json => diff_json(&found, &mut out)?,
        None => {
            let terminal = Terminal::of_output(args.out.is_stdout());
            let options = DiffTextOptions {
                width: terminal.width,
                color: terminal.color,
                max_lines: args.limit,
                tables: tables(&args.by),
            };
            diff_text(&found, &options, &mut out)?;
        }
    }
    args.out.write(&out)
}

fn open(path: &Path, args: &DiffArgs) -> Result<Profile, Failure> {
    let window = args.part.window()?;
    let mut profile = profile_of(path, window, &args.analysis)?;
    args.part.check(&profile).map_err(|failure| {
        failure.context(format!("failed to take a part of `{}`", path.display()))
    })?;
    if !args.full_names {
        shorten(&mut profile);
    }
    if profile.duration_ns() == 0 {
        let error = anyhow::anyhow!("failed to compare `{}`: it has no length", path.display());
        return Err(Failure::new(Exit::Failure, error).hint("record for several seconds"));
    }
    Ok(profile)
}

/// The operations of the only class of processes that counted its own.
fn counted(profile: &Profile, path: &Path) -> Result<Counted, Failure> {
    let mut classes = counted_by_class(profile).into_values();
    match (classes.next(), classes.next()) {
        (Some(counted), None) => Ok(counted),
        (first, _) => {
            let what = match first {
                None => "no process counted its operations",
                Some(_) => "processes of several classes counted their operations",
            };
            let error = anyhow::anyhow!("no number of operations in `{}`: {what}", path.display());
            Err(Failure::usage(error).hint("record with attach --ceph, or give --per-op N,M"))
        }
    }
}

fn tables(by: &[TableArg]) -> Vec<TableKind> {
    if by.is_empty() {
        return TableKind::ALL.to_vec();
    }
    by.iter()
        .flat_map(|table| match table {
            TableArg::Class => vec![TableKind::Class],
            TableArg::Category => vec![TableKind::Category],
            TableArg::Pool => vec![TableKind::Pool],
            TableArg::Function => vec![TableKind::FunctionSelf, TableKind::FunctionTotal],
            TableArg::Stack => vec![TableKind::Stack],
        })
        .collect()
}

/// `N,M`, both above 0, or `counted`.
fn operations(text: &str) -> Result<Operations, String> {
    if text == "counted" {
        return Ok(Operations::Counted);
    }
    let count = |text: &str| match text.trim().parse::<f64>() {
        // As `--ops` of a report.
        Ok(n) if n > 0.0 && n <= 1e18 => Ok(n),
        _ => Err(
            "two counts above 0, before and after, are wanted, 120000,118500; or `counted`"
                .to_owned(),
        ),
    };
    let (before, after) = text.split_once(',').unwrap_or((text, ""));
    Ok(Operations::Given([count(before)?, count(after)?]))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Check that two counts above 0 are wanted, or a word.
    #[test]
    fn counts() {
        assert_eq!(operations("10, 20.5"), Ok(Operations::Given([10.0, 20.5])));
        assert_eq!(operations("counted"), Ok(Operations::Counted));
        for bad in [
            "10", "10,", "0,1", "1,-1", "nan,1", "1,inf", "1,2,3", "1e19,1",
        ] {
            assert!(operations(bad).is_err(), "{bad}");
        }
    }
}
