//! Calls of the system that fail once while wcprof records.

use std::fs;
use std::path::Path;
use std::process::Output;

use nix::errno::Errno;
use wcprof_testkit::{RemoteProcess, Variant, fixture, read_trace, text, wcprof};

/// What fails, and how (`fixtures/src/fail.c`).
const FAULTS: [(&str, Errno); 6] = [
    ("write", Errno::ENOSPC),
    ("write", Errno::EIO),
    ("mmap", Errno::ENOMEM),
    ("create", Errno::EMFILE),
    ("perf_event_open", Errno::EMFILE),
    ("bpf", Errno::EPERM),
];

/// Records for a moment, with a flame graph; gives whether the call was reached.
fn record(pid: i32, folder: &Path, fault: &str) -> (Output, bool) {
    let (trace, log) = (folder.join("t.wct"), folder.join("hit"));
    let output = wcprof()
        .args(["attach", &pid.to_string(), "-d", "300ms", "-o"])
        .arg(&trace)
        .arg("--flamegraph")
        .arg(folder.join("t.svg"))
        .env("LD_PRELOAD", fixture("fail.c", Variant::Preload))
        .env("FAIL", fault)
        .env("FAIL_LOG", &log)
        .output()
        .expect("wcprof starts");
    (output, log.exists())
}

/// Each of the first `n_calls` calls fails once.
#[track_caller]
fn each_fails_once(n_calls: u32) {
    let target = RemoteProcess::start(&fixture("split_sleep.c", Variant::NoFramePointers));
    for (name, errno) in FAULTS {
        let mut n_hit = 0;
        for n in 1..=n_calls {
            let fault = format!("{name}:{n}:{}", errno as i32);
            let folder = tempfile::tempdir().expect("temporary folder");
            let (output, is_hit) = record(target.pid(), folder.path(), &fault);
            let said = text(&output.stderr);
            n_hit += u32::from(is_hit);
            assert!(!said.contains("panicked"), "{fault}: {said}");
            let code = output.status.code();
            assert!(matches!(code, Some(0..=5)), "{fault}: {code:?}: {said}");
            assert!(
                code == Some(0) || said.contains("wcprof:"),
                "{fault}: {said}"
            );
            let trace = folder.path().join("t.wct");
            if fs::metadata(&trace).is_ok_and(|file| file.len() > 0) {
                read_trace(&trace);
            }
        }
        assert!(n_hit > 0, "no call of {name} was reached");
    }
}

/// Check that a failed call is no crash, has a message if it ends the recording, and leaves a trace that can be read.
#[test]
fn first_calls() {
    each_fails_once(3);
}

/// Check that an output which cannot be put in its place is said, and that nothing else is left there.
#[test]
fn renames() {
    let target = RemoteProcess::start(&fixture("split_sleep.c", Variant::NoFramePointers));
    let folder = tempfile::tempdir().expect("temporary folder");
    let fault = format!("rename:1:{}", Errno::EACCES as i32);
    let (output, _) = record(target.pid(), folder.path(), &fault);
    let said = text(&output.stderr);
    assert_eq!(output.status.code(), Some(1), "{said}");
    assert!(
        said.contains("t.svg") && !said.contains("panicked"),
        "{said}"
    );
    let names = fs::read_dir(folder.path()).expect("a folder").flatten();
    let names: Vec<_> = names.map(|entry| entry.file_name()).collect();
    assert_eq!(names, ["t.wct"]);
    read_trace(&folder.path().join("t.wct"));
}

/// Check the same of later calls.
#[test]
#[ignore = "long: with --full"]
fn later_calls() {
    each_fails_once(24);
}
