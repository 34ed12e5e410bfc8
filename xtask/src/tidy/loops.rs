//! No loops among the files of a crate: a file is above what it uses.
//!
//! A file uses another when it names one of its items by path (`crate::`, `super::`, `self::` or a child
//! module). An item that a module re-exports counts as used from where it is defined. Methods are not seen:
//! only a compiler knows whose they are.

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;

use super::code::Code;

/// Which modules use which, by their paths below the crate's root, as in `a::b`.
type Edges = BTreeMap<String, BTreeSet<String>>;

/// How many re-exports of re-exports are followed.
const MAX_REEXPORTS: usize = 8;

/// One text for each set of files of a crate of which each uses, directly or not, each other.
///
/// `files` are those of one crate, each with its path below `src/`.
pub fn check(files: &[(&Path, Code)]) -> Vec<String> {
    let files = files
        .iter()
        .map(|(path, code)| (module_of(path), (*path, code)));
    let files: BTreeMap<String, (&Path, &Code)> = files.collect();
    let modules: BTreeSet<&str> = files.keys().map(String::as_str).collect();
    let uses = files
        .iter()
        .map(|(module, (_, code))| (module.as_str(), uses(module, code, &modules)));
    let uses: BTreeMap<&str, Uses> = uses.collect();
    let edges = uses.iter().map(|(module, found)| {
        let targets = found.used.iter().filter_map(|path| resolve(path, &uses));
        (
            module.to_string(),
            targets.filter(|target| target != module).collect(),
        )
    });
    let groups = loops(edges.collect()).into_iter().map(|group| {
        let group = group
            .iter()
            .map(|module| files[module].0.display().to_string());
        group.collect::<Vec<_>>().join(", ")
    });
    groups
        .map(|group| format!("these files use each other: {group}"))
        .collect()
}

/// Sets of more than one module that all reach each other.
fn loops(mut reach: Edges) -> BTreeSet<BTreeSet<String>> {
    loop {
        let mut further = reach.clone();
        for reached in further.values_mut() {
            let next: Vec<String> = reached.iter().flat_map(|m| reach[m].clone()).collect();
            reached.extend(next);
        }
        if further == reach {
            break;
        }
        reach = further;
    }
    let groups = reach.iter().map(|(from, reached)| {
        let back = reached.iter().filter(|to| reach[*to].contains(from));
        back.cloned().collect::<BTreeSet<String>>()
    });
    groups.filter(|group| group.len() > 1).collect()
}

fn module_of(path: &Path) -> String {
    let path = path.with_extension("").to_string_lossy().replace('/', "::");
    let path = if ["lib", "main"].contains(&&*path) {
        ""
    } else {
        &path
    };
    path.trim_end_matches("::mod").to_owned()
}

/// Paths below the crate's root that a module names, and by which name it re-exports which.
struct Uses {
    used: Vec<String>,
    reexports: BTreeMap<String, String>,
}

/// An import of a module is no use of it: a path through the imported name is.
fn uses(module: &str, code: &Code, modules: &BTreeSet<&str>) -> Uses {
    let mut imports = BTreeMap::new();
    let mut reexports = BTreeMap::new();
    for (path, name, is_public) in &code.imports {
        if let Some(path) = absolute(module, path, modules) {
            if *is_public {
                reexports.insert(name.clone(), path.clone());
            }
            imports.insert(name.as_str(), path);
        }
    }
    let named = code.paths.iter().filter_map(|path| {
        let (first, rest) = path.split_once("::")?;
        let imported = imports.get(first).map(|start| join(start, rest));
        imported.or_else(|| absolute(module, path, modules))
    });
    let items = imports
        .values()
        .filter(|path| !modules.contains(path.as_str()));
    let used = named.chain(items.cloned()).collect();
    Uses { used, reexports }
}

/// A path that a module names, from the crate's root, if it is one of this crate.
fn absolute(module: &str, path: &str, modules: &BTreeSet<&str>) -> Option<String> {
    let (first, rest) = path.split_once("::").unwrap_or((path, ""));
    match first {
        "crate" => Some(rest.to_owned()),
        "self" if rest.starts_with("super") => absolute(module, rest, modules),
        "self" => Some(join(module, rest)),
        "super" => {
            let (above, _) = module.rsplit_once("::").unwrap_or(("", module));
            absolute(above, &format!("self::{rest}"), modules)
        }
        _ => modules
            .contains(&*join(module, first))
            .then(|| join(module, path)),
    }
}

fn join(before: &str, after: &str) -> String {
    format!("{before}::{after}").trim_matches(':').to_owned()
}

/// The module that defines what `path` names.
fn resolve(path: &str, uses: &BTreeMap<&str, Uses>) -> Option<String> {
    let mut path = path.to_owned();
    for _ in 0..MAX_REEXPORTS {
        let ends = path.match_indices("::").map(|(end, _)| end);
        let mut ends: Vec<usize> = [0].into_iter().chain(ends).chain([path.len()]).collect();
        ends.retain(|&end| uses.contains_key(&path[..end]));
        let (module, rest) = path.split_at(*ends.last()?);
        let (item, rest) = rest
            .trim_start_matches(':')
            .split_once("::")
            .unwrap_or((rest.trim_start_matches(':'), ""));
        match uses[module].reexports.get(item) {
            Some(target) => path = join(target, rest),
            None => return Some(module.to_owned()),
        }
    }
    None
}

#[cfg(test)]
mod tests {
    use super::*;

    fn findings(files: &[(&str, &str)]) -> Vec<String> {
        let files: Vec<_> = files
            .iter()
            .map(|(path, code)| (Path::new(*path), Code::parse(code)))
            .collect();
        check(&files)
    }

    /// Check that a parent may use its children, and a re-export is used from where it is defined.
    #[test]
    fn no_loops() {
        let parent = "mod b;\nmod c;\npub use b::B;\nfn f() {\n    c::g();\n}";
        let child = "use super::B;\npub fn g() {}";
        let files = [
            ("a/mod.rs", parent),
            ("a/b.rs", "pub struct B;"),
            ("a/c.rs", child),
        ];
        assert_eq!(findings(&files), Vec::<String>::new());
        let test = "#[cfg(test)]\nmod tests {\n    use super::super::*;\n}";
        assert!(findings(&[("lib.rs", "mod a;\nuse a::A;"), ("a.rs", test)]).is_empty());
    }

    /// Check that a child that uses what its parent defines is found, also over a third file.
    #[test]
    fn found() {
        let parent = "mod b;\nuse b::B;\npub struct A;";
        let files = [("lib.rs", parent), ("b.rs", "pub struct B(crate::A);")];
        assert_eq!(
            findings(&files),
            ["these files use each other: lib.rs, b.rs"]
        );
        let files = [
            ("a.rs", "fn f() { crate::b::f() }"),
            ("b.rs", "use super::c;\nfn f() { c::g() }"),
            ("c.rs", "use crate::a::f;"),
        ];
        assert_eq!(findings(&files).len(), 1);
    }
}
