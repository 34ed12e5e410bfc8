//! Threads that run, or want to.

use wcprof_trace::model::Span;
use wcprof_types::ThreadState;

use wcprof_testkit::{
    Attach, CpuLog, Engine, Folded, Recording, RemoteProcess, Split, StopWatch, Variant, alone,
    assert_share, assert_within, fixture, interrupt, run_delay_ns, skip, stood_still,
    wait_for_run_time, wait_for_thread, wait_for_trace,
};

/// Threads that are left out are not taken for ones that came and went unseen.
pub(crate) fn left_out(engine: Engine) {
    let _load = alone();
    let target = RemoteProcess::start(&fixture("spin.c", Variant::NoFramePointers));
    for flags in [
        &["--threads", "spin-c-*"][..],
        &["--exclude-threads", "spinner"],
    ] {
        let recording = Attach::new(engine, target.pid())
            .seconds(1.5)
            .flags(flags)
            .run();
        recording.assert_sound(engine);
        let tables = recording.trace().0.tables;
        let names: Vec<&str> = tables.threads.iter().map(|t| t.name()).collect();
        assert_eq!(names, ["spin-c-nofp"], "{flags:?}");
    }
}

pub(crate) fn spinner(engine: Engine) {
    let _load = alone();
    for variant in Variant::BOTH {
        let mut target = RemoteProcess::start(&fixture("spin.c", variant));
        let watch = StopWatch::start(target.pid());
        let cpu = CpuLog::start(target.pid());
        let before = target.mark();
        let recording = Attach::new(engine, target.pid()).run();
        let after = target.mark();
        watch.assert_untouched();
        assert!(after.since(&before, "rounds") > 0, "the spinner spins");
        assert_eq!(
            after.since(&before, "stopped"),
            0,
            "the spinner never waited"
        );

        recording.assert_sound(engine);
        let folded = recording.folded().thread("spinner");
        let waits = folded.waits();
        assert_eq!(
            waits.total(),
            0,
            "a spinner is never blocked:\n{}",
            waits.show()
        );
        let on_cpu = folded.states(&["[on-cpu]"]);
        let (begin, end) = recording.stretch();
        let (least, most) = cpu.cpus_between(begin, end);
        let got = on_cpu.share_of(&folded);
        assert!(
            (least - 0.02..=most + 0.02).contains(&got),
            "spinner on-CPU: share {got:.4}, truth {least:.4} to {most:.4}"
        );
        if engine.sees_running() {
            let spinning = on_cpu.chain(&["spinner", "spin_for_ever"]);
            assert!(
                spinning.share_of(&on_cpu) > 0.98,
                "{variant:?}: run time should be in spin_for_ever:\n{}",
                on_cpu.show()
            );
        } else {
            assert_eq!(
                on_cpu.with_stack().total(),
                0,
                "running threads have no stack"
            );
        }
    }
}

pub(crate) fn cpu_split(engine: Engine) {
    let _load = alone();
    let mut target = RemoteProcess::start(&fixture("split_cpu.c", Variant::NoFramePointers));
    if !engine.sees_running() {
        let recording = Attach::new(engine, target.pid()).seconds(1.0).run();
        recording.assert_sound(engine);
        let burners = burners(&recording);
        assert_eq!(burners.states(&["[on-cpu]"]).with_stack().total(), 0);
        return;
    }
    let mut split = Split::default();
    add_burners(&mut split, engine, &mut target, 4.0);
    if !stood_still(&split.verdict(), "cpu_split", engine) {
        split.assert_wide("burn_seven");
    }
}

pub(crate) fn cpu_split_exact(engine: Engine) {
    if !engine.sees_running() {
        return;
    }
    let _load = alone();
    let mut target = RemoteProcess::start(&fixture("split_cpu.c", Variant::NoFramePointers));
    let mut split = Split::default();
    // Two idle CPUs give 10 000 samples in one round; what else runs here takes its part of them.
    while split.too_few() {
        add_burners(&mut split, engine, &mut target, 6.0);
        if stood_still(&split.verdict(), "cpu_split_exact", engine) {
            return;
        }
    }
    split.assert_exact("burn_seven");
}

fn add_burners(split: &mut Split, engine: Engine, target: &mut RemoteProcess, seconds: f64) {
    let (recording, before, after) = Attach::new(engine, target.pid())
        .seconds(seconds)
        .rate(997)
        .run_marked(target);
    recording.assert_sound(engine);
    let on_cpu = burners(&recording).states(&["[on-cpu]"]);
    let got = ["burn_seven", "burn_three"].map(|f| on_cpu.chain(&["burner", f]).total());
    let known = (got[0] + got[1]) as f64 / on_cpu.total().max(1) as f64;
    assert!(
        known > 0.95 - recording.verdict.stalled,
        "run time without its function:\n{}",
        on_cpu.show()
    );
    split.samples.add(&recording, |thread, state| {
        thread.starts_with("burner") && state == ThreadState::OnCpu
    });
    let truth = ["seven", "three"].map(|key| after.since(&before, key));
    split.add(&recording, got, truth);
}

/// The burning threads, which must never be blocked.
fn burners(recording: &Recording) -> Folded {
    let mut burners = recording.folded();
    burners.lines.retain(|l| l.comm().starts_with("burner-"));
    assert_eq!(burners.waits().total(), 0, "{}", burners.waits().show());
    burners
}

