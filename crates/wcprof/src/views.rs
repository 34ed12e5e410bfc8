//! What the commands that show a trace have in common: titles, cores by class, and notes on filters.

use std::cmp::Reverse;
use std::path::Path;

use indexmap::IndexMap;
use wcprof_findings::{Basis, Hotspots, MIN_LIKE, RuleSet, hotspots, to_do};
use wcprof_profile::model::{Profile, Row};
use wcprof_profile::{
    Categories, Cores, Rules, View, cores, counted_by_class, cpu_by_category, fleets, keep_threads,
    shows_any,
};
use wcprof_report::{Answers, Overview, cores_text};
use wcprof_text::{and_more, terminal_name};
use wcprof_trace::model::Tables;

use crate::args::{AnalysisArgs, RuleArgs};
use crate::failure::Failure;
use crate::filters::PartArgs;
use crate::open::{named, state_rules};
use crate::settings;
use crate::terminal::Terminal;

/// What rules and settings say of a profile that has full names and no kernel functions, which is what rules are
/// written for. `tables` hold how the processes were set up.
pub(crate) fn answers(
    profile: &Profile,
    tables: &Tables,
    hotspot_rules: &RuleSet,
    categories: &Categories,
) -> Answers {
    let found = found(profile, hotspot_rules, categories);
    answers_of(profile, tables, &found, categories)
}

/// The same, where it is known what rules find.
pub(crate) fn answers_of(
    profile: &Profile,
    tables: &Tables,
    found: &Hotspots,
    categories: &Categories,
) -> Answers {
    let settings = settings::findings_of(tables);
    Answers {
        categories: cpu_by_category(profile, categories),
        to_do: to_do(
            profile,
            found.findings.iter().chain(&settings),
            &found.counted,
        ),
        n_undecided: found.undecided.len(),
    }
}

/// What hotspot rules find in such a profile. Of one moment they say nothing of time.
pub(crate) fn found(
    profile: &Profile,
    hotspot_rules: &RuleSet,
    categories: &Categories,
) -> Hotspots {
    let fleets = fleets(profile, categories, MIN_LIKE);
    let mut found = hotspots(profile, hotspot_rules, &fleets);
    if profile.header.n_snapshots > 0 {
        found
            .findings
            .retain(|one| matches!(one.basis, Basis::Limit(_)));
        found.undecided.clear();
    }
    found
}

/// The first screen.
pub(crate) fn overview(profile: &Profile, answers: &Answers, cores: Option<&Cores>) -> String {
    let terminal = Terminal::stdout();
    let overview = Overview {
        profile,
        answers,
        width: terminal.width,
        color: terminal.color,
    };
    let mut text = overview.text();
    if let Some(cores) = cores {
        text.push('\n');
        text += &cores_text(cores);
    }
    text
}

/// Title of a flame graph.
pub(crate) fn title(profile: &Profile) -> String {
    let process = profile.threads.first().map_or(String::new(), |t| {
        let more = and_more(profile.processes.len().saturating_sub(1));
        format!("{} (pid {}){more}, ", profile.process_title(t), t.pid)
    });
    let seconds = profile.duration_ns() as f64 / 1e9;
    format!(
        "{process}{seconds:.1} s of wall-clock time on {}",
        profile.header.host
    )
}

/// Cores by class, where there is more than one process, or a number of operations. Names must be full: kinds of work
/// are found by them.
pub(crate) fn cores_of(
    profile: &Profile,
    rules: &RuleArgs,
    n_ops: Option<f64>,
) -> Result<Option<Cores>, Failure> {
    let is_counted = n_ops.is_some() || !counted_by_class(profile).is_empty();
    if profile.processes.len() < 2 && !is_counted {
        return Ok(None);
    }
    let rules = state_rules(rules)?;
    let categories = rules.categories().map_err(Failure::usage)?;
    Ok(Some(cores(profile, &rules, &categories, n_ops)))
}

/// When filters leave nothing, says what the trace has.
pub(crate) fn note_empty(profile: &Profile, view: &View) {
    let passes = |row: &Row| {
        let thread = &profile.threads[row.thread];
        view.shows(row.state) && view.threads.matches(profile, thread)
    };
    if shows_any(profile, view) {
        return;
    }
    message!("wcprof: no time passes the filters");
    if profile.rows.iter().any(passes) {
        message!("wcprof: no stack matches; --functions lists the functions of this trace");
        return;
    }
    if !view.idle && profile.rows.iter().any(|r| r.state.is_idle()) {
        message!("wcprof: idle time is hidden; --idle show shows it");
    }
    note_pools(profile);
}

/// The chosen part of a saved trace, the trace's tables, and the rules for states. If it has no thread, says which pools there are.
pub(crate) fn part_of(
    trace: &Path,
    part: &PartArgs,
    analysis: &AnalysisArgs,
) -> Result<(Profile, Tables, Rules), Failure> {
    let filter = part.thread_filter()?;
    let (opened, symbols, rules) = named(trace, part.window()?, analysis)?;
    let mut profile = opened.profile(&symbols, &rules, false);
    part.check(&profile)?;
    let mut threads = profile.threads.iter();
    if !threads.any(|thread| filter.matches(&profile, thread)) {
        message!("wcprof: no thread passes the filters");
        note_pools(&profile);
    }
    keep_threads(&mut profile, &filter);
    Ok((profile, opened.tables, rules))
}

fn note_pools(profile: &Profile) {
    const MOST: usize = 8;
    let mut pools: IndexMap<&str, u64> = IndexMap::new();
    for row in &profile.rows {
        if let Some(pool) = profile.pools.get(profile.threads[row.thread].pool) {
            let sum = pools.entry(&pool.name).or_default();
            if !row.state.is_idle() {
                *sum = sum.saturating_add(row.weight);
            }
        }
    }
    // Most time that is not idle first.
    pools.sort_unstable_by_key(|name, weight| (Reverse(*weight), *name));
    let shown: Vec<&str> = pools.keys().copied().take(MOST).collect();
    let more = and_more(pools.len().saturating_sub(MOST));
    let shown = terminal_name(&shown.join(", ")).into_owned();
    message!("wcprof: pools of this trace: {shown}{more}");
}
