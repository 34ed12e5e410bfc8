//! `wcprof locks`: who waited for whom, of a saved trace.

use anyhow::Context;
use wcprof_findings::{lock_report, locks_to_json, render_locks};

use crate::args::LocksArgs;
use crate::failure::Failure;
use crate::open::{hotspot_rules, write_output};
use crate::terminal::Terminal;
use crate::views::part_of;

pub(crate) fn run(args: &LocksArgs) -> Result<(), Failure> {
    let rules = hotspot_rules(&args.analysis.rules)?;
    let profile = part_of(&args.trace, &args.part, &args.analysis)?;
    let report = lock_report(&profile, &rules);
    let text = match args.json {
        true => locks_to_json(&report).context("failed to write JSON")?,
        false => render_locks(&report, args.top, Terminal::stdout().prose_width()),
    };
    write_output(None, text.as_bytes())
}
