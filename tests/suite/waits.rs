//! Threads that wait.

use std::process::Command;
use std::thread;

use crate::common::{
    Attach, Engine, Folded, RemoteProcess, Samples, Variant, assert_share, fixture, output_folder,
    quiet, tolerance,
};

/// Thread, function that waits, state.
const CONSTANT: [(&str, &str, &str); 9] = [
    ("w-sleep", "wait_in_sleep", "[sleep]"),
    ("w-rwlock", "want_rwlock", "[lock]"),
    ("w-cond", "wait_in_cond", "[idle]"),
    ("w-sem", "wait_in_sem", "[idle]"),
    ("w-epoll", "wait_in_epoll", "[idle]"),
    ("w-poll", "wait_in_poll", "[idle]"),
    ("w-net", "wait_in_recv", "[net]"),
    ("w-pipe", "wait_in_pipe", "[blocked]"),
    ("w-join", "wait_in_join", "[blocked]"),
];

pub(crate) fn each_wait(engine: Engine) {
    let _load = quiet();
    thread::scope(|scope| {
        for variant in Variant::BOTH {
            scope.spawn(move || each_wait_of(engine, variant));
        }
    });
}

fn each_wait_of(engine: Engine, variant: Variant) {
    let mut target = RemoteProcess::start_command(
        Command::new(fixture("waits.c", variant)).arg(output_folder()),
    );
    let (recording, before, after) = Attach::new(engine, target.pid())
        .seconds(5.0)
        .run_marked(&mut target);
    recording.assert_sound(engine);
    let folded = recording.folded();
    let exited = folded.thread("[exited threads, not sampled]");
    assert!(
        exited.total() < 50_000,
        "no thread exits:\n{}",
        exited.show()
    );
    for (comm, function, state) in CONSTANT {
        let thread = folded.thread(comm);
        // A thread's body is named like the thread; below it there is only libc.
        let body = comm.replace('-', "_");
        let right = thread.chain(&[&body, function]).states(&[state]);
        assert!(
            right.share_of(&thread) > 0.999,
            "{comm} should be in {function} {state}:\n{}",
            thread.show()
        );
        assert_whole(&thread);
    }
    let wait = |comm, functions, truths: [&str; 2], state| {
        // Where a thread waited for a CPU between two ticks is not known.
        let time = |key| {
            let delay = after.since(&before, &format!("{key}_delay"));
            after.since(&before, key).saturating_sub(delay) as f64
        };
        let [of, other] = truths.map(time);
        let truth = of / (of + other);
        let tolerance = tolerance(truth, 450) + recording.stalled;
        some_wait(&folded.thread(comm), functions, (truth, tolerance), state);
    };
    wait(
        "w-lock",
        ["want_mutex", "think_a_while"],
        ["want", "think"],
        "[lock]",
    );
    wait(
        "w-lock",
        ["think_a_while", "want_mutex"],
        ["think", "want"],
        "[sleep]",
    );
    wait("w-disk", ["sync_file", "w_disk"], ["sync", "gap"], "[disk]");
}

/// Check the share of a thread's first function against the truth, and the state of its waits.
fn some_wait(thread: &Folded, functions: [&str; 2], (truth, tolerance): (f64, f64), state: &str) {
    let thread = thread.unhindered();
    let part = thread.chain(&functions[..1]);
    // Time without a stack (on-CPU where the engine sees none) may belong to either function.
    let unknown = 1.0 - thread.with_stack().share_of(&thread);
    let got = part.share_of(&thread);
    assert!(
        got <= truth + tolerance && got + unknown >= truth - tolerance,
        "{} has {got:.3}, truth {truth:.3}, without a stack {unknown:.3}, \
         tolerance {tolerance:.3}:\n{}",
        functions[0],
        thread.show()
    );
    let waits = part.waits();
    assert!(
        waits.states(&[state]).share_of(&waits) > 0.999,
        "waits in {} should be {state}:\n{}",
        functions[0],
        waits.show()
    );
}

/// Assert that no stack is truncated.
fn assert_whole(thread: &Folded) {
    for line in &thread.lines {
        assert!(
            !line.frames.iter().any(|f| f.starts_with("[truncated")),
            "truncated: {line:?}"
        );
    }
}

pub(crate) fn sleep_split(engine: Engine) {
    let _load = quiet();
    let mut target = RemoteProcess::start(&fixture("split_sleep.c", Variant::NoFramePointers));
    // One round gives 10 000 samples unless ticks are late or missed.
    let (mut got, mut truth) = ([0_u64; 2], [0_u64; 2]);
    let mut samples = Samples::default();
    while samples.too_few() {
        let (recording, before, after) = Attach::new(engine, target.pid())
            .seconds(6.5)
            .run_marked(&mut target);
        recording.assert_sound(engine);
        samples.add(&recording, |thread, _| thread.starts_with("sleeper-"));
        let folded = recording.folded();
        for (i, part) in ["seven", "three"].into_iter().enumerate() {
            let function = folded.chain(&["sleeper", &format!("wait_{part}")]);
            got[i] += function.states(&["[sleep]"]).total();
            // Where a thread waited for a CPU between two ticks is not known.
            truth[i] += after.since(&before, part);
            truth[i] -= after.since(&before, &format!("{part}_delay"));
        }
    }
    let share = |times: [u64; 2]| times[0] as f64 / (times[0] + times[1]) as f64;
    assert_share(
        "wait_seven",
        share(got),
        share(truth),
        samples.n_effective(),
    );
}

pub(crate) fn busy_a_tenth(engine: Engine) {
    let _load = quiet();
    let mut target = RemoteProcess::start(&fixture("busy10.c", Variant::NoFramePointers));
    // Ten times the usual rate, so that the part it is busy in rests on 500 samples.
    let (recording, before, after) = Attach::new(engine, target.pid())
        .seconds(5.0)
        .rate(997)
        .run_marked(&mut target);
    recording.assert_sound(engine);
    let folded = recording.folded().thread("busy-10");
    let truth = after.since(&before, "busy") as f64 / after.since(&before, "period") as f64;
    // Run time is exact, whatever the number of samples.
    let on_cpu = folded.states(&["[on-cpu]"]);
    assert_share("busy-10 on-CPU", on_cpu.share_of(&folded), truth, u64::MAX);
    let asleep = folded.chain(&["worker", "sleep_part"]).states(&["[sleep]"]);
    let waits = folded.waits();
    assert!(
        asleep.share_of(&waits) > 0.999,
        "all waits are in sleep_part:\n{}",
        waits.show()
    );
    if engine.sees_running() {
        let busy = on_cpu.chain(&["worker", "busy_part"]);
        // The rest is the way into the sleep and out of it, and what was never sampled.
        assert!(
            busy.share_of(&on_cpu) > 0.85,
            "run time should be in busy_part:\n{}",
            on_cpu.show()
        );
    }
}
