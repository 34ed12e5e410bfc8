//! Separate debug files: found, compared, refused by name.

use std::path::{Path, PathBuf};
use std::process::Command;

use wcprof_symbols::SourceKind;

use crate::common::{Fixture, build_id, run};

const TOTAL: &str = "_ZN4shop5totalERVlRKNS_4ItemE";
const NAME: &str = "shop::total(long volatile&, shop::Item const&)";

fn fixture() -> (Fixture, u64) {
    let fixture = Fixture::build("g++", "inline.cc", &["-O2", "-g"]);
    let address = fixture.address(TOTAL);
    (fixture, address)
}

/// Writes the debug file's name and checksum into the module.
fn add_link(fixture: &Fixture, debug: &Path) {
    run(Command::new("objcopy")
        .arg(format!("--add-gnu-debuglink={}", debug.display()))
        .arg(&fixture.path));
}

/// Check that a stripped module is named through the build-id tree, lines included.
#[test]
fn by_build_id() {
    let (fixture, address) = fixture();
    let debug = fixture.build_id_path(&fixture.build_id());
    fixture.split_debug(&debug);
    let result = fixture.symbolize(&[address]);
    assert_eq!(result.frames[0].last().unwrap().name, NAME);
    assert!(result.frames[0].last().unwrap().line.is_some());
    assert_eq!(result.report.problems, []);
    let source = result.report.sources.last().unwrap();
    assert_eq!(
        (source.kind, &source.path, source.dwarf),
        (SourceKind::BuildIdFile, &debug, true)
    );
    assert!(!result.report.missing_symtab && !result.report.missing_dwarf);
}

/// Check that the debug file alone gives the names when the module is gone or was replaced.
#[test]
fn module_gone() {
    let (fixture, address) = fixture();
    let identity = fixture.identity();
    let debug = fixture.build_id_path(&fixture.build_id());
    fixture.split_debug(&debug);
    let symbolize = || {
        let files = wcprof_symbols::LocalFiles;
        crate::common::symbolize(&identity, &files, &fixture.options, &[address])
    };
    std::fs::remove_file(&fixture.path).unwrap();
    let result = symbolize();
    assert_eq!(result.frames[0].last().unwrap().name, NAME);
    let [problem] = &result.report.problems[..] else {
        panic!("{:?}", result.report.problems)
    };
    assert!(problem.text.contains("no such file"), "{problem}");

    let other = Fixture::build("gcc", "alias.c", &["-shared", "-fPIC"]);
    std::fs::copy(&other.path, &fixture.path).unwrap();
    let result = symbolize();
    assert_eq!(result.frames[0].last().unwrap().name, NAME);
    assert_eq!(
        result.report.problems[0].to_string(),
        format!(
            "module: the file `{}` is build-id {}, the process runs {}",
            fixture.path.display(),
            other.build_id(),
            identity.build_id.as_ref().unwrap(),
        )
    );
}

/// Check that a debug file of another build is refused, and that the message names all.
#[test]
fn mismatch() {
    let (fixture, address) = fixture();
    let other = Fixture::build("g++", "inline.cc", &["-O1", "-g"]);
    let debug = fixture.build_id_path(&fixture.build_id());
    let wanted = fixture.build_id();
    fixture.split_debug(&debug);
    std::fs::copy(&other.path, &debug).unwrap();
    let result = fixture.symbolize(&[address]);
    assert_eq!(
        result.report.problems[0].to_string(),
        format!(
            "module: debug file `{}` is for build-id {}, the process runs {wanted}",
            debug.display(),
            build_id(&other.path),
        )
    );
    assert!(!result.frames[0][0].resolved);
    assert!(result.report.missing_symtab && result.report.missing_dwarf);
    assert_eq!(result.report.n_unresolved, 1);
}

/// Check the three places that `.gnu_debuglink` may mean.
#[test]
fn by_debug_link() {
    for place in [
        "{dir}/module.debug",
        "{dir}/.debug/module.debug",
        "{dir}/debug{dir}/module.debug",
    ] {
        let (fixture, address) = fixture();
        let dir = fixture.dir.path().to_str().unwrap();
        let debug = PathBuf::from(place.replace("{dir}", dir));
        fixture.split_debug(&debug);
        add_link(&fixture, &debug);
        let result = fixture.symbolize(&[address]);
        assert_eq!(result.frames[0].last().unwrap().name, NAME, "{place}");
        assert_eq!(result.report.problems, []);
        let source = result.report.sources.last().unwrap();
        assert_eq!((source.kind, &source.path), (SourceKind::DebugLink, &debug));
    }
}

