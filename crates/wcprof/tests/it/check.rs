//! `wcprof check`, the built program, on a live process and on what is none.

use std::io::Read;
use std::process::{Child, Command, Output, Stdio};

fn check(args: &[&str]) -> Output {
    wcprof_testkit::wcprof()
        .arg("check")
        .args(args)
        .output()
        .unwrap()
}

/// A child that is blocked in a read of its standard input, and ends with it.
struct Cat(Child);

impl Cat {
    fn spawn() -> Self {
        let mut child = Command::new("cat")
            .stdin(Stdio::piped())
            .stdout(Stdio::null())
            .spawn()
            .unwrap();
        assert!(child.stdin.is_some() && child.try_wait().unwrap().is_none());
        Self(child)
    }
}

impl Drop for Cat {
    fn drop(&mut self) {
        drop(self.0.stdin.take());
        let _ = self.0.wait();
    }
}

fn stdout(output: &Output) -> String {
    String::from_utf8(output.stdout.clone()).unwrap()
}

/// Check the JSON for a child of ours: the engine that is chosen is not missing, the exit code says
/// whether there is one, and the documentation has every id. (Yama may forbid to read the child.)
#[test]
fn json_of_a_child() {
    let cat = Cat::spawn();
    let pid = cat.0.id();
    let output = check(&[&pid.to_string(), "--json"]);
    let json: serde_json::Value = serde_json::from_slice(&output.stdout).unwrap();
    assert_eq!(json["schema"], "wcprof-check");
    assert_eq!(json["pid"], pid);
    assert_eq!(json["process"], "cat");
    let checks = json["checks"].as_array().unwrap();
    let engines = checks.iter().filter(|c| c["subject"] == "engine");
    let best = engines.into_iter().find(|c| c["verdict"] != "missing");
    assert_eq!(
        json["engine"],
        best.map_or(serde_json::Value::Null, |c| c["id"].clone())
    );
    let code = if best.is_some() { 0 } else { 4 };
    assert_eq!(output.status.code(), Some(code), "{output:?}");

    let mut documented = String::new();
    let doc = concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/permissions.md");
    std::fs::File::open(doc)
        .unwrap()
        .read_to_string(&mut documented)
        .unwrap();
    for id in checks.iter().map(|c| c["id"].as_str().unwrap()) {
        assert!(documented.contains(&format!("`{id}`")), "{id}");
    }
}

/// Check that a check leaves the process as it was: not traced, not stopped, still there.
#[test]
fn harmless() {
    let mut cat = Cat::spawn();
    let output = check(&[&cat.0.id().to_string()]);
    assert!(!output.stdout.is_empty(), "{output:?}");
    let status = std::fs::read_to_string(format!("/proc/{}/status", cat.0.id())).unwrap();
    assert!(status.contains("TracerPid:\t0\n"), "{status}");
    assert!(!status.contains("State:\tT") && !status.contains("State:\tt"));
    assert!(cat.0.try_wait().unwrap().is_none());
}

/// Check that text that is not for a terminal has no escape sequences and ends with the choice.
#[test]
fn text() {
    let output = check(&[]);
    let text = stdout(&output);
    assert!(!text.contains('\x1b'));
    assert!(
        text.starts_with("Engines, tried on wcprof itself\n"),
        "{text}"
    );
    let last = text.lines().last().unwrap();
    assert!(last.starts_with("`wcprof attach`"), "{last}");
}

/// Check the exit code and message for pids that cannot be a target.
#[test]
fn bad_pids() {
    for pid in ["2147483647", "0"] {
        let output = check(&[pid]);
        assert_eq!(output.status.code(), Some(3), "{output:?}");
        assert!(output.stdout.is_empty());
        let message = String::from_utf8_lossy(&output.stderr);
        assert!(
            message.contains(&format!("no process with pid {pid}")),
            "{message}"
        );
    }
    assert_eq!(check(&["x"]).status.code(), Some(2));
}
