//! `wcprof attach`: records, saves, and prints where the time went.

use std::fs;
use std::path::Path;
use std::time::Duration;

use anyhow::Context;
use wcprof_findings::{Detail, Finding, TextOptions, hotspots, render_text};
use wcprof_profile::model::Profile;
use wcprof_profile::{Cores, GroupBy, ThreadFilter, View};
use wcprof_report::{Headline, Screen, cores_text, screen, svg};
use wcprof_symbols::{SymbolOptions, SymbolReport};
use wcprof_types::Pid;

use crate::cli::AttachArgs;
use crate::failure::{Exit, Failure};
use crate::keep;
use crate::local_names;
use crate::names;
use crate::open::{
    KernelSide, Opened, hotspot_rules, say, say_problems, state_rules, write_output,
};
use crate::report::{cores_of, title};
use crate::same_file::is_same_file;
use crate::select;
use crate::session::{Session, SessionOptions, default_trace_path, record};
use crate::symbols;
use crate::terminal::Terminal;

/// Findings printed at the end; `wcprof hotspots` prints all of them.
const MAX_FINDINGS: usize = 6;
/// Share of unresolved frames beyond which the reasons are said.
const MANY_UNRESOLVED: f64 = 0.05;

pub(crate) fn run(args: &AttachArgs) -> Result<(), Failure> {
    let rules = state_rules(&args.rules)?;
    let hotspot_rules = hotspot_rules(&args.rules)?;
    names::check(&args.symbols)?;
    let chosen = select::targets(&args.targets, args.children)?;
    for remark in &chosen.remarks {
        tell!("wcprof: {remark}");
    }
    let first = chosen.targets.first().map_or(Pid(0), |t| t.pid());
    let path = match &args.output {
        Some(path) => path.clone(),
        None => default_trace_path(first),
    };
    if let Some(svg) = &args.flamegraph
        && (*svg == path || is_same_file(fs::metadata(svg), fs::metadata(&path)))
    {
        let error = anyhow::anyhow!(
            "`{}` cannot be both the trace and the flame graph",
            svg.display()
        );
        return Err(Failure::new(Exit::Usage, error).hint("choose another file for one of them"));
    }
    let options = SessionOptions {
        targets: chosen.targets,
        children: args.children,
        duration: Some(args.duration)
            .filter(|d| *d > 0.0)
            .map(Duration::from_secs_f64),
        rate_hz: args.sampling.rate,
        max_cpu_percent: args.sampling.max_cpu,
        engine: args.sampling.engine,
        kernel: args.kernel,
        threads: args.sampling.threads.clone(),
        exclude_threads: args.sampling.exclude_threads.clone(),
        trace: path.clone(),
    };
    if let Some(time) = args.keep.keep {
        return keep::run(&options, time, args, rules);
    }
    let mut session = record(&options)?;
    if let Some(remark) = &session.remark {
        tell!("wcprof: {remark}");
    }
    if session.recorded.n_left_out > 0 {
        let n = session.recorded.n_left_out;
        tell!("wcprof: {n} processes that were started meanwhile could not be recorded");
    }
    let mut opened = Opened::read(&path, None)?;
    // What could not be written (full disk) is still known here.
    opened.tables.stats = session.recorded.stats.clone();
    let (mut symbols, mut report) = names::of_recording(
        &opened.tables,
        &session.recorded.files,
        &args.symbols,
        &symbol_options(args),
    )?;
    let (local, problems) =
        local_names::of_recording(&opened.tables, (&session.recorded).into(), &mut symbols);
    for problem in problems {
        tell!("wcprof: {problem}");
    }
    opened.tables.local_names = local;
    local_names::count(&opened.tables, &mut report);
    opened.add_up()?;
    if let Err(error) = session
        .recorded
        .writer
        .write_local_names(&opened.tables.local_names)
    {
        tell!("wcprof: names of code without a file are not saved in the trace: {error}");
    }
    if !args.raw
        && let Err(error) = session.recorded.writer.write_symbols(&symbols)
    {
        tell!("wcprof: function names are not saved in the trace: {error}");
    }
    // Rules are made for user stacks.
    let profile = opened.profile(Some(&symbols), &rules, KernelSide::Hidden);
    let findings = hotspots(&profile, &hotspot_rules);
    let profile = match args.kernel {
        true => opened.profile(Some(&symbols), &rules, KernelSide::Shown),
        false => profile,
    };
    let cores = cores_of(&profile, &args.rules, None)?;
    // What is to be written is, even if nobody reads the rest of what is printed.
    let printed = print_end(&profile, &findings, cores.as_ref());
    say_missing_names(&profile, &report, &path, args.raw);
    say_module_problems(&session);
    let flamegraph = args.flamegraph.as_deref();
    let drawn = flamegraph.map(|svg_path| write_flamegraph(&profile, svg_path));
    let drawn = drawn.transpose();
    say_next(&path, flamegraph.filter(|_| drawn.is_ok()));
    printed?;
    drawn?;
    match &session.loss {
        None => Ok(()),
        Some(loss) => Err(Failure::new(Exit::Failure, anyhow::anyhow!("{loss}"))
            .hint("what was recorded until then is kept, and shown above")),
    }
}

