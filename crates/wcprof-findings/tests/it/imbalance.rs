//! How sure one must be before a pool's load is called uneven.

use crate::support;

use support::{MS, Maker};
use wcprof_findings::{RuleSet, hotspots};

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
    hotspots(&m.profile(), &rules)
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
