//! Damaged traces, traces of later versions and files that are none, through what reads traces: a view of
//! what is whole with a warning, or an error that says what is wrong; never a panic.

use std::os::unix::process::ExitStatusExt as _;
use std::process::Command;

use nix::sys::signal::Signal;

use crate::support::{fixture, run, text};

/// The smallest trace of a real program, and one of another program.
const SMALLEST: &str = "qemu-idle.wct";
const OTHER: &str = "redis-server-load.wct";

fn whole() -> Vec<u8> {
    std::fs::read(fixture(SMALLEST)).expect("the trace is there")
}

/// Bytes of a trace before its first block, and of a block's header.
const FILE_HEADER: usize = 36;
const BLOCK_HEADER: usize = 44;
/// Where a block's header has its kind, and the kind of an index, which is a help that reports can do without.
const KIND_AT: usize = 8;
const INDEX: u8 = 4;

/// Begin and end of each block.
fn blocks(trace: &[u8]) -> Vec<(usize, usize)> {
    let mut blocks = Vec::new();
    let mut at = FILE_HEADER;
    while at < trace.len() {
        assert_eq!(&trace[at..at + 8], b"\x89wcblk\r\n");
        let len = u32::from_le_bytes(trace[at + 16..at + 20].try_into().expect("4 bytes"));
        let end = at + BLOCK_HEADER + len as usize;
        blocks.push((at, end));
        at = end;
    }
    blocks
}

/// CRC-32 (IEEE 802.3), bit by bit.
fn crc32(bytes: &[u8]) -> u32 {
    !bytes.iter().fold(!0_u32, |crc, byte| {
        (0..8).fold(crc ^ u32::from(*byte), |crc, _| {
            (crc >> 1) ^ (0xedb8_8320 & (crc & 1).wrapping_neg())
        })
    })
}

/// Makes the checksums of a block right again.
fn seal(trace: &mut [u8], (at, end): (usize, usize)) {
    let payload = crc32(&trace[at + BLOCK_HEADER..end]);
    trace[at + 20..at + 24].copy_from_slice(&payload.to_le_bytes());
    let header = crc32(&trace[at..at + 40]);
    trace[at + 40..at + 44].copy_from_slice(&header.to_le_bytes());
}

/// A folder with a trace to damage.
struct Bench {
    folder: tempfile::TempDir,
}

impl Bench {
    fn new() -> Self {
        let folder = tempfile::tempdir().expect("a temporary folder");
        Self { folder }
    }

    /// Runs a command on these bytes; gives the exit code and what is on standard error. `TRACE` in
    /// `args` is their file.
    fn run(&self, bytes: &[u8], args: &[&str]) -> (i32, String) {
        let path = self.folder.path().join("bad.wct");
        std::fs::write(&path, bytes).expect("the file is writable");
        let path = path.to_str().expect("the path is text");
        let args: Vec<&str> = args
            .iter()
            .map(|arg| if *arg == "TRACE" { path } else { arg })
            .collect();
        let output = run(&args);
        let errors = String::from_utf8_lossy(&output.stderr).into_owned();
        let is_refused = output.status.code() == Some(5);
        assert!(!is_refused || output.stdout.is_empty(), "{args:?}");
        (output.status.code().unwrap_or(-1), errors)
    }

    /// Checks that a damaged trace is refused, or read as far as it is whole, which is said.
    fn check(&self, bytes: &[u8], args: &[&str], what: &str) {
        let (code, errors) = self.run(bytes, args);
        let says = |words: &[&str]| words.iter().any(|word| errors.contains(word));
        match code {
            0 => assert!(says(&["cut", "damaged", "end"]), "{what}: silent: {errors}"),
            5 => assert!(says(&["failed to read"]), "{what}: {errors}"),
            // A view of what is left that shows nothing.
            1 => assert!(says(&["nothing to", "has no length"]), "{what}: {errors}"),
            code => panic!("{what}: exit code {code}: {errors}"),
        }
    }
}

const REPORT: &[&str] = &["report", "TRACE"];
const DOCTOR: &[&str] = &["doctor", "TRACE"];
const FIREFOX: &[&str] = &["report", "TRACE", "--format", "firefox", "--idle", "show"];

/// Check a trace cut at each byte of its header and of the first block's header, at some of that block's content, and around
/// the end of each block. (`cut_anywhere` in wcprof-trace cuts at every byte.)
#[test]
fn cut() {
    let (bench, trace) = (Bench::new(), whole());
    let diff = ["diff", "TRACE", OTHER];
    let blocks = blocks(&trace);
    let first = blocks[0].1;
    let headers = FILE_HEADER + BLOCK_HEADER;
    for len in (0..headers).chain((headers..first).step_by(31)) {
        // By turns: each reads the trace in the same way.
        let args = [REPORT, DOCTOR, &diff, FIREFOX][len % 4];
        let (code, errors) = bench.run(&trace[..len], args);
        assert_eq!(code, 5, "{args:?} of {len} bytes: {errors}");
        assert!(errors.contains("failed to read"), "{len} bytes: {errors}");
    }
    for &(at, end) in &blocks[1..] {
        for len in [at + 1, at + BLOCK_HEADER - 1, at + BLOCK_HEADER, end - 1] {
            for args in [REPORT, DOCTOR, &diff, FIREFOX] {
                bench.check(&trace[..len], args, &format!("{args:?} of {len} bytes"));
            }
        }
    }
}

