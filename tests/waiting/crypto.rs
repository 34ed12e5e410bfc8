//! `wcprof crypto observe` and `advise` against a process whose update calls are known.

use std::fs::{self, File};
use std::io::{BufRead, BufReader, Read};
use std::os::unix::fs::{FileExt, PermissionsExt, chown};
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};

use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use wcprof_testkit::{
    RemoteProcess, Variant, assert_fails, fixture, has_capability, kill_worker, output_folder,
    skip, text, wait_until, wcprof, worker,
};

use crate::jit::beside_hung_server;

/// Frames of each thread and direction for one GO.
const ROUNDS: u64 = 500;
const OBSERVE: [&str; 4] = ["crypto", "observe", "--json", "-d"];
const RX: &str = "80,0 | 192,16384,16,0";
const TX: &str = "32,48 | 285,3,4096x4,16";
/// Who root of a container is outside of it.
const SHIFTED: u32 = 1_000_000;

fn start(variant: Variant) -> RemoteProcess {
    RemoteProcess::start(&fixture("crypto.c", variant))
}

/// A burst that has begun; everything that the target does from now on is seen.
struct Watching {
    child: Child,
    stderr: BufReader<std::process::ChildStderr>,
    said: String,
}

impl Watching {
    #[track_caller]
    fn start(pid: i32, seconds: &str) -> Self {
        Self::begin(&[&OBSERVE[..], &[seconds, &pid.to_string()]].concat())
    }

    #[track_caller]
    fn begin(args: &[&str]) -> Self {
        let mut child = wcprof()
            .args(args)
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            // As a shell starts it: Ctrl-Z does nothing in a group that no shell has.
            .process_group(0)
            .spawn()
            .expect("wcprof starts");
        let mut stderr = BufReader::new(child.stderr.take().expect("stderr is a pipe"));
        let mut said = String::new();
        while !said.ends_with("wcprof: watching\n") {
            let n = stderr.read_line(&mut said).expect("wcprof writes text");
            assert!(n > 0, "wcprof does not watch: {said}");
        }
        Self {
            child,
            stderr,
            said,
        }
    }

    #[track_caller]
    fn finish(self) -> (serde_json::Value, String) {
        let (out, said) = self.finish_text();
        (serde_json::from_str(&out).expect("output is JSON"), said)
    }

    #[track_caller]
    fn finish_text(mut self) -> (String, String) {
        let mut rest = String::new();
        self.stderr.read_to_string(&mut rest).expect("text");
        let output = self.child.wait_with_output().expect("wcprof ends");
        let said = self.said + &rest;
        assert!(output.status.success(), "{said}");
        (text(&output.stdout).to_owned(), said)
    }
}

/// First bytes of both functions in the target.
fn code(target: &RemoteProcess, pid: i32) -> Vec<[u8; 8]> {
    let memory = File::open(format!("/proc/{pid}/mem")).expect("memory can be read");
    let read = |key: &str| {
        let mut bytes = [0; 8];
        memory
            .read_exact_at(&mut bytes, target.keys[key])
            .expect("code is mapped");
        bytes
    };
    vec![read("encrypt"), read("decrypt")]
}

fn tracer(pid: i32) -> String {
    let status = fs::read_to_string(format!("/proc/{pid}/status")).expect("target lives");
    let line = status.lines().find(|line| line.starts_with("TracerPid:"));
    line.expect("status names the tracer").to_owned()
}

/// Let the target work once, all of it while it is watched, which it gives with the number of calls. On a machine that stands
/// still a burst can end before the work does.
#[track_caller]
fn work_watched(target: &mut RemoteProcess, pid: i32, args: &[&str]) -> (u64, Watching) {
    let before = code(target, pid);
    for _ in 0..20 {
        let watching = Watching::begin(args);
        let first = target.mark();
        target.send_line("GO");
        let calls = target.answer("MARK")["calls"] - first.get("calls");
        if code(target, pid) != before {
            return (calls, watching);
        }
        watching.finish_text();
    }
    panic!("breakpoints are not in, or no burst lasts until the work is done");
}

