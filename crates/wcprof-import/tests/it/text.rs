//! Text of other profilers to traces: known trees, pieces of them, and damaged ones.

use proptest::prelude::*;
use wcprof_import::{Format, ImportError, Options};
use wcprof_trace::model::{Frame, Trace};
use wcprof_types::ThreadState;

use crate::import;

const FORWARD: &str = "sample: 0\nsample: 1\n\nThread 991 (tp_osd_tp) - 100 samples\n\
+ 100.00% clone3\n + 100.00% start_thread\n  + 75.00% work(int)\n  |+ 60.00% epoll_wait\n  |+ 15.00% crunch\n  + 25.00% rest\n";
const INVERTED: &str = "\nThread 991 (tp_osd_tp) - 100 samples\n\
+ 60.00% epoll_wait\n|+ 60.00% work(int)\n| + 60.00% start_thread\n|  + 60.00% clone3\n\
+ 25.00% rest\n|+ 25.00% start_thread\n| + 25.00% clone3\n\
+ 15.00% crunch\n + 15.00% work(int)\n  + 15.00% start_thread\n   + 15.00% clone3\n";

fn read(text: &str, format: Option<Format>) -> Result<Trace, ImportError> {
    let options = Options {
        format,
        name: "evidence.txt".to_owned(),
        ..Options::default()
    };
    import(text.as_bytes(), &options)
}

/// `thread: root;...;leaf state weight in ms`, sorted.
fn stacks(trace: &Trace) -> Vec<String> {
    let tables = &trace.tables;
    let name = |frame| &tables.names.symbols.as_ref().expect("names").frames[&frame][0].name;
    let mut lines: Vec<String> = trace
        .spans
        .iter()
        .map(|span| {
            let mut names = Vec::new();
            let mut next = span.stack.and_then(|s| tables.stacks[s.0 as usize].leaf);
            while let Some(node) = next.map(|id| tables.nodes[id.0 as usize]) {
                names.push(name(node.frame).as_str());
                next = node.caller;
            }
            names.reverse();
            let thread = &tables.threads[span.thread.0 as usize];
            let ms = span.weight as f64 / 1e6;
            format!(
                "{}/{}: {} {:?} {ms}",
                thread.name(),
                thread.tid,
                names.join(";"),
                span.state
            )
        })
        .collect();
    lines.sort();
    lines
}

/// Check that a forward tree and the inverted one of the same samples give the same stacks, and
/// that a call that blocks is a wait.
#[test]
fn both_directions() {
    let expected = [
        "tp_osd_tp/991: clone3;start_thread;rest Unknown 250",
        "tp_osd_tp/991: clone3;start_thread;work(int);crunch Unknown 150",
        "tp_osd_tp/991: clone3;start_thread;work(int);epoll_wait Blocked 600",
    ];
    assert_eq!(stacks(&read(FORWARD, None).expect("a trace")), expected);
    assert_eq!(stacks(&read(INVERTED, None).expect("a trace")), expected);
}

/// Check gdbpmp's head, its older indentation of two columns, and a quoted text.
#[test]
fn gdbpmp() {
    let old = "\n\nThread: 49 (bstore) - 10 samples \n\n+ 100.00% clone\n  + 100.00% run\n  | + 30.00% KernelDevice::aio_write\n  + 70.00% other\n";
    let trace = read(old, None);
    // `run` has siblings under `clone` that pass its share: what does not fit has no own time.
    let trace = trace.expect("a trace");
    assert!(trace.tables.header.engine.contains("gdbpmp"));
    let found = stacks(&trace);
    let wanted = "bstore/49: clone;run;KernelDevice::aio_write Unknown 30";
    assert!(found.iter().any(|line| line == wanted), "{found:?}");
    let quoted: String = FORWARD.lines().map(|line| format!("> {line}\n")).collect();
    let plain = stacks(&read(FORWARD, None).expect("a trace"));
    assert_eq!(stacks(&read(&quoted, None).expect("a trace")), plain);
}

