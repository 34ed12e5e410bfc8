//! The processes that read symbols, and files to import: what confines it, and what is left when it ends early.

use std::os::fd::OwnedFd;
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::process::{Child, Command, Output};

use serde_json::Value;
use wcprof_host::sys::has_users_of_host;
use wcprof_symbols::Confinement;
use wcprof_symbols::wire::expect;

use crate::support::{fixture, run};

/// Memory that processes of the test may have, KiB, and a table that does not fit.
const MEMORY_KIB: u64 = 256 << 10;
const TABLE: u64 = 300 << 20;

fn json(output: &Output) -> Value {
    let errors = String::from_utf8_lossy(&output.stderr);
    serde_json::from_slice(&output.stdout).unwrap_or_else(|e| panic!("{e}: {errors}"))
}

/// Runs wcprof with little memory.
fn wcprof(args: &[&str]) -> Output {
    wcprof_within(MEMORY_KIB, args)
}

/// Runs wcprof, each process of which may have this many KiB.
fn wcprof_within(kib: u64, args: &[&str]) -> Output {
    let wcprof = wcprof_testkit::wcprof();
    let mut command = Command::new("sh");
    command
        .args(["-c", &format!("ulimit -d {kib}; exec \"$0\" \"$@\"")])
        .arg(wcprof.get_program())
        .args(args)
        .env_remove("DEBUGINFOD_URLS");
    command.output().unwrap()
}

/// Check that what holds for any user is in force.
#[test]
fn in_force() {
    let json = json(&run(&["check", "--json"]));
    let checks = json["checks"].as_array().unwrap();
    let line = checks.iter().find(|check| check["id"] == "confinement");
    let detail = line.unwrap()["detail"].as_str().unwrap();
    for part in [
        "no capabilities",
        "limits of memory and CPU time",
        "no new privileges",
        "system calls (seccomp)",
    ] {
        assert!(detail.contains(part), "{detail}");
    }
    if nix::unistd::geteuid().is_root() {
        assert!(detail.contains("user nobody"), "{detail}");
    }
}

/// Check that root is told once what does not confine the process.
#[test]
fn less_than_it_should_be() {
    let with_less = || {
        let mut command = Command::new("setpriv");
        command.args(["--bounding-set=-sys_chroot", "--inh-caps=-sys_chroot"]);
        command
    };
    let is_root = nix::unistd::geteuid().is_root() && has_users_of_host();
    if !is_root || !with_less().arg("true").status().unwrap().success() {
        return println!(
            "SKIPPED less_than_it_should_be: needs root, and CAP_SETPCAP to have less"
        );
    }
    let wcprof = wcprof_testkit::wcprof();
    let output = with_less()
        .arg(wcprof.get_program())
        .args(["check", &fixture("cc1plus.wct"), "--no-cache"])
        .env_remove("DEBUGINFOD_URLS")
        .output()
        .unwrap();
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{said}");
    assert_eq!(
        said.matches("failed to change the root").count(),
        1,
        "{said}"
    );
}

/// A debug file for a build-id, whose symbols' names are a table of [`TABLE`] bytes, none of which are on the
/// disk.
fn large_debug_file(dir: &Path, build_id: &str) {
    let path = dir.join(".build-id").join(&build_id[..2]);
    std::fs::create_dir_all(&path).unwrap();
    let path = path.join(format!("{}.debug", &build_id[2..]));
    let source = dir.join("a.c");
    std::fs::write(&source, "int f(void) { return 1; }").unwrap();
    let built = Command::new("gcc")
        .args([
            "-shared",
            "-g",
            &format!("-Wl,--build-id=0x{build_id}"),
            "-o",
        ])
        .args([&path, &source])
        .status();
    assert!(built.unwrap().success());
    let mut image = std::fs::read(&path).unwrap();
    let word = |image: &[u8], at: usize| {
        usize::try_from(u64::from_le_bytes(image[at..at + 8].try_into().unwrap())).unwrap()
    };
    let headers = word(&image, 40);
    let n_headers = usize::from(u16::from_le_bytes([image[60], image[61]]));
    let header = |i: usize| headers + 64 * i;
    let symtab = (0..n_headers).map(header).find(|at| image[at + 4] == 2);
    let names = header(usize::from(image[symtab.unwrap() + 40]));
    let at = word(&image, names + 24);
    image[names + 32..names + 40].copy_from_slice(&TABLE.to_le_bytes());
    std::fs::write(&path, image).unwrap();
    let file = std::fs::File::options().write(true).open(&path).unwrap();
    file.set_len(at as u64 + TABLE).unwrap();
}

