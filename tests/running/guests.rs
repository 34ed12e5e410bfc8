//! Virtual CPUs: what runs in a guest and what in the kernel for it, against what the kernel counts.

use std::time::Instant;

use serde_json::Value;
use wcprof_testkit::{
    Attach, CpuLog, CpuTime, Engine, Folded, Recording, RemoteProcess, Variant, alone, fixture,
    printed, skip, stood_still, tolerance, wait_for_thread,
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

/// What may be waits for a CPU of the time of a guest whose exits are counted.
const MAX_STARVED: f64 = 0.2;

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
        let began = (Instant::now(), target.mark());
        let Some(recording) = follows_kernel(engine, mode, &target) else {
            return;
        };
        let seconds = began.0.elapsed().as_secs_f64();
        let mark = target.mark();
        let json = printed("report", &recording.path(), &["--json"]);
        let json: Value = serde_json::from_str(&json).expect("JSON");
        let exits = &json["headline"]["vm_exits"];
        let starved = starved_share(&json["headline"]);
        // A burst is of a virtual CPU that runs: of one that waits for a CPU it says what it does, not how often.
        let a_second = |key| match starved > MAX_STARVED {
            true => f64::NAN,
            false => (mark.get(key) - began.1.get(key)) as f64 / seconds,
        };
        if starved > MAX_STARVED && !exits.is_null() {
            let percent = 100.0 * starved;
            let why = format!("rates are not compared: no CPU for {percent:.0} % of {mode}'s time");
            skip("vcpus", &why);
        }
        match mode {
            // Without exits nothing is said, and so it is where nothing can be counted.
            "spin-long" => {}
            _ if exits.is_null() => skip("vcpus", "KVM's counts and tracepoints cannot be read"),
            "port" => assert_reason(mode, "io", exits, a_second("exits")),
            "mmio" => assert_reason(mode, "mmio", exits, a_second("exits")),
            "wake" => assert_reason(mode, "halt", exits, a_second("interrupts")),
            "kernel-port" => assert_reason(mode, "io", exits, f64::NAN),
            _ => assert!(exits["reasons"]["io"].is_null(), "{mode}: {exits}"),
        }
    }
}

/// Of the time in which threads run or want to: the part in which they wait for a CPU.
fn starved_share(headline: &Value) -> f64 {
    let ns = |state: &str| headline["states_ns"][state].as_f64().unwrap_or(0.0);
    let wants: f64 = ["on-cpu", "guest", "vm-exit", "runnable"]
        .map(ns)
        .iter()
        .sum();
    ns("runnable") / wants.max(1.0)
}

/// Asserts that this is what the guest does, as often as the fixture counts. A virtual CPU does not run all the time, so that a burst
/// may be of more or less than its share.
#[track_caller]
fn assert_reason(mode: &str, reason: &str, exits: &Value, truth: f64) {
    let reasons = exits["reasons"].as_object().expect("reasons");
    let rate = |reason: &str| reasons.get(reason).and_then(Value::as_f64).unwrap_or(0.0);
    for other in ["io", "mmio", "msr", "cpuid", "hypercall"] {
        // An interrupt's handler ends it by a port.
        if other != reason && mode != "wake" {
            assert!(rate(other) * 50.0 < rate(reason), "{mode}: {exits}");
        }
    }
    let is_right = truth.is_nan() || (truth / 2.0..=truth * 2.0).contains(&rate(reason));
    assert!(is_right, "{mode}: {exits}, truth {truth:.0} a second");
    // All exits to the program are exits to user space.
    let to_program = if mode == "port" || mode == "mmio" {
        rate(reason)
    } else {
        0.0
    };
    let user = reasons.get("userspace").and_then(Value::as_f64);
    let is_close = user.is_none_or(|user| (user - to_program).abs() <= 0.05 * rate(reason) + 1.0);
    assert!(is_close, "{mode}: {exits}");
}

/// Asserts the time of the fixture's first virtual CPU; `None` when the machine stood still.
fn follows_kernel(engine: Engine, mode: &str, target: &RemoteProcess) -> Option<Recording> {
    let pid = target.pid();
    let tid = wait_for_thread(pid, "CPU 0/KVM");
    let log = |time| CpuLog::of_thread(pid, tid, time);
    let (all, user, in_guest) = (log(CpuTime::All), log(CpuTime::User), log(CpuTime::Guest));
    let recording = Attach::new(engine, pid).seconds(2.0).run();
    recording.assert_sound(engine);
    if stood_still(&recording.verdict, "vcpus", engine) {
        return None;
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
    Some(recording)
}

/// Assert that the time of a virtual CPU has the stack of the thread that runs it.
#[track_caller]
fn assert_in_vcpu(vcpu: &Folded) {
    let in_call = vcpu.states(&["[guest]", "[vm-exit]"]);
    let known = in_call.chain(&["run_vcpu"]).total();
    assert!(known * 100 >= in_call.total() * 98, "{}", in_call.show());
}
