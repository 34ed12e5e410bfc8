//! The first screen of the terminal to the first part of a page: what to do, where CPU time goes, where threads wait, pools.

use serde::Serialize;

use super::nodes::micros;
use super::strings::Strings;
use crate::figures::{COLUMNS, at_a_time, busiest_pools, callers, kinds_of_work, wait_sites};
use crate::headline::Headline;
use crate::overview::Overview;

/// Things to do.
const MAX_TO_DO: usize = 40;
/// Kinds of work, places where threads wait, and pools.
const MAX_LINES: usize = 8;

/// What the first screen says. Names are not escaped.
#[derive(Clone, PartialEq, Debug, Serialize)]
pub struct FirstScreen {
    /// As the terminal shows it, for readers without scripts.
    #[serde(skip)]
    pub(super) text: String,
    /// That threads wait for a CPU.
    cpu_wait: Option<String>,
    /// What threads do at a time, who else uses the CPUs, operations and their latency: lines.
    head: Vec<String>,
    to_do: Vec<Item>,
    /// What else there is to do.
    more_to_do: Option<String>,
    /// Percent of the CPU time, kind of work, the functions that call it.
    kinds: Vec<(f64, String, String)>,
    /// How many other kinds there are, and their share, percent.
    other_kinds: (usize, f64),
    waits: Vec<Wait>,
    n_more_waits: usize,
    /// Columns of pools, with a state that has their color.
    columns: Vec<(&'static str, usize)>,
    /// Name, threads, and threads on average by column.
    pools: Vec<(String, usize, Vec<f64>)>,
    /// How many other pools there are, and threads on average in all of them.
    other_pools: (usize, f64),
    quality: String,
}

/// A thing to do.
#[derive(Clone, PartialEq, Debug, Serialize)]
struct Item {
    /// What stands above it.
    heading: Option<&'static str>,
    gain: String,
    why: String,
    action: String,
}

/// A place where threads wait.
#[derive(Clone, PartialEq, Debug, Serialize)]
struct Wait {
    us: u64,
    /// Number of the state.
    state: usize,
    text: String,
    place: String,
    holder: String,
}

impl FirstScreen {
    /// Of a profile with full names and without kernel functions, which is what rules are written for.
    pub fn new(screen: &Overview<'_>) -> Self {
        let (profile, answers) = (screen.profile, screen.answers);
        let kinds = kinds_of_work(&answers.categories, MAX_LINES);
        let rest = 100.0 - kinds.iter().map(|kind| kind.percent).sum::<f64>();
        let n_kinds = answers.categories.iter().filter(|c| c.weight > 0).count();
        let n_others = n_kinds.saturating_sub(kinds.len());
        let kinds = kinds.iter().map(|kind| {
            let asked_by = callers(profile, kind.category);
            (rounded(kind.percent), kind.name.to_owned(), asked_by)
        });
        let sites = wait_sites(profile);
        let waits = sites.iter().take(MAX_LINES).map(|site| Wait {
            us: micros(site.weight),
            state: site.state as usize,
            text: site.state_text(),
            place: site.place.clone(),
            holder: site.holder.clone().unwrap_or_default(),
        });
        let to_do = answers.to_do.items.iter().zip(answers.to_do_headings());
        let to_do = to_do.take(MAX_TO_DO).map(|(item, heading)| Item {
            heading,
            gain: item.gain.text(),
            why: item.why.clone(),
            action: item.action.clone(),
        });
        let (pools, n_more, more_at_a_time) = busiest_pools(profile, MAX_LINES);
        let pools = pools.iter().map(|pool| {
            let columns = COLUMNS.map(|(_, of)| rounded(at_a_time(profile, pool.total(of))));
            (pool.name.to_owned(), pool.n_threads, columns.to_vec())
        });
        let in_terminal = answers.cpu_wait_text("->");
        let head = screen.head_texts().into_iter().skip(1);
        Self {
            text: screen.text(),
            head: head
                .filter(|line| Some(line) != in_terminal.as_ref())
                .collect(),
            cpu_wait: answers.cpu_wait_text("\u{2192}"),
            to_do: to_do.collect(),
            more_to_do: answers.more_to_do(MAX_TO_DO),
            kinds: kinds.collect(),
            other_kinds: (n_others, rounded(rest.max(0.0))),
            waits: waits.collect(),
            n_more_waits: sites.len().saturating_sub(MAX_LINES),
            columns: COLUMNS.map(|(name, of)| (name, of[0] as usize)).to_vec(),
            pools: pools.collect(),
            other_pools: (n_more, rounded(more_at_a_time)),
            quality: Headline::new(profile).quality(),
        }
    }

    /// With texts as a page may hold them.
    pub(super) fn cleaned(&self, strings: &mut Strings) -> Self {
        let mut clean = self.clone();
        let pools = clean.pools.iter_mut().map(|(name, ..)| name);
        let kinds = clean.kinds.iter_mut().flat_map(|(_, name, by)| [name, by]);
        let items = clean.to_do.iter_mut();
        let items = items.flat_map(|item| [&mut item.why, &mut item.action]);
        let waits = clean.waits.iter_mut();
        let waits = waits.flat_map(|wait| [&mut wait.place, &mut wait.holder]);
        let texts = clean.head.iter_mut().chain(pools).chain(kinds);
        let texts = texts.chain(items).chain(waits).chain(&mut clean.cpu_wait);
        let texts = texts.chain([&mut clean.quality]);
        for text in texts {
            *text = strings.clean(text);
        }
        clean
    }
}

/// To six digits behind the point: two are shown, and whether there is anything.
fn rounded(number: f64) -> f64 {
    (number * 1e6).round() / 1e6
}
