//! A profile to one HTML file that needs no network: headline, findings, flame graph, call trees, map
//! of states, and the health of names.
//!
//! The file holds data as JSON, and a script of its own (`assets/`) that draws it. `docs/html.md`
//! says what it shows and why nothing that a target names can run in it ([`page`]).

mod document;
mod first;
mod map;
mod nodes;
mod page;
mod strings;
mod symbols;
pub(crate) mod tables;

use std::collections::HashMap;
use std::io::{self, Write};

use indexmap::IndexSet;
use serde::Serialize;
use serde_json::Value;
use wcprof_findings::{Detail, Finding, Hotspots, render_text};
use wcprof_profile::model::{Profile, State};
use wcprof_profile::{Cores, Direction, Group, GroupBy, GroupKey, RowSpan, Trees, View};
use wcprof_text::{count, duration};

pub use first::FirstScreen;
use map::{StateMap, StateRuns};
use nodes::{NodesOut, columns, label_columns, micros};
use strings::Strings;

use crate::headline::Headline;

/// No page is larger, bytes.
pub const MAX_HTML_BYTES: usize = 5_000_000;

/// Most groups with a tree, the heaviest first.
const MAX_GROUPS: usize = 400;
/// Most nodes of each of the trees.
const MAX_NODES: usize = 20_000;
/// Most characters of a name.
const MAX_CHARS: usize = 2000;
/// Most findings.
const MAX_FINDINGS: usize = 60;

/// Columns of the text for readers without scripts.
const PLAIN_COLUMNS: usize = 120;

/// What a page shows besides the profile.
#[derive(Copy, Clone, Debug, Default)]
pub struct HtmlOptions<'a> {
    /// The page's title.
    pub title: &'a str,
    /// What the rules found.
    pub hotspots: Option<&'a Hotspots>,
    /// What the first screen of the terminal says.
    pub first: Option<&'a FirstScreen>,
    /// Cores by class of process.
    pub cores: Option<&'a Cores>,
    /// The flags that chose what is shown, as typed.
    pub flags: &'a [String],
}

/// All that a page shows. Numbers of strings are indices into `strings`; times are in microseconds.
#[derive(Debug, Serialize)]
struct Document {
    schema: &'static str,
    version: u32,
    /// Names of states by number, and of what the view leaves out.
    states: Vec<&'static str>,
    headline: Value,
    /// What the first screen of the terminal says.
    first: Option<FirstScreen>,
    view: Value,
    cores: Option<Value>,
    findings: Vec<Value>,
    groups: Vec<Value>,
    labels: Value,
    /// Root first, by group.
    calls: NodesOut,
    /// Leaf first, by group.
    inverted: Option<NodesOut>,
    /// Leaf first, all groups together; `None` when there is but one.
    inverted_all: Option<NodesOut>,
    map: Option<MapOut>,
    modules: Vec<Value>,
    /// What is merged or left out, in sentences.
    omitted: Vec<String>,
    strings: Vec<String>,
}

#[derive(Debug, Serialize)]
struct MapOut {
    begin_us: u64,
    bin_us: u64,
    n_bins: usize,
    /// Length of the axis: the last bin may be cut short.
    duration_us: u64,
    rows: Vec<MapRowOut>,
}

#[derive(Debug, Serialize)]
struct MapRowOut {
    /// Index of the group; `None` for threads of several.
    group: Option<usize>,
    name: u32,
    /// The process; only where there are several.
    process: Option<u32>,
    n_threads: usize,
    states: StateRuns,
}

/// A page in the making: give it the spans of the trace, then [`write`](Self::write) it.
#[derive(Debug)]
pub struct HtmlPage<'a> {
    profile: &'a Profile,
    view: &'a View,
    options: HtmlOptions<'a>,
    calls: Trees,
    inverted: Option<Trees>,
    inverted_all: Option<Trees>,
    map: Option<StateMap>,
}

/// How much a page holds: a size is half of the one before. No larger one is tried.
const LAST_SIZE: u32 = 9;

fn limit(size: u32, most: usize, least: usize) -> usize {
    (most >> size).max(least)
}

impl<'a> HtmlPage<'a> {
    /// Makes the trees. `view` chooses groups and what is shown; its direction does not matter,
    /// save that a tree around one function has a direction of its own.
    pub fn new(profile: &'a Profile, view: &'a View, options: HtmlOptions<'a>) -> Self {
        let with = |direction, by| View {
            direction,
            by,
            ..view.clone()
        };
        let is_around = view.around.is_some();
        let root_first = || {
            let calls = Trees::new(profile, &with(Direction::RootFirst, view.by));
            let has_groups = !is_around && calls.groups.len() > 1;
            let all = with(Direction::LeafFirst, GroupBy::All);
            (calls, has_groups.then(|| Trees::new(profile, &all)))
        };
        let leaf_first =
            || (!is_around).then(|| Trees::new(profile, &with(Direction::LeafFirst, view.by)));
        let ((calls, inverted_all), inverted) = rayon::join(root_first, leaf_first);
        // What was imported from text has no time of its own.
        let has_time = profile.header.rate_hz > 0 && profile.time.duration_ns() > 0;
        let map = has_time.then(|| StateMap::new(profile, &calls, MAX_GROUPS));
        Self {
            profile,
            view,
            options,
            calls,
            inverted,
            inverted_all,
            map,
        }
    }

