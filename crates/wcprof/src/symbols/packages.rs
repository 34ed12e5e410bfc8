//! Which package, or which path of a debuginfod server, would supply a module's debug file.
//!
//! Asks the package databases of this machine (`dpkg-query`, `apt-cache`, `rpm`), so it is right
//! where the module's file is installed. None of them changes anything or uses the network.

use std::collections::HashMap;
use std::path::Path;
use std::process::{Command, Stdio};

use wcprof_symbols::ModuleReport;

/// Bytes taken of what a program prints.
const MAX_OUTPUT: usize = 1 << 20;

/// What would supply a module's names.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub(super) struct Supply {
    /// Package with the debug file.
    pub(super) package: Option<String>,
    /// Path on every debuginfod server that has it.
    pub(super) debuginfod: Option<String>,
}

/// What would supply the names of modules, by their paths.
pub(super) fn supplies(modules: &[&ModuleReport]) -> HashMap<String, Supply> {
    let mut supplies = HashMap::new();
    for module in modules {
        supplies.insert(
            module.path.clone(),
            Supply {
                package: package(&module.path),
                debuginfod: module
                    .build_id
                    .as_ref()
                    .map(|id| format!("/buildid/{id}/debuginfo")),
            },
        );
    }
    supplies
}

/// The package with the debug file of an installed file.
fn package(path: &str) -> Option<String> {
    if !path.starts_with('/') || !Path::new(path).is_file() {
        return None;
    }
    debian(path).or_else(|| rpm(path))
}

fn debian(path: &str) -> Option<String> {
    // Files in /usr/lib may be known to dpkg in /lib, and the other way round.
    let other = match path.strip_prefix("/usr") {
        Some(rest) => rest.to_owned(),
        None => format!("/usr{path}"),
    };
    let found = [path, &other]
        .into_iter()
        .find_map(|path| output("dpkg-query", &["-S", path]))?;
    let owner = owner(&found)?;
    for suffix in ["-dbg", "-dbgsym"] {
        let name = format!("{owner}{suffix}");
        let known = output("apt-cache", &["pkgnames", &name]).unwrap_or_default();
        if known.lines().any(|line| line == name) {
            return Some(name);
        }
    }
    Some(format!("{owner}-dbgsym"))
}

/// The package in `dpkg-query -S`: `libc6:amd64: /lib/x86_64-linux-gnu/libc.so.6`.
fn owner(found: &str) -> Option<&str> {
    let line = found.lines().find(|line| !line.starts_with("diversion"))?;
    let (owners, _) = line.split_once(": ")?;
    let first = owners.split(", ").next()?;
    Some(first.split(':').next().unwrap_or(first))
}

fn rpm(path: &str) -> Option<String> {
    let format = "%{NAME}-%{VERSION}-%{RELEASE}.%{ARCH}\n";
    let found = output("rpm", &["-qf", "--qf", format, path])?;
    debuginfo_of(found.lines().next()?)
}

/// The debug package of an RPM: `-debuginfo` behind its name.
fn debuginfo_of(package: &str) -> Option<String> {
    let (rest, release) = package.rsplit_once('-')?;
    let (name, version) = rest.rsplit_once('-')?;
    Some(format!("{name}-debuginfo-{version}-{release}"))
}

/// What a program prints, if there is one and it succeeds.
fn output(program: &str, args: &[&str]) -> Option<String> {
    let output = Command::new(program)
        .args(args)
        .env("LC_ALL", "C")
        .stdin(Stdio::null())
        .stderr(Stdio::null())
        .output()
        .ok()?;
    let text = output.stdout.get(..output.stdout.len().min(MAX_OUTPUT))?;
    output
        .status
        .success()
        .then(|| String::from_utf8_lossy(text).into_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Check that the owner is taken out of what dpkg-query prints.
    #[test]
    fn owners() {
        for (found, expected) in [
            ("libc6:amd64: /lib/x86_64-linux-gnu/libc.so.6\n", "libc6"),
            ("ceph-osd: /usr/bin/ceph-osd\n", "ceph-osd"),
            ("a:amd64, b: /usr/lib/c\n", "a"),
            ("diversion by d from: /bin/sh\nd: /bin/sh\n", "d"),
        ] {
            assert_eq!(owner(found), Some(expected), "{found}");
        }
        assert_eq!(owner("nonsense"), None);
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