/// Let the target work once, and assert that exactly what it did is seen.
#[track_caller]
fn assert_exact(mut target: RemoteProcess, pid: i32) {
    let before = code(&target, pid);
    let number = pid.to_string();
    let args = [&OBSERVE[..], &["3", &number]].concat();
    let (truth, watching) = work_watched(&mut target, pid, &args);
    assert_eq!(tracer(pid), "TracerPid:\t0");
    let (json, said) = watching.finish();
    assert_eq!(code(&target, pid), before, "breakpoints are gone");
    assert!(said.contains("putting breakpoints"), "{said}");

    let burst = &json["burst"];
    let seen = &json["observation"];
    // The main thread's call has another length and another thread name.
    assert_eq!(seen["n_calls"], truth - 1, "{json:#}");
    assert_eq!(burst["n_hits"], truth - 1);
    for (key, value) in [
        ("n_missing", 0),
        ("n_malformed", 0),
        ("n_threads", 2),
        ("n_threads_born", 0),
        ("n_threads_not_observed", 1),
    ] {
        assert_eq!(burst[key], value, "{key}");
    }
    assert_eq!(burst["removal"], "verified");
    let n = 2 * ROUNDS;
    assert_eq!(
        seen["rx"]["lengths"],
        serde_json::json!({"0": 2 * n, "16": n, "80": n, "192": n, "16384": n})
    );
    assert_eq!(
        seen["tx"]["lengths"],
        serde_json::json!({"3": n, "16": n, "32": n, "48": n, "285": n, "4096": 4 * n})
    );
    for (side, calls) in [("rx", RX), ("tx", TX)] {
        assert_eq!(seen[side]["n_connections"], 2);
        assert_eq!(seen[side]["n_frames"], n);
        assert_eq!(seen[side]["n_edge_calls"], 0);
        let shapes = seen["shapes"].as_array().expect("shapes are a list");
        let of_side: Vec<_> = shapes.iter().filter(|s| s["side"] == side).collect();
        assert_eq!(of_side.len(), 1, "{shapes:?}");
        assert_eq!(
            (&of_side[0]["calls"], &of_side[0]["count"]),
            (&calls.into(), &n.into())
        );
    }
    let threads = seen["threads"].as_object().expect("threads by id");
    assert_eq!(threads.len(), 2);
    for thread in threads.values() {
        assert_eq!(
            (&thread["n_rx"], &thread["n_tx"]),
            (&(6 * ROUNDS).into(), &(9 * ROUNDS).into())
        );
    }
}

/// Whether probes are possible here; says that a test is skipped otherwise.
fn can_probe(test: &str) -> bool {
    let pmu = Path::new("/sys/bus/event_source/devices/uprobe/type").exists();
    if !has_capability() || !pmu {
        skip(test, "needs CAP_SYS_ADMIN and uprobe events");
    }
    has_capability() && pmu
}

/// Check that every call of known sequences is seen, none twice, none of others, that nobody traces
/// the target meanwhile, and that its code is what it was afterwards.
#[test]
fn exact() {
    if can_probe("exact") {
        let target = start(Variant::NoFramePointers);
        let pid = target.pid();
        assert_exact(target, pid);
    }
}

/// Check a program that holds OpenSSL itself: by its symbols, and a clear error without them.
#[test]
fn linked_statically() {
    if !can_probe("linked_statically") {
        return;
    }
    let target = start(Variant::Static);
    let pid = target.pid();
    assert_exact(target, pid);

    let folder = tempfile::tempdir_in(output_folder()).expect("temporary folder");
    let stripped = folder.path().join("stripped");
    let strip = Command::new("strip")
        .arg("-o")
        .arg(&stripped)
        .arg(fixture("crypto.c", Variant::Static))
        .status();
    assert!(strip.expect("strip runs").success());
    let target = RemoteProcess::start(&stripped);
    assert_fails(&observe(target.pid()), 1, &["maps no libcrypto", "hint:"]);
}

