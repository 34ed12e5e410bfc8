//! What other profilers left, through `import` and what reads traces.

use std::path::{Path, PathBuf};

use wcprof_testkit::assert_fails;

use crate::support::{OSD, at_root, json, run, text};

fn perf_data(name: &str) -> String {
    at_root(&format!("crates/wcprof-import/tests/fixtures/{name}"))
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
        text(&[&["import", file, "-o", &trace], more].concat());
        trace
    }
}

const UWPMP: &str = "Thread 991 (tp_osd_tp) - 100 samples\n\
+ 100.00% clone3\n + 100.00% start_thread\n  + 75.00% work(int)\n  |+ 60.00% epoll_wait\n  |+ 15.00% crunch\n  + 25.00% rest\n";

/// Check that folded stacks of a report, imported, give the same lines again.
#[test]
fn folded_comes_back() {
    let folder = Folder::new();
    let folded = text(&["report", OSD, "--format", "folded", "--by", "thread"]);
    assert!(folded.lines().count() > 100);
    let imported = folder.import(&folder.write("stacks.folded", &folded), &[]);
    let args = ["report", &imported, "--format", "folded", "--by", "thread"];
    assert_eq!(text(&args), folded);
}

/// Check that functions keep their names when imports are merged.
#[test]
fn merged_names() {
    let folder = Folder::new();
    let stacks = [
        "main;foo;read 30\nmain;bar 20\n",
        "start;baz;read 10\nstart;qux 5\n",
    ];
    let traces = ["a", "b"].into_iter().zip(stacks).map(|(name, stacks)| {
        let file = folder.write(name, stacks);
        folder.import(&file, &[])
    });
    let traces: Vec<String> = traces.collect();
    let merged = folder.path("merged.wct");
    text(&[
        "merge", "--align", "start", "-o", &merged, &traces[0], &traces[1],
    ]);
    let shown = [
        "report", &merged, "--format", "folded", "--by", "all", "--idle", "show",
    ];
    let folded = text(&shown);
    let mut of_merged: Vec<&str> = folded
        .lines()
        .filter_map(|l| l.split_once(' '))
        .map(|l| l.0)
        .collect();
    of_merged.sort_unstable();
    assert_eq!(
        of_merged,
        ["main;bar", "main;foo;read", "start;baz;read", "start;qux"]
    );
}

/// Check that uwpmp's text comes back as it was, and that its blocked calls are states.
#[test]
fn uwpmp_comes_back() {
    let folder = Folder::new();
    let trace = folder.import(&folder.write("old.txt", UWPMP), &[]);
    let again = text(&["report", &trace, "--format", "uwpmp"]);
    assert_eq!(again.trim(), UWPMP.trim());
    let tree = text(&["report", &trace, "--idle", "show"]);
    assert!(tree.contains(", unknown 0.40\n"), "{tree}");
    assert!(tree.contains("imported from uwpmp"), "{tree}");
}

/// Check that a `perf.data` with samples and switches gives threads, states and the duration, in every
/// format.
#[test]
fn perf() {
    let folder = Folder::new();
    let trace = folder.import(&perf_data("both.data"), &["--raw"]);
    let tree = text(&["report", &trace, "--by", "thread", "--idle", "show"]);
    for part in [
        "spin (pid 1000)",
        "burner/1001",
        "sleeper/1002",
        "imported from perf.data",
    ] {
        assert!(tree.contains(part), "{part} in {tree}");
    }
    let report = json(&["report", &trace, "--json"]);
    let states = &report["headline"]["states_ns"];
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
            !text(&["report", &trace, "--format", format]).is_empty(),
            "{format}"
        );
    }
    text(&["report", &trace, "--functions"]);
    text(&["doctor", &trace]);
    text(&["check", &trace]);
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
        let output = run(&[&["import", file, "-o", &out], more].concat());
        assert_fails(&output, code, &words);
        assert!(!Path::new(&out).exists(), "{file} left a trace");
    }
    let output = run(&["import", &text, "-o", &text]);
    assert_fails(&output, 2, &["the same"]);
}

/// Check that old evidence is compared, and that the programs differ is said.
#[test]
fn compared() {
    let folder = Folder::new();
    let before = folder.import(&perf_data("cpu-clock.data"), &["--raw"]);
    let same = folder.import(&perf_data("both.data"), &["--raw"]);
    let other = folder.import(&folder.write("old.txt", UWPMP), &[]);
    let found = text(&["diff", &before, &same]);
    assert!(!found.contains("different programs"), "{found}");
    let found = text(&["diff", &before, &other]);
    assert!(
        found.contains("different programs") && found.contains("imported from uwpmp"),
        "{found}"
    );
}

/// Check that every view of a dump of stacks counts threads, and none speaks of seconds or cores.
#[test]
fn dump_counts_threads() {
    let folder = Folder::new();
    let dump = perf_data("dumps/gdb.txt");
    let trace = folder.import(&dump, &[]);
    let first = text(&["report", &trace]);
    assert!(first.contains("1 snapshot   9 threads"), "{first}");
    assert!(first.contains("1.00 in no call that blocks"), "{first}");
    let tree = text(&["report", &trace, "--tree", "--idle", "show"]);
    assert!(tree.contains("3 thr"), "{tree}");
    let functions = text(&["report", &trace, "--functions", "--idle", "show"]);
    let has_time = |line: &&str| {
        let mut words = line
            .split_whitespace()
            .map(|word| word.trim_matches([',', ':', ';']));
        words.any(|word| matches!(word, "s" | "ms" | "cores" | "seconds"))
    };
    for view in [&first, &tree, &functions] {
        assert_eq!(view.lines().find(has_time), None, "{view}");
    }
    assert!(text(&["report", &trace]).contains("WHERE THREADS STAND"));
    // Threads that wait for work are shown without being asked for.
    let folded = text(&["report", &trace, "--format", "folded", "--by", "all"]);
    let weights = folded
        .lines()
        .map(|line| line.rsplit_once(' ').expect("a weight").1);
    let weights = weights.map(|n| n.parse::<u64>().expect("a number"));
    assert_eq!(weights.sum::<u64>(), 9, "{folded}");
    let document = json(&["report", &trace, "--json"]);
    assert_eq!(document["headline"]["n_snapshots"], 1);
}
