//! A container's root to the packages with debug files of what runs in it: this machine's package databases know
//! nothing of it.
//!
//! With dpkg the owner of a file is looked up in its own lists; with RPM the build-id is what its debug packages
//! provide, so that no database is read. All files are the container's, and hostile.

use std::collections::HashMap;
use std::fmt;
use std::io::{self, Read};
use std::path::Path;
use std::time::Instant;

use wcprof_host::open::{TargetFile, look_in_time};
use wcprof_trace::model::{ProcessId, Tables};

use crate::report::ModuleReport;

/// Opens a regular file of a container.
type OpenInRoot<'r> = dyn Fn(&Path) -> Option<TargetFile> + 'r;

/// A root that is not this machine's, and who lives in it.
pub struct Container<'r> {
    /// Opens a regular file below its root.
    pub open: Box<OpenInRoot<'r>>,
    /// Whose root it is, in the trace.
    pub processes: Vec<ProcessId>,
}

impl fmt::Debug for Container<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "container of {:?}", self.processes)
    }
}

impl Container<'_> {
    /// Whether one of its processes has this module.
    pub(super) fn has(&self, module: &ModuleReport, tables: &Tables) -> bool {
        let mut modules = tables.modules.iter();
        modules.any(|m| {
            m.path == module.path
                && m.build_id == module.build_id
                && self.processes.contains(&m.process)
        })
    }
}

/// Bytes of a file that are read: the status of some thousand packages has a few MB.
const MAX_FILE: u64 = 32 << 20;
/// Installed packages whose lists are read.
const MAX_PACKAGES: usize = 4096;
/// Longest name or version, bytes; each module has them.
const MAX_FIELD: usize = 128;
/// Distributions with RPM, as `ID` and `ID_LIKE` of os-release have them.
const WITH_RPM: [&str; 6] = ["rhel", "fedora", "centos", "rocky", "suse", "opensuse"];

/// What is installed in a container.
pub(super) struct Packages {
    /// `debian 12`
    distribution: String,
    has_rpm: bool,
    /// Name and version of the package that owns a file.
    owners: HashMap<String, [String; 2]>,
}

impl Packages {
    /// Reads each file once, for all `paths`; begins with no list after `deadline`.
    pub(super) fn read<'p>(
        open: &OpenInRoot<'_>,
        paths: impl Iterator<Item = &'p str>,
        deadline: Instant,
    ) -> Self {
        let os = ["/etc/os-release", "/usr/lib/os-release"];
        let os = os
            .iter()
            .find_map(|path| text(open, path))
            .unwrap_or_default();
        let field = |key: &str| {
            let value = os
                .lines()
                .find_map(|line| line.strip_prefix(key)?.strip_prefix('='));
            let value = value.unwrap_or_default().trim_matches(['"', '\'']);
            sane(value).unwrap_or_default().to_owned()
        };
        let (id, like) = (field("ID"), field("ID_LIKE"));
        let mut ids = like.split_whitespace().chain([id.as_str()]);
        let mut places: HashMap<String, &str> = HashMap::new();
        for path in paths {
            places.extend([(path.to_owned(), path), (other_place(path), path)]);
        }
        let status = text(open, "/var/lib/dpkg/status").unwrap_or_default();
        Self {
            distribution: format!("{id} {}", field("VERSION_ID")).trim().to_owned(),
            has_rpm: ids.any(|id| WITH_RPM.iter().any(|rpm| id.starts_with(rpm))),
            owners: owners(open, &installed(&status), &places, deadline),
        }
    }

    /// The package with a module's debug file, its version and the distribution.
    pub(super) fn debug_package(&self, module: &ModuleReport) -> Option<String> {
        let name = if self.has_rpm {
            let build_id = module.build_id.as_ref()?;
            // What dnf and zypper install it by.
            format!("debuginfo(build-id) = {build_id}")
        } else {
            let [name, version] = self.owners.get(&module.path)?;
            format!("{name}-dbg or {name}-dbgsym, version {version}")
        };
        Some(match self.distribution.as_str() {
            "" => name,
            of => format!("{name} ({of})"),
        })
    }
}

/// The owners of files by their paths; `places` has the paths by where dpkg may know them.
fn owners(
    open: &OpenInRoot<'_>,
    installed: &[[String; 3]],
    places: &HashMap<String, &str>,
    deadline: Instant,
) -> HashMap<String, [String; 2]> {
    let mut owners = HashMap::new();
    for [name, architecture, version] in installed {
        if Instant::now() >= deadline {
            break;
        }
        let folder = "/var/lib/dpkg/info";
        let lists = [
            format!("{folder}/{name}.list"),
            format!("{folder}/{name}:{architecture}.list"),
        ];
        let list = lists.iter().find_map(|list| text(open, list));
        for path in list
            .iter()
            .flat_map(|list| list.lines())
            .filter_map(|line| places.get(line))
        {
            let owner = || [name.clone(), version.clone()];
            owners.entry((*path).to_owned()).or_insert_with(owner);
        }
    }
    owners
}

