//! Profiles so large that two threads make their trees.

use crate::support;

use support::random::Random;
use support::{MS, Maker};
use wcprof_profile::model::Profile;
use wcprof_profile::{
    Direction, Group, GroupBy, GroupKey, Interval, Node, ThreadFilter, Trees, View, globs,
    keep_threads,
};

const N_THREADS: usize = 400;
const POOLS: [&str; 4] = ["a", "b", "c", "d"];

/// Threads of several pools, each one second of 20 stacks at random.
fn many_rows() -> Profile {
    let mut random = Random::new(1);
    let mut m = Maker::new();
    for i in 0..N_THREADS {
        // Pools of unlike sizes: 3, 2, 2 and 2 of 9.
        let pool = POOLS[i % 9 % 4];
        let thread = m.thread(1000 + i as i32, &format!("pool-{pool}-{i}"));
        for at in 0..20 {
            let names: Vec<_> = (0..1 + (random.unit() * 6.0) as usize)
                .map(|depth| format!("f{depth}_{}", (random.unit() * 4.0) as usize))
                .collect();
            let names: Vec<_> = names.iter().map(String::as_str).collect();
            m.on_cpu(thread, &names, 50 * MS);
            m.move_last(at * 50 * MS, (at + 1) * 50 * MS);
        }
    }
    m.profile()
}

/// What a group shows, depth first: depth, name, time, time of its own, samples, interval.
type Shown = Vec<(usize, String, u64, u64, u64, Option<Interval>)>;

fn shown(profile: &Profile, group: &Group, view: &View) -> Shown {
    let node = |(_, node, depth): (usize, &Node, usize)| {
        let name = node.label.text(profile, view.min_percent).into_owned();
        (
            depth,
            name,
            node.weight,
            node.self_weight,
            node.n_samples,
            node.interval,
        )
    };
    group.walk().map(node).collect()
}

/// Check that each group of a large profile has the tree that it has in a profile of its threads alone,
/// which is too small for two threads, and that groups are in order.
#[track_caller]
fn assert_like_alone(view: &View, key_name: impl Fn(&Profile, &Group) -> String, n_groups: usize) {
    let whole = many_rows();
    let trees = Trees::new(&whole, view);
    assert_eq!(trees.groups.len(), n_groups);
    assert!(trees.groups.is_sorted_by(|a, b| a.weight >= b.weight));
    // By thread a few of them tell: of the first half, of the second, and around the middle.
    let chosen =
        |at: usize| n_groups < 50 || at.is_multiple_of(23) || at.abs_diff(n_groups / 2) < 3;
    for (at, group) in trees
        .groups
        .iter()
        .enumerate()
        .filter(|(at, _)| chosen(*at))
    {
        let name = key_name(&whole, group);
        let mut alone = whole.clone();
        let filter = ThreadFilter {
            threads: globs(&[&name]).expect("a glob"),
            ..ThreadFilter::default()
        };
        keep_threads(&mut alone, &filter);
        assert!(
            alone.rows.len() < 5_000,
            "{name}: {} rows",
            alone.rows.len()
        );
        let of_alone = Trees::new(&alone, view);
        assert_eq!(of_alone.groups.len(), 1, "{at}: {name}");
        let expected = shown(&alone, &of_alone.groups[0], view);
        assert!(
            expected.iter().any(|n| n.5.is_some()),
            "{name}: no interval"
        );
        assert_eq!(shown(&whole, group, view), expected, "{at}: {name}");
    }
}

#[test]
fn by_thread() {
    assert!(many_rows().rows.len() > 5_000);
    for direction in [Direction::RootFirst, Direction::LeafFirst] {
        let view = View {
            by: GroupBy::Thread,
            direction,
            min_percent: 0.0,
            ..View::default()
        };
        let name = |profile: &Profile, group: &Group| match group.key {
            GroupKey::Thread(thread) => profile.threads[thread].comm.clone(),
            _ => unreachable!("grouped by thread"),
        };
        assert_like_alone(&view, name, N_THREADS);
    }
}

#[test]
fn by_pool() {
    for min_percent in [0.0, 2.0] {
        let view = View {
            by: GroupBy::Pool,
            min_percent,
            ..View::default()
        };
        let name = |_: &Profile, group: &Group| match &group.key {
            GroupKey::Pool(name) => name.replace('N', "*"),
            _ => unreachable!("grouped by pool"),
        };
        assert_like_alone(&view, name, POOLS.len());
    }
}