/// The libcrypto that the fixture uses.
fn system_libcrypto() -> PathBuf {
    let target = start(Variant::NoFramePointers);
    let maps = fs::read_to_string(format!("/proc/{}/maps", target.pid())).expect("target lives");
    let path = maps.lines().find_map(|line| {
        let path = line.split_whitespace().nth(5)?;
        path.contains("/libcrypto.so").then(|| PathBuf::from(path))
    });
    path.expect("the fixture links libcrypto")
}

/// Check a library whose file was deleted since.
#[test]
fn deleted_library() {
    if !can_probe("deleted_library") {
        return;
    }
    let folder = tempfile::tempdir_in(output_folder()).expect("temporary folder");
    let library = system_libcrypto();
    let copy = folder.path().join(library.file_name().expect("a file"));
    fs::copy(&library, &copy).expect("can be copied");
    let target = RemoteProcess::start_command(
        Command::new(fixture("crypto.c", Variant::NoFramePointers))
            .env("LD_LIBRARY_PATH", folder.path()),
    );
    fs::remove_file(&copy).expect("can be removed");
    let pid = target.pid();
    let maps = fs::read_to_string(format!("/proc/{pid}/maps")).expect("target lives");
    assert!(maps.contains("(deleted)"), "{maps}");
    assert_exact(target, pid);
}

/// Check a library that only the target's mount namespace has.
#[test]
fn other_mount_namespace() {
    if !can_probe("other_mount_namespace") {
        return;
    }
    let folder = tempfile::tempdir().expect("temporary folder");
    let library = system_libcrypto();
    let target = RemoteProcess::start_command(
        Command::new("unshare")
            .args(["-m", "sh", "-ec"])
            .arg("mount -t tmpfs none \"$0\"; cp \"$1\" \"$0\"; LD_LIBRARY_PATH=\"$0\" exec \"$2\"")
            .arg(folder.path())
            .arg(&library)
            .arg(fixture("crypto.c", Variant::NoFramePointers)),
    );
    let hidden = folder.path().join(library.file_name().expect("a file"));
    assert!(!hidden.exists());
    let pid = target.pid();
    let maps = fs::read_to_string(format!("/proc/{pid}/maps")).expect("target lives");
    assert!(maps.contains(&hidden.display().to_string()), "{maps}");
    assert_exact(target, pid);
}

/// Check that the breakpoints vanish with wcprof when it is killed in the middle.
#[test]
fn killed() {
    if !can_probe("killed") {
        return;
    }
    let target = start(Variant::NoFramePointers);
    let pid = target.pid();
    let before = code(&target, pid);
    let mut watching = Watching::start(pid, "10");
    assert_ne!(code(&target, pid), before, "breakpoints are in");
    kill_worker(&mut watching.child);
    wait_for_removal(&target, pid, &before);
}

/// Descriptors are closed before a process can be waited for; the kernel may put their end off.
#[track_caller]
fn wait_for_removal(target: &RemoteProcess, pid: i32, before: &[[u8; 8]]) {
    wait_until("breakpoints stay", || {
        (code(target, pid) == before).then_some(())
    });
}

/// Check that Ctrl-Z in the middle does not keep the breakpoints in.
#[test]
fn stopped() {
    if !can_probe("stopped") {
        return;
    }
    let target = start(Variant::NoFramePointers);
    let pid = target.pid();
    let before = code(&target, pid);
    let watching = Watching::start(pid, "1");
    assert_ne!(code(&target, pid), before, "breakpoints are in");
    let worker = Pid::from_raw(worker(&watching.child));
    kill(worker, Signal::SIGTSTP).expect("wcprof runs");
    wait_for_removal(&target, pid, &before);
    watching.finish();
}

fn observe(pid: i32) -> Output {
    wcprof()
        .args(["crypto", "observe", &pid.to_string(), "-d", "0.05"])
        .output()
        .expect("wcprof starts")
}

