//! Code that is in no file.

use std::collections::BTreeSet;
use std::fs::{self, File};
use std::io::{self, BufRead, BufReader};
use std::os::unix::fs::symlink;
use std::path::Path;
use std::process::{Child, Command, Stdio};

use wcprof_testkit::{
    Attach, Engine, Folded, Mark, RemoteProcess, Variant, assert_within, children, fixture,
    has_capability, printed, skip, wait_for_run_time, wait_for_thread,
};

use crate::silent::{guard, no_layers};

pub(crate) fn code_without_a_file(engine: Engine) {
    let folder = tempfile::tempdir().expect("temporary folder");
    let program = fixture("jit.c", Variant::FramePointers);
    let mut target = RemoteProcess::start_command(Command::new(program).arg(folder.path()));
    // Names of such code are in the trace even when no others are.
    let (recording, before, after) = Attach::new(engine, target.pid())
        .seconds(5.0)
        .flags(&["--raw"])
        .run_marked(&mut target);
    target.send_line("END");
    target.answer("MARK");
    recording.assert_sound(engine);

    let folded = recording.folded();
    let mapped = folded.thread("j-map");
    let right = mapped.chain(&["jit_mapped(int)", "sleep_long"]);
    assert!(right.share_of(&mapped) > 0.99, "{}", mapped.show());
    // What nothing names is one function a mapping or file, and its callers are found.
    for (comm, caller, place) in [
        ("j-late", "j_late", "[code in 0x"),
        ("j-zero", "j_zero", "[code in /dev/zero]"),
        ("j-image", "j_image", "lisp.core]"),
    ] {
        let thread = folded.thread(comm);
        let is_right = |frames: &[String]| {
            frames[0] == caller && frames[1].contains(place) && frames[2] == "sleep_long"
        };
        let lines = thread.lines.iter();
        let right = lines.filter(|line| line.frames.windows(3).any(is_right));
        let right: u64 = right.map(|line| line.weight).sum();
        // The first copy of a stack may be too short.
        assert!(
            right as f64 > 0.95 * thread.total() as f64,
            "{}",
            thread.show()
        );
    }
    let said = recording.said();
    assert!(said.contains("jitdump does not name 3 of "), "{said}");
    assert!(!said.contains("incomplete"), "{said}");

    if recording.stood_still("code_without_a_file", engine) {
        return;
    }
    let dumped = folded.thread("j-dump");
    let (first, second) = (
        dumped.chain(&["jit_first", "nap"]),
        dumped.chain(&["jit_second", "nap"]),
    );
    let truth = ["first", "second"].map(|key| after.since(&before, key) as f64);
    let share = truth[0] / (truth[0] + truth[1]);
    let measured = first.total() as f64 / (first.total() + second.total()).max(1) as f64;
    let tolerance = recording.verdict.tolerance(share, 400);
    assert_within("jit_first", measured, share, tolerance);
    let named = first.waits().total() + second.waits().total();
    assert_named(&dumped.waits(), named, recording.verdict.stalled);

    let local = recording.trace().0.tables.names.local;
    let lines = local
        .names
        .frames
        .values()
        .flatten()
        .chain(local.later.iter().flat_map(|l| &l.functions));
    let of_first: Vec<_> = lines.filter(|f| f.name == "jit_first").collect();
    assert!(!of_first.is_empty());
    for function in of_first {
        assert_eq!(
            (function.file.as_deref(), function.line),
            (Some("/srv/app.js"), Some(42))
        );
    }
}

/// A target with a `/tmp` and a pid of its own, as in a container: its files are there, and what lies at
/// the same paths out here is of others.
pub(crate) fn in_a_container(engine: Engine) {
    if !has_capability() {
        return skip("jit::in_a_container", "needs root to unshare");
    }
    let folder = tempfile::tempdir().expect("temporary folder");
    let mut target = RemoteProcess::start_command(
        Command::new("unshare")
            .args([
                "--mount",
                "--pid",
                "--fork",
                "--mount-proc",
                "--kill-child",
                "sh",
                "-ec",
            ])
            .arg(
                "mount -t tmpfs none \"$0\"; cp \"$1\" \"$0/jit\"; cd \"$0\"; \
                 mount -t tmpfs none /tmp; exec ./jit /tmp",
            )
            .arg(folder.path())
            .arg(fixture("jit.c", Variant::FramePointers)),
    );
    let pid = children(target.pid())[0];
    // By the pid that is seen out here: no file of the target's.
    let decoy = Decoy(format!("/tmp/perf-{pid}.map"));
    fs::write(&decoy.0, "0 7fffffffffff of_somebody_else\n").expect("/tmp can be written to");
    let (recording, _, _) = Attach::new(engine, pid)
        .seconds(1.5)
        .run_marked(&mut target);
    target.send_line("END");
    target.answer("MARK");
    recording.assert_sound(engine);

    let folded = recording.folded();
    let mapped = folded.thread("j-map");
    let right = mapped.chain(&["jit_mapped(int)", "sleep_long"]);
    assert!(right.share_of(&mapped) > 0.99, "{}", mapped.show());
    let dumped = folded.thread("j-dump");
    let named =
        ["jit_first", "jit_second"].map(|name| dumped.chain(&[name, "nap"]).waits().total());
    assert_named(
        &dumped.waits(),
        named[0] + named[1],
        recording.verdict.stalled,
    );
}

