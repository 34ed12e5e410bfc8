//! The first screen: cores and threads at a time by pool, where CPU time goes, where threads wait.

use std::cmp::Reverse;
use std::collections::HashMap;

use indexmap::IndexMap;
use wcprof_profile::model::{LockRow, Profile, ProfileStackId, State};
use wcprof_profile::{CategoryTime, is_runtime};
use wcprof_text::{and_more, count, duration, percent, terminal_name};

use crate::headline::Headline;
use crate::short::short;
use crate::spans::{Line, plain, render};

/// Pools with a line of their own.
const MAX_POOLS: usize = 8;
/// Lines of a section.
const MAX_LINES: usize = 5;
/// Fewest threads at a time that are shown as more than `-`.
const MIN_SHOWN: f64 = 0.005;
/// Cells of the longest bar.
const BAR: usize = 16;
/// Columns of a pool's name, of a place.
const NAME: usize = 17;

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

/// The first screen of a profile.
#[derive(Debug)]
pub struct Overview<'a> {
    /// What was recorded.
    pub profile: &'a Profile,
    /// CPU time by kind of work, the largest first.
    pub categories: &'a [CategoryTime],
    /// What to do, one line each, the most gain first.
    pub to_do: &'a [String],
    /// Columns; `None` does not cut lines.
    pub width: Option<usize>,
    /// Use ANSI colors.
    pub color: bool,
}

