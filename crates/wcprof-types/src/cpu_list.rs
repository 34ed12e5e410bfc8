//! CPU lists of the kernel (`0-3,8`) to sets, and back.

use std::collections::BTreeSet;

/// Numbers beyond this are no CPUs.
const MAX_CPU: u32 = 1 << 14;

/// The CPUs of a list; what is no number is left out.
pub fn parse_cpus(list: &str) -> BTreeSet<u32> {
    let ranges = list.trim().split(',').filter_map(|part| {
        let (first, last) = part.split_once('-').unwrap_or((part, part));
        let last: u32 = last.trim().parse().ok()?;
        Some((first.trim().parse().ok()?, last.min(MAX_CPU)))
    });
    let mut ranges: Vec<(u32, u32)> = ranges.collect();
    ranges.sort_unstable();
    // A number that many ranges have is looked at once.
    let (mut cpus, mut next) = (BTreeSet::new(), 0);
    for (first, last) in ranges {
        cpus.extend(first.max(next)..=last);
        next = next.max(last + 1);
    }
    cpus
}

/// The list of a set of CPUs or NUMA nodes.
pub fn cpu_list(cpus: &BTreeSet<u32>) -> String {
    let mut ranges: Vec<(u32, u32)> = Vec::new();
    for &cpu in cpus {
        match ranges.last_mut() {
            Some((_, last)) if *last + 1 == cpu => *last = cpu,
            _ => ranges.push((cpu, cpu)),
        }
    }
    let text = |(first, last): &(u32, u32)| match first == last {
        true => first.to_string(),
        false => format!("{first}-{last}"),
    };
    ranges.iter().map(text).collect::<Vec<_>>().join(",")
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Check lists there and back, and text that is none.
    #[test]
    fn lists() {
        assert_eq!(cpu_list(&parse_cpus("0-3,8, 10-11\n")), "0-3,8,10-11");
        assert_eq!(cpu_list(&parse_cpus("")), "");
        assert!(parse_cpus("x,3-1,-,0x4").is_empty());
        assert_eq!(cpu_list(&parse_cpus("4-6,9,0-5,5-6,2,9-8")), "0-6,9");
        assert_eq!(parse_cpus("0-4294967295").len(), 1 + MAX_CPU as usize);
    }
}