/// Check a process without libcrypto, and pids that are none.
#[test]
fn no_library() {
    let target = RemoteProcess::start(&fixture("eintr.c", Variant::NoFramePointers));
    let output = observe(target.pid());
    if has_capability() {
        assert_fails(&output, 1, &["maps no libcrypto", "hint:"]);
    }
    assert_fails(&observe(i32::MAX), 3, &["no process"]);
}

/// Check that what a command, which gets a target's number, prints is of the protocol's frames, and said to be, and that
/// nothing is put into the target.
#[track_caller]
fn assert_by_protocol(mut command: Command) -> (String, String) {
    let target = start(Variant::NoFramePointers);
    let pid = target.pid();
    let before = code(&target, pid);
    let output = command.arg(pid.to_string()).output().expect("it runs");
    let (out, said) = (text(&output.stdout), text(&output.stderr));
    assert_eq!(output.status.code(), Some(0), "{said}");
    assert!(!said.contains("putting breakpoints"), "{said}");
    assert!(out.contains("NOT OBSERVED"), "{out}");
    assert_eq!(code(&target, pid), before);
    (out.to_owned(), said.to_owned())
}

fn unprivileged(kind: &str) -> Command {
    let mut command = Command::new("setpriv");
    command.args(["--bounding-set", "-sys_admin", "--"]);
    command.arg(wcprof().get_program()).args(["crypto", kind]);
    command
}

/// Check that without the privilege the protocol's frames are shown.
#[test]
fn without_privilege() {
    if !has_capability() {
        return skip("without_privilege", "needs root to drop a capability");
    }
    let (out, said) = assert_by_protocol(unprivileged("observe"));
    assert!(said.contains("CAP_SYS_ADMIN"), "{said}");
    assert!(out.contains(RX), "{out}");
}

/// Check that on a kernel without uprobe events (an empty folder hides them) that is said, and the
/// protocol's frames are shown.
#[test]
fn no_uprobe_events() {
    if !has_capability() {
        return skip("no_uprobe_events", "needs root to make a mount namespace");
    }
    let mut command = Command::new("unshare");
    command.args(["--mount", "sh", "-c"]);
    command.arg(
        "mount -t tmpfs none /sys/bus/event_source/devices && exec \"$0\" crypto observe \"$1\"",
    );
    command.arg(wcprof().get_program());
    let (out, said) = assert_by_protocol(command);
    assert!(said.contains("CONFIG_UPROBE_EVENTS"), "{said}");
    assert!(out.contains(RX), "{out}");
}

/// A target that maps a library whose constructor misbehaves, by `define`, when it is measured.
fn start_evil(folder: &Path, define: &str) -> RemoteProcess {
    let program = fixture("eintr.c", Variant::NoFramePointers);
    start_evil_by(&mut Command::new(program), folder, define)
}

fn start_evil_by(command: &mut Command, folder: &Path, define: &str) -> RemoteProcess {
    let library = folder.join("libcrypto.so.3");
    let victim = folder.join("victim");
    fs::write(&victim, "precious").expect("can be written");
    let secret = folder.join("secret");
    fs::write(&secret, "").expect("can be written");
    let nobody = fs::Permissions::from_mode(0o000);
    fs::set_permissions(&secret, nobody).expect("can be changed");
    // Of root in the namespace of `shifted_users`.
    chown(&secret, Some(SHIFTED), Some(SHIFTED)).expect("can be changed");
    let source = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../fixtures/src/crypto_evil.c");
    let gcc = Command::new("gcc")
        .args(["-shared", "-fPIC", "-O1", &format!("-D{define}")])
        .arg(format!("-DMARK=\"{}\"", folder.join("mark").display()))
        .arg(format!("-DVICTIM=\"{}\"", victim.display()))
        .arg(format!("-DSECRET=\"{}\"", secret.display()))
        .arg("-o")
        .arg(&library)
        .arg(source)
        .status();
    assert!(gcc.expect("gcc runs").success());
    let command = command.env("LD_PRELOAD", &library);
    RemoteProcess::start_command(command.env("WELL_BEHAVED", "1"))
}

