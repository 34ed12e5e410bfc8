//! Core files that the kernel wrote of programs with known stacks and known holders of locks, and deadlocks of live ones.

use std::collections::BTreeSet;
use std::fs;
use std::io::{BufRead, BufReader, Write};
use std::net::TcpListener;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::process::Command;

use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use serde_json::Value;
use tempfile::TempDir;

use wcprof_testkit::{
    Attach, Engine, RemoteProcess, Variant, fixture, printed, skip, text, wcprof,
};

/// The file that a pattern without a path makes in the folder of the process; `None` where the host has another pattern.
fn core_name(pid: i32) -> Option<String> {
    let pattern = fs::read_to_string("/proc/sys/kernel/core_pattern").ok()?;
    let with_pid = fs::read_to_string("/proc/sys/kernel/core_uses_pid").ok()?;
    let is_plain = pattern
        .trim()
        .bytes()
        .all(|byte| byte.is_ascii_alphanumeric());
    let suffix = if with_pid.trim() == "0" {
        String::new()
    } else {
        format!(".{pid}")
    };
    is_plain.then(|| format!("{}{suffix}", pattern.trim()))
}

/// Starts a program that may dump core into its folder.
fn start(folder: &Path, program: &Path) -> RemoteProcess {
    let mut command = Command::new("sh");
    command
        .args(["-c", "ulimit -c unlimited && exec \"$0\""])
        .arg(program);
    RemoteProcess::start_command(command.current_dir(folder))
}

/// A core in a folder, and the tids of its threads by name.
type Dumped = (TempDir, PathBuf, Vec<(String, u64)>);

/// The core of the fixture.
fn core(test: &str) -> Option<Dumped> {
    core_of(test, &fixture("deadlock.c", Variant::NoFramePointers))
}

/// The core of the fixture, by this program of it.
fn core_of(test: &str, program: &Path) -> Option<Dumped> {
    let folder = tempfile::tempdir().expect("a folder");
    let mut target = start(folder.path(), program);
    let pid = target.pid();
    let Some(name) = core_name(pid) else {
        skip(
            test,
            "core_pattern of this host writes no file into the folder of the process",
        );
        return None;
    };
    kill(Pid::from_raw(pid), Signal::SIGABRT).expect("the fixture is there");
    target.close();
    let path = folder.path().join(name);
    if !path.exists() {
        skip(test, "the kernel wrote no core");
        return None;
    }
    let tids = target.keys.iter().map(|(name, tid)| (name.clone(), *tid));
    let tids = tids.collect();
    Some((folder, path, tids))
}

fn json(trace: &Path, args: &[&str]) -> Value {
    serde_json::from_str(&printed("report", trace, args)).expect("JSON")
}

/// Who holds what in a core, and the circle, packed or not.
#[test]
fn holders() {
    let Some((_folder, path, tids)) = core("holders in a core") else {
        return;
    };
    let tid = |name: &str| {
        tids.iter()
            .find(|(known, _)| known == name)
            .expect("a thread")
            .1
    };
    for packer in [
        None,
        Some(["zstd", "zst"]),
        Some(["xz", "xz"]),
        Some(["lz4", "lz4"]),
    ] {
        let mut path = path.clone();
        if let Some([packer, extension]) = packer {
            let packed = path.with_extension(extension);
            let out = fs::File::create(&packed).expect("a file");
            let status = Command::new(packer)
                .args(["-q", "-c"])
                .arg(&path)
                .stdout(out)
                .status();
            if !status.is_ok_and(|status| status.success()) {
                skip("a packed core", &format!("{packer} is not here"));
                continue;
            }
            path = packed;
        }
        let report = json(&path, &["--locks", "--json"]);
        let sites = report["sites"].as_array().expect("a list");
        let held = |function: &str| {
            let site = sites.iter().find(|site| {
                site["function"]
                    .as_str()
                    .is_some_and(|f| f.contains(function))
            });
            let site = site.unwrap_or_else(|| panic!("{function}: {report:#}"));
            site["held_by"][0]["tids"][0].as_u64()
        };
        assert_eq!(held("wants_recursive"), Some(tid("holder")));
        assert_eq!(held("wants_read"), Some(tid("holder")));
        let deadlocks = report["deadlocks"].as_array().expect("a list");
        let mut circles: Vec<Vec<u64>> = deadlocks
            .iter()
            .map(|deadlock| {
                let threads = deadlock["threads"].as_array().expect("a list");
                threads
                    .iter()
                    .map(|one| one["tid"].as_u64().expect("a tid"))
                    .collect()
            })
            .collect();
        circles.sort_by_key(Vec::len);
        let expected = [
            vec![tid("own")],
            vec![tid("circle0"), tid("circle1"), tid("circle2")],
        ];
        // A circle begins with its first thread, which may be any of them.
        let rotated = |circle: &[u64]| {
            let first = circle
                .iter()
                .position(|tid| Some(tid) == circle.iter().min())
                .unwrap_or(0);
            [&circle[first..], &circle[..first]].concat()
        };
        let sorted = |circles: &[Vec<u64>]| circles.iter().map(|c| rotated(c)).collect::<Vec<_>>();
        assert_eq!(sorted(&circles), sorted(&expected));
    }
}

