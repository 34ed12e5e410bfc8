//! The profile as JSON: the headline's figures and the trees. `docs/json-schema.md` documents it.

use std::collections::{BTreeMap, HashMap};
use std::io::{self, Write};

use serde::Serialize;
use wcprof_findings::printable_json;
use wcprof_profile::model::{Profile, State};
use wcprof_profile::{Cores, Group, GroupBy, GroupKey, Label, Node, Relation, Trees, View};

use crate::group::group_name;
use crate::headline::Headline;

/// Version of the schema. It grows when a field changes its meaning or goes; new fields may appear
/// without.
pub const JSON_VERSION: u32 = 1;

/// Writes the profile as seen through `view`, with a newline at the end; with the cores that its
/// processes used, if given.
pub fn json(
    profile: &Profile,
    view: &View,
    cores: Option<&Cores>,
    out: &mut impl Write,
) -> io::Result<()> {
    let trees = Trees::new(profile, view);
    let document = Document {
        schema: "wcprof-report",
        version: JSON_VERSION,
        headline: headline(profile),
        cores,
        view: view_of(profile, view),
        groups: trees
            .groups
            .iter()
            .map(|g| group(profile, &trees, g))
            .collect(),
    };
    out.write_all(printable_json(&document)?.as_bytes())
}

#[derive(Serialize)]
struct Document<'a> {
    schema: &'static str,
    version: u32,
    headline: HeadlineOut,
    #[serde(skip_serializing_if = "Option::is_none")]
    cores: Option<&'a Cores>,
    view: ViewOut,
    groups: Vec<GroupOut>,
}

type States = BTreeMap<&'static str, u64>;

#[derive(Serialize)]
struct HeadlineOut {
    wcprof_version: String,
    host: String,
    kernel: String,
    started_unix_ns: u64,
    processes: Vec<String>,
    duration_ns: u64,
    n_threads: u64,
    n_samples: u64,
    engine: String,
    rate_hz: u32,
    observed_ns: u64,
    states_ns: States,
    share_percent: BTreeMap<&'static str, f64>,
    n_torn: u64,
    n_late: u64,
    n_lost: u64,
    n_truncated: u64,
    truncated: States,
    n_frames: u64,
    n_unresolved_frames: u64,
    own_cpu_ns: u64,
    complete: bool,
    end_reason: String,
    notes: Vec<String>,
}

#[derive(Serialize)]
struct ViewOut {
    by: &'static str,
    inverted: bool,
    idle: &'static str,
    state_frames: bool,
    files: bool,
    min_percent: f64,
    #[serde(skip_serializing_if = "Option::is_none")]
    window_ns: Option<(u64, u64)>,
    #[serde(skip_serializing_if = "Option::is_none")]
    states: Option<Vec<&'static str>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    focus: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    hide: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    callers_of: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    callees_of: Option<String>,
}

#[derive(Serialize)]
struct GroupOut {
    name: Option<String>,
    threads: Vec<ThreadOut>,
    observed_ns: u64,
    shown_ns: u64,
    n_samples: u64,
    states_ns: States,
    nodes: Vec<NodeOut>,
}

#[derive(Serialize)]
struct ThreadOut {
    pid: i32,
    tid: i32,
    comm: String,
    pool: String,
    n_ticks: u64,
    observed_ns: u64,
}

#[derive(Serialize)]
struct NodeOut {
    kind: &'static str,
    name: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    module: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    resolved: Option<bool>,
    parent: Option<usize>,
    depth: usize,
    weight_ns: u64,
    #[serde(skip_serializing_if = "Option::is_none")]
    low_ns: Option<u64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    high_ns: Option<u64>,
    self_ns: u64,
    n_samples: u64,
    states_ns: States,
}