/// A folder that everybody may enter and write, so that only the confinement refuses.
fn open_folder() -> tempfile::TempDir {
    let folder = tempfile::tempdir().expect("temporary folder");
    let all = fs::Permissions::from_mode(0o777);
    fs::set_permissions(folder.path(), all).expect("can be changed");
    folder
}

fn calibrate(pid: i32) -> Output {
    wcprof()
        .args(["crypto", "calibrate", "--json", &pid.to_string()])
        .output()
        .expect("wcprof starts")
}

/// Check that a library that writes, deletes, connects, forks, or lies about itself, is contained, and
/// what it says is not believed.
#[test]
fn misbehaving_library() {
    if !has_capability() {
        return skip("misbehaving_library", "needs root to confine a process");
    }
    for (define, said) in [
        ("FILES", "all refused"),
        ("FORK", "fork refused"),
        ("LIE", "its result is unsound"),
    ] {
        let folder = open_folder();
        let target = start_evil(folder.path(), define);
        let output = calibrate(target.pid());
        assert_fails(&output, 1, &["failed to calibrate", said, "hint:"]);
        assert!(!text(&output.stderr).contains('\x1b'));
        assert!(!folder.path().join("mark").exists(), "{define}");
        let victim = fs::read_to_string(folder.path().join("victim"));
        assert_eq!(victim.expect("still there"), "precious", "{define}");
    }
}

/// Check that the library has no capabilities in the user namespace of a container whose root is another user outside, and
/// whose `/proc` says nothing.
#[test]
fn shifted_users() {
    if !has_capability() {
        return skip("shifted_users", "needs root to confine a process");
    }
    let folder = open_folder();
    let mut command = Command::new("unshare");
    command
        .args(["--user", "--mount"])
        .arg(fixture("eintr.c", Variant::NoFramePointers));
    let target = start_evil_by(&mut command, folder.path(), "FILES");
    let pid = target.pid();
    let hide = ["mount", "-t", "tmpfs", "none", "/proc"];
    let hidden = Command::new("nsenter")
        .args(["--mount", "--target", &pid.to_string()])
        .args(hide)
        .status();
    assert!(hidden.expect("nsenter runs").success());
    for map in ["uid_map", "gid_map"] {
        let path = format!("/proc/{pid}/{map}");
        fs::write(path, format!("0 {SHIFTED} 1000000000")).expect("root may map users");
    }
    let output = calibrate(pid);
    assert_fails(&output, 1, &["failed to calibrate", "all refused", "hint:"]);
}

/// Check that nothing is loaded where a part of the confinement is refused, as in a container with a
/// strict filter: limits, user, root, filter, and no new privileges.
#[test]
fn confinement_refused() {
    if !has_capability() {
        return skip("confinement_refused", "needs root to confine a process");
    }
    let folder = open_folder();
    let target = start_evil(folder.path(), "FILES");
    let deny = folder.path().join("deny");
    let source = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../fixtures/src/deny.c");
    let gcc = Command::new("gcc")
        .arg("-o")
        .arg(&deny)
        .arg(source)
        .status();
    assert!(gcc.expect("gcc runs").success());
    // Numbers of x86-64 (asm/unistd_64.h).
    for (number, said) in [
        (302, "a limit: EPERM"),
        (117, "failed to become user"),
        (116, "failed to become user"),
        (81, "failed to enter its root"),
        (157, "failed to follow the end of wcprof"),
        (317, "failed to set the filter"),
    ] {
        let output = Command::new(&deny)
            .arg(number.to_string())
            .arg(wcprof().get_program())
            .args(["crypto", "calibrate", "--json"])
            .arg(target.pid().to_string())
            .output()
            .expect("deny runs");
        assert_fails(&output, 1, &["failed to calibrate", said, "hint:"]);
        assert!(!folder.path().join("mark").exists(), "{said}");
    }
}

