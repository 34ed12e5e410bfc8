//! The flat profile: self and total time of each function, a table a group.
//!
//! Percentages are of the time of the group that is shown, and `±` is half the width of
//! the 95 % confidence interval, in points. A function that calls itself counts once in its total.

use std::io::{self, Write};

use wcprof_profile::model::Profile;
use wcprof_profile::{FunctionGroup, FunctionWeight, View, function_groups};
use wcprof_text::{count, cut, percent, terminal_name};

use crate::figures::amount;
use crate::group::key_name;
use crate::text::{TextOptions, plus_minus, write_n_empty};

/// Writes the functions of `view` by total time. Those below its `min_percent` of their group's
/// shown time are counted, not listed; `max_nodes` of the options limits the lines of a group.
pub fn functions(
    profile: &Profile,
    view: &View,
    options: &TextOptions,
    out: &mut impl Write,
) -> io::Result<()> {
    let groups = function_groups(profile, view);
    let (listed, empty): (Vec<_>, Vec<_>) =
        (groups.iter()).partition(|group| !options.only_shown || group.shown > 0);
    for (at, group) in listed.iter().enumerate() {
        if at > 0 {
            writeln!(out)?;
        }
        let name = key_name(profile, &group.key, &group.threads);
        let head = format!(
            "{}: {}, {} observed, {} shown = 100 %",
            terminal_name(name.as_deref().unwrap_or("all threads")),
            count(group.threads.len(), "thread"),
            amount(profile, group.observed),
            amount(profile, group.shown),
        );
        writeln!(out, "{}", cut(&head, options.width))?;
        table(profile, group, view.min_percent, options, out)?;
    }
    write_n_empty(listed.len(), empty.len(), out)
}

fn table(
    profile: &Profile,
    group: &FunctionGroup,
    min_percent: f64,
    options: &TextOptions,
    out: &mut impl Write,
) -> io::Result<()> {
    let share = |function: &FunctionWeight| percent(function.total_weight, group.shown);
    let (listed, below): (Vec<_>, Vec<_>) =
        (group.functions.iter()).partition(|function| share(function) >= min_percent);
    if !listed.is_empty() {
        let line = "   self                    total                  function";
        writeln!(out, "{}", cut(line, options.width))?;
    }
    let most = options.max_nodes.unwrap_or(usize::MAX);
    for function in listed.iter().take(most) {
        let line = line(profile, group, function);
        writeln!(out, "{}", cut(&line, options.width))?;
    }
    let n_left = below.len() + listed.len().saturating_sub(most);
    if n_left > 0 {
        writeln!(out, "and {} below", count(n_left, "function"))?;
    }
    Ok(())
}

fn line(profile: &Profile, group: &FunctionGroup, function: &FunctionWeight) -> String {
    let name = &profile.functions[function.function.0 as usize].name;
    format!(
        "{:6.2}% {:<6} {:>8}  {:6.2}% {:<6} {:>8}  {}",
        percent(function.self_weight, group.shown),
        plus_minus(function.self_interval, group.shown),
        amount(profile, function.self_weight),
        percent(function.total_weight, group.shown),
        plus_minus(function.total_interval, group.shown),
        amount(profile, function.total_weight),
        terminal_name(name),
    )
}