impl Overview<'_> {
    /// The screen as text, escaped for a terminal.
    pub fn text(&self) -> String {
        let headline = Headline::new(self.profile);
        let mut lines = self.head(&headline);
        lines.extend(self.pools());
        if !self.to_do.is_empty() {
            lines.extend([plain(""), plain("WHAT TO DO")]);
            let to_do = self.to_do.iter().zip(1..);
            lines.extend(to_do.map(|(line, at)| plain(format!("{at:>2} {line}"))));
        }
        lines.extend(self.cpu(headline.states[State::OnCpu as usize]));
        lines.extend(self.waits());
        lines.extend([plain(""), plain(headline.quality())]);
        render(&lines, self.width, self.color)
    }

    /// Threads at a time, on average.
    fn at_a_time(&self, ns: u64) -> f64 {
        ns as f64 / self.profile.duration_ns().max(1) as f64
    }

    fn head(&self, headline: &Headline) -> Vec<Line> {
        let profile = self.profile;
        let shown = headline.processes.iter().take(3).map(|p| terminal_name(p));
        let mut ran = vec![false; profile.threads.len()];
        for row in profile.rows.iter().filter(|row| !row.state.is_idle()) {
            ran[row.thread] |= matches!(row.state, State::OnCpu | State::Guest | State::Runnable);
        }
        let n_never = ran.iter().filter(|ran| !**ran).count();
        let recorded = format!(
            "{}{}   {}   {}-CPU host   {}, {n_never} never ran",
            shown.collect::<Vec<_>>().join(", "),
            and_more(headline.processes.len().saturating_sub(3)),
            duration(profile.duration_ns()),
            profile.header.n_cpus,
            count(headline.n_threads as usize, "thread"),
        );
        let of = |states: &[State]| {
            let sum = states.iter().map(|s| headline.states[*s as usize]);
            self.at_a_time(sum.sum())
        };
        let mut shares = vec![format!("uses {:.2} cores", of(COLUMNS[0].1))];
        for (what, states) in [
            ("waits for a CPU: {} threads", COLUMNS[1].1),
            ("for locks {}", &[State::Lock][..]),
            ("for the disk {}", &[State::Disk]),
            ("for the network {}", &[State::Net]),
            ("throttled {}", &[State::Throttle]),
            ("asleep {}", &[State::Sleep]),
            ("for others {}", &[State::Blocked]),
        ] {
            if of(states) >= MIN_SHOWN {
                shares.push(what.replace("{}", &format!("{:.2}", of(states))));
            }
        }
        vec![plain(recorded), plain(shares.join(" | "))]
    }

    fn pools(&self) -> Vec<Line> {
        let profile = self.profile;
        let mut pools: IndexMap<&str, (usize, States)> = IndexMap::new();
        for thread in &profile.threads {
            if let Some(pool) = profile.pools.get(thread.pool) {
                pools.entry(&pool.name).or_default().0 += 1;
            }
        }
        for row in &profile.rows {
            if let Some(pool) = profile.pools.get(profile.threads[row.thread].pool) {
                let sum = &mut pools.entry(&pool.name).or_default().1[row.state as usize];
                *sum = sum.saturating_add(row.weight);
            }
        }
        let busy = |states: &States| -> u64 {
            let columns = COLUMNS.iter().flat_map(|(_, of)| of.iter());
            columns.map(|state| states[*state as usize]).sum()
        };
        pools.sort_by_cached_key(|name, (_, states)| (Reverse(busy(states)), *name));
        let most = pools
            .values()
            .next()
            .map_or(1, |(_, states)| busy(states).max(1));
        let head = COLUMNS.map(|(name, _)| format!(" {name:>8}")).concat();
        let head = format!("{:<NAME$} {:>5}{head}   (threads at a time)", "pool", "thr");
        let mut lines = vec![plain(""), plain(head)];
        let is_shown = |states: &States| self.at_a_time(busy(states)) >= MIN_SHOWN;
        let n_shown = pools
            .values()
            .take(MAX_POOLS)
            .filter(|(_, states)| is_shown(states))
            .count();
        for (name, (n_threads, states)) in pools.iter().take(n_shown) {
            let name: String = terminal_name(name).chars().take(NAME).collect();
            let mut line = plain(format!("{name:<NAME$} {n_threads:>5}"));
            let mut bar = plain("   ");
            let (mut sum, mut given) = (0, 0);
            for (_, of) in COLUMNS {
                let column: u64 = of.iter().map(|state| states[*state as usize]).sum();
                line.extend(plain(match self.at_a_time(column) {
                    n if n >= MIN_SHOWN => format!(" {n:>8.2}"),
                    _ => format!(" {:>8}", "-"),
                }));
                sum += column;
                let upto = (sum as f64 / most as f64 * BAR as f64).round() as usize;
                let cells = mark(of[0]).to_string().repeat(upto.saturating_sub(given));
                bar.push((Some(of[0]), cells));
                given = given.max(upto);
            }
            line.extend(bar);
            lines.push(line);
        }
        if pools.len() > n_shown {
            let rest = pools
                .values()
                .skip(n_shown)
                .map(|(_, states)| busy(states))
                .sum();
            let n = pools.len() - n_shown;
            lines.push(plain(format!(
                "{n} others: {:.2} at a time",
                self.at_a_time(rest)
            )));
        }
        lines
    }

    fn cpu(&self, on_cpu: u64) -> Vec<Line> {
        if on_cpu == 0 {
            return Vec::new();
        }
        let cores = self.at_a_time(on_cpu);
        let head = format!("WHERE CPU GOES (on-CPU, % of {cores:.2} cores)");
        let lines = self.categories.iter().take(MAX_LINES).map(|category| {
            let callers = category.callers.iter().take(3);
            let callers = callers.map(|(f, _)| short(&self.profile.functions[f.0 as usize].name));
            plain(format!(
                "{:>5.1} %  {:<16}  {}",
                percent(category.weight, on_cpu),
                category.name.as_deref().unwrap_or("other code"),
                terminal_name(&callers.collect::<Vec<_>>().join(", ")),
            ))
        });
        [plain(""), plain(head)].into_iter().chain(lines).collect()
    }

    fn waits(&self) -> Vec<Line> {
        let mut sites: IndexMap<(State, String), u64> = IndexMap::new();
        for row in self
            .profile
            .rows
            .iter()
            .filter(|row| row.state.is_waiting())
        {
            let site = self.place(row.stack, 2);
            let sum = sites.entry((row.state, site)).or_default();
            *sum = sum.saturating_add(row.weight);
        }
        if sites.is_empty() {
            return Vec::new();
        }
        sites.sort_by(|a, m, b, n| n.cmp(m).then_with(|| a.cmp(b)));
        let holders = self.holders();
        let lines = sites.iter().take(MAX_LINES).map(|((state, site), weight)| {
            let holder = holders.get(site).filter(|_| *state == State::Lock);
            vec![
                (None, format!("{:>9}  ", duration(*weight))),
                (Some(*state), format!("{:<8}", state.name())),
                (None, format!("  {:<48}  ", terminal_name(site))),
                (
                    None,
                    holder.map_or_else(String::new, |h| terminal_name(h).into_owned()),
                ),
            ]
        });
        let head = [plain(""), plain("WHERE THREADS WAIT (without idle time)")];
        head.into_iter().chain(lines).collect()
    }

    /// The innermost `n` functions of the program in a stack: `callee < caller`.
    fn place(&self, stack: Option<ProfileStackId>, n: usize) -> String {
        let stack = stack.and_then(|id| self.profile.stacks.get(id.0 as usize));
        let frames = stack.map_or(&[][..], |stack| &stack.frames);
        let functions = frames
            .iter()
            .rev()
            .map(|f| &self.profile.functions[f.0 as usize]);
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
                let text = format!("held in {place} [{}]", holder.state.name());
                let of_site = sums.entry(self.place(*stack, 2)).or_default();
                *of_site.entry(text).or_default() += weight;
            }
        }
        let most = sums.into_iter().filter_map(|(site, holders)| {
            let most = holders
                .into_iter()
                .max_by(|a, b| (a.1, &b.0).cmp(&(b.1, &a.0)))?;
            Some((site, most.0))
        });
        most.collect()
    }
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
