//! `wcprof locks`: who waited for whom, of a saved trace.

use anyhow::Context;
use wcprof_findings::{lock_report, locks_to_json, render_locks};
use wcprof_report::locks_html;

use crate::args::LocksArgs;
use crate::failure::Failure;
use crate::open::{hotspot_rules, write_output};
use crate::same_file::refuse_input;
use crate::terminal::Terminal;
use crate::views::{part_of, title};

pub(crate) fn run(args: &LocksArgs) -> Result<(), Failure> {
    let rules = hotspot_rules(&args.analysis.rules)?;
    let profile = part_of(&args.trace, &args.part, &args.analysis)?;
    let report = lock_report(&profile, &rules);
    let text = match args.json {
        true => locks_to_json(&report).context("failed to write JSON")?,
        false => render_locks(&report, args.top, Terminal::stdout().prose_width()),
    };
    if let Some(path) = &args.html {
        refuse_input(&args.trace, path)?;
        let mut page = Vec::new();
        locks_html(&report, &format!("Locks: {}", title(&profile)), &mut page)
            .context("failed to make the page")?;
        write_output(Some(path), &page)?;
    }
    write_output(None, text.as_bytes())
}
