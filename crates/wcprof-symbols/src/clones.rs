//! Names of clones of a function to the name of that function.

/// Clones of a function by a compiler, parts of it (`.__part` and `.warm` of LLVM's and BOLT's layout of blocks), what
/// makes a local name unique (`.__uniq`, clang -funique-internal-linkage-names), and what Go's linker appends to the one
/// that assembler calls; a cold part is no clone and stays visible.
const CLONES: [&str; 10] = [
    ".isra",
    ".constprop",
    ".part",
    ".lto_priv",
    ".llvm",
    ".localalias",
    ".abi0",
    ".__part",
    ".__uniq",
    ".warm",
];

/// The name of the function that a clone was made from: without what compilers append to clones,
/// in a C name (`parse.constprop.0.isra.1`) or behind a demangled one (` [.isra.0]`).
pub fn without_clone_suffix(name: &str) -> &str {
    let mut rest = name;
    loop {
        let (body, open) = match rest.strip_suffix(']').and_then(|r| r.rsplit_once(" [")) {
            Some((body, suffix)) => (body, Some(suffix)),
            None => (rest, None),
        };
        let shorter = match open {
            Some(suffix) => is_clone(suffix).then_some(body),
            None => clone_at(rest).and_then(|at| rest.get(..at)),
        };
        match shorter {
            Some(shorter) if !shorter.is_empty() => rest = shorter,
            _ => return rest,
        }
    }
}

/// Where the last suffix of a C name that marks a clone begins.
fn clone_at(name: &str) -> Option<usize> {
    let digits = name.trim_end_matches(|c: char| c.is_ascii_digit());
    let body = digits.strip_suffix('.').unwrap_or(name);
    let at = body.rfind('.')?;
    is_clone(name.get(at..)?).then_some(at)
}

/// Whether a suffix is nothing but marks of clones: `.isra.0`, `.constprop.0.isra.1`.
fn is_clone(suffix: &str) -> bool {
    let mut rest = suffix;
    while let Some(mark) = CLONES.iter().find(|mark| rest.starts_with(**mark)) {
        rest = rest.get(mark.len()..).unwrap_or_default();
        if let Some(number) = rest.strip_prefix('.') {
            let after = number.trim_start_matches(|c: char| c.is_ascii_digit());
            if after.len() < number.len() {
                rest = after;
            }
        }
    }
    rest.is_empty() && !suffix.is_empty()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Check that clones become their function, and that cold parts stay apart.
    #[test]
    fn clones() {
        for (full, short) in [
            ("parse.isra.0", "parse"),
            ("parse.constprop.0.isra.12", "parse"),
            ("parse.part.3", "parse"),
            ("runtime.goexit.abi0", "runtime.goexit"),
            ("parse.__part.1", "parse"),
            ("parse.__uniq.165116918166811233.llvm.7", "parse"),
            ("shop::f(int) [.__uniq.165116918166811233]", "shop::f(int)"),
            ("parse.warm", "parse"),
            ("parse.warm.0", "parse"),
            ("shop::f(int) [.isra.0]", "shop::f(int)"),
            ("shop::f(int) [.constprop.0.isra.1]", "shop::f(int)"),
            ("shop::f(int) [.lto_priv.0] [.isra.0]", "shop::f(int)"),
            ("shop::f(int) [.cold]", "shop::f(int) [.cold]"),
            ("f [.cold]", "f [.cold]"),
            ("file.c", "file.c"),
            ("é.part.0", "é"),
            ("a]", "a]"),
            (" [.isra.0]", " [.isra.0]"),
            ("crc32.0", "crc32.0"),
            (".part.0", ".part.0"),
        ] {
            assert_eq!(without_clone_suffix(full), short, "{full}");
        }
    }
}
