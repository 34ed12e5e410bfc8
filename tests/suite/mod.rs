//! One suite of assertions, run with each engine. What an engine can not see, it is not asked for:
//! `tests/README.md` has the table.

mod cpu;
mod files;
mod jit;
mod keep;
mod kernel;
mod layouts;
mod life;
mod locks;
mod many;
mod polling;
mod stacks;
mod waits;

use crate::common::{Engine, has_capability, skip};

/// Make a test of each function for each engine.
macro_rules! for_each_engine {
    ($($module:ident :: $test:ident: $doc:literal),* $(,)?) => {
        for_each_engine!(@ bpf, Bpf, $($module::$test: $doc),*);
        for_each_engine!(@ procfs, Procfs, $($module::$test: $doc),*);
        for_each_engine!(@ procfs_only, ProcfsOnly, $($module::$test: $doc),*);
    };
    (@ $name:ident, $engine:ident, $($module:ident :: $test:ident: $doc:literal),*) => {
        mod $name {
            $(
                #[doc = $doc]
                #[test]
                fn $test() {
                    if super::usable(super::Engine::$engine, stringify!($test)) {
                        super::$module::$test(super::Engine::$engine);
                    }
                }
            )*
        }
    };
}

for_each_engine! {
    waits::each_wait: "Check that every kind of wait has its state, its stack and its share.",
    waits::sleep_split: "Check a 70/30 split of sleeping time on 10 000 samples.",
    waits::busy_a_tenth: "Check a thread that is busy 10 % of the time.",
    stacks::hard_frames: "Check stacks with frames sized at run time and stacks of 500 frames.",
    stacks::signal_stack: "Check that a signal handler on a stack of its own leads back to what it interrupted.",
    stacks::names: "Check demangled C++ and Rust names and inline frames.",
    kernel::blocked: "Check the kernel stacks of threads blocked in a pipe, a sleep and a futex.",
    kernel::running: "Check the kernel stacks of a thread that runs in the kernel.",
    layouts::layouts: "Check static, non-PIE, deleted and namespaced targets.",
    cpu::left_out: "Check that the CPU time of threads which are left out is not that of exited ones.",
    cpu::spinner: "Check that a spinner is on-CPU or runnable, never blocked, and not disturbed.",
    cpu::cpu_split: "Check a 70/30 split of CPU time on 10 000 samples.",
    cpu::starved: "Check that a thread starved for 300 ms is runnable in the right ticks.",
    cpu::churn: "Check that no CPU time is lost to threads that live for a few milliseconds.",
    cpu::churn_saturated: "Check the same while something else wants both CPUs.",
    cpu::vcpu: "Check that a spinning vCPU is a guest and a halted one is idle.",
    locks::blame: "Check who holds mutexes and rwlocks, in a pid namespace too, and that conditions are not blamed.",
    locks::two_processes: "Check that each process's locks are blamed on its own threads.",
    files::files: "Check the files and sockets that threads wait for.",
    life::renamed: "Check that a thread which changes its name is shown with the last one.",
    life::target_exits: "Check that the target's exit ends the recording and keeps it.",
    life::target_execs: "Check that an exec ends the recording and keeps it.",
    many::several: "Check a recording of two processes: threads, names and weights of each.",
    many::one_exits: "Check that a process which exits ends its own part alone.",
    many::one_execs: "Check that a process which runs another program ends its own part alone.",
    many::children: "Check children that were there, are forked, and run another program.",
    polling::reactors: "Check that a reactor which does the others' work is found, and not when it is spread.",
    keep::signals: "Check that each SIGUSR1 writes the last time, of the right length, and that the end does.",
    keep::trigger: "Check that threads which begin to wait for a lock trigger one file, with the time before.",
    keep::local_names: "Check that conditions know names of JIT code and of the vdso, and names that are not there do not hold.",
    life::interrupted: "Check that Ctrl-C ends a recording early and loses nothing.",
    jit::code_without_a_file: "Check names of code without a file, and code that takes the place of other code.",
    jit::in_a_container: "Check the same names where the target has a /tmp and pids of its own.",
}

// What it tests comes after the recording, whichever engine made it.
for_each_engine!(
    @ any_engine, Bpf,
    jit::hung_file_system: "Check that a file system that never answers does not hold up the end."
);

/// Whether an engine can be expected to work; says so when not.
pub(crate) fn usable(engine: Engine, test: &str) -> bool {
    let usable = engine != Engine::Bpf || has_capability();
    if !usable {
        skip(
            &format!("{test} ({})", engine.name()),
            "needs CAP_SYS_ADMIN to load BPF programs; run the tests as root",
        );
    }
    usable
}
