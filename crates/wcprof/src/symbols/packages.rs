//! Which package, or which path of a debuginfod server, would supply a module's debug file.
//!
//! Asks the package databases of this machine (`dpkg-query`, `apt-cache`, `rpm`), so it is right
//! where the module's file is installed. None of them changes anything or uses the network.

use std::collections::{HashMap, HashSet};
use std::path::Path;
use std::process::{Command, Stdio};

use wcprof_symbols::{ModuleReport, SourceKind, SourceUse};

/// Bytes taken of what a program prints.
const MAX_OUTPUT: usize = 16 << 20;

/// What would supply a module's names.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub(super) struct Supply {
    /// Package with the debug file.
    pub(super) package: Option<String>,
    /// Path on every debuginfod server that has it.
    pub(super) debuginfod: Option<String>,
}

/// What would supply the names of modules, by their paths. One call of each program for all of
/// them, since each reads the whole database.
pub(super) fn supplies(modules: &[&ModuleReport]) -> HashMap<String, Supply> {
    let installed: Vec<&str> = modules
        .iter()
        .filter(|module| is_missing(module))
        .map(|module| module.path.as_str())
        .filter(|path| path.starts_with('/') && Path::new(path).is_file())
        .collect();
    let mut packages = packages(&installed);
    let supply = |module: &&ModuleReport| Supply {
        package: packages.remove(module.path.as_str()),
        debuginfod: debuginfod(module),
    };
    let supply = modules.iter().map(supply);
    let paths = modules.iter().map(|module| module.path.clone());
    paths.zip(supply.collect::<Vec<_>>()).collect()
}

fn is_missing(module: &ModuleReport) -> bool {
    module.missing_symtab || module.missing_dwarf
}

/// The path on a server, if it has supplied the names or would supply them. What is no file, such
/// as the vdso, is on no server.
fn debuginfod(module: &ModuleReport) -> Option<String> {
    let supplied = |s: &SourceUse| s.kind == SourceKind::Debuginfod;
    let is_asked = is_missing(module) || module.sources.iter().any(supplied);
    let id = module.build_id.as_ref();
    let id = id.filter(|_| is_asked && module.path.starts_with('/'))?;
    Some(format!("/buildid/{id}/debuginfo"))
}

/// The packages with the debug files of installed files, by path.
fn packages<'p>(paths: &[&'p str]) -> HashMap<&'p str, String> {
    if paths.is_empty() {
        return HashMap::new();
    }
    match owners(paths) {
        Some(owners) => debian(owners),
        None => {
            let rpms = paths.iter().filter_map(|path| Some((*path, rpm(path)?)));
            rpms.collect()
        }
    }
}

/// The Debian packages that own files; `None` without dpkg.
fn owners<'p>(paths: &[&'p str]) -> Option<HashMap<&'p str, String>> {
    // Files in /usr/lib may be known to dpkg in /lib, and the other way round.
    let others: Vec<String> = paths.iter().map(|path| other_place(path)).collect();
    let mut args = vec!["-S", "--"];
    args.extend(paths);
    args.extend(others.iter().map(String::as_str));
    // It fails when it does not know one of them.
    let found = output("dpkg-query", &args, true)?;
    let mut owners = HashMap::new();
    for (path, other) in paths.iter().zip(&others) {
        let owner = found.lines().find_map(|line| {
            let (owner, of) = owner(line)?;
            (of == *path || of == other).then(|| owner.to_owned())
        });
        if let Some(owner) = owner {
            owners.insert(*path, owner);
        }
    }
    Some(owners)
}

fn other_place(path: &str) -> String {
    match path.strip_prefix("/usr") {
        Some(rest) => rest.to_owned(),
        None => format!("/usr{path}"),
    }
}

