//! How sure one must be before a share is called a finding, and a pool's load uneven.

use crate::support;

use support::{MS, Maker};
use wcprof_findings::{Basis, Hotspots, RuleSet, hotspots};

/// Whether four reactors are called uneven that are each on its CPU for a second of 100 ticks, of which
/// those that `works` names are work and the others empty polling.
fn is_uneven(works: impl Fn(usize, u64) -> bool) -> bool {
    let mut m = Maker::new();
    for reactor in 0..4 {
        let thread = m.thread(10 + reactor as i32, &format!("reactor_{reactor}"));
        for tick in 0..100 {
            let stack: &[&str] = match works(reactor, tick) {
                true => &["reactor_run", "thread_poll", "bdev_rbd_start_aio"],
                false => &["reactor_run", "thread_poll", "nvmf_tcp_poll_group_poll"],
            };
            m.on_cpu(thread, stack, 10 * MS);
            m.move_last(10 * tick * MS, 10 * (tick + 1) * MS);
        }
    }
    let rules = RuleSet::builtin().expect("the built-in rules are valid");
    hotspots(&m.profile(), &rules, &[])
        .findings
        .iter()
        .any(|f| f.rule == "reactor-imbalance")
}

/// Check that a reactor that works all the time, beside others that work now and then, is found.
#[test]
fn lasting() {
    assert!(is_uneven(|reactor, tick| tick % 10 < [8, 2, 2, 2][reactor]));
}

/// Check that one burst does not make a reactor the one that does the others' work.
#[test]
fn one_burst() {
    assert!(!is_uneven(|reactor, tick| match reactor {
        0 => (30..60).contains(&tick),
        _ => tick % 10 == 0,
    }));
}

/// What is found in a second of a thread that allocates in the ticks that `allocates` names, and else works.
fn allocating(allocates: impl Fn(u64) -> bool) -> Hotspots {
    let mut m = Maker::new();
    let thread = m.thread(10, "tp_osd_tp");
    for tick in 0..100 {
        let stack: &[&str] = match allocates(tick) {
            true => &["work", "crc32_iscsi_00"],
            false => &["work"],
        };
        m.on_cpu(thread, stack, 10 * MS);
        m.move_last(10 * tick * MS, 10 * (tick + 1) * MS);
    }
    let rules = RuleSet::builtin().expect("the built-in rules are valid");
    hotspots(&m.profile(), &rules, &[])
}

/// Check that the same share is a finding when it is steady, and undecided when it is one burst, with the
/// length of a recording that would decide it.
#[test]
fn steady_and_burst() {
    let rule = |found: &Hotspots| {
        found
            .findings
            .iter()
            .map(|f| f.rule.clone())
            .collect::<Vec<_>>()
    };
    let steady = allocating(|tick| tick % 8 == 0);
    assert_eq!(rule(&steady), ["crc32c"]);
    assert_eq!(steady.undecided, []);
    let Basis::Time(share) = &steady.findings[0].basis else {
        panic!("{steady:?}");
    };
    assert!(share.low_ns < share.matched_ns && share.matched_ns < share.high_ns);
    let burst = allocating(|tick| (30..42).contains(&tick));
    assert_eq!(rule(&burst), [""; 0]);
    let [open] = burst.undecided.as_slice() else {
        panic!("{burst:?}");
    };
    assert_eq!(
        (open.finding.rule.as_str(), open.threshold_percent),
        ("crc32c", 8.0)
    );
    assert!(open.needed_s.is_some_and(|seconds| seconds > 2), "{open:?}");
}
