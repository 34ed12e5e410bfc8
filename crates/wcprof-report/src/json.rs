//! The profile as JSON: the headline's figures and the trees. `docs/json-schema.md` documents it.

use std::collections::BTreeMap;
use std::io::{self, Write};

use serde::Serialize;
use serde_json::{Value, json};
use wcprof_profile::model::{Profile, ProfileProcess, State};
use wcprof_profile::{Cores, Group, Label, Relation, Trees, View, vm_exits};
use wcprof_text::printable_json;

use crate::figures::at_a_time;
use crate::group::group_name;
use crate::headline::Headline;
use crate::stopped::Stopped;

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
    let groups = trees.groups.iter().map(|g| group(profile, &trees, g));
    let document = Document {
        schema: "wcprof-report",
        version: JSON_VERSION,
        headline: headline(profile),
        cores,
        counters: counters(profile),
        view: view_fields(profile, view),
        groups: groups.collect(),
    };
    out.write_all(printable_json(&document)?.as_bytes())
}

#[derive(Serialize)]
struct Document<'a> {
    schema: &'static str,
    version: u32,
    headline: Value,
    #[serde(skip_serializing_if = "Option::is_none")]
    cores: Option<&'a Cores>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    counters: Vec<Value>,
    view: Value,
    groups: Vec<GroupOut>,
}

type States = BTreeMap<&'static str, u64>;

