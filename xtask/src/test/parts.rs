//! The parts of `cargo xtask test`, in the order in which they run.

use std::process::Command;

use anyhow::{Context, Result};

use super::binaries::{self, Which};
use super::summary::Summary;
use crate::process::{cargo, execute, is_installed};
use crate::setup::{Group, add_rust_components, install};
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
    pub run: fn(&mut Summary) -> Result<()>,
}

const fn part(
    name: &'static str,
    about: &'static str,
    run: fn(&mut Summary) -> Result<()>,
) -> Part {
    Part {
        name,
        about,
        long: false,
        run,
    }
}

const fn long(
    name: &'static str,
    about: &'static str,
    run: fn(&mut Summary) -> Result<()>,
) -> Part {
    Part {
        long: true,
        ..part(name, about, run)
    }
}

/// All parts.
pub const PARTS: &[Part] = &[
    part("packages", "install what is missing", |_| {
        install(&[Group::Build, Group::Test])?;
        add_rust_components()
    }),
    part("format", "rustfmt", |_| {
        execute(cargo()?.args(["fmt", "--all", "--check"]))
    }),
    part("invariants", "cargo xtask tidy", |_| {
        tidy::run(&tidy::Args {})
    }),
    part("bpf", "the BPF object is that of its source", bpf),
    part("lints", "clippy, warnings are errors", |_| {
        clippy(&["--workspace", "--exclude", BENCHES])
    }),
    part("docs", "rustdoc, warnings are errors", |_| {
        execute(
            cargo()?
                .args(["doc", "--workspace", "--no-deps", "--locked"])
                .args(["--exclude", BENCHES, "--exclude", "wcprof-testkit"])
                .env("RUSTDOCFLAGS", "-D warnings"),
        )
    }),
    part("build", "compile the tests", |_| {
        binaries::build().map(|_| ())
    }),
    part("pure", "tests without a live target's shares", |summary| {
        binaries::run_beside_each_other(summary, Which::Quick)
    }),
    part("waiting", "live targets that sleep, many at a time", |s| {
        binaries::run_live(s, "waiting", Which::Quick)
    }),
    part(
        "running",
        "live targets that need the CPUs, one by one",
        |s| binaries::run_live(s, "running", Which::Quick),
    ),
    long("long-pure", "pure tests that take long", |summary| {
        binaries::run_beside_each_other(summary, Which::Long)
    }),
    long(
        "long-waiting",
        "waiting tests with all engines, 50 kills an engine, exact splits",
        |summary| binaries::run_live(summary, "waiting", Which::Long),
    ),
    long(
        "long-running",
        "running tests with all engines, exact splits",
        |summary| binaries::run_live(summary, "running", Which::Long),
    ),
    long("benches", "clippy of the benchmarks", |_| {
        clippy(&["--package", BENCHES])
    }),
    long("vmtest", "the BPF engine on other kernels", |summary| {
        install(&[Group::Lab])?;
        xtask(summary, &["vmtest"])
    }),
    long("truth", "names against llvm-symbolizer", |summary| {
        xtask(summary, &["truth"])
    }),
    long("story", "findings that come and go in the lab", |summary| {
        install(&[Group::Lab, Group::LabSymbols])?;
        xtask(summary, &["lab", "story"])
    }),
    long(
        "crypto",
        "crypto observe against fio in the lab",
        |summary| {
            install(&[Group::Lab])?;
            xtask(summary, &["lab", "crypto"])
        },
    ),
];

fn bpf(summary: &mut Summary) -> Result<()> {
    if is_installed("clang-14") && is_installed("llvm-strip-14") {
        return xtask(summary, &["bpf", "--check"]);
    }
    summary.skip("SKIPPED bpf --check: needs clang-14 and llvm-14, which are not installed");
    Ok(())
}

fn clippy(packages: &[&str]) -> Result<()> {
    execute(cargo()?.arg("clippy").args(packages).args([
        "--all-targets",
        "--locked",
        "--",
        "-D",
        "warnings",
    ]))
}

/// Another command of this program.
fn xtask(summary: &mut Summary, args: &[&str]) -> Result<()> {
    let program = std::env::current_exe().context("failed to find this program")?;
    summary.pass_on(Command::new(program).args(args))
}
