//! The commands of wcprof, which chain the stages of the other crates; and what wcprof-crypto, the program with the
//! commands that call libcrypto, has in common with them.
#![forbid(unsafe_code)]
#![cfg_attr(not(test), deny(clippy::print_stderr, clippy::print_stdout))]

#[macro_use]
#[doc(hidden)]
pub mod message;

mod accounting;
mod agent;
mod ahead;
mod args;
mod attach;
mod check;
mod cli;
mod command;
pub mod confined;
mod core_file;
mod counting;
pub mod crypto;
mod crypto_program;
mod daemons;
mod demo;
mod diff;
mod doctor;
mod failure;
mod filters;
mod format_spec;
mod help;
mod html;
mod import;
mod imported;
mod keep;
mod live;
mod live_names;
mod local_names;
mod locks;
mod merge;
mod names;
mod open;
pub mod output;
mod own_limits;
mod parquet;
mod progress;
mod report;
mod report_flags;
pub mod same_file;
pub mod select;
mod session;
mod settings;
mod signals;
mod snapshot;
mod symbols;
mod terminal;
#[cfg(test)]
mod tests;
mod top;
mod views;
mod vm_exits;

use std::io::Write as _;
use std::process::ExitCode;

pub use args::{ForceArgs, OutputArgs, TargetArgs, defaults};
use cli::Command;
pub use failure::{Exit, Failure};
pub use filters::globs;
pub use names::cache_dir;
use nix::sys::signal::{SigSet, Signal};
pub use open::profile_of;
pub use progress::while_measuring;
use wcprof_host::{front, new_silences};

/// Runs the command of the command line.
pub fn main() -> ExitCode {
    if let Err(low) = own_limits::raise() {
        // Nobody is left to tell that it cannot be written.
        let _ = writeln!(std::io::stderr(), "{low}");
        return ExitCode::FAILURE;
    }
    match help::parse(std::env::args_os()) {
        Ok(cli) => {
            let may_hang = cli.command.may_hang();
            exit_code(may_hang, || run(cli.command))
        }
        Err(error) => error.exit(),
    }
}

/// Runs a command, and prints why it failed. What reads live processes, or files of others, may be held in the kernel for
/// ever: it runs in a child process, so that this must be called while the program has one thread.
pub fn exit_code(may_hang: bool, command: impl FnOnce() -> Result<u8, Failure>) -> ExitCode {
    // A file that exceeds `ulimit -f` is an error of its writer, as a full disk is. Where that cannot be, it ends wcprof.
    let _ = SigSet::from(Signal::SIGXFSZ).thread_block();
    let command = || code_of(command());
    ExitCode::from(match may_hang {
        true => front::run(command),
        false => command(),
    })
}

fn code_of(result: Result<u8, Failure>) -> u8 {
    for silence in new_silences() {
        message!("wcprof: {silence}");
    }
    match result {
        Ok(code) => code,
        Err(failure) if failure.is_broken_pipe() => 0,
        Err(failure) => {
            message::line(message::Level::Error, &failure.to_string());
            failure.exit as u8
        }
    }
}

/// Gives the exit code.
fn run(command: Command) -> Result<u8, Failure> {
    let done = match command {
        Command::Agent(_) => agent::run(),
        Command::Attach(args) => return attach::run(&args),
        Command::Report(args) => report::run(&args),
        Command::Diff(args) => diff::run(&args),
        Command::Import(args) => import::run(&args),
        Command::Merge(args) => merge::run(&args),
        Command::ConfinedNames(args) => confined::run_namer(&args),
        Command::ConfinedImport(args) => confined::run_importer(&args),
        Command::Become(args) => command::become_command(&args),
        Command::Top(args) => top::run(&args),
        Command::Check(args) => check::run(&args),
        Command::Doctor(args) => doctor::run(&args),
        Command::Crypto(_) => Err(crypto_program::become_it(2)),
        Command::Completions { shell } => help::completions(shell),
        Command::Man {
            command,
            dir,
            force,
        } => help::man(&command, dir.as_deref(), force),
    };
    done.map(|()| 0)
}
