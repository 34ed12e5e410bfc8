//! Folded stacks: `group;root;...;leaf WEIGHT`, one line a distinct stack, sorted bytewise.

use std::collections::{BTreeMap, HashMap};
use std::io::{self, Write};

use wcprof_profile::model::Profile;
use wcprof_profile::{Group, Trees};

use crate::escape::folded_name;
use crate::group::group_name;

/// Writes folded stacks with weights in whole microseconds of wall-clock time. Each thread's
/// weights are rounded by largest remainder, so that they add up to its time; lines of weight 0
/// are left out.
pub fn folded(profile: &Profile, trees: &Trees, out: &mut impl Write) -> io::Result<()> {
    for (line, weight) in lines(profile, trees) {
        writeln!(out, "{line} {weight}")?;
    }
    Ok(())
}

/// The lines (without their weights) and their weights in microseconds, sorted bytewise.
pub(crate) fn lines(profile: &Profile, trees: &Trees) -> Vec<(String, u64)> {
    let mut ids: HashMap<String, usize> = HashMap::new();
    let mut sums: Vec<u64> = Vec::new();
    let mut texts: Vec<String> = Vec::new();
    for group in &trees.groups {
        let name = group_name(profile, group);
        let mut line_of_node: HashMap<usize, usize> = HashMap::new();
        // Nanoseconds by thread and line.
        let mut threads: BTreeMap<usize, HashMap<usize, u64>> = BTreeMap::new();
        for &(row, node) in &group.rows {
            let Some(row) = profile.rows.get(row) else {
                continue;
            };
            let line = *line_of_node.entry(node).or_insert_with(|| {
                let text = line(profile, trees, group, name.as_deref(), node);
                *ids.entry(text).or_insert_with_key(|text| {
                    texts.push(text.clone());
                    sums.push(0);
                    sums.len() - 1
                })
            });
            let sum = threads
                .entry(row.thread)
                .or_default()
                .entry(line)
                .or_default();
            *sum = sum.saturating_add(row.weight);
        }
        for lines in threads.into_values() {
            let mut lines: Vec<_> = lines.into_iter().collect();
            lines.sort_by(|(a, _), (b, _)| texts[*a].cmp(&texts[*b]));
            for (line, us) in to_microseconds(lines) {
                sums[line] = sums[line].saturating_add(us);
            }
        }
    }
    let mut lines: Vec<_> = ids
        .into_iter()
        .map(|(text, id)| (text, sums[id]))
        .filter(|(_, us)| *us > 0)
        .collect();
    lines.sort();
    lines
}

/// Rounds nanoseconds to microseconds by largest remainder: the sum is the rounded sum. Of equal
/// remainders the first gets more.
fn to_microseconds(lines: Vec<(usize, u64)>) -> Vec<(usize, u64)> {
    let total = lines
        .iter()
        .fold(0_u64, |sum, (_, ns)| sum.saturating_add(*ns));
    let floors = lines
        .iter()
        .fold(0_u64, |sum, (_, ns)| sum.saturating_add(ns / 1000));
    let target = total / 1000 + u64::from(total % 1000 >= 500);
    let missing = target.saturating_sub(floors) as usize;
    let mut order: Vec<usize> = (0..lines.len()).collect();
    order.sort_by_key(|&i| std::cmp::Reverse(lines[i].1 % 1000));
    let mut rounded: Vec<_> = lines.iter().map(|&(line, ns)| (line, ns / 1000)).collect();
    for &i in order.iter().take(missing) {
        rounded[i].1 += 1;
    }
    rounded
}

fn line(
    profile: &Profile,
    trees: &Trees,
    group: &Group,
    name: Option<&str>,
    node: usize,
) -> String {
    let mut labels = Vec::new();
    let mut next = Some(node);
    while let Some(node) = next.and_then(|at| group.nodes.get(at)) {
        labels.push(node.label);
        next = node.parent;
    }
    let mut text = String::new();
    if let Some(name) = name {
        text.push_str(&folded_name(name));
    }
    for label in labels.iter().rev() {
        if !text.is_empty() {
            text.push(';');
        }
        text.push_str(&folded_name(&label.text(profile, trees.min_percent)));
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Check that rounding keeps the sum and prefers large remainders.
    #[test]
    fn largest_remainder() {
        let rounded = to_microseconds(vec![(0, 1_400), (1, 1_700), (2, 900)]);
        assert_eq!(rounded, [(0, 1), (1, 2), (2, 1)]);
        assert_eq!(to_microseconds(vec![(0, 300), (1, 300)]), [(0, 1), (1, 0)]);
        assert_eq!(to_microseconds(vec![(0, 100)]), [(0, 0)]);
    }
}
