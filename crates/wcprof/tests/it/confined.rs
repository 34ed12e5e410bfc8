//! The process that reads symbols: what confines it, and what is left when it ends early.

use std::path::Path;
use std::process::{Command, Output};

use serde_json::Value;
use wcprof_host::sys::has_users_of_host;

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
    let wcprof = wcprof_testkit::wcprof();
    let mut command = Command::new("sh");
    command
        .args(["-c", &format!("ulimit -d {MEMORY_KIB}; exec \"$0\" \"$@\"")])
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
