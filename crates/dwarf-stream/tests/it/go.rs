//! Functions of Go programs, against the symbol tables that the same programs have when they are not stripped.

use std::collections::HashMap;
use std::fs;
use std::path::Path;

use dwarf_stream::elf::{ElfFile, c_string, entries};
use dwarf_stream::go::GoFunctions;
use object::LittleEndian as LE;
use object::elf::{STT_FUNC, Sym64};

#[path = "../../../wcprof-testkit/src/go.rs"]
mod build;

use build::GoBuild;

/// Each has another layout of the table; the last is the one that is installed.
const TOOLCHAINS: [&str; 3] = ["go1.16.15", "go1.18.10", "local"];
const LIMIT: u64 = 64 << 20;

type Functions = Vec<(u64, u64, String)>;

fn functions(elf: &ElfFile) -> Functions {
    let functions = GoFunctions::read(elf, LIMIT).unwrap().expect("a table");
    let name = |name: &[u8]| String::from_utf8_lossy(name).into_owned();
    let all = functions.iter().map(|f| (f.start, f.end, name(f.name)));
    all.collect()
}

fn open(bytes: Vec<u8>) -> ElfFile {
    ElfFile::from_bytes(bytes).unwrap()
}

/// Functions of the symbol table by address.
fn symbols(elf: &ElfFile) -> HashMap<u64, Vec<String>> {
    let read = |name| elf.read(elf.section(name).unwrap(), LIMIT).unwrap();
    let (table, strings) = (read(".symtab"), read(".strtab"));
    let mut symbols: HashMap<u64, Vec<String>> = HashMap::new();
    for symbol in entries::<Sym64<LE>>(&table) {
        if symbol.st_type() == STT_FUNC {
            let name = String::from_utf8_lossy(c_string(&strings, symbol.st_name.get(LE)));
            let name = name.strip_suffix(".abi0").unwrap_or(&name).to_owned();
            symbols
                .entry(symbol.st_value.get(LE))
                .or_default()
                .push(name);
        }
    }
    symbols
}

/// Whether a name of the table is one of the symbol table, but for what linkers write in another way: type arguments, and
/// the number of a type within a function.
fn is_one_of(name: &str, symbols: &[String]) -> bool {
    let plain = |name: &str| {
        let name = name.replace('\u{b7}', ".");
        let cut = |(begin, rest): (&str, &str)| {
            let end = rest.rsplit_once(']').map_or("", |(_, end)| end);
            format!("{begin}[{end}")
        };
        name.split_once('[').map_or(name.clone(), cut)
    };
    symbols.iter().any(|symbol| plain(symbol) == plain(name))
}

/// Check names and bounds for each layout, with and without C and a fixed address, in stripped programs, and in those
/// that lost the names of their sections.
#[test]
fn like_symbol_tables() {
    let folder = Path::new(env!("CARGO_TARGET_TMPDIR"));
    for toolchain in TOOLCHAINS {
        for (pie, cgo) in [(false, false), (true, false), (false, true), (true, true)] {
            let build = |stripped| GoBuild {
                toolchain,
                pie,
                cgo,
                stripped,
            };
            let files = ["goroutines.go", "goroutines_c.go"];
            let program = |stripped| build(stripped).program(folder, &files);
            let (full, stripped) = match (program(false), program(true)) {
                (Ok(full), Ok(stripped)) => (full, stripped),
                (Err(reason), _) | (_, Err(reason)) => {
                    eprintln!("SKIPPED go::like_symbol_tables: {reason}");
                    continue;
                }
            };
            let what = format!("{:?}", build(true));
            let full = open(fs::read(full).unwrap());
            let found = functions(&full);
            let symbols = symbols(&full);
            assert!(found.len() > 1000, "{what}: {}", found.len());
            for (start, _, name) in &found {
                let at = symbols
                    .get(start)
                    .unwrap_or_else(|| panic!("{what}: {name}"));
                assert!(is_one_of(name, at), "{what}: {name}, and not {at:?}");
            }
            // Where a function ends another one begins, or there is no Go code.
            let starts: Vec<u64> = found.iter().skip(1).map(|(start, ..)| *start).collect();
            let ends: Vec<u64> = found.iter().map(|(_, end, _)| *end).collect();
            assert_eq!(ends[..starts.len()], starts, "{what}");
            for name in ["main.main", "main.readBelow", "runtime.goexit"] {
                assert!(found.iter().any(|f| f.2 == name), "{what}: {name}");
            }

            let mut bytes = fs::read(stripped).unwrap();
            let found = functions(&open(bytes.clone()));
            assert!(found.iter().any(|f| f.2 == "main.readBelow"), "{what}");
            // Offset and count of the section headers.
            bytes[0x28..0x30].fill(0);
            bytes[0x3c..0x40].fill(0);
            let unnamed = open(bytes.clone());
            assert!(unnamed.sections.is_empty());
            assert_eq!(functions(&unnamed), found, "{what}, without sections");

            // Bytes that were changed anywhere in the table give an error or other functions.
            let table = (0..bytes.len() - 8).step_by(8).find(|at| {
                matches!(
                    bytes[*at..*at + 8],
                    [0xfa | 0xf0 | 0xf1, 0xff, 0xff, 0xff, 0, 0, 1, 8]
                )
            });
            let table = table.expect("the table is in the file");
            for at in (table..table + 72).chain((table..bytes.len()).step_by(4099)) {
                let mut changed = bytes.clone();
                changed[at] ^= 0x5a;
                if let Ok(Some(functions)) = GoFunctions::read(&open(changed), LIMIT) {
                    let n = functions
                        .iter()
                        .map(|f| functions.frame_sizes(f.sizes).count());
                    assert!(n.sum::<usize>() < 64 << 20);
                }
            }
        }
    }
}

/// Check that a program in another language has no such table.
#[test]
fn no_go() {
    let own = fs::read("/proc/self/exe").unwrap();
    assert!(GoFunctions::read(&open(own), LIMIT).unwrap().is_none());
}
