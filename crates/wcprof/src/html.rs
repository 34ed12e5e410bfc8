//! `wcprof report --format html`: a saved trace and what the rules find in it as one page.

use std::borrow::Cow;
use std::io::IsTerminal;
use std::time::Duration;

use anyhow::Context;
use wcprof_findings::Hotspots;
use wcprof_profile::model::Profile;
use wcprof_profile::{Cores, Rules, View, keep_threads};
use wcprof_report::{FirstScreen, HtmlOptions, HtmlPage, Overview};
use wcprof_trace::model::Tables;

use crate::args::ReportArgs;
use crate::failure::Failure;
use crate::open::{Spans, hotspot_rules};
use crate::views::{answers_of, found, title};

/// Refuses to fill a terminal with a page.
pub(crate) fn check(args: &ReportArgs) -> Result<(), Failure> {
    if !args.out.is_stdout() || !std::io::stdout().is_terminal() {
        return Ok(());
    }
    let error = anyhow::anyhow!("an HTML page is not written to a terminal");
    Err(Failure::usage(error).hint("use -o page.html"))
}

/// What the rules find in the threads and the time that the flags choose, and what the first screen says of them. `profile`
/// has full names and no kernel functions: that is what rules are written for.
pub(crate) fn findings(
    profile: &Profile,
    tables: &Tables,
    rules: &Rules,
    args: &ReportArgs,
) -> Result<(Hotspots, FirstScreen), Failure> {
    let hotspot_rules = hotspot_rules(&args.analysis.rules)?;
    let part = &args.part;
    let is_part = [&part.threads, &part.pools, &part.processes, &part.cgroups]
        .iter()
        .any(|globs| !globs.is_empty());
    let mut profile = Cow::Borrowed(profile);
    if is_part {
        keep_threads(profile.to_mut(), &part.thread_filter()?);
    }
    let categories = rules.categories().map_err(Failure::usage)?;
    let found = found(&profile, &hotspot_rules, &categories);
    let answers = answers_of(&profile, tables, &found, &categories);
    let screen = Overview {
        profile: &profile,
        answers: &answers,
        width: None,
        color: false,
    };
    let first = FirstScreen::new(&screen);
    Ok((found, first))
}

/// Writes the page.
pub(crate) fn write(
    profile: &Profile,
    spans: &Spans,
    args: &ReportArgs,
    view: &View,
    found: Option<&(Hotspots, FirstScreen)>,
    cores: Option<&Cores>,
) -> Result<(), Failure> {
    let (title, flags) = (title(profile), flags(args));
    let options = HtmlOptions {
        title: &title,
        hotspots: found.map(|(hotspots, _)| hotspots),
        first: found.map(|(_, first)| first),
        cores,
        flags: &flags,
    };
    let mut page = HtmlPage::new(profile, view, options);
    if page.has_map() {
        spans.for_each(|span| page.add_span(&span))?;
    }
    let mut out = Vec::new();
    page.write(&mut out).context("failed to make the page")?;
    args.out.write(&out)
}

/// The flags that choose what is shown, so that a reader of the page knows them.
fn flags(args: &ReportArgs) -> Vec<String> {
    let mut flags = Vec::new();
    let mut add = |flag: &str, value: &str| {
        let plain = |c: char| c.is_ascii_alphanumeric() || "-_.,:/=+%".contains(c);
        flags.push(match !value.is_empty() && value.chars().all(plain) {
            true => format!("{flag} {value}"),
            false => format!("{flag} '{}'", value.replace('\'', "'\\''")),
        });
    };
    let time = |time: Duration| format!("{}s", time.as_secs_f64());
    let (part, stacks) = (&args.part, &args.stacks);
    for (flag, value) in [("--from", part.from), ("--to", part.to)] {
        if let Some(value) = value {
            add(flag, &time(value));
        }
    }
    for (flag, globs) in [
        ("--threads", &part.threads),
        ("--pools", &part.pools),
        ("--processes", &part.processes),
        ("--cgroups", &part.cgroups),
    ] {
        globs.iter().for_each(|glob| add(flag, glob));
    }
    if !stacks.state.is_empty() {
        let names: Vec<&str> = stacks.state.iter().map(|s| s.name()).collect();
        add("--state", &names.join(","));
    }
    for (flag, value) in [
        ("--focus", &stacks.focus),
        ("--hide", &stacks.hide),
        ("--callers-of", &args.trees.callers_of),
        ("--callees-of", &args.trees.callees_of),
    ] {
        if let Some(value) = value {
            add(flag, value);
        }
    }
    flags
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cli::Cli;
    use clap::Parser;

    /// Check that flags read as they could be typed.
    #[test]
    fn quoted() {
        let typed = [
            "wcprof",
            "report",
            "x.wct",
            "--from",
            "500ms",
            "--pools",
            "msgr-*",
            "--focus",
            "it's",
            "--state",
            "on-cpu,lock",
        ];
        let cli = Cli::try_parse_from(typed).expect("valid flags");
        let crate::cli::Command::Report(args) = cli.command else {
            panic!("another command");
        };
        assert_eq!(
            flags(&args),
            [
                "--from 0.5s",
                "--pools 'msgr-*'",
                "--state on-cpu,lock",
                "--focus 'it'\\''s'",
            ]
        );
    }
}
