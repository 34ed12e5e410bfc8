//! wcprof: a wallclock profiler for native Linux processes. The command line chains the stages;
//! what each does is in the other crates.
#![forbid(unsafe_code)]
#![cfg_attr(not(test), deny(clippy::print_stderr, clippy::print_stdout))]

#[macro_use]
mod message;

mod args;
mod attach;
mod check;
mod cli;
mod confined;
mod crypto;
mod daemons;
mod demo;
mod diff;
mod doctor;
mod failure;
mod filters;
mod help;
mod html;
mod import;
mod keep;
mod live;
mod live_names;
mod local_names;
mod locks;
mod merge;
mod names;
mod open;
mod output;
mod progress;
mod report;
mod same_file;
mod select;
mod session;
mod settings;
mod signals;
mod symbols;
mod terminal;
#[cfg(test)]
mod tests;
mod top;
mod views;

use std::process::ExitCode;

use cli::Command;
use failure::Failure;
use wcprof_host::{Unanswered, front, unanswered};

fn main() -> ExitCode {
    let command = match help::parse(std::env::args_os()) {
        Ok(cli) => cli.command,
        Err(error) => error.exit(),
    };
    // What reads live processes may be held in the kernel for ever.
    let code = match command.reads_processes() {
        true => front::run(move || exit_code(command)),
        false => exit_code(command),
    };
    ExitCode::from(code)
}

fn exit_code(command: Command) -> u8 {
    let result = run(command);
    for Unanswered { pid, address } in unanswered() {
        message!(
            "wcprof: memory of pid {pid} at {:#x} did not answer within 2 s (userfaultfd, or a mapped file whose server hangs): what is there is missing",
            address.0
        );
    }
    match result {
        Ok(()) => 0,
        Err(failure) if failure.is_broken_pipe() => 0,
        Err(failure) => {
            message!("{failure}");
            failure.exit as u8
        }
    }
}

fn run(command: Command) -> Result<(), Failure> {
    match command {
        Command::Attach(args) => attach::run(&args),
        Command::Report(args) => report::run(&args),
        Command::Diff(args) => diff::run(&args),
        Command::Import(args) => import::run(&args),
        Command::Merge(args) => merge::run(&args),
        Command::DemoWorkload { seconds, disk } => demo::workload(seconds, disk),
        Command::ConfinedNames(args) => confined::run_namer(&args),
        Command::Top(args) => top::run(&args),
        Command::Check(args) => check::run(&args),
        Command::Doctor(args) => doctor::run(&args),
        Command::Crypto(args) => crypto::run(&args),
        Command::Completions { shell } => help::completions(shell),
        Command::Man {
            command,
            dir,
            force,
        } => help::man(&command, dir.as_deref(), force),
    }
}
