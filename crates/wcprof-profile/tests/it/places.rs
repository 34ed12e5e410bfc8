//! Where a pool waits for work: idle is a place, found from the stacks of the pool.

use crate::support;

use support::{Maker, syscall, syscall_op};
use wcprof_profile::model::{Detail, Profile, State};
use wcprof_trace::model::ThreadId;

const LOOP: [&str; 2] = ["start_thread", "Worker::loop"];
const COND_WAIT: [&str; 1] = ["libc:pthread_cond_wait"];

/// One observation a call.
fn works(m: &mut Maker, thread: ThreadId, below: &[&str], n: usize) {
    for _ in 0..n {
        m.on_cpu(thread, &[&LOOP, below].concat(), 1);
    }
}

fn waits(m: &mut Maker, thread: ThreadId, below: &[&str], n: usize) {
    let stack = [&LOOP, below, &COND_WAIT].concat();
    for _ in 0..n {
        m.blocked(thread, syscall_op("futex", 137), &stack, 1);
    }
}

/// The state of the wait whose innermost function outside libc is `function`.
fn state_at(profile: &Profile, function: &str) -> State {
    let row = profile.rows.iter().find(|row| {
        let frames = row.stack.map(|id| &profile.stacks[id.0 as usize].frames);
        let names = frames.map(|f| {
            f.iter()
                .rev()
                .map(|f| &profile.functions[f.0 as usize].name)
        });
        row.wait.is_some() && names.is_some_and(|mut n| n.nth(1).is_some_and(|n| n == function))
    });
    row.expect("a wait there").state
}

/// Check that a wait in the loop is idle and one below a function that works is not, whichever is
/// longer; entering and leaving the wait is no work.
#[test]
fn below_work() {
    let mut m = Maker::new();
    let t = m.thread(1, "worker");
    works(&mut m, t, &["handle", "parse"], 8);
    works(&mut m, t, &COND_WAIT, 40);
    waits(&mut m, t, &[], 3);
    waits(&mut m, t, &["handle", "read_block"], 30);
    let profile = m.profile();
    assert_eq!(state_at(&profile, "Worker::loop"), State::Idle);
    assert_eq!(state_at(&profile, "read_block"), State::Blocked);
}

/// Check that a function around the loop's wait which hardly works does not make it work.
#[test]
fn quiet_branch() {
    let mut m = Maker::new();
    let t = m.thread(1, "worker");
    works(&mut m, t, &["handle"], 8);
    works(&mut m, t, &["next_job", "lock_queue"], 2);
    waits(&mut m, t, &["next_job"], 3);
    waits(&mut m, t, &["handle"], 3);
    let profile = m.profile();
    assert_eq!(state_at(&profile, "next_job"), State::Idle);
    assert_eq!(state_at(&profile, "handle"), State::Blocked);
}

/// Check that the loop that one thread of a pool shows holds for its other threads, also for one that
/// waits below work all the time.
#[test]
fn of_the_pool() {
    let mut m = Maker::new();
    let (a, b) = (m.thread(1, "worker-1"), m.thread(2, "worker-2"));
    works(&mut m, a, &["handle"], 8);
    waits(&mut m, a, &[], 3);
    waits(&mut m, b, &["handle", "ask_peer"], 90);
    let profile = m.profile();
    assert_eq!(state_at(&profile, "ask_peer"), State::Blocked);
}

/// Check that threads of one name that do different things are not held against each other.
#[test]
fn other_threads() {
    let mut m = Maker::new();
    let (a, b) = (m.thread(1, "app"), m.thread(2, "app"));
    works(&mut m, a, &["handle"], 20);
    waits(&mut m, b, &["Reaper::run"], 90);
    let profile = m.profile();
    assert_eq!(state_at(&profile, "Reaper::run"), State::PlaceUnknown);
}

/// Check that a pool that hardly ran, and stacks without a root, decide nothing; a rule does.
#[test]
fn unknown() {
    let mut m = Maker::new();
    let t = m.thread(1, "worker");
    works(&mut m, t, &["handle"], 2);
    waits(&mut m, t, &[], 90);
    waits(&mut m, t, &["handle"], 3);
    let timer = m.thread(2, "safe_timer");
    m.blocked(
        timer,
        syscall("epoll_wait"),
        &["CommonSafeTimer<>::timer_thread", "x", "libc:poll"],
        1,
    );
    let profile = m.profile();
    assert_eq!(state_at(&profile, "Worker::loop"), State::PlaceUnknown);
    assert_eq!(state_at(&profile, "handle"), State::PlaceUnknown);
    assert_eq!(state_at(&profile, "x"), State::Idle);
}

/// Check that the lines of a function, and what is inlined, do not hide a loop.
#[test]
fn whatever_the_detail() {
    let mut m = Maker::new();
    let t = m.thread(1, "worker");
    for line in 0..8 {
        let at_line = |name: &str| format!("{name} @ worker.cc:{line}");
        let handle = format!("{}+{}", at_line("parse"), at_line("handle"));
        let start = ["start_thread", &at_line("Worker::loop")];
        m.on_cpu(t, &[start[0], start[1], &handle], 1);
        let wait = [start[0], start[1], "libc:pthread_cond_wait"];
        m.blocked(t, syscall_op("futex", 137), &wait, 1);
        let below = [
            start[0],
            start[1],
            &at_line("handle"),
            "libc:pthread_cond_wait",
        ];
        m.blocked(t, syscall_op("futex", 137), &below, 1);
    }
    let n_functions = [Detail::Functions, Detail::Lines, Detail::Frames].map(|detail| {
        let profile = m.profile_of(detail);
        assert_eq!(state_at(&profile, "Worker::loop"), State::Idle);
        assert_eq!(state_at(&profile, "handle"), State::Blocked);
        profile.functions.len()
    });
    // Frames: `Worker::loop` and `parse`, which is inlined, have eight lines, `handle` has eight of its own.
    assert_eq!(n_functions, [5, 2 + 3 * 8, 2 + 3 * 8]);
}

/// Check that the loop of a main thread, which waits there and works in coroutines with a root of their own, is not that
/// of workers with the same name.
#[test]
fn of_another_kind() {
    let mut m = Maker::new();
    let (main, worker) = (m.thread(1, "qemu-img"), m.thread(2, "qemu-img"));
    for _ in 0..40 {
        m.on_cpu(main, &["__start_context", "submit"], 1);
        let stack = ["_start", "main_loop", "libc:ppoll"];
        m.blocked(main, syscall("ppoll"), &stack, 1);
    }
    works(&mut m, worker, &["read_block"], 12);
    waits(&mut m, worker, &["cond_timedwait"], 30);
    let profile = m.profile();
    assert_eq!(state_at(&profile, "main_loop"), State::Idle);
    assert_eq!(state_at(&profile, "cond_timedwait"), State::Idle);
}
