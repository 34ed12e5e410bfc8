//! Kernel stacks below user stacks.

use std::process::{Command, Stdio};

use wcprof_testkit::{
    Attach, Engine, Recording, RemoteProcess, Variant, fixture, interrupt, output_folder, skip,
    wait_for_run_time, wait_for_trace,
};

/// Thread, its user function, what can be the kernel's function below it: names differ between kernels.
const WAITS: [(&str, &str, &[&str]); 5] = [
    (
        "w-sleep",
        "wait_in_sleep",
        &["hrtimer_nanosleep", "do_nanosleep"],
    ),
    ("w-pipe", "wait_in_pipe", &["pipe_read", "anon_pipe_read"]),
    (
        "w-cond",
        "wait_in_cond",
        &["futex_wait", "futex_wait_queue", "__futex_wait"],
    ),
    ("w-epoll", "wait_in_epoll", &["ep_poll", "do_epoll_wait"]),
    ("w-net", "wait_in_recv", &["unix_stream_read_generic"]),
];

pub(crate) fn blocked(engine: Engine) {
    if !kernel_addresses_are_shown("kernel::blocked") {
        return;
    }
    let target = RemoteProcess::start_command(
        Command::new(fixture("waits.c", Variant::NoFramePointers)).arg(output_folder()),
    );
    let recording = Attach::new(engine, target.pid())
        .seconds(1.0)
        .flags(&["--kernel"])
        .run();
    recording.assert_sound(engine);
    let folded = recording.folded_with_kernel();
    let without = recording.folded();
    for (comm, user, kernel) in WAITS {
        let thread = folded.thread(comm);
        let right = kernel.iter().map(|k| thread.chain(&[user, k]).total());
        let share = right.max().unwrap_or(0) as f64 / thread.total().max(1) as f64;
        assert!(
            share > 0.99,
            "{comm} should be in {kernel:?}:\n{}",
            thread.show()
        );
        // The entry code lies between the two.
        let entered = thread.chain(&[user, "do_syscall_64"]).share_of(&thread);
        assert!(entered > 0.99, "{}", thread.show());
        // Hidden, the same time has the same state and the user stack alone.
        let hidden = without.thread(comm);
        assert!(
            hidden.chain(&["do_syscall_64"]).lines.is_empty(),
            "{}",
            hidden.show()
        );
        let states = |f: &wcprof_testkit::Folded| {
            f.lines.iter().map(|l| l.state.clone()).collect::<Vec<_>>()
        };
        assert_eq!(states(&thread)[0], states(&hidden)[0]);
        assert_eq!(thread.total(), hidden.total());
    }
}

pub(crate) fn running(engine: Engine) {
    if !engine.sees_running() || !kernel_addresses_are_shown("kernel::running") {
        return;
    }
    let mut dd = Command::new("dd")
        .args(["if=/dev/zero", "of=/dev/null", "bs=1M", "status=none"])
        .stdin(Stdio::null())
        .spawn()
        .expect("dd starts");
    let pid = dd.id() as i32;
    let attach = Attach::new(engine, pid).seconds(0.0).flags(&["--kernel"]);
    let (child, folder) = attach.spawn();
    wait_for_trace(&folder);
    wait_for_run_time(pid, pid, 500_000_000);
    interrupt(&child);
    let recording = Recording::finish(child, folder);
    dd.kill().expect("dd runs");
    dd.wait().expect("dd can be waited for");
    recording.assert_sound(engine);
    let on_cpu = recording
        .folded_with_kernel()
        .states(&["[on-cpu]"])
        .with_stack();
    let reads = on_cpu.chain(&["read", "do_syscall_64", "vfs_read", "read_zero"]);
    assert!(
        reads.share_of(&on_cpu) > 0.5,
        "dd should copy zeros most of its time:\n{}",
        on_cpu.show()
    );
}

/// Says so when not.
fn kernel_addresses_are_shown(test: &str) -> bool {
    let list = std::fs::read_to_string("/proc/kallsyms").unwrap_or_default();
    let shown = list
        .lines()
        .any(|line| !line.starts_with("0000000000000000"));
    if !shown {
        skip(
            test,
            "/proc/kallsyms hides addresses; run the tests as root, with kernel.kptr_restrict 1 or 0",
        );
    }
    shown
}
