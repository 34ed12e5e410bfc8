//! Replays the corpus of every fuzz target in a process of its own, whose memory and CPU time the
//! kernel limits.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use nix::sys::resource::{Resource, getrlimit, setrlimit};
use wcprof_fuzz::{TARGETS, Target};

/// Names the target that a process started by [`corpus`] replays.
const TARGET: &str = "WCPROF_FUZZ_TARGET";
/// Data that a process has before it reads an input: stacks, the allocator, the built-in rules.
const BASE_MIB: u64 = 96;

fn fuzz_dir() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../fuzz")
}

/// The inputs of a target, by name.
fn inputs(target: &Target) -> Vec<PathBuf> {
    let folder = fuzz_dir().join("corpus").join(target.name);
    let entries = fs::read_dir(&folder).unwrap_or_else(|e| panic!("{}: {e}", folder.display()));
    let mut inputs: Vec<PathBuf> = entries.map(|entry| entry.unwrap().path()).collect();
    inputs.sort();
    inputs
}

/// Check that no input makes a parser panic, or take more memory or CPU time than its target may.
/// Memory beyond the limit aborts the process, time beyond it ends it by `SIGXCPU`.
#[test]
fn corpus() {
    let failed: Vec<String> = TARGETS
        .iter()
        .filter_map(|target| {
            let output = Command::new(std::env::current_exe().unwrap())
                .args([
                    "--exact",
                    "corpus::replay",
                    "--nocapture",
                    "--test-threads=1",
                ])
                .env(TARGET, target.name)
                .output()
                .unwrap();
            let text = String::from_utf8_lossy(&output.stdout);
            let done = format!("{} inputs of {}", inputs(target).len(), target.name);
            if output.status.success() && text.contains(&done) {
                return None;
            }
            let last = text.lines().rfind(|line| line.starts_with("input "));
            let errors = String::from_utf8_lossy(&output.stderr).into_owned();
            Some(format!(
                "{}: {} at {last:?}\n{errors}",
                target.name, output.status
            ))
        })
        .collect();
    assert!(failed.is_empty(), "{}", failed.join("\n"));
}

/// Check, in the processes that [`corpus`] starts, the inputs of one target; elsewhere, that one
/// is not asked for.
#[test]
fn replay() {
    let Ok(name) = std::env::var(TARGET) else {
        return;
    };
    let target = TARGETS.iter().find(|t| t.name == name).unwrap();
    let inputs = inputs(target);
    let memory = (BASE_MIB + target.memory) << 20;
    setrlimit(Resource::RLIMIT_DATA, memory, memory).unwrap();
    for path in &inputs {
        println!("input {}", path.display());
        let data = fs::read(path).unwrap();
        limit_cpu(target.cpu);
        (target.run)(&data);
    }
    println!("{} inputs of {name}", inputs.len());
}

/// Permits the process so many seconds of CPU time from now on.
fn limit_cpu(seconds: u64) {
    let usage = nix::sys::resource::getrusage(nix::sys::resource::UsageWho::RUSAGE_SELF).unwrap();
    let used = usage.user_time().tv_sec() + usage.system_time().tv_sec();
    let (_, hard) = getrlimit(Resource::RLIMIT_CPU).unwrap();
    let limit = u64::try_from(used).unwrap() + 1 + seconds;
    setrlimit(Resource::RLIMIT_CPU, limit.min(hard), hard).unwrap();
}

/// Check that the limits bite: a process that takes more memory or time than it may does not live.
#[test]
fn limits() {
    if let Ok(which) = std::env::var("WCPROF_FUZZ_LIMIT") {
        setrlimit(Resource::RLIMIT_DATA, 64 << 20, 64 << 20).unwrap();
        limit_cpu(0);
        match which.as_str() {
            "memory" => drop(std::hint::black_box(vec![1_u8; 128 << 20])),
            _ => loop {
                std::hint::spin_loop();
            },
        }
        return;
    }
    for which in ["memory", "time"] {
        let output = Command::new(std::env::current_exe().unwrap())
            .args(["--exact", "corpus::limits", "--nocapture"])
            .env("WCPROF_FUZZ_LIMIT", which)
            .output()
            .unwrap();
        assert_eq!(output.status.code(), None, "{which}: {}", output.status);
    }
}

/// Check that every target has a program for libFuzzer and a corpus, and that there are no others.
#[test]
fn complete() {
    let names = |folder: &str| {
        let mut names: Vec<String> = fs::read_dir(fuzz_dir().join(folder))
            .unwrap()
            .map(|entry| {
                let path = entry.unwrap().path();
                path.file_stem().unwrap().to_string_lossy().into_owned()
            })
            .collect();
        names.sort();
        names
    };
    let mut expected: Vec<&str> = TARGETS.iter().map(|target| target.name).collect();
    expected.sort_unstable();
    assert_eq!(names("src/bin"), expected);
    assert_eq!(names("corpus"), expected);
    for target in TARGETS {
        assert!(!inputs(target).is_empty(), "{}: no input", target.name);
        let program = fuzz_dir().join(format!("src/bin/{}.rs", target.name));
        let text = fs::read_to_string(program).unwrap();
        assert!(text.contains(&format!("run(\"{}\", data)", target.name)));
    }
    // Those that take most where work is not bounded.
    for seed in ["many-claims", "many-ranges", "many-sequences", "many-units"] {
        let path = fuzz_dir().join("corpus/dwarf_many").join(seed);
        assert!(path.exists(), "{}", path.display());
    }
}

/// Check that all inputs together stay small, as whoever clones the repository fetches them.
#[test]
fn small() {
    let size: u64 = TARGETS
        .iter()
        .flat_map(inputs)
        .map(|path| fs::metadata(path).unwrap().len())
        .sum();
    assert!(size < 1100 << 10, "{size} bytes");
}
