//! Threads of Go programs.

use std::fs;
use std::path::Path;
use std::process::Command;

use wcprof_testkit::{Attach, Engine, GoBuild, RemoteProcess, output_folder, skip};

/// Without symbol tables, so that only the program's own table has names and frame sizes.
const BUILDS: [GoBuild; 3] = [
    GoBuild {
        toolchain: "local",
        pie: false,
        cgo: false,
        stripped: true,
    },
    GoBuild {
        toolchain: "local",
        pie: true,
        cgo: true,
        stripped: true,
    },
    GoBuild {
        toolchain: "go1.16.15",
        pie: false,
        cgo: true,
        stripped: true,
    },
];

/// Functions of this program that Go's runtime says the goroutine with `function` is in, root first.
fn own_functions(stacks: &str, function: &str) -> Vec<String> {
    let goroutine = stacks.split("\n\n").find(|g| g.contains(function));
    let goroutine = goroutine.unwrap_or_else(|| panic!("no goroutine in {function}: {stacks}"));
    let calls = goroutine.lines().filter(|line| line.starts_with("main."));
    let name = |line: &str| line.rsplit_once('(').map(|(name, _)| name.to_owned());
    let mut functions: Vec<String> = calls.filter_map(name).collect();
    functions.reverse();
    functions
}

fn check(engine: Engine, program: &Path, build: GoBuild) {
    let folder = tempfile::tempdir().expect("temporary folder");
    let stacks = folder.path().join("stacks");
    let mut target = RemoteProcess::start_command(Command::new(program).arg(&stacks));
    let (recording, ..) = Attach::new(engine, target.pid())
        .seconds(1.5)
        .run_marked(&mut target);
    recording.assert_sound(engine);
    let stacks = fs::read_to_string(stacks).expect("the target has written its stacks");
    let folded = recording.folded();
    let of_thread = |thread: &str, state: &str, functions: &[&str], from: &str| {
        let own = own_functions(&stacks, from);
        let own = own.iter().map(String::as_str);
        let all: Vec<&str> = ["runtime.goexit"].into_iter().chain(own).collect();
        let all: Vec<&str> = all.into_iter().chain(functions.iter().copied()).collect();
        let thread = folded.thread(thread).states(&[state]);
        let right = thread.chain(&all);
        let share = right.share_of(&thread);
        assert!(share > 0.99, "{build:?}: {all:?}: {}", thread.show());
        thread
    };
    of_thread("g-read", "[blocked]", &[], "main.readBelow");
    if build.cgo {
        let in_c = ["runtime.cgocall", "runtime.asmcgocall", "usleep"];
        let sleeping = of_thread("g-c", "[sleep]", &in_c, "main.sleepInC");
        // Nothing of the stack of the thread, on which C is called, but C's own functions.
        let c_function = |frame: &String| frame.contains("+0x");
        for line in &sleeping.lines {
            let call = line.frames.iter().position(|f| f == "runtime.asmcgocall");
            let in_go = &line.frames[..call.unwrap_or(0)];
            assert!(
                !in_go.iter().any(c_function),
                "{build:?}: {}",
                sleeping.show()
            );
        }
    }
    // Not idle: it may be a lock that its goroutine waits for.
    let waits = folded.thread("g-wait").unhindered();
    let parked = waits.chain(&["runtime.mcall", "runtime.park_m", "runtime.stoplockedm"]);
    assert!(
        parked.share_of(&waits) > 0.99,
        "{build:?}: {}",
        waits.show()
    );
    let monitor = ["runtime.mstart", "runtime.sysmon", "runtime.usleep"];
    let monitor = folded.waits().chain(&monitor);
    let idle = monitor.states(&["[idle]"]);
    assert!(
        idle.share_of(&monitor) > 0.99,
        "{build:?}: {}",
        monitor.show()
    );
    if engine.sees_running() {
        let burns = folded.thread("g-burn").states(&["[on-cpu]"]).with_stack();
        // Ten samples at 99 Hz.
        if burns.total() < 100_000 {
            let test = format!("goroutines::stripped_go ({})", engine.name());
            return skip(&test, "it got hardly any CPU when a sample was due");
        }
        let right = burns.chain(&["runtime.goexit", "main.burn", "main.work"]);
        assert!(right.share_of(&burns) > 0.7, "{build:?}: {}", burns.show());
    }
}

pub(crate) fn stripped_go(engine: Engine) {
    for build in BUILDS {
        let files = ["goroutines.go", "goroutines_c.go"];
        match build.program(output_folder(), &files) {
            Ok(program) => check(engine, &program, build),
            Err(reason) => skip("goroutines::stripped_go", &reason),
        }
    }
}
