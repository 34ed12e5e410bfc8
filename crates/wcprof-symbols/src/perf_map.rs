//! Addresses and a perf map (`/tmp/perf-PID.map`) in, names of code that a JIT compiler made out.
//!
//! A line says where a function begins, how long it is and its name
//! (`tools/perf/Documentation/jit-interface.txt`). A compiler appends a line when it makes or moves code,
//! so of several lines that hold an address the last one is right.

use std::io::{self, BufRead};
use std::rc::Rc;

use wcprof_trace::model::SymbolFrame;
use wcprof_types::Avma;

use crate::demangle::demangle;
use crate::jitdump::{JitCode, JitNames};
use crate::text_lines::read_line;
use crate::wanted::Wanted;

/// Largest part of a map that is read, bytes.
const MAX_BYTES: u64 = 256 << 20;
/// Most names given to addresses, replaced ones included: lines that all hold all addresses must not
/// take forever.
const MAX_WORK: usize = 1 << 26;
/// Most bytes of names that all addresses have, a name counted for each address.
const MAX_GIVEN: usize = 64 << 20;

/// Names lookup addresses by a perf map, which has one function at most for each. What comes after its first 256 MiB, after
/// very many overlapping lines, or after names that take very much memory, is not read.
///
/// # Errors
/// When the map cannot be read.
pub fn perf_map_names(map: impl BufRead, addresses: &[Avma]) -> io::Result<JitNames> {
    let wanted = Wanted::new(addresses);
    let mut found: Vec<Option<Rc<[u8]>>> = vec![None; wanted.len()];
    let mut out = JitNames::default();
    let mut map = map.take(MAX_BYTES);
    let mut line = Vec::new();
    let (mut work, mut given) = (0, 0);
    while read_line(&mut map, &mut line)? {
        let Some((start, end, name)) = parse(&line) else {
            out.n_malformed += 1;
            continue;
        };
        let inside = wanted.between(start, end);
        if inside.is_empty() {
            continue;
        }
        work += inside.len();
        let all = inside.len().saturating_mul(name.len());
        if work > MAX_WORK || all > MAX_GIVEN {
            out.cut = true;
            break;
        }
        let name: Rc<[u8]> = name.into();
        for slot in found.get_mut(inside).unwrap_or_default() {
            given += name.len();
            given -= slot.replace(Rc::clone(&name)).map_or(0, |old| old.len());
        }
        if given > MAX_GIVEN {
            out.cut = true;
            break;
        }
    }
    out.cut |= map.limit() == 0;
    let code = |name: &Rc<[u8]>| JitCode {
        since: 0,
        function: SymbolFrame {
            name: demangle(name),
            resolved: true,
            ..SymbolFrame::default()
        },
    };
    let codes = found.iter().map(|name| name.iter().map(code).collect());
    out.codes = wanted.in_order(addresses, &codes.collect::<Vec<_>>());
    Ok(out)
}

/// Start, end and name of `START SIZE NAME`; numbers are hexadecimal, some writers prefix them.
fn parse(line: &[u8]) -> Option<(u64, u64, &[u8])> {
    let mut fields = line.splitn(3, |&b| b == b' ');
    let mut number = || {
        let text = std::str::from_utf8(fields.next()?).ok()?;
        u64::from_str_radix(text.strip_prefix("0x").unwrap_or(text), 16).ok()
    };
    let (start, size) = (number()?, number()?);
    let name = fields.next()?.trim_ascii();
    let end = start.checked_add(size)?;
    (!name.is_empty() && end > start).then_some((start, end, name))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn names(map: &[u8], addresses: &[u64]) -> JitNames {
        let addresses: Vec<Avma> = addresses.iter().copied().map(Avma).collect();
        perf_map_names(map, &addresses).unwrap()
    }

    fn name(codes: &[JitCode]) -> Option<&str> {
        codes.first().map(|code| code.function.name.as_str())
    }

    /// Check names with spaces, bounds, prefixed numbers, and that the last line wins.
    #[test]
    fn lookup() {
        let map = b"1000 10 old\n0x2000 0x20 LazyCompile:~hot /srv/a b.js:1\n1008 8 new\n";
        let found = names(
            map,
            &[0x1000, 0x1007, 0x1008, 0x100f, 0x1010, 0x201f, 0x2020],
        );
        let found = found.codes.iter();
        let found: Vec<_> = found.map(|codes| name(codes).unwrap_or("-")).collect();
        let hot = "LazyCompile:~hot /srv/a b.js:1";
        assert_eq!(found, ["old", "old", "new", "new", "-", hot, "-"]);
    }

    /// Check that hostile lines are counted and name nothing, and that control characters are not kept.
    #[test]
    fn hostile() {
        let mut map =
            b"\n1000\n1000 10\n1000 10 \nzz 10 a\n1000 0 empty\nffffffffffffffff 10 over\n"
                .to_vec();
        map.extend(vec![b'1'; 1 << 20]);
        map.extend(b"\n1000 ffffffff \x1b[31m\xff\n2000 1 no end");
        let found = names(&map, &[0x1000, 0x2000]);
        assert_eq!(found.n_malformed, 8);
        let hostile = name(&found.codes[0]).unwrap();
        assert!(!hostile.contains('\u{1b}'), "{hostile:?}");
        assert_eq!(name(&found.codes[1]), Some("no end"));
        assert!(!found.cut);
    }

    /// Check that lines which all hold all addresses end the reading after a bounded effort.
    #[test]
    fn overlapping() {
        let map = b"0 ffffffff a\n".repeat(5000);
        let addresses: Vec<u64> = (0..20_000).collect();
        let found = names(&map, &addresses);
        assert!(found.cut);
        assert_eq!(name(&found.codes[7]), Some("a"));
    }

    /// Check that a long name of very many addresses ends the reading, but not names that are replaced.
    #[test]
    fn long_names() {
        let map = format!("0 ffffffff {}\n", "x".repeat(4000));
        let addresses: Vec<u64> = (0..20_000).collect();
        assert!(names(map.as_bytes(), &addresses).cut);
        let fits = names(map.repeat(10).as_bytes(), &addresses[..10_000]);
        assert!(!fits.cut);
        assert_eq!(name(&fits.codes[7]).map(str::len), Some(4000));
    }
}