/// Check that text which went through HTML gives the names that it had.
#[test]
fn escaped() {
    let plain = FORWARD.replace("work(int)", "Map<int, A&&>::work(int)");
    let escaped = plain
        .replace('&', "&amp;")
        .replace('<', "&lt;")
        .replace('>', "&gt;");
    let of = |text: &str| stacks(&read(text, None).expect("a trace"));
    assert_eq!(of(&escaped), of(&plain));
    assert!(
        of(&plain)
            .iter()
            .any(|line| line.contains("Map<int, A&&>::work(int)"))
    );
    let folded = "main;std::vector&lt;int&gt;::at 5\n";
    assert!(of(folded)[0].contains("std::vector<int>::at"));
}

/// Check that a pasted piece without a head is one thread, and that notes say so.
#[test]
fn piece() {
    let text =
        "+ 14.00% _aesni_ctr32_ghash_6x\n|+ 14.00% aesni_gcm_decrypt\n| + 14.00% aes_gcm_cipher\n";
    let trace = read(text, None).expect("a trace");
    let notes = trace.tables.header.notes.join("\n");
    assert!(
        notes.contains("no head") && notes.contains("evidence.txt"),
        "{notes}"
    );
    let total: u64 = trace.spans.iter().map(|s| s.weight).sum();
    assert_eq!(total, 1_000_000_000);
}

/// Check that folded stacks by thread come back as threads, others as one, and bad lines are noted.
#[test]
fn folded() {
    let trace = read(
        "io/7;main;read 30\nio/7;main 5\ncpu/8;main;f(int, char*) 2\n",
        None,
    );
    let trace = trace.expect("a trace");
    let expected = [
        "cpu/8: main;f(int, char*) Unknown 0.002",
        "io/7: main Unknown 0.005",
        "io/7: main;read Unknown 0.03",
    ];
    assert_eq!(stacks(&trace), expected);
    let text = "a;b 1\n".repeat(20) + "no weight\n";
    let trace = read(&text, None).expect("a trace");
    assert_eq!(trace.tables.threads.len(), 1);
    assert!(
        trace
            .tables
            .header
            .notes
            .iter()
            .any(|n| n.starts_with("1 lines"))
    );
    assert!(trace.spans.iter().all(|s| s.state == ThreadState::Unknown));
    assert!(matches!(trace.tables.frames[0], Frame::Unmapped(_)));
}

/// Check that fractions of weights add up, that comments and line ends of Windows are no part of a stack, and that negative weights are left out
/// and counted.
#[test]
fn weights() {
    let text =
        "# folded by hand\r\nmain;a 0.4\r\nmain;b 0.6\r\nmain;c 2.9\r\nmain;c .25\r\nmain;d -3\r\n";
    let options = Options {
        format: Some(Format::Folded),
        unit_ns: Some(1_000_000),
        ..Options::default()
    };
    let trace = import(text, &options).expect("folded stacks");
    let expected = [
        "imported/1: main;a Unknown 0.4",
        "imported/1: main;b Unknown 0.6",
        "imported/1: main;c Unknown 3.15",
    ];
    assert_eq!(stacks(&trace), expected);
    let notes = trace.tables.header.notes.join("\n");
    assert!(notes.contains("1 lines were not understood"), "{notes}");
}

/// Check that a differential is refused with what to do, and that each of its columns is a trace.
#[test]
fn differential() {
    let text = "main;work;hot 10 20\nmain;work;cold 5 3\nmain;gone 4 0\n";
    let refused = read(text, None)
        .expect_err("two weights a line")
        .to_string();
    assert!(
        refused.contains("--column 1") && refused.contains("wcprof diff"),
        "{refused}"
    );
    let column = |column| {
        let options = Options {
            column: Some(column),
            ..Options::default()
        };
        stacks(&import(text.as_bytes(), &options).expect("a trace"))
    };
    let first = [
        "imported/1: main;gone Unknown 0.004",
        "imported/1: main;work;cold Unknown 0.005",
        "imported/1: main;work;hot Unknown 0.01",
    ];
    assert_eq!(column(1), first);
    let second = [
        "imported/1: main;work;cold Unknown 0.003",
        "imported/1: main;work;hot Unknown 0.02",
    ];
    assert_eq!(column(2), second);
}

