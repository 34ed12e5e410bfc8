//! Where threads wait, pool by pool: the place, its state, and what decided the state.

use std::cmp::Reverse;
use std::io::{self, Write};

use indexmap::IndexMap;
use wcprof_profile::model::{Profile, Reason, State};
use wcprof_profile::{View, for_each_shown, waits_in};
use wcprof_text::{count, cut, percent, terminal_name};

use crate::figures::amount;
use crate::text::TextOptions;

/// Characters of a function's name that are shown.
const MAX_NAME: usize = 48;

/// Waits at one place: nanoseconds by function, state and reason.
type Places<'p> = IndexMap<(&'p str, State, &'p Reason), u64>;

/// Writes the waits of `view` by pool, those that wait most outside idle places first. The place is
/// the innermost function of the program itself. Those below `min_percent` of the pool's are counted.
pub fn waits(
    profile: &Profile,
    view: &View,
    options: &TextOptions,
    out: &mut impl Write,
) -> io::Result<()> {
    let mut pools: IndexMap<&str, Places<'_>> = IndexMap::new();
    for_each_shown(profile, view, |row, frames| {
        if !row.state.is_waiting() && !row.state.is_idle() {
            return;
        }
        let names = frames
            .iter()
            .rev()
            .map(|f| &profile.functions[f.0 as usize]);
        let place = waits_in(names).map_or("[no stack]", |f| &f.name);
        let pool = profile.pools.get(profile.threads[row.thread].pool);
        let places = pools.entry(pool.map_or("", |pool| &pool.name)).or_default();
        let sum = places.entry((place, row.state, &row.reason)).or_default();
        *sum = sum.saturating_add(row.weight);
    });
    let waiting = |places: &Places<'_>| -> u64 {
        let waiting = places
            .iter()
            .filter(|((_, state, _), _)| state.is_waiting());
        waiting.fold(0, |sum, (_, weight)| sum.saturating_add(*weight))
    };
    pools.sort_by_cached_key(|name, places| (Reverse(waiting(places)), *name));
    for (at, (name, mut places)) in pools.into_iter().enumerate() {
        places.sort_by_key(|key, weight| (Reverse(key.1.is_waiting()), Reverse(*weight), key.0));
        let whole = places.values().copied().fold(0, u64::saturating_add);
        let head = format!("{}: waits {}", terminal_name(name), amount(profile, whole));
        let gap = if at > 0 { "\n" } else { "" };
        writeln!(out, "{gap}{}", cut(&head, options.width))?;
        let mut n_below = 0;
        for ((place, state, reason), weight) in places {
            if percent(weight, whole) < view.min_percent {
                n_below += 1;
                continue;
            }
            let place: String = terminal_name(place).chars().take(MAX_NAME).collect();
            let line = format!(
                "{:>9}  {:<13}  {place:<MAX_NAME$}  {}",
                amount(profile, weight),
                state.name(),
                terminal_name(&reason.to_string()),
            );
            writeln!(out, "{}", cut(&line, options.width))?;
        }
        if n_below > 0 {
            writeln!(
                out,
                "and {} below {} %",
                count(n_below, "place"),
                view.min_percent
            )?;
        }
    }
    Ok(())
}
