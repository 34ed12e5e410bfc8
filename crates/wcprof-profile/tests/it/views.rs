//! Windows, filters, groups, and trees around one function.

use crate::support;

use std::sync::LazyLock;

use proptest::prelude::*;
use support::{MS, Maker, syscall, syscall_op};
use wcprof_profile::model::{Profile, State};
use wcprof_profile::{
    Around, Direction, FunctionFilter, FunctionName, Group, GroupBy, GroupKey, ProfileBuilder,
    Relation, Rules, ThreadFilter, Trees, View, function_groups, globs, keep_threads,
};
use wcprof_trace::model::Span;
use wcprof_types::{Pid, TimeNs};

fn view() -> View {
    View {
        by: GroupBy::All,
        idle: true,
        ..View::default()
    }
}

/// The nodes of the only tree, depth first: depth, name, weight.
fn nodes(profile: &Profile, view: &View) -> Vec<(usize, String, u64)> {
    let trees = Trees::new(profile, view);
    let group = trees.groups.iter().find(|g| g.weight > 0);
    group.map_or_else(Vec::new, |group| {
        group
            .walk()
            .map(|(_, node, depth)| {
                let name = node.label.text(profile, view.min_percent).into_owned();
                (depth, name, node.weight)
            })
            .collect()
    })
}

fn window(m: &Maker, from: u64, to: u64) -> Profile {
    static RULES: LazyLock<Rules> = LazyLock::new(|| Rules::builtin().unwrap());
    let mut builder = ProfileBuilder::new().with_window(TimeNs(from), TimeNs(to));
    for span in &m.spans {
        builder.add_span(span);
    }
    builder.finish(&m.tables, None, &RULES)
}

/// Check that a window takes its share of what straddles its ends, that times, ticks and lengths
/// are the window's, and that what lies outside has no group.
#[test]
fn windows() {
    let mut m = Maker::new();
    let (a, b) = (m.thread(1, "a"), m.thread(2, "b"));
    m.on_cpu(a, &["main"], 600 * MS);
    m.on_cpu(b, &["main"], 200 * MS);
    m.spans[0].n_samples = 60;
    let profile = window(&m, 300 * MS, 500 * MS);
    let rows: Vec<_> = profile
        .rows
        .iter()
        .map(|r| (r.weight, r.n_samples))
        .collect();
    assert_eq!(rows, [(200 * MS, 20)]);
    assert_eq!(profile.duration_ns(), 200 * MS);
    assert_eq!(profile.threads[0].observed_ns, 200 * MS);
    assert_eq!(profile.threads[0].n_ticks, 20);
    assert_eq!(Trees::new(&profile, &View::default()).groups.len(), 1);
    assert_eq!(window(&m, 2000 * MS, 3000 * MS).duration_ns(), 0);
    // Open at the end: as far as the recording goes.
    assert_eq!(window(&m, 300 * MS, u64::MAX).duration_ns(), 700 * MS);
}

fn spans() -> impl Strategy<Value = Vec<(u64, u64, u64, u32)>> {
    prop::collection::vec((0..1000_u64, 0..400_u64, 0..500_u64, 0..9_u32), 1..30)
}

proptest! {
    /// Check that windows that follow each other add up to the whole, to the nanosecond and the
    /// sample, and that a row's slices add up to its weight.
    #[test]
    fn windows_partition(spans in spans(), mut cuts in prop::collection::vec(0..1500_u64, 0..5)) {
        let mut m = Maker::new();
        let t = m.thread(1, "t");
        m.on_cpu(t, &["main"], 1);
        let first = m.spans.pop().unwrap();
        for (start, length, weight, n_samples) in spans {
            m.spans.push(Span {
                start: TimeNs(start * 977_777),
                end: TimeNs((start + length) * 977_777),
                weight: weight * 333_333,
                n_samples,
                ..first.clone()
            });
        }
        cuts.extend([0, 1500]);
        cuts.sort_unstable();
        let sum = |profile: &Profile| {
            let rows = &profile.rows;
            (rows.iter().map(|r| r.weight).sum::<u64>(), rows.iter().map(|r| r.n_samples).sum::<u64>())
        };
        let whole = sum(&m.profile());
        let mut parts = (0, 0);
        for pair in cuts.windows(2) {
            let profile = window(&m, pair[0] * MS, pair[1] * MS);
            let part = sum(&profile);
            parts = (parts.0 + part.0, parts.1 + part.1);
            for row in &profile.rows {
                let slices: f64 = row.slices.iter().map(|(_, w)| f64::from(w)).sum();
                prop_assert!((slices - row.weight as f64).abs() <= row.weight as f64 * 1e-5 + 1.0);
                prop_assert!(row.slices.iter().all(|(at, _)| at < profile.time.n_slices().max(1)));
            }
        }
        prop_assert_eq!(parts, whole);
    }
}