/// Check that a file of more names than any program has becomes a trace of bounded size, whose weights are all there, that
/// names beyond the limit are said to be missing, and that equal stacks are one span.
#[test]
fn more_names_than_programs_have() {
    const NAMES: usize = 300_000;
    let lines = (0..NAMES).map(|n| format!("root;f{n} 1\n"));
    let text: String = lines.chain(["root;f0 7\n".to_owned()]).collect();
    let trace = read(&text, Some(Format::Folded)).expect("folded stacks");
    let tables = &trace.tables;
    assert!(
        tables.frames.len() <= (1 << 18) + 1,
        "{}",
        tables.frames.len()
    );
    assert!(trace.spans.len() <= tables.frames.len());
    let weight: u64 = trace.spans.iter().map(|span| span.weight).sum();
    assert_eq!(weight, (NAMES as u64 + 7) * 1000);
    let notes = &tables.header.notes;
    let is_said = |note: &String| note.contains("frames are [other]");
    assert!(notes.iter().any(is_said), "{notes:?}");
}

/// Check that the wrong format is refused by the name of what was recognized.
#[test]
fn wrong_format() {
    let error = |text: &str, format| read(text, Some(format)).expect_err("an error").to_string();
    let text = error(FORWARD, Format::Folded);
    assert!(
        text.contains("not folded stacks") && text.contains("uwpmp"),
        "{text}"
    );
    let text = error("a;b 1\n", Format::Perf);
    assert!(
        text.contains("not perf.data") && text.contains("folded"),
        "{text}"
    );
    let text = error("{\"a\":1}", Format::Uwpmp);
    assert!(
        text.contains("not uwpmp's text") && text.contains("JSON"),
        "{text}"
    );
    let text = error("hello\n", Format::Perf);
    assert!(text.contains("not perf.data"), "{text}");
}

/// Check that sums that do not fit are errors.
#[test]
fn too_large() {
    let error = read("a;b 18446744073709551615\n", None).expect_err("an error");
    assert!(error.to_string().contains("limit"), "{error}");
    let text = "a;b 500000000000000\n".repeat(2);
    let error = read(&text, None).expect_err("an error");
    assert!(error.to_string().contains("limit"), "{error}");
}

/// What a trace must hold whatever it was made of: no thread has more time than it was observed.
fn check_sums(trace: &Trace) {
    let mut sums = vec![0_u64; trace.tables.threads.len()];
    for span in &trace.spans {
        sums[span.thread.0 as usize] += span.weight;
        assert!(span.weight <= span.end.0 - span.start.0);
    }
    for (thread, sum) in trace.tables.threads.iter().zip(sums) {
        // A tree whose children pass their parent gives more than there is; its lines are kept.
        assert!(thread.end >= thread.start && sum < u64::MAX / 2);
    }
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::default() })]

    /// Check that cut and changed text gives a trace that can be written, or an error.
    #[test]
    fn damaged(
        which in 0..7_usize,
        cut in 0..600_usize,
        changes in prop::collection::vec((0..9999_usize, any::<u8>()), 1..9),
    ) {
        let source = [
            FORWARD,
            INVERTED,
            "io/7;main;read 30\nio/7;main 5\nx/8;main;f 2\n",
            include_str!("../fixtures/dumps/gdb-full.txt"),
            include_str!("../fixtures/dumps/eu-stack-verbose.txt"),
            include_str!("../fixtures/dumps/pt-pmp-3.txt"),
            include_str!("../fixtures/cpu-clock.txt"),
        ][which];
        let mut bytes = source.as_bytes().to_vec();
        let n = bytes.len();
        for (at, byte) in changes {
            bytes[at % n] = byte;
        }
        bytes.truncate(n.saturating_sub(cut % n));
        let options = Options::default();
        if let Ok(trace) = import(bytes, &options) {
            check_sums(&trace);
        }
    }
}
