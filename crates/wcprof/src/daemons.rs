//! `wcprof report --by daemon`: the like processes of a saved trace side by side.

use anyhow::{Context, anyhow};
use wcprof_findings::outliers;
use wcprof_profile::fleets;
use wcprof_report::{daemons_json, daemons_text};

use crate::args::ReportArgs;
use crate::failure::Failure;
use crate::open::hotspot_rules;
use crate::terminal::Terminal;
use crate::views::part_of;

pub(crate) fn run(args: &ReportArgs) -> Result<(), Failure> {
    if args.format.is_some() || args.what.functions || args.what.waits {
        let error = anyhow!("--by daemon is a table of whole processes: text or --json");
        return Err(Failure::usage(error).hint("--by process has trees and formats"));
    }
    let hotspot_rules = hotspot_rules(&args.analysis.rules)?;
    let (profile, _, rules) = part_of(&args.trace, &args.part, &args.analysis)?;
    let categories = rules.categories().map_err(Failure::usage)?;
    let fleets = fleets(&profile, &categories, 1);
    let outliers = outliers(&profile, &fleets, &hotspot_rules);
    let out = match args.json {
        true => daemons_json(&fleets, &outliers).context("failed to write JSON")?,
        false => {
            let terminal = Terminal::of_output(args.out.is_stdout());
            daemons_text(&fleets, &outliers, terminal.width)
        }
    };
    args.out.write(out.as_bytes())
}
