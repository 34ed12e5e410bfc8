//! Properties of every format over random profiles.

use crate::support;

use std::collections::BTreeMap;

use proptest::prelude::*;
use support::Maker;
use wcprof_profile::model::{
    Function, FunctionId, Profile, ProfileStack, ProfileStackId, Reason, Row, Slices, State,
};
use wcprof_profile::{Direction, GroupBy, Trees, View, function_groups};
use wcprof_report::{
    Answers, Headline, Overview, SvgOptions, TextOptions, TextTrees, folded, json, svg, text, uwpmp,
};
use wcprof_types::StackEnd;

const N_THREADS: usize = 4;

/// A profile of four threads with random functions, stacks and rows.
fn profile() -> impl Strategy<Value = Profile> {
    let functions = prop::collection::vec(".{0,12}", 1..6);
    let end = prop::sample::select(StackEnd::ALL.to_vec());
    let stacks = prop::collection::vec((prop::collection::vec(0u32..7, 0..12), end), 1..8);
    let state = prop::sample::select(State::ALL.to_vec());
    let row = (
        0..N_THREADS,
        state,
        prop::option::of(0u32..9),
        0u64..3_000_000,
        0u64..5,
    );
    let names = prop::collection::vec(".{0,15}", N_THREADS);
    (functions, stacks, prop::collection::vec(row, 0..40), names).prop_map(
        |(functions, stacks, rows, names)| {
            let (n_functions, n_stacks) = (functions.len() as u32, stacks.len() as u32);
            let mut maker = Maker::new();
            for (tid, name) in names.iter().enumerate() {
                maker.thread(tid as i32 + 1, name);
            }
            let mut profile = maker.profile();
            profile.functions = functions
                .into_iter()
                .map(|name| Function {
                    name,
                    module: String::new(),
                    resolved: true,
                    ..Function::default()
                })
                .collect();
            profile.stacks = stacks
                .into_iter()
                .map(|(frames, end)| ProfileStack {
                    frames: frames.iter().map(|f| FunctionId(f % n_functions)).collect(),
                    end,
                })
                .collect();
            profile.rows = rows
                .into_iter()
                .map(|(thread, state, stack, weight, n_samples)| Row {
                    thread,
                    state,
                    reason: Reason::Kernel,
                    stack: stack.map(|stack| ProfileStackId(stack % n_stacks)),
                    wait: None,
                    weight,
                    n_samples,
                    slices: Slices::default(),
                })
                .collect();
            profile
        },
    )
}

fn any_view() -> impl Strategy<Value = View> {
    let by = prop::sample::select(vec![
        GroupBy::Thread,
        GroupBy::Pool,
        GroupBy::Process,
        GroupBy::All,
    ]);
    (
        by,
        any::<bool>(),
        any::<bool>(),
        any::<bool>(),
        0.0..30.0_f64,
    )
        .prop_map(|(by, inverted, idle, state_frames, percent)| View {
            by,
            direction: if inverted {
                Direction::LeafFirst
            } else {
                Direction::RootFirst
            },
            idle,
            state_frames,
            // Half of the views prune nothing.
            min_percent: (percent - 15.0).max(0.0),
            ..View::default()
        })
}

fn shown(profile: &Profile, view: &View) -> u64 {
    profile
        .rows
        .iter()
        .filter(|r| view.shows(r.state))
        .map(|r| r.weight)
        .sum()
}