/// Check that BoringSSL, which has functions of the same names, is refused by name.
#[test]
fn boring_library() {
    let folder = open_folder();
    let source = folder.path().join("boring.c");
    let library = folder.path().join("libcrypto.so.1");
    fs::write(
        &source,
        "int BORINGSSL_self_test(void) { return 1; }\nint EVP_EncryptUpdate(void) { return 1; }\n\
         int EVP_DecryptUpdate(void) { return 1; }\n",
    )
    .expect("can be written");
    let gcc = Command::new("gcc")
        .args(["-shared", "-fPIC", "-o"])
        .args([&library, &source])
        .status();
    assert!(gcc.expect("gcc runs").success());
    let target = RemoteProcess::start_command(
        Command::new(fixture("eintr.c", Variant::NoFramePointers)).env("LD_PRELOAD", &library),
    );
    let pid = target.pid().to_string();
    for args in [
        &["crypto", "observe", &pid][..],
        &["crypto", "advise", &pid],
        &["crypto", "calibrate", &pid],
    ] {
        let output = wcprof().args(args).output().expect("wcprof starts");
        assert_fails(&output, 1, &["is BoringSSL or AWS-LC"]);
    }
}

/// Check that a library that never returns from its constructor is given up, with its process.
#[test]
fn hanging_library() {
    if !has_capability() {
        return skip("hanging_library", "needs root to confine a process");
    }
    for define in ["SPIN", "SLEEP"] {
        let folder = open_folder();
        let target = start_evil(folder.path(), define);
        assert_fails(&calibrate(target.pid()), 1, &["did not finish in time"]);
        // It was killed and waited for: no process is left that maps the library but the target.
        let maps_it = |pid: &str| {
            fs::read_to_string(format!("/proc/{pid}/maps"))
                .is_ok_and(|maps| maps.contains(&folder.path().display().to_string()))
        };
        let n_left = fs::read_dir("/proc")
            .expect("/proc can be read")
            .filter_map(|entry| entry.ok()?.file_name().into_string().ok())
            .filter(|pid| pid.parse::<i32>().is_ok_and(|pid| pid != target.pid()) && maps_it(pid))
            .count();
        assert_eq!(n_left, 0, "{define}");
    }
}

/// Check that a library whose name leads to a file server that never answers is given up, and its process is left behind.
#[test]
fn hung_file_server() {
    if !has_capability() {
        return skip("hung_file_server", "needs root to confine a process");
    }
    if !Path::new("/dev/fuse").exists() {
        return skip("hung_file_server", "this kernel has no FUSE");
    }
    // Below `/tmp`, where the server is.
    let folder = open_folder();
    let mut command = Command::new("unshare");
    command
        .arg("--mount")
        .arg(fixture("eintr.c", Variant::NoFramePointers));
    let target = start_evil_by(&mut command, folder.path(), "FILES");
    let calibrate = |_: &mut _| calibrate(target.pid());
    let (output, mark) = beside_hung_server("lookups", target.pid(), calibrate);
    assert!(mark.get("taken") > 0, "{}", text(&output.stderr));
    assert_fails(&output, 1, &["did not finish in time"]);
}

