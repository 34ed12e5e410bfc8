//! A profile of the last seconds to what is shown: pools and threads with their states, and lines.
//! Pure; all text is made harmless here.

use std::collections::BTreeSet;

use wcprof_profile::model::{Profile, State};
use wcprof_profile::{Direction, GroupBy, View, counted_by_class};
use wcprof_report::{Answers, Overview, TextOptions, TextTrees, rate_text, text};
use wcprof_text::terminal_name;

use super::row::{Row, RowKey};
use super::state::{Pane, Ui};

/// Most nodes of the tree that is shown.
const MAX_NODES: usize = 500;

/// All that is shown of a profile.
#[derive(Clone, PartialEq, Debug)]
pub(crate) struct Model {
    pub(crate) headline: String,
    pub(crate) rows: Vec<Row>,
    pub(crate) pane_title: String,
    pub(crate) pane: Vec<String>,
}

impl Model {
    pub(crate) fn new(profile: &Profile, answers: &Answers, ui: &Ui, width: usize) -> Self {
        let rows = rows(profile, &ui.open);
        let selected = rows.get(ui.at(&rows));
        let (pane_title, pane) = match (ui.pane, selected) {
            (Pane::Tree, None) => ("tree".to_owned(), Vec::new()),
            (Pane::Tree, Some(row)) => {
                let tree = tree(profile, &row.key, ui.direction);
                (format!("tree of {}", row.name), tree)
            }
            (Pane::Answers, _) => ("answers".to_owned(), answers_text(profile, answers, width)),
            (Pane::Help, _) => ("keys".to_owned(), HELP.map(str::to_owned).to_vec()),
        };
        Self {
            headline: headline(profile),
            rows,
            pane_title,
            pane,
        }
    }
}

fn headline(profile: &Profile) -> String {
    let subject = match profile.processes.as_slice() {
        [only] => format!("{} (pid {})", terminal_name(&only.title), only.pid),
        all => format!("{} processes", all.len()),
    };
    let mut sums = [0; State::ALL.len()];
    for row in &profile.rows {
        sums[row.state as usize] += row.weight;
    }
    let of = |state: State| sums[state as usize];
    let share = |state| 100.0 * shares(&sums)[state as usize];
    let running = State::ALL.into_iter().filter(|s| s.is_running());
    let cores: u64 = running.map(of).sum();
    let counted = counted_by_class(profile);
    let operations = counted.values().map(|counted| rate_text(counted) + ", ");
    let operations: String = operations.collect();
    let stopped = match share(State::Stopped) {
        0.0 => String::new(),
        percent => format!(", STOPPED {percent:.1} %"),
    };
    format!(
        "{subject}: {operations}{} threads, {:.2} cores, runnable {:.1} %, lock {:.1} %, disk {:.1} %, idle {:.1} %{stopped}",
        profile.threads.len(),
        cores as f64 / profile.duration_ns().max(1) as f64,
        share(State::Runnable),
        share(State::Lock),
        share(State::Disk),
        share(State::Idle) + share(State::PlaceUnknown),
    )
}

/// Pools, the busiest first, each with its threads if it is unfolded.
fn rows(profile: &Profile, open: &BTreeSet<RowKey>) -> Vec<Row> {
    let mut sums = vec![[0_u64; State::ALL.len()]; profile.threads.len()];
    for row in &profile.rows {
        let sum = &mut sums[row.thread][row.state as usize];
        *sum = sum.saturating_add(row.weight);
    }
    let mut pools: Vec<(Row, Vec<Row>)> = Vec::new();
    for pool in &profile.pools {
        let mut whole = [0_u64; State::ALL.len()];
        let mut threads = Vec::new();
        for &at in &pool.threads {
            let thread = &profile.threads[at];
            for (whole, part) in whole.iter_mut().zip(sums[at]) {
                *whole = whole.saturating_add(part);
            }
            threads.push(Row {
                name: format!("{} {}", terminal_name(&thread.comm), thread.tid),
                key: RowKey::Thread(thread.pid.0, thread.tid.0),
                n_threads: 1,
                states: shares(&sums[at]),
            });
        }
        let name = terminal_name(&pool.name);
        let row = Row {
            name: match profile.processes.len() > 1 {
                true => format!("{name} ({})", pool.pid),
                false => name.into_owned(),
            },
            key: RowKey::Pool(pool.pid.0, pool.name.clone()),
            n_threads: pool.threads.len(),
            states: shares(&whole),
        };
        if whole.iter().any(|ns| *ns > 0) {
            pools.push((row, threads));
        }
    }
    // By threads that are not idle, so that a pool of many counts for more than one thread.
    let load = |row: &Row| row.busy() * row.n_threads as f64;
    pools.sort_by(|(a, _), (b, _)| load(b).total_cmp(&load(a)).then_with(|| a.key.cmp(&b.key)));
    let unfolded = pools.into_iter().flat_map(|(pool, mut rows)| {
        if !open.contains(&pool.key) {
            rows.clear();
        }
        [pool].into_iter().chain(rows)
    });
    unfolded.collect()
}

fn shares(sums: &[u64; State::ALL.len()]) -> [f64; State::ALL.len()] {
    let whole = sums.iter().sum::<u64>().max(1) as f64;
    sums.map(|ns| ns as f64 / whole)
}

/// The tree of a pool or thread, as `report` prints it.
fn tree(profile: &Profile, key: &RowKey, direction: Direction) -> Vec<String> {
    let view = View {
        by: match key {
            RowKey::Pool(..) => GroupBy::Pool,
            RowKey::Thread(..) => GroupBy::Thread,
        },
        direction,
        min_percent: 0.5,
        ..View::default()
    };
    let mut trees = TextTrees::new(profile, &view);
    trees.retain(|group| {
        let mut threads = group.threads.iter().map(|&t| &profile.threads[t]);
        threads.any(|thread| match key {
            RowKey::Thread(pid, tid) => (thread.pid.0, thread.tid.0) == (*pid, *tid),
            RowKey::Pool(pid, name) => {
                thread.pid.0 == *pid && profile.pools[thread.pool].name == *name
            }
        })
    });
    let mut out = Vec::new();
    let options = TextOptions {
        max_nodes: Some(MAX_NODES),
        ..TextOptions::default()
    };
    // Memory takes everything.
    let _ = text(profile, &trees, &options, &mut out);
    lines(&String::from_utf8_lossy(&out))
}

fn answers_text(profile: &Profile, answers: &Answers, width: usize) -> Vec<String> {
    let overview = Overview {
        profile,
        answers,
        width: Some(width),
        color: false,
    };
    lines(overview.answers_text().trim_start_matches('\n'))
}

/// Lines without anything that a terminal would obey.
fn lines(text: &str) -> Vec<String> {
    let lines = text.lines();
    lines.map(|line| terminal_name(line).into_owned()).collect()
}

const HELP: [&str; 12] = [
    "up, down, j, k      choose a pool or thread",
    "enter, right, left  unfold and fold a pool",
    "page up, page down  move in the tree",
    "t                   tree, leaves first (again: roots first)",
    "a                   what to do, where CPU time goes, where threads wait",
    "p, space            pause, go on",
    "s                   save what is kept until the shown moment as a trace",
    "?, h                this help",
    "q, Ctrl-C           end",
    "",
    "bars: # on-CPU  G guest  x vm-exit  r runnable  L lock  D disk  N net  t throttle  s sleep  b blocked  ! steal/irq",
    "      . idle  , perhaps idle  T stopped  ? unknown",
];
