//! Flags of `wcprof report` about trees and stacks: the format that they choose, and those that would change nothing in it.

use anyhow::anyhow;

use crate::args::{ByArg, FormatArg, ReportArgs};
use crate::failure::Failure;

/// The format: the first screen, unless a flag is about something else.
pub(crate) fn format(args: &ReportArgs) -> FormatArg {
    let what = &args.what;
    if what.functions {
        return FormatArg::Functions;
    }
    if what.waits {
        return FormatArg::Waits;
    }
    if args.json {
        return FormatArg::Json;
    }
    args.format
        .unwrap_or(match what.tree || given(args).next().is_some() {
            true => FormatArg::Text,
            false => FormatArg::Overview,
        })
}

/// Refuses flags that would change nothing: what they were to leave out would be shown.
pub(crate) fn check(args: &ReportArgs, format: FormatArg) -> Result<(), Failure> {
    let is_table = args.trees.by == Some(ByArg::Daemon);
    let spec = format.spec();
    let counts = |flag: &&str| match is_table {
        true => *flag == "--by",
        false => spec.takes(flag),
    };
    let why = match is_table {
        true => {
            "--by daemon is a table of whole processes; --by process has trees, formats and filters of stacks"
        }
        false => spec.why,
    };
    let no_ops = is_table || args.what.locks || !spec.has_answers;
    let ops = (no_ops && args.ops.is_some()).then_some((
        "--ops",
        "the first screen, trees, --json and the page show the CPU time of an operation",
    ));
    let flag = given(args).find(|flag| !counts(flag));
    match flag.map(|flag| (flag, why)).or(ops) {
        Some((flag, why)) => {
            let error = anyhow!("`{flag}` would change nothing here");
            Err(Failure::usage(error).hint(why))
        }
        None => Ok(()),
    }
}

/// The flags about trees and stacks that are given.
fn given(args: &ReportArgs) -> impl Iterator<Item = &'static str> {
    let (trees, stacks) = (&args.trees, &args.stacks);
    [
        ("--by", trees.by.is_some()),
        ("--invert", trees.invert),
        ("--callers-of", trees.callers_of.is_some()),
        ("--callees-of", trees.callees_of.is_some()),
        ("--idle", trees.idle.is_some()),
        ("--min-percent", trees.min_percent.is_some()),
        ("--kernel", trees.kernel),
        ("--states", trees.states),
        ("--files", trees.files),
        ("--lines", trees.lines),
        ("--state", !stacks.state.is_empty()),
        ("--focus", stacks.focus.is_some()),
        ("--hide", stacks.hide.is_some()),
    ]
    .into_iter()
    .filter_map(|(flag, is_given)| is_given.then_some(flag))
}
