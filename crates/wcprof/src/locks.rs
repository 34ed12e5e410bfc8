//! `wcprof locks`: who waited for whom, of a saved trace.

use anyhow::Context;
use wcprof_findings::{lock_report, locks_to_json, render_locks};
use wcprof_profile::keep_threads;

use crate::args::LocksArgs;
use crate::failure::Failure;
use crate::open::{KernelSide, hotspot_rules, profile_of, write_output};
use crate::terminal::Terminal;
use crate::views::note_no_threads;

pub(crate) fn run(args: &LocksArgs) -> Result<(), Failure> {
    let rules = hotspot_rules(&args.rules)?;
    let threads = args.part.thread_filter()?;
    let window = args.part.window()?;
    let kernel = KernelSide::Hidden;
    let mut profile = profile_of(&args.trace, window, &args.rules, &args.symbols, kernel)?;
    args.part.check(&profile)?;
    note_no_threads(&profile, &threads);
    keep_threads(&mut profile, &threads);
    let report = lock_report(&profile, &rules);
    let text = match args.json {
        true => locks_to_json(&report).context("failed to write JSON")?,
        false => render_locks(&report, args.top, Terminal::stdout().prose_width()),
    };
    write_output(None, text.as_bytes())
}
