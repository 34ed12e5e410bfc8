//! wcprof: a wallclock profiler for native Linux processes.
#![forbid(unsafe_code)]

use std::process::ExitCode;

fn main() -> ExitCode {
    wcprof_cli::main()
}
