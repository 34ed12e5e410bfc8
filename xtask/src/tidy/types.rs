//! A type's name is the name of one type in all crates of the product, so that who reads it knows which.

use std::collections::BTreeMap;

/// Names that several types have: `NAME N`, a line each. It may only shrink.
const DOUBLES: &str = include_str!("doubles.txt");

/// Findings about the names of all types of the crates, those of a file `(file, name)` each.
pub fn check(types: &[(String, String)]) -> Vec<String> {
    compare(types, DOUBLES)
}

fn compare(types: &[(String, String)], doubles: &str) -> Vec<String> {
    let mut places: BTreeMap<&str, Vec<&str>> = BTreeMap::new();
    for (file, name) in types {
        places.entry(name).or_default().push(file);
    }
    let doubles = doubles.lines().filter_map(|line| {
        let (name, n) = line.rsplit_once(' ')?;
        Some((name, n.parse::<usize>().ok()?))
    });
    let doubles: BTreeMap<&str, usize> = doubles.collect();
    let mut findings = Vec::new();
    for (name, files) in &places {
        let permitted = doubles.get(name).copied().unwrap_or(1);
        if files.len() > permitted {
            let (n, files) = (files.len(), files.join(", "));
            findings.push(format!(
                "{n} types have the name `{name}`, {permitted} may: {files}"
            ));
        }
    }
    for (name, n) in doubles {
        let found = places.get(name).map_or(0, Vec::len);
        if found < n {
            findings.push(format!(
                "xtask/src/tidy/doubles.txt: {found} types have the name `{name}`, not {n}: lower it, or take the line away"
            ));
        }
    }
    findings
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Check that a new double, one more of an old one and one less are found, and nothing else.
    #[test]
    fn doubles() {
        let types = |names: &[&str]| -> Vec<(String, String)> {
            let named = names.iter().enumerate();
            named
                .map(|(at, name)| (format!("{at}.rs"), (*name).to_owned()))
                .collect()
        };
        let of = |names: &[&str]| compare(&types(names), "Part 2\n");
        assert!(of(&["Part", "Part", "Whole"]).is_empty());
        assert_eq!(
            of(&["Part", "Whole", "Part", "Part", "Whole"]),
            [
                "3 types have the name `Part`, 2 may: 0.rs, 2.rs, 3.rs",
                "2 types have the name `Whole`, 1 may: 1.rs, 4.rs",
            ]
        );
        assert_eq!(of(&["Part"]).len(), 1);
    }
}
