//! Jitdumps made of bytes.

use super::*;
use proptest::prelude::*;

fn header(flags: u64) -> Vec<u8> {
    let mut out = Vec::new();
    for word in [MAGIC, 1, HEADER as u32, 62, 0, 7] {
        out.extend(word.to_ne_bytes());
    }
    out.extend(0_u64.to_ne_bytes());
    out.extend(flags.to_ne_bytes());
    out
}

fn record(id: u32, time: u64, body: &[u8]) -> Vec<u8> {
    let mut out = Vec::new();
    out.extend(id.to_ne_bytes());
    out.extend(((RECORD_HEADER + body.len()) as u32).to_ne_bytes());
    out.extend(time.to_ne_bytes());
    out.extend(body);
    out
}

fn words(words: &[u64]) -> Vec<u8> {
    words.iter().flat_map(|w| w.to_ne_bytes()).collect()
}

fn load(time: u64, address: u64, size: u64, index: u64, name: &str) -> Vec<u8> {
    let mut body = words(&[7 | 7 << 32, address, address, size, index]);
    body.extend(name.bytes());
    body.push(0);
    body.extend(vec![0x90; size as usize]);
    record(CODE_LOAD, time, &body)
}

fn moved(time: u64, old: u64, new: u64, size: u64, index: u64) -> Vec<u8> {
    record(CODE_MOVE, time, &words(&[7, new, old, new, size, index]))
}

fn debug_info(code: u64, lines: &[(u64, u32, &[u8])]) -> Vec<u8> {
    let mut body = words(&[code, lines.len() as u64]);
    for (address, line, file) in lines {
        body.extend(address.to_ne_bytes());
        body.extend(line.to_ne_bytes());
        body.extend(0_u32.to_ne_bytes());
        body.extend(*file);
        body.push(0);
    }
    record(CODE_DEBUG_INFO, 0, &body)
}

fn read(parts: &[Vec<u8>], addresses: &[u64]) -> JitNames {
    let addresses: Vec<Avma> = addresses.iter().copied().map(Avma).collect();
    jitdump_names(parts.concat().as_slice(), &addresses).unwrap()
}

fn shown(codes: &[JitCode]) -> Vec<(u64, &str)> {
    codes
        .iter()
        .map(|c| (c.since, c.function.name.as_str()))
        .collect()
}

/// Check names inside code, code that takes the place of other code, and code that moves.
#[test]
fn loads_and_moves() {
    let found = read(
        &[
            header(0),
            load(10, 0x1000, 0x20, 1, "first"),
            load(20, 0x2000, 0x20, 2, "_ZN3foo3barEv"),
            load(30, 0x1000, 0x10, 3, "second"),
            record(4, 35, &[0; 24]),
            moved(40, 0x2000, 0x3000, 0x20, 2),
            moved(50, 0x9000, 0x3000, 0x20, 9),
            record(CODE_CLOSE, 60, &[]),
            load(70, 0x3000, 0x20, 4, "after the end"),
        ],
        &[0x1005, 0x1015, 0x201f, 0x2020, 0x3000],
    );
    assert_eq!(shown(&found.codes[0]), [(10, "first"), (30, "second")]);
    assert_eq!(shown(&found.codes[1]), [(10, "first")]);
    assert_eq!(shown(&found.codes[2]), [(20, "foo::bar()")]);
    assert!(found.codes[3].is_empty());
    assert_eq!(shown(&found.codes[4]), [(40, "foo::bar()")]);
    // The code of index 9 was never loaded.
    assert_eq!((found.n_malformed, found.cut), (1, false));
}

/// Check that times of a processor's counter are not taken for others.
#[test]
fn other_clock() {
    let found = read(
        &[header(ARCH_TIMESTAMP), load(10, 0x1000, 1, 1, "a")],
        &[0x1000],
    );
    assert_eq!(shown(&found.codes[0]), [(0, "a")]);
}

/// Check source lines: the last one at or before the address, the mark for the file before, and that
/// lines of other code are not taken.
#[test]
fn lines() {
    let table = debug_info(
        0x1000,
        &[
            (0x1000, 3, b"/a.js"),
            (0x1008, 4, b"\xff"),
            (0x1010, 9, b"/b.js"),
        ],
    );
    let of_other = debug_info(0x8000, &[(0x2000, 1, b"/c.js")]);
    let found = read(
        &[
            header(0),
            table,
            load(1, 0x1000, 0x20, 1, "f"),
            of_other,
            load(2, 0x2000, 0x20, 2, "g"),
        ],
        &[0x1001, 0x100a, 0x101f, 0x2001],
    );
    let line = |i: usize| {
        let function = &found.codes[i][0].function;
        (function.file.as_deref(), function.line)
    };
    assert_eq!(line(0), (Some("/a.js"), Some(3)));
    assert_eq!(line(1), (Some("/a.js"), Some(4)));
    assert_eq!(line(2), (Some("/b.js"), Some(9)));
    assert_eq!(line(3), (None, None));
}

