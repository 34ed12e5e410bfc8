//! Simulated fleets: the one that is unlike the others is found, and where there is none, none.

use crate::support;

use std::sync::LazyLock;

use support::random::Random;
use support::{MS, Maker, syscall};
use wcprof_findings::{Basis, Finding, MIN_LIKE, RuleSet, hotspots};
use wcprof_profile::model::State;
use wcprof_profile::{Categories, Figure, ProfileBuilder, Rules, fleets};
use wcprof_trace::model::{ProcessId, Span, StackId, ThreadId, WaitId};
use wcprof_types::{StackEnd, ThreadState, TimeNs, Wait};

/// Fleets of each kind.
const N_FLEETS: u64 = 100;
/// A minute, in steps at which the load changes.
const N_STEPS: u64 = 120;
const STEP_NS: u64 = 500 * MS;

/// What the threads of an OSD do: the share of a step, and how much that varies from step to step.
const WORK: [(&[&str], Option<&str>, f64, f64); 8] = [
    (&["main", "PG::do_op"], None, 0.20, 0.2),
    (&["main", "PG::do_op", "malloc"], None, 0.06, 0.3),
    (&["main", "crc32_iscsi_00"], None, 0.04, 0.3),
    (
        &["main", "AsyncMessenger::send", "libc:sendmsg"],
        None,
        0.05,
        0.3,
    ),
    (
        &["main", "PG::lock", "libc:__lll_lock_wait"],
        Some("futex"),
        0.10,
        0.4,
    ),
    (
        &["main", "Throttle::get", "libc:__lll_lock_wait"],
        Some("futex"),
        0.02,
        0.5,
    ),
    (
        &["main", "KernelDevice::flush", "libc:fdatasync"],
        Some("fdatasync"),
        0.15,
        0.3,
    ),
    (
        &["main", "Messenger::recv", "libc:recvmsg"],
        Some("recvmsg"),
        0.05,
        0.4,
    ),
];
/// Of these the changed OSD does half as much again.
const LOCK: usize = 4;

static RULES: LazyLock<(Rules, Categories, RuleSet)> = LazyLock::new(|| {
    let rules = Rules::builtin().unwrap();
    let categories = rules.categories().unwrap();
    (rules, categories, RuleSet::builtin().unwrap())
});

/// What is compared.
#[derive(Copy, Clone)]
enum Like {
    Osds,
    /// The first stands for several that ended.
    FoldedOsds,
    /// Threads of one process.
    Reactors,
}

impl Like {
    /// The thread of a further member.
    fn add(self, m: &mut Maker, member: usize) -> ThreadId {
        let first = member == 0;
        let (tid, thread) = (1000 + member as i32, format!("reactor_{member}"));
        let (process, comm) = match self {
            Self::Osds | Self::FoldedOsds if first => (ProcessId(0), "tp_osd_tp"),
            Self::Osds | Self::FoldedOsds => {
                (m.process(100 + member as i32, "ceph-osd"), "tp_osd_tp")
            }
            Self::Reactors => (ProcessId(0), thread.as_str()),
        };
        let of = &mut m.tables.processes[process.0 as usize];
        match self {
            Self::Osds | Self::FoldedOsds => {
                of.cmdline = ["ceph-osd", "--id", &member.to_string()]
                    .map(str::to_owned)
                    .to_vec();
            }
            Self::Reactors => of.comm = "spdk_tgt".into(),
        }
        if first && let Self::FoldedOsds = self {
            m.tables.origins.folded.insert(process, 40);
        }
        m.thread_of(process, tid, comm)
    }
}

/// The findings on unlike OSDs among `n`, of which the load differs by `spread`; `changed` does `factor` times as
/// much of `WORK[LOCK]`.
fn found(
    random: &mut Random,
    like: Like,
    n: usize,
    spread: f64,
    changed: Option<(usize, f64)>,
) -> Vec<Finding> {
    let (rules, categories, hotspot_rules) = &*RULES;
    let mut m = Maker::new();
    m.tables.stats.duration = TimeNs(N_STEPS * STEP_NS);
    let work: Vec<(StackId, Option<WaitId>)> = (WORK.iter())
        .map(|(stack, call, ..)| {
            let stack = m.stack(stack, StackEnd::Root);
            (stack, call.map(|call| m.wait(syscall(call))))
        })
        .collect();
    let rest = m.stack(&["main", "libc:epoll_wait"], StackEnd::Root);
    let idle = m.wait(Wait {
        ..syscall("epoll_wait")
    });
    let mut builder = ProfileBuilder::new();
    for osd in 0..n {
        let thread = like.add(&mut m, osd);
        m.tables.threads[osd].end = TimeNs(N_STEPS * STEP_NS);
        let load = (spread * random.normal()).exp();
        let own: Vec<f64> = (0..WORK.len())
            .map(|at| {
                let factor = changed.filter(|(which, _)| (*which, at) == (osd, LOCK));
                WORK[at].2 * load * (spread * random.normal()).exp() * factor.map_or(1.0, |c| c.1)
            })
            .collect();
        for step in 0..N_STEPS {
            let mut left = STEP_NS;
            let mut add = |stack, wait: Option<WaitId>, weight: u64| {
                builder.add_span(&span(thread, step, stack, wait, weight));
            };
            for ((stack, wait), (share, (.., varies))) in work.iter().zip(own.iter().zip(WORK)) {
                let share = share * (1.0 + varies * random.normal()).max(0.0);
                let weight = ((share * STEP_NS as f64) as u64).min(left);
                left -= weight;
                add(*stack, *wait, weight);
            }
            add(rest, Some(idle), left);
        }
    }
    let profile = builder.finish(&m.tables, None, rules);
    let fleets = fleets(&profile, categories, MIN_LIKE);
    let found = hotspots(&profile, hotspot_rules, &fleets)
        .findings
        .into_iter();
    found.filter(|finding| finding.rule == "unlike").collect()
}

