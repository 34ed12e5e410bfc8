//! `wcprof demo`, the README's first command.

use std::fs;
use std::path::Path;
use std::process::Stdio;
use std::thread;
use std::time::{Duration, Instant};

use wcprof_trace::{Ending, TraceReader};

use wcprof_testkit::{alone, children, text, wcprof};

/// Files in a folder with this extension.
fn files(folder: &Path, extension: &str) -> Vec<std::path::PathBuf> {
    fs::read_dir(folder)
        .expect("folder exists")
        .map(|entry| entry.expect("folder can be read").path())
        .filter(|path| path.extension().is_some_and(|e| e == extension))
        .collect()
}

/// Check that the demo finds its own hotspots and leaves a trace and a flame graph, nothing else.
#[test]
fn finds_its_hotspots() {
    let _load = alone();
    let folder = tempfile::tempdir().expect("temporary folder");
    let output = wcprof()
        .args(["demo", "-d", "4"])
        .current_dir(folder.path())
        .output()
        .expect("wcprof starts");
    let shown = text(&output.stdout);
    assert!(output.status.success(), "{}", text(&output.stderr));
    for word in [
        "msgr-worker",
        "tp_osd_tp",
        "bstore_kv_sync",
        "AES",
        "malloc",
    ] {
        assert!(shown.contains(word), "no {word} in:\n{shown}");
    }
    let (traces, graphs) = (files(folder.path(), "wct"), files(folder.path(), "svg"));
    assert_eq!((traces.len(), graphs.len()), (1, 1));
    let n_files = fs::read_dir(folder.path()).expect("folder exists").count();
    assert_eq!(n_files, 2);
    let (trace, ending) = TraceReader::open(&traces[0])
        .and_then(TraceReader::read_all)
        .expect("trace is readable");
    assert_eq!(ending, Ending::Clean);
    assert!(trace.tables.threads.len() >= 20);
    let svg = fs::read_to_string(&graphs[0]).expect("flame graph is text");
    assert!(
        svg.contains("<svg") && svg.contains("EVP_"),
        "flame graph is empty"
    );
}

/// Check that the workload ends when the demo is killed.
#[test]
fn workload_ends_with_demo() {
    let _load = alone();
    let folder = tempfile::tempdir().expect("temporary folder");
    let mut demo = wcprof()
        .args(["demo", "-d", "60"])
        .current_dir(folder.path())
        .stdout(Stdio::null())
        .spawn()
        .expect("wcprof starts");
    let begin = Instant::now();
    let workload = loop {
        if let Some(pid) = children(demo.id() as i32).first() {
            break *pid;
        }
        assert!(begin.elapsed() < Duration::from_secs(60), "no workload");
        thread::sleep(Duration::from_millis(5));
    };
    demo.kill().expect("demo runs");
    demo.wait().expect("demo can be waited for");
    let begin = Instant::now();
    while alive(workload) {
        assert!(
            begin.elapsed() < Duration::from_secs(60),
            "workload goes on"
        );
        thread::sleep(Duration::from_millis(5));
    }
}

/// Whether a process runs; one that nobody has waited for does not.
fn alive(pid: i32) -> bool {
    fs::read_to_string(format!("/proc/{pid}/stat"))
        .is_ok_and(|stat| !stat.contains(") Z ") && !stat.contains(") X "))
}
