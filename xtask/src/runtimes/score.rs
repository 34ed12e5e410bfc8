//! Reports of a recording, against what is known of its threads.

use std::collections::{BTreeMap, BTreeSet};

use serde_json::Value;

use crate::process::{list, number, text};

/// States that are no waits.
const NO_WAITS: [&str; 6] = [
    "on-cpu",
    "runnable",
    "steal/irq",
    "guest",
    "vm-exit",
    "stopped",
];
/// Least share of its time that a thread has one stack, for that to be the one that a witness finds later.
const STILL: f64 = 0.6;

/// What threads wait for, by whoever knows it.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) struct Truth {
    /// Name, begin of a name before `*`, or id of the threads.
    key: String,
    /// Its state; several with `|` between for a thread whose waits are of these.
    state: String,
}

impl Truth {
    pub(super) fn new(key: &str, state: &str) -> Self {
        let (key, state) = (key.to_owned(), state.to_owned());
        Self { key, state }
    }

    /// A line `thread KEY STATE`.
    pub(super) fn parse(line: &str) -> Option<Self> {
        let (key, state) = line.strip_prefix("thread ")?.rsplit_once(' ')?;
        Some(Self::new(key, state))
    }

    fn is_of(&self, thread: &Value) -> bool {
        let comm = text(&thread["comm"]);
        match self.key.strip_suffix('*') {
            Some(begin) => comm.starts_with(begin),
            None => comm == self.key || self.key.parse().is_ok_and(|tid: u64| thread["tid"] == tid),
        }
    }
}

/// Parts of a whole.
#[derive(Copy, Clone, Default, Debug)]
struct Share {
    part: f64,
    all: f64,
}

impl Share {
    fn add(&mut self, part: f64, all: f64) {
        self.part += part;
        self.all += all;
    }

    /// As a percentage, or that there is nothing.
    fn text(self) -> String {
        match self.all > 0.0 {
            true => format!("{:.1} %", 100.0 * self.part / self.all),
            false => "-".to_owned(),
        }
    }
}

/// What the recording of one program is worth.
#[derive(Default, Debug)]
pub(super) struct Score {
    n_threads: usize,
    /// Time whose stack reaches its root, of that with a stack.
    whole: Share,
    /// Depths of the threads that mostly have one stack: by wcprof and by the witness.
    depths: Vec<(usize, usize)>,
    /// Time, idle left out, whose innermost function has a name.
    named: Share,
    /// Names of those threads that the witness has, too, of all that wcprof has.
    same: Share,
    /// Names that only wcprof has, where the witness has as many frames or more, all with names.
    other: BTreeSet<String>,
    /// Time of a function `alpha`, of that and `beta`.
    alpha: Share,
    /// Waiting time of threads whose state is known: right, and unknown, of all.
    right: Share,
    unknown: Share,
    /// Waiting time by true state and a wrong one, ns.
    wrong: BTreeMap<(String, String), f64>,
}

impl Score {
    /// `all` and `busy` are reports by thread with and without idle time.
    pub(super) fn new(
        all: &Value,
        busy: &Value,
        truths: &[Truth],
        stacks: &BTreeMap<u64, Vec<String>>,
    ) -> Self {
        let mut own = Self::default();
        for group in list(&all["groups"]) {
            own.n_threads += 1;
            let thread = &group["threads"][0];
            own.add_roots(group);
            // What is said last was looked at last.
            if let Some(truth) = truths.iter().rev().find(|truth| truth.is_of(thread)) {
                own.add_states(group, &truth.state);
            }
            let stack = thread["tid"].as_u64().and_then(|tid| stacks.get(&tid));
            if let Some(stack) = stack {
                own.add_stack(group, stack);
            }
        }
        for node in list(&busy["groups"]).flat_map(|group| list(&group["nodes"])) {
            own.add_names(node);
        }
        own
    }

    fn add_roots(&mut self, group: &Value) {
        let roots = list(&group["nodes"]).filter(|node| node["parent"].is_null());
        for root in roots.filter(|node| text(&node["kind"]) != "not-sampled") {
            let weight = number(&root["weight_ns"]);
            let is_whole = text(&root["kind"]) == "function";
            self.whole.add(if is_whole { weight } else { 0.0 }, weight);
        }
    }

