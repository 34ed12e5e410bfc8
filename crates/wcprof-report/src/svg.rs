//! A flame graph as SVG, drawn by inferno from folded stacks.

use std::io::{self, Write};

use inferno::flamegraph::{Direction as Drawn, Options, from_lines};
use wcprof_profile::model::Profile;
use wcprof_profile::{Trees, View};
use wcprof_text::{duration, xml_text};

use crate::folded::lines;
use crate::headline::{Headline, recorded_by};

/// Writes a flame graph, or an icicle graph when it is drawn from the top, with widths in microseconds of
/// wall-clock time. An error of kind [`io::ErrorKind::InvalidInput`] says that there is nothing to draw.
pub fn svg(
    profile: &Profile,
    view: &View,
    title: &str,
    from_top: bool,
    out: &mut impl Write,
) -> io::Result<()> {
    let trees = Trees::new(profile, view);
    let lines = lines(profile, &trees).into_iter();
    let lines: Vec<String> = lines
        .map(|(line, us)| format!("{} {us}", plain(&line)))
        .collect();
    if lines.is_empty() {
        return Err(io::Error::new(
            io::ErrorKind::InvalidInput,
            "nothing to draw: no time passes the filters (idle time is hidden unless shown)",
        ));
    }
    let subtitle = format!(
        "wall-clock time of {} threads over {}, {}{}",
        Headline::new(profile).n_threads,
        duration(profile.duration_ns()),
        recorded_by(&profile.header.engine),
        if view.idle { "" } else { ", idle time hidden" },
    );
    let mut options = options(title, &subtitle, "us");
    if from_top {
        options.direction = Drawn::Inverted;
    }
    from_lines(&mut options, lines.iter().map(String::as_str), out)
}

/// What all graphs have in common. Widths are in `unit`.
pub(crate) fn options(title: &str, subtitle: &str, unit: &str) -> Options<'static> {
    let mut options = Options::default();
    options.title = xml_text(title).into_owned();
    options.subtitle = Some(xml_text(subtitle).into_owned());
    options.count_name = unit.to_owned();
    options.name_type = "Frame:".to_owned();
    // The same name has the same color in every graph, and the same input the same bytes.
    options.hash = true;
    options.min_width = 0.05;
    options
}

/// A line without what inferno would read as something else than names: `# ` begins a comment, and
/// a number after the last space is a second weight.
pub(crate) fn plain(line: &str) -> String {
    let mut line = xml_text(line).into_owned();
    if line.starts_with('#') {
        line.replace_range(..1, "?");
    }
    if let Some(at) = line.rfind(' ')
        && line[at + 1..]
            .bytes()
            .all(|b| b.is_ascii_digit() || b == b'.')
    {
        line.replace_range(at..=at, "\u{a0}");
    }
    line
}
