//! A profile of the last seconds to what is shown: pools and threads with their states, and lines.
//! Pure; all text is made harmless here.

use std::collections::{BTreeMap, BTreeSet};

use wcprof_profile::model::{Profile, State};
use wcprof_profile::{Direction, GroupBy, View, counted_by_class};
use wcprof_report::{Answers, Overview, TextOptions, TextTrees, at_a_time, rate_text, text};
use wcprof_text::{columns, terminal_name};

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
            headline: headline(profile, width),
            rows,
            pane_title,
            pane,
        }
    }
}

/// The first of the texts that fit into a line together.
pub(super) fn fitting(texts: &[String], separator: &str, width: usize) -> String {
    let mut line = String::new();
    for text in texts {
        let separator = if line.is_empty() { "" } else { separator };
        if !line.is_empty() && columns(&line) + columns(separator) + columns(text) > width {
            break;
        }
        line = line + separator + text;
    }
    line
}

/// Who, and how many threads did what at a time, as far as it fits.
fn headline(profile: &Profile, width: usize) -> String {
    let subject = match profile.processes.as_slice() {
        [only] => format!("{} (pid {})", terminal_name(&only.title), only.pid),
        all => {
            let classes: BTreeSet<&str> = all.iter().map(|p| p.class.as_str()).collect();
            let only = classes.first().filter(|_| classes.len() == 1);
            let of = only.map_or_else(String::new, |class| format!(" of {}", terminal_name(class)));
            format!("{} processes{of}", all.len())
        }
    };
    let mut sums = [0; State::ALL.len()];
    for row in &profile.rows {
        sums[row.state as usize] += row.weight;
    }
    let of = |state: State| sums[state as usize];
    let at_a_time = |states: &[State]| {
        let ns = states
            .iter()
            .map(|state| of(*state))
            .fold(0, u64::saturating_add);
        ns as f64 / profile.duration_ns().max(1) as f64
    };
    let running: Vec<State> = State::ALL.into_iter().filter(|s| s.is_running()).collect();
    let counted = counted_by_class(profile);
    let mut texts = vec![format!("{subject}: uses {:.2} cores", at_a_time(&running))];
    texts.extend(counted.values().map(rate_text));
    for (what, states) in [
        ("STOPPED", &[State::Stopped][..]),
        ("waits for a CPU", &[State::Runnable, State::StealIrq]),
        ("locks", &[State::Lock]),
        ("disk", &[State::Disk]),
        ("network", &[State::Net]),
        ("idle", &[State::Idle, State::PlaceUnknown]),
    ] {
        // Like the first screen, which counts threads on average.
        let n = at_a_time(states);
        if n >= 0.005 {
            texts.push(format!("{what} {n:.2}"));
        }
    }
    texts.push(format!("{} threads", profile.threads.len()));
    fitting(&texts, ", ", width)
}

/// Pools, the busiest first, each with its threads if it is unfolded.
fn rows(profile: &Profile, open: &BTreeSet<RowKey>) -> Vec<Row> {
    let mut sums = vec![[0_u64; State::ALL.len()]; profile.threads.len()];
    for row in &profile.rows {
        let sum = &mut sums[row.thread][row.state as usize];
        *sum = sum.saturating_add(row.weight);
    }
    // Pools of one name of all processes of a program are one.
    let mut by_name: BTreeMap<RowKey, Vec<usize>> = BTreeMap::new();
    for pool in &profile.pools {
        let key = RowKey::Pool(
            class_of(profile, pool.process).to_owned(),
            pool.name.clone(),
        );
        by_name.entry(key).or_default().extend(&pool.threads);
    }
    let has_classes = profile
        .processes
        .iter()
        .any(|p| p.class != profile.processes[0].class);
    let pools = by_name.into_iter().map(|(key, threads)| {
        let mut whole = [0_u64; State::ALL.len()];
        let rows = threads.iter().map(|&at| {
            let thread = &profile.threads[at];
            for (whole, part) in whole.iter_mut().zip(sums[at]) {
                *whole = whole.saturating_add(part);
            }
            Row {
                name: format!("{} {}", terminal_name(&thread.comm), thread.tid),
                key: RowKey::Thread(thread.pid.0, thread.tid.0),
                n_threads: 1,
                states: states_at_a_time(profile, &sums[at]),
            }
        });
        let rows: Vec<Row> = rows.collect();
        let name = match &key {
            RowKey::Pool(class, name) if has_classes => {
                format!("{} ({})", terminal_name(name), terminal_name(class))
            }
            RowKey::Pool(_, name) => terminal_name(name).into_owned(),
            RowKey::Thread(..) => String::new(),
        };
        let row = Row {
            name,
            key,
            n_threads: rows.len(),
            states: states_at_a_time(profile, &whole),
        };
        (row, rows)
    });
    let has_time = |(row, _): &(Row, Vec<Row>)| row.states.iter().any(|n| *n > 0.0);
    let mut pools: Vec<(Row, Vec<Row>)> = pools.filter(has_time).collect();
    pools.sort_by(|(a, _), (b, _)| {
        let by_busy = b.busy().total_cmp(&a.busy());
        by_busy.then_with(|| a.key.cmp(&b.key))
    });
    let unfolded = pools.into_iter().flat_map(|(pool, mut rows)| {
        if !open.contains(&pool.key) {
            rows.clear();
        }
        [pool].into_iter().chain(rows)
    });
    unfolded.collect()
}

/// The program of a process.
fn class_of(profile: &Profile, process: usize) -> &str {
    let process = profile.processes.get(process);
    process.map_or("", |process| process.class.as_str())
}

/// Threads at a time by state, of nanoseconds.
fn states_at_a_time(profile: &Profile, sums: &[u64; State::ALL.len()]) -> [f64; State::ALL.len()] {
    sums.map(|ns| at_a_time(profile, ns))
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
            RowKey::Pool(class, name) => {
                class_of(profile, thread.process) == class
                    && profile.pools[thread.pool].name == *name
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
    "      . idle  , probably no work  T stopped  ? unknown",
];
