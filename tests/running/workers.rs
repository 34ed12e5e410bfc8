//! Threads that the kernel makes in a process: they have no user stack, and their kernel stack is theirs.

use wcprof_testkit::{
    Attach, CpuLog, CpuTime, Engine, Recording, RemoteProcess, Variant, alone, assert_within,
    fixture, skip, stood_still, thread_ids, wait_until,
};

/// The kind of work on the first screen.
const KIND: &str = "kernel worker of io_uring";

/// A thread, with the truth about its CPU time.
struct Logged {
    tid: i32,
    log: CpuLog,
}

pub(crate) fn uring(engine: Engine) {
    let _load = alone();
    let target = RemoteProcess::start(&fixture("uring.c", Variant::NoFramePointers));
    if target.keys.get("uring") != Some(&1) {
        skip(
            "uring",
            "io_uring is not permitted (kernel.io_uring_disabled), or not there",
        );
        return;
    }
    let pid = target.pid();
    let log = |tid| Logged {
        tid,
        log: CpuLog::of_thread(pid, tid, CpuTime::All),
    };
    // A worker has the name of its maker until it first runs.
    let threads = wait_until("a worker has no name of its own", || {
        let threads = thread_ids(pid);
        let n_makers = threads.values().filter(|name| *name == "submitter").count();
        (n_makers == 1).then_some(threads)
    });
    let (workers, users): (Vec<_>, Vec<_>) = threads
        .into_iter()
        .partition(|(_, name)| name.starts_with("iou-"));
    let workers: Vec<Logged> = workers.into_iter().map(|(tid, _)| log(tid)).collect();
    let users: Vec<Logged> = users.into_iter().map(|(tid, _)| log(tid)).collect();
    let whole = CpuLog::start(pid);
    let recording = Attach::new(engine, pid).seconds(3.0).run();
    recording.assert_sound(engine);
    if stood_still(&recording.verdict, "uring", engine) {
        return;
    }
    let (begin, end) = recording.stretch();
    for Logged { tid, log } in workers {
        assert_worker(&recording, engine, tid, log.cpus_between(begin, end));
    }
    // Workers come and go: what no other thread ran, they did.
    let (_, whole) = whole.cpus_between(begin, end);
    let of_users = users
        .into_iter()
        .map(|user| user.log.cpus_between(begin, end).1);
    let truth = 1.0 - of_users.sum::<f64>() / whole;
    let shown = kinds_of_work(&recording);
    let share = |kind: &str| {
        let found = shown.iter().find(|(shown, _)| shown == kind);
        found.map_or(0.0, |(_, share)| *share)
    };
    match engine.sees_running() {
        true => assert_within(KIND, share(KIND), truth, 0.05),
        false => assert!(share("not sampled") > 0.999, "{shown:?}"),
    }
}

/// Assert the time of one worker against what the kernel counted, and that it has kernel stacks and nothing of the
/// system call that made it.
#[track_caller]
fn assert_worker(recording: &Recording, engine: Engine, tid: i32, (least, most): (f64, f64)) {
    let mut own = recording.folded();
    own.lines.retain(|l| l.group.ends_with(&format!("/{tid}")));
    let on_cpu = own.states(&["[on-cpu]"]);
    let got = on_cpu.share_of(&own);
    assert!(
        (least - 0.02..=most + 0.02).contains(&got),
        "worker on-CPU: share {got:.4}, truth {least:.4} to {most:.4}:\n{}",
        own.show()
    );
    let is_known = |state: &str| {
        [
            "[on-cpu]",
            "[runnable]",
            "[steal/irq]",
            "[idle]",
            "[blocked]",
        ]
        .contains(&state)
    };
    assert!(
        own.lines.iter().all(|l| is_known(&l.state)),
        "{}",
        own.show()
    );
    let waits = own.waits();
    if waits.total() > 10_000 {
        let in_worker = waits.chain(&["io_wq_worker"]).total();
        let known = in_worker as f64 / waits.total() as f64;
        assert!(
            known > 0.98,
            "workers wait below io_wq_worker:\n{}",
            waits.show()
        );
        let moves = waits.chain(&["io_splice"]);
        let blocked = moves.states(&["[blocked]"]);
        assert_eq!(blocked.total(), moves.total(), "{}", moves.show());
        let idle = waits.states(&["[idle]"]);
        // One that is preempted while it looks for work is in a sleeper's state then.
        let known = idle.total() + blocked.total();
        assert!(
            known as f64 > 0.98 * waits.total() as f64,
            "{}",
            waits.show()
        );
    }
    if engine.sees_running() && on_cpu.total() > 100_000 {
        let roots = ["io_wq_worker", "io_sq_thread"];
        let known: u64 = roots.iter().map(|root| on_cpu.chain(&[root]).total()).sum();
        assert!(
            // The kernel's own unwinder does not get through all of its assembler.
            known as f64 > 0.9 * on_cpu.total() as f64,
            "run time of a worker has kernel stacks:\n{}",
            on_cpu.show()
        );
    }
}

/// Kinds of work that the first screen shows, with their shares.
#[track_caller]
fn kinds_of_work(recording: &Recording) -> Vec<(String, f64)> {
    let screen = recording.report(&[]);
    let lines = screen
        .lines()
        .skip_while(|l| !l.starts_with("WHERE CPU GOES"));
    let lines = lines.skip(1).take_while(|l| !l.is_empty());
    lines
        .map(|line| {
            let (share, rest) = line.split_once(" %  ").expect("a share");
            let share: f64 = share.trim().parse().expect("a number");
            let kind = [KIND, "not sampled"]
                .into_iter()
                .find(|kind| rest.starts_with(kind));
            (kind.unwrap_or(rest).to_owned(), share / 100.0)
        })
        .collect()
}
