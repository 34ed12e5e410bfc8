//! A flame graph as SVG, drawn by inferno from folded stacks.

use std::cmp::Reverse;
use std::collections::HashMap;
use std::io::{self, Write};

use inferno::flamegraph::color::{Color, PaletteMap};
use inferno::flamegraph::{Direction as Drawn, Options, TextTruncateDirection, from_lines};
use wcprof_profile::model::{Profile, State};
use wcprof_profile::short;
use wcprof_profile::{Label, Trees, View};
use wcprof_text::{count, duration, folded_name, xml_text};

use crate::colors::{GROUP, TINTS};
use crate::folded::{Namer, lines};
use crate::group::group_name;
use crate::headline::{Headline, recorded_by};

/// What is drawn besides the profile.
#[derive(Copy, Clone, Debug, Default)]
pub struct SvgOptions<'a> {
    /// The graph's title.
    pub title: &'a str,
    /// An icicle graph: roots at the top.
    pub from_top: bool,
    /// Full names; else without arguments, template arguments and outer namespaces.
    pub full_names: bool,
}

/// Writes a flame graph with widths in microseconds of wall-clock time. The color of a function is that of the
/// state it spends most time in. An error of kind [`io::ErrorKind::InvalidInput`] says that there is nothing
/// to draw.
pub fn svg(
    profile: &Profile,
    view: &View,
    wanted: &SvgOptions<'_>,
    out: &mut impl Write,
) -> io::Result<()> {
    let trees = Trees::new(profile, view);
    let rename = |name: &str| match wanted.full_names {
        true => name.to_owned(),
        false => short(name),
    };
    let lines = lines(profile, &trees, rename)?.into_iter();
    let lines: Vec<String> = lines
        .map(|(line, us)| format!("{} {us}", plain(&line)))
        .collect();
    if lines.is_empty() {
        return Err(io::Error::new(
            io::ErrorKind::InvalidInput,
            "nothing to draw: no time passes the filters (idle time is hidden unless shown)",
        ));
    }
    let headline = Headline::new(profile);
    let idle = State::ALL.into_iter().filter(|state| state.is_idle());
    let idle = idle.map(|state| headline.states[state as usize]);
    let hidden = match view.idle {
        true => String::new(),
        false => format!(
            ", {} of idle time hidden",
            duration(idle.fold(0, u64::saturating_add))
        ),
    };
    let engine = recorded_by(&profile.header.engine);
    let threads = count(headline.n_threads, "thread");
    let (subtitle, unit) = match profile.header.n_snapshots as usize {
        0 => {
            let length = duration(profile.duration_ns());
            (
                format!("wall-clock time of {threads} over {length}, {engine}{hidden}"),
                "us",
            )
        }
        n => (
            format!("{threads} in {}, {engine}", count(n, "snapshot")),
            "threads",
        ),
    };
    let namer = Namer {
        profile,
        min_percent: trees.min_percent,
        rename,
    };
    let mut palette = palette(profile, &trees, |label| namer.frame(label));
    let mut options = options(wanted.title, &subtitle, unit);
    options.palette_map = Some(&mut palette);
    if wanted.from_top {
        options.direction = Drawn::Inverted;
    }
    let mut drawn = Vec::new();
    from_lines(&mut options, lines.iter().map(String::as_str), &mut drawn)?;
    let mut states = [0_u64; State::ALL.len()];
    for group in &trees.groups {
        for (sum, ns) in states.iter_mut().zip(&group.states) {
            *sum = sum.saturating_add(*ns);
        }
    }
    let seen = State::ALL
        .into_iter()
        .filter(|state| view.shows(*state) && states[*state as usize] > 0);
    out.write_all(with_legend(&String::from_utf8_lossy(&drawn), seen).as_bytes())
}

/// The color of what a search finds: text on it is readable, and no state has it.
const FOUND: &str = "#00e5ff";
/// Height of the legend, pixels.
const LEGEND: u64 = 24;
/// Pixels of a square of color, and of a letter.
const SQUARE: usize = 12;
const LETTER: usize = 7;

