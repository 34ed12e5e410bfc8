//! Conditions over windows of seconds.

use crate::support;

use support::{MS, Maker};
use wcprof_findings::Watch;
use wcprof_profile::model::Profile;
use wcprof_types::{CounterValue, Pid, ThreadState};

/// A second of threads `w-0`, `w-1` ..., each on-CPU for so many percent of it in `work(int)`, runnable for
/// the rest.
fn second(percents: &[u64]) -> Profile {
    let mut m = Maker::new();
    for (at, percent) in (0..).zip(percents) {
        let thread = m.thread(10 + at, &format!("w-{at}"));
        m.on_cpu(thread, &["ns::work(int)"], 10 * MS * percent);
        m.move_last(0, 1000 * MS);
        let rest = 10 * MS * (100 - percent);
        m.span(thread, ThreadState::Runnable, None, None, rest);
        m.move_last(0, 1000 * MS);
    }
    m.profile()
}

fn taken(text: &str, seconds: &[&[u64]]) -> Vec<Option<u32>> {
    let mut watch = Watch::new(text.parse().unwrap());
    let shares = seconds.iter().map(|s| watch.take(&second(s)));
    shares
        .map(|percent| percent.map(|p| (p * 10.0).round() as u32))
        .collect()
}

/// Check that the mean of a counter is of the window as a whole, and of one process.
#[test]
fn counter() {
    let course = [(10, 100), (0, 0), (30, 900), (1, 1000), (0, 0), (0, 0)];
    let mut watch = Watch::new("op_latency > 20ms over 2s".parse().unwrap());
    let values = course.map(|(count, ms)| {
        let mut profile = second(&[]);
        let process = &mut profile.processes[0];
        let value = CounterValue {
            count,
            time_ns: ms * 1_000_000,
        };
        process
            .counters
            .grown
            .insert("osd.op_latency".into(), value);
        let mut other = process.clone();
        other.pid = Pid(10);
        other
            .counters
            .grown
            .insert("osd.op_latency".into(), CounterValue::default());
        profile.processes.push(other);
        watch.take(&profile).map(|ns| (ns / 1e6).round() as u64)
    });
    assert_eq!(values, [None, None, Some(30), Some(61), Some(1000), None]);
}

/// Check that what is counted is named once when the window was full without the condition's counter, and not
/// where that was counted.
#[test]
fn counted_instead() {
    let told = |course: [&str; 4]| {
        let mut watch = Watch::new("op_latency > 20ms over 2s".parse().unwrap());
        course.map(|name| {
            let mut profile = second(&[]);
            let (count, time_ns) = (1, 1);
            let grown = &mut profile.processes[0].counters.grown;
            grown.insert(name.into(), CounterValue { count, time_ns });
            watch.take(&profile);
            let others = watch.counted_instead()?;
            Some(Vec::from_iter(others).join(" "))
        })
    };
    let other = "osd.op_lat";
    let names = Some("a.b osd.op_lat".to_owned());
    assert_eq!(
        told([other, "a.b", other, other]),
        [None, names, None, None]
    );
    assert_eq!(
        told([other, "osd.op_latency", other, other]),
        [const { None }; 4]
    );
}

/// Check that a window must be full and is the last one, for threads together, the one at a
/// percentile, a function, and a share that is too low.
#[test]
fn windows() {
    let calm: &[u64] = &[0, 10];
    let busy: &[u64] = &[40, 90];
    let course = [busy, calm, calm, busy, busy, calm];
    let (none, some) = (None, Some);
    assert_eq!(
        taken("on-cpu of all > 30% over 2s", &course),
        [none, some(350), none, some(350), some(650), some(350)]
    );
    assert_eq!(
        taken("max on-cpu of w-* > 80% over 2s", &course),
        [none, none, none, none, some(900), none]
    );
    assert_eq!(
        taken("p50 on-cpu of w-N < 14% over 3s", &course),
        [none, none, some(133), some(133), none, none]
    );
    assert_eq!(
        taken("func:ns::work of all > 60% over 2s", &course),
        [none, none, none, none, some(650), none]
    );
    assert_eq!(
        taken("runnable of w-1 > 85% over 2s", &course),
        [none, none, some(900), none, none, none]
    );
    assert_eq!(taken("on-cpu of other < 50% over 2s", &course), [none; 6]);
    assert_eq!(
        taken("min on-cpu of all < 1% over 2s", &[calm, calm]),
        [none, some(0)]
    );
}
