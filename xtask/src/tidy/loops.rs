//! No loops among the files of a crate: a file is above what it uses.
//!
//! A file uses another when it names one of its items by path (`crate::`, `super::`, `self::` or a child
//! module). An item that a module re-exports counts as used from where it is defined. Methods are not seen:
//! only a compiler knows whose they are.

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;

use super::code::Code;

/// Path of a module below its crate's root, outermost first.
type Module = Vec<String>;

/// Which modules use which.
type Edges = BTreeMap<Module, BTreeSet<Module>>;

/// The file of each module.
type Files<'a> = BTreeMap<Module, &'a Path>;

/// How many re-exports of re-exports are followed.
const MAX_REEXPORTS: usize = 8;

/// One text for each set of files of a crate of which each uses, directly or not, each other.
///
/// `files` are those of one crate, each with its path below `src/`.
pub fn check(files: &[(&Path, Code)]) -> Vec<String> {
    let names: Files = files
        .iter()
        .map(|(path, _)| (module_of(path), *path))
        .collect();
    let uses: BTreeMap<Module, Uses> = files
        .iter()
        .map(|(path, code)| (module_of(path), Uses::new(module_of(path), code, &names)))
        .collect();
    let edges = uses.iter().map(|(module, found)| {
        let targets = found.paths(&names).filter_map(|path| resolve(&path, &uses));
        (
            module.clone(),
            targets.filter(|target| target != module).collect(),
        )
    });
    let groups = loops(edges.collect()).into_iter();
    groups
        .map(|group| {
            let group = group
                .iter()
                .map(|module| names[module].display().to_string());
            let group: Vec<String> = group.collect();
            format!("these files use each other: {}", group.join(", "))
        })
        .collect()
}

/// Sets of more than one module that all reach each other.
fn loops(mut reach: Edges) -> BTreeSet<BTreeSet<Module>> {
    loop {
        let mut further = reach.clone();
        for reached in further.values_mut() {
            let next: Vec<Module> = reached.iter().flat_map(|m| reach[m].clone()).collect();
            reached.extend(next);
        }
        if further == reach {
            break;
        }
        reach = further;
    }
    let groups = reach.iter().map(|(from, reached)| {
        let back = reached.iter().filter(|to| reach[*to].contains(from));
        back.cloned().collect::<BTreeSet<Module>>()
    });
    groups.filter(|group| group.len() > 1).collect()
}

/// The module that defines what `path` names.
fn resolve(path: &[String], uses: &BTreeMap<Module, Uses<'_>>) -> Option<Module> {
    let mut path = path.to_vec();
    for _ in 0..MAX_REEXPORTS {
        let at = (0..=path.len())
            .rev()
            .find(|&n| uses.contains_key(&path[..n]))?;
        let found = &uses[&path[..at]];
        match path.get(at).and_then(|item| found.reexports.get(item)) {
            Some(target) => path = [target, &path[at + 1..]].concat(),
            None => return Some(path[..at].to_vec()),
        }
    }
    None
}

fn module_of(path: &Path) -> Module {
    let path = path.with_extension("");
    let parts = path.iter().map(|part| part.to_string_lossy().into_owned());
    let mut module: Module = parts.collect();
    let last = module.last().map_or("", String::as_str);
    if last == "mod" || module.len() == 1 && ["lib", "main"].contains(&last) {
        module.pop();
    }
    module
}

/// Paths below the crate's root that a module names, and what it re-exports.
struct Uses<'a> {
    module: Module,
    /// As written.
    named: &'a [Vec<String>],
    imports: BTreeMap<String, Module>,
    reexports: BTreeMap<String, Module>,
}

impl<'a> Uses<'a> {
    fn new(module: Module, code: &'a Code, modules: &Files) -> Self {
        let mut uses = Self {
            module,
            named: &code.paths,
            imports: BTreeMap::new(),
            reexports: BTreeMap::new(),
        };
        for (path, name, is_public) in &code.imports {
            if let Some(path) = uses.absolute(path, modules) {
                if *is_public {
                    uses.reexports.insert(name.clone(), path.clone());
                }
                uses.imports.insert(name.clone(), path);
            }
        }
        uses
    }

    /// What the module uses, from the crate's root. An import of a module is no use of it: a path through
    /// the imported name is.
    fn paths(&self, modules: &Files) -> impl Iterator<Item = Module> {
        let named = self.named.iter().filter_map(|path| {
            let start = self.imports.get(&path[0]);
            let imported = start.map(|start| [start, &path[1..]].concat());
            imported.or_else(|| self.absolute(path, modules))
        });
        let imported = self.imports.values().cloned();
        named.chain(imported.filter(|path| !modules.contains_key(path)))
    }

    /// The path from the crate's root, if it is one of this crate.
    fn absolute(&self, path: &[String], modules: &Files) -> Option<Module> {
        let mut at = self.module.clone();
        let mut path = path;
        match path.first()?.as_str() {
            "crate" => at.clear(),
            "self" => {}
            "super" => {
                while path.get(1).is_some_and(|next| next == "super") {
                    at.pop();
                    path = &path[1..];
                }
                at.pop();
            }
            first => {
                at.push(first.to_owned());
                if !modules.contains_key(&at) {
                    return None;
                }
            }
        }
        at.extend_from_slice(&path[1..]);
        Some(at)
    }
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