    /// Whether the page has a map of states: [`add_span`](Self::add_span) does nothing without.
    pub fn has_map(&self) -> bool {
        self.map.is_some()
    }

    /// Adds a span of the profile's trace to the map of states.
    pub fn add_span(&mut self, span: &RowSpan) {
        if let Some(map) = &mut self.map {
            map.add(self.profile, span);
        }
    }

    /// Writes the page: as much as fits into [`MAX_HTML_BYTES`].
    pub fn write(&self, out: &mut impl Write) -> io::Result<()> {
        let headline = Headline::new(self.profile);
        let plain = self.plain(&headline);
        for size in 0..=LAST_SIZE {
            let json = serde_json::to_string(&self.document(&headline, size))?;
            if page::empty_len() + plain.len() + json.len() > MAX_HTML_BYTES {
                continue;
            }
            let page = page::page(self.options.title, &plain, &json);
            if page.len() <= MAX_HTML_BYTES {
                return out.write_all(page.as_bytes());
            }
        }
        Err(io::Error::new(
            io::ErrorKind::InvalidData,
            "the page would be larger than 5 MB: choose fewer threads or less time",
        ))
    }

    /// Headline and findings for readers without scripts.
    fn plain(&self, headline: &Headline<'_>) -> String {
        const MOST: usize = 60_000;
        let first = self.options.first.map(|first| first.text.clone());
        let mut text = first.unwrap_or_else(|| headline.text());
        text.push('\n');
        if let Some(hotspots) = self.options.hotspots {
            text += &render_text(self.profile, hotspots, PLAIN_COLUMNS, Detail::Full);
        }
        match text.char_indices().nth(MOST) {
            Some((at, _)) => format!("{}...\n", &text[..at]),
            None => text,
        }
    }

