//! wcprof-crypto: what of wcprof calls libcrypto. `wcprof` starts it: its commands are `wcprof crypto`, and the workload of
//! `--demo`.
#![forbid(unsafe_code)]
#![cfg_attr(not(test), deny(clippy::print_stderr, clippy::print_stdout))]

mod advise;
mod burst;
mod calibrate;
mod files;
mod kept;
mod measure;
mod model;
mod observe;
mod sandbox;

use std::path::{Path, PathBuf};
use std::process::ExitCode;

use clap::{Parser, Subcommand};
use wcprof_cli::confined::{ReaderArgs, run_importer, run_namer};
use wcprof_cli::crypto::CryptoCommand;
use wcprof_cli::{Exit, Failure, exit_code};

/// What encryption of Ceph's messenger costs here, and what would reduce it
#[derive(Parser, Debug)]
#[command(name = "wcprof-crypto", bin_name = "wcprof crypto", version)]
struct Cli {
    #[command(subcommand)]
    command: Command,
}

#[derive(Subcommand, Debug)]
enum Command {
    #[command(flatten)]
    Crypto(CryptoCommand),
    /// The workload of `--demo`
    #[command(hide = true)]
    DemoWorkload {
        /// Seconds it runs.
        seconds: f64,
        /// Folder of the slow disk; real files without it.
        #[arg(long)]
        disk: Option<PathBuf>,
    },
    /// The process that `calibrate PID` loads a foreign library in
    #[command(hide = true)]
    ConfinedCalibrate(sandbox::SandboxArgs),
    /// The process that reads symbols and DWARF
    #[command(hide = true)]
    ConfinedNames(ReaderArgs),
    /// The process that reads a file to import
    #[command(hide = true)]
    ConfinedImport(ReaderArgs),
}

fn main() -> ExitCode {
    let command = Cli::parse().command;
    let may_hang = matches!(command, Command::Crypto(_));
    exit_code(may_hang, || run(&command).map(|()| 0))
}

fn run(command: &Command) -> Result<(), Failure> {
    match command {
        Command::Crypto(CryptoCommand::Calibrate(args)) => calibrate::run(args),
        Command::Crypto(CryptoCommand::Model(args)) => model::run(args),
        Command::Crypto(CryptoCommand::Observe(args)) => observe::run(args),
        Command::Crypto(CryptoCommand::Advise(args)) => advise::run(args),
        Command::DemoWorkload { seconds, disk } => workload(*seconds, disk.as_deref()),
        Command::ConfinedCalibrate(args) => sandbox::run_child(args),
        Command::ConfinedNames(args) => run_namer(args),
        Command::ConfinedImport(args) => run_importer(args),
    }
}

fn workload(seconds: f64, disk: Option<&Path>) -> Result<(), Failure> {
    wcprof_demo::run(seconds, disk).map_err(|error| Failure::new(Exit::Failure, error))
}

#[cfg(test)]
mod tests {
    use clap::CommandFactory;

    use super::*;

    /// Check that clap finds no contradiction in the definitions.
    #[test]
    fn definitions() {
        Cli::command().debug_assert();
    }
}
