//! Mini debug info: `.gnu_debugdata`, made the way that the GDB manual says.

use std::process::Command;

use wcprof_symbols::SourceKind;

use crate::common::{Fixture, nm, run};

/// Puts the local functions of a module into its `.gnu_debugdata`, and strips it.
fn add(fixture: &Fixture) {
    let dir = fixture.dir.path();
    let mini = dir.join("mini");
    let exported: Vec<String> = names(nm(&fixture.path, &["-D"]));
    let keep: Vec<String> = names(nm(&fixture.path, &[]))
        .into_iter()
        .filter(|name| !exported.contains(name))
        .collect();
    let list = dir.join("keep");
    std::fs::write(&list, keep.join("\n")).unwrap();
    run(Command::new("objcopy")
        .arg("--only-keep-debug")
        .args([&fixture.path, &mini]));
    run(Command::new("objcopy")
        .args(["-S", "--remove-section=.comment"])
        .arg(format!("--keep-symbols={}", list.display()))
        .arg(&mini));
    run(Command::new("xz").arg("-f").arg(&mini));
    run(Command::new("objcopy")
        .arg("--strip-all")
        .arg(format!(
            "--add-section=.gnu_debugdata={}.xz",
            mini.display()
        ))
        .arg(&fixture.path));
}

fn names(symbols: Vec<(u64, String)>) -> Vec<String> {
    symbols.into_iter().map(|(_, name)| name).collect()
}

/// Check that local functions of a stripped module are named, exported ones as before, and that
/// the report says from where.
#[test]
fn local_functions() {
    let fixture = Fixture::build("gcc", "alias.c", &["-shared", "-fPIC", "-O1"]);
    let (hidden, entry) = (fixture.address("hidden"), fixture.address("entry"));
    add(&fixture);
    let result = fixture.symbolize(&[hidden, entry]);
    assert_eq!(result.frames[0][0].name, "hidden");
    assert_eq!(result.frames[1][0].name, "entry");
    assert_eq!(result.report.problems, []);
    let kinds: Vec<_> = result.report.sources.iter().map(|s| s.kind).collect();
    assert_eq!(kinds, [SourceKind::Module, SourceKind::MiniDebugInfo]);
    assert!(result.report.sources[1].n_symtab >= 1);
    assert!(!result.report.missing_symtab && result.report.missing_dwarf);
}

/// Check that a debug file still gives inline frames to a module with mini debug info.
#[test]
fn with_debug_file() {
    let fixture = Fixture::build("g++", "inline.cc", &["-O2", "-g"]);
    let total = fixture.address("_ZN4shop5totalERVlRKNS_4ItemE");
    let debug = fixture.build_id_path(&fixture.build_id());
    std::fs::create_dir_all(debug.parent().unwrap()).unwrap();
    std::fs::copy(&fixture.path, &debug).unwrap();
    let expected = fixture.frames(total + 3);
    add(&fixture);
    let result = fixture.symbolize(&[total + 3]);
    assert_eq!(result.frames[0], expected);
    assert!(expected.len() > 1);
    let kinds: Vec<_> = result.report.sources.iter().map(|s| s.kind).collect();
    assert_eq!(
        kinds,
        [
            SourceKind::Module,
            SourceKind::MiniDebugInfo,
            SourceKind::BuildIdFile
        ]
    );
}

/// Check that damaged mini debug info costs its names and is reported, and nothing else.
#[test]
fn damaged() {
    let fixture = Fixture::build("gcc", "alias.c", &["-shared", "-fPIC", "-O1"]);
    let (hidden, entry) = (fixture.address("hidden"), fixture.address("entry"));
    let garbage = fixture.dir.path().join("garbage");
    std::fs::write(&garbage, b"\xfd7zXZ\0and no more").unwrap();
    run(Command::new("objcopy")
        .arg("--strip-all")
        .arg(format!(
            "--add-section=.gnu_debugdata={}",
            garbage.display()
        ))
        .arg(&fixture.path));
    let result = fixture.symbolize(&[hidden, entry]);
    assert!(!result.frames[0][0].resolved);
    assert_eq!(result.frames[1][0].name, "entry");
    let text = result.report.problems[0].to_string();
    assert!(
        text.contains("left out .gnu_debugdata: failed to expand"),
        "{text}"
    );
    assert!(result.report.missing_symtab);
}
