//! Code and return addresses that are not where call frame information and mappings have them.

use std::fs;
use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};

use wcprof_testkit::{
    Attach, Engine, RemoteProcess, Variant, copy_program, fixture, has_capability, output_folder,
    skip, text, wait_until,
};

use crate::waits::assert_whole;

/// Where the sources of fixtures are.
const SOURCES: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../../fixtures/src");

/// The thread's return address is in a register while it waits.
pub(crate) fn vfork(engine: Engine) {
    for variant in Variant::BOTH {
        let target = RemoteProcess::start(&fixture("vfork.c", variant));
        let recording = Attach::new(engine, target.pid()).seconds(1.0).run();
        recording.assert_sound(engine);
        let thread = recording.folded().thread("v-fork");
        let whole = thread.chain(&["v_fork", "fork_outer", "fork_inner", "vfork"]);
        assert!(whole.share_of(&thread) > 0.999, "{}", thread.show());
    }
}

/// The program's code is in memory of no file.
pub(crate) fn moved_text(engine: Engine) {
    for (variant, parts) in [
        (Variant::NoFramePointers, &[][..]),
        (Variant::NonPie, &[]),
        (Variant::NoFramePointers, &["whole"]),
    ] {
        let program = fixture("moved_text.c", variant);
        let target = RemoteProcess::start_command(Command::new(&program).args(parts));
        let maps = fs::read_to_string(format!("/proc/{}/maps", target.pid()));
        let maps = maps.expect("the target has mappings");
        let is_of_program = |line: &str| line.ends_with(program.to_str().expect("text"));
        let mut of_program = maps.lines().filter(|line| is_of_program(line));
        // The file's beginning is mapped, or was moved, too.
        let is_right = |line: &str| {
            !line.contains("r-xp") && (parts.is_empty() || !line.contains(" 00000000 "))
        };
        assert!(of_program.all(is_right), "{maps}");

        let recording = Attach::new(engine, target.pid()).seconds(1.5).run();
        recording.assert_sound(engine);
        let folded = recording.folded();
        let thread = folded.thread("m-sleep").states(&["[sleep]"]);
        let whole = thread.chain(&["m_sleep", "sleep_outer", "sleep_inner"]);
        assert!(whole.share_of(&thread) > 0.999, "{}", thread.show());
        if engine.sees_running() {
            let thread = folded.thread("m-burn").states(&["[on-cpu]"]);
            let whole = thread.chain(&["m_burn", "burn_outer", "burn_inner"]);
            assert!(whole.share_of(&thread) > 0.95, "{}", thread.show());
        }
    }
}

/// A function without call frame information is not the first one of its thread. It is left where a direct call leads to it, also
/// through a stub, musl's `vfork` by its register, and a handler of a signal by its frame pointer.
pub(crate) fn no_cfi(engine: Engine) {
    let target = RemoteProcess::start(&fixture("no_cfi.c", Variant::NonPie));
    let recording = Attach::new(engine, target.pid()).seconds(1.5).run();
    recording.assert_sound(engine);
    let folded = recording.folded();
    for (name, chain) in [
        (
            "n-sleep",
            ["[truncated: no unwind info]", "pointed_at", "sleep_below"].as_slice(),
        ),
        (
            "n-stub",
            &["n_stub", "calls_stub", "behind_stub", "sleep_below"],
        ),
        ("n-vfork", &["n_vfork", "calls_vfork", "musl_vfork"]),
        (
            "n-signal",
            match engine {
                Engine::Bpf => &["n_signal", "raises", "handler", "sleep_below"],
                // Others cannot read the frame pointer.
                _ => &["[truncated: no unwind info]", "handler", "sleep_below"],
            },
        ),
    ] {
        let thread = folded.thread(name).unhindered().with_stack();
        let found = thread.chain(chain);
        // The first copy of a stack may be too short.
        assert!(found.share_of(&thread) > 0.95, "{}", thread.show());
    }
    if engine.sees_running() {
        let thread = folded.thread("n-leaf").states(&["[on-cpu]"]);
        let thread = thread.with_stack();
        let whole = thread.chain(&["clone3", "n_leaf", "framed", "bare"]);
        assert!(whole.share_of(&thread) > 0.99, "{}", thread.show());
    }
    // One thread of six, with the one that serves the test, or two, or two of the five that have stacks.
    let expected = match engine {
        Engine::Bpf => 17.0,
        _ if engine.sees_running() => 33.0,
        _ => 40.0,
    };
    let screen = recording.report(&[]);
    let share = screen.split_once(" % of stacks truncated (no unwind info)");
    let share = share.and_then(|(before, _)| before.rsplit([' ', '\n']).next()?.parse().ok());
    let is_right = |share: f64| (share - expected).abs() < 10.0;
    assert!(share.is_some_and(is_right), "{screen}");
}

