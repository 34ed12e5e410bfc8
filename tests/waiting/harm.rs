//! That a target does not notice wcprof, nor its sudden end.

use std::thread;
use std::time::Duration;

use wcprof_testkit::{
    Attach, Engine, Recording, RemoteProcess, StopWatch, Variant, fixture, has_capability,
    interrupt, kill_worker, skip, thread_capabilities, voluntary_switches, wait_for_epoll,
    wait_for_trace, wait_until, worker,
};

/// Waiting threads are not woken, stopped or traced, and no wait ends with EINTR.
pub(crate) fn waiting_threads(engine: Engine) {
    let mut target = RemoteProcess::start(&fixture("eintr.c", Variant::NoFramePointers));
    let pid = target.pid();
    wait_for_epoll(pid, 10);
    let switches = voluntary_switches(pid);
    let watch = StopWatch::start(pid);
    let recording = Attach::new(engine, pid).rate(997).run();
    watch.assert_untouched();
    // Stronger than no EINTR: every one of them slept all the time.
    assert_eq!(voluntary_switches(pid), switches);
    let truth = target.mark();
    assert_eq!((truth.get("eintr"), truth.get("other")), (0, 0));
    recording.assert_sound(engine);
}

/// While it records, wcprof holds the capabilities that it still needs, and no others.
pub(crate) fn capabilities(engine: Engine) {
    if !has_capability() {
        return skip("harm::capabilities", "needs root");
    }
    const NET_ADMIN: u64 = 1 << 12;
    const SYS_PTRACE: u64 = 1 << 19;
    const SYS_ADMIN: u64 = 1 << 21;
    let target = RemoteProcess::start(&fixture("eintr.c", Variant::NoFramePointers));
    let (child, folder) = Attach::new(engine, target.pid())
        .flags(&["--no-kernel"])
        .seconds(0.0)
        .spawn();
    wait_for_trace(&folder);
    let held: Vec<(String, u64)> = thread_capabilities(worker(&child));
    interrupt(&child);
    Recording::finish(child, folder);
    assert!(held.len() >= 3, "{held:?}");
    for (thread, held) in held {
        assert_eq!(held & (NET_ADMIN | SYS_ADMIN), 0, "{thread}: {held:#x}");
        let reads = matches!(thread.as_str(), "wcprof-sampler" | "wcprof-recorder");
        assert!(!reads || held & SYS_PTRACE != 0, "{thread}: {held:#x}");
    }
}

/// `kill -9` of wcprof at random moments leaves the target as it was.
pub(crate) fn killed(engine: Engine) {
    kill_wcprof(engine, 8);
}

/// The same, more often.
pub(crate) fn killed_often(engine: Engine) {
    kill_wcprof(engine, 50);
}

fn kill_wcprof(engine: Engine, n_rounds: u32) {
    let mut waiting = RemoteProcess::start(&fixture("eintr.c", Variant::NoFramePointers));
    let mut spinning = RemoteProcess::start(&fixture("spin.c", Variant::NoFramePointers));
    wait_for_epoll(waiting.pid(), 10);
    let switches = voluntary_switches(waiting.pid());
    let mut rounds = spinning.mark();
    let watches = [&waiting, &spinning].map(|target| StopWatch::start(target.pid()));
    // A fixed seed: the moments are random to wcprof, not to whoever repeats the test.
    let mut random = 0x2545_f491_4f6c_dd1d_u64;
    for round in 0..n_rounds {
        let target = if round % 2 == 0 { &waiting } else { &spinning };
        let (mut child, folder) = Attach::new(engine, target.pid())
            .rate(499)
            .seconds(0.0)
            .spawn();
        random = random
            .wrapping_mul(6_364_136_223_846_793_005)
            .wrapping_add(1);
        if round % 5 != 0 {
            // One in five dies while it starts, the others while they record.
            wait_for_trace(&folder);
        }
        thread::sleep(Duration::from_millis((random >> 33) % 100));
        kill_worker(&mut child);
        let spins = || {
            let now = spinning.mark();
            (now.since(&rounds, "rounds") > 0).then_some(now)
        };
        rounds = wait_until(format!("round {round}: the spinner does not spin"), spins);
    }
    for watch in watches {
        watch.assert_untouched();
    }
    assert_eq!(voluntary_switches(waiting.pid()), switches);
    let truth = waiting.mark();
    assert_eq!((truth.get("eintr"), truth.get("other")), (0, 0));
    assert_eq!(
        spinning.mark().get("stopped"),
        0,
        "the spinner never waited"
    );
}
