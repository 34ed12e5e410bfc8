//! The trace format: a frozen file of its version, and the reader in Python that its description comes with.

use std::process::Command;

use wcprof_testkit::skip;

use crate::support::{at_root, run, text};

fn report(trace: &str, flags: &[&str]) -> String {
    text(&[&["report", trace], flags].concat())
}

/// Check that the frozen file is read as it was when its version came out.
/// `cargo xtask tidy` checks that nobody has changed the files.
#[test]
fn frozen() {
    let expected = at_root("fixtures/formats/report.json");
    let expected = std::fs::read_to_string(expected).expect("the report exists");
    let trace = at_root("fixtures/formats/v2.wct");
    let bytes = std::fs::read(&trace).expect("the trace exists");
    assert_eq!(bytes[8..12], [2, 0, 0, 0]);
    let flags = ["--json", "--pools", "bstore_kv*", "--min-percent", "5"];
    assert!(report(&trace, &flags) == expected, "the report differs");
}

/// Check that the reader in `docs/examples`, which knows the format's description alone, finds in a frozen file what
/// wcprof finds: each span's times, weight, samples, process, thread and stack.
#[test]
fn python_reader() {
    for program in ["python3", "zstd"] {
        if Command::new(program).arg("--version").output().is_err() {
            return skip("python_reader", &format!("{program} is not installed"));
        }
    }
    let reader = at_root("docs/examples/read_wct.py");
    let trace = at_root("fixtures/formats/v2.wct");
    let output = Command::new("python3").args([&reader, &trace]).output();
    let output = output.expect("python3 runs");
    let errors = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success() && errors.is_empty(), "{errors}");
    let found = lines(&String::from_utf8(output.stdout).expect("the output is text"));
    let csv = ["--format", "csv", "--full-names", "--kernel"];
    let flags = [&csv[..], &["--idle", "show"]].concat();
    let expected = lines(&report(&trace, &flags));
    assert!(expected.len() > 1000 && found.len() == expected.len());
    for (found, expected) in found.iter().zip(&expected) {
        assert_eq!(found, expected);
    }
}

/// Check that a trace with a damaged block, be it of tables or of spans, is reported on, that the damage is said, and
/// that of a window only what it needs is.
#[test]
fn damaged() {
    const MARK: &[u8] = b"\x89wcblk\r\n";
    const HEADER_BYTES: usize = 44;
    let whole = std::fs::read(at_root("fixtures/formats/v2.wct")).expect("the trace exists");
    let blocks: Vec<usize> = (0..whole.len())
        .filter(|at| whole[*at..].starts_with(MARK))
        .collect();
    let folder = tempfile::tempdir().expect("a folder");
    let path = folder.path().join("bad.wct");
    let trace = path.to_str().expect("the path is text");
    for (kind, says) in [(1, "frames, stacks and the like"), (2, "could not be read")] {
        let mut bad = whole.clone();
        let at = blocks.iter().find(|at| bad[**at + 8] == kind);
        let at = at.expect("it has such a block");
        bad[at + HEADER_BYTES] ^= 1;
        std::fs::write(&path, &bad).expect("the folder is writable");
        let stderr = |flags: &[&str]| {
            let output = run(&[&["report", trace], flags].concat());
            assert!(output.status.success(), "{output:?}");
            String::from_utf8_lossy(&output.stderr).into_owned()
        };
        let text = stderr(&[]);
        assert!(text.contains(&format!("is damaged at byte {at}")), "{text}");
        assert!(text.contains(says), "{text}");
        let is_said = stderr(&["--from", "8s"]).contains("is damaged");
        // What a window does not need is not read; tables are always needed.
        assert_eq!(is_said, kind == 1);
    }
}

/// Of lines of CSV: their first cells, which are numbers, thread and process, and the stack without its labels.
fn lines(csv: &str) -> Vec<(Vec<String>, String)> {
    let mut records = csv.lines().map(cells);
    let names = records.next().expect("there is a line of names");
    let at = |name: &str| {
        names
            .iter()
            .position(|n| n == name)
            .expect("it has the column")
    };
    let columns = [
        "start_ns",
        "end_ns",
        "weight_ns",
        "samples",
        "pid",
        "tid",
        "thread",
    ]
    .map(at);
    let stack = at("stack");
    let line = |cells: Vec<String>| {
        let stack = cells[stack]
            .split(';')
            .filter(|frame| !frame.starts_with('['));
        let stack: Vec<&str> = stack.collect();
        let facts = columns.map(|column| cells[column].clone());
        (facts.to_vec(), stack.join(";"))
    };
    records.map(line).collect()
}

/// The cells of a line, of which some are quoted.
fn cells(line: &str) -> Vec<String> {
    let mut cells = vec![String::new()];
    let mut is_quoted = false;
    for c in line.chars() {
        match c {
            '"' => is_quoted = !is_quoted,
            ',' if !is_quoted => cells.push(String::new()),
            c => cells.last_mut().expect("there is one").push(c),
        }
    }
    cells
}