    fn add_states(&mut self, group: &Value, truth: &str) {
        let states = group["states_ns"].as_object().into_iter().flatten();
        for (state, ns) in states.filter(|(state, _)| !NO_WAITS.contains(&state.as_str())) {
            let ns = number(ns);
            let is_unknown = matches!(state.as_str(), "place-unknown" | "unknown");
            let part = |is: bool| if is { ns } else { 0.0 };
            let is_right = truth.split('|').any(|one| one == state);
            self.right.add(part(is_right), ns);
            self.unknown.add(part(is_unknown && !is_right), ns);
            if !is_right && !is_unknown {
                let key = (truth.to_owned(), state.clone());
                *self.wrong.entry(key).or_default() += ns;
            }
        }
    }

    /// Compares the stack that a thread has for most of its time, if there is one.
    fn add_stack(&mut self, group: &Value, witness: &[String]) {
        let nodes: Vec<&Value> = list(&group["nodes"]).collect();
        let mut own: Vec<&Value> = Vec::new();
        let mut parent = None;
        loop {
            let all = nodes.iter().enumerate();
            let children = all.filter(|(_, node)| node["parent"].as_u64() == parent);
            let heaviest = children.max_by_key(|(_, node)| node["weight_ns"].as_u64());
            let self_ns = own.last().map_or(0.0, |node| number(&node["self_ns"]));
            match heaviest.filter(|(_, node)| number(&node["weight_ns"]) > self_ns) {
                Some((at, node)) => {
                    own.push(*node);
                    parent = Some(at as u64);
                }
                None => break,
            }
        }
        let self_ns = own.last().map_or(0.0, |node| number(&node["self_ns"]));
        if self_ns < STILL * number(&group["observed_ns"]) {
            return;
        }
        if own.iter().any(|node| text(&node["kind"]) != "function") {
            return;
        }
        self.depths.push((own.len(), witness.len()));
        let known: BTreeSet<&str> = witness.iter().map(|name| plain(name)).collect();
        let is_complete = witness.len() >= own.len() && !known.contains("");
        for node in own.iter().filter(|node| node["resolved"] == true) {
            let name = plain(text(&node["name"]));
            let is_same = known.contains(name);
            self.same.add(f64::from(u8::from(is_same)), 1.0);
            if !is_same && is_complete {
                self.other.insert(name.to_owned());
            }
        }
    }

    fn add_names(&mut self, node: &Value) {
        if text(&node["kind"]) != "function" {
            return;
        }
        let is_named = node["resolved"] == true;
        let (own, name) = (number(&node["self_ns"]), plain(text(&node["name"])));
        self.named.add(if is_named { own } else { 0.0 }, own);
        // As runtimes decorate them: `py::alpha:FILE`, `LazyCompile:*alpha FILE`, `Ltest;::alpha`.
        let total = number(&node["weight_ns"]);
        let mut words = name.split(|c: char| !c.is_alphanumeric());
        match words.find(|word| ["alpha", "beta"].contains(word)) {
            Some("alpha") => self.alpha.add(total, total),
            Some(_) => self.alpha.add(0.0, total),
            None => {}
        }
    }

    pub(super) fn threads(&self) -> String {
        self.n_threads.to_string()
    }

    pub(super) fn depth(&self) -> String {
        let mut depths = self.depths.clone();
        let mut median = |of: fn(&(usize, usize)) -> usize| {
            depths.sort_unstable_by_key(of);
            depths.get(depths.len() / 2).map_or(0, of)
        };
        let (own, witness) = (median(|d| d.0), median(|d| d.1));
        let whole = self.whole.text();
        match self.depths.is_empty() {
            true => whole,
            false => format!("{whole}; {own} of {witness}"),
        }
    }

    pub(super) fn names(&self) -> String {
        let mut names = vec![self.named.text()];
        if self.same.all > 0.0 {
            names.push(format!("the same {}/{}", self.same.part, self.same.all));
        }
        if self.alpha.all > 0.0 {
            names.push(format!("alpha {} of 70", self.alpha.text()));
        }
        names.join("; ")
    }