/// The stacks of a core are those of gdb: the functions of the fixture, in its order.
#[test]
fn stacks() {
    let Some((_folder, path, _)) = core("stacks of a core") else {
        return;
    };
    let folded = printed(
        "report",
        &path,
        &["--format", "folded", "--by", "thread", "--idle", "show"],
    );
    for functions in [
        "circle;take_next;",
        "wants_read;",
        "wants_recursive;",
        "wants_own;",
        "holder;",
    ] {
        let found = folded
            .lines()
            .any(|line| line.contains(&format!(";{functions}")) && line.contains("start_thread"));
        assert!(found, "{functions} in {folded}");
    }
    // Threads are named by what they begin with.
    for name in ["circle", "holder", "wants_own", "main"] {
        let start = format!("{name}/");
        assert!(
            folded.lines().any(|line| line.starts_with(&start)),
            "{name} in {folded}"
        );
    }
    let screen = wcprof()
        .arg("report")
        .arg(&path)
        .output()
        .expect("wcprof starts");
    let shown = text(&screen.stdout);
    assert!(
        shown.contains("Deadlock: 3 threads wait for each other's locks"),
        "{shown}"
    );
    assert!(shown.contains("ended by signal 6"), "{shown}");
}

/// A core that was cut, and one with only anonymous memory, give what they have.
#[test]
fn cut() {
    let Some((folder, path, _)) = core("a core that was cut") else {
        return;
    };
    let bytes = fs::read(&path).expect("the core");
    let cut = folder.path().join("cut");
    for part in [1, 4, 10] {
        fs::write(&cut, &bytes[..bytes.len() * part / 16]).expect("a file");
        let output = wcprof()
            .arg("report")
            .arg(&cut)
            .output()
            .expect("wcprof starts");
        let said = [text(&output.stdout), text(&output.stderr)].concat();
        let code = output.status.code();
        assert!(
            code == Some(0) || (code == Some(5) && said.contains("core file")),
            "{code:?}: {said}"
        );
        if code == Some(0) {
            assert!(said.contains("core file was cut"), "{said}");
        }
    }
}

/// Bytes of a core with a hole between its headers and what they lead to, which is not on the disk.
fn with_hole(core: &[u8], hole: u64, path: &Path) {
    let word = |at: usize| u64::from_le_bytes(core[at..at + 8].try_into().expect("eight bytes"));
    let headers = usize::try_from(word(32)).expect("an offset");
    let n = usize::from(u16::from_le_bytes([core[56], core[57]]));
    let end = headers + 56 * n;
    let mut head = core[..end].to_vec();
    for at in (headers..end).step_by(56) {
        let moved = (word(at + 8) + hole).to_le_bytes();
        head[at + 8..at + 16].copy_from_slice(&moved);
    }
    let file = fs::File::create(path).expect("a file");
    file.write_all_at(&head, 0).expect("space");
    file.write_all_at(&core[end..], end as u64 + hole)
        .expect("space");
}

