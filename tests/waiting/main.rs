//! The built `wcprof` against live processes whose threads mostly wait: many of these tests run beside each
//! other (`cargo test --test waiting -- --test-threads 12`).
//!
//! The targets are the programs of `fixtures/src`, compiled here when a test first asks for one.
//! `tests/README.md` has the table of which assertions hold for which engine.
#![forbid(unsafe_code)]

mod agent;
mod cores;
mod crypto;
mod faults;
mod files;
mod goroutines;
mod harm;
mod input;
mod jit;
mod keep;
mod kernel;
mod known;
mod layouts;
mod leader;
mod life;
mod locks;
mod many;
mod odd;
mod perf;
mod said;
mod silent;
mod stacks;
mod stopped;
mod top;
mod waits;

wcprof_testkit::engine_tests! {
    each {
        waits::each_wait: "Check that every kind of wait has its state, its stack and its share.",
        waits::with_musl: "Check states and stacks of a program with musl.",
        known::fewer_names: "Check states of known waits with names of the program and of the C library, and without: they may become unknown.",
        known::fewer_names_of_rust: "Check the same of Rust's standard library.",
        known::no_names: "Check the same of a static program without any, whose waits go on after a stop.",
        known::python: "Check that Python's locks and queues are neither idle nor told apart.",
        waits::sleep_split: "Check a 70/30 split of sleeping time.",
        stacks::hard_frames: "Check stacks with frames sized at run time and stacks of 500 frames.",
        stacks::signal_stack: "Check that a signal handler on a stack of its own leads back to what it interrupted.",
        kernel::blocked: "Check the kernel stacks of threads blocked in a pipe, a sleep and a futex.",
        kernel::running: "Check the kernel stacks of a thread that runs in the kernel.",
        layouts::layouts: "Check static, non-PIE, deleted and namespaced targets.",
        odd::vfork: "Check the stack of a thread in vfork, whose return address is in a register.",
        odd::moved_text: "Check names and stacks of a program that has moved its code to memory of no file.",
        odd::no_cfi: "Check that a stack which call frame information leaves is truncated, though rbp is 0.",
        odd::resolver: "Check the stack of a thread in a resolver that binds a function lazily.",
        odd::two_segments: "Check stacks of a program with two executable segments in one page of its file.",
        odd::versions: "Check that two versions of a library's function are two functions.",
        odd::fiber: "Check that the stack of a fiber begins where Boost.Context or makecontext begins it.",
        odd::trampoline: "Check that a stack goes on below a trampoline of CPython's.",
        odd::frame_by_rbx: "Check stacks of functions whose frame is in rbx.",
        odd::queued: "Check stacks of threads that are queued in assembler, and below much stack.",
        odd::beside_a_file: "Check that code made beside a mapped file is not taken for the file's.",
        locks::blame: "Check who holds mutexes and rwlocks, in a pid namespace too, and that conditions are not blamed.",
        cores::live: "Check that a circle of threads that wait for each other is found, and none where locks are taken in one order.",
        cores::snapshot: "Check that one look at a live process counts its threads, and finds holders, circles, and stacks of running threads.",
        files::files: "Check the files and sockets that threads wait for.",
        life::renamed: "Check that a thread which changes its name is shown with the last one.",
        life::number_again: "Check that a thread which gets the number of one that has ended, and looks like it, is another one.",
        life::process_number_again: "Check that a child process which gets the number of one that has ended is another one.",
        life::ends_soon: "Check that a process which ends about when a recording begins is seen, or is said not to have been.",
        life::target_exits: "Check that the target's exit ends the recording and keeps it.",
        life::target_execs: "Check that an exec ends the recording and keeps it.",
        leader::leader_has_ended: "Check a process whose main thread has ended: found, checked and recorded with names as any other.",
        leader::leader_ends: "Check that a main thread which ends during the recording is seen no longer, and the others are.",
        stopped::stopped_by_a_signal: "Check that a stop signal's time is stopped time, within two ticks of its borders, and no evidence of anything else.",
        stopped::stopped_by_a_debugger: "Check the same of threads that a tracer stops.",
        stopped::frozen_v1: "Check the same of a frozen control group of version 1.",
        stopped::frozen_v2: "Check the same of a frozen control group of version 2.",
        many::several: "Check a recording of two processes: threads, names and weights of each.",
        many::crowd: "Check that a process of a thousand threads is seen whole, though not at one tick.",
        many::one_exits: "Check that a process which exits ends its own part alone.",
        many::one_execs: "Check that a process which runs another program ends its own part alone.",
        many::maps_more_than_may_be_open: "Check that a process with more files than may be open hinders no recording of others.",
        many::children: "Check children that were there, are forked, and run another program.",
        many::short_lived: "Check that hundreds of children that come and go leave few processes, descriptors and little memory.",
        many::exec_storm: "Check that children which run other programs all the time leave few descriptors, and the rest of a recording whole.",
        goroutines::stripped_go: "Check names and stacks of stripped Go programs, also where they call C, against Go's own stacks.",
        jit::code_without_a_file: "Check names of code without a file, and code that takes the place of other code.",
        jit::registered: "Check that stacks go on below code that QEMU generates, by what it registers for debuggers.",
        jit::in_a_container: "Check the same names where the target has a /tmp and pids of its own.",
        silent::userfaultfd: "Check that memory which never answers ends a recording, with the thread's number, and that the rest is kept.",
        silent::file: "Check the same of a mapped file whose server never answers.",
        silent::layer: "Check that a module on overlayfs above such a server costs the stacks through it, and nothing else.",
        harm::capabilities: "Check that wcprof keeps only the capabilities that it needs while it records.",
        harm::waiting_threads: "Check that waiting threads are not woken, stopped or traced, and that no wait ends with EINTR.",
        harm::killed: "Check that `kill -9` of wcprof leaves the target as it was.",
    }
    any {
        stacks::names: "Check demangled C++ and Rust names and inline frames.",
        odd::return_probe: "Check that a stack which another tool's return probe cuts is said to be that.",
        locks::two_processes: "Check that each process's locks are blamed on its own threads.",
        agent::follows: "Check that the agent pushes each interval of each process, finds new ones, tries again, reloads and ends.",
        agent::one_is_silent: "Check that a process whose memory never answers is left out once, and that profiles of others go on.",
        keep::signals: "Check that each SIGUSR1 writes the last time, of the right length, and that the end does.",
        keep::last_signals: "Check that SIGHUP, SIGQUIT and SIGTERM write the last time, and end the recorder.",
        keep::trigger: "Check that threads which begin to wait for a lock trigger one file, with the time before.",
        keep::local_names: "Check that conditions know names of JIT code and of the vdso, and names that are not there do not hold.",
        life::command: "Check that a command is recorded until it ends, with its exit code, also when it becomes another program, and is told of signals.",
        life::interrupted: "Check that Ctrl-C ends a recording early and loses nothing.",
        jit::hint: "Check that CPU time in code without names is said, with how its runtime tells them, and is one row.",
        jit::hung_file_system: "Check that a file system that never answers does not hold up the end.",
    }
    long {
        waits::sleep_split_exact: "Check a 70/30 split of sleeping time on 10 000 samples.",
        harm::killed_often: "Check that 50 times `kill -9` of wcprof leave the target as it was.",
    }
}
