//! No loops among the files of a crate: a file is above what it uses.
//!
//! A file uses another when it names one of its items by path (`crate::`, `super::`, `self::` or a child
//! module). An item that a module re-exports counts as used from where it is defined. Methods are not seen:
//! only a compiler knows whose they are.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};

use syn::visit::{self, Visit};

use super::shape::is_test;

/// Path of a module below its crate's root, outermost first.
type Module = Vec<String>;

/// How many re-exports of re-exports are followed.
const MAX_REEXPORTS: usize = 8;

/// One text for each set of files of a crate of which each uses, directly or not, each other.
///
/// `files` are those of one crate, each with its path below `src/`.
pub fn check(files: &[(&Path, &syn::File)]) -> Vec<String> {
    let mut uses: BTreeMap<Module, Uses> = BTreeMap::new();
    let mut names: BTreeMap<Module, PathBuf> = BTreeMap::new();
    let modules: BTreeSet<Module> = files.iter().map(|(path, _)| module_of(path)).collect();
    for (path, file) in files {
        let module = module_of(path);
        let mut found = Uses {
            module: module.clone(),
            modules: &modules,
            named: Vec::new(),
            imports: BTreeMap::new(),
            reexports: BTreeMap::new(),
        };
        found.visit_file(file);
        uses.insert(module.clone(), found);
        names.insert(module, path.to_path_buf());
    }
    let edges: BTreeMap<&Module, BTreeSet<Module>> = uses
        .iter()
        .map(|(module, found)| {
            let targets = found.paths().filter_map(|path| resolve(&path, &uses));
            (module, targets.filter(|target| target != module).collect())
        })
        .collect();
    loops(&edges)
        .into_iter()
        .map(|group| {
            let group: Vec<_> = group
                .iter()
                .map(|module| names[module].display().to_string())
                .collect();
            format!("these files use each other: {}", group.join(", "))
        })
        .collect()
}

/// Sets of more than one module that all reach each other.
fn loops(edges: &BTreeMap<&Module, BTreeSet<Module>>) -> BTreeSet<BTreeSet<Module>> {
    let reach: BTreeMap<&Module, BTreeSet<&Module>> = edges
        .keys()
        .map(|&from| {
            let mut reached = BTreeSet::new();
            let mut todo = vec![from];
            while let Some(module) = todo.pop() {
                for next in edges.get(module).into_iter().flatten() {
                    if reached.insert(next) {
                        todo.push(next);
                    }
                }
            }
            (from, reached)
        })
        .collect();
    reach
        .iter()
        .map(|(from, reached)| {
            reached
                .iter()
                .filter(|to| reach.get(*to).is_some_and(|back| back.contains(from)))
                .map(|&to| to.clone())
                .collect::<BTreeSet<Module>>()
        })
        .filter(|group| group.len() > 1)
        .collect()
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
    let mut module: Module = path
        .with_extension("")
        .components()
        .map(|part| part.as_os_str().to_string_lossy().into_owned())
        .collect();
    if module.last().is_some_and(|last| last == "mod")
        || module.len() == 1 && matches!(module[0].as_str(), "lib" | "main")
    {
        module.pop();
    }
    module
}

/// Paths below the crate's root that a module names, and what it re-exports.
struct Uses<'a> {
    module: Module,
    modules: &'a BTreeSet<Module>,
    /// As written.
    named: Vec<Vec<String>>,
    imports: BTreeMap<String, Module>,
    reexports: BTreeMap<String, Module>,
}

