//! A futex wait that no name explains: with fewer names a state becomes unknown, and never another state.

use crate::support;

use support::{Maker, syscall_op};
use wcprof_profile::model::{Profile, State};
use wcprof_trace::model::ThreadId;

/// A pool that waits at the top of its loop, and below a function that works.
fn pool(maker: &mut Maker, thread: ThreadId, wait: &[&str]) {
    let worker = ["start_thread", "Worker::run"];
    for _ in 0..20 {
        maker.on_cpu(thread, &[&worker[..], &["handle"]].concat(), 1);
    }
    for below in [&[][..], &["handle"]] {
        for _ in 0..5 {
            let stack = [&worker[..], below, wait].concat();
            maker.blocked(thread, syscall_op("futex", 137), &stack, 1);
        }
    }
}

/// The states of the waits at the loop and below work.
fn states(profile: &Profile) -> [State; 2] {
    let state = |at_work: bool| {
        let row = profile.rows.iter().find(|row| {
            let stack = row.stack.map(|id| &profile.stacks[id.0 as usize]);
            let frames = stack.into_iter().flat_map(|stack| &stack.frames);
            let mut names = frames.map(|f| profile.functions[f.0 as usize].name.as_str());
            row.wait.is_some() && at_work == names.any(|name| name == "handle")
        });
        row.expect("a wait there").state
    };
    [state(false), state(true)]
}

/// Check what a wait is at the loop and below work, with names and with fewer.
#[test]
fn fewer_names() {
    let unknown = [State::PlaceUnknown; 2];
    let by_place = [State::Idle, State::Blocked];
    for (wait, expected) in [
        // Explained: a condition, and glibc's semaphore by the name of what goes on in its local function.
        (&["libc:pthread_cond_wait", "?8000"][..], by_place),
        (&["libc:sem_wait", "?8000"], by_place),
        (&["libc:pthread_rwlock_rdlock", "?8000"], [State::Lock; 2]),
        // The program's own futex, all named: not of a lock, or perhaps of one.
        (&["libc:syscall"], by_place),
        (&["ring_wait", "libc:syscall"], by_place),
        (
            &[
                "Queue<std::mutex>::pop(std::unique_lock<std::mutex>&)",
                "libc:syscall",
            ],
            by_place,
        ),
        (&["Block::clock_wait()", "libc:syscall"], by_place),
        (&["SlimMutex::acquire()", "libc:syscall"], unknown),
        (&["raw_rwlock_read_slow", "libc:syscall"], unknown),
        // A name is missing.
        (&["?7000", "libc:syscall"], unknown),
        (&["ring_wait", "?8000"], unknown),
        (&["?8000"], unknown),
        (&["?8000", "?9000"], unknown),
    ] {
        let mut maker = Maker::new();
        let thread = maker.thread(101, "worker");
        pool(&mut maker, thread, wait);
        assert_eq!(states(&maker.profile()), expected, "{wait:?}");
    }
}

/// Check that a wait which a rule calls unknown stays that, whatever the pool shows: CPython's locks and queues.
#[test]
fn unknown_by_rule() {
    let mut maker = Maker::new();
    let thread = maker.thread(101, "python3");
    let wait = ["PyThread_acquire_lock_timed", "libc:sem_clockwait"];
    pool(&mut maker, thread, &wait);
    assert_eq!(states(&maker.profile()), [State::PlaceUnknown; 2]);
}

/// The states of a condition that a function of `program` waits for, the first of its functions that has a name or none.
fn condition_in(program: &str, function: &str) -> [State; 2] {
    let mut maker = Maker::new();
    let (libc, other) = ("/lib/libc.so.6", program);
    let paths = match function.starts_with('?') {
        true => [libc, other],
        false => [other, libc],
    };
    for (module, path) in maker.tables.modules.iter_mut().zip(paths) {
        module.path = path.into();
    }
    let thread = maker.thread(101, "worker");
    let wait = match function.starts_with('?') {
        true => [function, "pthread_cond_timedwait"],
        false => [function, "libc:pthread_cond_timedwait"],
    };
    pool(&mut maker, thread, &wait);
    states(&maker.profile())
}

/// Check what a condition is that an interpreter waits for in a function with or without a name, and that one of an
/// extension and one of a program without any name are not that.
#[test]
fn conditions_of_interpreters() {
    let (python, ruby) = ("/usr/bin/python3.11", "/usr/lib/libruby-3.1.so.3.1.2");
    let extension = "/usr/lib/numpy/_core.so";
    let unknown = [State::PlaceUnknown; 2];
    assert_eq!(condition_in(python, "?7000"), [State::Lock; 2]);
    assert_eq!(condition_in(python, "drop_gil"), [State::Lock; 2]);
    assert_eq!(condition_in(ruby, "?7000"), unknown);
    assert_eq!(condition_in(ruby, "rb_native_cond_wait"), unknown);
    assert_eq!(
        condition_in(extension, "wait_for_pool"),
        [State::Idle, State::Blocked]
    );
    let mut maker = Maker::new();
    maker.tables.modules[1].path = python.into();
    let thread = maker.thread(101, "worker");
    pool(&mut maker, thread, &["?8000"]);
    assert_eq!(states(&maker.profile()), unknown);
}