/// Check that a dump cut at any byte gives what comes before the cut, and that nothing is said: it is still written.
#[test]
fn cut_anywhere() {
    let whole = [
        header(0),
        load(1, 0x1000, 4, 1, "a"),
        load(2, 0x2000, 4, 2, "b"),
    ]
    .concat();
    for n in 0..=whole.len() {
        match jitdump_names(&whole[..n], &[Avma(0x1000), Avma(0x2000)]) {
            Ok(found) => {
                assert!(n >= HEADER);
                assert_eq!(found.codes[1].is_empty(), n < whole.len() - 4, "{n}");
                assert_eq!((found.cut, found.n_malformed), (false, 0), "{n}");
            }
            Err(error) => {
                assert!(
                    n < HEADER && matches!(error, JitdumpError::Unwritten),
                    "{n}"
                );
            }
        }
    }
}

/// Check that other files and versions are refused by name.
#[test]
fn foreign() {
    let error = jitdump_names(&b"JiTD0000000000000000000000000000000000000"[..], &[]).unwrap_err();
    assert!(matches!(error, JitdumpError::Magic(_)));
    let mut newer = header(0);
    newer[4] = 2;
    assert!(matches!(
        jitdump_names(newer.as_slice(), &[]),
        Err(JitdumpError::Version(2))
    ));
}

/// Check that records with impossible sizes end the reading, and that code which claims everything
/// costs a bounded effort.
#[test]
fn hostile() {
    let small = [header(0), words(&[4 << 32, 0])].concat();
    let found = jitdump_names(small.as_slice(), &[Avma(1)]).unwrap();
    assert!(found.cut && found.n_malformed == 1);
    let large = [header(0), words(&[u64::from(u32::MAX) << 32, 0])].concat();
    assert!(jitdump_names(large.as_slice(), &[Avma(1)]).unwrap().cut);

    let addresses: Vec<u64> = (1..=1 << 16).collect();
    let mut everywhere = words(&[7, 0, 0, u64::MAX, 1]);
    everywhere.extend(b"x\0");
    let mut parts = vec![header(0)];
    parts.extend(vec![record(CODE_LOAD, 1, &everywhere); 1000]);
    let found = read(&parts, &addresses);
    assert!(found.cut);
    let n: usize = found.codes.iter().map(Vec::len).sum();
    assert!(n <= MAX_WORK);
    // Codes of the shortest name take memory, too.
    assert!(n * size_of::<JitCode>() <= MAX_GIVEN, "{n}");
}

/// Check that the names kept for moves are few, however short they are.
#[test]
fn many_moves() {
    let n = (MAX_KEPT / size_of::<(u64, String)>()) as u64;
    let mut dump = header(0);
    for index in 0..n + 10 {
        dump.extend(load(1, 0, 0, index, ""));
    }
    dump.extend(moved(2, 0, 0x1000, 1, 7));
    dump.extend(moved(3, 0, 0x1000, 1, n + 7));
    let found = jitdump_names(dump.as_slice(), &[Avma(0x1000)]).unwrap();
    assert_eq!((found.codes[0].len(), found.n_malformed), (1, 1));
}

/// Check that long names and file names, given to every address again and again, end the reading at a
/// bounded amount of text, and that a table of lines in no order is searched and not gone through.
#[test]
fn long_texts() {
    let addresses: Vec<u64> = (1..=1 << 14).collect();
    let path = vec![b'p'; MAX_NAME];
    let lines: Vec<(u64, u32, &[u8])> = (0..1 << 16)
        .map(|i: u64| match i {
            0 => (0, 1, &path[..]),
            // Every other one goes back, so that none takes the place of the one before.
            i => (i % 2 * (i >> 2), 2, &b"\xff"[..]),
        })
        .collect();
    let mut everywhere = words(&[7, 0, 0, u64::MAX, 1]);
    everywhere.extend(vec![b'n'; MAX_NAME]);
    everywhere.push(0);
    let table = debug_info(0, &lines);
    let mut parts = vec![header(0)];
    for _ in 0..20 {
        parts.extend([table.clone(), record(CODE_LOAD, 1, &everywhere)]);
    }
    let found = read(&parts, &addresses);
    assert!(found.cut);
    let text = |code: &JitCode| {
        let function = &code.function;
        function.name.len() + function.file.as_ref().map_or(0, String::len)
    };
    let n: usize = found.codes.iter().flatten().map(text).sum();
    assert!(n > MAX_GIVEN / 2 && n <= MAX_GIVEN, "{n}");
}

proptest! {
    /// Check that no bytes behind a header make the reader panic.
    #[test]
    fn any_bytes(bytes in proptest::collection::vec(prop_oneof![0u8..5, any::<u8>()], 0..600)) {
        let dump = [header(0), bytes].concat();
        let _ = jitdump_names(dump.as_slice(), &[Avma(0), Avma(3), Avma(1 << 40)]);
    }
}
