//! The first screen: cores and threads at a time by pool, what to do, where CPU time goes, where threads
//! wait.

use std::cmp::Reverse;
use std::collections::HashMap;

use indexmap::IndexMap;
use wcprof_findings::ToDo;
use wcprof_profile::model::{LockRow, Profile, ProfileStackId, Row, State};
use wcprof_profile::{CategoryTime, is_runtime, syscall_name};
use wcprof_text::{and_more, count, duration, one_line, percent, terminal_name, wrap};

use crate::headline::{Headline, length_text};
use crate::short::short;
use crate::spans::{Line, Style, heading, plain, render};

/// Lines of the screen; `attach` adds four.
const MAX_SCREEN: usize = 36;
/// Pools with a line of their own.
const MAX_POOLS: usize = 5;
/// Things to do.
const MAX_TO_DO: usize = 6;
/// Lines of the other sections.
const MAX_LINES: usize = 4;
/// Fewest threads at a time that are shown as more than `-`.
const MIN_SHOWN: f64 = 0.005;
/// Cells of the longest bar.
const BAR: usize = 16;
/// Columns of a pool's name.
const NAME: usize = 17;
/// Columns of the place of a wait.
const PLACE: usize = 46;
/// Columns where no terminal says how many there are.
const DEFAULT_WIDTH: usize = 100;
/// Columns before the text of a thing to do.
const INDENT: usize = 10;

/// The columns of the pools, and the states that each adds up.
const COLUMNS: [(&str, &[State]); 5] = [
    ("cores", &[State::OnCpu, State::Guest]),
    ("cpu-wait", &[State::Runnable, State::StealIrq]),
    ("lock", &[State::Lock]),
    ("disk", &[State::Disk]),
    (
        "other",
        &[State::Net, State::Throttle, State::Sleep, State::Blocked],
    ),
];

/// Time by state of some threads.
type States = [u64; State::ALL.len()];