/// Check that a file which needs more memory than there is costs the names of its module alone, and that the
/// report says how.
#[test]
fn out_of_memory() {
    let dir = tempfile::tempdir().unwrap();
    let trace = fixture("cc1plus.wct");
    let modules = |args: &[&str]| {
        let args = [&["check", &trace, "--json", "--no-cache"], args].concat();
        let output = wcprof(&args);
        assert!(output.status.success(), "{output:?}");
        json(&output)["modules"].as_array().unwrap().clone()
    };
    let before = modules(&[]);
    let victim = before
        .iter()
        .find(|m| m["path"].as_str().unwrap().ends_with("/cc1plus"));
    let victim = victim.unwrap();
    large_debug_file(dir.path(), victim["build_id"].as_str().unwrap());
    let after = modules(&["--debug-dir", dir.path().to_str().unwrap()]);
    assert_eq!(before.len(), after.len());
    for module in &after {
        let is_victim = module["build_id"] == victim["build_id"];
        let text = module["problems"].to_string();
        assert_eq!(
            text.contains("needed more memory than its limit"),
            is_victim,
            "{text}"
        );
        let same = before.iter().find(|m| m["path"] == module["path"]).unwrap();
        if is_victim {
            assert_eq!(module["n_unresolved"], module["n_frames"]);
        } else {
            assert_eq!(module["n_unresolved"], same["n_unresolved"]);
        }
    }
}

/// A process that imports, started by the test, which waits to be told what to do: what it says confines it, and itself.
fn importer() -> (Confinement, UnixStream, Child) {
    let (socket, other) = UnixStream::pair().unwrap();
    let wcprof = wcprof_testkit::wcprof();
    let child = Command::new(wcprof.get_program())
        .args(["confined-import", "1000000", "1"])
        .stdin(OwnedFd::from(other))
        .spawn()
        .unwrap();
    let (confinement, _) = expect::<Confinement>(&socket, 64 << 10).unwrap();
    (confinement, socket, child)
}

/// Check that the process which reads a file to import is confined as the one that reads symbols is, by what the kernel says of it.
#[test]
fn importer_is_confined() {
    let (confinement, socket, mut child) = importer();
    let status = std::fs::read_to_string(format!("/proc/{}/status", child.id())).unwrap();
    let of = |name: &str| {
        let line = status.lines().find_map(|line| line.strip_prefix(name));
        line.unwrap_or_else(|| panic!("{name}: {status}"))
            .trim()
            .to_owned()
    };
    assert!(
        confinement
            .in_force
            .iter()
            .any(|part| part.contains("seccomp"))
    );
    assert_eq!(of("Seccomp:"), "2", "a filter");
    assert_eq!(of("NoNewPrivs:"), "1");
    assert_eq!(of("CapEff:"), "0000000000000000");
    if nix::unistd::geteuid().is_root() && has_users_of_host() {
        assert_eq!(of("Uid:").split_whitespace().next(), Some("65534"));
        let root = std::fs::read_dir(format!("/proc/{}/root/", child.id()));
        assert_eq!(
            root.map(Iterator::count).unwrap_or(0),
            0,
            "an empty root folder"
        );
    }
    // Without a parent it ends.
    drop(socket);
    assert!(!child.wait().unwrap().success());
}

/// Check that a file which needs more memory than there is is refused as damaged or too large, and that no trace is left of it.
#[test]
fn import_out_of_memory() {
    let dir = tempfile::tempdir().unwrap();
    let path = |name: &str| dir.path().join(name).display().to_string();
    let (input, output) = (path("large.folded"), path("large.wct"));
    let mut text = String::from("main;work 1\n");
    // One line that is held whole, and its names.
    text.extend(std::iter::repeat_n("main;", 50 << 20));
    text.push_str("end 1\n");
    std::fs::write(&input, text).unwrap();
    let made = wcprof(&["import", &input, "-o", &output]);
    let said = String::from_utf8_lossy(&made.stderr);
    assert_eq!(made.status.code(), Some(5), "{said}");
    assert!(said.contains("damaged, or too large"), "{said}");
    assert!(said.contains("more memory than its limit"), "{said}");
    assert!(!Path::new(&output).exists());
}

/// Check that half a million distinct lines take a sixth of what three million may, and that none is lost.
#[test]
fn import_of_many_lines() {
    const LINES: usize = 500_000;
    const KIB: u64 = 100 << 10;
    let dir = tempfile::tempdir().unwrap();
    let path = |name: &str| dir.path().join(name).display().to_string();
    let (input, output) = (path("many.folded"), path("many.wct"));
    let line = |i: usize| format!("main;a{};b{} 3\n", i % 1000, i / 1000);
    std::fs::write(&input, (0..LINES).map(line).collect::<String>()).unwrap();
    let made = wcprof_within(KIB, &["import", &input, "-o", &output]);
    let said = String::from_utf8_lossy(&made.stderr);
    assert!(made.status.success(), "{said}");
    assert!(said.contains(&format!("{} samples", 3 * LINES)), "{said}");
}
