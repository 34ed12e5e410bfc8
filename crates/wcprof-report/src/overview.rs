//! The first screen: cores and threads on average by pool, what to do, where CPU time goes, where threads
//! wait.

use std::ops::RangeInclusive;

use indexmap::IndexMap;
use wcprof_findings::{ToDo, ToDoList};
use wcprof_profile::model::{Profile, ProfileProcess, State};
use wcprof_profile::{CategoryTime, counted_by_class, vm_exits};
use wcprof_text::{and_more, columns, count, duration, one_line, terminal_name, wrap};

use crate::figures::{
    COLUMNS, MIN_SHOWN, WaitSite, amount, amount_of, at_a_time, at_a_time_text, busiest_pools,
    callers, kinds_of_work, vm_exits_text, wait_sites,
};
use crate::headline::{Headline, length_text};
use crate::per_operation::counted_text;
use crate::spans::{Line, Style, heading, plain, render};

/// So many times as many threads lived as there were at a time: both are said.
const MANY_LIVED: f64 = 1.5;
/// Lines of the screen; `attach` adds four. What is to do may take more.
const MAX_SCREEN: usize = 36;
/// Things to do, and how many have room in any case.
const MAX_TO_DO: usize = 8;
const MIN_TO_DO: usize = 6;
/// Lines of the tables of where CPU goes and where threads wait, and one less than those of pools: as many as what is to do leaves room for.
const LINES: RangeInclusive<usize> = 2..=4;
/// Places where threads stand in snapshots, in those of a recording: nothing else says as much of a process that hangs.
const OF_SNAPSHOTS: usize = 4;
/// Cells of the longest bar.
const BAR: usize = 16;
/// What the letters of bars are, as [`mark`] has them.
const LEGEND: &str =
    "bars: # runs, r waits for a CPU, L lock, D disk, w other; the busiest pool's is the longest";
/// Columns of a pool's name.
const NAME: usize = 17;
/// Columns of the place of a wait, and those before it.
const PLACE: usize = 46;
const BEFORE_PLACE: usize = 27;
/// Columns of a kind of work, where none is longer.
const KIND: usize = 20;
/// Columns where no terminal says how many there are.
const DEFAULT_WIDTH: usize = 100;
/// Columns before the text of a thing to do.
const INDENT: usize = 17;
/// Above what is to do: what its figures are.
const TO_DO: &str =
    "WHAT TO DO (at most to gain, ~ estimated: cores, or threads that no longer wait)";

/// What a profile says, by rules.
#[derive(Clone, Debug, Default)]
pub struct Answers {
    /// CPU time by kind of work, the largest first.
    pub categories: Vec<CategoryTime>,
    /// What to do, and what that follows from.
    pub to_do: ToDoList,
    /// Shares of which it is not known whether they are above a threshold.
    pub n_undecided: usize,
}

impl Answers {
    /// That threads wait for a CPU, and what shortens that; `arrow` stands before what to do. Not escaped.
    pub(crate) fn cpu_wait_text(&self, arrow: &str) -> Option<String> {
        let ToDo { why, action, .. } = self.to_do.cpu_wait.as_ref()?;
        let frees_cpu = self.to_do.items.iter().any(|item| item.gain.is_cpu);
        let items = match frees_cpu {
            true => " Each core that an item below frees shortens this wait.",
            false => "",
        };
        Some(format!("{why} {arrow} {action}.{items}"))
    }

    /// For each thing to do, the heading that stands above it: where its remedy is another one than that of the thing before.
    pub(crate) fn to_do_headings(&self) -> Vec<Option<&'static str>> {
        let headings = || self.to_do.items.iter().map(|item| item.remedy.heading());
        let before = std::iter::once(None).chain(headings().map(Some));
        let all: Vec<_> = headings()
            .zip(before)
            .map(|(here, before)| (Some(here) != before).then_some(here))
            .collect();
        match all.iter().flatten().count() {
            0 | 1 => vec![None; all.len()],
            _ => all,
        }
    }

    /// What is to do beside the first `n_shown` items.
    pub(crate) fn more_to_do(&self, n_shown: usize) -> Option<String> {
        let n_more = self.to_do.items.len().saturating_sub(n_shown);
        let mut more = Vec::new();
        if n_more > 0 {
            more.push(format!("{n_more} more"));
        }
        if self.n_undecided > 0 {
            let items = count(self.n_undecided, "possible item");
            more.push(format!("{items} that a longer recording would decide"));
        }
        (!more.is_empty()).then(|| format!("{}: see wcprof doctor", more.join(", ")))
    }
}

