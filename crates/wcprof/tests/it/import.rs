//! What other profilers left, through `import` and what reads traces.

use crate::support;

use std::path::{Path, PathBuf};
use std::process::Output;

fn perf_data(name: &str) -> String {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../wcprof-import/tests/fixtures");
    folder.join(name).display().to_string()
}

fn run(args: &[&str]) -> Output {
    support::command(args).output().expect("the program runs")
}

/// What a command that succeeds prints.
#[track_caller]
fn wcprof(args: &[&str]) -> String {
    support::printed(args, run(args))
}

/// The exit code of a command that fails, and its errors.
fn fails(args: &[&str]) -> (Option<i32>, String) {
    let output = run(args);
    assert!(!output.status.success(), "{args:?} succeeded");
    let errors = String::from_utf8_lossy(&output.stderr).into_owned();
    (output.status.code(), errors)
}

struct Folder(tempfile::TempDir);

impl Folder {
    fn new() -> Self {
        Self(tempfile::tempdir().expect("a temporary folder"))
    }

    fn path(&self, name: &str) -> String {
        let path: PathBuf = self.0.path().join(name);
        path.display().to_string()
    }

    fn write(&self, name: &str, bytes: impl AsRef<[u8]>) -> String {
        let path = self.path(name);
        std::fs::write(&path, bytes).expect("the file is writable");
        path
    }

    /// A trace made of a file.
    fn import(&self, file: &str, more: &[&str]) -> String {
        let name = Path::new(file).file_name().expect("a name");
        let trace = self.path(&format!("{}.wct", name.display()));
        wcprof(&[&["import", file, "-o", &trace], more].concat());
        trace
    }
}

const UWPMP: &str = "Thread 991 (tp_osd_tp) - 100 samples\n\
+ 100.00% clone3\n + 100.00% start_thread\n  + 75.00% work(int)\n  |+ 60.00% epoll_wait\n  |+ 15.00% crunch\n  + 25.00% rest\n";

/// Check that folded stacks of a report, imported, give the same lines again.
#[test]
fn folded_comes_back() {
    let folder = Folder::new();
    let trace = Path::new(env!("CARGO_MANIFEST_DIR"))
        .join("../../fixtures/traces/ceph-osd-secure-randread.wct");
    let trace = trace.display().to_string();
    let folded = wcprof(&["report", &trace, "--format", "folded", "--by", "thread"]);
    assert!(folded.lines().count() > 100);
    let imported = folder.import(&folder.write("stacks.folded", &folded), &[]);
    let args = ["report", &imported, "--format", "folded", "--by", "thread"];
    assert_eq!(wcprof(&args), folded);
}

/// Check that uwpmp's text comes back as it was, and that its blocked calls are states.
#[test]
fn uwpmp_comes_back() {
    let folder = Folder::new();
    let trace = folder.import(&folder.write("old.txt", UWPMP), &[]);
    let again = wcprof(&["report", &trace, "--format", "uwpmp"]);
    assert_eq!(again.trim(), UWPMP.trim());
    let text = wcprof(&["report", &trace, "--idle", "show"]);
    assert!(text.contains("unknown 40.0 %"), "{text}");
    assert!(text.contains("imported from uwpmp"), "{text}");
}

/// Check that a `perf.data` with samples and switches gives threads, states and the duration, in every
/// format.
#[test]
fn perf() {
    let folder = Folder::new();
    let trace = folder.import(&perf_data("both.data"), &["--raw"]);
    let text = wcprof(&["report", &trace, "--by", "thread", "--idle", "show"]);
    for part in [
        "spin (pid 1000)",
        "burner/1001",
        "sleeper/1002",
        "imported from perf.data",
    ] {
        assert!(text.contains(part), "{part} in {text}");
    }
    let json: serde_json::Value =
        serde_json::from_str(&wcprof(&["report", &trace, "--json"])).expect("JSON");
    let states = &json["headline"]["states_ns"];
    for state in ["on-cpu", "runnable", "blocked"] {
        assert!(
            states[state].as_u64() > Some(1_000_000),
            "{state} in {states}"
        );
    }
    for format in [
        "uwpmp",
        "folded",
        "svg",
        "icicle",
        "speedscope",
        "firefox",
        "csv",
    ] {
        assert!(
            !wcprof(&["report", &trace, "--format", format]).is_empty(),
            "{format}"
        );
    }
    wcprof(&["report", &trace, "--functions"]);
    wcprof(&["doctor", &trace]);
    wcprof(&["check", &trace]);
}

/// Check that what is given as another format, is none, or is the output is refused with what to do.
#[test]
fn refused() {
    let folder = Folder::new();
    let out = folder.path("out.wct");
    let text = folder.write("old.txt", UWPMP);
    let json = folder.write("a.json", "{\"a\": 1}");
    let trace = folder.import(&text, &[]);
    let bad = folder.write(
        "cut.data",
        &std::fs::read(perf_data("both.data")).expect("it")[..5000],
    );
    for (file, more, code, words) in [
        (
            &text,
            &["--format", "perf"][..],
            2,
            ["not perf.data", "uwpmp"],
        ),
        (
            &text,
            &["--format", "folded"],
            2,
            ["not folded stacks", "without --format"],
        ),
        (&json, &[], 5, ["JSON", "cannot be imported"]),
        (&trace, &[], 5, ["a trace of wcprof", "wcprof report"]),
        (&bad, &[], 5, ["failed to parse perf.data", "cut"]),
        (
            &folder.write("empty", ""),
            &[],
            5,
            ["empty", "failed to import"],
        ),
        (
            &folder.path("absent"),
            &[],
            1,
            ["failed to import", "no such file"],
        ),
    ] {
        let (found, errors) = fails(&[&["import", file, "-o", &out], more].concat());
        assert_eq!(found, Some(code), "{file}: {errors}");
        for word in words {
            assert!(errors.contains(word), "{word:?} in {errors}");
        }
        assert!(!Path::new(&out).exists(), "{file} left a trace");
    }
    let (code, errors) = fails(&["import", &text, "-o", &text]);
    assert_eq!(
        (code, errors.contains("the same")),
        (Some(2), true),
        "{errors}"
    );
}

/// Check that old evidence is compared, and that the programs differ is said.
#[test]
fn compared() {
    let folder = Folder::new();
    let before = folder.import(&perf_data("cpu-clock.data"), &["--raw"]);
    let same = folder.import(&perf_data("both.data"), &["--raw"]);
    let other = folder.import(&folder.write("old.txt", UWPMP), &[]);
    let text = wcprof(&["diff", &before, &same]);
    assert!(!text.contains("different programs"), "{text}");
    let text = wcprof(&["diff", &before, &other]);
    assert!(
        text.contains("different programs") && text.contains("imported from uwpmp"),
        "{text}"
    );
}