fn span(thread: ThreadId, step: u64, stack: StackId, wait: Option<WaitId>, weight: u64) -> Span {
    Span {
        thread,
        start: TimeNs(step * STEP_NS),
        end: TimeNs((step + 1) * STEP_NS),
        weight,
        n_samples: 1,
        state: match wait {
            Some(_) => ThreadState::Blocked,
            None => ThreadState::OnCpu,
        },
        wait,
        stack: Some(stack),
    }
}

/// Check that of 60 OSDs the one which loses half as much time again to a lock is found, and no other.
#[test]
fn changed_one() {
    let mut random = Random::new(1);
    let (mut n_found, mut n_others) = (0, 0);
    for fleet in 0..N_FLEETS {
        let changed = (fleet * 7 % 60) as usize;
        let found = found(&mut random, Like::Osds, 60, 0.025, Some((changed, 1.5)));
        let is_it = |finding: &&Finding| finding.process == format!("osd.{changed}");
        n_others += found.iter().filter(|one| !is_it(one)).count();
        let Some(finding) = found.iter().find(is_it) else {
            continue;
        };
        let Basis::Unlike(one) = &finding.basis else {
            panic!("{finding:?}");
        };
        n_found += 1;
        let lock = Figure::Lock("PG::lock".to_owned());
        let of_lock = [lock, Figure::State(State::Lock)].contains(&one.figure);
        let (low, high) = one.interval.unwrap();
        assert!(of_lock && low > 1.0 && high < 2.0, "{one:?}");
        assert_eq!(one.n_like, 60);
    }
    assert!(n_found >= 95, "{n_found} of {N_FLEETS}");
    assert!(n_others <= 5, "{n_others}");
}

/// Check that in 95 of 100 fleets without such an OSD none is found: of OSDs with like load, of those whose load
/// differs by factors, and of few.
#[test]
fn none_changed() {
    for (seed, n, spread) in [(2, 60, 0.025), (3, 60, 0.3), (4, 8, 0.1)] {
        let mut random = Random::new(seed);
        let fleets =
            (0..N_FLEETS).filter(|_| !found(&mut random, Like::Osds, n, spread, None).is_empty());
        let n_false = fleets.count();
        assert!(n_false <= 5, "{n} OSDs, {spread}: {n_false} of {N_FLEETS}");
    }
}

/// Check that among eight OSDs, of which the spread is known less well, one with four times the lock time is found;
/// and that there is no finding among four.
#[test]
fn few() {
    let mut random = Random::new(6);
    let found = |n| found(&mut random, Like::Osds, n, 0.025, Some((3, 4.0)));
    let [eight, four] = [8, 4].map(found);
    let names: Vec<&str> = eight.iter().map(|one| one.process.as_str()).collect();
    assert_eq!(names, ["osd.3"]);
    assert_eq!(four, []);
}

/// Check that what stands for several processes, and has the time of all, is not said to be unlike one.
#[test]
fn folded() {
    let mut random = Random::new(8);
    let mut found = |like| found(&mut random, like, 8, 0.025, Some((0, 4.0)));
    assert_eq!(found(Like::Osds).len(), 1);
    assert_eq!(found(Like::FoldedOsds), []);
}

/// Check that among the reactors of one process the one with twice the lock time is found, by its thread's name.
#[test]
fn reactors() {
    let mut random = Random::new(7);
    let found = found(&mut random, Like::Reactors, 16, 0.025, Some((3, 2.0)));
    let titles: Vec<&str> = found.iter().map(|one| one.title.as_str()).collect();
    let [title] = titles[..] else {
        panic!("{titles:?}");
    };
    assert!(title.starts_with("reactor_3: "), "{title}");
    assert!(
        title.ends_with(" of the median of 16 reactor_N threads"),
        "{title}"
    );
    assert_eq!(found[0].pools, ["reactor_N"]);
}