/// The first screen of a profile.
#[derive(Debug)]
pub struct Overview<'a> {
    /// What was recorded.
    pub profile: &'a Profile,
    /// What is made of it.
    pub answers: &'a Answers,
    /// Columns; `None` does not cut lines.
    pub width: Option<usize>,
    /// Use ANSI colors.
    pub color: bool,
}

impl Overview<'_> {
    /// The screen as text, escaped for a terminal.
    pub fn text(&self) -> String {
        let headline = Headline::new(self.profile);
        let mut quality = vec![plain("")];
        for text in headline.warnings().into_iter().chain([headline.quality()]) {
            quality.extend(self.wrapped(&text));
        }
        let head = self.head(&headline);
        let sites = wait_sites(self.profile);
        let tables = |n: usize| {
            let before = [head.clone(), self.pools(n + 1)].concat();
            (
                before,
                [self.cpu(n), self.waits(&sites, n), quality.clone()].concat(),
            )
        };
        let room = |(before, behind): &(Vec<Line>, Vec<Line>)| {
            MAX_SCREEN.saturating_sub(before.len() + behind.len())
        };
        let wanted = self.to_do(usize::MAX).len();
        let mut sizes = LINES.rev().map(tables);
        let fitting = sizes.clone().find(|tables| room(tables) >= wanted);
        let (before, behind) = fitting.or_else(|| sizes.next_back()).unwrap_or_default();
        let room = MAX_SCREEN.saturating_sub(before.len() + behind.len());
        let lines = [before, self.to_do(room), behind].concat();
        render(&lines, self.width, self.color)
    }

    /// What to do, where CPU time goes and where threads wait, without the rest of the screen.
    pub fn answers_text(&self) -> String {
        let n = *LINES.end();
        let waits = self.waits(&wait_sites(self.profile), n);
        let lines = [self.cpu_wait(), self.to_do(usize::MAX), self.cpu(n), waits].concat();
        render(&lines, self.width, self.color)
    }

    /// The lines above the pools, not wrapped: what was recorded, what threads do at a time, operations.
    pub(crate) fn head_texts(&self) -> Vec<String> {
        let wide = Self {
            width: Some(usize::MAX / 2),
            ..Self { ..*self }
        };
        let lines = wide.head(&Headline::new(self.profile)).into_iter();
        let text = |line: Line| line.into_iter().map(|(_, text)| text).collect::<String>();
        lines.map(text).collect()
    }

    fn columns(&self) -> usize {
        self.width.unwrap_or(DEFAULT_WIDTH).max(2 * INDENT)
    }

    /// A text of one or more lines.
    fn wrapped(&self, text: &str) -> Vec<Line> {
        let lines = wrap(text, self.columns(), 0, 0).into_iter();
        lines.map(plain).collect()
    }

    /// Threads at a time, on average.
    fn at_a_time(&self, ns: u64) -> f64 {
        at_a_time(self.profile, ns)
    }

    /// `70 threads`, and how many there were at a time where most lived for a part of the recording.
    fn threads_text(&self, headline: &Headline<'_>) -> String {
        let threads = self.profile.threads.iter().filter(|t| t.tid.0 != 0);
        let observed = threads.map(|t| t.observed_ns).fold(0, u64::saturating_add);
        let at_a_time = self.at_a_time(observed).round();
        let all = count(headline.n_threads, "thread");
        match headline.n_threads as f64 > MANY_LIVED * at_a_time {
            true => format!("{all}, {at_a_time} at a time"),
            false => all,
        }
    }

    /// CPUs, threads, and how many of these never ran; of snapshots, which say neither, the threads.
    fn machine_text(&self, headline: &Headline<'_>) -> String {
        let profile = self.profile;
        let threads = self.threads_text(headline);
        if profile.header.n_snapshots > 0 {
            return threads;
        }
        let mut ran = vec![false; profile.threads.len()];
        for row in &profile.rows {
            ran[row.thread] |= COLUMNS[0].1.contains(&row.state);
        }
        let known = ran.iter().zip(&profile.threads);
        let n_never = known.filter(|(ran, t)| !**ran && t.tid.0 != 0).count();
        let cpus = count(profile.header.n_cpus as usize, "CPU");
        format!("{cpus}   {threads}, {n_never} never ran")
    }

    fn head(&self, headline: &Headline<'_>) -> Vec<Line> {
        let profile = self.profile;
        let subject = terminal_name(&subject(profile, headline)).into_owned();
        let program = match profile.processes.as_slice() {
            [only] if only.comm != only.title => format!("   {}", terminal_name(&only.comm)),
            _ => String::new(),
        };
        let is_snapshot = profile.header.n_snapshots > 0;
        let window = match profile.time.window_ns() {
            Some((from, to)) => format!("   {} to {}", duration(from), duration(to)),
            None => String::new(),
        };
        let recorded = format!(
            "{subject}{program}   {}{window}   {}",
            length_text(profile, profile.duration_ns(), profile.extent_ns()),
            self.machine_text(headline),
        );
        let of = |states: &[State]| {
            let sum = states.iter().map(|s| headline.states[*s as usize]);
            self.at_a_time(sum.fold(0, u64::saturating_add))
        };
        let mut shares = match is_snapshot {
            true => vec!["threads, and no time".to_owned()],
            false => vec![format!("uses {:.2} cores", of(COLUMNS[0].1))],
        };
        let waits: [(&str, &[State]); 7] = [
            ("for a CPU", COLUMNS[1].1),
            ("for locks", &[State::Lock]),
            ("for the disk", &[State::Disk]),
            ("for the network", &[State::Net]),
            ("throttled", &[State::Throttle]),
            ("asleep", &[State::Sleep]),
            ("for other things", &[State::Blocked]),
        ];
        let waits = waits.iter().filter(|(_, states)| of(states) >= MIN_SHOWN);
        let waits = waits.map(|(what, states)| format!("{:.2} {what}", of(states)));
        let waits: Vec<String> = waits.collect();
        if !waits.is_empty() {
            let waits = waits.join(", ");
            shares.push(format!("threads that wait, on average: {waits}"));
        }
        for (what, state) in [
            ("that probably wait for work", State::PlaceUnknown),
            ("stopped", State::Stopped),
        ] {
            if of(&[state]) >= MIN_SHOWN {
                shares.push(format!("{:.2} {what}", of(&[state])));
            }
        }
        if is_snapshot {
            let unknown = of(&[State::Unknown]);
            shares.push(format!("{unknown:.2} in no call that blocks"));
        }
        let mut lines = vec![vec![(Style::Heading, recorded)]];
        lines.extend(self.wrapped(&shares.join(" | ")));
        lines.extend(self.cpu_wait());
        for stopped in &headline.stopped {
            lines.extend(self.wrapped(&stopped.text()));
        }
        for (class, counted) in counted_by_class(profile) {
            let text = format!("{}: {}", terminal_name(class), counted_text(&counted));
            lines.extend(self.wrapped(&text));
        }
        if let Some(exits) = vm_exits(profile) {
            lines.extend(self.wrapped(&vm_exits_text(&exits)));
        }
        lines
    }

    /// That threads wait for a CPU, where that is no item of what is to do.
    fn cpu_wait(&self) -> Vec<Line> {
        let text = self.answers.cpu_wait_text("->");
        let text = text.map(|text| self.wrapped(&terminal_name(&text)));
        text.unwrap_or_default()
    }

    /// At most `n` pools with a line of their own.
    fn pools(&self, n: usize) -> Vec<Line> {
        let (pools, n_others, others_at_a_time) = busiest_pools(self.profile, n);
        let most = pools.first().map_or(1, |pool| pool.busy().max(1));
        let head = COLUMNS.map(|(name, _)| format!(" {name:>8}")).concat();
        let head = format!(
            "{:<NAME$} {:>5}{head}   (threads, on average)",
            "pool", "thr"
        );
        let mut lines = heading(head).to_vec();
        for pool in &pools {
            let n_threads = pool.n_threads;
            let name: String = terminal_name(pool.name).chars().take(NAME).collect();
            let mut line = plain(format!("{name:<NAME$} {n_threads:>5}"));
            let mut bar = plain("   ");
            let (mut sum, mut given) = (0_u64, 0);
            for (_, of) in COLUMNS {
                let column = pool.total(of);
                let text = at_a_time_text(self.profile, column);
                line.push((Style::Of(of[0]), format!(" {text:>8}")));
                sum = sum.saturating_add(column);
                let upto = (sum as f64 / most as f64 * BAR as f64).round() as usize;
                let cells = mark(of[0]).to_string().repeat(upto.saturating_sub(given));
                bar.push((Style::Of(of[0]), cells));
                given = given.max(upto);
            }
            line.extend(bar);
            lines.push(line);
        }
        if n_others > 0 {
            let others = format!("{n_others} others");
            let text = format!("{others:<23} {others_at_a_time:>8.2} in all");
            lines.push(plain(text));
        }
        if !pools.is_empty() {
            lines.push(plain(LEGEND.to_owned()));
        }
        lines
    }

    /// As much as `room` lines hold, and [`MIN_TO_DO`] at the least.
    fn to_do(&self, room: usize) -> Vec<Line> {
        let mut lines = Vec::new();
        let items = &self.answers.to_do.items;
        if !items.is_empty() || self.answers.n_undecided > 0 {
            lines.extend(heading(TO_DO));
        }
        let mut n_shown = 0;
        let headings = self.answers.to_do_headings();
        for ((item, heading), number) in items.iter().zip(headings).take(MAX_TO_DO).zip(1..) {
            let text = wrap(
                &format!("{} -> {}", item.why, item.action),
                self.columns(),
                INDENT,
                INDENT,
            );
            // The line of what is not shown comes behind it.
            let n_lines = usize::from(heading.is_some()) + text.len() + 1;
            if n_shown >= MIN_TO_DO && lines.len() + n_lines > room {
                break;
            }
            n_shown = number;
            lines.extend(heading.map(|heading| plain(format!("   {heading}:"))));
            let head = format!("{number:>2} {:<13} ", item.gain.text());
            let heads = std::iter::once(head).chain(std::iter::repeat(" ".repeat(INDENT)));
            lines.extend(
                text.into_iter()
                    .zip(heads)
                    .map(|(text, head)| plain(head + &one_line(&text))),
            );
        }
        if let Some(more) = self.answers.more_to_do(n_shown) {
            let more = wrap(&more, self.columns(), INDENT, INDENT).into_iter();
            lines.extend(more.map(|text| plain(" ".repeat(INDENT) + &text)));
        }
        lines
    }

    fn cpu(&self, n: usize) -> Vec<Line> {
        let kinds = kinds_of_work(&self.answers.categories, n);
        if kinds.is_empty() {
            return Vec::new();
        }
        let on_cpu = self.answers.categories.iter().map(|c| c.weight);
        let cores = self.at_a_time(on_cpu.fold(0, u64::saturating_add));
        // Shares of next to nothing say nothing.
        if cores < MIN_SHOWN {
            return Vec::new();
        }
        let head = heading(format!(
            "WHERE CPU GOES (% of {cores:.2} cores, kind of work, called by)"
        ));
        let longest = kinds.iter().map(|kind| kind.name.len()).max();
        let width = longest.unwrap_or(0).max(KIND);
        let lines = kinds.iter().map(|kind| {
            plain(format!(
                "{:>5.1} %  {:<width$} {}",
                kind.percent,
                terminal_name(kind.name),
                terminal_name(&callers(self.profile, kind.category)),
            ))
        });
        let mut lines: Vec<Line> = head.into_iter().chain(lines).collect();
        let n_kinds = self
            .answers
            .categories
            .iter()
            .filter(|c| c.weight > 0)
            .count();
        let n_others = n_kinds.saturating_sub(kinds.len());
        if n_others > 0 {
            let rest = 100.0 - kinds.iter().map(|kind| kind.percent).sum::<f64>();
            let others = count(n_others, "other kind");
            lines.push(plain(format!("{:>5.1} %  {others}", rest.max(0.0))));
        }
        lines
    }

    /// The first `n` of the places where threads wait.
    fn waits(&self, sites: &[WaitSite], n: usize) -> Vec<Line> {
        if sites.is_empty() {
            return Vec::new();
        }
        let is_snapshot = self.profile.header.n_snapshots > 0;
        let n = if is_snapshot { n * OF_SNAPSHOTS } else { n };
        let lines = sites.iter().take(n).flat_map(|site| {
            let place = terminal_name(&site.place).into_owned();
            let mut line = vec![
                (
                    Style::Plain,
                    format!("{:>9}  ", amount(self.profile, site.weight)),
                ),
                (Style::Of(site.state), format!("{:<15}", site.state_text())),
                (Style::Plain, format!(" {place}")),
            ];
            let Some(holder) = &site.holder else {
                return vec![line];
            };
            let holder = terminal_name(holder).into_owned();
            let taken = BEFORE_PLACE + columns(&place).max(PLACE) + 2 + columns(&holder);
            if self.width.is_some_and(|width| taken > width) {
                let below = format!("{:BEFORE_PLACE$}  {holder}", "");
                return vec![line, plain(below)];
            }
            let gap = " ".repeat(PLACE.saturating_sub(columns(&place)) + 2);
            line.push((Style::Plain, gap + &holder));
            vec![line]
        });
        let unit = amount_of(self.profile);
        let what = match is_snapshot {
            false => "WAIT, without waits for a CPU or for work",
            true => "STAND that are not on a CPU, those that wait for work last",
        };
        let head = heading(format!(
            "WHERE THREADS {what} ({unit}, state, function < caller, holder)"
        ));
        head.into_iter().chain(lines).collect()
    }
}

