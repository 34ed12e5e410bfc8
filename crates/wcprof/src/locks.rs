//! `wcprof report --locks`: who waited for whom, of a saved trace.

use anyhow::{Context, anyhow};
use wcprof_findings::{lock_report, locks_to_json, render_locks};
use wcprof_report::locks_html;

use crate::args::{ByArg, FormatArg, ReportArgs};
use crate::failure::Failure;
use crate::open::hotspot_rules;
use crate::terminal::Terminal;
use crate::views::{part_of, title};

pub(crate) fn run(args: &ReportArgs) -> Result<(), Failure> {
    if !matches!(args.format, None | Some(FormatArg::Html)) {
        let error = anyhow!("lock sites have no such format");
        return Err(Failure::usage(error).hint("they are text, --json or --format html"));
    }
    let rules = hotspot_rules(&args.analysis.rules)?;
    let (profile, ..) = part_of(&args.trace, &args.part, &args.analysis)?;
    let by = args.trees.by.map(ByArg::group_by);
    let report = lock_report(&profile, &rules, by);
    let mut out = Vec::new();
    match args.format {
        Some(_) => {
            let title = format!("Locks: {}", title(&profile));
            locks_html(&report, &title, &mut out).context("failed to make the page")?;
        }
        None if args.json => {
            let json = locks_to_json(&report).context("failed to write JSON")?;
            out = json.into_bytes();
        }
        None => {
            let terminal = Terminal::of_output(args.out.is_stdout());
            out = render_locks(&report, args.limit, terminal.prose_width()).into_bytes();
        }
    }
    args.out.write(&out)
}