impl Uses<'_> {
    /// What the module uses, from the crate's root. An import of a module is no use of it: a path through
    /// the imported name is.
    fn paths(&self) -> impl Iterator<Item = Module> {
        let named = self.named.iter().filter_map(|path| {
            let imported = self
                .imports
                .get(&path[0])
                .map(|start| [start, &path[1..]].concat());
            imported.or_else(|| self.absolute(path))
        });
        let imported = self.imports.values().cloned();
        named.chain(imported.filter(|path| !self.modules.contains(path)))
    }

    /// The path from the crate's root, if it is one of this crate.
    fn absolute(&self, path: &[String]) -> Option<Module> {
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
                if !self.modules.contains(&at) {
                    return None;
                }
            }
        }
        at.extend_from_slice(&path[1..]);
        Some(at)
    }

    fn tree(&mut self, tree: &syn::UseTree, before: &[String], is_public: bool) {
        match tree {
            syn::UseTree::Path(path) => {
                let before = [before, &[path.ident.to_string()]].concat();
                self.tree(&path.tree, &before, is_public);
            }
            syn::UseTree::Name(name) => {
                self.leaf(before, &name.ident, &name.ident, is_public);
            }
            syn::UseTree::Rename(name) => {
                self.leaf(before, &name.ident, &name.rename, is_public);
            }
            syn::UseTree::Glob(_) => self.named.push([before, &["*".to_owned()]].concat()),
            syn::UseTree::Group(group) => {
                for tree in &group.items {
                    self.tree(tree, before, is_public);
                }
            }
        }
    }

    fn leaf(&mut self, before: &[String], name: &syn::Ident, named: &syn::Ident, is_public: bool) {
        let mut path = before.to_vec();
        if name != "self" {
            path.push(name.to_string());
        }
        let Some(path) = self.absolute(&path) else {
            return;
        };
        if is_public {
            self.reexports.insert(named.to_string(), path.clone());
        }
        self.imports.insert(named.to_string(), path);
    }
}

impl<'ast> Visit<'ast> for Uses<'_> {
    fn visit_item(&mut self, item: &'ast syn::Item) {
        let attributes = match item {
            syn::Item::Mod(item) => &item.attrs,
            syn::Item::Fn(item) => &item.attrs,
            syn::Item::Impl(item) => &item.attrs,
            syn::Item::Use(item) => &item.attrs,
            _ => &Vec::new(),
        };
        if !is_test(attributes) {
            visit::visit_item(self, item);
        }
    }

    fn visit_item_use(&mut self, item: &'ast syn::ItemUse) {
        let is_public = !matches!(item.vis, syn::Visibility::Inherited);
        self.tree(&item.tree, &[], is_public);
    }

    fn visit_path(&mut self, path: &'ast syn::Path) {
        let segments: Vec<String> = path.segments.iter().map(|s| s.ident.to_string()).collect();
        if segments.len() > 1 {
            self.named.push(segments);
        }
        visit::visit_path(self, path);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn findings(files: &[(&str, &str)]) -> Vec<String> {
        let files: Vec<_> = files
            .iter()
            .map(|(path, code)| (Path::new(*path), syn::parse_file(code).expect("valid code")))
            .collect();
        let files: Vec<_> = files.iter().map(|(path, file)| (*path, file)).collect();
        check(&files)
    }

    /// Check that a parent may use its children, and a re-export is used from where it is defined.
    #[test]
    fn no_loops() {
        let parent = "mod b; mod c; pub use b::B; fn f() { c::g(); }";
        let child = "use super::B; pub fn g() {}";
        let files = [
            ("a/mod.rs", parent),
            ("a/b.rs", "pub struct B;"),
            ("a/c.rs", child),
        ];
        assert_eq!(findings(&files), Vec::<String>::new());
        let test = "#[cfg(test)] mod tests { use super::super::*; }";
        assert!(findings(&[("lib.rs", "mod a; use a::A;"), ("a.rs", test)]).is_empty());
    }

    /// Check that a child that uses what its parent defines is found, also over a third file.
    #[test]
    fn found() {
        let parent = "mod b; use b::B; pub struct A;";
        let files = [("lib.rs", parent), ("b.rs", "pub struct B(crate::A);")];
        assert_eq!(
            findings(&files),
            ["these files use each other: lib.rs, b.rs"]
        );
        let files = [
            ("a.rs", "fn f() { crate::b::f() }"),
            ("b.rs", "use super::c; fn f() { c::g() }"),
            ("c.rs", "use crate::a::f;"),
        ];
        assert_eq!(findings(&files).len(), 1);
    }
}