pub(crate) fn busy_a_tenth(engine: Engine) {
    let _load = alone();
    let mut target = RemoteProcess::start(&fixture("busy10.c", Variant::NoFramePointers));
    // Ten times the usual rate, so that the part it is busy in rests on 500 samples.
    let (recording, before, after) = Attach::new(engine, target.pid())
        .seconds(5.0)
        .rate(997)
        .run_marked(&mut target);
    recording.assert_sound(engine);
    let folded = recording.folded().thread("busy-10");
    let truth = after.since(&before, "busy") as f64 / after.since(&before, "wall") as f64;
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
            busy.share_of(&on_cpu) > 0.7,
            "run time should be in busy_part:\n{}",
            on_cpu.show()
        );
    }
}

pub(crate) fn starved(engine: Engine) {
    let _load = alone();
    let mut target = RemoteProcess::start(&fixture("starve.c", Variant::NoFramePointers));
    if target.keys.get("rt") != Some(&1) {
        skip(
            "starved",
            "needs CAP_SYS_NICE for a real-time thread, and two CPUs",
        );
        return;
    }
    let pid = target.pid();
    let tid = wait_for_thread(pid, "starved");
    let delay = run_delay_ns(pid, tid);
    let (child, folder) = Attach::new(engine, pid).seconds(0.0).spawn();
    wait_for_trace(&folder);
    target.send_line("HOG");
    target.answer("MARK");
    interrupt(&child);
    let recording = Recording::finish(child, folder);
    // What it waits at the end of the recording is counted when it runs again.
    wait_for_run_time(pid, tid, 1);
    let delay = run_delay_ns(pid, tid) - delay;
    // A thread robbed of its CPU at the very end looks like one that waits for it.
    let stalled = recording.verdict.stalled_ns;
    let truth = target.mark();
    recording.assert_sound(engine);
    assert!(truth.get("starved") > 280_000_000, "{truth:?}");

    let folded = recording.folded().thread("starved");
    assert_eq!(folded.waits().total(), 0, "{}", folded.waits().show());
    let runnable = folded.states(&["[runnable]"]).total() * 1000;
    assert!(
        runnable <= delay + stalled + 20_000_000,
        "runnable for {runnable} ns, the kernel says {delay} ns, CPUs stood still for {stalled} ns"
    );
    let (begin, end) = (truth.get("hog_begin"), truth.get("hog_end"));
    let inside = runnable_between(&recording, "starved", begin, end);
    assert!(
        inside + stalled >= 270_000_000,
        "runnable for {inside} ns of the 300 ms that it was starved in, CPUs stood still for \
         {stalled} ns:\n{}",
        folded.show()
    );
}

/// Runnable time of a thread that spans put between two moments of wall-clock time (nanoseconds since
/// 1970), or may have put there: a span says that its weight lies somewhere in it.
fn runnable_between(recording: &Recording, comm: &str, begin: u64, end: u64) -> u64 {
    let (trace, _) = recording.trace();
    let origin = trace.tables.header.started_unix_ns;
    let inside = |span: &Span| {
        let (from, to) = (origin + span.start.0, origin + span.end.0);
        let overlap = to.min(end).saturating_sub(from.max(begin));
        overlap.min(span.weight)
    };
    trace
        .spans
        .iter()
        .filter(|span| {
            trace.tables.threads[span.thread.0 as usize].name() == comm
                && span.state == ThreadState::Runnable
        })
        .map(inside)
        .sum()
}

pub(crate) fn churn(engine: Engine) {
    let _load = alone();
    let target = RemoteProcess::start(&fixture("churn.c", Variant::NoFramePointers));
    assert_no_cpu_time_lost(engine, target);
}

pub(crate) fn churn_saturated(engine: Engine) {
    let _load = alone();
    let _hog = RemoteProcess::start(&fixture("split_cpu.c", Variant::NoFramePointers));
    let target = RemoteProcess::start(&fixture("churn.c", Variant::NoFramePointers));
    assert_no_cpu_time_lost(engine, target);
}

/// Assert that all threads together show the CPU time that the process used, that threads which live on show
/// theirs, and that no more than the time of short-lived ones is without a thread.
fn assert_no_cpu_time_lost(engine: Engine, mut target: RemoteProcess) {
    let cpu = CpuLog::start(target.pid());
    let (recording, before, after) = Attach::new(engine, target.pid())
        .seconds(4.0)
        .run_marked(&mut target);
    let (begin, end) = recording.stretch();
    let (least, most) = cpu.cpus_between(begin, end);
    recording.assert_sound(engine);
    let on_cpu = recording.folded().states(&["[on-cpu]"]);
    let length = (end - begin) as f64;
    let cpus = |folded: &Folded| folded.total() as f64 * 1000.0 / length;
    let got = cpus(&on_cpu);
    assert!(
        (least - 0.02..=most + 0.02).contains(&got),
        "{got:.4} of a CPU shown, the process used {least:.4} to {most:.4}:\n{}",
        on_cpu.show()
    );
    let steady = on_cpu.thread("steady");
    let steady_truth = after.since(&before, "steady") as f64 / length;
    assert_within("CPUs of steady", cpus(&steady), steady_truth, 0.02);
    assert!(steady_truth > 0.02, "steady gets a CPU: {steady_truth}");
    // What is left of the process's time is that of short-lived threads, their birth and their end.
    let exited = on_cpu.thread("[exited threads, not sampled]");
    let bound = most - steady_truth + 0.02;
    assert!(
        cpus(&exited) <= bound,
        "{:.4} of a CPU without a thread, {bound:.4} is of short-lived ones:\n{}",
        cpus(&exited),
        on_cpu.show()
    );
    // A thread of 1 ms or longer is met by one tick of 10 ms in ten.
    let threads = recording.trace().0.tables.threads;
    let n_met = threads.iter().filter(|t| t.name() == "short-lived").count();
    let n_born = after.since(&before, "born");
    assert!(
        n_met as u64 >= n_born / 50,
        "{n_met} of {n_born} short-lived threads were met"
    );
}
