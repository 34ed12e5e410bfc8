//! Dumps of stacks that debuggers made of a program whose stacks are known by its source (`fixtures/dumps/waits.c`), and the text of
//! `perf script` beside its `perf.data`.

use std::collections::BTreeMap;

use wcprof_import::Options;
use wcprof_trace::model::{SNAPSHOT_NS, Span, Trace};
use wcprof_types::ThreadState;

use crate::import;

/// Functions of the program, root first, by which its threads are known, how many stand there, and whether they wait.
const TRUTH: [(&str, usize, bool); 6] = [
    ("busy;spin", 1, false),
    ("handler;on_signal", 1, true),
    ("main", 1, true),
    ("poller;wait_for_input", 3, true),
    ("sleeper;doze", 1, true),
    ("writer;take", 2, true),
];
const OWN: [&str; 11] = [
    "main",
    "writer",
    "take",
    "sleeper",
    "doze",
    "poller",
    "wait_for_input",
    "busy",
    "spin",
    "handler",
    "on_signal",
];

fn fixture(name: &str) -> String {
    let path = format!("{}/tests/fixtures/{name}", env!("CARGO_MANIFEST_DIR"));
    std::fs::read_to_string(path).expect("a fixture")
}

fn read(text: &str) -> Trace {
    let options = Options::default();
    import(text.as_bytes(), &options).expect("a trace")
}

/// The functions of a span, root first.
fn functions<'t>(trace: &'t Trace, span: &Span) -> Vec<&'t str> {
    let tables = &trace.tables;
    let symbols = tables.names.symbols.as_ref().expect("names");
    let mut next = span.stack.and_then(|s| tables.stacks[s.0 as usize].leaf);
    let mut names = Vec::new();
    while let Some(node) = next.map(|id| tables.nodes[id.0 as usize]) {
        names.push(symbols.frames[&node.frame][0].name.as_str());
        next = node.caller;
    }
    names.reverse();
    names
}

/// The threads by where in the program they stand, and how many there wait.
fn places(trace: &Trace) -> BTreeMap<String, (usize, usize)> {
    let mut places: BTreeMap<String, (usize, usize)> = BTreeMap::new();
    for span in &trace.spans {
        assert_eq!(span.weight, SNAPSHOT_NS);
        let own = functions(trace, span).into_iter();
        let own: Vec<&str> = own.filter(|name| OWN.contains(name)).collect();
        let (n, n_waiting) = places.entry(own.join(";")).or_default();
        *n += 1;
        *n_waiting += usize::from(span.state == ThreadState::Blocked);
    }
    places
}

fn truth(n_snapshots: usize) -> BTreeMap<String, (usize, usize)> {
    let of = |(place, n, waits): (&str, usize, bool)| {
        let n = n * n_snapshots;
        (place.to_owned(), (n, if waits { n } else { 0 }))
    };
    TRUTH.into_iter().map(of).collect()
}

/// Check that each dump has the program's nine threads, each in its functions, and waiting where it waits.
#[test]
fn known_stacks() {
    for (name, tool) in [
        ("gdb.txt", "a dump of stacks"),
        ("gdb-full.txt", "a dump of stacks"),
        ("gdb-lwp.txt", "a dump of stacks"),
        ("gdb-core.txt", "a dump of stacks"),
        ("eu-stack.txt", "a dump of stacks"),
        ("eu-stack-inlines.txt", "a dump of stacks"),
        ("eu-stack-verbose.txt", "a dump of stacks"),
        ("pt-pmp.txt", "pt-pmp"),
    ] {
        let trace = read(&fixture(&format!("dumps/{name}")));
        let header = &trace.tables.header;
        assert_eq!(header.engine, format!("imported from {tool}"), "{name}");
        assert_eq!(header.n_snapshots, 1, "{name}");
        assert_eq!(places(&trace), truth(1), "{name}");
        assert_eq!(trace.tables.threads.len(), 9, "{name}");
        let bad = header
            .notes
            .iter()
            .find(|note| note.contains("not understood"));
        assert_eq!(bad, None, "{name}");
    }
}

