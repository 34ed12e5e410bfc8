//! A table of names that a target can give itself, in every place of a trace that has a name, through every output.

use std::path::Path;

use wcprof_testkit::HOSTILE_NAMES;
use wcprof_trace::model::{SymbolTable, Trace};
use wcprof_trace::{TraceReader, TraceSink, TraceWriter};

use crate::support::{OSD, fixture, run};

fn name(number: usize) -> String {
    HOSTILE_NAMES[number % HOSTILE_NAMES.len()].to_owned()
}

/// A recording in which a target chose every name.
fn hostile() -> Trace {
    let reader = TraceReader::open(fixture(OSD)).expect("the fixture can be read");
    let mut trace = reader.read_all().expect("the fixture can be read").0;
    let tables = &mut trace.tables;
    for (number, process) in tables.processes.iter_mut().enumerate() {
        process.comm = name(number);
        process.cgroup = format!("/{}", name(number + 1));
        process.cmdline = vec![name(number + 2), "--id".to_owned(), name(number + 3)];
    }
    for (number, module) in tables.modules.iter_mut().enumerate() {
        module.path = format!("/lib/{}", name(number));
    }
    for (number, thread) in tables.threads.iter_mut().enumerate() {
        for (_, comm) in &mut thread.names {
            *comm = name(number);
        }
    }
    for (number, wait) in tables.waits.iter_mut().enumerate() {
        if let Some(fd) = &mut wait.fd {
            fd.path = name(number);
        }
    }
    tables.header.host = name(0);
    tables.header.engine = name(11);
    tables.header.kernel = name(27);
    let unread = "{\"path\":\"/etc/\\u001b]52;\\u001b[2J\",\"reason\":\"\\u001b[2J\"}";
    let setup =
        |schema: &str| format!("{{\"schema\":\"{schema}\",\"version\":1,\"unread\":[{unread}]}}");
    tables.origins.setups = vec![setup("wcprof-snapshot"), setup("\\u001b[2J\\u202egpj")];
    tables.header.notes = HOSTILE_NAMES.map(str::to_owned).to_vec();
    let mut functions = tables.names.symbols.take().unwrap_or_default();
    let frames = functions.frames.values_mut().flatten();
    for (number, frame) in frames.enumerate() {
        frame.name = name(number);
        frame.file = Some(format!("/src/{}", name(number + 1)));
        frame.line = Some(7);
    }
    long_name(&mut functions);
    tables.names.symbols = Some(functions);
    trace
}

/// One of them is a megabyte long.
fn long_name(functions: &mut SymbolTable) {
    if let Some(frame) = functions.frames.values_mut().flatten().next() {
        frame.name = "\x1b[2Jlong".repeat(1 << 17);
    }
}

fn save(trace: &Trace, path: &Path) {
    let file = std::fs::File::create(path).expect("a file");
    let mut writer = TraceWriter::for_file(file, &trace.tables.header).expect("a trace");
    let mut write = || {
        writer.add_tables(&trace.tables)?;
        trace.spans.iter().try_for_each(|span| writer.span(span))?;
        writer.finish(&trace.tables.stats)?;
        trace
            .tables
            .names
            .symbols
            .as_ref()
            .map_or(Ok(()), |symbols| writer.write_symbols(symbols))
    };
    write().expect("a trace");
}

/// Characters that drive a terminal or reorder what is beside them.
fn is_harmful(c: char) -> bool {
    c.is_control()
        || "\u{61c}\u{200e}\u{200f}".contains(c)
        || ('\u{2028}'..='\u{202e}').contains(&c)
        || ('\u{2066}'..='\u{2069}').contains(&c)
}

#[track_caller]
fn harmless(args: &[&str]) -> String {
    let output = run(args);
    let said = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(output.status.success(), "{args:?}: {said}");
    for text in [&output.stdout, &output.stderr] {
        let text = std::str::from_utf8(text).unwrap_or_else(|e| panic!("{args:?}: {e}"));
        // Lines of CSV end so (RFC 4180).
        let text = text.replace("\r\n", "\n");
        let harmful = text.chars().find(|c| *c != '\n' && is_harmful(*c));
        assert_eq!(harmful, None, "{args:?}");
    }
    String::from_utf8(output.stdout).expect("output is text")
}

/// Check that no output passes what drives a terminal, and that folded stacks have a line each.
#[test]
fn texts() {
    let folder = tempfile::tempdir().expect("a folder");
    let path = folder.path().join("hostile.wct");
    let trace = path.to_str().expect("a path");
    save(&hostile(), &path);
    for flags in [
        "",
        "--tree",
        "--tree --invert --by thread",
        "--functions",
        "--locks",
        "--locks --json",
        "--waits",
        "--json",
        "--json --by process",
        "--format uwpmp",
        "--format markdown",
        "--format csv",
        "--format speedscope",
        "--format firefox",
        "--format svg",
        "--format icicle",
        "--format html",
    ] {
        let args: Vec<&str> = ["report", trace]
            .into_iter()
            .chain(flags.split_whitespace())
            .collect();
        let text = harmless(&args);
        assert!(!text.is_empty(), "{flags}");
        // As a rule an element of a page or a picture begins with `<`; names have none.
        if flags.contains("html") || flags.contains("svg") || flags.contains("icicle") {
            for element in [
                "<script>alert",
                "<img",
                "<svg onload",
                " onmouseover=\"alert",
            ] {
                assert!(!text.contains(element), "{flags}: {element}");
            }
        }
    }
    for args in [
        &["doctor", trace][..],
        &["doctor", trace, "--json"],
        &["check", trace],
        &["check", trace, "--json"],
        &["diff", trace, trace],
        &["diff", trace, trace, "--json"],
        &["diff", trace, trace, "--format", "html"],
        &["diff", trace, trace, "--format", "svg"],
    ] {
        harmless(args);
    }
    let folded = harmless(&[
        "report", trace, "--format", "folded", "--by", "thread", "--idle", "show",
    ]);
    for line in folded.lines() {
        let (stack, weight) = line.rsplit_once(' ').unwrap_or_else(|| panic!("{line:?}"));
        assert!(
            !stack.is_empty() && weight.parse::<u64>().is_ok(),
            "{line:?}"
        );
    }
}

/// Check that what is made of such a trace by `merge` and by a round of folded stacks is as harmless.
#[test]
fn made_of_it() {
    let folder = tempfile::tempdir().expect("a folder");
    let at = |name: &str| {
        folder
            .path()
            .join(name)
            .to_str()
            .expect("a path")
            .to_owned()
    };
    let (trace, folded, again, merged) = (at("a.wct"), at("a.folded"), at("b.wct"), at("c.wct"));
    save(&hostile(), Path::new(&trace));
    harmless(&["report", &trace, "--format", "folded", "-o", &folded]);
    harmless(&["import", &folded, "-o", &again]);
    harmless(&["merge", &trace, &again, "-o", &merged]);
    for made in [&again, &merged] {
        harmless(&["report", made, "--tree"]);
        harmless(&["report", made, "--format", "html"]);
    }
}