/// Assert that names were found for a thread's waits, but for what it was robbed of.
#[track_caller]
fn assert_named(thread: &Folded, named_us: u64, stalled: f64) {
    let share = named_us as f64 / thread.unhindered().total().max(1) as f64;
    assert!(
        share > 0.95 - stalled,
        "{share:.3}, CPUs stood still for {stalled:.3}:\n{}",
        thread.show()
    );
}

/// A target whose `/tmp`, where its perf map would be and its configuration file is said to be, is on a file system that
/// never answers: no request, no look-up that its server has taken, or only not when the file is closed.
pub(crate) fn hung_file_system(engine: Engine) {
    if !has_capability() {
        return skip("jit::hung_file_system", "needs root to unshare");
    }
    if !Path::new("/dev/fuse").exists() {
        return skip("jit::hung_file_system", "this kernel has no FUSE");
    }
    for (mode, is_taken, is_read) in [
        ("requests", false, false),
        ("lookups", true, false),
        ("closing", true, true),
        ("layer", true, false),
    ] {
        if let Some(reason) = no_layers().filter(|_| mode == "layer") {
            skip("jit::hung_file_system: layer", reason);
            continue;
        }
        let folder = tempfile::tempdir().expect("temporary folder");
        let osd = folder.path().join("ceph-osd");
        symlink(fixture("jit.c", Variant::FramePointers), &osd).expect("can be made");
        let mut target = RemoteProcess::start_command(
            Command::new("unshare")
                .arg("--mount")
                .args([osd.as_path(), folder.path()])
                .args(["--conf", "/tmp/ceph.conf"]),
        );
        let attach = |_: &mut _| Attach::new(engine, target.pid()).seconds(1.0).run();
        let (recording, mark) = beside_hung_server(mode, target.pid(), attach);
        assert_eq!(mark.get("taken") > 0, is_taken, "{mode}");
        // The target removes its perf map: with the server it would wait, too.
        target.send_line("END");
        target.answer("MARK");
        recording.assert_sound(engine);
        let folded = recording.folded();
        let mapped = folded.thread("j-map");
        let named = mapped.chain(&["jit_mapped(int)", "sleep_long"]);
        assert_eq!(named.total() > 0, is_read, "{mode}: {}", mapped.show());
        let dumped = folded.thread("j-dump");
        assert!(dumped.total() > 0, "{mode}: {}", dumped.show());
        let said = recording.said();
        let no_answer = said.contains("did not answer in time");
        assert_eq!(no_answer, !is_read, "{mode}: {said}");
    }
}

/// Does something while `/tmp` of a target is on a file system that does not answer, by a mode of the server. What was
/// done, given the server, and the server's truth.
pub(crate) fn beside_hung_server<T>(
    mode: &str,
    pid: i32,
    work: impl FnOnce(&mut RemoteProcess) -> T,
) -> (T, Mark) {
    // The target cannot remove the file itself from below the mount, and need not have made it.
    let map = Decoy(format!("/tmp/perf-{pid}.map"));
    let made = File::options().append(true).create(true).open(&map.0);
    drop(made.expect("/tmp can be written to"));
    let pid = pid.to_string();
    let mut server = RemoteProcess::start_command(
        Command::new("nsenter")
            .args(["--mount", "--target", &pid])
            .arg(fixture("hung_fuse.c", Variant::NoFramePointers))
            .args([mode, &pid])
            // A library path below the mount would make it wait for itself.
            .env_clear(),
    );
    // The end of the server frees whoever waits for it: then the test fails, but ends.
    let (result, is_in_time) = guard(server.pid(), || work(&mut server));
    assert!(is_in_time, "{mode}: wcprof waited for the server");
    let mark = server.mark();
    server.close();
    (result, mark)
}

/// A file that is removed in the end.
struct Decoy(String);

impl Drop for Decoy {
    fn drop(&mut self) {
        // It may never have been made.
        let _ = fs::remove_file(&self.0);
    }
}