/// Threads wait in two versions of one function of a stripped library.
pub(crate) fn versions(engine: Engine) {
    let folder = tempfile::tempdir_in(output_folder()).expect("temporary folder");
    let script = Path::new(SOURCES).join("versions.map");
    let script = format!("-Wl,--version-script={}", script.display());
    let library_flags = ["-shared", "-fPIC", "-s", &script];
    let program = with_library(
        folder.path(),
        "versions.c",
        &library_flags,
        "uses_versions.c",
        &[],
    );
    let target = RemoteProcess::start(&program);
    let recording = Attach::new(engine, target.pid()).seconds(1.0).run();
    recording.assert_sound(engine);
    for (name, chain) in [
        ("u-old", ["u_old", "wait_here@V_1"]),
        // As programs are linked with it now.
        ("u-new", ["u_new", "wait_here"]),
    ] {
        let thread = recording.folded().thread(name).states(&["[sleep]"]);
        let right = thread.chain(&chain);
        assert!(right.share_of(&thread) > 0.999, "{}", thread.show());
    }
}

/// Compile a library of the fixtures, given its source and flags, and a program that is linked with it, into a folder.
fn with_library(
    folder: &Path,
    library: &str,
    library_flags: &[&str],
    program: &str,
    flags: &[&str],
) -> PathBuf {
    compile(library, library_flags, &folder.join("libof_fixture.so"));
    let folder_flags = [
        format!("-L{}", folder.display()),
        "-lof_fixture".to_owned(),
        format!("-Wl,-rpath,{}", folder.display()),
    ];
    let all = folder_flags.iter().map(String::as_str);
    let all: Vec<&str> = all.chain(flags.iter().copied()).collect();
    let built = folder.join(program.trim_end_matches(".c"));
    compile(program, &all, &built);
    built
}

/// Compile a source of the fixtures with these flags.
pub(crate) fn compile(source: &str, flags: &[&str], output: &Path) {
    let mut gcc = Command::new("gcc");
    gcc.args(["-O2", "-fno-optimize-sibling-calls", "-pthread"]);
    gcc.arg(Path::new(SOURCES).join(source))
        .args(flags)
        .arg("-o")
        .arg(output);
    assert!(gcc.status().expect("gcc starts").success(), "{gcc:?}");
}

/// A function of a library is bound by a resolver that sleeps: ld.so keeps its caller's frame in `rbx` meanwhile.
pub(crate) fn resolver(engine: Engine) {
    let folder = tempfile::tempdir_in(output_folder()).expect("temporary folder");
    let library_flags = ["-shared", "-fPIC"];
    let flags = ["-Wl,-z,lazy"];
    let program = with_library(
        folder.path(),
        "resolver.c",
        &library_flags,
        "binds.c",
        &flags,
    );
    let target = RemoteProcess::start(&program);
    let recording = Attach::new(engine, target.pid()).seconds(1.5).run();
    recording.assert_sound(engine);
    let thread = recording.folded().thread("b-bind").states(&["[sleep]"]);
    let chain = [
        "clone3",
        "b_bind",
        "calls_choice",
        "resolve_choice",
        "sleep_in_resolver",
    ];
    let whole = thread.chain(&chain);
    assert!(whole.share_of(&thread) > 0.99, "{}", thread.show());
    assert_whole(&thread);
}

/// Code is in two segments of a program that share a page of its file.
pub(crate) fn two_segments(engine: Engine) {
    let folder = tempfile::tempdir_in(output_folder()).expect("temporary folder");
    let program = folder.path().join("two_segments");
    let flags = ["-w", "-Wl,-z,noseparate-code,-z,norelro"];
    compile("two_segments.c", &flags, &program);
    let target = RemoteProcess::start(&program);
    let maps = fs::read_to_string(format!("/proc/{}/maps", target.pid())).expect("it lives");
    let path = program.to_str().expect("the path is text");
    let code = maps.lines().filter(|line| line.ends_with(path));
    let code = code.filter(|line| line.split(' ').nth(1).is_some_and(|p| p.contains('x')));
    assert_eq!(code.count(), 2, "{maps}");
    let recording = Attach::new(engine, target.pid()).seconds(1.5).run();
    recording.assert_sound(engine);
    let thread = recording.folded().thread("t-hot").states(&["[sleep]"]);
    let whole = thread.chain(&["clone3", "t_hot", "cold_call", "hot_sleep"]);
    assert!(whole.share_of(&thread) > 0.99, "{}", thread.show());
}

