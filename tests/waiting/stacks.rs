//! Stacks that are hard to unwind, and names that are hard to print.

use std::thread;

use wcprof_testkit::{Attach, Engine, Folded, RemoteProcess, Variant, fixture, is_function};

pub(crate) fn hard_frames(engine: Engine) {
    thread::scope(|scope| {
        for variant in Variant::BOTH {
            scope.spawn(move || hard_frames_of(engine, variant));
        }
    });
}

fn hard_frames_of(engine: Engine, variant: Variant) {
    let target = RemoteProcess::start(&fixture("frames.c", variant));
    // Threads busy 10 % of the time then have some 120 samples each.
    let recording = Attach::new(engine, target.pid())
        .seconds(4.0)
        .rate(299)
        .run();
    recording.assert_sound(engine);
    let folded = recording.folded();

    let alloca = [
        "f_alloca",
        "alloca_root",
        "alloca_middle",
        "alloca_leaf",
        "alloca_sleep",
    ];
    assert_all(&folded, variant, "f-alloca", |t| t.chain(&alloca), 0.999);
    assert_all(
        &folded,
        variant,
        "f-deep",
        |t| deep(t, "f_deep", "deep_sleep"),
        0.999,
    );
    if engine.sees_running() {
        let running = folded.states(&["[on-cpu]"]).with_stack();
        // A millisecond of work in ten: on a busy machine the ways into the sleep and out of it take almost
        // as long.
        let mostly = 0.5;
        let alloca = [
            "f_alloca_cpu",
            "alloca_root",
            "alloca_middle",
            "alloca_leaf",
            "alloca_work",
        ];
        assert_all(
            &running,
            variant,
            "f-alloca-cpu",
            |t| t.chain(&alloca),
            mostly,
        );
        // Also the few samples on the way into the sleep and out of it have all frames.
        let deep = |t: &Folded| deep(t, "f_deep_cpu", "deep_rounds");
        assert_all(&running, variant, "f-deep-cpu", deep, 0.98);
        let work = |t: &Folded| t.chain(&["deep_rounds", "deep_work"]);
        assert_all(&running, variant, "f-deep-cpu", work, mostly);
    }
}

pub(crate) fn signal_stack(engine: Engine) {
    for variant in Variant::BOTH {
        let target = RemoteProcess::start(&fixture("frames.c", variant));
        let recording = Attach::new(engine, target.pid()).seconds(1.0).run();
        recording.assert_sound(engine);
        let folded = recording.folded();
        let signal = [
            "f_altstack",
            "before_signal",
            "on_altstack",
            "sleep_on_altstack",
        ];
        assert_all(&folded, variant, "f-altstack", |t| t.chain(&signal), 0.999);
    }
}

/// Lines with all 500 frames of the recursion between two functions.
fn deep(thread: &Folded, root: &str, leaf: &str) -> Folded {
    let mut whole = thread.chain(&[root, "deep_step", leaf]);
    whole.lines.retain(|line| {
        line.frames
            .iter()
            .filter(|f| is_function(f, "deep_step"))
            .count()
            == 500
    });
    whole
}

#[track_caller]
fn assert_all(
    folded: &Folded,
    variant: Variant,
    comm: &str,
    right: impl Fn(&Folded) -> Folded,
    share: f64,
) {
    let thread = folded.thread(comm);
    let got = right(&thread).share_of(&thread);
    assert!(
        got > share,
        "{comm} ({variant:?}): {got:.4} of its time has the expected stack, not {share}:\n{}",
        thread.show()
    );
}

pub(crate) fn names(engine: Engine) {
    thread::scope(|scope| {
        for variant in Variant::BOTH {
            scope.spawn(move || {
                let stack = only_stack(engine, variant, "names.cpp", "cpp-names");
                assert_in_order(
                    &stack,
                    &[
                        "run_body(std::function<void (int)> const&)",
                        "shop::Counter<long, 7>::wait_for_items(int)",
                        "inlined_wait",
                    ],
                );
            });
            scope.spawn(move || {
                let stack = only_stack(engine, variant, "names.rs", "rust-names");
                assert_in_order(&stack, &["names::run_body", "wait_for_items", "nanosleep"]);
                let method = stack.iter().find(|f| f.contains("wait_for_items"));
                assert!(
                    method.is_some_and(|f| f.contains("names::shop::Counter<")
                        && f.contains("as names::shop::Stock>"))
                );
            });
        }
    });
}

/// The stack of a thread that is in one all the time.
fn only_stack(engine: Engine, variant: Variant, file: &'static str, comm: &str) -> Vec<String> {
    let target = RemoteProcess::start(&fixture(file, variant));
    let recording = Attach::new(engine, target.pid()).seconds(1.0).run();
    recording.assert_sound(engine);
    let folded = recording.folded();
    let thread = folded.thread(comm).states(&["[sleep]"]);
    let n_stacks = thread.lines.len();
    assert_eq!(n_stacks, 1, "{file} {variant:?}:\n{}", folded.show());
    thread.lines[0].frames.clone()
}

#[track_caller]
fn assert_in_order(stack: &[String], parts: &[&str]) {
    let mut frames = stack.iter();
    for part in parts {
        assert!(
            frames.any(|frame| frame.contains(part)),
            "{part} is not in its place in {stack:#?}"
        );
    }
}