    fn findings(&self) -> &'a [Finding] {
        self.options.hotspots.map_or(&[], |found| &found.findings)
    }

    fn document(&self, headline: &Headline<'_>, size: u32) -> Document {
        let profile = self.profile;
        let mut strings = Strings::new(limit(size, MAX_CHARS, 40));
        let n_groups = limit(size, MAX_GROUPS, 10).min(self.calls.groups.len());
        let groups: Vec<&Group> = self.calls.groups.iter().take(n_groups).collect();
        let (mut labels, max) = (IndexSet::new(), limit(size, MAX_NODES, 50));
        let calls = columns(&groups, max, &mut labels);
        let inverted = self.inverted.as_ref().map(|trees| {
            let by_key: HashMap<&GroupKey, &Group> =
                trees.groups.iter().map(|g| (&g.key, g)).collect();
            let same = groups.iter().filter_map(|g| by_key.get(&g.key).copied());
            columns(&same.collect::<Vec<_>>(), max, &mut labels)
        });
        let inverted_all = self.inverted_all.as_ref().map(|trees| {
            let groups: Vec<&Group> = trees.groups.iter().collect();
            columns(&groups, max, &mut labels)
        });
        let labels = label_columns(&labels, profile, self.calls.min_percent, &mut strings);
        let shown = some_of_each(self.findings(), limit(size, MAX_FINDINGS, 5));
        let findings = shown.iter().map(|f| {
            let group = group_of(f, &groups);
            document::finding(f, group, &mut strings)
        });
        let findings = findings.collect();
        let map = self.map.as_ref();
        let map = map.map(|map| self.map_out(map, n_groups, size, &mut strings));
        let (modules, n_more_modules) = symbols::modules(profile, &mut strings);
        let cores = self.options.cores;
        let state_names = State::ALL.into_iter().map(State::name);
        let mut document = Document {
            schema: "wcprof-html",
            version: 1,
            states: state_names.chain(["left out by the filters"]).collect(),
            headline: document::headline(headline, self.options.title, &mut strings),
            first: self.options.first.map(|first| first.cleaned(&mut strings)),
            view: document::view(self.view, self.options.flags, &mut strings),
            cores: cores.map(|cores| document::cores(cores, &mut strings)),
            findings,
            groups: groups
                .iter()
                .map(|g| document::group(profile, g, &mut strings))
                .collect(),
            labels,
            calls,
            inverted,
            inverted_all,
            map,
            modules,
            omitted: Vec::new(),
            strings: Vec::new(),
        };
        document.omitted = self.omitted(&document, n_more_modules, strings.n_cut);
        document.strings = strings.into_list();
        document
    }

    fn map_out(&self, map: &StateMap, n_groups: usize, size: u32, strings: &mut Strings) -> MapOut {
        let merge = 1_usize << size.min(4);
        let several = self.profile.processes.len() > 1;
        let rows = map.rows.iter().enumerate().map(|(at, row)| {
            let thread = row.thread.and_then(|t| self.profile.threads.get(t));
            let process = thread.and_then(|t| self.profile.process_of(t));
            let name = match (thread, row.n_threads) {
                (Some(t), _) if t.tid.0 == 0 => t.comm.clone(),
                (Some(t), _) => format!("{}/{}", t.comm, t.tid),
                (None, n) => count(n, "other thread"),
            };
            MapRowOut {
                group: (row.group < n_groups).then_some(row.group),
                name: strings.id(&name),
                process: process
                    .filter(|_| several)
                    .map(|p| strings.id(&format!("{} (pid {})", p.title, p.pid))),
                n_threads: row.n_threads,
                states: map.states(at, merge),
            }
        });
        MapOut {
            rows: rows.collect(),
            begin_us: micros(self.profile.time.start.0),
            bin_us: micros(map.bin_ns).saturating_mul(merge as u64),
            n_bins: map.n_bins.div_ceil(merge),
            duration_us: micros(self.profile.time.duration_ns()),
        }
    }

    /// What is merged or left out.
    fn omitted(&self, document: &Document, n_more_modules: usize, n_cut: usize) -> Vec<String> {
        let mut list = Vec::new();
        let more_groups = &self.calls.groups[document.groups.len()..];
        if !more_groups.is_empty() {
            let shown = more_groups.iter().map(|g| g.weight);
            list.push(format!(
                "{} with {} of shown time have no tree and no line in the table of groups.",
                count(more_groups.len(), "more group"),
                duration(shown.fold(0, u64::saturating_add))
            ));
        }
        for (name, tree) in [
            ("call trees", Some(&document.calls)),
            ("inverted trees", document.inverted.as_ref()),
            (
                "inverted tree of all threads",
                document.inverted_all.as_ref(),
            ),
        ] {
            if let Some(tree) = tree.filter(|t| t.n_left_out > 0) {
                list.push(format!(
                    "{} of the {name}, each of at most {}, are left out; their time stays with \
                     their callers or callees.",
                    count(tree.n_left_out, "place"),
                    duration(tree.limit_us.saturating_mul(1000)),
                ));
            }
        }
        let rows = document.map.iter().flat_map(|m| &m.rows);
        let merged: usize = rows.map(|r| r.n_threads).filter(|n| *n > 1).sum();
        let n_more_findings = self.findings().len() - document.findings.len();
        let mut left_out = |n: usize, noun: &str, text: &str| {
            if n > 0 {
                list.push(format!("{} {text}", count(n, noun)));
            }
        };
        let text = "are left out: `wcprof doctor` prints them.";
        left_out(n_more_findings, "more finding", text);
        let text = "with little time that is not idle are in common rows of the map of states.";
        left_out(merged, "thread", text);
        left_out(
            n_more_modules,
            "more module",
            "are not in the table of names.",
        );
        left_out(n_cut, "long name", "are cut.");
        if self.map.is_none() {
            list.push("There is no map of states: this recording has no axis of time.".to_owned());
        }
        list
    }
}

/// The group that holds the threads of a finding, where pools are groups.
fn group_of(finding: &Finding, groups: &[&Group]) -> Option<usize> {
    let [pool] = finding.pools.as_slice() else {
        return None;
    };
    let mut keys = groups.iter().map(|group| &group.key);
    keys.position(|key| matches!(key, GroupKey::Pool(name) if name == pool))
}

/// At most about `most` findings in their order: of each rule the first ones, as many of each as fit.
fn some_of_each(findings: &[Finding], most: usize) -> Vec<&Finding> {
    let mut seen: HashMap<&str, usize> = HashMap::new();
    // With its place among those of its rule, from 1.
    let ranked = findings.iter().map(|finding| {
        let n = seen.entry(&finding.rule).or_default();
        *n += 1;
        (*n, finding)
    });
    let ranked: Vec<(usize, &Finding)> = ranked.collect();
    let some = |of_each: usize| ranked.iter().filter(move |(n, _)| *n <= of_each);
    let fitting = (2..=most).take_while(|of_each| some(*of_each).count() <= most);
    let of_each = fitting.last().unwrap_or(1);
    some(of_each).map(|(_, finding)| *finding).collect()
}

#[cfg(test)]
mod tests;
