//! `cargo xtask`: everything a developer or CI does with this repository beyond `cargo build`.
//!
//! One file a subcommand. Nothing here needs more than rustc and crates that are pure Rust, so
//! that `cargo xtask setup` can install whatever else is missing.

#![forbid(unsafe_code)]

mod bench;
mod bpf;
mod collector;
mod cpio;
mod cpu_time;
mod demo;
mod dist;
mod fleet;
mod fuzz;
mod kernel;
mod lab;
mod markdown;
mod parquet;
mod picture;
mod process;
mod programs;
mod runtimes;
mod setup;
mod test;
mod tidy;
mod toolchains;
mod truth;
mod viewers;
mod vmtest;

use anyhow::Result;
use clap::{Parser, Subcommand};

/// Development tasks of wcprof.
#[derive(Debug, Parser)]
#[command(name = "cargo xtask", disable_help_subcommand = true)]
struct Cli {
    #[command(subcommand)]
    command: Task,
}

#[derive(Debug, Subcommand)]
enum Task {
    /// Install the Debian packages that building and testing need
    Setup(setup::Args),
    /// Build wcprof and profile its built-in workload
    Demo(demo::Args),
    /// Build the programs that are given to others, with checksums
    Dist(dist::Args),
    /// Run every check: format, lints, tests, documentation, invariants, generated files
    Test(test::Args),
    /// Check the invariants of the source tree
    Tidy,
    /// Rebuild the BPF object, or compare it with its source
    Bpf(bpf::Args),
    /// Run the BPF engine's live tests on other kernels
    Vmtest,
    /// Run a small Ceph cluster and a virtual machine on loopback
    #[command(subcommand)]
    Lab(lab::Task),
    /// Compare function names, inline chains and lines with llvm-symbolizer
    Truth(truth::Args),
    /// Push the profiles of a cluster to one store, which refuses, hangs and restarts
    Fleet(fleet::Args),
    /// Send a profile to a real OpenTelemetry Collector, and compare what it writes
    Collector,
    /// Look for inputs that break a parser (needs cargo-fuzz and a nightly compiler)
    Fuzz(fuzz::Args),
    /// Compare what is shown of programs of many runtimes with what these say
    Runtimes(programs::Args),
    /// Compare what is shown of one program that many compilers and tools have made with what is known of it
    Toolchains(programs::Args),
    /// Open the exports of a trace in their viewers
    Viewers(viewers::Args),
    /// Test the export to Parquet, and ask 20 files in DuckDB
    Parquet,
    /// Make the pictures of the README
    Picture,
    /// Measure what wcprof costs
    #[command(subcommand)]
    Bench(bench::Task),
}

fn main() -> Result<()> {
    match Cli::parse().command {
        Task::Setup(args) => setup::run(&args),
        Task::Demo(args) => demo::run(&args),
        Task::Dist(args) => dist::run(&args),
        Task::Test(args) => test::run(&args),
        Task::Tidy => tidy::run(),
        Task::Bpf(args) => bpf::run(&args),
        Task::Vmtest => vmtest::run(),
        Task::Lab(task) => lab::run(&task),
        Task::Truth(args) => truth::run(&args),
        Task::Fleet(args) => fleet::run(&args),
        Task::Collector => collector::run(),
        Task::Fuzz(args) => fuzz::run(&args),
        Task::Runtimes(args) => programs::run(&runtimes::TABLE, &args),
        Task::Toolchains(args) => programs::run(&toolchains::TABLE, &args),
        Task::Viewers(args) => viewers::run(&args),
        Task::Parquet => parquet::run(),
        Task::Picture => picture::run(),
        Task::Bench(task) => bench::run(&task),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Check that every command that README and docs show is one.
    #[test]
    fn documented() {
        let commands = wcprof_testkit::doc_commands(&["cargo", "xtask"]);
        assert!(commands.len() > 10, "{}", commands.len());
        for command in commands {
            let parsed = Cli::try_parse_from(&command.words[1..]);
            assert!(parsed.is_ok(), "{command:?}: {}", parsed.unwrap_err());
        }
    }
}
