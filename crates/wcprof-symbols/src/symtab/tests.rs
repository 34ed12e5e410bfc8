//! Tests of naming addresses, on symbols written by hand.

use proptest::prelude::{Strategy, any, prop, proptest};

use super::*;

const LOCAL: u8 = 0;
const GLOBAL: u8 = 1;
const WEAK: u8 = 2;
const NOTYPE: u8 = 0;
const FUNC: u8 = 2;

/// Name, binding, type, start, size.
type Line<'a> = (&'a str, u8, u8, u64, u64);

fn table(lines: &[Line<'_>]) -> SymbolTable {
    let text = || Place {
        is_code: true,
        start: 0x1000,
        end: 0x2000,
    };
    let places = Places {
        sections: vec![text(), text()],
        segments: Vec::new(),
    };
    let mut strings = vec![0];
    let mut symbols = Vec::new();
    for (name, binding, kind, start, size) in lines {
        let mut entry = u32::try_from(strings.len()).unwrap().to_le_bytes().to_vec();
        strings.extend(name.as_bytes());
        strings.push(0);
        entry.extend([binding << 4 | kind, 0, 1, 0]);
        entry.extend(start.to_le_bytes());
        entry.extend(size.to_le_bytes());
        symbols.push(entry);
    }
    let bytes = symbols.concat();
    let symbols = entries(&bytes).iter();
    let symbols = symbols.filter_map(|entry| symbol(entry, &places, &strings));
    let symbols = symbols.collect();
    SymbolTable {
        symbols,
        strings,
        which: Table::Full,
    }
}

fn check(lines: &[Line<'_>], address: u64, expected: Option<&str>) {
    let index = SymbolIndex::new(vec![table(lines)]);
    let name = index
        .at(Svma(address))
        .map(|n| std::str::from_utf8(n).unwrap());
    assert_eq!(name, expected, "{address:#x}");
}

/// Check how far a function without a size goes: to the next function or exported symbol, not to a
/// local label, and only in a full table.
#[test]
fn without_size() {
    let lines = [
        ("sized", GLOBAL, FUNC, 0x1000, 0x10),
        ("crc", GLOBAL, FUNC, 0x1100, 0),
        ("loop", LOCAL, NOTYPE, 0x1110, 0),
        ("table", GLOBAL, NOTYPE, 0x1200, 0),
        ("last", LOCAL, FUNC, 0x1f00, 0),
    ];
    let mut dynamic = table(&lines);
    let check = |index: &SymbolIndex, address, expected: Option<&str>| {
        let found = index.sizeless_around(Svma(address));
        let name = found.map(|(_, name)| std::str::from_utf8(name).unwrap());
        assert_eq!(name, expected, "{address:#x}");
    };
    let index = SymbolIndex::new(vec![table(&lines)]);
    for (address, expected) in [
        (0xfff, None),
        (0x1008, None),
        (0x1018, None),
        (0x1100, Some("crc")),
        (0x11ff, Some("crc")),
        (0x1200, None),
        (0x1efe, None),
        (0x1fff, Some("last")),
        (0x2000, None),
    ] {
        check(&index, address, expected);
    }
    dynamic.which = Table::Dynamic;
    check(&SymbolIndex::new(vec![dynamic]), 0x1100, None);
}

/// Check that a gap between two symbols is not named after the one before.
#[test]
fn gaps() {
    let lines = [
        ("a", GLOBAL, FUNC, 0x1000, 0x10),
        ("b", GLOBAL, FUNC, 0x1020, 0x10),
    ];
    for (address, name) in [
        (0xfff, None),
        (0x1000, Some("a")),
        (0x100f, Some("a")),
        (0x1010, None),
        (0x101f, None),
        (0x1020, Some("b")),
        (0x1030, None),
    ] {
        check(&lines, address, name);
    }
}

/// Check which alias is taken, one rule after the other.
#[test]
fn aliases() {
    let best = |names: &[(&str, u8, u8)], expected| {
        let lines: Vec<Line<'_>> = names
            .iter()
            .map(|(name, binding, kind)| (*name, *binding, *kind, 0x1000, 0x10))
            .collect();
        check(&lines, 0x1000, Some(expected));
        let reversed: Vec<Line<'_>> = lines.into_iter().rev().collect();
        check(&reversed, 0x1000, Some(expected));
    };
    best(&[("x", GLOBAL, NOTYPE), ("longer", LOCAL, FUNC)], "longer");
    best(
        &[("__malloc", LOCAL, FUNC), ("__libc_malloc", GLOBAL, FUNC)],
        "__libc_malloc",
    );
    best(
        &[("__libc_malloc", GLOBAL, FUNC), ("malloc", GLOBAL, FUNC)],
        "malloc",
    );
    best(&[("__poll", GLOBAL, FUNC), ("poll", WEAK, FUNC)], "poll");
    best(&[("aaa", WEAK, FUNC), ("bbbb", GLOBAL, FUNC)], "bbbb");
    best(&[("open64", WEAK, FUNC), ("open", WEAK, FUNC)], "open");
    best(&[("b", GLOBAL, FUNC), ("a", GLOBAL, FUNC)], "a");
}

/// Check that an alias of another size names only what it covers.
#[test]
fn sizes_differ() {
    let lines = [
        ("__short", GLOBAL, FUNC, 0x1000, 0x8),
        ("long", GLOBAL, FUNC, 0x1000, 0x10),
        ("s", GLOBAL, FUNC, 0x1020, 0x8),
        ("__long", GLOBAL, FUNC, 0x1020, 0x10),
    ];
    check(&lines, 0x1004, Some("long"));
    check(&lines, 0x100c, Some("long"));
    check(&lines, 0x1024, Some("s"));
    check(&lines, 0x102c, Some("__long"));
}

/// Check that of nested symbols the inner one names its part and the outer one the rest.
#[test]
fn nested() {
    let lines = [
        ("outer", GLOBAL, FUNC, 0x1000, 0x40),
        ("inner", LOCAL, NOTYPE, 0x1010, 0x10),
    ];
    check(&lines, 0x100f, Some("outer"));
    check(&lines, 0x1010, Some("inner"));
    check(&lines, 0x1020, Some("outer"));
}

/// Check that symbols of data, and starts or sizes outside their section, name nothing.
#[test]
fn not_code() {
    check(&[("data", GLOBAL, 1, 0x1000, 0x10)], 0x1000, None);
    check(&[("low", GLOBAL, FUNC, 0x800, 0x1000)], 0x1000, None);
    check(
        &[("high", GLOBAL, FUNC, 0x1ff0, 0x1000)],
        0x1ff8,
        Some("high"),
    );
    check(&[("high", GLOBAL, FUNC, 0x1ff0, 0x1000)], 0x2000, None);
    check(&[("wraps", GLOBAL, FUNC, 0x1000, u64::MAX)], 0x1000, None);
}

/// Check that a symbol without a size names no address by itself, only a known function start.
#[test]
fn sizeless() {
    let index = SymbolIndex::new(vec![table(&[
        ("_asm", GLOBAL, FUNC, 0x1000, 0),
        ("asm", GLOBAL, FUNC, 0x1000, 0),
        ("$x", LOCAL, NOTYPE, 0x1010, 0),
    ])]);
    assert_eq!(index.at(Svma(0x1000)), None);
    assert_eq!(index.sizeless_at(Svma(0x1000)), Some(&b"asm"[..]));
    assert_eq!(index.sizeless_at(Svma(0x1001)), None);
    assert_eq!(index.sizeless_at(Svma(0x1010)), None);
}

fn lines() -> impl Strategy<Value = Vec<(u64, u64, bool)>> {
    prop::collection::vec((0x1000..0x1040_u64, 0..0x20_u64, any::<bool>()), 0..20)
}

proptest! {
    /// Check the sweep against a search of all symbols: the last start that covers, then the best.
    #[test]
    fn like_a_search(lines in lines(), address in 0xff0..0x1070_u64) {
        let table = table(&lines.iter().map(|(start, size, global)| {
            ("f", u8::from(*global), FUNC, *start, *size)
        }).collect::<Vec<_>>());
        let expected = table.symbols.iter()
            .filter(|s| (s.start..s.end).contains(&address))
            .map(|s| (s.start, s.rank))
            .max();
        let index = SymbolIndex::new(vec![table]);
        let found = index.stretches.iter()
            .find(|s| (s.start..s.end).contains(&address))
            .map(|s| index.symbols[s.symbol as usize])
            .map(|s| (s.start, s.rank));
        assert_eq!(found, expected);
        assert_eq!(index.at(Svma(address)).is_some(), expected.is_some());
    }
}