/// The packages with the debug files of packages.
fn debian(owners: HashMap<&str, String>) -> HashMap<&str, String> {
    if owners.is_empty() {
        return HashMap::new();
    }
    let known = output("apt-cache", &["pkgnames"], false).unwrap_or_default();
    let known: HashSet<&str> = known.lines().collect();
    let debug = |owner: String| {
        let names = ["-dbg", "-dbgsym"].map(|suffix| format!("{owner}{suffix}"));
        let [_, fallback] = names.clone();
        let found = names.into_iter().find(|name| known.contains(&**name));
        found.unwrap_or(fallback)
    };
    let packages = owners.into_iter().map(|(path, owner)| (path, debug(owner)));
    packages.collect()
}

/// Package and file in a line of `dpkg-query -S`: `libc6:amd64: /lib/x86_64-linux-gnu/libc.so.6`.
fn owner(line: &str) -> Option<(&str, &str)> {
    let (owners, path) = line.split_once(": ")?;
    let first = owners.split(", ").next()?;
    let is_diversion = owners.starts_with("diversion by ");
    (!is_diversion).then(|| (first.split(':').next().unwrap_or(first), path))
}

fn rpm(path: &str) -> Option<String> {
    let format = "%{NAME}-%{VERSION}-%{RELEASE}.%{ARCH}\n";
    let found = output("rpm", &["-qf", "--qf", format, path], false)?;
    debuginfo_of(found.lines().next()?)
}

/// The debug package of an RPM: `-debuginfo` behind its name.
fn debuginfo_of(package: &str) -> Option<String> {
    let (rest, release) = package.rsplit_once('-')?;
    let (name, version) = rest.rsplit_once('-')?;
    Some(format!("{name}-debuginfo-{version}-{release}"))
}

/// What a program prints, if there is one and it succeeds, or may fail.
fn output(program: &str, args: &[&str], may_fail: bool) -> Option<String> {
    let output = Command::new(program)
        .args(args)
        .env("LC_ALL", "C")
        .stdin(Stdio::null())
        .stderr(Stdio::null())
        .output()
        .ok()?;
    let text = output.stdout.get(..output.stdout.len().min(MAX_OUTPUT))?;
    (may_fail || output.status.success()).then(|| String::from_utf8_lossy(text).into_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Check that the owner is taken out of what dpkg-query prints.
    #[test]
    fn owners() {
        for (found, expected) in [
            (
                "libc6:amd64: /lib/libc.so.6",
                Some(("libc6", "/lib/libc.so.6")),
            ),
            (
                "ceph-osd: /usr/bin/ceph-osd",
                Some(("ceph-osd", "/usr/bin/ceph-osd")),
            ),
            ("a:amd64, b: /usr/lib/c", Some(("a", "/usr/lib/c"))),
            ("diversion by d from: /bin/sh", None),
            ("nonsense", None),
        ] {
            assert_eq!(owner(found), expected, "{found}");
        }
        assert_eq!(other_place("/usr/lib/a"), "/lib/a");
        assert_eq!(other_place("/lib/a"), "/usr/lib/a");
    }

    /// Check that servers are named for files that lack something or came from one, and for no vdso.
    #[test]
    fn servers() {
        let mut module = ModuleReport {
            path: "/lib/a".to_owned(),
            build_id: wcprof_types::BuildId::new(&[0xab; 4]),
            ..ModuleReport::default()
        };
        assert_eq!(debuginfod(&module), None);
        module.sources = vec![SourceUse {
            kind: SourceKind::Debuginfod,
            path: "/cache".into(),
            n_symtab: 1,
            n_dynsym: 0,
            dwarf: true,
        }];
        let path = Some("/buildid/abababab/debuginfo".to_owned());
        assert_eq!(debuginfod(&module), path);
        module.sources.clear();
        module.missing_dwarf = true;
        assert_eq!(debuginfod(&module), path);
        module.path = "[vdso]".to_owned();
        assert_eq!(debuginfod(&module), None);
    }

    /// Check that the debug package of an RPM keeps its version.
    #[test]
    fn rpms() {
        assert_eq!(
            debuginfo_of("ceph-osd-18.2.1-2.el9.x86_64").as_deref(),
            Some("ceph-osd-debuginfo-18.2.1-2.el9.x86_64")
        );
        assert_eq!(debuginfo_of("nonsense"), None);
    }
}
