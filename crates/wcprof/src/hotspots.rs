//! `wcprof hotspots`: the findings of a saved trace.

use anyhow::Context;
use wcprof_findings::{TextOptions, hotspots, render_rules, render_text, rules_to_json, to_json};
use wcprof_profile::keep_threads;
use wcprof_report::cores_text;

use crate::args::HotspotsArgs;
use crate::failure::Failure;
use crate::open::{KernelSide, hotspot_rules, profile_of, write_output};
use crate::terminal::Terminal;
use crate::views::{cores_of, note_no_threads};

pub(crate) fn run(args: &HotspotsArgs) -> Result<(), Failure> {
    let rules = hotspot_rules(&args.rules)?;
    let options = TextOptions {
        width: Terminal::stdout().prose_width(),
        ..TextOptions::default()
    };
    let Some(trace) = args.trace.as_deref().filter(|_| !args.list) else {
        let text = match args.json {
            true => rules_to_json(&rules).context("failed to write JSON")?,
            false => render_rules(&rules, options.width),
        };
        return write_output(None, text.as_bytes());
    };
    let threads = args.part.thread_filter()?;
    let window = args.part.window()?;
    let kernel = KernelSide::Hidden;
    let mut profile = profile_of(trace, window, &args.rules, &args.symbols, kernel)?;
    args.part.check(&profile)?;
    note_no_threads(&profile, &threads);
    keep_threads(&mut profile, &threads);
    let findings = hotspots(&profile, &rules);
    let cores = cores_of(&profile, &args.rules, args.ops)?;
    let mut text = match args.json {
        true => to_json(&findings, cores.as_ref()).context("failed to write JSON")?,
        false => render_text(&profile, &findings, options),
    };
    if !text.ends_with('\n') {
        text.push('\n');
    }
    if let Some(cores) = cores.filter(|_| !args.json) {
        text = format!("{}\n{text}", cores_text(&cores));
    }
    write_output(None, text.as_bytes())?;
    if findings.is_empty() && !profile.threads.is_empty() {
        let trace = trace.display();
        message!("wcprof: `wcprof report {trace} --by pool --invert` shows where the time goes");
    }
    Ok(())
}