#[derive(Serialize)]
struct GroupOut {
    #[serde(flatten)]
    about: Value,
    nodes: Vec<NodeOut>,
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

/// What processes counted of their own work: all counters that the recording keeps, BlueStore's latencies, too.
fn counters(profile: &Profile) -> Vec<Value> {
    let counting = profile.processes.iter();
    let counting = counting.filter(|process| !process.counters.grown.is_empty());
    let of = |process: &ProfileProcess| {
        let grown = process.counters.grown.iter().map(|(name, value)| {
            let mean_us = match value.count {
                0 => None,
                _ if value.time_ns == 0 => None,
                n => Some(value.time_ns as f64 / n as f64 / 1e3),
            };
            (name, json!({"n": value.count, "mean_us": mean_us}))
        });
        json!({
            "process": process.title,
            "pid": process.pid,
            "host": process.host,
            "covered_ns": process.counters.covered_ns,
            "counters": grown.collect::<BTreeMap<_, _>>(),
        })
    };
    counting.map(of).collect()
}

fn headline(profile: &Profile) -> Value {
    let h = Headline::new(profile);
    let threads_at_a_time: BTreeMap<&str, f64> = (states(&h.states).into_iter())
        .map(|(state, ns)| (state, at_a_time(profile, ns)))
        .collect();
    let (header, stats, losses) = (&profile.header, &profile.stats, &h.losses);
    let truncated = losses.truncated.iter();
    let truncated: States = truncated.map(|(end, n)| (end.reason(), *n)).collect();
    let mut value = json!({
        "wcprof_version": header.wcprof_version,
        "host": header.host,
        "kernel": header.kernel,
        "started_unix_ns": header.started_unix_ns,
        "processes": h.processes,
        "duration_ns": profile.whole_ns(),
        "n_threads": h.n_threads,
        "n_samples": h.n_samples,
        "engine": header.engine,
        "rate_hz": header.rate_hz,
        "observed_ns": h.observed_ns(),
        "states_ns": states(&h.states),
        "threads_at_a_time": threads_at_a_time,
        "stopped": h.stopped.iter().map(Stopped::json).collect::<Vec<_>>(),
        "n_torn": losses.n_torn,
        "n_late": losses.n_late,
        "n_lost": losses.n_lost,
        "n_stacks": losses.n_stacks,
        "n_truncated": losses.n_truncated(),
        "truncated": truncated,
        "n_frames": losses.n_frames,
        "n_unresolved_frames": losses.n_unresolved,
        "own_cpu_ns": stats.own_cpu_ns,
        "other_processes": h.others.as_ref().map(|others| json!({
            "n_read": others.n_read,
            "n_unread": others.n_unread,
            "are_hidden": others.are_hidden,
        })),
        "vm_exits": vm_exits(profile).map(|exits| json!({
            "per_second": exits.per_second,
            "reasons": exits.reasons.into_iter().collect::<BTreeMap<_, _>>(),
            "polling_cores": exits.polling,
        })),
        "complete": stats.complete,
        "end_reason": stats.end_reason,
        "notes": header.notes,
    });
    if header.n_snapshots > 0 {
        value["n_snapshots"] = header.n_snapshots.into();
    }
    value
}

fn view_fields(profile: &Profile, view: &View) -> Value {
    let around = |relation| {
        let around = view.around.as_ref().filter(|a| a.relation == relation);
        around.map(|a| &a.function.0)
    };
    let state_names = |list: &Vec<State>| list.iter().map(|s| s.name()).collect::<Vec<_>>();
    let mut fields = json!({
        "by": view.by,
        "inverted": view.is_leaf_first(),
        "idle": if view.idle { "show" } else { "hide" },
        "state_frames": view.state_frames,
        "files": view.files,
        "min_percent": view.min_percent,
        "window_ns": profile.time.window_ns(),
        "states": view.states.as_ref().map(state_names),
        "focus": view.focus.as_ref().map(|f| f.pattern()),
        "hide": view.hide.as_ref().map(|f| f.pattern()),
        "callers_of": around(Relation::CallersOf),
        "callees_of": around(Relation::CalleesOf),
    });
    if let Some(fields) = fields.as_object_mut() {
        fields.retain(|_, value| !value.is_null());
    }
    fields
}

fn group(profile: &Profile, trees: &Trees, group: &Group) -> GroupOut {
    // Nodes are numbered in the order in which they are written.
    let mut number = vec![0; group.nodes.len()];
    let mut nodes = Vec::with_capacity(group.nodes.len());
    for (at, node, depth) in group.walk() {
        number[at] = nodes.len();
        let function = node.label.function(profile);
        nodes.push(NodeOut {
            kind: kind(node.label),
            name: node.label.text(profile, trees.min_percent).into_owned(),
            module: function.map(|f| f.module.clone()),
            resolved: function.map(|f| f.resolved),
            parent: node.parent.map(|parent| number[parent]),
            depth,
            weight_ns: node.weight,
            low_ns: node.interval.map(|i| i.low),
            high_ns: node.interval.map(|i| i.high),
            self_ns: node.self_weight,
            n_samples: node.n_samples,
            states_ns: states(&node.states),
        });
    }
    let threads = group.threads.iter().map(|&t| {
        let thread = &profile.threads[t];
        json!({
            "pid": thread.pid.0,
            "tid": thread.tid.0,
            "comm": thread.comm,
            "pool": profile.pools[thread.pool].name,
            "n_ticks": thread.n_ticks,
            "observed_ns": thread.observed_ns,
        })
    });
    let about = json!({
        "name": group_name(profile, group),
        "threads": threads.collect::<Vec<_>>(),
        "observed_ns": group.observed(),
        "shown_ns": group.weight,
        "n_samples": group.n_samples,
        "states_ns": states(&group.states),
    });
    GroupOut { about, nodes }
}

fn kind(label: Label) -> &'static str {
    match label {
        Label::Function(_) => "function",
        Label::State(_) => "state",
        Label::File(_) => "file",
        Label::End(_) => "end",
        Label::NotSampled(_) => "not-sampled",
        Label::Hidden => "hidden",
        Label::Below => "below",
    }
}

fn states(weights: &[u64; State::ALL.len()]) -> States {
    let states = State::ALL.into_iter().zip(*weights);
    let states = states.filter(|(_, weight)| *weight > 0);
    states
        .map(|(state, weight)| (state.name(), weight))
        .collect()
}
