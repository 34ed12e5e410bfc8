//! How a recording ends when it does not end by its duration.

use std::thread;
use std::time::Duration;

use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use wcprof_trace::Ending;

use crate::common::{
    Attach, Engine, Recording, RemoteProcess, Variant, fixture, quiet, wait_for_trace,
};

/// Long enough to hold a few dozen samples.
const A_WHILE: Duration = Duration::from_millis(700);

/// Record for ever, do something to the target or to wcprof after a while, and take what comes.
fn recording_that_ends(
    engine: Engine,
    target: &mut RemoteProcess,
    end: impl FnOnce(&mut RemoteProcess, i32),
) -> Recording {
    let (child, folder) = Attach::new(engine, target.pid()).seconds(0.0).spawn();
    wait_for_trace(&folder);
    thread::sleep(A_WHILE);
    end(target, child.id() as i32);
    Recording::finish(child, folder)
}

#[track_caller]
fn assert_kept(recording: &Recording, reason: &str, comm: &str, function: &str) {
    let (trace, ending) = recording.trace();
    assert_eq!(ending, Ending::Clean);
    let stats = &trace.tables.stats;
    assert!(stats.complete);
    assert!(
        stats.end_reason.contains(reason),
        "ended by {:?}",
        stats.end_reason
    );
    // Names are saved also when the target is gone.
    let thread = recording.folded().thread(comm);
    let right = thread.chain(&[function]);
    assert!(
        right.total() > 300_000,
        "little time is kept:\n{}",
        thread.show()
    );
    assert!(right.share_of(&thread) > 0.99, "{}", thread.show());
}

pub(crate) fn renamed(engine: Engine) {
    let _load = quiet();
    let mut target = RemoteProcess::start(&fixture("rename.c", Variant::NoFramePointers));
    let (child, folder) = Attach::new(engine, target.pid()).seconds(2.5).spawn();
    wait_for_trace(&folder);
    thread::sleep(A_WHILE);
    target.tell("RENAME");
    target.answer("MARK");
    let recording = Recording::finish(child, folder);
    recording.assert_sound(engine);
    let folded = recording.folded();
    let thread = folded.thread("new-name");
    let sleeping = thread.chain(&["named_sleep"]);
    assert!(sleeping.total() > 2_400_000, "{}", folded.show());
    assert_eq!(folded.thread("old-name").total(), 0);
}

pub(crate) fn target_exits(engine: Engine) {
    let _load = quiet();
    let mut target = RemoteProcess::start(&fixture("eintr.c", Variant::NoFramePointers));
    let recording = recording_that_ends(engine, &mut target, |target, _| {
        assert!(target.close().success());
    });
    assert_kept(&recording, "exited", "waiter", "waiter");
}

pub(crate) fn target_execs(engine: Engine) {
    let _load = quiet();
    let mut target = RemoteProcess::start(&fixture("exec.c", Variant::NoFramePointers));
    let recording = recording_that_ends(engine, &mut target, |target, _| {
        target.tell("EXEC");
        target.answer("EXECED");
    });
    assert_kept(&recording, "exec", "before-exec", "sleep_before_exec");
}

pub(crate) fn interrupted(engine: Engine) {
    let _load = quiet();
    let target = &mut RemoteProcess::start(&fixture("eintr.c", Variant::NoFramePointers));
    let recording = recording_that_ends(engine, target, |_, wcprof| {
        kill(Pid::from_raw(wcprof), Signal::SIGINT).expect("wcprof runs");
    });
    recording.assert_sound(engine);
    assert_kept(&recording, "interrupted", "waiter", "waiter");
    let observed = recording.trace().0.tables.stats.duration.0;
    assert!(observed > 600_000_000, "{observed} ns until Ctrl-C");
}
