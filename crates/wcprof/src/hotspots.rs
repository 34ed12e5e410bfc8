//! `wcprof hotspots`: the findings of a saved trace.

use wcprof_findings::{TextOptions, hotspots, render_text, to_json};
use wcprof_profile::keep_threads;

use crate::cli::HotspotsArgs;
use crate::failure::{Exit, Failure};
use crate::open::{KernelSide, hotspot_rules, profile_of, write_output};
use crate::terminal::Terminal;

pub(crate) fn run(args: &HotspotsArgs) -> Result<(), Failure> {
    let rules = hotspot_rules(&args.rules)?;
    let threads = args.part.thread_filter()?;
    let window = args.part.window()?;
    let mut profile = profile_of(
        &args.trace,
        window,
        &args.rules,
        &args.symbols,
        KernelSide::Hidden,
    )?;
    args.part.check(&profile)?;
    keep_threads(&mut profile, &threads);
    let findings = hotspots(&profile, &rules);
    let mut text = match args.json {
        true => to_json(&findings).map_err(|e| Failure::new(Exit::Failure, e))?,
        false => render_text(
            &profile,
            &findings,
            TextOptions {
                width: Terminal::stdout().prose_width(),
                ..TextOptions::default()
            },
        ),
    };
    if !text.ends_with('\n') {
        text.push('\n');
    }
    write_output(None, text.as_bytes())
}