fn headline(profile: &Profile) -> HeadlineOut {
    let h = Headline::new(profile);
    let waiting = State::ALL.into_iter().filter(|s| s.is_waiting());
    let mut share: BTreeMap<&'static str, f64> = [State::OnCpu, State::Runnable, State::Idle]
        .into_iter()
        .map(|s| (s.name(), h.share(s)))
        .collect();
    share.insert("blocked", waiting.map(|s| h.share(s)).sum());
    HeadlineOut {
        wcprof_version: profile.header.wcprof_version.clone(),
        host: profile.header.host.clone(),
        kernel: profile.header.kernel.clone(),
        started_unix_ns: profile.header.started_unix_ns,
        observed_ns: h.observed_ns(),
        states_ns: states(&h.states),
        share_percent: share,
        n_truncated: h.losses.n_truncated(),
        truncated: h
            .losses
            .truncated
            .iter()
            .map(|(e, n)| (e.reason(), *n))
            .collect(),
        n_torn: h.losses.n_torn,
        n_late: h.losses.n_late,
        n_lost: h.losses.n_lost,
        n_frames: h.losses.n_frames,
        n_unresolved_frames: h.losses.n_unresolved,
        processes: h.processes,
        duration_ns: h.duration_ns,
        n_threads: h.n_threads,
        n_samples: h.n_samples,
        engine: h.engine,
        rate_hz: h.rate_hz,
        own_cpu_ns: h.own_cpu_ns,
        complete: profile.stats.complete,
        end_reason: profile.stats.end_reason.clone(),
        notes: h.notes,
    }
}

fn view_of(profile: &Profile, view: &View) -> ViewOut {
    let around = |relation| {
        let around = view.around.as_ref().filter(|a| a.relation == relation);
        around.map(|a| a.function.0.clone())
    };
    ViewOut {
        by: match view.by {
            GroupBy::Thread => "thread",
            GroupBy::Pool => "pool",
            GroupBy::Process => "process",
            GroupBy::Cgroup => "cgroup",
            GroupBy::Host => "host",
            GroupBy::All => "all",
        },
        inverted: view.is_leaf_first(),
        idle: if view.idle { "show" } else { "hide" },
        state_frames: view.state_frames,
        files: view.files,
        min_percent: view.min_percent,
        window_ns: Headline::new(profile).window_ns,
        states: view
            .states
            .as_ref()
            .map(|list| list.iter().map(|s| s.name()).collect()),
        focus: view.focus.as_ref().map(|f| f.pattern().to_owned()),
        hide: view.hide.as_ref().map(|f| f.pattern().to_owned()),
        callers_of: around(Relation::CallersOf),
        callees_of: around(Relation::CalleesOf),
    }
}

fn group(profile: &Profile, trees: &Trees, group: &Group) -> GroupOut {
    let threads = group.threads.iter().filter_map(|&t| profile.threads.get(t));
    // Nodes are numbered in the order in which they are written.
    let mut number = HashMap::new();
    let mut nodes = Vec::with_capacity(group.nodes.len());
    for (at, node, depth) in group.walk() {
        number.insert(at, nodes.len());
        let parent = node.parent.and_then(|p| number.get(&p).copied());
        nodes.push(node_of(profile, trees, node, parent, depth));
    }
    GroupOut {
        name: match group.key {
            GroupKey::All => None,
            _ => group_name(profile, group),
        },
        threads: threads
            .map(|t| ThreadOut {
                pid: t.pid.0,
                tid: t.tid.0,
                comm: t.comm.clone(),
                pool: profile
                    .pools
                    .get(t.pool)
                    .map_or_else(String::new, |p| p.name.clone()),
                n_ticks: t.n_ticks,
                observed_ns: t.observed_ns,
            })
            .collect(),
        observed_ns: group.observed(),
        shown_ns: group.weight,
        n_samples: group.n_samples,
        states_ns: states(&group.states),
        nodes,
    }
}

fn node_of(
    profile: &Profile,
    trees: &Trees,
    node: &Node,
    parent: Option<usize>,
    depth: usize,
) -> NodeOut {
    let function = match node.label {
        Label::Function(id) => profile.functions.get(id.0 as usize),
        _ => None,
    };
    NodeOut {
        kind: match node.label {
            Label::Function(_) => "function",
            Label::State(_) => "state",
            Label::File(_) => "file",
            Label::End(_) => "end",
            Label::NotSampled(_) => "not-sampled",
            Label::Hidden => "hidden",
            Label::Below => "below",
        },
        name: node.label.text(profile, trees.min_percent).into_owned(),
        module: function.map(|f| f.module.clone()),
        resolved: function.map(|f| f.resolved),
        parent,
        depth,
        weight_ns: node.weight,
        low_ns: node.interval.map(|i| i.low),
        high_ns: node.interval.map(|i| i.high),
        self_ns: node.self_weight,
        n_samples: node.n_samples,
        states_ns: states(&node.states),
    }
}

fn states(weights: &[u64; State::ALL.len()]) -> States {
    State::ALL
        .into_iter()
        .map(|s| (s.name(), weights[s as usize]))
        .filter(|(_, w)| *w > 0)
        .collect()
}
