//! Who holds the locks that threads wait for.

use std::process::Command;
use std::thread;

use serde_json::Value;

use wcprof_testkit::{
    Attach, Engine, Mark, Recording, RemoteProcess, Variant, Verdict, assert_within, children,
    fixture, has_capability, printed, skip,
};

/// Threads of the fixture that want its one mutex again and again.
const WAITERS: f64 = 4.0;

pub(crate) fn blame(engine: Engine) {
    thread::scope(|scope| {
        for variant in Variant::BOTH {
            scope.spawn(move || {
                let mut target = RemoteProcess::start(&fixture("locks.cpp", variant));
                let pid = target.pid();
                assert_blame(engine, &mut target, pid);
            });
        }
        if has_capability() {
            scope.spawn(|| in_pid_namespace(engine));
        } else {
            skip("blame in a pid namespace", "needs root to unshare");
        }
    });
}

/// The owners' numbers in the locks are not those that wcprof knows the threads by.
fn in_pid_namespace(engine: Engine) {
    let mut target = RemoteProcess::start_command(
        Command::new("unshare")
            .args(["--pid", "--fork", "--mount-proc", "--kill-child"])
            .arg(fixture("locks.cpp", Variant::NoFramePointers)),
    );
    let inside = children(target.pid());
    assert_blame(engine, &mut target, inside[0]);
}

/// Two processes in one recording, whose locks may have the same addresses.
pub(crate) fn two_processes(engine: Engine) {
    let program = fixture("locks.cpp", Variant::NoFramePointers);
    let targets = [(); 2].map(|()| RemoteProcess::start(&program));
    let pids = targets.each_ref().map(RemoteProcess::pid);
    let recording = Attach::new(engine, pids[0]).and(pids[1]).seconds(2.0).run();
    recording.assert_sound(engine);
    let report = Report::of(&recording);
    let sites = report.0["sites"].as_array().expect("a list");
    for pid in pids {
        let of_pid = Report(serde_json::json!({
            "sites": sites.iter().filter(|s| s["pids"][0] == pid).collect::<Vec<_>>()
        }));
        let site = of_pid.site("want_std");
        let hold = &site["held_by"][0];
        let right = hold["pool"] == "l-stdhold" && has_frame(hold, "hold_std");
        let tid = hold["tids"][0].as_i64().expect("a number");
        let own = std::fs::exists(format!("/proc/{pid}/task/{tid}")).expect("a folder");
        assert!(right && own, "held by a thread of {pid}: {site:#}");
    }
}

fn assert_blame(engine: Engine, target: &mut RemoteProcess, pid: i32) {
    let (recording, before, after) = Attach::new(engine, pid).seconds(5.0).run_marked(target);
    recording.assert_sound(engine);
    let report = Report::of(&recording);
    let always = |function, pool, holder: &str, state| {
        let site = report.site(function);
        let holds = site["held_by"].as_array().expect("a list");
        let right: f64 = holds
            .iter()
            .filter(|h| h["pool"] == pool && has_frame(h, holder) && h["state"] == state)
            .map(|h| h["percent"].as_f64().expect("a number"))
            .sum();
        assert!(right > 99.0, "{function} is held by {pool}: {site:#}");
    };
    always("want_read", "l-writer", "hold_write", "sleep");
    always("want_write", "l-writer", "hold_write", "sleep");
    always("want_std", "l-stdhold", "hold_std", "sleep");
    always("want_recursive", "l-rechold", "hold_recursive", "sleep");
    always("wait_for_mutex", "l-condmx", "hold_cond_mutex", "sleep");
    for (function, reason) in [
        ("want_from_reader", "readers"),
        ("want_orphan", "not-a-thread"),
        ("want_other", "not-recorded"),
    ] {
        let site = report.site(function);
        let unknown = &site["unknown"][0];
        let share = unknown["percent"].as_f64().expect("a number");
        assert!(
            unknown["reason"] == reason && share > 99.0,
            "{function}: {site:#}"
        );
    }
    assert_eq!(report.site("want_recursive")["recursive"], true);
    assert_eq!(report.site("want_std")["recursive"], false);
    assert!(
        report.find("wait_in_cond").is_none(),
        "a condition variable is no lock: {:#}",
        report.0
    );
    if !recording.stood_still("blame", engine) {
        assert_mutex(engine, &report, (&before, &after), &recording.verdict);
    }
    let text = report_text(&recording);
    assert!(
        text.contains("want_mutex") && text.contains("l-holder"),
        "{text}"
    );
}