    pub(super) fn states(&self) -> String {
        let wrong = self.wrong.values().fold(0.0, |sum, ns| sum + ns);
        let wrong = Share {
            part: wrong,
            all: self.right.all,
        };
        match self.right.all > 0.0 {
            true => [self.right, self.unknown, wrong]
                .map(Share::text)
                .join(" / "),
            false => "-".to_owned(),
        }
    }

    /// What is to be looked at: wrong states, and names that the witness does not have.
    pub(super) fn details(&self) -> Vec<String> {
        let wrong = self.wrong.iter().map(|((truth, state), ns)| {
            let share = Share {
                part: *ns,
                all: self.right.all,
            };
            format!(
                "{truth} is shown as {state}: {} of the waiting time",
                share.text()
            )
        });
        let other = self
            .other
            .iter()
            .map(|name| format!("not in the witness's stack: {name}"));
        wrong.chain(other).collect()
    }
}

/// The last part of a function's name, without what sets aliases and copies of one function apart.
fn plain(name: &str) -> &str {
    let name = name.split(['(', '@']).next().unwrap_or_default().trim();
    let name = name.split(".constprop").next().unwrap_or_default();
    // The last part in brackets is no argument list: `<T as Trait>::call`.
    let name = name
        .rsplit("::")
        .find(|part| !is_hash(part))
        .unwrap_or(name);
    let name = name.split('<').next().unwrap_or_default();
    let begins = ["_", "GI_", "libc_", "IO_", "new_", "r#"];
    let mut plain = name;
    while let Some(rest) = begins.iter().find_map(|begin| plain.strip_prefix(begin)) {
        plain = rest;
    }
    let ends = ["_impl", "64"];
    let end = ends.iter().find_map(|end| plain.strip_suffix(end));
    end.unwrap_or(plain)
}

/// What Rust adds to a name.
fn is_hash(part: &str) -> bool {
    part.len() == 17 && part.starts_with('h')
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn function(name: &str, parent: Option<u64>, own: u64) -> Value {
        json!({"kind": "function", "name": name, "resolved": !name.contains("+0x"), "parent": parent,
            "weight_ns": 100, "self_ns": own})
    }

    /// Check each figure of a thread that waits and one that works.
    #[test]
    fn scores() {
        let waits = json!({"threads": [{"tid": 7, "comm": "wk"}], "observed_ns": 100,
            "states_ns": {"idle": 60, "place-unknown": 30, "blocked": 10, "on-cpu": 5},
            "nodes": [function("_start", None, 0), function("sem_wait", Some(0), 100)]});
        let works = json!({"threads": [{"tid": 8, "comm": "js"}], "observed_ns": 100, "states_ns": {},
            "nodes": [{"kind": "end", "parent": null, "weight_ns": 100}, function("js::alpha:7", Some(0), 60),
                function("in_it", Some(1), 20), function("m+0x7", Some(0), 20)]});
        let all = json!({"groups": [waits, works]});
        let busy = json!({"groups": [works]});
        let witness =
            BTreeMap::from([(7, ["sem_wait@2", "x", "_start"].map(str::to_owned).to_vec())]);
        let score = Score::new(&all, &busy, &[Truth::new("w*", "idle")], &witness);
        assert_eq!(score.depth(), "50.0 %; 2 of 3");
        assert_eq!(score.names(), "80.0 %; the same 2/2; alpha 100.0 % of 70");
        assert_eq!(score.states(), "60.0 % / 30.0 % / 10.0 %");
        assert_eq!(
            score.details(),
            ["idle is shown as blocked: 10.0 % of the waiting time"]
        );
    }

    /// Check that aliases of a function are one, and lines that are no truth are left out.
    #[test]
    fn names_and_truths() {
        assert_eq!(plain("__GI___nanosleep"), plain("nanosleep"));
        assert_eq!(
            plain("__libc_start_main_impl"),
            plain("__libc_start_main@@GLIBC_2.34")
        );
        assert_eq!(
            Truth::parse("thread a b lock"),
            Some(Truth::new("a b", "lock"))
        );
        assert_eq!(Truth::parse("ready"), None);
    }
}