/// Check that a copy of a real library is measured where only the target's mount namespace has it, and
/// that a deleted one is refused.
#[test]
fn foreign_library() {
    if !has_capability() {
        return skip("foreign_library", "needs root to confine a process");
    }
    let folder = open_folder();
    let library = system_libcrypto();
    let calibrate_copy = |change: &str| {
        let target = RemoteProcess::start_command(
            Command::new("unshare")
                .args(["-m", "sh", "-ec"])
                .arg(format!(
                    "mount -t tmpfs none \"$0\"; cp \"$1\" \"$0\"; {change} \
                     LD_LIBRARY_PATH=\"$0\" exec \"$2\""
                ))
                .arg(folder.path())
                .arg(&library)
                .arg(fixture("crypto.c", Variant::NoFramePointers)),
        );
        let output = calibrate(target.pid());
        assert!(output.status.success(), "{}", text(&output.stderr));
        output
    };
    // The same bytes: the system's own is measured.
    assert!(!text(&calibrate_copy("").stderr).contains("confined"));
    // One byte more makes it another file.
    let output = calibrate_copy("echo >> \"$0/${1##*/}\";");
    assert!(text(&output.stderr).contains("confined"));
    let json: serde_json::Value = serde_json::from_slice(&output.stdout).expect("JSON");
    let name = library.file_name().expect("a file");
    let path = folder.path().join(name);
    assert_eq!(json["library"]["path"], path.display().to_string());

    let copy = folder.path().join(name);
    fs::copy(&library, &copy).expect("can be copied");
    let mut bytes = fs::read(&copy).expect("can be read");
    bytes.push(b'\n');
    fs::write(&copy, bytes).expect("can be written");
    let target = RemoteProcess::start_command(
        Command::new(fixture("crypto.c", Variant::NoFramePointers))
            .env("LD_LIBRARY_PATH", folder.path()),
    );
    fs::remove_file(&copy).expect("can be removed");
    assert_fails(&calibrate(target.pid()), 1, &["deleted", "hint:"]);
}

/// A saved calibration of no real library: 100 ns a unit, 0.2 ns a byte, and `call_ns` for each call.
fn saved_calibration(folder: &Path, call_ns: f64) -> PathBuf {
    let line =
        |call: f64, byte: f64| serde_json::json!([[0, call], [65536, call + 65536.0 * byte]]);
    let nothing = serde_json::json!([[0, 0.0]]);
    let costs = serde_json::json!({
        "unit_ns": 100.0, "nonce_ns": 40.0, "rekey_ns": 200.0, "context_ns": 500.0,
        "update": line(call_ns, 0.2), "small": [[0, call_ns]], "fill": [[1, call_ns]],
        "tail": nothing, "head": nothing, "shifted": nothing, "out_of_place": nothing, "first": nothing,
    });
    let calibration = serde_json::json!({
        "schema": "msgr-crypto-calibration", "version": 5,
        "library": {
            "version": "OpenSSL 3.0.0 of a test", "path": null, "kernel": "aesni-stitched",
            "cpu_features": ["aes"],
        },
        "host": {"cpu": "a CPU", "l2_bytes": 1 << 20},
        "made_unix": 1, "cpu_seconds": 2.0, "reference_ns": 3000.0, "disturbed_share": 0.0,
        "encrypt": costs, "decrypt": costs, "copy": line(5.0, 0.02),
    });
    let path = folder.join(format!("{call_ns}.json"));
    fs::write(&path, calibration.to_string()).expect("can be written");
    path
}

const CANNOT: &str = "Batching cannot help: it would save ";
const WOULD: &str = "Batching would save ";