/// Two processes in control groups of their own, with a worker each and a main thread.
fn two_processes() -> Profile {
    let mut m = Maker::new();
    m.tables.processes[0].cgroup = "/docker/aa".into();
    let other = m.process(200, "qemu-system-x86");
    m.tables.processes[1].cgroup = "/machine/bb".into();
    let main = m.thread(100, "ceph-osd");
    let w0 = m.thread(101, "worker-0");
    let w1 = m.thread(102, "worker-1");
    let vm = m.thread_of(other, 201, "worker-0");
    m.on_cpu(main, &["main"], MS);
    m.on_cpu(w0, &["start", "work()"], 2 * MS);
    m.on_cpu(w1, &["start", "work()"], 4 * MS);
    m.on_cpu(vm, &["start", "work()"], 8 * MS);
    m.profile()
}

/// Check each kind of glob alone and together, that names with `/` are matched, and that a bad one
/// is an error.
#[test]
fn thread_globs() {
    let profile = two_processes();
    let total = |threads: ThreadFilter| {
        let view = View { threads, ..view() };
        Trees::new(&profile, &view)
            .groups
            .iter()
            .map(|g| g.weight / MS)
            .sum::<u64>()
    };
    let set = |glob: &str| globs(&[glob]).unwrap();
    assert_eq!(total(ThreadFilter::default()), 15);
    let threads = |glob| ThreadFilter {
        threads: set(glob),
        ..ThreadFilter::default()
    };
    assert_eq!(total(threads("worker-0")), 2 + 8);
    assert_eq!(total(threads("worker-N")), 2 + 4);
    let pools = |glob| ThreadFilter {
        pools: set(glob),
        ..ThreadFilter::default()
    };
    assert_eq!(total(pools("worker-0")), 8);
    assert_eq!(total(pools("worker-N")), 6);
    let processes = |glob| ThreadFilter {
        processes: set(glob),
        ..ThreadFilter::default()
    };
    assert_eq!(total(processes("ceph-*")), 7);
    assert_eq!(total(processes("200")), 8);
    let in_docker = |threads| ThreadFilter {
        cgroups: set("/docker/*"),
        ..threads
    };
    assert_eq!(total(in_docker(ThreadFilter::default())), 7);
    assert_eq!(total(in_docker(threads("worker-0"))), 2);
    assert!(globs(&["["]).is_err());
}

/// Check that taking threads out leaves the others' rows, pools and counts as they were.
#[test]
fn kept_threads() {
    let mut profile = two_processes();
    let filter = ThreadFilter {
        threads: globs(&["worker-1"]).unwrap(),
        ..ThreadFilter::default()
    };
    keep_threads(&mut profile, &filter);
    assert_eq!(profile.threads.len(), 1);
    assert_eq!(profile.threads[0].comm, "worker-1");
    let rows: Vec<_> = profile.rows.iter().map(|r| (r.thread, r.weight)).collect();
    assert_eq!(rows, [(0, 4 * MS)]);
    assert_eq!(profile.pools[profile.threads[0].pool].threads, [0]);
}

/// Check that control groups are groups.
#[test]
fn by_cgroup() {
    let profile = two_processes();
    let trees = Trees::new(
        &profile,
        &View {
            by: GroupBy::Cgroup,
            ..view()
        },
    );
    let found: Vec<_> = trees
        .groups
        .iter()
        .map(|g: &Group| (g.key.clone(), g.weight / MS))
        .collect();
    assert_eq!(
        found,
        [
            (GroupKey::Cgroup("/machine/bb".into()), 8),
            (GroupKey::Cgroup("/docker/aa".into()), 7)
        ]
    );
    assert_eq!(profile.processes[1].pid, Pid(200));
}

/// Recursion: `f` calls itself through `g`; another stack calls it once, one never.
fn recursive() -> Profile {
    let mut m = Maker::new();
    let t = m.thread(1, "t");
    m.on_cpu(
        t,
        &["main", "a()", "ns::f(int)", "g()", "ns::f(int)", "leaf()"],
        5 * MS,
    );
    m.on_cpu(t, &["main", "b()", "ns::f(int)", "leaf()"], 3 * MS);
    m.on_cpu(t, &["main", "other()"], MS);
    m.profile()
}

fn around(relation: Relation, function: &str) -> View {
    View {
        around: Some(Around {
            relation,
            function: FunctionName(function.into()),
        }),
        ..view()
    }
}