/// Where dpkg may know a file of /usr/lib: in /lib, and the other way round.
pub(super) fn other_place(path: &str) -> String {
    match path.strip_prefix("/usr") {
        Some(rest) => rest.to_owned(),
        None => format!("/usr{path}"),
    }
}

/// The installed packages of dpkg's status: paragraphs of fields.
fn installed(status: &str) -> Vec<[String; 3]> {
    let paragraphs = status.split("\n\n").filter_map(|paragraph| {
        let field = |key: &str| {
            let mut lines = paragraph.lines();
            sane(lines.find_map(|line| line.strip_prefix(key)?.strip_prefix(": "))?)
        };
        let is_installed = field("Status")?.ends_with(" installed");
        let name = field("Package")?;
        let is_name = |c: char| c.is_ascii_alphanumeric() || "+-.".contains(c);
        // It becomes a part of a path.
        (is_installed && name.chars().all(is_name)).then_some(())?;
        Some([name, field("Architecture")?, field("Version")?].map(str::to_owned))
    });
    paragraphs.take(MAX_PACKAGES).collect()
}

/// A field that may be kept.
fn sane(field: &str) -> Option<&str> {
    (field.len() <= MAX_FIELD).then_some(field)
}

fn text(open: &OpenInRoot<'_>, path: &str) -> Option<String> {
    let read = |file: TargetFile| {
        let mut bytes = Vec::new();
        (&*file).take(MAX_FILE).read_to_end(&mut bytes)?;
        Ok::<_, io::Error>(bytes)
    };
    let bytes = look_in_time(&open(Path::new(path))?, read).ok()?.ok()?;
    Some(String::from_utf8_lossy(&bytes).into_owned())
}

#[cfg(test)]
mod tests {
    use std::cell::Cell;
    use std::fs::File;
    use std::time::Duration;

    use wcprof_trace::model::Module;
    use wcprof_types::{Avma, BuildId, FileOffset, LoadBias, Svma};

    use super::*;

    fn module(path: &str) -> ModuleReport {
        ModuleReport {
            path: path.to_owned(),
            build_id: BuildId::new(&[0xab, 0xcd]),
            ..ModuleReport::default()
        }
    }