/// A fiber's stack begins where Boost.Context or the C library begins it.
pub(crate) fn fiber(engine: Engine) {
    for variant in Variant::BOTH {
        let target = RemoteProcess::start(&fixture("fiber.c", variant));
        let recording = Attach::new(engine, target.pid()).seconds(1.5).run();
        recording.assert_sound(engine);
        for (name, chain) in [
            ("f-wait", &["begin_fiber", "fiber_main", "wait_below"][..]),
            ("u-wait", &["context_main", "wait_below"]),
            (
                "o-wait",
                &["o_thread", "outer_main", "on_stack", "inner_wait"],
            ),
        ] {
            let thread = recording.folded().thread(name).states(&["[blocked]"]);
            let whole = thread.chain(chain);
            assert!(whole.share_of(&thread) > 0.999, "{}", thread.show());
            assert_whole(&thread);
        }
        if engine.sees_running() {
            let thread = recording.folded().thread("o-spin").with_stack();
            let whole = thread.chain(&["o_thread", "outer_main", "on_stack", "inner_spin"]);
            assert!(whole.share_of(&thread) > 0.99, "{}", thread.show());
        }
    }
}

/// Code of a runtime without a frame pointer, which is known by its bytes.
pub(crate) fn trampoline(engine: Engine) {
    for variant in Variant::BOTH {
        let target = RemoteProcess::start(&fixture("trampoline.c", variant));
        let recording = Attach::new(engine, target.pid()).seconds(1.5).run();
        recording.assert_sound(engine);
        let thread = recording.folded().thread("t-wait").states(&["[blocked]"]);
        let chain = ["clone3", "through_trampoline", "below_trampoline", "read"];
        let whole = thread.chain(&chain);
        assert!(whole.share_of(&thread) > 0.999, "{}", thread.show());
        let is_code = |frame: &String| frame.starts_with("[code in 0x");
        for line in &whole.lines {
            let between = line.frames.iter().filter(|f| is_code(f)).count();
            assert_eq!(between, 1, "{}", whole.show());
        }
    }
}

/// Threads are queued inside functions whose frame is known by a register that calls do not preserve, or by memory below the
/// stack pointer, and below much stack; one waits with its frame in such memory.
pub(crate) fn queued(engine: Engine) {
    let target = RemoteProcess::start(&fixture("queued.c", Variant::NoFramePointers));
    let recording = Attach::new(engine, target.pid()).seconds(3.0).run();
    recording.assert_sound(engine);
    let folded = recording.folded();
    let waiting = folded.thread("s-wait").states(&["[sleep]"]);
    let whole = waiting.chain(&["s_wait", "wait_outer", "sleep_with_red_zone"]);
    assert!(whole.share_of(&waiting) > 0.99, "{}", waiting.show());
    if !engine.sees_running() {
        return;
    }
    for (name, chain) in [
        ("s-spin", ["s_spin", "spin_outer", "cfa_in_r11"]),
        ("s-zone", ["s_zone", "zone_outer", "cfa_in_red_zone"]),
        ("s-deep", ["s_deep", "deep_outer", "spin"]),
    ] {
        let thread = folded.thread(name);
        for state in ["[on-cpu]", "[runnable]"] {
            let thread = thread.states(&[state]).with_stack();
            let whole = thread.chain(&chain);
            assert!(whole.share_of(&thread) > 0.95, "{state}: {}", thread.show());
        }
        // Registers of queued threads are what this engine alone can read.
        if engine == Engine::Bpf {
            let queued = thread.states(&["[runnable]"]);
            let share = queued.with_stack().share_of(&queued);
            assert!(share > 0.95, "{name}: {}", queued.show());
        }
    }
}

/// Functions keep their caller's frame in `rbx`, in the register and saved by what they called.
pub(crate) fn frame_by_rbx(engine: Engine) {
    for variant in Variant::BOTH {
        let target = RemoteProcess::start(&fixture("rbx.c", variant));
        let recording = Attach::new(engine, target.pid()).seconds(1.5).run();
        recording.assert_sound(engine);
        let folded = recording.folded();
        let waiting = folded.thread("r-sleep").states(&["[sleep]"]);
        let chain = [
            "r_sleep",
            "sleep_outer",
            "sleep_by_rbx",
            "saves_rbx",
            "sleep_below",
        ];
        let whole = waiting.chain(&chain);
        assert!(whole.share_of(&waiting) > 0.99, "{}", waiting.show());
        if engine.sees_running() {
            let running = folded.thread("r-spin").states(&["[on-cpu]"]).with_stack();
            let whole = running.chain(&["r_spin", "spin_outer", "spin_by_rbx"]);
            assert!(whole.share_of(&running) > 0.99, "{}", running.show());
        }
    }
}

