//! DWARF that several files share, as `dwz -m` makes it.

use std::path::{Path, PathBuf};
use std::process::Command;

use wcprof_symbols::{LocalFiles, ModuleIdentity, ModuleSymbols, Root};

use crate::common::{Fixture, run, symbolize};

struct Shared {
    fixture: Fixture,
    identity: ModuleIdentity,
    address: u64,
    /// What is found before `dwz` changes it.
    expected: ModuleSymbols,
    common: PathBuf,
    _second: Fixture,
}

#[derive(Copy, Clone, PartialEq)]
enum Dwarf {
    Four,
    Five,
}

impl Shared {
    /// Two modules whose common part `dwz` moves to a third file, linked by `link`, in which `{dir}`
    /// is the folder of that file.
    fn build(link: &str) -> Self {
        Self::build_as(link, Dwarf::Four)
    }

    fn build_as(link: &str, dwarf: Dwarf) -> Self {
        let (version, option) = match dwarf {
            Dwarf::Four => ("-gdwarf-4", None),
            // Without the option dwz links them as in DWARF 4.
            Dwarf::Five => ("-gdwarf-5", Some("--dwarf-5")),
        };
        let flags = ["-O2", "-g", "-gz=none", version];
        let fixture = Fixture::build("g++", "inline.cc", &flags);
        let second = Fixture::build("g++", "inline.cc", &[&flags[..], &["-DSECOND"]].concat());
        let total = fixture.address("_ZN4shop5totalERVlRKNS_4ItemE");
        let address = (total..total + 32)
            .find(|address| fixture.frames(*address).len() == 3)
            .expect("some instruction comes from the innermost function");
        let expected = fixture.symbolize(&[address]);
        let common = fixture.dir.path().join("common.debug");
        let link = link.replace("{dir}", fixture.dir.path().to_str().unwrap());
        run(Command::new("dwz")
            .args(option)
            .args(["-m", common.to_str().unwrap(), "-M", &link])
            .args([&fixture.path, &second.path]));
        Self {
            identity: fixture.identity(),
            fixture,
            address,
            expected,
            common,
            _second: second,
        }
    }

    fn symbolize(&self) -> ModuleSymbols {
        let options = &self.fixture.options;
        symbolize(&self.identity, &LocalFiles, options, &[self.address])
    }
}

/// In hexadecimal digits.
fn build_id(path: &Path) -> String {
    let notes = run(Command::new("readelf").arg("-n").arg(path));
    let (_, id) = notes.split_once("Build ID: ").unwrap();
    id.split_whitespace().next().unwrap().to_owned()
}

/// Check that inline frames, names and lines stay what they were, and that the names really lie in
/// the other file.
#[test]
fn shared_names() {
    for (dwarf, section) in [
        (Dwarf::Four, ".gnu_debugaltlink"),
        (Dwarf::Five, ".debug_sup"),
    ] {
        let shared = Shared::build_as("common.debug", dwarf);
        let result = shared.symbolize();
        assert_eq!(result.report.problems, []);
        assert_eq!(result.frames, shared.expected.frames);

        // Without it, this is said, and the function keeps its name.
        std::fs::remove_file(&shared.common).unwrap();
        let result = shared.symbolize();
        let text = result.report.problems[0].to_string();
        let said = format!("({section}) was not found");
        assert!(text.contains(&said), "{text}");
        assert_eq!(
            result.frames[0].last().unwrap().name,
            shared.expected.frames[0].last().unwrap().name
        );
        assert_ne!(result.frames, shared.expected.frames);
    }
}

/// Check that the file is found by build-id and in `.dwz` when it is not where the link says.
#[test]
fn elsewhere() {
    let shared = Shared::build("/nowhere/common.debug");
    let id = build_id(&shared.common);
    for place in [
        shared
            .fixture
            .dir
            .path()
            .join(format!("debug/.build-id/{}/{}.debug", &id[..2], &id[2..])),
        shared.fixture.dir.path().join("debug/.dwz/common.debug"),
    ] {
        std::fs::create_dir_all(place.parent().unwrap()).unwrap();
        std::fs::copy(&shared.common, &place).unwrap();
        let result = shared.symbolize();
        assert_eq!(result.report.problems, [], "{}", place.display());
        assert_eq!(result.frames, shared.expected.frames);
        std::fs::remove_file(&place).unwrap();
    }
}

/// Check that a shared file of another build is refused.
#[test]
fn other_build() {
    for dwarf in [Dwarf::Four, Dwarf::Five] {
        let shared = Shared::build_as("common.debug", dwarf);
        let other = Fixture::build("g++", "inline.cc", &["-O1", "-g"]);
        std::fs::copy(&other.path, &shared.common).unwrap();
        let result = shared.symbolize();
        let text = result.report.problems[0].to_string();
        assert!(text.contains("common.debug` is for build-id"), "{text}");
        assert_ne!(result.frames, shared.expected.frames);
    }
}

/// Check that a path in `.gnu_debugaltlink` means a file inside the root that the module is in,
/// and not the one there is outside.
#[test]
fn inside_root() {
    let shared = Shared::build("{dir}/common.debug");
    let root = tempfile::tempdir().unwrap();
    std::fs::copy(&shared.fixture.path, root.path().join("module")).unwrap();
    let files = Root::new(root.path()).unwrap();
    let identity = ModuleIdentity {
        path: "/module".to_owned(),
        ..shared.identity.clone()
    };
    let options = &shared.fixture.options;
    let frames = || symbolize(&identity, &files, options, &[shared.address]).frames;
    assert!(shared.common.exists());
    assert_ne!(frames(), shared.expected.frames);
    let inside = shared.common.strip_prefix("/").unwrap();
    let inside = root.path().join(inside);
    std::fs::create_dir_all(inside.parent().unwrap()).unwrap();
    std::fs::copy(&shared.common, inside).unwrap();
    assert_eq!(frames(), shared.expected.frames);
}

/// Check that a shared file which links to itself, or back to the module, is read once.
#[test]
fn round() {
    for back in [false, true] {
        let shared = Shared::build("common.debug");
        let to = if back {
            &shared.fixture.path
        } else {
            &shared.common
        };
        let mut link = format!("{}\0", to.display()).into_bytes();
        let id = build_id(to);
        let digits = id.as_bytes().chunks(2);
        link.extend(digits.map(|pair| {
            let pair = std::str::from_utf8(pair).unwrap();
            u8::from_str_radix(pair, 16).unwrap()
        }));
        let section = shared.fixture.dir.path().join("link");
        std::fs::write(&section, link).unwrap();
        let added = format!(".gnu_debugaltlink={}", section.display());
        let mut objcopy = Command::new("objcopy");
        run(objcopy.args(["--add-section", &added]).arg(&shared.common));
        let result = shared.symbolize();
        assert_eq!(result.report.problems, []);
        assert_eq!(result.frames, shared.expected.frames);
    }
}