/// Check lost time and hold stacks of the mutex that is taken and given back.
fn assert_mutex(
    engine: Engine,
    report: &Report,
    (before, after): (&Mark, &Mark),
    verdict: &Verdict,
) {
    let site = report.site("want_mutex");
    assert_eq!(site["kinds"], serde_json::json!(["mutex"]));
    assert_eq!(site["n_locks"], 1);
    let lost = site["lost_ns"].as_f64().expect("a number");
    let duration = report.0["duration_ns"].as_f64().expect("a number");
    // What a waiter does after it was woken is no time lost to the lock.
    let truth = (after.since(before, "want") - after.since(before, "want_off")) as f64
        / after.since(before, "wall") as f64;
    let got = lost / duration;
    let (got, truth) = (got / WAITERS, truth / WAITERS);
    let allowed = verdict.tolerance(truth, 4 * 450);
    assert_within("time lost", got, truth, allowed);
    let holds = site["held_by"].as_array().expect("a list");
    let share = |keep: &dyn Fn(&Value) -> bool| -> f64 {
        let holds = holds.iter().filter(|h| h["pool"] == "l-holder" && keep(h));
        holds
            .map(|h| h["percent"].as_f64().expect("a number") / 100.0)
            .sum()
    };
    let [asleep, woken, busy] =
        ["asleep", "woken", "busy"].map(|key| after.since(before, key) as f64);
    let truth = asleep / (asleep + woken + busy);
    let got = share(&|h| has_frame(h, "hold_asleep") && h["state"] == "sleep");
    let tolerance = verdict.tolerance(truth, 450);
    // The rest: between two owners, and waiters that have it for a moment.
    assert!(
        (got - truth).abs() <= tolerance + 0.03,
        "asleep with the mutex: {got:.3}, truth {truth:.3}: {site:#}"
    );
    let runs = share(&|h| h["state"] == "on-cpu" || h["state"] == "runnable");
    assert!(
        (runs - (1.0 - truth)).abs() <= tolerance + 0.03,
        "on a CPU with the mutex, or waiting for one: {runs:.3}, truth {:.3}: {site:#}",
        1.0 - truth
    );
    if engine.sees_running() {
        // One that waits for a CPU was displaced in hold_busy, or woken in hold_asleep.
        let with_stack = share(&|h| h["state"] == "on-cpu" && has_frame(h, "l_holder"));
        let busy = share(&|h| h["state"] == "on-cpu" && has_frame(h, "hold_busy"));
        // Where timer samples are as late as the ticks, one taken in hold_asleep may be the nearest.
        let outside = with_stack - busy;
        let allowed = 0.2 * with_stack + verdict.tolerance(0.0, 450);
        assert!(
            with_stack > 0.0 && outside <= allowed,
            "not in hold_busy: {outside:.3} of {with_stack:.3}, {allowed:.3} allowed: {site:#}"
        );
    }
}

fn has_frame(hold: &Value, function: &str) -> bool {
    let frames = hold["frames"].as_array().expect("a list");
    frames.iter().any(|f| is(f, function))
}

fn is(name: &Value, function: &str) -> bool {
    let name = name.as_str().unwrap_or_default();
    name == function || name.starts_with(&format!("{function}("))
}

/// What `wcprof report TRACE --locks --json` printed.
struct Report(Value);

impl Report {
    fn of(recording: &Recording) -> Self {
        let json = locks(recording, &["--json", "--by", "process"]);
        Self(serde_json::from_str(&json).expect("JSON"))
    }

    fn find(&self, function: &str) -> Option<&Value> {
        let sites = self.0["sites"].as_array().expect("a list");
        sites.iter().find(|s| {
            let callers = s["callers"].as_array().expect("a list");
            is(&s["function"], function) || callers.iter().any(|c| is(c, function))
        })
    }

    #[track_caller]
    fn site(&self, function: &str) -> &Value {
        self.find(function)
            .unwrap_or_else(|| panic!("no site {function}: {:#}", self.0))
    }
}

fn report_text(recording: &Recording) -> String {
    locks(recording, &[])
}

fn locks(recording: &Recording, args: &[&str]) -> String {
    printed("report", &recording.path(), &[&["--locks"], args].concat())
}