/// A drawing with a line below it that says which color is which state, and a button for search that can be read. One that does not begin as inferno's stays as it is.
fn with_legend(svg: &str, states: impl Iterator<Item = State>) -> String {
    let higher = || {
        let (before, rest) = svg.split_once(" height=\"")?;
        let (height, rest) = rest.split_once('"')?;
        let height: u64 = height.parse().ok()?;
        let new = height.checked_add(LEGEND)?;
        let old_box = format!(" {height}\"");
        let (view, rest) = rest.split_once(&old_box)?;
        let (body, _) = rest.rsplit_once("</svg>")?;
        Some((
            format!("{before} height=\"{new}\"{view} {new}\"{body}"),
            height,
        ))
    };
    let Some((mut out, top)) = higher() else {
        return svg.to_owned();
    };
    out += "<g id=\"legend\" font-family=\"monospace\" font-size=\"12\">";
    out += &format!("<rect x=\"0\" y=\"{top}\" width=\"100%\" height=\"{LEGEND}\" fill=\"#fff\"/>");
    let mut left = 10;
    for state in states {
        let (name, color) = (state.name(), TINTS[state as usize]);
        let (at, text, base) = (top + 4, left + SQUARE + 4, top + 14);
        out += &format!(
            "<rect x=\"{left}\" y=\"{at}\" width=\"{SQUARE}\" height=\"{SQUARE}\" fill=\"#{color:06x}\" stroke=\"#888\"/>\
             <text x=\"{text}\" y=\"{base}\">{name}</text>"
        );
        left = text + name.len() * LETTER + 16;
    }
    // The button that searches is almost invisible otherwise, until the pointer is on it.
    out + "</g><style type=\"text/css\">#search { opacity:0.8; }</style></svg>\n"
}

/// The color of each frame, by its name.
fn palette(profile: &Profile, trees: &Trees, frame: impl Fn(&Label) -> String) -> PaletteMap {
    let mut states: HashMap<Label, [u64; State::ALL.len()]> = HashMap::new();
    for node in trees.groups.iter().flat_map(|group| &group.nodes) {
        let sums = states.entry(node.label).or_default();
        for (sum, ns) in sums.iter_mut().zip(&node.states) {
            *sum = sum.saturating_add(*ns);
        }
    }
    let mut by_name: HashMap<String, [u64; State::ALL.len()]> = HashMap::new();
    for (label, states) in states {
        let sums = by_name.entry(plain(&frame(&label))).or_default();
        for (sum, ns) in sums.iter_mut().zip(states) {
            *sum = sum.saturating_add(ns);
        }
    }
    let mut palette = PaletteMap::default();
    for (name, states) in by_name {
        let most = (0..states.len()).max_by_key(|at| (states[*at], Reverse(*at)));
        palette.insert(name, color(TINTS[most.unwrap_or_default()]));
    }
    let groups = trees
        .groups
        .iter()
        .filter_map(|group| group_name(profile, group));
    for name in groups.chain(["all".to_owned()]) {
        palette.insert(plain(&folded_name(&name)), color(GROUP));
    }
    palette
}

fn color(rgb: u32) -> Color {
    let [_, r, g, b] = rgb.to_be_bytes();
    Color { r, g, b }
}

/// What all graphs have in common. Widths are in `unit`.
pub(crate) fn options<'a>(title: &str, subtitle: &str, unit: &str) -> Options<'a> {
    let mut options = Options::default();
    options.title = xml_text(title).into_owned();
    options.subtitle = Some(xml_text(subtitle).into_owned());
    options.count_name = unit.to_owned();
    options.name_type = "Frame:".to_owned();
    // The same name has the same color in every graph, and the same input the same bytes.
    options.hash = true;
    options.min_width = 0.05;
    if let Ok(color) = FOUND.parse() {
        options.search_color = color;
    }
    options.text_truncate_direction = TextTruncateDirection::Right;
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
