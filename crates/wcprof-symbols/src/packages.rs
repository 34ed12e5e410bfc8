//! Which package, or which path of a debuginfod server, would supply a module's debug file.
//!
//! Asks the package databases of this machine (`dpkg-query`, `apt-cache`, `rpm`), so it is right
//! where the module's file is installed; for a container [`root`] reads what it says of itself. None of them changes
//! anything or uses the network. They are asked only if something is missing, and those of one place not waited for
//! longer than [`PATIENCE`].

mod root;

use std::collections::{BTreeMap, HashMap, HashSet};
use std::io::{self, Read};
use std::os::fd::{AsFd, OwnedFd};
use std::path::Path;
use std::process::{Command, Stdio};
use std::sync::mpsc;
use std::thread::Builder;
use std::time::{Duration, Instant};

use wcprof_host::open::open_regular_in_time;
use wcprof_host::{apart, left};
use wcprof_trace::model::Tables;
use wcprof_types::Pid;

use crate::report::{ModuleReport, SourceKind, SourceUse};
pub use root::Container;
use root::other_place;

/// Bytes taken of what a program prints.
const MAX_OUTPUT: u64 = 16 << 20;

/// A killed program has ended by then, or waits for a file system.
const MAX_ENDING: Duration = Duration::from_millis(500);

/// How long all of one place together may take: apt reads everything anew where it keeps no cache of its
/// own, as in images of containers, and a database may be locked.
const PATIENCE: Duration = Duration::from_secs(3);

/// What would supply a module's names.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Supply {
    /// Package with the debug file; two names where apt did not say in time which of them there is.
    pub package: Option<String>,
    /// Path on every debuginfod server that has it.
    pub debuginfod: Option<String>,
}

/// What would supply the names of each of `modules`. The database of a place is asked once for all that are in it:
/// a container of which a process has the module, or this machine.
pub(crate) fn supplies(
    modules: &[ModuleReport],
    tables: &Tables,
    containers: &[Container<'_>],
) -> Vec<Supply> {
    let supply = |module| Supply {
        package: None,
        debuginfod: debuginfod(module),
    };
    let mut supplies: Vec<Supply> = modules.iter().map(supply).collect();
    let mut places: BTreeMap<Option<usize>, Vec<(&ModuleReport, &mut Supply)>> = BTreeMap::new();
    let place = |module| containers.iter().position(|c| c.has(module, tables));
    let all = modules.iter().zip(&mut supplies);
    for (module, supply) in all.filter(|(module, _)| is_missing(module)) {
        let missing = places.entry(place(module)).or_default();
        missing.push((module, supply));
    }
    for (place, missing) in places {
        let paths = missing.iter().map(|(module, _)| module.path.as_str());
        match place.and_then(|index| containers.get(index)) {
            Some(container) => {
                let there =
                    root::Packages::read(&*container.open, paths, Instant::now() + PATIENCE);
                for (module, supply) in missing {
                    supply.package = there.debug_package(module);
                }
            }
            None => {
                let here = installed_here(paths);
                for (module, supply) in missing {
                    supply.package = here.get(module.path.as_str()).cloned();
                }
            }
        }
    }
    supplies
}

/// The packages with the debug files of those files that are installed here.
fn installed_here<'p>(paths: impl Iterator<Item = &'p str>) -> HashMap<&'p str, String> {
    // Those without names may be on a server that does not answer.
    let is_file = |path: &&str| open_regular_in_time(Path::new(path)).is_ok();
    let installed = paths.filter(|path| path.starts_with('/') && is_file(path));
    packages(&installed.collect::<Vec<_>>())
}

fn is_missing(module: &ModuleReport) -> bool {
    !module.is_no_file() && (module.missing_symtab || module.missing_dwarf)
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
    let deadline = Instant::now() + PATIENCE;
    // Most machines have either dpkg or rpm, so that one of these fails at once.
    std::thread::scope(|scope| {
        let known = || output("apt-cache", &["pkgnames"], false, deadline);
        let known = Builder::new().spawn_scoped(scope, known).ok();
        match owners(paths, deadline) {
            Some(owners) => {
                let known = known.and_then(|thread| thread.join().ok()?);
                debian(owners, known.as_deref())
            }
            None => {
                let package = |path: &&'p str| Some((*path, rpm(path, &[], deadline)?));
                paths.iter().filter_map(package).collect()
            }
        }
    })
}

