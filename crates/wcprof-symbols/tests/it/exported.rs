//! Names of exported functions: in versions, and in files without section headers.

use std::fs;
use std::process::Command;

use crate::common::{Fixture, data, nm, run};

/// A library with a function in two versions.
fn versions() -> Fixture {
    let script = format!("-Wl,--version-script={}", data("versions.map").display());
    Fixture::build("gcc", "versions.c", &["-O1", "-shared", "-fPIC", &script])
}

/// Addresses of exported names with their versions, by `nm`.
fn exported(fixture: &Fixture) -> impl Fn(&str) -> u64 + use<> {
    let all = nm(&fixture.path, &["-D"]);
    move |wanted: &str| {
        let mut all = all.iter();
        all.find(|(_, name)| name == wanted).expect("a symbol").0
    }
}

/// Check that two functions of one name are told apart by the version of the older one, and that the name of
/// today goes before an older version's, in a file with all symbols and in a stripped one.
#[test]
fn two_versions() {
    let fixture = versions();
    let at = exported(&fixture);
    for _ in ["whole", "stripped"] {
        let name = |symbol| fixture.name(at(symbol));
        assert_eq!(name("take@V_1"), "take@V_1");
        assert_eq!(name("take@@V_2"), "take");
        assert_eq!(name("give@@V_2"), "give");
        assert_eq!(at("give@V_1"), at("give@@V_2"));
        run(Command::new("strip").arg(&fixture.path));
    }
}

/// Check that exported names are found by what the dynamic linker uses where a file has no section headers, for each
/// kind of hash table.
#[test]
fn no_section_headers() {
    for style in ["gnu", "sysv", "both"] {
        let script = format!("-Wl,--version-script={}", data("versions.map").display());
        let style = format!("-Wl,--hash-style={style}");
        let flags = ["-O1", "-shared", "-fPIC", &script, &style];
        let fixture = Fixture::build("gcc", "versions.c", &flags);
        let at = exported(&fixture);
        let mut bytes = fs::read(&fixture.path).unwrap();
        // e_shoff, and e_shnum with e_shstrndx.
        bytes[0x28..0x30].fill(0);
        bytes[0x3c..0x40].fill(0);
        fs::write(&fixture.path, bytes).unwrap();
        let result = fixture.symbolize(&[at("take@V_1"), at("take@@V_2"), at("give@@V_2")]);
        assert_eq!(result.report.problems, [], "{style}");
        let names = result.frames.iter().map(|frames| frames[0].name.as_str());
        let names: Vec<_> = names.collect();
        assert_eq!(names, ["take@V_1", "take", "give"], "{style}");
    }
}
