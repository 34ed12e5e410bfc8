//! License expressions (SPDX) to whether their code may be linked.

const PERMITTED: &[&str] = &[
    "0BSD",
    "Apache-2.0",
    "BSD-2-Clause",
    "BSD-3-Clause",
    "BSL-1.0",
    "CC0-1.0",
    "ISC",
    "MIT",
    "MIT-0",
    "Unicode-3.0",
    "Unicode-DFS-2016",
    "Unlicense",
    "Zlib",
];

/// Whether the license of this crate lets wcprof be under MIT or Apache-2.0: each part that `AND` joins has a
/// permitted alternative. Stricter than SPDX where `AND` is inside an alternative.
pub fn is_permitted(name: &str, license: &str) -> bool {
    // Also the form before SPDX expressions: `MIT/Apache-2.0`.
    let license = license.replace(['(', ')'], "").replace('/', " OR ");
    license.split(" AND ").all(|part| {
        part.split(" OR ").any(|one| {
            // An exception (`WITH`) only permits more.
            let one = one.split(" WITH ").next().unwrap_or_default();
            // Weak copyleft, file by file: the flame graph writer is used unchanged.
            PERMITTED.contains(&one) || (name, one) == ("inferno", "CDDL-1.0")
        })
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Check expressions of each form.
    #[test]
    fn expressions() {
        for (license, permitted) in [
            ("MIT", true),
            ("MIT OR Apache-2.0", true),
            ("MIT/Apache-2.0", true),
            ("Apache-2.0 WITH LLVM-exception OR MIT", true),
            ("(MIT OR Apache-2.0) AND Unicode-3.0", true),
            ("LGPL-2.1-only OR BSD-2-Clause", true),
            ("MIT AND GPL-2.0-only", false),
            ("(MIT OR Apache-2.0) AND GPL-2.0-only", false),
            ("GPL-3.0-only", false),
            ("", false),
            ("none stated", false),
        ] {
            assert_eq!(is_permitted("any", license), permitted, "{license}");
        }
    }

    /// Check that the license of one crate does not extend to others.
    #[test]
    fn exceptions_by_name() {
        assert!(is_permitted("inferno", "CDDL-1.0"));
        assert!(!is_permitted("other", "CDDL-1.0"));
    }
}
