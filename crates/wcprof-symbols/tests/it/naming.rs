//! Which name an address gets.

use std::process::Command;

use wcprof_symbols::Inlines;
use wcprof_trace::model::SymbolFrame;

use crate::common::{Fixture, data, line_of, run};

/// Name, line, inlined.
type Short = (String, Option<u32>, bool);

fn short(frames: &[SymbolFrame]) -> Vec<Short> {
    frames
        .iter()
        .map(|f| (f.name.clone(), f.line, f.inlined))
        .collect()
}

fn expected_chain() -> Vec<Short> {
    let line = |mark| Some(line_of("inline.cc", mark));
    vec![
        (
            "shop::innermost(long volatile&)".to_owned(),
            line("line of innermost"),
            true,
        ),
        (
            "shop::middle(long volatile&)".to_owned(),
            line("line of middle"),
            true,
        ),
        (
            "shop::total(long volatile&, shop::Item const&)".to_owned(),
            line("line of total"),
            false,
        ),
    ]
}

/// The frames at every address of `total`.
fn chains(fixture: &Fixture) -> Vec<Vec<SymbolFrame>> {
    let start = fixture.address("_ZN4shop5totalERVlRKNS_4ItemE");
    let addresses: Vec<u64> = (start..start + 12).collect();
    let result = fixture.symbolize(&addresses);
    assert_eq!(result.report.problems, []);
    result.frames
}

/// Check inline frames and their lines, in files with DWARF 4 and 5, PIE and not.
#[test]
fn inline_chain() {
    for flags in [
        ["-gdwarf-5", "-pie"],
        ["-gdwarf-4", "-pie"],
        ["-gdwarf-5", "-no-pie"],
    ] {
        let fixture = Fixture::build("g++", "inline.cc", &[&["-O2"], &flags[..]].concat());
        let chains = chains(&fixture);
        assert!(
            chains.iter().any(|c| short(c) == expected_chain()),
            "{chains:?}"
        );
        let files = chains.iter().flatten().map(|f| f.file.as_deref());
        for file in files {
            assert_eq!(file, data("inline.cc").to_str());
        }
    }
}

/// Check that compressed sections give the same as plain ones, in each format.
#[test]
fn compressed_sections() {
    let fixture = Fixture::build("g++", "inline.cc", &["-O2", "-g"]);
    let plain = chains(&fixture);
    // zstd: `dwarf.rs`, since not every objcopy can make it.
    for format in ["zlib-gabi", "zlib-gnu"] {
        let flag = format!("--compress-debug-sections={format}");
        run(Command::new("objcopy").arg(flag).arg(&fixture.path));
        let sections = run(Command::new("readelf").arg("-SW").arg(&fixture.path));
        assert!(
            sections.contains(".zdebug_") == (format == "zlib-gnu"),
            "{sections}"
        );
        assert_eq!(chains(&fixture), plain, "{format}");
        run(Command::new("objcopy")
            .arg("--decompress-debug-sections")
            .arg(&fixture.path));
    }
}

/// Check that without inline frames only the function itself is named, and no line is.
#[test]
fn without_inlines() {
    let mut fixture = Fixture::build("g++", "inline.cc", &["-O2", "-g"]);
    fixture.options.inlines = Inlines::No;
    for frames in chains(&fixture) {
        let name = "shop::total(long volatile&, shop::Item const&)";
        assert_eq!(short(&frames), [(name.to_owned(), None, false)]);
    }
}

/// Check that the split-off part of a function is told from the function, with DWARF and without.
#[test]
fn cold_part() {
    for debug in ["-g", "-g0"] {
        let fixture = Fixture::build("g++", "inline.cc", &["-O2", debug]);
        let cold = fixture.address("_ZN4shop7checkedEl.cold");
        assert_eq!(fixture.name(cold), "shop::checked(long) [.cold]");
        let hot = fixture.address("_ZN4shop7checkedEl");
        assert_eq!(fixture.name(hot), "shop::checked(long)");
    }
}

/// Check that the DWARF of a file without symbols still names functions, in full.
#[test]
fn dwarf_without_symbols() {
    let fixture = Fixture::build("g++", "inline.cc", &["-O2", "-g"]);
    let main = fixture.address("main");
    let total = fixture.address("_ZN4shop5totalERVlRKNS_4ItemE");
    run(Command::new("objcopy")
        .args(["--strip-all", "--wildcard", "--keep-section=.debug_*"])
        .arg(&fixture.path));
    let result = fixture.symbolize(&[main, total]);
    assert!(result.report.missing_symtab);
    assert_eq!(result.frames[0].last().unwrap().name, "main");
    let name = "shop::total(long volatile&, shop::Item const&)";
    assert_eq!(result.frames[1].last().unwrap().name, name);
}