fn expect(found: &[(usize, String, u64)], expected: &[(usize, &str, u64)]) {
    let found: Vec<_> = found
        .iter()
        .map(|(d, n, w)| (*d, n.as_str(), *w / MS))
        .collect();
    assert_eq!(found, expected);
}

/// Check callers and callees of a function that calls itself: its time counts once.
#[test]
fn callers_and_callees() {
    let profile = recursive();
    expect(
        &nodes(&profile, &around(Relation::CallersOf, "f")),
        &[
            (0, "ns::f(int)", 8),
            (1, "a()", 5),
            (2, "main", 5),
            (1, "b()", 3),
            (2, "main", 3),
        ],
    );
    expect(
        &nodes(&profile, &around(Relation::CalleesOf, "ns::f")),
        &[
            (0, "ns::f(int)", 8),
            (1, "g()", 5),
            (2, "ns::f(int)", 5),
            (3, "leaf()", 5),
            (1, "leaf()", 3),
        ],
    );
    assert!(nodes(&profile, &around(Relation::CalleesOf, "absent")).is_empty());
}

/// Check self and total of functions: recursion counts once, and a hidden leaf's time is its
/// caller's own.
#[test]
fn self_and_total() {
    let profile = recursive();
    let of = |view: &View, name: &str| {
        let groups = function_groups(&profile, view);
        let found = groups[0]
            .functions
            .iter()
            .find(|f| profile.functions[f.function.0 as usize].name == name);
        found.map(|f| (f.self_weight / MS, f.total_weight / MS))
    };
    assert_eq!(of(&view(), "ns::f(int)"), Some((0, 8)));
    assert_eq!(of(&view(), "leaf()"), Some((8, 8)));
    let hide = Some(FunctionFilter::new("^leaf").unwrap());
    let hidden = View { hide, ..view() };
    assert_eq!(of(&hidden, "ns::f(int)"), Some((8, 8)));
    assert_eq!(of(&hidden, "leaf()"), None);
}

/// Check that focus keeps whole stacks, that hiding takes frames but no time, in either direction,
/// and that a stack of hidden frames alone is named as such.
#[test]
fn focus_and_hide() {
    let profile = recursive();
    let pattern = |text: &str| Some(FunctionFilter::new(text).unwrap());
    let focus = View {
        focus: pattern(r"^b\(\)$"),
        ..view()
    };
    expect(
        &nodes(&profile, &focus),
        &[
            (0, "main", 3),
            (1, "b()", 3),
            (2, "ns::f(int)", 3),
            (3, "leaf()", 3),
        ],
    );
    let hide = View {
        hide: pattern("f|main|^[abg]"),
        ..view()
    };
    expect(
        &nodes(&profile, &hide),
        &[(0, "[hidden]", 8), (0, "other()", 1)],
    );
    let both = View {
        focus: pattern("ns::f"),
        hide: pattern("main"),
        direction: Direction::LeafFirst,
        ..view()
    };
    assert_eq!(nodes(&profile, &both)[0], (0, "leaf()".into(), 8 * MS));
    assert_eq!(Trees::new(&profile, &both).groups[0].observed(), 9 * MS);
}

/// Check that an expression that would take much memory is refused.
#[test]
fn large_expression() {
    assert!(FunctionFilter::new("(a{1000}){1000}").is_err());
    assert!(FunctionFilter::new("(").is_err());
}

/// Check that filters combine: states, window, pool and focus at once.
#[test]
fn combined() {
    let mut m = Maker::new();
    let (a, b) = (m.thread(1, "w-0"), m.thread(2, "w-1"));
    m.on_cpu(a, &["main", "run()"], 100 * MS);
    m.blocked(
        b,
        syscall_op("futex", 0),
        &["main", "pthread_mutex_lock", "__lll_lock_wait"],
        100 * MS,
    );
    m.blocked(b, syscall("epoll_wait"), &["main", "epoll_wait"], 100 * MS);
    let profile = window(&m, 50 * MS, 100 * MS);
    let combined = View {
        states: Some(vec![State::Lock, State::Idle]),
        threads: ThreadFilter {
            pools: globs(&["w-N"]).unwrap(),
            ..ThreadFilter::default()
        },
        focus: Some(FunctionFilter::new("mutex").unwrap()),
        hide: Some(FunctionFilter::new("^__").unwrap()),
        ..view()
    };
    expect(
        &nodes(&profile, &combined),
        &[(0, "main", 50), (1, "pthread_mutex_lock", 50)],
    );
    assert!(profile.rows.iter().any(|r| r.state == State::OnCpu));
}