proptest! {
    /// Check that a tree's roots and its paths' ends both add up to what is shown, that a node
    /// holds its children, and that inverting keeps the sum.
    #[test]
    fn trees_add_up(profile in profile(), view in any_view()) {
        let trees = Trees::new(&profile, &view);
        let sum: u64 = trees.groups.iter().map(|g| g.weight).sum();
        prop_assert_eq!(sum, shown(&profile, &view));
        for group in &trees.groups {
            let roots: u64 = group.roots.iter().map(|&n| group.nodes[n].weight).sum();
            prop_assert_eq!(roots, group.weight);
            prop_assert_eq!(group.walk().count(), group.nodes.len());
            for (_, node, _) in group.walk() {
                let children: u64 = node.children.iter().map(|&c| group.nodes[c].weight).sum();
                prop_assert_eq!(children + node.self_weight, node.weight);
                prop_assert_eq!(node.states.iter().sum::<u64>(), node.weight);
            }
        }
    }

    /// Check that folded weights of each thread are its shown time, rounded once, pruned or not.
    #[test]
    fn folded_adds_up(profile in profile(), mut view in any_view()) {
        view.by = GroupBy::Thread;
        let mut out = Vec::new();
        folded(&profile, &Trees::new(&profile, &view), &mut out).unwrap();
        let out = String::from_utf8(out).unwrap();
        let mut sums: BTreeMap<usize, u64> = BTreeMap::new();
        let mut lines = Vec::new();
        for line in out.lines() {
            let (stack, weight) = line.rsplit_once(' ').unwrap();
            let group = stack.split(';').next().unwrap();
            let tid: usize = group.rsplit_once('/').unwrap().1.parse().unwrap();
            let weight: u64 = weight.parse().unwrap();
            prop_assert!(weight > 0);
            *sums.entry(tid - 1).or_default() += weight;
            lines.push(stack.to_owned());
        }
        let mut sorted = lines.clone();
        sorted.sort();
        sorted.dedup();
        prop_assert_eq!(sorted, lines);
        for thread in 0..N_THREADS {
            let of_thread = profile.rows.iter().filter(|r| r.thread == thread);
            let ns: u64 = of_thread.filter(|r| view.shows(r.state)).map(|r| r.weight).sum();
            prop_assert_eq!(sums.get(&thread).copied().unwrap_or(0), (ns + 500) / 1000);
        }
    }

    /// Check that no format fails or panics, whatever the rows, and that the text ones hold no
    /// control characters.
    #[test]
    fn never_panics(profile in profile(), view in any_view(), width in 0usize..100) {
        let options = TextOptions { width: Some(width), color: false, max_nodes: Some(width / 4), only_shown: false, full_names: width % 2 == 0 };
        let mut out = Vec::new();
        text(&profile, &TextTrees::new(&profile, &view), &options, &mut out).unwrap();
        let uwpmp_view = View { min_percent: 0.1, ..view.clone() };
        uwpmp(&profile, &uwpmp_view, Some(width), &mut out).unwrap();
        let overview = Overview { profile: &profile, answers: &Answers::default(), width: Some(width), color: false };
        out.extend(overview.text().bytes());
        out.extend(Headline::new(&profile).text().bytes());
        let out = String::from_utf8(out).unwrap();
        prop_assert!(!out.chars().any(|c| c.is_control() && c != '\n'));
        let mut document = Vec::new();
        json(&profile, &view, None, &mut document).unwrap();
        prop_assert!(serde_json::from_slice::<serde_json::Value>(&document).is_ok());
    }

    /// Check that a function's total counts recursion once and is at least its self weight.
    #[test]
    fn totals(profile in profile(), view in any_view()) {
        let sum = shown(&profile, &view);
        let all = View { by: GroupBy::All, ..view };
        let groups = function_groups(&profile, &all);
        let weights: Vec<_> = groups.iter().flat_map(|group| &group.functions).collect();
        prop_assert!(weights.iter().all(|w| w.self_weight <= w.total_weight && w.total_weight <= sum));
        prop_assert!(weights.iter().map(|w| w.self_weight).sum::<u64>() <= sum);
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(16))]

    /// Check that a flame graph is drawn of whatever folds to at least one line.
    #[test]
    fn draws(profile in profile(), view in any_view()) {
        let mut lines = Vec::new();
        folded(&profile, &Trees::new(&profile, &view), &mut lines).unwrap();
        let mut out = Vec::new();
        let drawn = svg(&profile, &view, &SvgOptions::default(), &mut out);
        prop_assert_eq!(drawn.is_ok(), !lines.is_empty());
    }
}