/// Processes with a name of their own in the first line.
const MAX_NAMED: usize = 3;

/// `osd.3 (pid 4711)`; of more than three processes their programs: `postgres (15 processes), pgbench (pid 99)`. Not escaped.
fn subject(profile: &Profile, headline: &Headline<'_>) -> String {
    let n = headline.processes.len();
    if n <= MAX_NAMED || profile.processes.len() < n {
        let shown = headline.processes.iter().take(MAX_NAMED);
        let shown: Vec<&str> = shown.map(String::as_str).collect();
        return shown.join(", ") + &and_more(n.saturating_sub(MAX_NAMED));
    }
    let mut programs: IndexMap<&str, Vec<&ProfileProcess>> = IndexMap::new();
    for process in &profile.processes {
        programs.entry(&process.class).or_default().push(process);
    }
    programs.sort_by(|a, of_a, b, of_b| of_b.len().cmp(&of_a.len()).then_with(|| a.cmp(b)));
    let shown =
        programs
            .iter()
            .take(MAX_NAMED)
            .map(|(program, processes)| match processes.as_slice() {
                [one] => format!("{} (pid {})", one.title, one.pid),
                many => format!("{program} ({} processes)", many.len()),
            });
    let shown: Vec<String> = shown.collect();
    shown.join(", ") + &and_more(programs.len().saturating_sub(MAX_NAMED))
}

/// The letter of a state in bars.
fn mark(state: State) -> char {
    match state {
        State::OnCpu => '#',
        State::Runnable => 'r',
        State::Lock => 'L',
        State::Disk => 'D',
        _ => 'w',
    }
}
