//! `wcprof hotspots`: the findings of a saved trace.

use anyhow::Context;
use wcprof_findings::{hotspots, render_rules, render_text, rules_to_json, to_json};
use wcprof_report::cores_text;

use crate::args::HotspotsArgs;
use crate::failure::Failure;
use crate::open::{hotspot_rules, write_output};
use crate::terminal::Terminal;
use crate::views::{cores_of, part_of};

pub(crate) fn run(args: &HotspotsArgs) -> Result<(), Failure> {
    let rules = hotspot_rules(&args.analysis.rules)?;
    let width = Terminal::stdout().prose_width();
    let Some(trace) = args.trace.as_deref().filter(|_| !args.list) else {
        let text = match args.json {
            true => rules_to_json(&rules).context("failed to write JSON")?,
            false => render_rules(&rules, width),
        };
        return write_output(None, text.as_bytes());
    };
    let profile = part_of(trace, &args.part, &args.analysis)?;
    let found = hotspots(&profile, &rules);
    let cores = cores_of(&profile, &args.analysis.rules, args.ops)?;
    let mut text = match args.json {
        true => to_json(&found, cores.as_ref()).context("failed to write JSON")?,
        false => render_text(&profile, &found, width),
    };
    if !text.ends_with('\n') {
        text.push('\n');
    }
    if let Some(cores) = cores.filter(|_| !args.json) {
        text = format!("{}\n{text}", cores_text(&cores));
    }
    write_output(None, text.as_bytes())?;
    if found.findings.is_empty() && !profile.threads.is_empty() {
        let trace = trace.display();
        message!("wcprof: `wcprof report {trace} --by pool --invert` shows where the time goes");
    }
    Ok(())
}
