//! Folded stacks: `group;root;...;leaf WEIGHT`, one line a distinct stack, sorted bytewise.

use std::cmp::Reverse;
use std::collections::hash_map::Entry;
use std::collections::{BTreeMap, HashMap};
use std::io::{self, Write};
use std::iter;

use indexmap::IndexMap;
use wcprof_profile::model::Profile;
use wcprof_profile::{Group, Label, Trees};
use wcprof_text::folded_name;

use crate::group::group_name;

/// Bytes of the lines of one output.
const MAX_BYTES: usize = 4 << 30;

/// What lines may still take: a target chooses the depth of its stacks and the length of its names.
pub(crate) struct Room(usize);

impl Default for Room {
    fn default() -> Self {
        Self(MAX_BYTES)
    }
}

impl Room {
    /// Takes so many bytes. An error of kind [`io::ErrorKind::InvalidData`] says that there are no more.
    pub(crate) fn take(&mut self, bytes: usize) -> io::Result<()> {
        self.0 = self.0.checked_sub(bytes).ok_or_else(|| {
            io::Error::new(
                io::ErrorKind::InvalidData,
                "the stacks would take more than 4 GiB: choose fewer threads or less time",
            )
        })?;
        Ok(())
    }
}

/// Writes folded stacks with weights in whole microseconds of wall-clock time. Each thread's
/// weights are rounded by largest remainder, so that they add up to its time; lines of weight 0
/// are left out.
pub fn folded(profile: &Profile, trees: &Trees, out: &mut impl Write) -> io::Result<()> {
    for (line, weight) in lines(profile, trees, str::to_owned)? {
        writeln!(out, "{line} {weight}")?;
    }
    Ok(())
}

/// The lines (without their weights) and their weights in microseconds (of snapshots: threads), sorted bytewise. `rename` gives what
/// is shown of a function's name. They have as many bytes as [`Room`] gives.
pub(crate) fn lines(
    profile: &Profile,
    trees: &Trees,
    rename: impl Fn(&str) -> String,
) -> io::Result<Vec<(String, u64)>> {
    let mut room = Room::default();
    let namer = Namer {
        profile,
        min_percent: trees.min_percent,
        rename,
    };
    // Microseconds by line.
    let mut sums: IndexMap<String, u64> = IndexMap::new();
    for group in &trees.groups {
        let name = group_name(profile, group);
        let mut line_of_node: HashMap<usize, usize> = HashMap::new();
        // Nanoseconds by thread and line.
        let mut threads: BTreeMap<usize, HashMap<usize, u64>> = BTreeMap::new();
        for &(row, node) in &group.rows {
            let row = &profile.rows[row];
            let line = match line_of_node.entry(node) {
                Entry::Occupied(line) => *line.get(),
                Entry::Vacant(vacant) => {
                    let text = namer.line(group, name.as_deref(), node);
                    let len = text.len();
                    let entry = sums.entry(text);
                    let at = entry.index();
                    if let indexmap::map::Entry::Vacant(new) = entry {
                        room.take(len)?;
                        new.insert(0);
                    }
                    *vacant.insert(at)
                }
            };
            let lines = threads.entry(row.thread).or_default();
            let sum = lines.entry(line).or_default();
            *sum = sum.saturating_add(row.weight);
        }
        for lines in threads.into_values() {
            let mut lines: Vec<_> = lines.into_iter().collect();
            lines.sort_by(|(a, _), (b, _)| sums.get_index(*a).cmp(&sums.get_index(*b)));
            for (line, us) in to_microseconds(lines) {
                sums[line] = sums[line].saturating_add(us);
            }
        }
    }
    if profile.header.n_snapshots > 0 {
        // What a thread weighs in each.
        let snapshots = u64::from(profile.header.n_snapshots);
        let of_thread = (profile.duration_ns() / snapshots / 1000).max(1);
        sums.values_mut()
            .for_each(|us| *us = (*us + of_thread / 2) / of_thread);
    }
    sums.retain(|_, us| *us > 0);
    sums.sort_unstable_keys();
    Ok(sums.into_iter().collect())
}

/// Rounds nanoseconds to microseconds by largest remainder: the sum is the rounded sum. Of equal
/// remainders the first gets more.
fn to_microseconds(lines: Vec<(usize, u64)>) -> Vec<(usize, u64)> {
    let sum = |of: fn(u64) -> u64| {
        let parts = lines.iter().map(|(_, ns)| of(*ns));
        parts.fold(0, u64::saturating_add)
    };
    let (total, floors) = (sum(|ns| ns), sum(|ns| ns / 1000));
    let target = total / 1000 + u64::from(total % 1000 >= 500);
    let missing = target.saturating_sub(floors) as usize;
    let mut order: Vec<usize> = (0..lines.len()).collect();
    order.sort_by_key(|&i| Reverse(lines[i].1 % 1000));
    let mut rounded: Vec<_> = lines.iter().map(|&(line, ns)| (line, ns / 1000)).collect();
    for &i in order.iter().take(missing) {
        rounded[i].1 += 1;
    }
    rounded
}

/// Names the frames of a line.
pub(crate) struct Namer<'p, F> {
    pub(crate) profile: &'p Profile,
    pub(crate) min_percent: f64,
    pub(crate) rename: F,
}

impl<F: Fn(&str) -> String> Namer<'_, F> {
    /// The frame of a node.
    pub(crate) fn frame(&self, label: &Label) -> String {
        let text = label.text(self.profile, self.min_percent);
        match label.function(self.profile) {
            Some(function) if function.source.is_none() => {
                folded_name(&(self.rename)(&text)).into()
            }
            _ => folded_name(&text).into(),
        }
    }

    fn line(&self, group: &Group, name: Option<&str>, node: usize) -> String {
        let nodes = iter::successors(Some(&group.nodes[node]), |n| Some(&group.nodes[n.parent?]));
        let mut names: Vec<String> = nodes.map(|node| self.frame(&node.label)).collect();
        names.extend(
            name.filter(|name| !name.is_empty())
                .map(|name| folded_name(name).into()),
        );
        names.reverse();
        names.join(";")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Check that lines end where they would take too much memory, and that the user is told what to do.
    #[test]
    fn room() {
        let mut room = Room::default();
        for _ in 0..4 {
            room.take(1 << 30).unwrap();
        }
        let error = room.take(1).unwrap_err();
        assert_eq!(error.kind(), io::ErrorKind::InvalidData);
        assert!(error.to_string().contains("choose fewer threads"));
    }

    /// Check that rounding keeps the sum and prefers large remainders.
    #[test]
    fn largest_remainder() {
        let rounded = to_microseconds(vec![(0, 1_400), (1, 1_700), (2, 900)]);
        assert_eq!(rounded, [(0, 1), (1, 2), (2, 1)]);
        assert_eq!(to_microseconds(vec![(0, 300), (1, 300)]), [(0, 1), (1, 0)]);
        assert_eq!(to_microseconds(vec![(0, 100)]), [(0, 0)]);
    }
}
