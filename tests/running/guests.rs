//! Virtual CPUs: what runs in a guest and what in the kernel for it, against what the kernel counts.

use wcprof_testkit::{
    Attach, CpuLog, CpuTime, Engine, Folded, RemoteProcess, Variant, alone, fixture, skip,
    stood_still, tolerance, wait_for_thread,
};

/// Modes of the fixture. Whether a guest runs at all is what the kernel counts: a paravirtual KVM emulates real mode.
const MODES: [&str; 6] = [
    "spin-real",
    "spin-long",
    "port",
    "kernel-port",
    "mmio",
    "wake",
];

pub(crate) fn vcpus(engine: Engine) {
    let _load = alone();
    let mut target = RemoteProcess::start(&fixture("vcpu.c", Variant::NoFramePointers));
    if target.keys.get("kvm") != Some(&1) {
        skip("vcpus", "needs /dev/kvm");
        return;
    }
    for mode in MODES {
        target.send_line(mode);
        target.answer("MARK");
        if !follows_kernel(engine, mode, &target) {
            return;
        }
    }
}

/// Asserts the time of the fixture's first virtual CPU; false when the machine stood still.
fn follows_kernel(engine: Engine, mode: &str, target: &RemoteProcess) -> bool {
    let pid = target.pid();
    let tid = wait_for_thread(pid, "CPU 0/KVM");
    let log = |time| CpuLog::of_thread(pid, tid, time);
    let (all, user, in_guest) = (log(CpuTime::All), log(CpuTime::User), log(CpuTime::Guest));
    let recording = Attach::new(engine, pid).seconds(2.0).run();
    recording.assert_sound(engine);
    if stood_still(&recording.verdict, "vcpus", engine) {
        return false;
    }
    let (begin, end) = recording.stretch();
    let all = all.cpus_between(begin, end);
    // At least what the kernel counts as the guest's, and at most all that is not the kernel's.
    let in_guest = (
        in_guest.cpus_between(begin, end).0,
        user.cpus_between(begin, end).1,
    );
    let folded = recording.folded();
    let halted = folded.thread("CPU 1/KVM");
    let idle = halted.states(&["[idle]"]).share_of(&halted);
    assert!(idle > 0.99, "a halted vCPU is idle:\n{}", halted.show());
    let vcpu = folded.thread("CPU 0/KVM");
    let share = |states: &[&str]| vcpu.states(states).share_of(&vcpu);
    let assert = |what: &str, got: f64, (least, most): (f64, f64), slack: f64| {
        assert!(
            (least - slack..=most + slack).contains(&got),
            "{mode}: {what}: share {got:.4}, truth {least:.4} to {most:.4}, slack {slack:.4}:\n{}",
            vcpu.show()
        );
    };
    let running = ["[on-cpu]", "[guest]", "[vm-exit]"];
    assert("on a CPU", share(&running), all, 0.02);
    // The kernel counts whole scheduler ticks, so that both sides are samples.
    let n_samples = (2.0 * 99.0 * share(&running)) as u64;
    let slack = tolerance(in_guest.1, n_samples) + recording.verdict.stalled;
    assert("in the guest", share(&["[guest]"]), in_guest, slack);
    let waits = vcpu.waits();
    assert_eq!(
        waits.states(&["[idle]"]).total(),
        waits.total(),
        "{mode}: a halt is idle:\n{}",
        waits.show()
    );
    if engine.sees_running() {
        // The fixture's own loop takes a few percent where it serves the exits.
        let user = share(&["[on-cpu]"]);
        assert!(
            user < 0.12,
            "{mode}: in the fixture itself {user:.4}:\n{}",
            vcpu.show()
        );
        assert_in_vcpu(&vcpu);
    } else {
        assert_eq!(
            vcpu.states(&["[vm-exit]"]).total(),
            0,
            "nobody sees the system call"
        );
    }
    true
}

/// Assert that the time of a virtual CPU has the stack of the thread that runs it.
#[track_caller]
fn assert_in_vcpu(vcpu: &Folded) {
    let in_call = vcpu.states(&["[guest]", "[vm-exit]"]);
    let known = in_call.chain(&["run_vcpu"]).total();
    assert!(known * 100 >= in_call.total() * 98, "{}", in_call.show());
}
