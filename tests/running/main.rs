//! The built `wcprof` against live processes that need the CPUs: these tests run one at a time.
//!
//! `tests/README.md` has the table of which assertions hold for which engine.
#![forbid(unsafe_code)]

mod ahead;
mod cpu;
mod demo;
mod guests;
mod limits;
mod operations;
mod polling;
mod stripped;
mod workers;

wcprof_testkit::engine_tests! {
    each {
        cpu::left_out: "Check that the CPU time of threads which are left out is not that of exited ones.",
        cpu::spinner: "Check that a spinner is on-CPU or runnable, never blocked, and not disturbed.",
        cpu::busy_a_tenth: "Check a thread that is busy 10 % of the time.",
        cpu::cpu_split: "Check a 70/30 split of CPU time.",
        cpu::starved: "Check that a thread starved for 300 ms is runnable in the right ticks.",
        cpu::churn: "Check that no CPU time is lost to threads that live for a few milliseconds.",
        limits::quota: "Check that the quota of a thread's own group is found before its symptom, with the counts of the recording.",
        limits::changed: "Check that a quota which is lifted during a recording is said, with the counts of the recording, and no other cause.",
        limits::changed_back: "Check that a quota which is lifted for a time, and a thread that is in another group for a time, are said.",
        limits::io_limit: "Check that the limit of a group on a block device is found, with what was written.",
        limits::memory_limit: "Check that the memory limit of a group is found, with how often it was met.",
        limits::deadline: "Check that threads which use up their budget under SCHED_DEADLINE are said to.",
        limits::affinity: "Check that threads which may use one CPU are said to wait for that.",
        limits::bursts: "Check that threads which wake up together on idle CPUs are not called starved.",
        workers::uring: "Check that threads of io_uring have kernel stacks and the CPU time that the kernel counts, and nothing of the calls that made them.",
        guests::vcpus: "Check time in guests and in the kernel for them against guest_time, and that a halted vCPU is idle.",
    }
    any {
        ahead::names_ahead: "Check that inline functions are looked up while a recording runs, and that it ends with them.",
        cpu::churn_saturated: "Check the same as churn while something else wants both CPUs.",
        operations::counted: "Check operations, their latency and their CPU time against the process's own counters.",
        operations::misbehaves: "Check that an admin socket which hangs, floods or lies leaves the recording whole, with one reason.",
        operations::none: "Check that a process without an admin socket is recorded, and that this is said.",
        polling::reactors: "Check that a reactor which does the others' work is found, and not when it is spread.",
    }
    long {
        cpu::cpu_split_exact: "Check a 70/30 split of CPU time on 10 000 samples.",
    }
}