/// How names of a recording are found.
pub(crate) fn symbol_options(args: &AttachArgs) -> SymbolOptions {
    match args.raw {
        // Debug files are for the host that analyses, not for the one that is recorded.
        true => SymbolOptions {
            inlines: false,
            debug_dirs: Vec::new(),
            cache: None,
            debuginfod: None,
            ..names::options(&args.symbols)
        },
        false => names::options(&args.symbols),
    }
}

fn print_end(
    profile: &Profile,
    findings: &[Finding],
    cores: Option<&Cores>,
) -> Result<(), Failure> {
    let terminal = Terminal::stdout();
    let mut text = render_text(
        profile,
        findings,
        TextOptions {
            width: terminal.prose_width(),
            max_findings: MAX_FINDINGS,
            detail: Detail::Brief,
        },
    );
    if let Some(cores) = cores {
        text = format!("{}\n{text}", cores_text(cores));
    }
    let mut out = Vec::new();
    screen(
        profile,
        &Screen {
            rows: terminal.rows,
            width: terminal.width,
            color: terminal.color,
            hotspots: &text,
            threads: ThreadFilter::all(),
        },
        &mut out,
    )?;
    write_output(None, &out)
}

fn say_missing_names(profile: &Profile, report: &SymbolReport, trace: &Path, raw: bool) {
    let losses = Headline::new(profile).losses;
    let many = losses.n_unresolved as f64 > MANY_UNRESOLVED * losses.n_frames as f64;
    if many {
        tell!("wcprof: {}", symbols::summary(report, trace));
    }
    match (raw, many) {
        // They are looked for when the trace is read.
        (true, _) => {}
        (false, true) => say(&symbols::others(report)),
        (false, false) => say_problems(report),
    }
}

fn say_module_problems(session: &Session) {
    for problem in &session.recorded.problems {
        tell!(
            "wcprof: stacks through `{}` are cut: {}",
            wcprof_report::terminal_name(&problem.path),
            problem.reason
        );
    }
}

fn write_flamegraph(profile: &Profile, path: &Path) -> Result<(), Failure> {
    let view = View {
        by: GroupBy::Pool,
        min_percent: 0.1,
        ..View::default()
    };
    let mut bytes = Vec::new();
    svg(profile, &view, &title(profile), &mut bytes).context("failed to draw the flame graph")?;
    write_output(Some(&path.to_owned()), &bytes)
}

fn say_next(trace: &Path, flamegraph: Option<&Path>) {
    let trace = trace.display();
    tell!("\ntrace: {trace}");
    if let Some(svg) = flamegraph {
        tell!("flame graph: {}", svg.display());
    }
    tell!("more: wcprof report {trace} --by pool [--invert]; wcprof hotspots {trace}");
}