/// A runtime that says nothing of the code that it makes.
pub(crate) fn hint(engine: Engine) {
    // Running threads have no stack there.
    if engine == Engine::ProcfsOnly {
        return skip("procfs_only::hint", "running threads have no stack");
    }
    let script = "function burn() { let x = 1; for (let i = 0; i < 1e8; i++) x = (x * 3 + 1) | 0; \
                  return x; } console.log('READY'); setInterval(burn, 1);";
    let mut node = Command::new("node");
    let node = node
        .args(["-e", script])
        .stdin(Stdio::piped())
        .stdout(Stdio::piped());
    let Ok(node) = node.spawn() else {
        return skip("jit::hint", "needs node");
    };
    let mut target = Guarded(node);
    let mut first = String::new();
    let out = target.0.stdout.as_mut().expect("stdout is a pipe");
    BufReader::new(out)
        .read_line(&mut first)
        .expect("node writes");
    assert_eq!(first, "READY\n");
    let recording = Attach::new(engine, target.0.id() as i32).seconds(2.0).run();
    let report = printed("report", &recording.path(), &[]);
    // Lines are broken where the figures before leave room.
    let report = report.split_whitespace().collect::<Vec<_>>().join(" ");
    let cure = "names come from node --perf-basic-prof";
    assert!(
        report.contains("CPU time is in functions without a name"),
        "{report}"
    );
    assert!(report.contains(cure), "{report}");
    // One row for code that nothing names, not one for each address.
    let folded = recording.folded().states(&["[on-cpu]"]).with_stack();
    let leaves: BTreeSet<&String> = folded
        .lines
        .iter()
        .filter_map(|l| l.frames.last())
        .collect();
    let unnamed = leaves
        .iter()
        .filter(|f| f.starts_with("0x") || f.starts_with("[code"));
    assert!((1..4).contains(&unnamed.count()), "{leaves:?}");
}

/// A process that is ended.
struct Guarded(Child);

impl Drop for Guarded {
    fn drop(&mut self) {
        // Fails only when it has ended.
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// Runs a boot sector in an emulated machine until it is dropped.
struct Emulator(Child);

impl Emulator {
    /// `Err` where QEMU is not installed.
    fn start(folder: &Path) -> io::Result<Self> {
        // inc %ax; xor $0x1234,%ax; out %al,$0x80; loop to the begin; jmp to it: it works, and asks for a device at times.
        let mut sector = vec![0x40, 0x35, 0x34, 0x12, 0xe6, 0x80, 0xe2, 0xf8, 0xeb, 0xf6];
        sector.resize(510, 0);
        sector.extend([0x55, 0xaa]);
        let disk = folder.join("sector");
        fs::write(&disk, sector).expect("temporary file");
        let mut command = Command::new("qemu-system-x86_64");
        command
            .args(["-accel", "tcg", "-display", "none", "-serial", "none"])
            .args([
                "-monitor",
                "none",
                "-m",
                "64",
                "-name",
                "t,debug-threads=on",
            ])
            .arg("-drive")
            .arg(format!("file={},format=raw,if=ide", disk.display()));
        command.stdin(Stdio::null()).spawn().map(Self)
    }
}

impl Drop for Emulator {
    fn drop(&mut self) {
        // Fails only when it has ended.
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// Code that QEMU generates is left by what it registers for debuggers.
pub(crate) fn registered(engine: Engine) {
    if !engine.sees_running() {
        return;
    }
    let folder = tempfile::tempdir().expect("temporary folder");
    let emulator = match Emulator::start(folder.path()) {
        Ok(emulator) => emulator,
        Err(error) => return skip("registered", &format!("qemu-system-x86_64: {error}")),
    };
    let pid = emulator.0.id().cast_signed();
    let cpu = wait_for_thread(pid, "CPU 0/TCG");
    wait_for_run_time(pid, cpu, 1_000_000_000);
    let recording = Attach::new(engine, pid).seconds(2.0).run();
    recording.assert_sound(engine);
    let thread = recording.folded().thread("CPU 0/TCG");
    let running = thread.states(&["[on-cpu]"]).with_stack();
    let made = |folded: &Folded| {
        let is_made = |frame: &String| frame.starts_with("[code in 0x");
        let lines = folded.lines.iter();
        let made = lines.filter(|line| line.frames.iter().any(is_made));
        made.map(|line| line.weight).sum::<u64>() as f64
    };
    let all = made(&running);
    assert!(all > 0.5 * running.total() as f64, "{}", running.show());
    // QEMU exports the function that enters the code.
    let whole = made(&running.chain(&["clone3", "cpu_exec"]));
    assert!(whole > 0.98 * all, "{}", running.show());
}