/// Code that a program made lies just where a file that is mapped beside it would have code.
pub(crate) fn beside_a_file(engine: Engine) {
    if !engine.sees_running() {
        return;
    }
    let target = RemoteProcess::start(&fixture("beside.c", Variant::NoFramePointers));
    let code = target.keys["code"];
    let recording = Attach::new(engine, target.pid()).seconds(1.5).run();
    recording.assert_sound(engine);
    let thread = recording.folded().thread("b-jit").states(&["[on-cpu]"]);
    // Code that nothing names is one row a mapping.
    let is_made = |frames: &[String]| {
        let mapping = frames.iter().find_map(|frame| {
            let range = frame.strip_prefix("[code in 0x")?.strip_suffix(']')?;
            range.split_once("-0x")
        });
        let address = |hex: &str| u64::from_str_radix(hex, 16).ok();
        let ends = mapping.and_then(|(start, end)| address(start).zip(address(end)));
        ends.is_some_and(|(start, end)| (start..end).contains(&code))
    };
    let made = thread.lines.iter().filter(|line| is_made(&line.frames));
    let made = made.map(|line| line.weight);
    let share = made.sum::<u64>() as f64 / thread.total() as f64;
    assert!(share > 0.9, "{}", thread.show());
}

/// A return probe of perf on a function of a process, removed when dropped.
struct ReturnProbe {
    event: String,
    perf: Child,
}

impl ReturnProbe {
    fn put(program: &str, function: &str, pid: i32) -> Result<Self, String> {
        let name = format!("wcprof_{pid}");
        let probe = format!("{name}={function}%return");
        let run = |args: &[&str]| {
            let output = Command::new("perf").args(args).output();
            let output = output.map_err(|error| format!("needs perf: {error}"))?;
            match output.status.success() {
                true => Ok(()),
                false => Err(text(&output.stderr).to_owned()),
            }
        };
        run(&["probe", "-q", "-x", program, "--add", &probe])?;
        let event = format!("probe_*:{name}__return");
        let perf = Command::new("perf")
            .args(["stat", "-e", &event, "-p", &pid.to_string(), "--"])
            .arg("cat")
            .stdin(Stdio::piped())
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .spawn();
        let perf = perf.map_err(|error| error.to_string())?;
        Ok(Self { event, perf })
    }
}

impl Drop for ReturnProbe {
    fn drop(&mut self) {
        // perf ends with the `cat` that it runs.
        drop(self.perf.stdin.take().map(|mut stdin| stdin.write_all(b"")));
        let ended = self.perf.wait();
        let deleted = Command::new("perf")
            .args(["probe", "-q", "--del", &self.event])
            .status();
        if !std::thread::panicking() {
            assert!(ended.is_ok() && deleted.is_ok_and(|status| status.success()));
        }
    }
}

/// Another tool's return probe is what stacks end at.
pub(crate) fn return_probe(engine: Engine) {
    const TEST: &str = "return_probe";
    if !has_capability() {
        return skip(TEST, "needs root to put a probe");
    }
    let folder = tempfile::tempdir().expect("temporary folder");
    let program = folder.path().join("probed");
    copy_program(&fixture("probed.c", Variant::NoFramePointers), &program);
    let target = RemoteProcess::start(&program);
    let program = program.to_str().expect("the path is text");
    let probe = match ReturnProbe::put(program, "probed_function", target.pid()) {
        Ok(probe) => probe,
        Err(reason) => return skip(TEST, reason.trim()),
    };
    let maps = format!("/proc/{}/maps", target.pid());
    wait_until("no thread met the probe", || {
        let maps = fs::read_to_string(&maps).ok()?;
        maps.contains("[uprobes]").then_some(())
    });
    let recording = Attach::new(engine, target.pid()).seconds(1.5).run();
    drop(probe);
    let thread = recording.folded().thread("p-sleep").states(&["[sleep]"]);
    // It slept for the first time before it met the probe.
    let reason = "[truncated: a uretprobe of another tool cuts stacks here]";
    let cut = thread.chain(&[reason, "probed_function"]);
    assert!(cut.share_of(&thread) > 0.9, "{}", thread.show());
    let screen = recording.report(&[]);
    let reason = "truncated (a uretprobe of another tool cuts stacks here)";
    assert!(screen.contains(reason), "{screen}");
    let said = recording.said();
    assert!(!said.contains("perf map or jitdump"), "{said}");
}
