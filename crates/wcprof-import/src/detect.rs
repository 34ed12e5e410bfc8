//! The first bytes of a file to its format.

use crate::dump::is_dump_line;
use crate::error::{ImportError, Result};
use crate::folded::split_weight;
use crate::format::Format;
use crate::pmp::{format_of_head, is_tree_line};
use crate::pt_pmp::is_counted_stack;
use crate::script::sample_line;

/// What callgrind's files are, which begin in two ways, and what to do instead.
const CALLGRIND: (&str, &str) = (
    "a profile of callgrind",
    "it counts instructions of a simulation, and no time: record the program with `perf record -g`",
);

/// First bytes of files that are not imported, what they are, and what to do with them.
const FOREIGN: &[(&[u8], &str, &str)] = &[
    (
        b"\x89wcprof\n",
        "a trace of wcprof",
        "read it with `wcprof report`",
    ),
    (
        b"\x1f\x8b",
        "compressed by gzip",
        "unpack it first; a profile of pprof is folded by `go tool pprof -raw FILE | stackcollapse-go.pl`",
    ),
    (b"\x28\xb5\x2f\xfd", "compressed by zstd", "unpack it first"),
    (b"\xfd7zXZ", "compressed by xz", "unpack it first"),
    (b"BZh", "compressed by bzip2", "unpack it first"),
    (b"PK\x03\x04", "a ZIP archive", "unpack it first"),
    (
        b"\x7fELF",
        "a program or a core dump",
        "a core file needs no import: `wcprof report CORE` reads it",
    ),
    (
        b"\x80",
        "a pickle of Python, as gdbpmp saves it",
        "print it with `gdbpmp.py -i FILE` and import the text",
    ),
    (
        b"<?xml",
        "XML, perhaps a flame graph",
        "import the folded stacks that it was drawn from",
    ),
    (
        b"<svg",
        "an SVG flame graph",
        "import the folded stacks that it was drawn from",
    ),
    (
        b"{",
        "JSON",
        "profiles of speedscope, samply and Firefox cannot be imported; of samply's, record again with `perf record -g`",
    ),
    (
        b"FLR\0",
        "a recording of Java's Flight Recorder",
        "fold it with async-profiler's `jfrconv -o collapsed FILE OUT`",
    ),
    (b"# callgrind format", CALLGRIND.0, CALLGRIND.1),
    (b"version: 1\ncreator: callgrind", CALLGRIND.0, CALLGRIND.1),
];

/// Recognizes the format of a file by its first bytes.
///
/// # Errors
/// When it is empty, of no known format, or of one that is known but cannot be imported.
pub fn detect(head: &[u8]) -> Result<Format> {
    if head.is_empty() {
        return Err(ImportError::Empty);
    }
    if head.starts_with(b"PERFILE2") || head.starts_with(b"2ELIFREP") {
        return Ok(Format::Perf);
    }
    if let Some((_, what, advice)) = FOREIGN.iter().find(|(magic, ..)| head.starts_with(magic)) {
        return Err(ImportError::Foreign { what, advice });
    }
    let text = String::from_utf8_lossy(head);
    // The last line may be cut.
    let whole = match head.len() >= crate::limits::HEAD_BYTES {
        true => text.rfind('\n').map_or(&*text, |at| &text[..at]),
        false => &text,
    };
    let lines = whole.lines().filter(|l| !l.trim().is_empty());
    let (mut n_lines, mut n_folded, mut n_tree) = (0, 0, 0);
    let (mut n_dump, mut n_counted, mut n_script) = (0, 0, 0);
    for line in lines {
        n_lines += 1;
        if let Some(format) = format_of_head(line) {
            return Ok(format);
        }
        n_tree += usize::from(is_tree_line(line));
        n_folded += usize::from(split_weight(line).is_some());
        n_dump += usize::from(is_dump_line(line));
        n_counted += usize::from(is_counted_stack(line));
        n_script += usize::from(sample_line(line).is_some());
    }
    if n_tree > 0 && n_tree * 2 >= n_lines {
        return Ok(Format::Uwpmp);
    }
    if n_script > 0 && n_script > n_dump {
        return Ok(Format::PerfScript);
    }
    if n_counted * 2 >= n_lines && n_counted > 0 && n_counted >= n_folded {
        return Ok(Format::PtPmp);
    }
    // Of `bt full` most lines are variables.
    if n_dump > 1 && n_dump > n_folded {
        return Ok(Format::Dump);
    }
    if n_folded * 10 >= n_lines * 9 && n_lines > 0 {
        return Ok(Format::Folded);
    }
    if whole
        .lines()
        .any(|line| line.starts_with('@') && (line.starts_with("@[") || line.contains("]: ")))
    {
        return Err(ImportError::Foreign {
            what: "what bpftrace prints of a map",
            advice: "fold its stacks with stackcollapse-bpftrace.pl",
        });
    }
    Err(ImportError::NotRecognized {
        n_lines,
        n_folded,
        n_tree,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Check that each format is recognized, and that others are named.
    #[test]
    fn formats() {
        let found = |text: &str| detect(text.as_bytes()).map_err(|e| e.to_string());
        assert_eq!(found("PERFILE2...."), Ok(Format::Perf));
        assert_eq!(found("a;b 1\na;c 2\n"), Ok(Format::Folded));
        let uwpmp = "sample: 0\n\nThread 9 (x) - 2 samples\n+ 100.00% main\n";
        assert_eq!(found(uwpmp), Ok(Format::Uwpmp));
        let gdbpmp = "\n\nThread: 9 (x) - 2 samples \n\n+ 100.00% main\n";
        assert_eq!(found(gdbpmp), Ok(Format::Gdbpmp));
        assert_eq!(found("+ 14.00% f\n|+ 14.00% g\n"), Ok(Format::Uwpmp));
        let script = "a 1 [0] 1.5: cycles:\n\t55d0 f+0x1 (/x)\n\t55d1 g (/x)\n";
        assert_eq!(found(script), Ok(Format::PerfScript));
        let dump = "Thread 1 (LWP 7):\n#0  0x55d0 in f () at f.c:1\n#1  main () at f.c:2\n";
        assert_eq!(found(dump), Ok(Format::Dump));
        let counted = "Sat Nov 28 10:00:00 UTC 2026\n     12 poll(libc.so.6),main(f.c:2)\n";
        assert_eq!(found(counted), Ok(Format::PtPmp));
        for (text, word) in [
            ("", "empty"),
            ("\u{7f}ELF...", "program"),
            ("{\"a\": 1}", "JSON"),
            ("FLR\0\0\u{2}", "jfrconv"),
            (
                "version: 1\ncreator: callgrind-3.19.0\npid: 7\n",
                "callgrind",
            ),
            (
                "Attaching 1 probe...\n\n@[\n    read+14\n    main+7\n]: 12\n",
                "bpftrace",
            ),
            ("hello\nworld\n", "of 2 lines 0 look like folded"),
        ] {
            let error = found(text).unwrap_err();
            assert!(error.contains(word), "{text:?}: {error}");
        }
    }
}
