//! Threads are a finding that were still stopped at the end, and those that had gone on before are none.

use crate::support;

use support::{MS, Maker, syscall};
use wcprof_findings::{Basis, Finding, RuleSet, hotspots, to_do};
use wcprof_profile::model::Profile;
use wcprof_profile::{ProfileBuilder, Rules};
use wcprof_types::{StopCause, TimeNs, Wait};

/// Adds a thread that is stopped from one time to another, ms, of a second, and sleeps at all others.
fn add(m: &mut Maker, tid: i32, cause: StopCause, (from, to): (u64, u64)) {
    let thread = m.thread(tid, "worker");
    let stopped = Wait {
        stop: Some(cause),
        ..Wait::default()
    };
    let parts = [
        (syscall("clock_nanosleep"), 0, from),
        (stopped, from, to),
        (syscall("clock_nanosleep"), to, 1000),
    ];
    for (wait, start, end) in parts.into_iter().filter(|(_, start, end)| start < end) {
        m.blocked(thread, wait, &["main"], (end - start) * MS);
        m.move_last(start * MS, end * MS);
    }
}

fn found(profile: &Profile) -> Vec<Finding> {
    let rules = RuleSet::builtin().expect("the built-in rules are valid");
    let findings = hotspots(profile, &rules, &[]).findings;
    let of_rule = findings.into_iter().filter(|f| f.rule == "threads-stopped");
    of_rule.collect()
}

/// What is found of four threads that are stopped from one time to another.
fn of_four(stop: (u64, u64)) -> Vec<Finding> {
    let mut m = Maker::new();
    (10..14).for_each(|tid| add(&mut m, tid, StopCause::Signal, stop));
    found(&m.profile())
}

/// Check that threads that stay stopped are one finding, whose item says how many, by whom and for how long.
#[test]
fn until_the_end() {
    for (from, time) in [(0, "1.00 s"), (250, "750 ms")] {
        let findings = of_four((from, 1000));
        let items = to_do(&Profile::default(), &findings, &[]).items;
        let whys: Vec<String> = items.into_iter().map(|item| item.why).collect();
        let by = "by a stop signal (SIGSTOP or SIGTSTP)";
        let why =
            format!("Threads are stopped: at the end 4 of 4 threads {by}, for {time} of 1.00 s");
        assert_eq!(whys, [why]);
    }
}

/// Check that a stop that was over before the end is no finding, however long it was, nor one that had hardly begun.
#[test]
fn gone_on() {
    for stop in [(0, 85), (0, 950), (300, 600), (999, 1000), (0, 0)] {
        assert_eq!(of_four(stop), [], "{stop:?}");
    }
}

/// Check that threads are counted that were there at the end, by what stops them.
#[test]
fn causes() {
    let mut m = Maker::new();
    add(&mut m, 10, StopCause::Freezer, (100, 1000));
    add(&mut m, 11, StopCause::Debugger, (500, 1000));
    add(&mut m, 12, StopCause::Debugger, (600, 1000));
    add(&mut m, 13, StopCause::Signal, (100, 200));
    // One that exited while it was stopped.
    let exited = m.thread(14, "worker");
    let stopped = Wait {
        stop: Some(StopCause::Signal),
        ..Wait::default()
    };
    m.blocked(exited, stopped, &["main"], 400 * MS);
    let findings = found(&m.profile());
    let Basis::Limit(of) = &findings[0].basis else {
        panic!("{findings:?}");
    };
    // By the kernel's documents (cgroup-v2.rst, freezer-subsystem.rst, ptrace(2)), and nothing of other causes.
    assert_eq!(findings[0].action, "thaw the group; detach the debugger");
    let advice = &findings[0].advice;
    for word in ["freezer.state", "cgroup.freeze", "gdb"] {
        assert!(advice.contains(word), "{advice}");
    }
    for word in ["CONT", "core"] {
        assert!(!advice.contains(word), "{advice}");
    }
    let values: Vec<&str> = of.settings.iter().map(|s| s.value.as_str()).collect();
    assert_eq!(
        values,
        [
            "1 of 4 threads by the cgroup freezer, for 900 ms of 1.00 s",
            "2 of 4 threads by a debugger (ptrace), for 500 ms of 1.00 s",
        ]
    );
}

/// Check that of a core dump is said that it ends, where it goes to and what makes it smaller (core(5)); no signal ends it.
#[test]
fn core_dump() {
    let mut m = Maker::new();
    (10..13).for_each(|tid| add(&mut m, tid, StopCause::CoreDump, (200, 1000)));
    let findings = found(&m.profile());
    assert_eq!(findings[0].action, "wait until the core dump is written");
    let advice = &findings[0].advice;
    for word in ["core_pattern", "coredump_filter"] {
        assert!(advice.contains(word), "{advice}");
    }
    for word in ["CONT", "thaw", "detach"] {
        assert!(!advice.contains(word), "{advice}");
    }
}

/// Check that a window has the finding by its own end.
#[test]
fn windows() {
    let mut m = Maker::new();
    add(&mut m, 10, StopCause::Signal, (300, 600));
    let rules = Rules::builtin().expect("the built-in rules are valid");
    let is_found = |from: u64, to: u64| {
        let builder = ProfileBuilder::new().with_window(TimeNs(from * MS), TimeNs(to * MS));
        builder.add_spans(&m.spans);
        !found(&builder.finish(&m.tables, None, &rules)).is_empty()
    };
    assert!(is_found(0, 500) && is_found(350, 550));
    assert!(!is_found(0, 200) && !is_found(0, 800) && !is_found(650, 900));
}
