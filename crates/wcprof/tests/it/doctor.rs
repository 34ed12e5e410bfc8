//! Files of several hosts in, what `wcprof doctor` says of them out. `WCPROF_BLESS=1` writes the
//! golden files anew.

use std::collections::BTreeSet;
use std::fs;
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};

use serde_json::Value;
use wcprof_testkit::assert_fails;

use crate::support::{QEMU, at_root, golden, run, text};

#[track_caller]
fn findings(json: &str) -> BTreeSet<String> {
    let json: Value = serde_json::from_str(json).expect("valid JSON");
    let findings = json["findings"].as_array().expect("a list");
    let id = |f: &Value| f["rule"].as_str().expect("an id").to_owned();
    findings.iter().map(id).collect()
}

/// A host file, unpacked.
struct Host {
    name: String,
    finds: BTreeSet<String>,
    clears: BTreeSet<String>,
    root: tempfile::TempDir,
    pid: String,
}

/// The paths of `a{3..5}b`.
fn expand(path: &str) -> Vec<String> {
    let parts = path.split_once('{').and_then(|(before, rest)| {
        let (range, after) = rest.split_once('}')?;
        let (first, last) = range.split_once("..")?;
        let (first, last): (u32, u32) = (first.parse().ok()?, last.parse().ok()?);
        Some((before, first, last, after))
    });
    match parts {
        Some((before, first, last, after)) => {
            let one = |n| format!("{before}{n}{after}");
            (first..=last).map(one).collect()
        }
        None => vec![path.to_owned()],
    }
}

fn unpack(root: &Path, head: &str, text: &str) {
    let (path, target) = match head.split_once(" -> ") {
        Some((path, target)) => (path, Some(target)),
        None => (head, None),
    };
    let text = match path.ends_with("/cmdline") || path.ends_with("/environ") {
        true => text.replace('\n', "\0"),
        false => text.replace("\\0", "\0").replace("\\u001b", "\u{1b}"),
    };
    for path in expand(path) {
        let path = root.join(path);
        fs::create_dir_all(path.parent().expect("a folder")).expect("the folder can be made");
        match target {
            Some(target) => symlink(target, &path).expect("the link can be made"),
            None => fs::write(&path, &text).expect("the file can be written"),
        }
    }
}

fn host(file: &Path) -> Host {
    let all = fs::read_to_string(file).expect("the host file is readable");
    let (head, rest) = all.split_once("\n== ").expect("a file");
    let ids = |key: &str| -> BTreeSet<String> {
        let line = head.lines().find_map(|l| l.strip_prefix(key));
        let ids = line.expect("the line is there").split_ascii_whitespace();
        ids.map(str::to_owned).collect()
    };
    let root = tempfile::tempdir().expect("a temporary folder");
    let mut pid = None;
    for part in rest.split("\n== ") {
        let (head, text) = part.split_once('\n').unwrap_or((part, ""));
        // The split took the newline that ends a file.
        let text = match text.is_empty() || text.ends_with('\n') {
            true => text.to_owned(),
            false => format!("{text}\n"),
        };
        unpack(root.path(), head, &text);
        let of = head
            .strip_prefix("proc/")
            .and_then(|p| p.strip_suffix("/comm"));
        // The first process is the one that is looked at.
        pid = pid.or(of.map(str::to_owned));
    }
    Host {
        name: file
            .file_stem()
            .expect("a name")
            .to_string_lossy()
            .into_owned(),
        finds: ids("finds:"),
        clears: ids("clears:"),
        root,
        pid: pid.expect("a process"),
    }
}

fn hosts() -> Vec<Host> {
    let mut files: Vec<PathBuf> = fs::read_dir(at_root("fixtures/hosts"))
        .expect("the folder of hosts")
        .map(|entry| entry.expect("an entry").path())
        .filter(|path| path.extension().is_some_and(|e| e == "host"))
        .collect();
    files.sort();
    files.iter().map(|file| host(file)).collect()
}

impl Host {
    fn doctor(&self, more: &[&str]) -> String {
        let root = self.root.path().to_str().expect("the path is text");
        let mut args = vec!["doctor", &self.pid, "--root", root];
        args.extend(more);
        text(&args)
    }
}