/// The Debian packages that own files; `None` without dpkg.
fn owners<'p>(paths: &[&'p str], deadline: Instant) -> Option<HashMap<&'p str, String>> {
    let others: Vec<String> = paths.iter().map(|path| other_place(path)).collect();
    let mut args = vec!["-S", "--"];
    args.extend(paths);
    args.extend(others.iter().map(String::as_str));
    // It fails when it does not know one of them.
    let found = output("dpkg-query", &args, true, deadline)?;
    let owner_of = |(path, other): (&&'p str, &String)| {
        let mut lines = found.lines().filter_map(owner);
        let (owner, _) = lines.find(|(_, file)| file == path || file == other)?;
        Some((*path, owner.to_owned()))
    };
    Some(paths.iter().zip(&others).filter_map(owner_of).collect())
}

/// The packages with the debug files of packages, by the names that apt knows, a line each.
fn debian<'p>(owners: HashMap<&'p str, String>, known: Option<&str>) -> HashMap<&'p str, String> {
    let known: Option<HashSet<&str>> = known.map(|names| names.lines().collect());
    let debug = |owner: String| {
        let (dbg, automatic) = (format!("{owner}-dbg"), format!("{owner}-dbgsym"));
        match &known {
            None => format!("{dbg} or {automatic}"),
            Some(known) if known.contains(dbg.as_str()) => dbg,
            // These lie in an archive that few machines know.
            Some(_) => automatic,
        }
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

/// The debug package of the RPM that owns a file. `database`: flags that choose another one.
fn rpm(path: &str, database: &[&str], deadline: Instant) -> Option<String> {
    let format = "%{NAME}-%{VERSION}-%{RELEASE}.%{ARCH}\n";
    let args = [database, &["-qf", "--qf", format, path]].concat();
    let found = output("rpm", &args, false, deadline)?;
    debuginfo_of(found.lines().next()?)
}

/// The debug package of an RPM: `-debuginfo` behind its name.
fn debuginfo_of(package: &str) -> Option<String> {
    let (rest, release) = package.rsplit_once('-')?;
    let (name, version) = rest.rsplit_once('-')?;
    Some(format!("{name}-debuginfo-{version}-{release}"))
}

/// What a program prints, if there is one and it succeeds (or may fail) before `deadline`; else it is
/// ended.
fn output(program: &str, args: &[&str], may_fail: bool, deadline: Instant) -> Option<String> {
    let mut command = Command::new(program);
    command
        .args(args)
        .env("LC_ALL", "C")
        .stdin(Stdio::null())
        .stderr(Stdio::null());
    let (stdout, writer) = io::pipe().ok()?;
    let start = move |writer: Option<OwnedFd>| command.stdout(writer?).spawn().ok();
    let mut child = apart(Some(writer.as_fd()), start).ok()??;
    drop(writer);
    let (sender, receiver) = mpsc::channel();
    let read = move || {
        let mut bytes = Vec::new();
        let read = stdout.take(MAX_OUTPUT).read_to_end(&mut bytes);
        // Nobody may wait for it any more.
        let _ = sender.send(read.is_ok().then_some(bytes));
    };
    // Without a thread there is no output.
    let _ = Builder::new().spawn(read);
    let left = deadline.saturating_duration_since(Instant::now());
    let Some(bytes) = receiver.recv_timeout(left).ok().flatten() else {
        let _ = left::end(Pid(child.id().cast_signed()), MAX_ENDING);
        return None;
    };
    let status = child.wait().ok()?;
    (may_fail || status.success()).then(|| String::from_utf8_lossy(&bytes).into_owned())
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

    /// Check which of the two debug packages of a Debian package is named.
    #[test]
    fn debug_packages() {
        let debug = |known| {
            let owners = HashMap::from([("/usr/bin/a", "a".to_owned())]);
            debian(owners, known).remove("/usr/bin/a").unwrap()
        };
        assert_eq!(debug(Some("a\na-dbg\na-dbgsym\n")), "a-dbg");
        assert_eq!(debug(Some("a\nb-dbg\na-dbgsym\n")), "a-dbgsym");
        assert_eq!(debug(Some("a\n")), "a-dbgsym");
        assert_eq!(debug(None), "a-dbg or a-dbgsym");
    }

    /// Check that a program that takes too long is ended and gives nothing, not even what it printed,
    /// and that failing counts only where it may not.
    #[test]
    fn patience() {
        let soon = || Instant::now() + Duration::from_millis(100);
        let late = || Instant::now() + Duration::from_secs(600);
        let run =
            |script: &str, may_fail, deadline| output("sh", &["-c", script], may_fail, deadline);
        assert_eq!(run("echo a; exec sleep 30", true, soon()), None);
        assert_eq!(run("echo a", false, late()).as_deref(), Some("a\n"));
        assert_eq!(run("echo a; exit 1", false, late()), None);
        assert_eq!(run("echo a; exit 1", true, late()).as_deref(), Some("a\n"));
        assert_eq!(output("/nonexistent/x", &[], true, late()), None);
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
        for path in ["[vdso]", "[anon]", "[kernel]"] {
            module.path = path.to_owned();
            assert_eq!(debuginfod(&module), None, "{path}");
        }
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

    /// A package, and one that is a part of it, of one program each.
    const SPEC: &str = "Name: sample
Epoch: 2
Version: 1.2
Release: 3.el9
Summary: sample
License: MIT
%description
sample
%package libs
Summary: part
%description libs
part
%debug_package
%install
mkdir -p %{buildroot}FOLDER
cp FOLDER/whole FOLDER/part %{buildroot}FOLDER
%files
FOLDER/whole
%files libs
FOLDER/part
";

    /// Check against `rpmbuild` and a database of `rpm`: the debug packages that are named for two installed
    /// files are those that were made for them.
    #[test]
    fn rpm_database() {
        if Command::new("rpmbuild").arg("--version").output().is_err() {
            println!("SKIPPED packages::rpm_database: needs rpmbuild (Debian package rpm)");
            return;
        }
        let folder = tempfile::tempdir().unwrap();
        let at = |name: &str| folder.path().join(name).to_str().unwrap().to_owned();
        let run = |program: &str, args: &[&str]| {
            let mut command = Command::new(program);
            command.env("HOME", folder.path()).args(args);
            let output = command.output().unwrap();
            let error = String::from_utf8_lossy(&output.stderr);
            assert!(output.status.success(), "{program} {args:?}: {error}");
        };
        std::fs::write(at("a.c"), "int main(void) { return N; }").unwrap();
        for (name, number) in [("whole", "-DN=1"), ("part", "-DN=2")] {
            let flags = ["-g", "-Wl,--build-id", number];
            run(
                "gcc",
                &[&flags[..], &["-o", &at(name), &at("a.c")]].concat(),
            );
        }
        let spec = SPEC.replace("FOLDER", folder.path().to_str().unwrap());
        std::fs::write(at("sample.spec"), spec).unwrap();
        let top = format!("_topdir {}", at("top"));
        let flags = ["_enable_debug_packages 1", "_debuginfo_subpackages 1", &top];
        let mut args = vec!["-bb"];
        args.extend(flags.iter().flat_map(|flag| ["--define", flag]));
        let spec = at("sample.spec");
        args.push(&spec);
        run("rpmbuild", &args);
        let made: Vec<_> = std::fs::read_dir(at(&format!("top/RPMS/{}", std::env::consts::ARCH)))
            .unwrap()
            .map(|entry| entry.unwrap().path())
            .collect();
        let (debug, installed): (Vec<_>, Vec<_>) = made
            .iter()
            .map(|path| path.to_str().unwrap())
            .partition(|path| path.contains("-debuginfo-"));
        assert_eq!((debug.len(), installed.len()), (2, 2), "{made:?}");
        let database = ["--dbpath", &at("db")];
        let install = ["--install", "--justdb", "--nodeps"];
        // Debian's rpm warns, and does it.
        run("rpm", &[&database[..], &install, &installed].concat());
        for file in ["whole", "part"] {
            let package = rpm(&at(file), &database, Instant::now() + PATIENCE).unwrap();
            let is_it = |path: &&str| path.ends_with(&format!("/{package}.rpm"));
            assert_eq!(
                debug.iter().filter(|path| is_it(path)).count(),
                1,
                "{package}"
            );
        }
        let other = rpm(&at("a.c"), &database, Instant::now() + PATIENCE);
        assert_eq!(other, None);
    }
}