/// A sparse core of 40 GB, and a packed one of 1 GB, say what the core without the hole says, within 128 MB in each process.
#[test]
fn sparse() {
    const KIB: u64 = 128 << 10;
    let Some((folder, path, _)) = core("a sparse core") else {
        return;
    };
    let core = fs::read(&path).expect("the core");
    let said = |path: &Path| {
        let output = Command::new("sh")
            .args(["-c", &format!("ulimit -d {KIB}; exec \"$0\" \"$@\"")])
            .arg(wcprof().get_program())
            .arg("report")
            .arg(path)
            .args(["--locks", "--json"])
            .output()
            .expect("wcprof starts");
        assert!(
            output.status.success(),
            "{}",
            String::from_utf8_lossy(&output.stderr)
        );
        let mut report: Value = serde_json::from_slice(&output.stdout).expect("JSON");
        // The notes have the file's name.
        report["headline"] = Value::Null;
        report
    };
    let expected = said(&path);
    assert_eq!(
        expected["deadlocks"].as_array().map(Vec::len),
        Some(2),
        "{expected:#}"
    );
    let sparse = folder.path().join("sparse");
    with_hole(&core, 40 << 30, &sparse);
    assert_eq!(said(&sparse), expected);
    with_hole(&core, 1 << 30, &sparse);
    let packed = folder.path().join("sparse.zst");
    let status = Command::new("zstd")
        .args(["-q", "-1"])
        .arg(&sparse)
        .arg("-o")
        .arg(&packed)
        .status();
    if !status.is_ok_and(|status| status.success()) {
        return skip("a packed sparse core", "zstd is not here");
    }
    assert_eq!(said(&packed), expected);
}

/// Serves a file as the executable of any build-id, and nothing else, at a URL.
fn serve(program: Vec<u8>) -> String {
    let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
    let url = format!("http://{}", listener.local_addr().expect("an address"));
    std::thread::spawn(move || {
        for stream in listener.incoming().flatten() {
            let mut reader = BufReader::new(&stream);
            let mut request = String::new();
            let mut line = String::new();
            while reader.read_line(&mut line).is_ok_and(|n| n > 2) {
                request.push_str(&line);
                line.clear();
            }
            let is_wanted = request
                .lines()
                .next()
                .is_some_and(|l| l.contains("/executable "));
            let (status, body) = match is_wanted {
                true => ("200 OK", program.as_slice()),
                false => ("404 Not Found", &[][..]),
            };
            let length = body.len();
            let head = format!(
                "HTTP/1.1 {status}\r\nContent-Length: {length}\r\nConnection: close\r\n\r\n"
            );
            // A client that has gone is its own affair.
            let mut out = &stream;
            let _ = out
                .write_all(head.as_bytes())
                .and_then(|()| out.write_all(body));
        }
    });
    url
}

/// The code of a program that is not there any more comes from a debuginfod server, by its build-id.
#[test]
fn code_from_a_server() {
    let folder = tempfile::tempdir().expect("a folder");
    let program = folder.path().join("gone");
    fs::copy(fixture("deadlock.c", Variant::NoFramePointers), &program).expect("a copy");
    let Some((_folder, path, _)) = core_of("code of a core from a server", &program) else {
        return;
    };
    let bytes = fs::read(&program).expect("the program");
    fs::remove_file(&program).expect("the program is there");
    let folded = |url: &str| {
        let output = wcprof()
            .arg("report")
            .arg(&path)
            .args(["--format", "folded", "--by", "thread", "--idle", "show"])
            .env("DEBUGINFOD_URLS", url)
            .env("DEBUGINFOD_CACHE_PATH", folder.path().join("cache"))
            .env("XDG_CACHE_HOME", folder.path())
            .output()
            .expect("wcprof starts");
        assert!(output.status.success());
        text(&output.stdout).to_owned()
    };
    // Without it, stacks end where the program begins.
    let without = folded("");
    assert!(!without.contains("start_thread;"), "{without}");
    let with = folded(&serve(bytes));
    assert!(with.contains("start_thread;circle;take_next;"), "{with}");
}

/// How many threads each deadlock of a report has, the shortest first.
fn circles(report: &Value) -> Vec<usize> {
    let all = report["deadlocks"].as_array().expect("a list");
    let lengths = all
        .iter()
        .map(|circle| circle["threads"].as_array().expect("its threads").len());
    let mut lengths: Vec<_> = lengths.collect();
    lengths.sort_unstable();
    lengths
}

