//! Every export of random traces: what it holds is what the profile holds.

use std::collections::BTreeMap;

use proptest::prelude::*;
use wcprof_profile::{FunctionFilter, GroupBy, View};
use wcprof_trace::model::Span;
use wcprof_types::{StackEnd, ThreadState, TimeNs};

use crate::exports::{Exports, ungrouped};
use crate::read::{firefox_folded, speedscope_folded};
use crate::support::{MS, Maker, kernel};

/// A trace with four threads, whose spans follow each other.
pub fn trace() -> impl Strategy<Value = Maker> {
    const STACKS: &[&[&str]] = &[
        &["main", "a @ a.cc:1", "b"],
        &["main", "a @ a.cc:2", "c @ c.h:9+a @ a.cc:3"],
        &["main", "b+a @ a.cc:1", "libc:d+c @ c.h:9"],
        &["main", "b"],
        &["start", "libc:pthread_mutex_lock"],
    ];
    let state = prop::sample::select(vec![
        ThreadState::OnCpu,
        ThreadState::Guest,
        ThreadState::Runnable,
        ThreadState::Blocked,
        ThreadState::StealIrq,
        ThreadState::Unknown,
    ]);
    let stack = prop::option::of((0..STACKS.len(), any::<bool>()));
    let span = (0..4_u32, state, stack, 0..5 * MS, 0..3 * MS);
    prop::collection::vec(span, 1..40).prop_map(|spans| {
        let mut maker = Maker::new();
        for tid in 0..4 {
            maker.thread(101 + tid, "worker");
        }
        let stacks: Vec<_> = STACKS
            .iter()
            .flat_map(|s| [(*s, StackEnd::Root), (*s, StackEnd::NoUnwindInfo)])
            .map(|(s, end)| maker.stack(s, end))
            .collect();
        let wait = maker.wait(kernel("io_schedule"));
        let mut now = [0; 4];
        for (thread, state, stack, weight, rest) in spans {
            let start = now[thread as usize];
            now[thread as usize] = start + weight + rest;
            maker.spans.push(Span {
                thread: wcprof_trace::model::ThreadId(thread),
                start: TimeNs(start),
                end: TimeNs(start + weight + rest),
                weight,
                n_samples: 1,
                state,
                wait: (state == ThreadState::Blocked).then_some(wait),
                stack: stack.map(|(at, cut)| stacks[2 * at + usize::from(cut)]),
            });
        }
        maker
    })
}

fn view() -> impl Strategy<Value = View> {
    let by = prop::sample::select(vec![
        GroupBy::Thread,
        GroupBy::Pool,
        GroupBy::Process,
        GroupBy::Cgroup,
        GroupBy::All,
    ]);
    let hide = prop::option::of(prop::sample::select(vec!["^a$", "main", "."]));
    (by, any::<bool>(), any::<bool>(), 0.0..30.0_f64, hide).prop_map(
        |(by, idle, state_frames, percent, hide)| View {
            by,
            idle,
            state_frames,
            min_percent: (percent - 15.0).max(0.0),
            hide: hide.map(|h| FunctionFilter::new(h).expect("a regex")),
            ..View::default()
        },
    )
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::default() })]

    /// Check that every format holds the stacks of the tree, each with the tree's time.
    #[test]
    fn all_agree(maker in trace(), view in view(), window in prop::option::of(0..20 * MS)) {
        let read = Exports::of(&maker, window.map(|from| (from, from + 25 * MS)));
        let shown = read.shown(&view);
        prop_assert_eq!(&read.pprof(&view).folded(), &shown);
        let mut csv = BTreeMap::new();
        for row in read.csv(&view) {
            let weight: u64 = row["weight_ns"].parse().expect("a number");
            if weight > 0 {
                *csv.entry(row["stack"].clone()).or_default() += weight;
            }
        }
        prop_assert_eq!(&csv, &shown);
        let firefox = read.firefox(&view, "").map(|document| firefox_folded(&document));
        let firefox = firefox.unwrap_or_default();
        prop_assert_eq!(firefox.keys().collect::<Vec<_>>(), shown.keys().collect::<Vec<_>>());
        for (stack, ns) in &firefox {
            // Milliseconds with a fraction.
            prop_assert!((ns - shown[stack] as f64).abs() < 1.0, "{}: {}", stack, ns);
        }
        let speedscope = read.speedscope(&view, "");
        let speedscope = speedscope.map(|f| speedscope_folded(&f, view.by != GroupBy::All));
        prop_assert_eq!(&speedscope.unwrap_or_default(), &shown);
    }

    /// Check that no samples of a track overlap.
    #[test]
    fn tracks_are_in_order(maker in trace()) {
        let view = View { idle: true, ..ungrouped() };
        let document = Exports::of(&maker, None).firefox(&view, "");
        for thread in document.iter().flat_map(|d| d["threads"].as_array().unwrap()) {
            let numbers = |column: &str| -> Vec<f64> {
                let numbers = thread["samples"][column].as_array().unwrap().iter();
                numbers.map(|n| n.as_f64().unwrap()).collect()
            };
            let (times, weights) = (numbers("time"), numbers("weight"));
            let ends = times.iter().zip(&weights).map(|(t, w)| t + w);
            for (end, next) in ends.zip(times.iter().skip(1)) {
                prop_assert!(end <= next + 1e-6);
            }
        }
    }
}
