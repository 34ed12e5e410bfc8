//! Reactors with all bdevs on one of them or spread, as the live tests have them.

use wcprof_profile::model::{Profile, State};
use wcprof_types::Tid;

use super::builder::Builder;
use crate::{Basis, Finding, RuleSet, hotspots};

/// In a round a reactor polls in vain for 1000 units, asks each bdev for 50, and works on it for 500.
fn units(n_bdevs: u64) -> [u64; 3] {
    [1000, 50 * n_bdevs, 500 * n_bdevs]
}

/// Four reactors with so many bdevs that have `on_cpu` of 1000 ticks each; for the others they are
/// `off_cpu`.
fn reactors(n_bdevs: [u64; 4], on_cpu: u64, off_cpu: State) -> Profile {
    let mut b = Builder::new();
    for n in n_bdevs {
        let thread = b.thread("reactor_N");
        let [idle, ask, work] = units(n);
        let ticks = |part| on_cpu * part / (idle + ask + work);
        let (ask, work) = (ticks(ask), ticks(work));
        let poll = ["tgt!reactor_run", "tgt!thread_poll"];
        let group = [&poll[..], &["tgt!bdev_rbd_group_poll"]].concat();
        let aio = [&group[..], &["tgt!bdev_rbd_start_aio"]].concat();
        let empty = [&poll[..], &["tgt!nvmf_tcp_poll_group_poll"]].concat();
        b.row(thread, State::OnCpu, work, &aio);
        b.row(thread, State::OnCpu, ask, &group);
        b.row(thread, State::OnCpu, on_cpu - ask - work, &empty);
        b.row(thread, off_cpu, 1000 - on_cpu, &empty);
    }
    b.build()
}

fn find(profile: &Profile, rule: &str) -> Option<Finding> {
    let rules = RuleSet::builtin().unwrap();
    let mut findings = hotspots(profile, &rules, &[]).findings.into_iter();
    findings.find(|f| f.rule == rule)
}

/// On CPUs of their own, on shared ones, and where a hypervisor takes them away.
const MACHINES: [(u64, State); 3] = [
    (1000, State::OnCpu),
    (450, State::Runnable),
    (700, State::StealIrq),
];

/// Check that the reactor which has all bdevs is named, and what it works in; and no other.
#[test]
fn skewed() {
    for (on_cpu, off_cpu) in MACHINES {
        let profile = reactors([8, 0, 0, 0], on_cpu, off_cpu);
        let found = find(&profile, "reactor-imbalance").unwrap();
        let Basis::Time(share) = &found.basis else {
            panic!("{found:?}");
        };
        assert_eq!(share.tids, [Tid(101)]);
        let lines = found.evidence.iter().flat_map(|e| &e.lines);
        let names: Vec<&str> = lines.map(|line| line.name.as_str()).collect();
        let has = |part: &str| names.iter().any(|name| name.contains(part));
        assert!(
            has("reactor_0/101") && has("bdev_rbd_start_aio"),
            "{names:?}"
        );
        assert!(!has("reactor_1/"), "{names:?}");
        assert!(find(&profile, "polling-idle").is_some());
    }
}

/// Check that reactors of like work are not called uneven, though they poll in vain for half of the time.
#[test]
fn spread() {
    for (on_cpu, off_cpu) in MACHINES {
        let profile = reactors([2; 4], on_cpu, off_cpu);
        assert_eq!(find(&profile, "reactor-imbalance"), None);
        assert!(find(&profile, "polling-idle").is_some());
    }
}

/// Check that nothing is said of reactors whose stacks nobody saw.
#[test]
fn without_stacks() {
    let mut b = Builder::new();
    for _ in 0..4 {
        let thread = b.thread("reactor_N");
        b.bare(thread, State::OnCpu, 1000);
    }
    let profile = b.build();
    assert_eq!(find(&profile, "reactor-imbalance"), None);
    assert_eq!(find(&profile, "polling-idle"), None);
}
