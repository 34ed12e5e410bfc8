//! Threads that wait.

use std::process::Command;
use std::thread;

use wcprof_testkit::{
    Attach, Engine, Folded, RemoteProcess, Samples, Split, Variant, fixture, output_folder,
    stood_still,
};

/// Thread, function that waits, state.
const CONSTANT: [(&str, &str, &str); 9] = [
    ("w-sleep", "wait_in_sleep", "[sleep]"),
    ("w-rwlock", "want_rwlock", "[lock]"),
    ("w-cond", "wait_in_cond", "[place-unknown]"),
    ("w-sem", "wait_in_sem", "[place-unknown]"),
    ("w-epoll", "wait_in_epoll", "[place-unknown]"),
    ("w-poll", "wait_in_poll", "[place-unknown]"),
    ("w-net", "wait_in_recv", "[net]"),
    ("w-pipe", "wait_in_pipe", "[blocked]"),
    ("w-join", "wait_in_join", "[blocked]"),
];

pub(crate) fn each_wait(engine: Engine) {
    thread::scope(|scope| {
        for variant in Variant::BOTH {
            scope.spawn(move || each_wait_of(engine, variant));
        }
    });
}

/// What threads of a program with musl wait in: the functions that called its C library are found although that
/// has no call frame information, and states are those of glibc.
pub(crate) fn with_musl(engine: Engine) {
    let mut target = RemoteProcess::start_command(
        Command::new(fixture("waits.c", Variant::Musl)).arg(output_folder()),
    );
    let (recording, ..) = Attach::new(engine, target.pid())
        .seconds(2.0)
        .run_marked(&mut target);
    let folded = recording.folded();
    assert_constant(&folded);
    // Its own first functions are where stacks end.
    for (comm, ..) in CONSTANT {
        let thread = folded.thread(comm);
        let cut = thread.chain(&["[truncated: no unwind info]"]);
        assert_eq!(cut.total(), 0, "{}", thread.show());
    }
}

/// Asserts that each thread that waits in one way is there all the time.
#[track_caller]
fn assert_constant(folded: &Folded) {
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
    }
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
    assert_constant(&folded);
    for (comm, ..) in CONSTANT {
        assert_whole(&folded.thread(comm));
    }
    if recording.stood_still("each_wait", engine) {
        return;
    }
    let wait = |comm, functions, truths: [&str; 2], state| {
        // Where a thread waited for a CPU between two ticks is not known.
        let time = |key| {
            let delay = after.since(&before, &format!("{key}_delay"));
            after.since(&before, key).saturating_sub(delay) as f64
        };
        let [of, other] = truths.map(time);
        let truth = of / (of + other);
        let mut samples = Samples::default();
        samples.add(&recording, |thread, _| thread == comm);
        let tolerance = recording
            .verdict
            .tolerance(truth, samples.n_effective().min(450));
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

/// Check the share of the waits in a thread's first function against the truth, and their state. Time on a
/// CPU comes in microseconds and rests on few samples: it may belong to either function.
fn some_wait(thread: &Folded, functions: [&str; 2], (truth, tolerance): (f64, f64), state: &str) {
    let thread = thread.unhindered();
    let part = thread.chain(&functions[..1]);
    let on_cpu = thread.states(&["[on-cpu]"]).share_of(&thread);
    let got = part.waits().share_of(&thread);
    assert!(
        got <= truth + tolerance && got + on_cpu >= truth - tolerance,
        "waits in {} have {got:.3}, truth {truth:.3}, on-CPU {on_cpu:.3}, \
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
pub(crate) fn assert_whole(thread: &Folded) {
    for line in &thread.lines {
        assert!(!line.is_truncated(), "truncated: {line:?}");
    }
}

pub(crate) fn sleep_split(engine: Engine) {
    let mut target = RemoteProcess::start(&fixture("split_sleep.c", Variant::NoFramePointers));
    let mut split = Split::default();
    add_sleepers(&mut split, engine, &mut target, 5.0);
    if !stood_still(&split.verdict(), "sleep_split", engine) {
        split.assert_wide("wait_seven");
    }
}

pub(crate) fn sleep_split_exact(engine: Engine) {
    let mut target = RemoteProcess::start(&fixture("split_sleep.c", Variant::NoFramePointers));
    let mut split = Split::default();
    while split.too_few() {
        add_sleepers(&mut split, engine, &mut target, 6.5);
        if stood_still(&split.verdict(), "sleep_split_exact", engine) {
            return;
        }
    }
    split.assert_exact("wait_seven");
}

fn add_sleepers(split: &mut Split, engine: Engine, target: &mut RemoteProcess, seconds: f64) {
    let (recording, before, after) = Attach::new(engine, target.pid())
        .seconds(seconds)
        .run_marked(target);
    recording.assert_sound(engine);
    let samples = &mut split.samples;
    samples.add(&recording, |thread, _| thread.starts_with("sleeper-"));
    let folded = recording.folded();
    let parts = ["seven", "three"];
    let got = parts.map(|part| {
        let function = folded.chain(&["sleeper", &format!("wait_{part}")]);
        function.states(&["[sleep]"]).total()
    });
    // Where a thread waited for a CPU between two ticks is not known. On a machine that gives none, all is such time.
    let truth = parts.map(|part| {
        let delay = after.since(&before, &format!("{part}_delay"));
        after.since(&before, part).saturating_sub(delay)
    });
    split.add(&recording, got, truth);
}
