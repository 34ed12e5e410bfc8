//! `wcprof attach --demo`, the README's first command.

use std::env;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Child, Stdio};

use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use serde_json::Value;
use wcprof_trace::{Ending, FILE_HEADER_BYTES};

use wcprof_testkit::{
    alone, children, has_capability, printed, read_trace, skip, text, wait_until, wcprof, worker,
};

const TRACE: &str = "wcprof-demo.wct";
/// What the demo waits for: rule and pool.
const DISK: (&str, &str) = ("fsync", "bstore_kv_sync");
const LOCK: (&str, &str) = ("lock-contention", "tp_osd_tp");
/// What it computes.
const CPU: [(&str, &str); 2] = [("aes-gcm", "msgr-worker-N"), ("libc-malloc", "tp_osd_tp")];

/// Files in a folder with this extension.
fn files(folder: &Path, extension: &str) -> Vec<PathBuf> {
    fs::read_dir(folder)
        .expect("folder exists")
        .map(|entry| entry.expect("folder can be read").path())
        .filter(|path| path.extension().is_some_and(|e| e == extension))
        .collect()
}

/// Check that the demo has the findings that it is made for and leaves a trace and a flame graph,
/// nothing else.
#[test]
fn finds_its_hotspots() {
    let _load = alone();
    let folder = tempfile::tempdir().expect("temporary folder");
    let output = wcprof()
        .args(["attach", "--demo", "-d", "5s"])
        .args(["-o", TRACE, "--flamegraph", "wcprof-demo.svg"])
        .current_dir(folder.path())
        .output()
        .expect("wcprof starts");
    let said = text(&output.stderr);
    assert!(output.status.success(), "{said}");
    let (traces, graphs) = (files(folder.path(), "wct"), files(folder.path(), "svg"));
    assert_eq!((traces.len(), graphs.len()), (1, 1));
    let n_files = fs::read_dir(folder.path()).expect("folder exists").count();
    assert_eq!(n_files, 2);
    let (trace, ending) = read_trace(&traces[0]);
    assert_eq!(ending, Ending::Clean);
    assert!(trace.tables.threads.len() >= 20);

    let mut expected = vec![LOCK];
    if has_capability() && Path::new("/dev/fuse").exists() {
        assert!(said.contains("FUSE"), "no slow disk: {said}");
        expected.push(DISK);
    } else {
        skip(
            "demo::finds_its_hotspots (disk)",
            "needs CAP_SYS_ADMIN and /dev/fuse for a disk that is slow on every machine",
        );
    }
    if trace.tables.header.engine == "procfs-only" {
        skip(
            "demo::finds_its_hotspots (CPU)",
            "engine procfs-only sees no stacks of running threads",
        );
    } else {
        expected.extend(CPU);
        let svg = fs::read_to_string(&graphs[0]).expect("flame graph is text");
        assert!(
            svg.contains("<svg") && svg.contains("EVP_"),
            "flame graph is empty"
        );
    }
    let found = findings(&traces[0]);
    for (rule, pool) in expected {
        assert!(
            found.iter().any(|(r, p)| r == rule && p == pool),
            "no {rule} of {pool} in {found:?}; {said}"
        );
    }
}

/// Rule and pool of each finding.
fn findings(trace: &Path) -> Vec<(String, String)> {
    let json: Value = serde_json::from_str(&printed("doctor", trace, &["--json"])).expect("JSON");
    let name = |value: &Value| value.as_str().expect("a name").to_owned();
    json["findings"]
        .as_array()
        .expect("findings")
        .iter()
        .filter(|finding| finding["basis"]["kind"] == "time")
        .flat_map(|finding| {
            let pools = finding["pools"].as_array().expect("pools");
            pools
                .iter()
                .map(|pool| (name(&finding["rule"]), name(pool)))
        })
        .collect()
}

/// A demo that records for a minute, and its workload's pid. With `is_recording` it has begun to.
fn long_demo(folder: &Path, is_recording: bool) -> (Child, i32) {
    let demo = wcprof()
        .args(["attach", "--demo", "-d", "1m", "-o", TRACE])
        .current_dir(folder)
        .stdout(Stdio::null())
        .stderr(Stdio::piped())
        .spawn()
        .expect("wcprof starts");
    let worker = worker(&demo);
    let mut first = None;
    let workload = wait_until("no workload, or no trace", || {
        let workload = children(worker).first().copied();
        let trace = fs::metadata(folder.join(TRACE));
        let len = trace.map_or(0, |trace| trace.len());
        if len > FILE_HEADER_BYTES as u64 {
            first.get_or_insert(len);
        }
        // What is known at the begin may be written before the first samples are.
        let is_sampled = first.is_some_and(|first| len > first);
        workload.filter(|_| !is_recording || is_sampled)
    });
    (demo, workload)
}

/// Check that the workload ends when the demo is killed, early or late, and that nothing is left of
/// its disk.
#[test]
fn workload_ends_with_demo() {
    let _load = alone();
    for is_recording in [false, true] {
        let folder = tempfile::tempdir().expect("temporary folder");
        let (mut demo, workload) = long_demo(folder.path(), is_recording);
        assert_no_mount();
        demo.kill().expect("demo runs");
        // Until neither can write any more.
        let output = demo.wait_with_output().expect("demo can be waited for");
        let said = text(&output.stderr);
        assert!(!said.contains("failed to write"), "{said}");
        wait_until("workload goes on", || (!alive(workload)).then_some(()));
        assert_no_mount();
        assert_no_file(workload);
    }
}

/// Check that the demo ends when its workload is killed, and keeps what it recorded.
#[test]
fn demo_ends_with_workload() {
    let _load = alone();
    let folder = tempfile::tempdir().expect("temporary folder");
    let (demo, workload) = long_demo(folder.path(), true);
    kill(Pid::from_raw(workload), Signal::SIGKILL).expect("workload runs");
    let output = demo.wait_with_output().expect("demo can be waited for");
    // It may end before anything but idle time was sampled.
    let all_idle = text(&output.stderr).contains("nothing to draw");
    assert!(output.status.success() || all_idle, "{output:?}");
    let (_, ending) = read_trace(&folder.path().join(TRACE));
    assert_eq!(ending, Ending::Clean);
    assert_no_mount();
    assert_no_file(workload);
}

/// The disk of the demo is mounted nowhere.
#[track_caller]
fn assert_no_mount() {
    let mounts = fs::read_to_string("/proc/self/mountinfo").expect("mounts are known");
    assert!(!mounts.contains("wcprof-demo"), "{mounts}");
}

/// Nothing of this workload is left where it has files when it has no disk of its own.
#[track_caller]
fn assert_no_file(workload: i32) {
    let prefix = format!("wcprof-demo-{workload}-");
    for folder in [PathBuf::from("/var/tmp"), env::temp_dir()] {
        let left = fs::read_dir(folder)
            .expect("folder exists")
            .flatten()
            .find(|entry| entry.file_name().to_string_lossy().starts_with(&prefix));
        assert!(left.is_none(), "{left:?}");
    }
}

/// Whether a process runs; one that nobody has waited for does not.
fn alive(pid: i32) -> bool {
    fs::read_to_string(format!("/proc/{pid}/stat"))
        .is_ok_and(|stat| !stat.contains(") Z ") && !stat.contains(") X "))
}
