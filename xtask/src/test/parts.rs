//! The parts of `cargo xtask test`, in the order in which they run.

use std::process::Command;

use anyhow::Result;

use super::binaries::{self, Which};
use super::summary::Summary;
use crate::process::{cargo, execute, is_installed};
use crate::setup::{self, add_rust_components, install};
use crate::tidy;

/// Its benchmarks need crates that nothing else needs.
const BENCHES: &str = "wcprof-benches";

/// One check.
pub struct Part {
    pub name: &'static str,
    /// What it checks.
    pub about: &'static str,
    /// Runs with `--full` alone.
    pub long: bool,
    pub run: Run,
}

type Run = fn(&mut Summary) -> Result<()>;

const fn part(name: &'static str, about: &'static str, run: Run) -> Part {
    Part {
        name,
        about,
        long: false,
        run,
    }
}

const fn long(name: &'static str, about: &'static str, run: Run) -> Part {
    Part {
        long: true,
        ..part(name, about, run)
    }
}

/// All parts.
pub const PARTS: &[Part] = &[
    part("packages", "install what is missing", |_| {
        install(&[setup::BUILD, setup::TEST])?;
        add_rust_components()
    }),
    part("format", "rustfmt", |_| execute(cargo("fmt --all --check"))),
    part("invariants", "cargo xtask tidy", |_| tidy::run()),
    part("bpf", "the BPF object is that of its source", bpf),
    part("lints", "clippy, warnings are errors", |_| {
        clippy(&format!("--workspace --exclude {BENCHES}"))
    }),
    part("docs", "rustdoc, warnings are errors", |_| {
        let words = format!(
            "doc --workspace --no-deps --locked --exclude {BENCHES} --exclude wcprof-testkit"
        );
        execute(cargo(&words).env("RUSTDOCFLAGS", "-D warnings"))
    }),
    part("build", "compile the tests", |_| binaries::build()),
    part("pure", "tests without a live target's shares", |s| {
        binaries::run_in_parallel(s, Which::Quick)
    }),
    part("waiting", "live targets that sleep, many at a time", |s| {
        binaries::run_live(s, "waiting", Which::Quick)
    }),
    part(
        "running",
        "live targets that need the CPUs, one by one",
        |s| binaries::run_live(s, "running", Which::Quick),
    ),
    long("long-pure", "pure tests that take long", |s| {
        binaries::run_in_parallel(s, Which::Long)
    }),
    long(
        "long-waiting",
        "waiting tests with all engines, 50 kills an engine, exact splits",
        |s| binaries::run_live(s, "waiting", Which::Long),
    ),
    long(
        "long-running",
        "running tests with all engines, exact splits",
        |s| binaries::run_live(s, "running", Which::Long),
    ),
    long("benches", "clippy of the benchmarks", |_| {
        clippy(&format!("--package {BENCHES}"))
    }),
    long("vmtest", "the BPF engine on other kernels", |s| {
        install(&[setup::LAB])?;
        xtask(s, "vmtest")
    }),
    long("truth", "names against llvm-symbolizer", |s| {
        xtask(s, "truth")
    }),
    long("story", "findings that come and go in the lab", |s| {
        install(&[setup::LAB, setup::LAB_SYMBOLS])?;
        xtask(s, "lab story")
    }),
    long("crypto", "crypto observe against fio in the lab", |s| {
        install(&[setup::LAB])?;
        xtask(s, "lab crypto")
    }),
];

/// Runs the parts that `is_wanted` chooses, in their order.
pub fn run_parts(is_wanted: impl Fn(&Part) -> bool) -> Summary {
    let mut summary = Summary::default();
    for part in PARTS.iter().filter(|part| is_wanted(part)) {
        summary.check(part.name, part.run);
    }
    summary
}

fn bpf(summary: &mut Summary) -> Result<()> {
    if is_installed("clang-14") && is_installed("llvm-strip-14") {
        return xtask(summary, "bpf --check");
    }
    let line = "SKIPPED bpf --check: needs clang-14 and llvm-14, which are not installed\n";
    summary.pass_on(line.as_bytes(), std::io::stdout());
    Ok(())
}

fn clippy(packages: &str) -> Result<()> {
    let words = format!("clippy {packages} --all-targets --locked -- -D warnings");
    execute(cargo(&words))
}

/// Another command of this program.
fn xtask(summary: &mut Summary, words: &str) -> Result<()> {
    summary.run(Command::new(std::env::current_exe()?).args(words.split(' ')))
}