/// Check a trace with a bit flipped in each field of each block's header and in its payload, with
/// checksums that tell it and with right ones.
#[test]
fn flipped() {
    let (bench, trace) = (Bench::new(), whole());
    let diff = ["diff", OTHER, "TRACE"];
    let mut n = 0;
    for block in blocks(&trace) {
        let (at, end) = block;
        let payload = at + BLOCK_HEADER;
        let fields = [0, KIND_AT, 9, 13, 17, 21, 25, 33, 41].map(|field| at + field);
        let content = [payload, (payload + end) / 2, end - 1];
        for place in fields.into_iter().chain(content) {
            let mut bytes = trace.clone();
            bytes[place] ^= 0x10;
            let what = format!("byte {place} of the block at {at}");
            let args = [REPORT, DOCTOR, &diff, FIREFOX][n % 4];
            n += 1;
            if trace[at + KIND_AT] != INDEX {
                bench.check(&bytes, args, &what);
            }
            // What is no longer covered by checksums can be anything, a whole trace too.
            seal(&mut bytes, block);
            let (code, errors) = bench.run(&bytes, args);
            assert!(
                [0, 1, 5].contains(&code),
                "{what}, sealed: {code}: {errors}"
            );
            assert!(!errors.contains("panicked"), "{what}, sealed: {errors}");
        }
    }
}

/// Check that a trace of a later version, and what is no trace, are refused with what to do.
#[test]
fn other_files() {
    let bench = Bench::new();
    let mut later = whole();
    later[8] = 77;
    let folded = b"main;f 10\nmain;g 20\n".to_vec();
    let out = bench.folder.path().join("out.wct").display().to_string();
    let merge = ["merge", OTHER, "TRACE", "-o", &out];
    for (bytes, words) in [
        (
            later,
            ["format version 77", "use the wcprof that recorded it"],
        ),
        (folded, ["not a wcprof trace", "failed to read"]),
        (
            b"\x1f\x8b\x08garbage".to_vec(),
            ["not a wcprof trace", "failed to read"],
        ),
        (b"PERFILE2 and so on".to_vec(), ["perf", "failed to read"]),
        (Vec::new(), ["trace", "failed to read"]),
    ] {
        for args in [
            REPORT,
            DOCTOR,
            &["diff", "TRACE", "TRACE"],
            &["check", "TRACE"],
            &merge,
        ] {
            let (code, errors) = bench.run(&bytes, args);
            assert_eq!(code, 5, "{args:?}: {errors}");
            for word in words.into_iter().chain(["bad.wct"]) {
                assert!(errors.contains(word), "{args:?}: {word:?} in {errors}");
            }
        }
    }
}

/// Check that two programs are compared with a warning.
#[test]
fn other_program() {
    let text = text(&["diff", SMALLEST, OTHER]);
    assert!(text.contains("warning: different programs"), "{text}");
}

/// Check that a small stack, and little room for addresses, are raised or an error that says what to do, and never a signal:
/// for root, who may raise what `ulimit` has lowered, and for others, who may not.
#[test]
fn small_limits() {
    let program = env!("CARGO_BIN_EXE_wcprof");
    let trace = fixture(SMALLEST);
    for (limit, name) in [("-s 64", "RLIMIT_STACK"), ("-v 100000", "RLIMIT_AS")] {
        let line = format!("ulimit {limit}; exec \"$0\" report \"$1\"");
        // Others than root cannot take rights away, and have none.
        for without_rights in ["", "setpriv --bounding-set=-all "] {
            let line = format!("{without_rights}sh -c '{line}' \"$0\" \"$1\"");
            let mut command = Command::new("sh");
            command.args(["-c", &line, program]).arg(&trace);
            let output = command.output().expect("sh starts");
            let said = String::from_utf8_lossy(&output.stderr);
            match output.status.code() {
                Some(0) => {}
                Some(_) if said.starts_with("setpriv:") => {}
                Some(1) => {
                    assert!(said.contains(name) && said.contains("ulimit"), "{said}");
                }
                other => panic!("{limit}: {other:?}: {said}"),
            }
        }
    }
}

/// Check that where addresses suffice for the loader there is an error, not a signal: saying so takes none.
#[test]
fn hardly_any_addresses() {
    let limited = |kib: u64| {
        // Root raises the limit unless it may not.
        let line = format!("ulimit -v {kib}; exec \"$0\" --version");
        let mut sh = Command::new("setpriv");
        sh.args(["--bounding-set=-all", "sh", "-c", &line]);
        let output = sh.arg(env!("CARGO_BIN_EXE_wcprof")).output();
        output.expect("setpriv starts")
    };
    // The kernel ends a program that does not fit by SIGSEGV while it starts it, and the loader ends with 127.
    let is_started = |kib| {
        let status = limited(kib).status;
        status.code() != Some(127) && status.signal() != Some(Signal::SIGSEGV as i32)
    };
    let (mut not, mut enough) = (1000, 120_000);
    while enough - not > 64 {
        let middle = (not + enough) / 2;
        match is_started(middle) {
            true => enough = middle,
            false => not = middle,
        }
    }
    for kib in (enough..enough + 2048).step_by(128) {
        let output = limited(kib);
        let said = String::from_utf8_lossy(&output.stderr);
        assert_eq!(output.status.code(), Some(1), "{kib}: {said}");
        assert!(said.contains("RLIMIT_AS is") && said.contains("ulimit -v"));
    }
}