/// Check each host's findings by name, and all that is said of it by its golden file, without secrets and
/// control characters.
#[test]
fn whole_hosts() {
    for host in hosts() {
        assert_eq!(
            findings(&host.doctor(&["--json"])),
            host.finds,
            "{}",
            host.name
        );
        let text = host.doctor(&["--all"]);
        for word in ["never-shown", "never shown", "AQBx", "c2VjcmV0", "\u{1b}"] {
            assert!(!text.contains(word), "{word:?} in {}:\n{text}", host.name);
        }
        golden(&format!("../hosts/{}.doctor.txt", host.name), &text);
    }
}

/// Check that every check finds something in one host, and rightly nothing in another.
#[test]
fn every_check_has_both() {
    let list = text(&["doctor", "--list"]);
    let (_, list) = list.split_once("Checks of settings").expect("the list");
    let checks: BTreeSet<&str> = list
        .lines()
        .filter(|l| !l.starts_with(' '))
        .filter_map(|l| Some(l.split_once(" [")?.0))
        .collect();
    assert!(checks.len() > 30, "{checks:?}");
    let hosts = hosts();
    for check in &checks {
        assert!(
            hosts.iter().any(|h| h.finds.contains(*check)),
            "no host finds {check}"
        );
        assert!(
            hosts.iter().any(|h| h.clears.contains(*check)),
            "no host clears {check}"
        );
    }
    for host in &hosts {
        for id in host.finds.iter().chain(&host.clears) {
            assert!(checks.contains(id.as_str()), "{}: no check {id}", host.name);
        }
        assert!(host.finds.is_disjoint(&host.clears), "{}", host.name);
    }
}

/// Check that a saved snapshot is judged as the host itself, and is for its owner alone.
#[test]
fn saved() {
    use std::os::unix::fs::PermissionsExt;
    for host in hosts() {
        let file = host.root.path().join("saved.json");
        let path = file.to_str().expect("the path is text");
        let live = host.doctor(&["--json", "--save-snapshot", path]);
        assert_eq!(text(&["doctor", "--json", path]), live);
        let text = fs::read_to_string(&file).expect("the snapshot is readable");
        for secret in ["never-shown", "never shown", "AQBx", "c2VjcmV0"] {
            assert!(
                !text.contains(secret),
                "{secret} in the snapshot of {}",
                host.name
            );
        }
        let mode = fs::metadata(&file)
            .expect("the snapshot")
            .permissions()
            .mode();
        assert_eq!(mode & 0o777, 0o600);
    }
}

struct Sleeper(Child);

impl Drop for Sleeper {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// Check a live process whose preloaded allocator does not exist, which only its environment and
/// its mapped libraries tell.
#[test]
fn live() {
    let child = Command::new("cat")
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::null())
        .env("LD_PRELOAD", "/nowhere/libtcmalloc.so.4")
        .spawn()
        .expect("cat starts");
    let mut child = Sleeper(child);
    // An answer shows that the program itself runs.
    use std::io::{Read, Write};
    let input = child.0.stdin.as_mut().expect("a pipe");
    input.write_all(b"x").expect("cat reads");
    let mut answer = [0];
    let output = child.0.stdout.as_mut().expect("a pipe");
    output.read_exact(&mut answer).expect("cat answers");
    let pid = child.0.id().to_string();
    let found = findings(&text(&["doctor", &pid, "--json"]));
    assert!(found.contains("allocator-not-effective"), "{found:?}");
    assert!(!found.iter().any(|id| id.starts_with("qemu-")), "{found:?}");
    // Rust programs bind all symbols when they start.
    let me = std::process::id().to_string();
    let text = text(&["doctor", &me, "--all"]);
    assert!(text.contains("malloc is that of libc.so.6"), "{text}");
}

/// Check wrong input: no process, no snapshot, a trace without one, a folder, nothing.
#[test]
fn refused() {
    assert_fails(&run(&["doctor", "2147483647"]), 3, &[]);
    assert_fails(&run(&["doctor"]), 2, &[]);
    let output = run(&["doctor", QEMU]);
    let errors = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{errors}");
    assert!(errors.contains("could not be read"), "{errors}");
    let empty = tempfile::NamedTempFile::new().expect("a file");
    fs::write(empty.path(), "{\"schema\":\"other\"}").expect("the file is writable");
    let path = empty.path().to_str().expect("the path is text");
    assert_fails(&run(&["doctor", path]), 5, &["schema"]);
    assert_fails(&run(&["doctor", "/"]), 1, &[]);
}