/// Check that a debug file with another checksum than the link says is refused.
#[test]
fn wrong_checksum() {
    let (fixture, address) = fixture();
    let debug = fixture.dir.path().join("module.debug");
    fixture.split_debug(&debug);
    add_link(&fixture, &debug);
    // A byte behind everything that is read: only the checksum tells.
    let mut bytes = std::fs::read(&debug).unwrap();
    bytes.push(0);
    std::fs::write(&debug, bytes).unwrap();
    let result = fixture.symbolize(&[address]);
    assert!(!result.frames[0][0].resolved);
    let [problem] = &result.report.problems[..] else {
        panic!("{:?}", result.report.problems)
    };
    let begin = format!("debug file `{}` has CRC-32 0x", debug.display());
    assert!(problem.text.starts_with(&begin), "{problem}");
}

/// Check that a module without a build-id is not taken from this machine on trust.
#[test]
fn no_build_id() {
    let (fixture, address) = fixture();
    run(Command::new("objcopy")
        .args(["--remove-section", ".note.gnu.build-id"])
        .arg(&fixture.path));
    let mut identity = wcprof_symbols::ModuleIdentity {
        path: fixture.path.to_str().unwrap().to_owned(),
        build_id: None,
        pid: None,
        start: None,
    };
    let symbolize = |identity: &_| {
        let files = wcprof_symbols::LocalFiles;
        crate::common::symbolize(identity, &files, &fixture.options, &[address])
    };
    assert!(!symbolize(&identity).frames[0][0].resolved);
    // And one that had a build-id is not replaced by one that has none.
    identity.build_id = wcprof_types::BuildId::new(&[1, 2, 3]);
    let result = symbolize(&identity);
    let [problem] = &result.report.problems[..] else {
        panic!("{:?}", result.report.problems)
    };
    assert!(problem.text.contains("is build-id (none)"), "{problem}");
}

/// Check that over the memory limit function names stay and the report says what is missing.
#[test]
fn memory_limit() {
    let (mut fixture, address) = fixture();
    let full = fixture.frames(address + 3);
    fixture.options.max_memory = 1000;
    let result = fixture.symbolize(&[address + 3]);
    assert!(full.len() > 1 && result.frames[0].len() == 1);
    assert_eq!(result.frames[0][0].name, NAME);
    assert!(result.report.missing_dwarf);
    let text = result.report.problems[0].to_string();
    assert!(text.contains("of the memory limit"), "{text}");
}

/// Check that a machine without the module finds a copy of it, and a debug file beside it, by name
/// and build-id; and that a file of that name of another build is refused by name.
#[test]
fn by_name() {
    for (name, debug_name) in [
        ("module", "module.debug"),
        ("{path}", "{path}.debug"),
        (".build-id/{id}", ".build-id/{id}.debug"),
    ] {
        let (fixture, address) = fixture();
        let expected = fixture.symbolize(&[address + 3]).frames;
        let identity = fixture.identity();
        let id = fixture.build_id().to_string();
        let place = |name: &str| {
            let name = name.replace("{path}", identity.path.trim_start_matches('/'));
            let name = name.replace("{id}", &format!("{}/{}", &id[..2], &id[2..]));
            fixture.dir.path().join("debug").join(name)
        };
        fixture.split_debug(&place(debug_name));
        std::fs::rename(&fixture.path, place(name)).unwrap();
        let files = wcprof_symbols::LocalFiles;
        let symbolize =
            || crate::common::symbolize(&identity, &files, &fixture.options, &[address + 3]);
        let result = symbolize();
        assert_eq!(result.frames, expected, "{name}");
        assert_eq!(result.report.problems, [], "{name}");
        assert_eq!(result.report.sources[0].path, place(name));
        assert_eq!(result.report.sources[1].path, place(debug_name));
    }
    let (fixture, address) = fixture();
    let other = Fixture::build("g++", "inline.cc", &["-O1", "-g"]);
    let identity = fixture.identity();
    let wanted = fixture.build_id();
    let copy = fixture.dir.path().join("debug/module");
    std::fs::create_dir(copy.parent().unwrap()).unwrap();
    std::fs::copy(&other.path, &copy).unwrap();
    run(Command::new("objcopy")
        .arg("--strip-all")
        .arg(&fixture.path));
    let files = wcprof_symbols::LocalFiles;
    let result = crate::common::symbolize(&identity, &files, &fixture.options, &[address]);
    assert_eq!(
        result.report.problems[0].to_string(),
        format!(
            "module: debug file `{}` is for build-id {}, the process runs {wanted}",
            copy.display(),
            other.build_id(),
        )
    );
}