    /// Opens files of a root with these.
    fn root(files: &[(&str, &str)]) -> Box<OpenInRoot<'static>> {
        let folder = tempfile::tempdir().unwrap();
        for (path, text) in files {
            let path = folder.path().join(path);
            std::fs::create_dir_all(path.parent().unwrap()).unwrap();
            std::fs::write(path, text).unwrap();
        }
        Box::new(move |path| {
            Some(
                File::open(folder.path().join(path.strip_prefix("/").ok()?))
                    .ok()?
                    .into(),
            )
        })
    }

    /// The package of a module in a root of these files.
    fn package(files: &[(&str, &str)], module: &ModuleReport) -> Option<String> {
        let paths = [module.path.as_str()].into_iter();
        let deadline = Instant::now() + Duration::from_secs(600);
        Packages::read(&*root(files), paths, deadline).debug_package(module)
    }

    const STATUS: &str = "Package: gone\nStatus: deinstall ok config-files\nArchitecture: amd64\nVersion: 1\n\n\
         Package: ../../x\nStatus: install ok installed\nArchitecture: amd64\nVersion: 1\n\n\
         Package: ceph-osd\nStatus: install ok installed\nArchitecture: amd64\nVersion: 18.2.4-1jammy\n\n\
         Package: libc6\nStatus: install ok installed\nArchitecture: amd64\nVersion: 2.35-0\n";

    /// Check that the owner of a file is found in dpkg's lists, with its version, also where `/lib` and `/usr/lib` are
    /// one.
    #[test]
    fn with_dpkg() {
        let files = [
            (
                "etc/os-release",
                "NAME=\"Ubuntu\"\nVERSION_ID=\"22.04\"\nID=ubuntu\nID_LIKE=debian\n",
            ),
            ("var/lib/dpkg/status", STATUS),
            ("var/lib/dpkg/info/ceph-osd.list", "/.\n/usr/bin/ceph-osd\n"),
            ("var/lib/dpkg/info/gone.list", "/usr/bin/gone\n"),
            (
                "var/lib/dpkg/info/libc6:amd64.list",
                "/lib/x86_64-linux-gnu/libc.so.6\n",
            ),
        ];
        let package = |path: &str| package(&files, &module(path));
        assert_eq!(
            package("/usr/bin/ceph-osd").as_deref(),
            Some("ceph-osd-dbg or ceph-osd-dbgsym, version 18.2.4-1jammy (ubuntu 22.04)")
        );
        assert_eq!(
            package("/usr/lib/x86_64-linux-gnu/libc.so.6").as_deref(),
            Some("libc6-dbg or libc6-dbgsym, version 2.35-0 (ubuntu 22.04)")
        );
        assert_eq!(package("/usr/bin/gone"), None);
        assert_eq!(package("/opt/other"), None);
    }

    /// Check that no list is read when the time is over.
    #[test]
    fn no_time() {
        let files = [
            ("var/lib/dpkg/status", STATUS),
            ("var/lib/dpkg/info/ceph-osd.list", "/usr/bin/ceph-osd\n"),
        ];
        let (open, n_lists) = (root(&files), Cell::new(0));
        let open: Box<OpenInRoot<'_>> = Box::new(|path| {
            n_lists.set(n_lists.get() + usize::from(path.starts_with("/var/lib/dpkg/info")));
            open(path)
        });
        let path = "/usr/bin/ceph-osd";
        let found = Packages::read(&*open, [path].into_iter(), Instant::now());
        assert_eq!(found.debug_package(&module(path)), None);
        assert_eq!(n_lists.get(), 0);
    }

    /// Check that names and versions which nobody gives are not kept.
    #[test]
    fn long_fields() {
        let long = "1".repeat(1 << 20);
        let os = format!("ID={long}\nVERSION_ID=\"{long}\"\n");
        let status = STATUS.replace("18.2.4-1jammy", &long);
        let files = [
            ("etc/os-release", os.as_str()),
            ("var/lib/dpkg/status", &status),
            ("var/lib/dpkg/info/ceph-osd.list", "/usr/bin/ceph-osd\n"),
            ("var/lib/dpkg/info/libc6.list", "/lib/libc.so.6\n"),
        ];
        assert_eq!(package(&files, &module("/usr/bin/ceph-osd")), None);
        assert_eq!(
            package(&files, &module("/lib/libc.so.6")).as_deref(),
            Some("libc6-dbg or libc6-dbgsym, version 2.35-0")
        );
    }

    /// Check that with RPM the package is named by the build-id that it provides.
    #[test]
    fn with_rpm() {
        let os = "ID=\"centos\"\nID_LIKE=\"rhel fedora\"\nVERSION_ID=\"9\"\n";
        let files = [("usr/lib/os-release", os)];
        let unknown = ModuleReport {
            build_id: None,
            ..module("/usr/bin/ceph-osd")
        };
        assert_eq!(
            package(&files, &module("/usr/bin/ceph-osd")).as_deref(),
            Some("debuginfo(build-id) = abcd (centos 9)")
        );
        assert_eq!(package(&files, &unknown), None);
        assert_eq!(package(&[], &module("/usr/bin/ceph-osd")), None);
    }

    /// Check that each of two containers is asked for its own file of the same path.
    #[test]
    fn two_containers() {
        let path = "/usr/bin/ceph-osd";
        let container = |process, version: &str| Container {
            open: root(&[
                ("var/lib/dpkg/status", &STATUS.replace("18.2.4", version)),
                ("var/lib/dpkg/info/ceph-osd.list", path),
            ]),
            processes: vec![ProcessId(process)],
        };
        let build_id = |process| BuildId::new(&[process as u8; 4]);
        let mapped = |process| Module {
            process: ProcessId(process),
            path: path.to_owned(),
            build_id: build_id(process),
            start: Avma(0),
            end: Avma(1),
            offset: FileOffset(0),
            bias: LoadBias(0),
            base: Svma(0),
            deleted: false,
        };
        let tables = Tables {
            modules: vec![mapped(1), mapped(2), mapped(3)],
            ..Tables::default()
        };
        let missing = |process| ModuleReport {
            build_id: build_id(process),
            missing_symtab: true,
            ..module(path)
        };
        let modules = [missing(2), missing(1)];
        let containers = [container(1, "1.1.1"), container(2, "2.2.2")];
        let found = super::super::supplies(&modules, &tables, &containers);
        let versions: Vec<bool> = found
            .iter()
            .zip(["2.2.2", "1.1.1"])
            .map(|(supply, version)| supply.package.as_ref().unwrap().contains(version))
            .collect();
        assert_eq!(versions, [true, true], "{found:?}");
        assert!(!containers.iter().any(|c| c.has(&missing(3), &tables)));
    }
}