/// Check the names of threads, that inlined functions and the mark of a signal handler are frames, and that a quoted
/// text is as good as the text.
#[test]
fn details_of_gdb() {
    let text = fixture("dumps/gdb.txt");
    let trace = read(&text);
    let of_name = |name: &str| {
        trace
            .tables
            .threads
            .iter()
            .filter(|t| t.name() == name)
            .count()
    };
    assert_eq!(
        (of_name("poller"), of_name("writer (io)"), of_name("waits")),
        (3, 2, 1)
    );
    let all: Vec<Vec<&str>> = trace
        .spans
        .iter()
        .map(|span| functions(&trace, span))
        .collect();
    let is = |wanted: &[&str]| all.iter().any(|stack| stack.as_slice() == wanted);
    assert!(
        is(&["clone3", "start_thread", "busy", "spin", "step"]),
        "{all:?}"
    );
    let handled = [
        "clone3",
        "start_thread",
        "handler",
        "__pthread_kill_esrch",
        "__pthread_kill_implementation",
    ];
    let handled = [
        &handled[..],
        &["<signal handler called>", "on_signal", "__libc_pause"],
    ]
    .concat();
    assert!(is(&handled), "{all:?}");
    let quoted: String = text.lines().map(|line| format!("> {line}\n")).collect();
    assert_eq!(places(&read(&quoted)), truth(1));
    let windows = text.replace('\n', "\r\n");
    assert_eq!(places(&read(&windows)), truth(1));
}

/// Check that dumps of a loop in one file are snapshots of the same threads, and that pt-pmp's sum of three is what it says.
#[test]
fn several_snapshots() {
    for name in ["gdb.txt", "eu-stack.txt"] {
        let text = fixture(&format!("dumps/{name}")).repeat(3);
        let trace = read(&text);
        assert_eq!(trace.tables.header.n_snapshots, 3, "{name}");
        assert_eq!(trace.tables.threads.len(), 9, "{name}");
        assert_eq!(places(&trace), truth(3), "{name}");
        assert_eq!(trace.tables.stats.duration.0, 3 * SNAPSHOT_NS, "{name}");
    }
    let trace = read(&fixture("dumps/pt-pmp-3.txt"));
    assert_eq!(places(&trace), truth(3));
}

/// Check that samples and their time are those of the `perf.data` of which `perf script` printed them, thread by thread.
#[test]
fn script_is_as_its_recording() {
    let path = format!(
        "{}/tests/fixtures/cpu-clock.data",
        env!("CARGO_MANIFEST_DIR")
    );
    let bytes = std::fs::read(path).expect("a fixture");
    let recorded = import(bytes, &Options::default()).expect("a trace");
    let printed = read(&fixture("cpu-clock.txt"));
    let times = |trace: &Trace| {
        let mut times: BTreeMap<(i32, String), (usize, u64)> = BTreeMap::new();
        for span in &trace.spans {
            let thread = &trace.tables.threads[span.thread.0 as usize];
            let (n, ns) = times
                .entry((thread.tid.0, thread.name().to_owned()))
                .or_default();
            (*n, *ns) = (*n + 1, *ns + span.weight);
            assert_eq!(span.state, ThreadState::OnCpu);
        }
        times
    };
    assert_eq!(times(&printed), times(&recorded));
    // perf prints microseconds; the recording goes on after its last sample.
    let last = |trace: &Trace| trace.spans.iter().map(|span| span.end.0).max();
    let ends = [&printed, &recorded].map(|trace| last(trace).unwrap_or_default());
    assert!(ends[0].abs_diff(ends[1]) <= 2000, "{ends:?}");
    assert_eq!(printed.tables.header.n_snapshots, 0);
}
