//! `cargo xtask bench`: what wcprof costs, itself and its target, as Markdown tables.

mod attached;
mod big;
mod histogram;
mod measure;
mod osd;
mod overhead;
mod report;
mod screen;
pub mod stats;
mod symbolizers;
mod symbols;

use anyhow::Result;

/// What to measure.
#[derive(Debug, clap::Subcommand)]
pub enum Task {
    /// CPU time and memory of wcprof for each engine, and of other profilers that are installed
    Overhead(overhead::Options),
    /// What wcprof costs and misses on large targets: threads, processes, mappings
    Big(big::Options),
    /// Speed of an OSD under load, alternating with wcprof attached and without (needs `lab up`)
    Osd(osd::Options),
    /// From Ctrl-C to the first screen of a recording
    Screen(screen::Options),
    /// Time and memory that reports of large traces take
    Report,
    /// Time and memory that finding names takes, with other symbolizers that are installed
    Symbols(symbols::Options),
}

/// Runs the command.
///
/// # Errors
/// When a build or a program fails.
pub fn run(task: &Task) -> Result<()> {
    match task {
        Task::Overhead(options) => overhead::run(options),
        Task::Big(options) => big::run(options),
        Task::Osd(options) => osd::run(options),
        Task::Screen(options) => screen::run(options),
        Task::Report => report::run(),
        Task::Symbols(options) => symbols::run(options),
    }
}
