//! Inline functions of Rust whose debug information has no namespaces (`debuginfo=line-tables-only`), to their paths by the files
//! that they are in.

use crate::short::bare;

/// Components of a path: more than any crate nests modules. Names of files are hostile.
const MAX_COMPONENTS: usize = 12;

/// `std::sync::poison::mutex::lock` of `lock` in `/rustc/HASH/library/std/src/sync/poison/mutex.rs`: modules of Rust are named as
/// their files, and the folder of `src` as the crate, in cargo's registry with a version. `None` for a name that has a path, and
/// for files of other languages.
pub(crate) fn with_path(name: &str, file: &str) -> Option<String> {
    let path = file.strip_suffix(".rs")?;
    if name.starts_with('<') || bare(name).contains("::") {
        return None;
    }
    let (package, modules) = match path.rsplit_once("/src/") {
        Some((folder, modules)) => (folder.rsplit('/').next(), modules),
        None => match path.strip_prefix("src/") {
            Some(modules) => (None, modules),
            None => (None, path.rsplit('/').next()?),
        },
    };
    let is_module = |name: &&str| !["mod", "lib", "main"].contains(name);
    let modules = modules.split('/').filter(is_module);
    let parts = package.map(crate_name).into_iter().chain(modules);
    let parts: Vec<String> = parts.map(|part| part.replace('-', "_")).collect();
    let is_word = |part: &String| {
        !part.is_empty() && part.bytes().all(|b| b.is_ascii_alphanumeric() || b == b'_')
    };
    let is_path = (1..=MAX_COMPONENTS).contains(&parts.len()) && parts.iter().all(is_word);
    is_path.then(|| format!("{}::{name}", parts.join("::")))
}

/// `regex-automata` of `regex-automata-0.4.14`.
fn crate_name(folder: &str) -> &str {
    match folder.rsplit_once('-') {
        Some((name, version)) if version.starts_with(|c: char| c.is_ascii_digit()) => name,
        _ => folder,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Check files of the standard library, of cargo's registry and of a program, and that nothing else gets a path.
    #[test]
    fn paths() {
        for (name, file, expected) in [
            (
                "lock<u8>",
                "/rustc/59807616e1fa/library/std/src/sync/poison/mutex.rs",
                Some("std::sync::poison::mutex::lock<u8>"),
            ),
            (
                "find",
                "/root/.cargo/registry/src/index.crates.io-1949/regex-automata-0.4.14/src/meta/regex.rs",
                Some("regex_automata::meta::regex::find"),
            ),
            ("run", "/home/x/app/src/main.rs", Some("app::run")),
            ("run", "src/work/mod.rs", Some("work::run")),
            ("step", "r.rs", Some("r::step")),
            ("{closure#0}", "/tmp/r.rs", Some("r::{closure#0}")),
            ("run", "src/main.rs", None),
            ("app::run", "src/work.rs", None),
            ("<app::A as app::B>::run", "src/work.rs", None),
            ("run", "src/a b/work.rs", None),
            ("run", "/x/work.cc", None),
        ] {
            assert_eq!(
                with_path(name, file).as_deref(),
                expected,
                "{name} in {file}"
            );
        }
        assert_eq!(
            with_path("f", &format!("{}.rs", "/a".repeat(20))),
            Some("a::f".to_owned())
        );
        assert_eq!(with_path("f", &format!("src{}.rs", "/a".repeat(20))), None);
    }
}