/// Check the advice for a live process: what was seen is what it rests on, a sentence comes first, and
/// whether batching helps follows from what calls cost.
#[test]
fn advice_for_a_process() {
    if !can_probe("advice_for_a_process") {
        return;
    }
    let folder = tempfile::tempdir().expect("temporary folder");
    let mut target = start(Variant::NoFramePointers);
    let number = target.pid();
    let pid = number.to_string();
    for (call_ns, sentence, helps) in [(5.0, CANNOT, false), (200.0, WOULD, true)] {
        let saved = saved_calibration(folder.path(), call_ns);
        let saved = saved.to_str().expect("UTF-8");
        let args = ["crypto", "advise", &pid, "-d", "2", "--calibration", saved];
        let (_, watching) = work_watched(&mut target, number, &args);
        let (out, _) = watching.finish_text();
        assert!(out.starts_with(sentence), "{out}");
        let seen = format!("From {} frames of 2 kinds seen", 4 * ROUNDS);
        for words in [
            seen.as_str(),
            "RX in one allocation and call",
            "TX gathered where that pays",
            "both contiguous from the start",
            "OpenSSL 3.1 or later",
            "one more busy messenger thread",
            "limit: all bytes at the peak rate",
            "Costs as calibrated in the given file:",
            "OpenSSL 3.0.0 of a test",
        ] {
            assert!(out.contains(words), "no {words:?} in: {out}");
        }

        let args = [&args[..], &["--json"]].concat();
        let (_, watching) = work_watched(&mut target, number, &args);
        let (json, _) = watching.finish();
        assert_eq!(json["schema"], "wcprof-crypto-advise");
        assert_eq!(json["calibrated"], "saved");
        assert_eq!(json["watched"]["source"], "live");
        assert_eq!(
            json["report"]["verdict"]["batching_helps"], helps,
            "{json:#}"
        );
        assert!(
            json["verdict"]
                .as_str()
                .is_some_and(|text| text.starts_with(sentence))
        );
        // The same frames by hand: calls of RX and TX, units, bytes.
        let frames = [(2.0 + 4.0, 16672.0), (2.0 + 7.0, 16768.0)];
        let by_hand: f64 = frames
            .iter()
            .map(|(calls, bytes)| 200.0 + calls * call_ns + 0.2 * bytes)
            .sum::<f64>()
            / 2.0;
        let now = json["choices"][0]["frame_ns"].as_f64().expect("a figure");
        assert!((now / by_hand - 1.0).abs() < 0.02, "{now}, not {by_hand}");
    }
}

/// Check the advice without the privilege to observe: the protocol's frames, marked as such, and still a
/// verdict.
#[test]
fn advice_without_privilege() {
    if !has_capability() {
        return skip(
            "advice_without_privilege",
            "needs root to drop a capability",
        );
    }
    let folder = tempfile::tempdir().expect("temporary folder");
    let mut command = unprivileged("advise");
    command
        .arg("--calibration")
        .arg(saved_calibration(folder.path(), 5.0));
    let (out, _) = assert_by_protocol(command);
    assert!(out.starts_with(CANNOT) || out.starts_with(WOULD), "{out}");
}

/// Check the advice for a trace of a real OSD: the share of encryption, what is unknown, and whose
/// library was measured.
#[test]
fn advice_for_a_trace() {
    let folder = tempfile::tempdir().expect("temporary folder");
    let trace = Path::new(env!("CARGO_MANIFEST_DIR"))
        .join("../../fixtures/traces/ceph-osd-secure-randread.wct");
    let advise = |args: &[&str]| {
        let output = wcprof()
            .args(["crypto", "advise"])
            .arg(&trace)
            .args(args)
            .output()
            .expect("wcprof starts");
        assert!(output.status.success(), "{}", text(&output.stderr));
        (
            text(&output.stdout).to_owned(),
            text(&output.stderr).to_owned(),
        )
    };
    for (call_ns, sentence) in [(1.0, CANNOT), (200.0, WOULD)] {
        let saved = saved_calibration(folder.path(), call_ns);
        let (out, said) = advise(&["--calibration", saved.to_str().expect("UTF-8")]);
        assert!(out.starts_with(sentence), "{out}");
        assert!(out.contains("of the messenger threads' CPU time"), "{out}");
        assert!(out.contains("From the trace of osd.0"), "{out}");
        assert!(
            out.contains("Costs as calibrated in the given file:"),
            "{out}"
        );
        assert_eq!(said, "");
    }
    let (out, said) = advise(&[]);
    assert!(said.contains("those of this system's"), "{said}");
    assert!(out.contains("may not be those of the trace"), "{out}");
    let (out, _) = advise(&["--json"]);
    let json: serde_json::Value = serde_json::from_str(&out).expect("JSON");
    assert_eq!(json["calibrated"], "system");
    assert!(
        json["mix"]["crypto_share"]
            .as_f64()
            .is_some_and(|share| share > 0.0)
    );
}