/// Check that of several names the one that callers use is shown, and that stubs of the PLT are
/// named after their target in each layout.
#[test]
fn aliases_and_plt() {
    for flags in [
        ["-fcf-protection=none", "-Wl,-z,lazy", "-fplt"],
        ["-fcf-protection=full", "-Wl,-z,lazy,-z,ibtplt", "-fplt"],
        ["-fcf-protection=none", "-Wl,-z,now", "-fplt"],
    ] {
        let flags = [&["-O1", "-shared", "-fPIC"], &flags[..]].concat();
        let fixture = Fixture::build("gcc", "alias.c", &flags);
        assert_eq!(fixture.name(fixture.address("__real_poll")), "poll_it");
        assert_eq!(fixture.name(fixture.address("hidden")), "hidden");
        let listing = run(Command::new("objdump").args(["-d"]).arg(&fixture.path));
        let mut stubs = 0;
        for line in listing.lines() {
            let Some((address, name)) = line
                .strip_suffix("@plt>:")
                .and_then(|rest| rest.split_once(" <"))
            else {
                continue;
            };
            let address = u64::from_str_radix(address, 16).unwrap();
            assert_eq!(
                fixture.name(address + 4),
                format!("{name}@plt"),
                "{flags:?}"
            );
            stubs += 1;
        }
        assert!(stubs >= 4, "{listing}");
    }
}

/// Check assembler functions: a size or an FDE must cover the address, never the symbol before.
#[test]
fn sizes() {
    let fixture = Fixture::build("gcc", "sizes.s", &["-shared"]);
    let at = |symbol: &str, offset: u64| fixture.name(fixture.address(symbol) + offset);
    let unnamed =
        |symbol: &str, offset: u64| format!("module+{:#x}", fixture.address(symbol) + offset);
    assert_eq!(at("sized", 1), "sized");
    // Code of which nothing is known is one function from where the last one ends.
    assert_eq!(at("sized", 3), unnamed("sized", 2));
    assert_eq!(at("sized", 2), unnamed("sized", 2));
    assert_eq!(at("with_cfi", 3), "with_cfi");
    assert_eq!(at("inside", 1), "with_cfi");
    assert_eq!(at("with_cfi", 4), unnamed("with_cfi", 4));
    assert_eq!(at("bare", 1), "bare");
    // Without a name, the start of the FDE stands for the function.
    assert_eq!(
        at("nameless_inside", 1),
        unnamed("nameless_inside", 0).replace(
            &format!("{:x}", fixture.address("nameless_inside")),
            &format!("{:x}", fixture.address("nameless_inside") - 1),
        )
    );
    let frames = fixture.frames(fixture.address("nameless_inside"));
    assert!(!frames[0].resolved);
    assert!(fixture.frames(fixture.address("sized"))[0].resolved);
}

/// Check that offsets of unnamed functions count from the module's base, as in a non-PIE.
#[test]
fn non_pie() {
    use wcprof_symbols::{AddressQuery, LocalFiles, ModuleQuery, symbolize_modules};
    use wcprof_types::Svma;

    let fixture = Fixture::build("g++", "inline.cc", &["-O2", "-no-pie"]);
    let address = fixture.address("main");
    assert!(address > 0x40_0000);
    let query = |function: Option<u64>| ModuleQuery {
        module: fixture.identity(),
        base: Svma(0x40_0000),
        addresses: vec![AddressQuery {
            address: Svma(address + 4),
            function: function.map(Svma),
        }],
    };
    let name = |query| {
        let result = symbolize_modules(&[query], &LocalFiles, &fixture.options);
        result[0].frames[0][0].name.clone()
    };
    assert_eq!(name(query(None)), "main");
    run(Command::new("objcopy")
        .arg("--strip-all")
        .arg(&fixture.path));
    let expected = format!("module+{:#x}", address - 0x40_0000);
    assert_eq!(name(query(None)), expected);
    assert_eq!(name(query(Some(address))), expected);
}

/// Check that a local function whose name is stripped has the name of the exported one that jumps to it, and none where
/// anything else refers to it.
#[test]
fn continued() {
    for flags in [
        &["-O2", "-fPIC", "-shared"][..],
        &["-O2", "-fPIC", "-shared", "-Wl,-z,pack-relative-relocs"],
        &["-O2", "-fPIC", "-shared", "-fcf-protection"],
    ] {
        let fixture = Fixture::build("gcc", "continued.c", flags);
        let locals = ["slow", "timed", "called", "pointed", "deep", "middle"];
        let addresses = locals.map(|name| fixture.address(name) + 1);
        run(Command::new("strip").arg(&fixture.path));
        let result = fixture.symbolize(&addresses);
        assert_eq!(result.report.problems, []);
        let names = result.frames.iter().map(|frames| &frames[0]);
        let names = names.map(|f| f.resolved.then_some(f.name.as_str()));
        let names: Vec<_> = names.collect();
        let expected = [
            Some("take"),
            Some("take_for [or 1 other]"),
            None,
            None,
            None,
            None,
        ];
        assert_eq!(names, expected, "{flags:?}");
    }
}
