//! The parts of `cargo xtask test`, in the order in which they run.

use std::process::Command;

use anyhow::{Result, bail};

use super::binaries;
use super::summary::Summary;
use crate::process::{cargo, execute, is_installed};
use crate::setup::{self, add_rust_components, install};
use crate::tidy;

/// Its benchmarks need crates that nothing else needs.
const BENCHES: &str = "wcprof-benches";

/// Name of a part, and what it checks.
type Part = (&'static str, &'static str);

/// Parts that always run.
pub const PARTS: &[Part] = &[
    ("packages", "install what is missing"),
    ("format", "rustfmt"),
    ("invariants", "cargo xtask tidy"),
    ("bpf", "the BPF object is that of its source"),
    ("lints", "clippy, warnings are errors"),
    ("docs", "rustdoc, warnings are errors"),
    ("build", "compile the tests"),
    (
        "parallel",
        "unit and integration tests, live targets that sleep",
    ),
    ("running", "live targets that need the CPUs, one at a time"),
];

/// Parts that run with `--full`.
pub const LONG_PARTS: &[Part] = &[
    (
        "long-parallel",
        "ignored tests: all engines, 50 kills, exact splits",
    ),
    ("long-running", "ignored tests: all engines, exact splits"),
    ("benches", "clippy of the benchmarks"),
    (
        "dist",
        "packages and the image: the same bytes from a clone, used in clean roots",
    ),
    ("vmtest", "the engines and accounts on other kernels"),
    (
        "fleet",
        "profiles of 600 daemons in one store that refuses, hangs and restarts",
    ),
    (
        "collector",
        "a profile through a real OpenTelemetry Collector",
    ),
    ("truth", "names against llvm-symbolizer"),
    (
        "viewers",
        "exports in pprof, speedscope and the Firefox Profiler",
    ),
    (
        "parquet",
        "the export to Parquet, and 20 files of it in DuckDB",
    ),
    ("story", "findings that come and go in the lab"),
    ("crypto", "crypto observe against fio in the lab"),
    (
        "operations",
        "costs of an operation against fio and the kernel in the lab",
    ),
    (
        "agent",
        "ten minutes of the agent on three OSDs and a virtual machine in the lab",
    ),
];

/// Runs parts, one after the other.
pub fn run_parts<'a>(parts: impl IntoIterator<Item = &'a Part>) -> Summary {
    let mut summary = Summary::default();
    for (name, _) in parts {
        summary.check(name, |summary| run_part(name, summary));
    }
    summary
}

fn run_part(name: &str, summary: &mut Summary) -> Result<()> {
    let (kind, is_long) = match name.strip_prefix("long-") {
        Some(kind) => (kind, true),
        None => (name, false),
    };
    match kind {
        "packages" => {
            install(&[setup::BUILD, setup::TEST])?;
            add_rust_components()
        }
        "format" => execute(cargo("fmt --all --check")),
        "invariants" => tidy::run(),
        "bpf" if !is_installed("clang-14") || !is_installed("llvm-strip-14") => {
            let line = "SKIPPED bpf --check: needs clang-14 and llvm-14, which are not installed\n";
            summary.pass_on(line.as_bytes(), std::io::stdout());
            Ok(())
        }
        "bpf" => xtask(summary, "bpf --check"),
        "lints" => clippy(&format!("--workspace --exclude {BENCHES}")),
        "docs" => {
            let words = format!(
                "doc --workspace --no-deps --locked --exclude {BENCHES} --exclude wcprof-testkit"
            );
            execute(cargo(&words).env("RUSTDOCFLAGS", "-D warnings"))
        }
        "build" => binaries::build(),
        "parallel" => binaries::run_in_parallel(summary, is_long),
        "running" => binaries::run_alone(summary, is_long),
        "benches" => clippy(&format!("--package {BENCHES}")),
        "dist" => xtask(summary, "dist --compare --test"),
        "collector" | "fleet" | "parquet" | "truth" => xtask(summary, kind),
        "viewers" => {
            install(&[setup::VIEWERS])?;
            xtask(summary, "viewers --exports")
        }
        "vmtest" => {
            install(&[setup::LAB])?;
            xtask(summary, "vmtest")
        }
        "story" | "crypto" | "operations" | "agent" => {
            install(&[setup::LAB, setup::LAB_SYMBOLS])?;
            xtask(summary, &format!("lab {kind}"))
        }
        _ => bail!("no such part"),
    }
}

fn clippy(packages: &str) -> Result<()> {
    let words = format!("clippy {packages} --all-targets --locked -- -D warnings");
    execute(cargo(&words))
}

/// Another command of this program.
fn xtask(summary: &mut Summary, words: &str) -> Result<()> {
    summary.run(Command::new(std::env::current_exe()?).args(words.split(' ')))
}