/// What a profile says, by rules.
#[derive(Clone, Debug, Default)]
pub struct Answers {
    /// CPU time by kind of work, the largest first.
    pub categories: Vec<CategoryTime>,
    /// The most to gain first.
    pub to_do: Vec<ToDo>,
    /// Shares of which it is not known whether they are above a threshold.
    pub n_undecided: usize,
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
        let before = [self.head(&headline), self.pools()].concat();
        let behind = [self.cpu(), self.waits(), quality].concat();
        let room = MAX_SCREEN.saturating_sub(before.len() + behind.len());
        let lines = [before, self.to_do(room), behind].concat();
        render(&lines, self.width, self.color)
    }

    /// What to do, where CPU time goes and where threads wait, without the rest of the screen.
    pub fn answers_text(&self) -> String {
        let lines = [self.to_do(usize::MAX), self.cpu(), self.waits()].concat();
        render(&lines, self.width, self.color)
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
        ns as f64 / self.profile.duration_ns().max(1) as f64
    }

    fn head(&self, headline: &Headline<'_>) -> Vec<Line> {
        let profile = self.profile;
        let shown = headline.processes.iter().take(3).map(|p| terminal_name(p));
        let shown = shown.collect::<Vec<_>>().join(", ");
        let program = match profile.processes.as_slice() {
            [only] if only.comm != only.title => format!("   {}", terminal_name(&only.comm)),
            _ => String::new(),
        };
        let window = match profile.time.window_ns() {
            Some((from, to)) => format!("   {} to {}", duration(from), duration(to)),
            None => String::new(),
        };
        let mut ran = vec![false; profile.threads.len()];
        for row in &profile.rows {
            ran[row.thread] |= COLUMNS[0].1.contains(&row.state);
        }
        let known = ran.iter().zip(&profile.threads);
        let n_never = known.filter(|(ran, t)| !**ran && t.tid.0 != 0).count();
        let recorded = format!(
            "{shown}{}{program}   {}{window}   {}   {}, {n_never} never ran",
            and_more(headline.processes.len().saturating_sub(3)),
            length_text(profile.duration_ns(), profile.extent_ns()),
            count(profile.header.n_cpus as usize, "CPU"),
            count(headline.n_threads, "thread"),
        );
        let of = |states: &[State]| {
            let sum = states.iter().map(|s| headline.states[*s as usize]);
            self.at_a_time(sum.fold(0, u64::saturating_add))
        };
        let mut shares = vec![format!("uses {:.2} cores", of(COLUMNS[0].1))];
        for (what, states) in [
            ("waits for a CPU: {} threads", COLUMNS[1].1),
            ("for locks {}", &[State::Lock][..]),
            ("for the disk {}", &[State::Disk]),
            ("for the network {}", &[State::Net]),
            ("throttled {}", &[State::Throttle]),
            ("asleep {}", &[State::Sleep]),
            ("other waits {}", &[State::Blocked]),
            ("perhaps waits for work {}", &[State::PlaceUnknown]),
        ] {
            if of(states) >= MIN_SHOWN {
                shares.push(what.replace("{}", &format!("{:.2}", of(states))));
            }
        }
        let mut lines = vec![vec![(Style::Heading, recorded)]];
        lines.extend(self.wrapped(&shares.join(" | ")));
        lines
    }

    fn pools(&self) -> Vec<Line> {
        let profile = self.profile;
        let mut pools: IndexMap<&str, (usize, States)> = IndexMap::new();
        for thread in &profile.threads {
            if let Some(pool) = profile.pools.get(thread.pool) {
                pools.entry(&pool.name).or_default().0 += usize::from(thread.tid.0 != 0);
            }
        }
        for row in &profile.rows {
            if let Some(pool) = profile.pools.get(profile.threads[row.thread].pool) {
                let sum = &mut pools.entry(&pool.name).or_default().1[row.state as usize];
                *sum = sum.saturating_add(row.weight);
            }
        }
        pools.sort_by_cached_key(|name, (_, states)| (Reverse(busy(states)), *name));
        let most = pools.values().next();
        let most = most.map_or(1, |(_, states)| busy(states).max(1));
        let head = COLUMNS.map(|(name, _)| format!(" {name:>8}")).concat();
        let head = format!("{:<NAME$} {:>5}{head}   (threads at a time)", "pool", "thr");
        let mut lines = heading(head).to_vec();
        let is_shown = |(_, states): &&(usize, States)| self.at_a_time(busy(states)) >= MIN_SHOWN;
        let n_shown = pools.values().take(MAX_POOLS).filter(is_shown).count();
        for (name, (n_threads, states)) in pools.iter().take(n_shown) {
            let name: String = terminal_name(name).chars().take(NAME).collect();
            let mut line = plain(format!("{name:<NAME$} {n_threads:>5}"));
            let mut bar = plain("   ");
            let (mut sum, mut given) = (0_u64, 0);
            for (_, of) in COLUMNS {
                let column = total(states, of);
                let text = match self.at_a_time(column) {
                    n if n >= MIN_SHOWN => format!(" {n:>8.2}"),
                    _ => format!(" {:>8}", "-"),
                };
                line.push((Style::Of(of[0]), text));
                sum = sum.saturating_add(column);
                let upto = (sum as f64 / most as f64 * BAR as f64).round() as usize;
                let cells = mark(of[0]).to_string().repeat(upto.saturating_sub(given));
                bar.push((Style::Of(of[0]), cells));
                given = given.max(upto);
            }
            line.extend(bar);
            lines.push(line);
        }
        let rest = pools.values().skip(n_shown);
        let rest = rest.fold(0_u64, |sum, (_, states)| sum.saturating_add(busy(states)));
        if pools.len() > n_shown {
            let others = format!("{} others", pools.len() - n_shown);
            let at_once = self.at_a_time(rest);
            lines.push(plain(format!("{others:<23} {at_once:>8.2} in all")));
        }
        lines
    }

    /// As much as `room` lines hold, and one thing at the least.
    fn to_do(&self, room: usize) -> Vec<Line> {
        let mut lines = Vec::new();
        if !self.answers.to_do.is_empty() || self.answers.n_undecided > 0 {
            lines.extend(heading("WHAT TO DO"));
        }
        let mut n_shown = 0;
        for (item, number) in self.answers.to_do.iter().take(MAX_TO_DO).zip(1..) {
            let severity = item.severity.name().to_uppercase();
            let text = wrap(
                &format!("{} -> {}", item.why, item.action),
                self.columns(),
                INDENT,
                INDENT,
            );
            // The line of what is not shown comes behind it.
            if n_shown > 0 && lines.len() + text.len() + 1 > room {
                break;
            }
            n_shown = number;
            let head = format!("{number:>2} {severity:<6} ");
            let heads = std::iter::once(head).chain(std::iter::repeat(" ".repeat(INDENT)));
            lines.extend(
                text.into_iter()
                    .zip(heads)
                    .map(|(text, head)| plain(head + &one_line(&text))),
            );
        }
        let n_more = self.answers.to_do.len().saturating_sub(n_shown);
        let more = [(n_more, "more"), (self.answers.n_undecided, "undecided")];
        let more = more.iter().filter(|(n, _)| *n > 0);
        let more: Vec<String> = more.map(|(n, what)| format!("{n} {what}")).collect();
        if !more.is_empty() {
            let text = format!("{}: see wcprof hotspots", more.join(", "));
            lines.push(plain(" ".repeat(INDENT) + &text));
        }
        lines
    }

    fn cpu(&self) -> Vec<Line> {
        let times = self.answers.categories.iter().map(|c| c.weight);
        let on_cpu = times.fold(0, u64::saturating_add);
        if on_cpu == 0 {
            return Vec::new();
        }
        let cores = self.at_a_time(on_cpu);
        let head = heading(format!(
            "WHERE CPU GOES (on-CPU time, % of {cores:.2} cores)"
        ));
        let lines = self
            .answers
            .categories
            .iter()
            .take(MAX_LINES)
            .map(|category| {
                let callers = category.callers.iter().take(3);
                let callers = callers.filter_map(|(f, _)| self.profile.functions.get(f.0 as usize));
                let callers: Vec<String> = callers.map(|f| short(&f.name)).collect();
                plain(format!(
                    "{:>5.1} %  {:<20} {}",
                    percent(category.weight, on_cpu),
                    category.name.as_deref().unwrap_or("other code"),
                    terminal_name(&callers.join(", ")),
                ))
            });
        head.into_iter().chain(lines).collect()
    }

    fn waits(&self) -> Vec<Line> {
        let mut sites: IndexMap<(State, &str, String), u64> = IndexMap::new();
        for row in self.profile.rows.iter().filter(|r| r.state.is_waiting()) {
            let site = self.place(row.stack, 2);
            let call = self.call(row).unwrap_or_default();
            let sum = sites.entry((row.state, call, site)).or_default();
            *sum = sum.saturating_add(row.weight);
        }
        if sites.is_empty() {
            return Vec::new();
        }
        sites.sort_by(|a, m, b, n| n.cmp(m).then_with(|| a.cmp(b)));
        let holders = self.holders();
        let lines = sites
            .iter()
            .take(MAX_LINES)
            .map(|((state, call, site), weight)| {
                let state_text = match *call {
                    "" => state.name().to_owned(),
                    call => format!("{} ({call})", state.name()),
                };
                let holder = holders.get(site).filter(|_| *state == State::Lock);
                let holder = holder.map_or_else(String::new, |h| terminal_name(h).into_owned());
                vec![
                    (Style::Plain, format!("{:>9}  ", duration(*weight))),
                    (Style::Of(*state), format!("{state_text:<15}")),
                    (Style::Plain, format!(" {:<PLACE$}  ", terminal_name(site))),
                    (Style::Plain, holder),
                ]
            });
        let head = heading("WHERE THREADS WAIT (without idle time)");
        head.into_iter().chain(lines).collect()
    }

    /// The system call of a wait whose state says no more than that it is one.
    fn call(&self, row: &Row) -> Option<&'static str> {
        let wait = row.wait.filter(|_| row.state == State::Blocked)?;
        let wait = self.profile.waits.get(wait as usize)?;
        syscall_name(wait.syscall?)
    }

    /// The innermost `n` functions of the program in a stack: `callee < caller`.
    fn place(&self, stack: Option<ProfileStackId>, n: usize) -> String {
        let stack = stack.and_then(|id| self.profile.stacks.get(id.0 as usize));
        let frames = stack.map_or(&[][..], |stack| &stack.frames);
        let functions = frames.iter().rev();
        let functions = functions.filter_map(|f| self.profile.functions.get(f.0 as usize));
        let own = functions.clone().filter(|f| !is_runtime(f)).take(n);
        let mut names: Vec<String> = own.map(|f| short(&f.name)).collect();
        names.dedup();
        if names.is_empty() {
            names.extend(functions.take(1).map(|f| short(&f.name)));
        }
        names.join(" < ")
    }

    /// Who held the locks that are waited for at a site, most of the time.
    fn holders(&self) -> HashMap<String, String> {
        let mut sums: HashMap<String, HashMap<String, u64>> = HashMap::new();
        for LockRow {
            stack,
            holder,
            weight,
            ..
        } in &self.profile.locks
        {
            if let Ok(holder) = holder {
                let place = self.place(holder.stack, 1);
                let text = format!("held by {place} ({})", holder.state.name());
                let of_site = sums.entry(self.place(*stack, 2)).or_default();
                let sum = of_site.entry(text).or_default();
                *sum = sum.saturating_add(*weight);
            }
        }
        let most = sums.into_iter().filter_map(|(site, holders)| {
            let holders = holders.into_iter();
            let most = holders.max_by(|a, b| (a.1, &b.0).cmp(&(b.1, &a.0)))?;
            Some((site, most.0))
        });
        most.collect()
    }
}

/// Time in some states.
fn total(states: &States, of: &[State]) -> u64 {
    let times = of.iter().map(|state| states[*state as usize]);
    times.fold(0, u64::saturating_add)
}

/// Time in all columns.
fn busy(states: &States) -> u64 {
    let columns = COLUMNS.iter().map(|(_, of)| total(states, of));
    columns.fold(0, u64::saturating_add)
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
