//! Who held the locks that threads waited for, out of a trace.

use crate::support;

use support::Maker;
use wcprof_profile::model::{LockKind, Profile, State, UnknownHolder};
use wcprof_profile::{LockTimes, ProfileBuilder, Rules};
use wcprof_trace::model::{LockLook, LockOwner, OwnerState, ProcessId, StackId, ThreadId, WaitId};
use wcprof_types::lock::FutexWords;
use wcprof_types::{Avma, StackEnd, TimeNs, Wait};

const LOCK: Avma = Avma(0x5000);
const MS: u64 = 1_000_000;

fn futex(op: u32) -> Wait {
    Wait {
        futex: Some(LOCK),
        ..support::syscall_op("futex", op)
    }
}

/// One look at a mutex held by `thread`, whose number in its own namespace is 77.
fn look(since: u64, until: u64, thread: ThreadId, stack: StackId, wait: WaitId) -> LockLook {
    LockLook {
        process: ProcessId(0),
        address: LOCK,
        since: TimeNs(since * MS),
        until: TimeNs(until * MS),
        n_looks: 1,
        words: FutexWords([2, 1, 77, 1, 0, 0, 0]),
        owners: vec![LockOwner {
            word: 2,
            thread,
            state: OwnerState::Blocked,
            moved: false,
            stack: Some(stack),
            wait: Some(wait),
        }],
    }
}

fn profile(recording: &Maker) -> Profile {
    let times = LockTimes::from_tables(&recording.tables);
    let mut builder = ProfileBuilder::new().with_locks(times);
    for span in &recording.spans {
        builder.add_span(span);
    }
    let rules = Rules::builtin().expect("the built-in rules are valid");
    builder.finish(&recording.tables, None, &rules)
}

/// Check that lost time is shared out to the stacks that the holder had, that the holder's state
/// is told by what it waited in, and that a condition variable at the same address is no lock.
#[test]
fn holders() {
    let mut r = Maker::new();
    let waiter = r.thread(1, "waiter");
    let holder = r.thread(2, "holder");
    let idle = r.thread(3, "idle");
    let disk = r.stack(&["run", "commit", "libc:fdatasync"], StackEnd::Root);
    let nap = r.stack(&["run", "nap", "libc:clock_nanosleep"], StackEnd::Root);
    let sync = r.wait(support::syscall("fdatasync"));
    let sleep = r.wait(support::syscall("clock_nanosleep"));
    r.blocked(
        waiter,
        futex(128),
        &[
            "work",
            "get",
            "libc:pthread_mutex_lock",
            "libc:__lll_lock_wait",
        ],
        100 * MS,
    );
    r.blocked(
        idle,
        futex(137),
        &["loop", "libc:pthread_cond_wait"],
        100 * MS,
    );
    r.tables.locks.looks = vec![
        look(0, 60, holder, disk, sync),
        look(60, 100, holder, nap, sleep),
    ];
    let profile = profile(&r);
    let rows: Vec<_> = profile
        .locks
        .held
        .iter()
        .map(|row| {
            let held = row.holder.expect("the holder is known");
            assert_eq!((row.thread, row.kind), (0, LockKind::Mutex));
            assert_eq!(
                (row.address, held.tid.0, held.uncertain),
                (Some(LOCK), 2, false)
            );
            (held.state, row.weight)
        })
        .collect();
    assert_eq!(rows, [(State::Disk, 60 * MS), (State::Sleep, 40 * MS)]);
    // Rows do not tell locks apart.
    assert!(profile.waits.iter().all(|wait| wait.futex.is_none()));
}

/// Check that a waiter that had moved makes its holder uncertain, that other kinds of lock have
/// none, and that without looks all lock time is there and unknown.
#[test]
fn doubts() {
    let mut r = Maker::new();
    let waiter = r.thread(1, "waiter");
    let holder = r.thread(2, "holder");
    let other = r.thread(3, "other");
    let nap = r.stack(&["run", "nap", "libc:clock_nanosleep"], StackEnd::Root);
    let sleep = r.wait(support::syscall("clock_nanosleep"));
    let in_lock = ["get", "libc:pthread_mutex_lock", "libc:__lll_lock_wait"];
    r.blocked(waiter, futex(128), &in_lock, 10 * MS);
    let rust = ["get", "std::sys::sync::mutex::futex::Mutex::lock_contended"];
    r.blocked(other, futex(128), &rust, 10 * MS);
    let without = profile(&r);
    let why: Vec<_> = without
        .locks
        .held
        .iter()
        .map(|row| row.holder.err())
        .collect();
    assert_eq!(
        why,
        [
            Some(UnknownHolder::NotLooked),
            Some(UnknownHolder::NotRecorded)
        ]
    );
    assert_eq!(
        without.locks.held.iter().map(|row| row.weight).sum::<u64>(),
        20 * MS
    );
    r.tables.locks.looks = vec![look(0, 10, holder, nap, sleep)];
    r.tables.locks.moved = vec![(waiter, TimeNs(10 * MS))];
    let with = profile(&r);
    assert!(with.locks.held[0].holder.expect("known").uncertain);
    assert_eq!(
        with.locks.held[1].holder.err(),
        Some(UnknownHolder::NotRecorded)
    );
}