/// A circle of a live process is found by each engine, threads that take locks in one order are none.
pub(crate) fn live(engine: Engine) {
    let target = RemoteProcess::start(&fixture("deadlock.c", Variant::NoFramePointers));
    let recording = Attach::new(engine, target.pid()).seconds(4.0).run();
    let report = recording.report(&["--locks", "--json"]);
    let report: Value = serde_json::from_str(&report).expect("JSON");
    assert_eq!(circles(&report), [1, 3], "{report:#}");
    let program = fixture("deadlock.c", Variant::NoFramePointers);
    let ordered = RemoteProcess::start_command(Command::new(program).arg("ordered"));
    let recording = Attach::new(engine, ordered.pid()).seconds(6.0).run();
    let report = recording.report(&["--locks", "--json"]);
    let report: Value = serde_json::from_str(&report).expect("JSON");
    assert_eq!(circles(&report), [0; 0], "{report:#}");
}

/// One look at a live process: threads are counted by pool, each with where it waits; holders and circles are those of the program, and
/// threads that take locks in one order are no deadlock.
pub(crate) fn snapshot(engine: Engine) {
    let folder = tempfile::tempdir().expect("a folder");
    let look = |pid: i32, name: &str| {
        let trace = folder.path().join(name);
        let output = wcprof()
            .args(["attach", "--snapshot", "--engine", engine.name(), "-o"])
            .arg(&trace)
            .arg(pid.to_string())
            .output()
            .expect("wcprof starts");
        assert!(
            output.status.success(),
            "{}",
            String::from_utf8_lossy(&output.stderr)
        );
        let screen = text(&output.stdout);
        assert!(screen.contains("1 snapshot"), "{screen}");
        assert!(screen.contains("threads, and no time"), "{screen}");
        trace
    };
    let target = RemoteProcess::start(&fixture("deadlock.c", Variant::NoFramePointers));
    let trace = look(target.pid(), "circles.wct");
    let tid = |name: &str| target.keys[name];
    let locks = json(&trace, &["--locks", "--json"]);
    assert_eq!(circles(&locks), [1, 3], "{locks:#}");
    let of_reader = locks["sites"]
        .as_array()
        .expect("a list")
        .iter()
        .find(|site| {
            site["function"]
                .as_str()
                .is_some_and(|name| name.contains("wants_read"))
        });
    let holder = &of_reader.expect("a site")["held_by"][0]["tids"][0];
    assert_eq!(holder.as_u64(), Some(tid("holder")), "{locks:#}");
    // Eight threads and the first one, once each.
    let args = ["--format", "folded", "--by", "thread", "--idle", "show"];
    let folded = printed("report", &trace, &args);
    let threads: BTreeSet<&str> = folded.lines().filter_map(|l| l.split(';').next()).collect();
    assert_eq!((folded.lines().count(), threads.len()), (9, 9), "{folded}");

    let program = fixture("deadlock.c", Variant::NoFramePointers);
    let ordered = RemoteProcess::start_command(Command::new(program).arg("ordered"));
    let trace = look(ordered.pid(), "ordered.wct");
    let locks = json(&trace, &["--locks", "--json"]);
    assert_eq!(circles(&locks), [0; 0], "{locks:#}");
    let report = json(&trace, &["--json", "--idle", "show"]);
    assert_eq!(
        report["headline"]["n_snapshots"].as_u64(),
        Some(1),
        "{report:#}"
    );

    let spinning = RemoteProcess::start(&fixture("spin.c", Variant::NoFramePointers));
    let trace = look(spinning.pid(), "spin.wct");
    let report = json(&trace, &["--json", "--idle", "show"]);
    // It never waits, but for a CPU where others take them all.
    let states = &report["headline"]["states_ns"];
    let [running, queued] = ["on-cpu", "runnable"].map(|state| states[state].as_u64().unwrap_or(0));
    assert_eq!(
        running + queued,
        1_000_000_000,
        "one thread runs: {report:#}"
    );
    if engine.sees_running() && running > 0 {
        let folded = printed("report", &trace, &args);
        assert!(folded.contains("spin_for_ever"), "{folded}");
    }
}
